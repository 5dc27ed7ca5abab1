//! Threads are checkpoints: a turn is in them whole, or not at all.

use std::{sync::Arc, time::Duration};

use super::harness::{Ask, Client, engine, replica, tenant, usual};
use crate::{
    call_error::{CallError, table::THREAD_BUSY},
    domain::message::Role,
    engine::Engine,
    execution::{Executions, InvocationName, Settings},
    journal::{Journal, Owner, Thread, ThreadError, ThreadKey},
};

fn key() -> ThreadKey {
    ThreadKey::new(tenant(), "t-1".into())
}

fn texts(thread: &Thread) -> Vec<String> {
    thread
        .messages
        .iter()
        .map(|message| format!("{:?}: {}", message.role, message.joined_text()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn turns_follow_each_other_and_a_failed_one_leaves_only_its_error() {
    let script = "{ steps: [{ answer: { text: First. } }, { status: { code: 400 } }], otherwise: { answer: { text: Second. } } }";
    let engine = engine(script);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    for (text, answered) in [("One?", true), ("Two?", false), ("Three?", true)] {
        let mut started = Ask::new(text).on("t-1").start(&here).await.unwrap();
        let outcome = started.follower.outcome().await.unwrap();
        assert_eq!(
            outcome.result.is_ok(),
            answered,
            "{text}: {:?}",
            outcome.result
        );
    }
    let thread = here.thread(&key()).await.unwrap().unwrap();
    assert_eq!(
        texts(&thread),
        [
            "User: One?",
            "Assistant: First.",
            "User: Three?",
            "Assistant: Second."
        ]
    );
    assert_eq!((thread.errors.len(), thread.running.as_ref()), (1, None));
    assert_eq!(
        thread
            .messages
            .iter()
            .filter(|message| message.role == Role::User)
            .count(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn the_second_invocation_on_a_thread_is_refused_with_the_running_one() {
    let slow = "{ otherwise: { answer: { text: one two three four, tokens_per_second: 5 } } }";
    let engine = engine(slow);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let asks = (0..8).map(|_| Ask::new("Hello").on("t-1").start(&here));
    let started = futures_util::future::join_all(asks).await;
    let mut running: Vec<_> = started
        .iter()
        .filter_map(|started| started.as_ref().ok())
        .map(|one| one.id.clone())
        .collect();
    assert_eq!(running.len(), 1, "{started:?}");
    let first = running.remove(0);
    for refused in started.iter().filter_map(|started| started.as_ref().err()) {
        assert!(
            refused.is(THREAD_BUSY) && refused.get("invocationId") == Some(first.as_str()),
            "{refused:?}"
        );
    }
    assert!(
        matches!(here.delete_thread(&key(), None).await, Err(ThreadError::Busy { running }) if running == first)
    );
    for one in started.into_iter().flatten() {
        let mut one = one;
        one.follower.outcome().await.unwrap();
    }
    assert!(
        here.delete_thread(&key(), Some(7)).await.is_err(),
        "another version"
    );
    assert!(here.delete_thread(&key(), Some(2)).await.unwrap());
    assert!(!here.delete_thread(&key(), None).await.unwrap());
}

/// A replica where so many may wait for a thread.
fn with_a_line(engine: &Engine, journal: &Arc<dyn Journal>, name: &str, max: usize) -> Executions {
    let settings = Settings {
        thread_queue: max,
        ..Settings::new(Owner::new(name))
    };
    Executions::new(engine.clone(), Arc::clone(journal), settings)
}

#[tokio::test(start_paused = true)]
async fn where_the_operator_lets_them_wait_invocations_follow_each_other_in_order() {
    let slow = "{ otherwise: { answer: { text: one two three four, tokens_per_second: 5 } } }";
    let engine = engine(slow);
    let journal = usual();
    let here = with_a_line(&engine, &journal, "a", 3);
    let asked = (0..6).map(|number| {
        let ask = Ask::new(&format!("{number}?")).on("t-1").start(&here);
        async move {
            let mut started = ask.await?;
            Ok::<_, CallError>(started.follower.outcome().await.unwrap().result.is_ok())
        }
    });
    let ended = futures_util::future::join_all(asked).await;
    let refused = ended
        .iter()
        .filter(|one| matches!(one, Err(error) if error.is(THREAD_BUSY)))
        .count();
    assert_eq!(
        (
            refused,
            ended.iter().filter(|one| matches!(one, Ok(true))).count()
        ),
        (2, 4),
        "{ended:?}"
    );
    let thread = here.thread(&key()).await.unwrap().unwrap();
    let questions: Vec<String> = texts(&thread)
        .into_iter()
        .filter(|text| text.starts_with("User"))
        .collect();
    assert_eq!(
        questions,
        ["User: 0?", "User: 1?", "User: 2?", "User: 3?"],
        "first come, first served"
    );
    assert_eq!((thread.version, thread.messages.len()), (5, 8));
}

#[tokio::test(start_paused = true)]
async fn lines_of_two_replicas_take_turns_and_lose_no_turn() {
    let slow = "{ otherwise: { answer: { text: one two, tokens_per_second: 5 } } }";
    let engine = engine(slow);
    let journal = usual();
    let replicas = [
        with_a_line(&engine, &journal, "a", 8),
        with_a_line(&engine, &journal, "b", 8),
    ];
    let asked = (0..10).map(|number| {
        let ask = Ask::new(&format!("{number}?"))
            .on("t-1")
            .start(&replicas[number % 2]);
        async move {
            ask.await
                .unwrap()
                .follower
                .outcome()
                .await
                .unwrap()
                .result
                .is_ok()
        }
    });
    assert!(
        futures_util::future::join_all(asked)
            .await
            .into_iter()
            .all(|answered| answered)
    );
    let thread = replicas[0].thread(&key()).await.unwrap().unwrap();
    let mut questions: Vec<String> = texts(&thread)
        .into_iter()
        .filter(|text| text.starts_with("User"))
        .collect();
    questions.sort();
    let expected: Vec<String> = (0..10).map(|number| format!("User: {number}?")).collect();
    assert_eq!(questions, expected, "each turn once");
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_is_refused_at_its_deadline_and_one_who_leaves_frees_its_place() {
    let text = "word ".repeat(40);
    let slow = format!("{{ otherwise: {{ answer: {{ text: {text:?}, tokens_per_second: 5 }} }} }}");
    let engine = engine(&slow);
    let journal = usual();
    let here = with_a_line(&engine, &journal, "a", 1);
    let mut first = Ask::new("First?").on("t-1").start(&here).await.unwrap();
    let mut hurried = Ask::new("Second?").on("t-1").resolved(&engine);
    let second = Duration::from_secs(1);
    Arc::make_mut(&mut hurried.invocation).deadline = tokio::time::Instant::now() + second;
    let began = tokio::time::Instant::now();
    let refused = here.start(hurried).await.unwrap_err();
    assert!(refused.is(THREAD_BUSY), "{refused:?}");
    assert_eq!(refused.get("invocationId"), Some(first.id.as_str()));
    assert_eq!(began.elapsed(), second);
    let waiting = Box::pin(Ask::new("Third?").on("t-1").start(&here));
    assert!(
        tokio::time::timeout(second, waiting).await.is_err(),
        "it waits"
    );
    let mut last = {
        let last = Ask::new("Fourth?").on("t-1").start(&here);
        let (last, _) = tokio::join!(last, first.follower.outcome());
        last.unwrap()
    };
    assert!(last.follower.outcome().await.unwrap().result.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_connection_dropped_in_the_middle_leaves_no_partial_answer() {
    let script = "{ steps: [{ answer: { text: one two three four, tokens_per_second: 5 } }], otherwise: { answer: { text: Whole. } } }";
    let engine = engine(script);
    let journal = usual();
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
    let engine = engine(slow);
    let journal = usual();
    let here = replica("a", &engine, &journal);
    let mut started = Ask::new("Hello?")
        .on("t-1")
        .resumable()
        .start(&here)
        .await
        .unwrap();
    let mut client = Client::default();
    client.read(&mut started.follower, 4).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    here.crash().await;
    let there = replica("b", &engine, &journal);
    client.finish(&there, &started.id).await;
    assert_eq!(client.answer(), "one two three four");
    let thread = there.thread(&key()).await.unwrap().unwrap();
    assert_eq!(
        texts(&thread),
        ["User: Hello?", "Assistant: one two three four"]
    );
    assert!(
        there
            .find(&tenant(), &InvocationName::Id(started.id))
            .await
            .unwrap()
            .unwrap()
            .is_finished()
    );
}
