//! A cancelled call ends within 100 ms wherever it is: at a provider, in a wait, parked or in a
//! queue.

use std::{sync::atomic::Ordering, time::Duration};

use relight::internals::{
    domain::{event::EventBody, failure::FailureClass},
    events::BusItem,
    policy::{concurrency::ConcurrencyPolicy, retry::RetryPolicy},
};
use tokio::time::Instant;

use super::{
    SECOND,
    test_stack::{Plays, Settings, TestStack, finish, follow_for},
    trip,
};

/// Virtual time from dropping a call to its event.
async fn cancel(stack: &TestStack, call: relight::internals::layers::StepStream) -> Duration {
    let mut reader = stack.events.live();
    let dropped = Instant::now();
    drop(call);
    loop {
        if let BusItem::Event(event) = reader.next().await
            && matches!(
                event.body,
                EventBody::InvocationFailed {
                    class: FailureClass::Cancelled,
                    ..
                }
            )
        {
            return dropped.elapsed();
        }
    }
}

const SOON: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_running_call() {
    let stack = TestStack::new(Settings::default(), |_, _| Plays::Hang);
    let mut call = stack.begin().await.unwrap();
    follow_for(&mut call, SECOND).await;
    assert_eq!(stack.wire.running.load(Ordering::SeqCst), 1);
    assert!(cancel(&stack, call).await <= SOON);
    assert_eq!(
        stack.wire.running.load(Ordering::SeqCst),
        0,
        "the request upstream is dropped"
    );
    assert_eq!(stack.state(0).slots.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_sleeping_call() {
    let stack = TestStack::new(Settings::default(), |_, _| Plays::status(500));
    let mut call = stack.begin().await.unwrap();
    follow_for(&mut call, SECOND / 2).await;
    let waiting = (stack.sent(), stack.wire.running.load(Ordering::SeqCst));
    assert_eq!(
        waiting,
        (2, 0),
        "after a short wait it waits long for its last retry"
    );
    let level = stack.state(0).extra.budget_left(Instant::now());
    assert!(cancel(&stack, call).await <= SOON);
    assert!(
        stack.state(0).extra.budget_left(Instant::now()) > level,
        "what was reserved came back"
    );
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(stack.sent(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_parked_call() {
    let stack = TestStack::new(Settings::default(), |_, _| Plays::status(503));
    trip(&stack).await;
    stack
        .state(0)
        .force(relight::internals::policy::circuit::Forced::Auto, None, "");
    let mut call = stack.begin().await.unwrap();
    follow_for(&mut call, SECOND / 10).await;
    assert_eq!(stack.targets.parked(), 1);
    let sent = stack.sent();
    assert!(cancel(&stack, call).await <= SOON);
    assert_eq!(stack.targets.parked(), 0);
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!(stack.sent(), sent);
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_call_that_is_queued_for_a_limit() {
    let stack = TestStack::new(
        Settings {
            retry: once_but_parking(),
            ..Settings::default()
        },
        |number, _| match number {
            // Refusals that agree on their end close the gate until then.
            0..5 => {
                let wait = ["20", "18", "16", "14", "12"][number];
                Plays::Status(429, SECOND / 100, vec![("retry-after", wait)], "")
            }
            _ => Plays::Answer(SECOND),
        },
    );
    for _ in 0..5 {
        assert!(stack.call().await.result.is_err());
        tokio::time::sleep(SECOND * 2 - SECOND / 100).await;
    }
    let mut first = stack.begin().await.unwrap();
    let mut second = stack.begin().await.unwrap();
    follow_for(&mut first, SECOND).await;
    follow_for(&mut second, SECOND).await;
    assert_eq!(stack.targets.parked(), 2);
    assert!(cancel(&stack, first).await <= SOON);
    assert_eq!(stack.targets.parked(), 1);
    assert!(
        finish(second).await.result.is_ok(),
        "the line goes on without it"
    );
    assert_eq!(stack.sent(), 6);
}

fn once_but_parking() -> RetryPolicy {
    RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_a_queued_call() {
    let concurrency = ConcurrencyPolicy {
        max: 1,
        ..ConcurrencyPolicy::default()
    };
    let stack = TestStack::new(
        Settings {
            concurrency,
            ..Settings::default()
        },
        |_, _| Plays::Answer(SECOND * 3),
    );
    let mut running = stack.begin().await.unwrap();
    follow_for(&mut running, SECOND).await;
    let mut queued = stack.begin().await.unwrap();
    follow_for(&mut queued, SECOND).await;
    assert_eq!(stack.sent(), 1, "the second waits for the slot");
    assert!(cancel(&stack, queued).await <= SOON);
    assert!(finish(running).await.result.is_ok());
    assert_eq!((stack.sent(), stack.state(0).slots.in_flight()), (1, 0));
    assert!(stack.call().await.result.is_ok(), "the slot is free again");
}
