//! Who owns an invocation: its replica, until it dies; then exactly one other.

use std::time::Duration;

use super::harness::{Ask, Client, engine, replica, tenant, usual};
use crate::{
    call_error::table::REQUEST_ID_REUSED,
    domain::{failure::FailureClass, invocation::RewindMode},
    execution::{Cancelled, Disposition, InvocationName},
};

const SLOW: &str = "{ otherwise: { answer: { text: one two three four five six seven eight, tokens_per_second: 10 } } }";

#[tokio::test(start_paused = true)]
async fn an_invocation_ends_when_its_last_follower_goes_unless_it_is_resumable() {
    let engine = engine(SLOW);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    for (ask, class) in [
        (Ask::new("Hello"), Some(FailureClass::Cancelled)),
        (Ask::new("Hello").resumable(), None),
    ] {
        let mut started = ask.start(&here).await.unwrap();
        Client::default()
            .read(&mut started.follower, 3)
            .await
            .unwrap();
        drop(started.follower);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(here.count(), 0, "it has ended");
        let record = here
            .find(&tenant(), &InvocationName::Id(started.id))
            .await
            .unwrap()
            .unwrap();
        let ended = record
            .outcome
            .unwrap()
            .result
            .as_ref()
            .err()
            .map(|failure| failure.class);
        assert_eq!(ended, class);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grace_that_is_over_cancels_and_a_return_within_it_does_not() {
    let engine = engine(SLOW);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut ask = Ask::new("Hello");
    ask.grace = Some(Duration::from_millis(300));
    let started = ask.start(&here).await.unwrap();
    drop(started.follower);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let record = here
        .find(&tenant(), &InvocationName::Id(started.id.clone()))
        .await
        .unwrap()
        .unwrap();
    let back = here.follow(&record, None);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(here.count(), 1, "somebody is there again");
    drop(back);
    tokio::time::sleep(Duration::from_millis(350)).await;
    let record = here
        .find(&tenant(), &InvocationName::Id(started.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        record.outcome.unwrap().result.as_ref().unwrap_err().message,
        "client gone"
    );
}

#[tokio::test(start_paused = true)]
async fn an_old_owner_that_wakes_up_can_neither_write_nor_speak() {
    let engine = engine(SLOW);
    let journal = usual();
    let old = replica("old", &engine, &journal);
    let new = replica("new", &engine, &journal);
    let mut started = Ask::new("Hello").resumable().start(&old).await.unwrap();
    let mut client = Client::default();
    client.read(&mut started.follower, 4).await.unwrap();
    // The lease is over: the first who looks takes the invocation over, although its owner lives.
    old.oversleep().await;
    let record = new
        .find(&tenant(), &InvocationName::Id(started.id.clone()))
        .await
        .unwrap()
        .unwrap();
    let mut elsewhere = new.follow(&record, None).follower;
    let mut other = Client::default();
    assert!(new.shared.take_over_orphan(&started.id).await.unwrap());
    other.read(&mut elsewhere, 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(old.count(), 0, "the old owner stopped at its first write");
    // The old owner's own client is served on, through the journal, by the new owner's steps.
    other.read(&mut elsewhere, usize::MAX).await.unwrap();
    client
        .read(&mut started.follower, usize::MAX)
        .await
        .unwrap();
    assert_eq!(client.answer(), "one two three four five six seven eight");
    assert_eq!(client.fold.hash(), other.fold.hash());
    assert_eq!(client.outcome, other.outcome);
    let record = new
        .find(&tenant(), &InvocationName::Id(started.id))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((record.epoch, record.owner.as_str()), (2, "new"));
    let outcome = record.outcome.unwrap();
    assert_eq!(
        outcome.attempts.len(),
        2,
        "the orphaned attempt is recorded"
    );
    assert_eq!(
        outcome.attempts[0].failure.as_ref().unwrap().class,
        FailureClass::StreamInterrupted
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_costs_the_caller_no_attempt_and_the_target_no_mark() {
    let engine = engine(SLOW);
    let journal = usual();
    let mut here = replica("0", &engine, &journal);
    let started = Ask::new("Hello").resumable().start(&here).await.unwrap();
    let id = started.id;
    let mut follower = started.follower;
    let mut client = Client::default();
    for crash in 1..10 {
        client.read(&mut follower, 1).await.unwrap();
        here.shared.take_over_orphan(&id).await.unwrap();
        tokio::time::sleep(Duration::from_millis(250)).await;
        here.crash().await;
        here = replica(&crash.to_string(), &engine, &journal);
        let record = here
            .find(&tenant(), &InvocationName::Id(id.clone()))
            .await
            .unwrap()
            .unwrap();
        if record.is_finished() {
            break;
        }
        follower = here.follow(&record, client.cursor).follower;
    }
    client.finish(&here, &id).await;
    let outcome = client.outcome.unwrap();
    assert!(
        outcome.result.is_ok(),
        "it is whole after nine crashes: {outcome:?}"
    );
    let (last, lost) = outcome.attempts.split_last().unwrap();
    assert!(
        lost.len() > 4 && lost.iter().all(|attempt| attempt.lost_with_replica),
        "more than are allowed: {lost:?}"
    );
    assert!(!last.lost_with_replica);
}

#[tokio::test(start_paused = true)]
async fn who_holds_more_than_was_recorded_is_told_the_end_by_its_number() {
    let engine = engine(&SLOW.replace("10", "100"));
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let there = replica("b", &engine, &journal);
    let started = Ask::new("Hello").resumable().start(&here).await.unwrap();
    let id = started.id;
    let mut follower = started.follower;
    let mut client = Client::default();
    client.read(&mut follower, 5).await.unwrap();
    here.crash().await;
    let record = there
        .find(&tenant(), &InvocationName::Id(id.clone()))
        .await
        .unwrap()
        .unwrap();
    assert!(
        record.last_seq < client.cursor.unwrap().1,
        "it was told more than was recorded"
    );
    assert_eq!(
        there.cancel(&id, "enough").await.unwrap(),
        Cancelled::Accepted
    );
    client.finish(&there, &id).await;
    assert_eq!(
        client.outcome.unwrap().result.unwrap_err().class,
        FailureClass::Cancelled
    );
}

#[tokio::test(start_paused = true)]
async fn two_who_take_over_at_once_make_one_owner() {
    let engine = engine(SLOW);
    let journal = usual();
    let old = replica("old", &engine, &journal);
    let started = Ask::new("Hello").resumable().start(&old).await.unwrap();
    old.hand_over().await;
    let replicas: Vec<_> = (0..8)
        .map(|number| replica(&format!("r{number}"), &engine, &journal))
        .collect();
    let takeovers = replicas
        .iter()
        .map(|replica| replica.shared.take_over_orphan(&started.id));
    futures_util::future::join_all(takeovers).await;
    assert_eq!(
        replicas
            .iter()
            .map(crate::execution::Executions::count)
            .sum::<usize>(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn one_request_id_is_one_invocation_on_all_replicas() {
    let engine = engine(SLOW);
    let journal = usual();
    let replicas = [
        replica("a", &engine, &journal),
        replica("b", &engine, &journal),
    ];
    let ask = Ask {
        request_id: Some("r-1".into()),
        ..Ask::new("Hello")
    };
    let starts = (0..20).map(|number| ask.clone().start(&replicas[number % 2]));
    let started = futures_util::future::join_all(starts).await;
    let followed = started.into_iter().map(|started| async {
        let mut started = started.unwrap();
        let mut client = Client::default();
        client
            .read(&mut started.follower, usize::MAX)
            .await
            .unwrap();
        (started.id, started.disposition, client.answer().to_owned())
    });
    let ends = futures_util::future::join_all(followed).await;
    assert_eq!(
        ends.iter()
            .filter(|(_, disposition, _)| *disposition == Disposition::New)
            .count(),
        1
    );
    assert!(
        ends.iter()
            .all(|(id, _, answer)| *id == ends[0].0 && *answer == ends[0].2)
    );
    let again = ask.clone().start(&replicas[1]).await.unwrap();
    assert_eq!(again.disposition, Disposition::Replay);
    let other = Ask {
        text: "Something else".to_owned(),
        ..ask
    };
    let refused = other.start(&replicas[0]).await.unwrap_err();
    assert!(refused.is(REQUEST_ID_REUSED), "{refused:?}");
    assert_eq!(refused.get("invocationId"), Some(ends[0].0.as_str()));
}

#[tokio::test(start_paused = true)]
async fn an_invocation_is_cancelled_from_another_replica() {
    let engine = engine(SLOW);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let there = replica("b", &engine, &journal);
    let mut keeping = tokio::task::JoinSet::new();
    keeping.spawn(here.clone().keep());
    let mut started = Ask {
        mode: Some(RewindMode::Atomic),
        ..Ask::new("Hello")
    }
    .start(&here)
    .await
    .unwrap();
    assert_eq!(
        there.cancel(&started.id, "enough").await.unwrap(),
        Cancelled::Accepted
    );
    let outcome = started.follower.outcome().await.unwrap();
    assert_eq!(
        outcome.result.as_ref().unwrap_err().class,
        FailureClass::Cancelled
    );
    assert_eq!(
        there.cancel(&started.id, "enough").await.unwrap(),
        Cancelled::Ended
    );
    assert_eq!(
        there.cancel(&"nobody".into(), "enough").await.unwrap(),
        Cancelled::Unknown
    );
}
