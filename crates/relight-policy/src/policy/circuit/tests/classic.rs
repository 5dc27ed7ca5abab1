//! The preset `consecutive`, in every detail.

use super::*;

fn classic() -> Bench {
    Bench::with(CircuitPolicy::consecutive())
}

#[test]
fn five_consecutive_failures_open_for_sixty_seconds_whatever_the_dice() {
    for rng in [0.0, 1.0] {
        let mut bench = classic();
        bench.rng = rng;
        bench.calls(4, 10, FAILURE);
        assert_eq!(bench.state(), CircuitState::Closed);
        let retry_after = Some(Duration::from_secs(200));
        bench.call(Signal::Failed {
            kind: FailKind::Slow,
            retry_after,
            local_origin: false,
        });
        assert_eq!(bench.state(), CircuitState::Open);
        assert_eq!(bench.retry_in(), Duration::from_mins(1));
        bench.pass(59_999);
        assert!(bench.try_admit().is_err());
        bench.pass(1);
        assert!(bench.try_admit().is_ok());
    }
}

#[test]
fn one_probe_goes_out_and_its_success_closes() {
    let mut bench = classic();
    bench.calls(5, 10, FAILURE);
    bench.pass(60_000);
    let probe = bench.admit();
    assert_eq!((0..100).filter(|_| bench.try_admit().is_ok()).count(), 0);
    bench.report(&probe, ANSWER);
    assert_eq!(bench.state(), CircuitState::Closed);
    assert_eq!(
        &bench.transitions[1..],
        [TransitionKind::HalfOpen, TransitionKind::Closed]
    );
}

#[test]
fn the_failure_of_the_probe_opens_for_sixty_seconds_again() {
    let mut bench = classic();
    bench.calls(5, 10, FAILURE);
    for _ in 0..5 {
        bench.pass(60_000);
        bench.call(FAILURE);
        assert_eq!(bench.retry_in(), Duration::from_mins(1));
    }
}

#[test]
fn a_success_between_failures_starts_the_count_anew_and_neutral_calls_do_not() {
    let mut bench = classic();
    bench.calls(4, 10, FAILURE);
    bench.call(ANSWER);
    bench.calls(4, 10, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(9, 10, Signal::Neutral);
    bench.calls(
        9,
        10,
        Signal::Cancelled {
            after_slow_threshold: true,
        },
    );
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.call(FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn it_counts_in_the_order_of_reports_and_knows_no_shares() {
    let mut bench = classic();
    let _slow = bench.admit();
    for _ in 0..100 {
        bench.calls(4, 10, FAILURE);
        bench.calls(1, 10, ANSWER);
    }
    assert_eq!(bench.state(), CircuitState::Closed);
    assert_eq!(bench.transitions, []);
    bench.calls(5, 10, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn a_lost_probe_does_not_hold_the_circuit_for_ever() {
    let mut bench = classic();
    bench.calls(5, 10, FAILURE);
    bench.pass(60_000);
    let _lost = bench.admit();
    bench.pass(31_000);
    assert_eq!(bench.state(), CircuitState::Open);
    bench.pass(60_000);
    bench.call(ANSWER);
    assert_eq!(bench.state(), CircuitState::Closed);
}
