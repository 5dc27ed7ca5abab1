//! The guarantees of the gates.

mod credential;
mod model;
mod random_refusals;

use super::*;
use crate::domain::failure::Wait;

fn gate(kind: GateKind) -> (Gate, Instant) {
    (
        Gate::new(kind, Arc::new(GatePolicy::default())),
        Instant::now(),
    )
}

/// How long a refusal takes to come.
const TOOK: Duration = Duration::from_millis(20);

/// A failure that states this wait.
fn failed(wait: Option<Duration>, class: FailureClass) -> Failure {
    let failure = Failure::local(class, "refused");
    Failure {
        retry_after: wait.map(|duration| Wait {
            duration,
            source: WaitSource::RetryAfter,
        }),
        ..failure
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_stated_wait_is_kept_and_up_to_a_fifth_is_added() {
    for (rng, reopens_in) in [(0.0, 20_000), (0.5, 22_000), (1.0, 24_000)] {
        let (mut gate, now) = gate(GateKind::Rate);
        let reopens_in = Duration::from_millis(reopens_in);
        let change = gate.close(
            now,
            &failed(Some(secs(20)), FailureClass::RateLimited),
            TOOK,
            rng,
        );
        assert_eq!(change, Some(GateChange::Closed { reopens_in }));
        assert_eq!(gate.peek(now), Err(reopens_in));
        assert_eq!(
            gate.admit(now + reopens_in - Duration::from_millis(1), false),
            Err(Duration::from_millis(1))
        );
        assert_eq!(gate.admit(now + reopens_in, false), Ok(GatePass::Open));
    }
}

#[test]
fn a_wait_of_an_hour_is_kept_for_five_minutes_and_none_for_a_second() {
    for (stated, kept) in [(Some(secs(3600)), secs(300)), (None, secs(1))] {
        let (mut gate, now) = gate(GateKind::Rate);
        gate.close(now, &failed(stated, FailureClass::RateLimited), TOOK, 0.0);
        assert_eq!(gate.peek(now), Err(kept));
    }
}

#[test]
fn a_wait_of_zero_counts_as_none_that_was_stated() {
    let ((mut zero, now), (mut unstated, then)) = (gate(GateKind::Rate), gate(GateKind::Rate));
    let closed = zero.close(
        now,
        &failed(Some(Duration::ZERO), FailureClass::RateLimited),
        TOOK,
        1.0,
    );
    assert!(matches!(closed, Some(GateChange::Closed { .. })));
    assert_eq!(
        closed,
        unstated.close(then, &failed(None, FailureClass::RateLimited), TOOK, 1.0)
    );
}

#[test]
fn a_shorter_wait_that_comes_later_changes_nothing() {
    let (mut gate, now) = gate(GateKind::Rate);
    gate.close(
        now,
        &failed(Some(secs(60)), FailureClass::RateLimited),
        TOOK,
        0.0,
    );
    assert_eq!(
        gate.close(
            now + secs(1),
            &failed(Some(secs(5)), FailureClass::RateLimited),
            TOOK,
            1.0
        ),
        None
    );
    assert_eq!(gate.peek(now), Err(secs(60)));
}

#[test]
fn nothing_is_added_to_a_wait_while_calls_are_queued() {
    let (mut gate, now) = gate(GateKind::Rate);
    gate.close(
        now,
        &failed(Some(secs(1)), FailureClass::RateLimited),
        TOOK,
        1.0,
    );
    let later = now + Duration::from_millis(1300);
    assert!(gate.is_paced(later));
    let change = gate.close(
        later,
        &failed(Some(secs(5)), FailureClass::RateLimited),
        TOOK,
        1.0,
    );
    assert_eq!(
        change,
        Some(GateChange::Closed {
            reopens_in: secs(5)
        })
    );
}

#[test]
fn an_answer_to_a_call_from_before_the_limit_does_not_open_the_rate_gate() {
    let (mut gate, now) = gate(GateKind::Rate);
    gate.close(
        now,
        &failed(Some(secs(10)), FailureClass::RateLimited),
        TOOK,
        0.0,
    );
    assert_eq!(gate.succeed(now + secs(9)), None);
    assert_eq!(gate.peek(now + secs(9)), Err(secs(1)));
    assert_eq!(
        gate.succeed(now + secs(10)),
        Some(GateChange::Opened {
            closed_for: secs(10)
        })
    );
    assert_eq!(gate.succeed(now + secs(10)), None, "it is said once");
}

#[test]
fn how_long_it_was_closed_is_counted_from_the_first_refusal_and_not_from_later_ones() {
    for (kind, again_at, stated, closed_for) in [
        (GateKind::Rate, 5, 20, 25),
        (GateKind::Rate, 15, 10, 10),
        (GateKind::Credential, 61, 1, 121),
    ] {
        let (mut gate, now) = gate(kind);
        gate.close(
            now,
            &failed(Some(secs(10)), FailureClass::RateLimited),
            TOOK,
            0.0,
        );
        let again = now + secs(again_at);
        gate.admit(again, false).ok();
        gate.close(
            again,
            &failed(Some(secs(stated)), FailureClass::RateLimited),
            TOOK,
            0.0,
        );
        let opens = again + gate.peek(again).unwrap_err();
        gate.admit(opens, false).ok();
        assert_eq!(
            gate.succeed(opens),
            Some(GateChange::Opened {
                closed_for: secs(closed_for)
            }),
            "{kind:?}"
        );
    }
}

#[test]
fn a_limit_with_nothing_left_closes_the_rate_gate_before_the_wall() {
    let headers: Vec<_> = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "3s"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let (mut rate, now) = gate(GateKind::Rate);
    assert_eq!(
        rate.observe_limits(now, &headers),
        Some(GateChange::Closed {
            reopens_in: secs(3)
        })
    );
    assert_eq!(rate.observe_limits(now, &headers), None, "it is said once");
    let (mut credential, _) = gate(GateKind::Credential);
    assert_eq!(credential.observe_limits(now, &headers), None);
    let blind = GatePolicy {
        pace: false,
        ..GatePolicy::default()
    };
    assert_eq!(
        Gate::new(GateKind::Rate, Arc::new(blind)).observe_limits(now, &headers),
        None
    );
}

#[test]
fn a_limit_that_is_reset_in_a_day_closes_for_five_minutes() {
    let headers: Vec<_> = [
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "24h0m0s"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let (mut gate, now) = gate(GateKind::Rate);
    assert_eq!(
        gate.observe_limits(now, &headers),
        Some(GateChange::Closed {
            reopens_in: secs(300)
        })
    );
}

#[test]
fn a_queued_caller_gets_the_time_at_which_a_call_passes() {
    let (mut gate, now) = gate(GateKind::Rate);
    assert_eq!(gate.peek_after(now, 1000), Ok(()));
    for _ in 0..20 {
        assert_eq!(gate.admit(now, false), Ok(GatePass::Open));
    }
    gate.close(
        now,
        &failed(Some(secs(1)), FailureClass::RateLimited),
        TOOK,
        0.0,
    );
    assert_eq!(gate.peek_after(now, 0), Err(secs(1)));
    let opens = now + secs(1);
    assert_eq!(gate.peek_after(opens, 0), Ok(()));
    let passed_at_once = (0..1000)
        .take_while(|_| gate.admit(opens, false).is_ok())
        .count();
    assert!((1..20).contains(&passed_at_once), "{passed_at_once}");
    let next = gate.peek_after(opens, 0).unwrap_err();
    assert!(!next.is_zero() && gate.peek_after(opens, 10).unwrap_err() > next);
    assert_eq!(gate.admit(opens, false), Err(next));
    assert_eq!(gate.admit(opens + next, false), Ok(GatePass::Open));
    assert_eq!(
        gate.peek_after(opens + secs(100), 1000),
        Ok(()),
        "nobody came for long"
    );
}

/// Calls that pass in that time when a caller is always waiting.
pub(super) fn passed_in<T>(
    from: Instant,
    time: Duration,
    mut pass: impl FnMut(Instant) -> Result<T, Duration>,
) -> u32 {
    let (mut now, mut count) = (from, 0);
    while now < from + time {
        match pass(now) {
            Ok(_) => count += 1,
            Err(wait) => now += wait,
        }
    }
    count
}

/// A rate gate that closed for a second, now.
fn limited() -> (Gate, Instant) {
    let (mut gate, now) = gate(GateKind::Rate);
    gate.close(
        now,
        &failed(Some(secs(1)), FailureClass::RateLimited),
        TOOK,
        0.0,
    );
    (gate, now)
}

#[test]
fn a_refusal_of_a_call_in_flight_changes_nothing() {
    let ((mut once, then), (mut twice, now)) = (limited(), limited());
    let rest = Duration::from_millis(900);
    assert_eq!(
        twice.close(
            now + secs(1) - rest,
            &failed(Some(rest), FailureClass::RateLimited),
            TOOK,
            0.0
        ),
        None
    );
    let passed = |gate: &mut Gate, from| {
        passed_in(from, Duration::from_millis(300), |now| {
            gate.admit(now, false)
        })
    };
    assert_eq!(
        passed(&mut once, then + secs(1)),
        passed(&mut twice, now + secs(1))
    );
}

#[test]
fn a_call_that_goes_ahead_passes_an_open_gate_out_of_turn_and_not_a_closed_one() {
    let (mut gate, now) = limited();
    let opens = now + secs(1);
    assert!(gate.admit(opens - secs(1), true).is_err());
    assert_eq!(gate.admit(opens, false), Ok(GatePass::Open));
    assert!(gate.admit(opens, false).is_err());
    assert_eq!(gate.admit(opens, true), Ok(GatePass::Open));
}

#[test]
fn other_settings_hold_from_the_next_close_on() {
    let (mut gate, now) = gate(GateKind::Rate);
    gate.close(now, &failed(None, FailureClass::RateLimited), TOOK, 0.0);
    gate.set_policy(Arc::new(GatePolicy {
        rate_wait: secs(7),
        ..GatePolicy::default()
    }));
    assert_eq!(gate.peek(now), Err(secs(1)), "what was told is kept");
    gate.close(
        now + secs(1),
        &failed(None, FailureClass::RateLimited),
        TOOK,
        0.0,
    );
    assert_eq!(gate.peek(now + secs(1)), Err(secs(7)));
}

#[test]
fn the_bounds_of_every_setting_are_allowed() {
    let (min, hour) = (Duration::from_millis(10), secs(3600));
    for (rate_wait, others, jitter) in [(min, secs(1), 0.0), (secs(300), hour, 1.0)] {
        let policy = GatePolicy {
            rate_wait,
            rate_wait_max: others,
            probe_interval: others,
            jitter,
            ..GatePolicy::default()
        };
        assert_eq!(policy.validate(), []);
    }
}

#[test]
fn the_defaults_are_valid_and_every_setting_out_of_range_is_named() {
    assert_eq!(GatePolicy::default().validate(), []);
    assert_eq!(
        serde_json::from_str::<GatePolicy>("{}").unwrap(),
        GatePolicy::default()
    );
    let bad = GatePolicy {
        rate_wait: Duration::ZERO,
        rate_wait_max: secs(4000),
        probe_interval: Duration::ZERO,
        jitter: 1.1,
        pace: true,
    };
    let named: Vec<_> = bad.validate().into_iter().map(|(field, _)| field).collect();
    assert_eq!(
        named,
        ["rate_wait", "rate_wait_max", "probe_interval", "jitter"]
    );
}

#[test]
fn a_failure_closes_the_gate_of_its_class_unless_it_shows_nothing_about_that() {
    use {FailureClass as C, GateKind as G};
    for class in C::ALL {
        let failure = Failure {
            message: "no such model".to_owned(),
            ..failed(None, class)
        };
        assert_eq!(
            closed_by(&failure, false, false),
            class.row().gate,
            "{class}"
        );
    }
    let with_status = Failure {
        status: Some(401),
        ..failed(None, C::Authentication)
    };
    let worded = |class, message: &str| Failure {
        message: message.to_owned(),
        ..failed(None, class)
    };
    for (failure, by_tool, uniform_waits, expected) in [
        (failed(None, C::RateLimited), true, false, Some(G::Rate)),
        (failed(None, C::RateLimited), false, true, None),
        (
            failed(Some(secs(1)), C::RateLimited),
            false,
            true,
            Some(G::Rate),
        ),
        (
            failed(None, C::Authentication),
            false,
            true,
            Some(G::Credential),
        ),
        (failed(None, C::Authentication), true, false, None),
        (with_status, true, false, Some(G::Credential)),
        (
            worded(C::NotFound, "The model `m-1` does not exist"),
            false,
            true,
            Some(G::Configuration),
        ),
        (
            worded(C::NotFound, "Inference profile not found"),
            false,
            true,
            Some(G::Configuration),
        ),
        (
            worded(C::NotFound, "The model `m-1` does not exist"),
            true,
            false,
            None,
        ),
        (
            worded(C::NotFound, "File 'file-abc' not found"),
            false,
            false,
            None,
        ),
        (
            worded(C::NotFound, "No such file: model.bin"),
            false,
            false,
            None,
        ),
        (
            worded(
                C::NotFound,
                "CachedContent not found (or permission denied)",
            ),
            false,
            false,
            None,
        ),
        (
            worded(C::QuotaExceeded, "Your credit balance is used up"),
            false,
            false,
            Some(G::Credential),
        ),
        (
            worded(
                C::QuotaExceeded,
                "This request requires more credits, or fewer max_tokens",
            ),
            false,
            false,
            None,
        ),
    ] {
        assert_eq!(
            closed_by(&failure, by_tool, uniform_waits),
            expected,
            "{failure:?}, {by_tool}, {uniform_waits}"
        );
    }
}
