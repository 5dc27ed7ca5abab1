//! What an operator can force, and what survives new settings.

use super::*;

#[test]
fn forced_open_admits_no_call_until_it_is_released() {
    let mut bench = Bench::new();
    let transitions = bench.force(Forced::Open);
    assert!(matches!(
        transitions[..],
        [TransitionKind::Opened {
            reason: "forced by an operator",
            retry_in: None,
            ..
        }]
    ));
    bench.pass(3_600_000);
    assert!(bench.try_admit().is_err());
    assert_eq!(
        bench.circuit.peek(bench.now, true),
        Peek::Wait { retry_in: None }
    );
}

#[test]
fn after_forced_open_the_next_call_is_a_probe() {
    let mut bench = Bench::new();
    bench.circuit.force(Forced::Open, bench.now);
    bench.circuit.force(Forced::Auto, bench.now);
    assert!(bench.admit().is_probe());
    assert_eq!(bench.state(), CircuitState::HalfOpen);
}

#[test]
fn forced_closed_counts_evidence_and_never_opens() {
    let mut bench = Bench::opened();
    bench.circuit.force(Forced::Closed, bench.now);
    let _slow_head = bench.admit();
    bench.calls(100, 10, FAILURE);
    bench.pass(40_000);
    bench.calls(5, 10, FAILURE);
    assert_eq!(bench.state(), CircuitState::ForcedClosed);
    assert!(bench.evidence().failures >= 20);
    assert_eq!(bench.force(Forced::Auto), [TransitionKind::Closed]);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(14, 100, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn automatic_changes_nothing_when_nothing_is_forced() {
    let mut bench = Bench::opened();
    let before = bench.circuit.snapshot(bench.now);
    assert_eq!(bench.circuit.force(Forced::Auto, bench.now), []);
    assert_eq!(bench.circuit.snapshot(bench.now), before);
}

#[test]
fn a_reset_closes_from_every_state_and_forgets() {
    let mut forced = Bench::new();
    forced.circuit.force(Forced::Open, forced.now);
    let mut half_open = Bench::opened();
    half_open.pass(1000);
    half_open.call(ANSWER);
    for mut bench in [Bench::opened(), half_open, Bench::recovering(), forced] {
        assert!(matches!(
            bench.circuit.reset(bench.now)[..],
            [Transition {
                kind: TransitionKind::Closed,
                ..
            }]
        ));
        let seen = bench.circuit.snapshot(bench.now);
        assert_eq!(
            (seen.state, seen.streak, seen.evidence.committed),
            (CircuitState::Closed, 0, 0)
        );
    }
}

#[test]
fn new_settings_keep_the_open_time_and_the_evidence() {
    let mut bench = Bench::new();
    bench.calls(7, 1000, FAILURE);
    let shorter = CircuitPolicy {
        open_base: Duration::from_millis(100),
        ..CircuitPolicy::default()
    };
    bench.circuit.set_policy(Arc::new(CircuitPolicy::default()));
    bench.calls(1, 1000, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    bench.circuit.set_policy(Arc::new(shorter));
    assert_eq!(bench.retry_in(), Duration::from_secs(1));
}

#[test]
fn a_recovery_is_not_left_half_way_when_the_mode_changes() {
    for mode in [CircuitMode::Consecutive, CircuitMode::Off] {
        let mut bench = Bench::recovering();
        bench.circuit.set_policy(Arc::new(CircuitPolicy {
            mode,
            ..CircuitPolicy::default()
        }));
        assert!(matches!(
            bench.circuit.drain()[..],
            [Transition {
                kind: TransitionKind::Closed,
                ..
            }]
        ));
    }
}

#[test]
fn switched_off_it_admits_everything_and_records_nothing() {
    let mut bench = Bench::with(CircuitPolicy {
        mode: CircuitMode::Off,
        ..CircuitPolicy::default()
    });
    for _ in 0..100 {
        bench.pass(1000);
        let permit = bench.admit();
        bench.report(&permit, FAILURE);
    }
    assert_eq!(bench.transitions, []);
    let window_ms = bench.evidence().window_ms;
    assert_eq!(
        bench.evidence(),
        crate::domain::event::Evidence {
            window_ms,
            ..Default::default()
        }
    );
}

#[test]
fn what_has_left_the_window_cannot_be_taken_back() {
    let start = Instant::now();
    let mut window = Sliding::<u32>::new(Duration::from_secs(10));
    window.add(start, 1);
    window.add(start + Duration::from_secs(10), 1);
    window.take_back(start, 1);
    assert_eq!(window.total(start + Duration::from_secs(10)), 1);
    window.take_back(start + Duration::from_secs(10), 1);
    assert_eq!(window.total(start + Duration::from_millis(19_999)), 0);
}

#[test]
fn evidence_starts_anew_where_it_is_counted_differently_and_only_there() {
    let mode = CircuitPolicy {
        mode: CircuitMode::Consecutive,
        ..CircuitPolicy::default()
    };
    let others = CircuitPolicy {
        open_base: Duration::from_secs(2),
        ..CircuitPolicy::default()
    };
    for (policy, failures) in [(mode, 0), (others, 3)] {
        let mut bench = Bench::new();
        bench.calls(3, 10, FAILURE);
        bench.circuit.set_policy(Arc::new(policy.clone()));
        assert_eq!(bench.evidence().failures, failures, "{policy:?}");
        assert_eq!(bench.circuit.policy(), &policy);
    }
}
