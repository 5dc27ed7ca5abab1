//! A journal that is unavailable, wholly or in part: calls that need it fail with that reason, and
//! all others succeed.

mod journal;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use self::journal::Failing;
use super::harness::{Ask, Client, engine, tenant};
use crate::{
    call_error::table::{REQUEST_ID_REUSED, STORE_UNAVAILABLE},
    domain::{
        event::EventBody,
        failure::{FailureClass, FailureCode},
        upstream::UpstreamHandle,
    },
    events::{BusItem, EventReader},
    execution::{Executions, InvocationName, Settings},
    journal::{Journal, JournalMode, Owner, ThreadKey},
};

fn world() -> (Arc<Failing>, Executions) {
    let journal = Arc::new(Failing::new());
    let engine = engine(
        "{ otherwise: { answer: { text: one two three four five, tokens_per_second: 20 } } }",
    );
    let executions = Executions::new(
        engine,
        Arc::clone(&journal) as Arc<dyn Journal>,
        Settings::new(Owner::new("a")),
    );
    (journal, executions)
}

async fn answered(ask: Ask, executions: &Executions) -> Client {
    let mut started = ask.start(executions).await.unwrap();
    let mut client = Client::default();
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn a_call_that_needs_no_journal_is_served_without_one() {
    let (journal, executions) = world();
    journal.begins.store(1, Ordering::SeqCst);
    assert_eq!(
        answered(Ask::new("Hello"), &executions).await.answer(),
        "one two three four five"
    );
    journal.begins.store(1, Ordering::SeqCst);
    let ask = Ask {
        request_id: Some("r".into()),
        ..Ask::new("Hello")
    };
    assert!(
        matches!(ask.start(&executions).await, Err(error) if error.is(STORE_UNAVAILABLE)),
        "a promise is not made in vain"
    );
    journal.begins.store(1, Ordering::SeqCst);
    assert!(matches!(
        Ask::new("Hello").resumable().start(&executions).await,
        Err(error) if error.is(STORE_UNAVAILABLE)
    ));
}

/// Returns the class and message with which each invocation failed that this reader sees.
fn failed(events: &mut EventReader) -> Vec<(FailureClass, String)> {
    let mut seen = Vec::new();
    while let Some(item) = events.try_next() {
        if let BusItem::Event(event) = item
            && let EventBody::InvocationFailed { class, message, .. } = &event.body
        {
            seen.push((*class, message.clone()));
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_recorded_fails_by_that_and_not_because_its_caller_went_away() {
    let (journal, executions) = world();
    let mut events = executions.shared.engine.events().live();
    journal.begins.store(1, Ordering::SeqCst);
    assert!(
        Ask::new("Hello")
            .resumable()
            .start(&executions)
            .await
            .is_err()
    );
    let words = "the call could not be recorded: the journal is unavailable: as the test said";
    assert_eq!(
        failed(&mut events),
        [(FailureClass::State, words.to_owned())]
    );
    // Whose caller does go away is cancelled still.
    let started = Ask::new("Hello").start(&executions).await.unwrap();
    drop(started);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        failed(&mut events),
        [(FailureClass::Cancelled, "client gone".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_request_id_is_used_while_it_is_prepared_ends_with_the_other_s_name() {
    let (_, executions) = world();
    let mut events = executions.shared.engine.events().live();
    let ask = |text: &str| Ask {
        request_id: Some("r".into()),
        ..Ask::new(text)
    };
    let (first, second, third) = tokio::join!(
        ask("Hello").start(&executions),
        ask("Hello").start(&executions),
        ask("Something else").start(&executions),
    );
    let earlier = first.unwrap().id;
    assert_eq!(second.unwrap().id, earlier);
    let third = third.unwrap_err();
    assert!(third.is(REQUEST_ID_REUSED), "{third:?}");
    assert_eq!(third.get("invocationId"), Some(earlier.as_str()));
    let words = [
        format!("its request id was used for another request, by invocation {earlier}"),
        format!("the same request is invocation {earlier}"),
    ];
    let expected: Vec<_> = [FailureClass::InvalidRequest, FailureClass::Cancelled]
        .into_iter()
        .zip(words)
        .collect();
    let mut ended = failed(&mut events);
    ended.sort_by(|one, other| one.1.cmp(&other.1));
    assert_eq!(ended, expected);
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_comes_back_has_every_step() {
    let (journal, executions) = world();
    journal.appends.store(3, Ordering::SeqCst);
    journal.finishes.store(3, Ordering::SeqCst);
    let mut started = Ask::new("Hello").start(&executions).await.unwrap();
    let id = started.id.clone();
    let mut client = Client::default();
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    let mut late = Client::default();
    late.finish(&executions, &id).await;
    assert_eq!(late.fold.hash(), client.fold.hash());
    assert_eq!(late.snapshots, 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_recorded_is_told_all_the_same() {
    let (journal, executions) = world();
    journal.finishes.store(usize::MAX, Ordering::SeqCst);
    let began = tokio::time::Instant::now();
    assert_eq!(
        answered(Ask::new("Hello"), &executions).await.answer(),
        "one two three four five"
    );
    assert!(
        began.elapsed() < std::time::Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

/// One whose journal was away for so long that the queue is full.
async fn overflowing(mode: JournalMode) -> (Client, crate::execution::ExecutionLevels, bool) {
    let journal = Arc::new(Failing::new());
    // Away for a second: each try is a quarter of one apart.
    journal.appends.store(4, Ordering::SeqCst);
    let text = "word ".repeat(400);
    let script =
        format!("{{ otherwise: {{ answer: {{ text: {text:?}, tokens_per_second: 400 }} }} }}");
    let settings = Settings {
        queue: 20,
        mode,
        ..Settings::new(Owner::new("a"))
    };
    let executions = Executions::new(
        engine(&script),
        Arc::clone(&journal) as Arc<dyn Journal>,
        settings,
    );
    let mut started = Ask::new("Hello").start(&executions).await.unwrap();
    let mut client = Client::default();
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    assert_eq!(client.answer(), text);
    let id = started.id.clone();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let page = journal.read(&id, 0, usize::MAX).await.unwrap().unwrap();
    let whole =
        page.entries.len() as u64 == page.last_seq && page.finished && !page.entries.is_empty();
    (client, executions.levels(), whole)
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_costs_a_fast_invocation_its_record_which_is_counted() {
    let (client, levels, whole) = overflowing(JournalMode::Fast).await;
    assert!(!whole && levels.dropped > 20, "{levels:?}");
    assert_eq!(
        (levels.waiting, client.snapshots),
        (0, 0),
        "its reader saw all of it, and nothing is held for it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_holds_a_strict_invocation_until_there_is_room() {
    let (_, levels, whole) = overflowing(JournalMode::Strict).await;
    assert!(whole, "every step is recorded");
    assert_eq!((levels.waiting, levels.dropped), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_wholly_away_is_a_context_error_for_a_thread() {
    for request_id in [None, Some("r".into())] {
        let (journal, executions) = world();
        journal.begins.store(1, Ordering::SeqCst);
        let ask = Ask {
            request_id,
            ..Ask::new("Hello").on("t-1")
        };
        assert_eq!(
            answered(ask.clone(), &executions).await.answer(),
            "one two three four five",
            "one is forgiven"
        );
        journal.begins.store(2, Ordering::SeqCst);
        let ask = Ask {
            request_id: None,
            ..ask
        };
        let failed = answered(ask, &executions).await.outcome.unwrap();
        assert_eq!(
            failed.result.unwrap_err().class.code(),
            FailureCode::ContextError
        );
        assert!(failed.attempts.is_empty(), "nobody was asked");
    }
}

#[tokio::test(start_paused = true)]
async fn one_failure_to_load_a_thread_is_forgiven_and_two_are_a_context_error() {
    let (journal, executions) = world();
    journal.locks.store(1, Ordering::SeqCst);
    assert_eq!(
        answered(Ask::new("Hello").on("t-1"), &executions)
            .await
            .answer(),
        "one two three four five"
    );
    journal.locks.store(2, Ordering::SeqCst);
    let failed = answered(Ask::new("Hello").on("t-1"), &executions)
        .await
        .outcome
        .unwrap();
    let failure = failed.result.unwrap_err();
    assert_eq!(
        failure.class.code(),
        FailureCode::ContextError,
        "{failure:?}"
    );
    assert!(failed.attempts.is_empty(), "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_cannot_be_saved_is_a_state_error_and_nothing_is_half_written() {
    let (journal, executions) = world();
    answered(Ask::new("First").on("t-1"), &executions).await;
    journal.finishes.store(usize::MAX, Ordering::SeqCst);
    let failed = answered(Ask::new("Second").on("t-1"), &executions)
        .await
        .outcome
        .unwrap();
    assert_eq!(
        failed.result.unwrap_err().class.code(),
        FailureCode::StateError
    );
    journal.finishes.store(0, Ordering::SeqCst);
    let thread = executions
        .thread(&ThreadKey::new(tenant(), "t-1".into()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        thread.messages.len(),
        2,
        "only the first turn and its answer"
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_the_record_of_where_its_answer_was_made() {
    let (_journal, executions) = world();
    let mut started = Ask::new("Hello").start(&executions).await.unwrap();
    let handle = UpstreamHandle {
        attempt: 1,
        target: "main".into(),
        id: "resp_1".to_owned(),
    };
    executions
        .shared
        .execution(&started.id)
        .unwrap()
        .links
        .background
        .register(handle);
    let mut client = Client::default();
    let reading = client.read(&mut started.follower, usize::MAX);
    tokio::time::timeout(Duration::from_secs(9), reading)
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(client.answer(), "one two three four five");
    let record = executions
        .find(&tenant(), &InvocationName::Id(started.id))
        .await
        .unwrap()
        .unwrap();
    assert!(record.is_finished(), "and its end is recorded");
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_is_away_is_tried_four_times_a_second_however_many_steps_wait() {
    const AWAY: usize = 100_000;
    let words: Vec<String> = (0..2000).map(|word| format!("w{word}")).collect();
    let text = words.join(" ");
    let journal = Arc::new(Failing::new());
    journal.appends.store(AWAY, Ordering::SeqCst);
    let engine = engine(&format!(
        "{{ otherwise: {{ answer: {{ text: {text}, tokens_per_second: 1000 }} }} }}"
    ));
    let executions = Executions::new(
        engine,
        Arc::clone(&journal) as Arc<dyn Journal>,
        Settings::new(Owner::new("a")),
    );
    let began = tokio::time::Instant::now();
    let client = answered(Ask::new("Hello").resumable(), &executions).await;
    assert_eq!(client.answer(), text);
    let tries = AWAY - journal.appends.load(Ordering::SeqCst);
    let most = began.elapsed().as_millis() / 250 + 2;
    assert!(
        (2..=most).contains(&(tries as u128)),
        "{tries} tries in {:?}",
        began.elapsed()
    );
}
