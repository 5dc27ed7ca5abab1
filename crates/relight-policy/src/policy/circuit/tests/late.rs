//! Brown-outs: detected while their callers still wait, and over a little later than they began.

use super::*;

fn begun(bench: &mut Bench, count: usize) -> Vec<Permit> {
    (0..count).map(|_| bench.admit()).collect()
}

#[test]
fn twenty_calls_that_wait_for_longer_than_the_slow_threshold_are_a_brown_out() {
    let mut bench = Bench::new();
    let _waiting = begun(&mut bench, 20);
    bench.pass(2499);
    assert!(!bench.circuit.degraded());
    bench.pass(1);
    assert!(bench.circuit.degraded());
}

#[test]
fn nineteen_are_too_few_to_judge() {
    let mut bench = Bench::new();
    let _waiting = begun(&mut bench, 19);
    bench.pass(20_000);
    assert!(!bench.circuit.degraded());
}

#[test]
fn the_last_twenty_that_are_old_enough_decide_and_four_fifths_of_them_must_be_slow() {
    for (fast, waiting, degraded) in [
        (3, 16, false),
        (4, 16, true),
        (5, 16, true),
        (5, 15, false),
        (90, 16, true),
    ] {
        let mut bench = Bench::new();
        bench.calls(fast, 10, ANSWER);
        let _waiting = begun(&mut bench, waiting);
        bench.pass(2500);
        assert_eq!(
            bench.circuit.degraded(),
            degraded,
            "{waiting} wait after {fast} that were answered"
        );
    }
}

#[test]
fn a_brown_out_is_over_when_less_than_seven_tenths_are_slow() {
    for (fast, degraded) in [(5, true), (7, false)] {
        let mut bench = Bench::new();
        bench.calls(4, 10, ANSWER);
        let _waiting = begun(&mut bench, 16);
        bench.pass(2500);
        bench.calls(fast, 0, ANSWER);
        bench.pass(2500);
        assert_eq!(
            bench.circuit.degraded(),
            degraded,
            "{fast} were answered at once"
        );
    }
}

#[test]
fn slow_answers_are_called_degraded_until_less_than_seven_tenths_of_the_window_are_slow() {
    for (fast, degraded) in [(17, true), (18, false)] {
        let mut bench = Bench::new();
        let waiting = begun(&mut bench, 40);
        bench.pass(2500);
        for permit in &waiting {
            bench.report(permit, ANSWER);
        }
        bench.calls(fast, 10, ANSWER);
        assert_eq!(
            bench.circuit.degraded(),
            degraded,
            "40 slow and {fast} fast"
        );
    }
}

#[test]
fn failures_are_called_degraded_from_half_of_the_outcomes_until_less_than_four_tenths() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.calls(1, 50, ANSWER);
        bench.calls(1, 50, FAILURE);
    }
    assert!(bench.circuit.degraded());
    bench.calls(5, 50, ANSWER);
    assert!(bench.circuit.degraded(), "ten of twenty-five");
    bench.calls(1, 50, ANSWER);
    assert!(!bench.circuit.degraded(), "ten of twenty-six");
}

#[test]
fn shares_of_a_degraded_target_without_calls_are_forgotten_after_a_minute_unless_a_call_waits() {
    let patient = CircuitPolicy {
        first_token_timeout: Duration::from_mins(5),
        ..CircuitPolicy::default()
    };
    for somebody_waits in [false, true] {
        let mut bench = Bench::with(patient.clone());
        for _ in 0..20 {
            bench.calls(1, 50, FAILURE);
            bench.calls(1, 50, ANSWER);
        }
        let _waiting = somebody_waits.then(|| bench.admit());
        bench.pass(59_999);
        assert!(bench.circuit.degraded());
        bench.pass(1);
        assert_eq!(bench.circuit.degraded(), somebody_waits);
    }
}

#[test]
fn timeouts_are_reported_as_slow_and_open_for_longer_than_errors_do() {
    for (failure, slow, open_s) in [(FAILURE, 0, 1), (TIMEOUT, 10, 4)] {
        let mut bench = Bench::new();
        for _ in 0..10 {
            bench.calls(1, 20, ANSWER);
            bench.calls(1, 20, failure);
        }
        assert_eq!(
            (bench.evidence().failures, bench.evidence().slow),
            (10, slow)
        );
        bench.calls(400, 20, ANSWER);
        bench.alternative = true;
        while bench.state() == CircuitState::Closed {
            bench.calls(8, 20, failure);
            bench.calls(1, 20, ANSWER);
        }
        let opened = bench
            .transitions
            .iter()
            .find_map(|transitions| match transitions {
                TransitionKind::Opened { retry_in, .. } => retry_in.map(|wait| wait.as_secs()),
                TransitionKind::HalfOpen
                | TransitionKind::Recovering { .. }
                | TransitionKind::Closed
                | TransitionKind::Degraded(_) => None,
            });
        assert_eq!(
            bench.reason(),
            "share of failures while another target is healthy"
        );
        assert_eq!(opened, Some(open_s), "{failure:?}");
    }
}
