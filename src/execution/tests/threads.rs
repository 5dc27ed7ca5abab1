//! Threads are checkpoints: a turn is in them whole, or not at all.

use std::time::Duration;

use super::harness::{Ask, Client, engine, replica, tenant, usual};
use crate::{
    domain::message::Role,
    execution::{Name, StartError},
    journal::{Thread, ThreadError, ThreadKey},
};

fn key() -> ThreadKey {
    ThreadKey::new(tenant(), "t-1".into())
}

fn texts(thread: &Thread) -> Vec<String> {
    thread.messages.iter().map(|message| format!("{:?}: {}", message.role, message.joined_text())).collect()
}

#[tokio::test(start_paused = true)]
async fn turns_follow_each_other_and_a_failed_one_leaves_only_its_error() {
    let script = "{ steps: [{ answer: { text: First. } }, { status: { code: 401 } }], otherwise: { answer: { text: Second. } } }";
    let (engine, journal) = (engine(script), usual());
    let here = replica("a", &engine, &journal);
    for (text, answered) in [("One?", true), ("Two?", false), ("Three?", true)] {
        let mut started = Ask::new(text).on("t-1").start(&here).await.unwrap();
        let outcome = started.follower.outcome().await.unwrap();
        assert_eq!(outcome.result.is_ok(), answered, "{text}: {:?}", outcome.result);
    }
    let thread = here.thread(&key()).await.unwrap().unwrap();
    assert_eq!(texts(&thread), ["User: One?", "Assistant: First.", "User: Three?", "Assistant: Second."]);
    assert_eq!((thread.errors.len(), thread.running.as_ref()), (1, None));
    assert_eq!(thread.messages.iter().filter(|message| message.role == Role::User).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_invocation_on_a_thread_is_refused_with_the_running_one() {
    let slow = "{ otherwise: { answer: { text: one two three four, tokens_per_second: 5 } } }";
    let (engine, journal) = (engine(slow), usual());
    let here = replica("a", &engine, &journal);
    let asks = (0..8).map(|_| Ask::new("Hello").on("t-1").start(&here));
    let started = futures_util::future::join_all(asks).await;
    let mut running: Vec<_> =
        started.iter().filter_map(|started| started.as_ref().ok()).map(|one| one.id.clone()).collect();
    assert_eq!(running.len(), 1, "{started:?}");
    let first = running.remove(0);
    for refused in started.iter().filter_map(|started| started.as_ref().err()) {
        assert!(matches!(refused, StartError::ThreadBusy(id) if *id == first), "{refused:?}");
    }
    assert!(matches!(here.delete_thread(&key(), None).await, Err(ThreadError::Busy { running }) if running == first));
    for one in started.into_iter().flatten() {
        let mut one = one;
        one.follower.outcome().await.unwrap();
    }
    assert!(here.delete_thread(&key(), Some(7)).await.is_err(), "another version");
    assert!(here.delete_thread(&key(), Some(2)).await.unwrap());
    assert!(!here.delete_thread(&key(), None).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_connection_dropped_in_the_middle_leaves_no_partial_answer() {
    let script = "{ steps: [{ answer: { text: one two three four, tokens_per_second: 5 } }], otherwise: { answer: { text: Whole. } } }";
    let (engine, journal) = (engine(script), usual());
    let here = replica("a", &engine, &journal);
    let mut started = Ask::new("First?").on("t-1").start(&here).await.unwrap();
    let mut client = Client::default();
    client.read(&mut started.follower, 4).await.unwrap();
    assert!(!client.fold.blocks().is_empty(), "something was delivered");
    drop(started.follower);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut again = Ask::new("Second?").on("t-1").start(&here).await.unwrap();
    again.follower.outcome().await.unwrap();
    let thread = here.thread(&key()).await.unwrap().unwrap();
    assert_eq!(texts(&thread), ["User: Second?", "Assistant: Whole."]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_survives_the_crash_of_its_replica_once() {
    let slow = "{ otherwise: { answer: { text: one two three four, tokens_per_second: 5 } } }";
    let (engine, journal) = (engine(slow), usual());
    let here = replica("a", &engine, &journal);
    let mut started = Ask::new("Hello?").on("t-1").resumable().start(&here).await.unwrap();
    let mut client = Client::default();
    client.read(&mut started.follower, 4).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    here.crash().await;
    let there = replica("b", &engine, &journal);
    client.finish(&there, &started.id).await;
    assert_eq!(client.answer(), "one two three four");
    let thread = there.thread(&key()).await.unwrap().unwrap();
    assert_eq!(texts(&thread), ["User: Hello?", "Assistant: one two three four"]);
    assert!(there.find(&tenant(), &Name::Id(started.id)).await.unwrap().unwrap().is_finished());
}
