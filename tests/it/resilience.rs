//! What the resilience core promises with words such as *one*, *never* and *at most*, each shown on
//! the real stack.

mod cancellation;
mod interleavings;
mod test_stack;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use relight::internals::{
    domain::{event::EventBody, failure::FailureClass, ids::Cursor},
    events::BusItem,
    policy::{
        circuit::{CircuitPolicy, CircuitState, Peek},
        hedge::HedgePolicy,
        retry::{ParkPolicy, RetryPolicy},
    },
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use self::test_stack::{Plays, Settings, TestStack, finish, follow_for};

const SECOND: Duration = Duration::from_secs(1);

fn once() -> RetryPolicy {
    RetryPolicy {
        enabled: false,
        max_retries: 0,
        park: no_parking(),
        ..RetryPolicy::default()
    }
}

fn no_parking() -> ParkPolicy {
    ParkPolicy { enabled: false }
}

/// Makes calls fail until the circuit of the first target is open.
async fn trip(stack: &TestStack) {
    for _ in 0..100 {
        if stack.state(0).circuit().state() == CircuitState::Open {
            return;
        }
        stack.call().await;
        tokio::time::sleep(SECOND).await;
    }
    panic!("a hundred failures open a circuit");
}

#[tokio::test(start_paused = true)]
async fn a_call_begun_before_a_trip_neither_closes_nor_opens_anything_when_it_ends_later() {
    for answers in [true, false] {
        let told = Arc::new(Notify::new());
        let late = Arc::clone(&told);
        let settings = Settings {
            retry: once(),
            deadline: SECOND * 600,
            ..Settings::default()
        };
        let mut timers = settings.timers.clone();
        timers.first_token_alone = SECOND * 600;
        let stack = TestStack::new(
            Settings { timers, ..settings },
            move |number, _| match number {
                0..10 => Plays::Wait(Arc::clone(&late), answers),
                10..30 => Plays::status(503),
                _ => Plays::Answer(Duration::from_millis(100)),
            },
        );
        let mut old = JoinSet::new();
        for _ in 0..10 {
            let stack = stack.clone();
            old.spawn(async move { stack.call().await });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        trip(&stack).await;
        let opened = stack.state(0).circuit().snapshot(Instant::now());
        told.notify_waiters();
        while let Some(ended) = old.join_next().await {
            assert_eq!(ended.unwrap().result.is_ok(), answers);
        }
        let after = stack.state(0).circuit().snapshot(Instant::now());
        assert_eq!(
            (after.state, after.generation, after.streak),
            (opened.state, opened.generation, opened.streak)
        );
        assert!(after.stale_reports >= 10, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_probe_never_wedges_half_open() {
    let policy = CircuitPolicy {
        first_token_timeout: SECOND * 4,
        ..CircuitPolicy::default()
    };
    let settings = Settings {
        retry: once(),
        circuit: policy,
        ..Settings::default()
    };
    let stack = TestStack::new(settings, |number, _| match number {
        0..8 => Plays::status(503),
        8 => Plays::Hang,
        _ => Plays::Answer(Duration::from_millis(100)),
    });
    trip(&stack).await;
    tokio::time::sleep(SECOND * 6).await;
    let mut lost = stack.begin().await.unwrap();
    follow_for(&mut lost, SECOND).await;
    assert_eq!(
        stack
            .state(0)
            .circuit()
            .snapshot(Instant::now())
            .probes_outstanding,
        1
    );
    // It is neither polled nor dropped any more: it will not report.
    std::mem::forget(lost);
    let began = Instant::now();
    while stack.state(0).circuit().state() != CircuitState::Closed {
        stack.call().await;
        tokio::time::sleep(SECOND / 10).await;
        assert!(began.elapsed() < SECOND * 60, "the circuit is wedged");
    }
}

#[tokio::test(start_paused = true)]
async fn a_callers_400_401_and_quota_never_move_a_circuit() {
    let quota =
        r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
    for (code, body) in [
        (400, ""),
        (401, ""),
        (403, ""),
        (413, ""),
        (422, ""),
        (429, quota),
        (402, ""),
    ] {
        let settings = Settings {
            retry: once(),
            ..Settings::default()
        };
        let stack = TestStack::new(settings, move |_, _| {
            Plays::Status(code, Duration::from_millis(10), Vec::new(), body)
        });
        let mut calls = JoinSet::new();
        for _ in 0..200 {
            let stack = stack.clone();
            calls.spawn(async move { stack.call().await.result.is_err() });
        }
        while let Some(failed) = calls.join_next().await {
            assert!(failed.unwrap());
        }
        let circuit = stack.state(0).circuit().snapshot(Instant::now());
        assert_eq!(
            (circuit.state, circuit.generation),
            (CircuitState::Closed, 0),
            "{code}"
        );
        assert_eq!(
            (circuit.evidence.failures, circuit.degraded),
            (0, false),
            "{code}"
        );
        assert!(
            stack.sent() >= 16,
            "{code}: they were asked at once, before any gate closed: {}",
            stack.sent()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_and_no_sleep_ends_past_a_deadline() {
    let stack = TestStack::new(
        Settings {
            targets: 2,
            ..Settings::default()
        },
        |number, _| match (number % 8, number % 48) {
            (_, 11) => Plays::Status(
                429,
                Duration::from_millis(10),
                vec![("retry-after", "1")],
                "",
            ),
            (0, _) => Plays::status(503),
            (1, _) => Plays::Status(500, SECOND, Vec::new(), ""),
            (2, _) => Plays::Hang,
            _ => Plays::Answer(Duration::from_millis(700)),
        },
    );
    let mut calls = JoinSet::new();
    for number in 0..400_u32 {
        let stack = stack.clone();
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(50) * number).await;
            let allowed = Duration::from_millis(100) * (1 + number % 80);
            let began = Instant::now();
            let outcome = finish(stack.begin_within(allowed).await.unwrap()).await;
            (outcome, began.elapsed(), allowed)
        });
    }
    let mut waits = 0;
    while let Some(ended) = calls.join_next().await {
        let (outcome, took, allowed) = ended.unwrap();
        assert!(
            took <= allowed + Duration::from_millis(2),
            "{took:?} of {allowed:?}"
        );
        let slept: Duration = outcome
            .attempts
            .iter()
            .filter_map(|attempt| attempt.wait)
            .map(|wait| wait.duration)
            .sum();
        assert!(slept <= allowed, "{slept:?} of {allowed:?}");
        waits += outcome
            .attempts
            .iter()
            .filter(|attempt| attempt.wait.is_some())
            .count();
        let asleep = outcome.reasoning == "The deadline was reached."
            && outcome.attempts.last().is_some_and(|last| {
                last.failure
                    .as_ref()
                    .is_some_and(|failure| failure.class != FailureClass::Cancelled)
            });
        assert!(!asleep, "the deadline came during a wait: {outcome:?}");
    }
    assert!(
        waits > 10,
        "there were waits to look at: {waits} before {} attempts",
        stack.sent()
    );
    for (target, at, deadline) in stack.wire.seen.lock().unwrap().iter() {
        assert!(
            at <= deadline,
            "an attempt on {target} began {:?} after its deadline",
            *at - *deadline
        );
    }
}

#[tokio::test(start_paused = true)]
async fn retries_over_three_targets_never_exceed_the_cap() {
    for (max_retries, max) in [(0, 1), (1, 2), (2, 3), (4, 5)] {
        let settings = Settings {
            targets: 3,
            deadline: SECOND * 120,
            retry: RetryPolicy {
                max_retries,
                ..RetryPolicy::default()
            },
            hedge: HedgePolicy {
                enabled: true,
                max_share: 1.0,
                ..HedgePolicy::default()
            },
            ..Settings::default()
        };
        let stack = TestStack::new(settings, |number, _| match number % 3 {
            0 => Plays::status(503),
            1 => Plays::Status(500, SECOND * 12, Vec::new(), ""),
            _ => Plays::status(502),
        });
        for _ in 0..4 {
            let before = stack.sent();
            let outcome = stack.call().await;
            let sent = stack.sent() - before;
            assert!(outcome.result.is_err());
            assert!(
                sent <= max && sent >= 1,
                "{sent} attempts with {max_retries} retries"
            );
            tokio::time::sleep(SECOND * 30).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stated_wait_is_kept_by_the_call_that_was_told_it_and_holds_no_other() {
    let stack = TestStack::new(Settings::default(), |number, _| match number {
        0 => Plays::Status(429, SECOND / 10, vec![("retry-after", "8")], ""),
        _ => Plays::Answer(SECOND),
    });
    let timed = async || {
        let began = Instant::now();
        assert!(stack.call().await.result.is_ok());
        began.elapsed()
    };
    let (told, other) = tokio::join!(timed(), async {
        tokio::time::sleep(SECOND / 2).await;
        timed().await
    });
    assert!(told >= SECOND * 9, "{told:?}");
    assert!(other < SECOND * 2, "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_callers_at_half_open_no_more_get_through_than_probes_are_allowed() {
    for round in 0..20 {
        // Probes that hang keep their leases for as long as this test may take on any machine.
        let policy = CircuitPolicy {
            open_base: Duration::from_millis(10),
            first_token_timeout: SECOND * 600,
            ..CircuitPolicy::default()
        };
        let settings = Settings {
            retry: once(),
            circuit: policy,
            deadline: SECOND * 600,
            ..Settings::default()
        };
        let tripped = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&tripped);
        let stack = TestStack::new(settings, move |_, _| {
            let fails = Plays::Status(503, Duration::ZERO, Vec::new(), "");
            if told.load(Ordering::SeqCst) {
                Plays::Hang
            } else {
                fails
            }
        });
        while stack.state(0).circuit().state() != CircuitState::Open {
            stack.call().await;
        }
        tripped.store(true, Ordering::SeqCst);
        let before = stack.sent();
        while stack.state(0).peek(Instant::now()) != Peek::Ready {
            tokio::task::yield_now().await;
        }
        let mut callers = JoinSet::new();
        for _ in 0..100 {
            let stack = stack.clone();
            callers.spawn(async move { stack.call().await.result.unwrap_err().class });
        }
        // Those who do not get through are refused; the others hang until they are dropped here.
        for _ in 0..98 {
            let class = callers.join_next().await.unwrap().unwrap();
            assert_eq!(class, FailureClass::CircuitOpen, "round {round}");
        }
        while stack.wire.running.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            (stack.sent() - before, callers.len()),
            (2, 2),
            "round {round}"
        );
        assert!(
            callers.try_join_next().is_none(),
            "round {round}: both are probes"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn five_callers_share_one_circuit() {
    let stack = TestStack::new(
        Settings {
            retry: once(),
            ..Settings::default()
        },
        |_, _| Plays::status(503),
    );
    let callers: Vec<TestStack> = (0..5).map(|_| stack.clone()).collect();
    for number in 0..8 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(
            callers[number % 5].call().await.result.unwrap_err().class,
            FailureClass::Overloaded
        );
    }
    let sent = stack.sent();
    for caller in &callers {
        assert_eq!(
            caller.call().await.result.unwrap_err().class,
            FailureClass::CircuitOpen
        );
    }
    assert_eq!(stack.sent(), sent, "what any of them learnt, all know");
    let mut reader = stack.events.reader(Cursor(0));
    let opened = std::iter::from_fn(|| reader.try_next()).filter(
        |reading| matches!(reading, BusItem::Event(event) if matches!(event.body, EventBody::CircuitOpened { .. })),
    );
    assert_eq!(opened.count(), 1);
}
