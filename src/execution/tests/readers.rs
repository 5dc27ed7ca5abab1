//! Readers never hold anything up: not the upstream, not each other, not the memory.

use std::time::Duration;

use super::harness::{Ask, Client, engine, engine_able, replica, tenant, usual};
use crate::{
    domain::invocation::RewindMode,
    execution::{InvocationName, replay_buffer::ReadResult},
};

#[tokio::test(start_paused = true)]
async fn a_reader_that_stands_still_slows_nobody_and_catches_up_later() {
    let text = "word ".repeat(20_000);
    let script =
        format!("{{ otherwise: {{ answer: {{ text: {text:?}, tokens_per_second: 10000 }} }} }}");
    let engine = engine(&script);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut stuck = Ask::new("Hello").start(&here).await.unwrap();
    let mut slow = Client::default();
    slow.read(&mut stuck.follower, 5).await.unwrap();
    let execution = here.shared.execution(&stuck.id).unwrap();
    let record = here
        .find(&tenant(), &InvocationName::Id(stuck.id.clone()))
        .await
        .unwrap()
        .unwrap();
    let mut quick = Client::default();
    quick
        .read(&mut here.follow(&record, None).follower, usize::MAX)
        .await
        .unwrap();
    assert_eq!(quick.answer(), text);
    let late = execution.replay.join();
    assert!(
        matches!(execution.replay.after(late, 5, 1), ReadResult::Behind),
        "the tail let go what the journal has"
    );
    slow.read(&mut stuck.follower, usize::MAX).await.unwrap();
    assert_eq!(slow.fold.hash(), quick.fold.hash());
    assert_eq!(
        slow.snapshots, 0,
        "it caught up step by step, from the journal"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invocation_beyond_its_cap_goes_on_and_ends_whole() {
    use crate::journal::{Journal, Limits, MemoryJournal};
    let text = "0123456789 ".repeat(4000);
    let script =
        format!("{{ otherwise: {{ answer: {{ text: {text:?}, tokens_per_second: 10000 }} }} }}");
    let engine = engine(&script);
    let limits = Limits {
        invocation_bytes: 40_000,
        ..Limits::default()
    };
    let journal: std::sync::Arc<dyn Journal> = std::sync::Arc::new(MemoryJournal::new(limits));
    let here = replica("a", &engine, &journal);
    for mode in [RewindMode::Rewind, RewindMode::Atomic] {
        let mut started = Ask {
            mode: Some(mode),
            ..Ask::new("Hello")
        }
        .start(&here)
        .await
        .unwrap();
        let mut client = Client::default();
        client
            .read(&mut started.follower, usize::MAX)
            .await
            .unwrap();
        assert_eq!(client.answer(), text);
        let mut late = Client::default();
        late.finish(&here, &started.id).await;
        assert_eq!(late.fold.hash(), client.fold.hash());
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_claims_more_than_was_told_is_told_all_at_once() {
    let slow = "{ otherwise: { answer: { text: one two three four, tokens_per_second: 10 } } }";
    let engine = engine(slow);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut started = Ask::new("Hello").start(&here).await.unwrap();
    let mut client = Client::default();
    client.read(&mut started.follower, 3).await.unwrap();
    let record = here
        .find(&tenant(), &InvocationName::Id(started.id.clone()))
        .await
        .unwrap()
        .unwrap();
    let mut liar = Client {
        cursor: Some((1, 999)),
        ..Client::default()
    };
    let mut follower = here.follow(&record, liar.cursor).follower;
    liar.read(&mut follower, usize::MAX).await.unwrap();
    assert_eq!(liar.snapshots, 1);
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    assert_eq!(liar.fold.hash(), client.fold.hash());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(here.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_text_that_broke_off_goes_on_where_the_target_can_and_begins_anew_where_not() {
    let begun = "A sentence of a long text. "
        .repeat(12)
        .trim_end()
        .to_owned();
    let rest = " And this is its end.";
    let script = format!(
        "{{ steps: [{{ cut: {{ after_text: {begun:?} }} }}], otherwise: {{ answer: {{ text: {rest:?} }} }} }}"
    );
    for (able, whole, rewinds) in [
        ("true", format!("{begun}{rest}"), 0),
        ("false", rest.to_owned(), 1),
    ] {
        let capable = format!(", capabilities: {{ assistant_prefill: {able} }}");
        let engine = engine_able(&script, &capable);
        let journal = usual();
        let here = replica("a", &engine, &journal);
        let mut started = Ask::new("Tell me.").start(&here).await.unwrap();
        let mut client = Client::default();
        client
            .read(&mut started.follower, usize::MAX)
            .await
            .unwrap();
        assert_eq!(client.answer(), whole);
        assert_eq!(client.rewinds, rewinds);
        let outcome = client.outcome.unwrap();
        let continued = outcome
            .recovery_applied
            .contains(&crate::domain::invocation::RecoveryStrategy::Continue);
        assert_eq!(continued, able == "true", "{:?}", outcome.recovery_applied);
        assert_eq!(
            outcome.history_patch.messages.len(),
            1,
            "the begun message is not told twice"
        );
    }
}
