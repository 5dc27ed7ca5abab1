//! What opens a closed circuit, and what does not.

use super::*;

#[test]
fn at_one_call_per_second_eight_failures_in_a_row_open_and_seven_do_not() {
    let mut bench = Bench::new();
    bench.calls(7, 1000, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(1, 1000, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.evidence().committed, 0, "evidence starts anew");
    let Some(TransitionKind::Opened {
        evidence,
        retry_in,
        reason,
    }) = bench.transitions.last()
    else {
        panic!("{:?}", bench.transitions)
    };
    assert_eq!(
        (evidence.failures, evidence.consecutive, evidence.committed),
        (8, 8, 8)
    );
    assert_eq!(
        (*retry_in, *reason),
        (Some(Duration::from_secs(1)), "failures in a row")
    );
}

#[test]
fn at_fifty_calls_per_second_twenty_failures_in_a_row_open_and_nineteen_do_not() {
    let mut bench = Bench::new();
    bench.calls(600, 20, ANSWER);
    bench.calls(19, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(1, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn at_a_target_that_fails_half_of_its_calls_a_run_that_chance_explains_does_not_open() {
    let mut bench = Bench::new();
    for _ in 0..300 {
        bench.calls(1, 20, FAILURE);
        bench.calls(1, 20, ANSWER);
    }
    // One in a billion: half to the power of thirty.
    bench.calls(29, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(1, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "failures in a row");
}

#[test]
fn one_answer_ends_a_run_of_failures() {
    let mut bench = Bench::new();
    bench.calls(7, 1000, FAILURE);
    bench.calls(1, 1000, ANSWER);
    bench.calls(7, 1000, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
}

#[test]
fn errors_that_overtake_slow_answers_do_not_open() {
    let mut bench = Bench::new();
    bench.alternative = true;
    let mut slow = Vec::new();
    for call in 0..60 {
        bench.pass(10);
        let permit = bench.admit();
        if call % 3 == 0 {
            bench.report(&permit, FAILURE);
        } else {
            slow.push(permit);
        }
    }
    // Twenty failures are known and not one success.
    assert_eq!(bench.state(), CircuitState::Closed);
    for permit in slow {
        bench.report(&permit, ANSWER);
    }
    assert_eq!(bench.state(), CircuitState::Closed);
    assert_eq!(bench.evidence().failures, 20);
    assert_eq!(bench.evidence().committed, 60);
}

#[test]
fn failures_that_no_pending_call_can_interrupt_open_before_a_slow_head_is_decided() {
    let mut bench = Bench::new();
    let _slow_head = bench.admit();
    bench.calls(7, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    let _another = bench.admit();
    bench.calls(7, 20, FAILURE);
    assert_eq!(
        bench.state(),
        CircuitState::Closed,
        "the pending call may still be answered"
    );
    bench.calls(3, 20, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn a_neutral_call_between_failures_does_not_interrupt_them() {
    let mut bench = Bench::new();
    let _slow_head = bench.admit();
    bench.calls(4, 1000, FAILURE);
    let refused = bench.admit();
    bench.calls(4, 1000, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.report(&refused, Signal::Neutral);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn what_is_no_failure_opens_nothing_even_when_calls_become_rarer() {
    for signal in [Signal::Neutral, LOCAL] {
        let mut bench = Bench::new();
        bench.calls(600, 20, ANSWER);
        bench.calls(10, 20, FAILURE);
        bench.pass(20_000);
        bench.call(signal);
        assert_eq!(bench.state(), CircuitState::Closed, "{signal:?}");
        bench.call(FAILURE);
        assert_eq!(bench.state(), CircuitState::Open, "now eight are enough");
    }
}

#[test]
fn few_timeouts_among_fast_failures_are_no_silence() {
    for (timeouts, silent) in [(4, false), (5, true)] {
        let mut bench = Bench::new();
        bench.calls(timeouts, 1000, TIMEOUT);
        bench.calls(8 - timeouts, 1000, FAILURE);
        assert_eq!(bench.transition.last().map(|it| it.silent), Some(silent));
    }
}

#[test]
fn a_share_around_the_threshold_does_not_change_the_name_with_every_call() {
    let mut bench = Bench::new();
    let mut rng = TestRng(7);
    for _ in 0..2000 {
        bench.calls(1, 20, if rng.roll() < 0.5 { FAILURE } else { ANSWER });
    }
    assert_eq!(bench.transitions, [TransitionKind::Degraded(true)]);
}

#[test]
fn eighty_percent_failures_of_twenty_outcomes_open_without_an_alternative() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.calls(1, 100, ANSWER);
        bench.calls(4, 100, FAILURE);
    }
    bench.calls(1, 100, ANSWER);
    bench.calls(3, 100, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed, "nineteen are too few");
    bench.calls(1, 100, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "share of failures");
}

#[test]
fn half_failures_open_only_when_another_target_is_healthy_and_are_degraded_otherwise() {
    for alternative in [false, true] {
        let mut bench = Bench::new();
        bench.alternative = alternative;
        for _ in 0..10 {
            bench.calls(1, 100, ANSWER);
            bench.calls(1, 100, FAILURE);
        }
        if alternative {
            assert_eq!(
                bench.reason(),
                "share of failures while another target is healthy"
            );
        } else {
            assert_eq!(bench.state(), CircuitState::Closed);
            assert!(bench.circuit.degraded());
            assert_eq!(bench.transitions, [TransitionKind::Degraded(true)]);
        }
    }
}

#[test]
fn forty_percent_failures_neither_open_nor_are_called_degraded() {
    let mut bench = Bench::new();
    bench.alternative = true;
    for _ in 0..100 {
        bench.calls(3, 20, ANSWER);
        bench.calls(2, 20, FAILURE);
    }
    assert_eq!(bench.transitions, []);
}

#[test]
fn the_window_forgets_after_ten_seconds() {
    let mut bench = Bench::new();
    for _ in 0..50 {
        bench.calls(1, 50, ANSWER);
        bench.calls(1, 50, FAILURE);
    }
    assert!(bench.circuit.degraded());
    bench.calls(205, 50, ANSWER);
    assert_eq!(bench.evidence().failures, 0);
    assert!(!bench.circuit.degraded());
}

#[test]
fn an_answer_never_opens_even_when_another_target_becomes_healthy() {
    let mut bench = Bench::new();
    for _ in 0..30 {
        bench.calls(1, 50, ANSWER);
        bench.calls(1, 50, FAILURE);
    }
    bench.alternative = true;
    bench.calls(1, 0, ANSWER);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(2, 0, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn at_low_traffic_the_last_twenty_outcomes_count_while_they_are_younger_than_five_minutes() {
    for (last_gap_ms, state) in [(30_000, CircuitState::Open), (30_001, CircuitState::Closed)] {
        let mut bench = Bench::new();
        for _ in 0..3 {
            bench.calls(1, 15_000, ANSWER);
            bench.calls(4, 15_000, FAILURE);
        }
        bench.calls(1, 15_000, ANSWER);
        bench.calls(3, 15_000, FAILURE);
        bench.calls(1, last_gap_ms, FAILURE);
        assert_eq!(bench.state(), state, "{last_gap_ms} ms");
    }
}

#[test]
fn local_failures_open_here_and_are_never_counted_in_the_shared_evidence() {
    let mut bench = Bench::new();
    bench.calls(7, 1000, LOCAL);
    assert_eq!(bench.evidence().committed, 0);
    bench.calls(7, 1000, FAILURE);
    bench.calls(7, 1000, LOCAL);
    assert_eq!(
        bench.state(),
        CircuitState::Closed,
        "neither kind alone is eight in a row"
    );
    bench.calls(1, 1000, LOCAL);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "local failures in a row");
    let Some(TransitionKind::Opened { evidence, .. }) = bench.transitions.last() else {
        panic!()
    };
    assert_eq!(evidence.failures, 7);
}

#[test]
fn outcomes_that_show_nothing_about_the_target_leave_no_trace() {
    let mut bench = Bench::new();
    bench.calls(7, 1000, FAILURE);
    let before = bench.evidence();
    for signal in [
        Signal::Neutral,
        Signal::RateLimited,
        Signal::Cancelled {
            after_slow_threshold: false,
        },
        Signal::Abandoned,
    ] {
        bench.calls(100, 10, signal);
        assert_eq!(bench.evidence(), before, "{signal:?}");
    }
    bench.calls(1, 0, FAILURE);
    assert_eq!(
        bench.state(),
        CircuitState::Open,
        "the run went on, and the rate of calls did not rise"
    );
}

#[test]
fn the_first_verdict_of_a_permit_wins() {
    let mut bench = Bench::new();
    let permit = bench.admit();
    bench.report(&permit, FAILURE);
    for _ in 0..20 {
        bench.report(&permit, FAILURE);
        bench.report(&permit, ANSWER);
    }
    assert_eq!(bench.evidence().committed, 1);
    assert_eq!(bench.evidence().consecutive, 1);
}

#[test]
fn an_answer_that_is_cut_counts_once_more_as_a_failure() {
    let mut bench = Bench::new();
    let permit = bench.admit();
    bench.report(&permit, ANSWER);
    bench.report(&permit, LOCAL);
    bench.report(
        &permit,
        Signal::Cancelled {
            after_slow_threshold: true,
        },
    );
    assert_eq!(
        (bench.evidence().committed, bench.evidence().failures),
        (1, 0)
    );
    let permit = bench.admit();
    for _ in 0..10 {
        bench.report(&permit, ANSWER);
        bench.report(&permit, FAILURE);
    }
    assert_eq!(
        (bench.evidence().committed, bench.evidence().failures),
        (3, 1)
    );
}

#[test]
fn the_wait_that_the_tripping_failure_states_is_a_floor_up_to_five_minutes() {
    for (stated, opened) in [
        (20_000, 20_000),
        (3_600_000, 300_000),
        (0, 1000),
        (400, 1000),
    ] {
        let mut bench = Bench::new();
        bench.calls(7, 1000, FAILURE);
        let retry_after = Some(Duration::from_millis(stated));
        bench.calls(
            1,
            1000,
            Signal::Failed {
                kind: FailKind::Fast,
                retry_after,
                local_origin: false,
            },
        );
        assert_eq!(
            bench.retry_in(),
            Duration::from_millis(opened),
            "{stated} ms"
        );
    }
}

#[test]
fn a_clock_that_was_read_before_the_lock_does_no_harm() {
    let mut bench = Bench::new();
    bench.pass(60_000);
    bench.calls(7, 1000, FAILURE);
    bench.now -= Duration::from_secs(30);
    bench.call(FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(
        bench.retry_in(),
        Duration::from_secs(31),
        "the open time runs from the latest time seen"
    );
}

#[test]
fn a_failure_that_a_call_had_before_shows_nothing_if_later_calls_succeeded() {
    let evidence = CircuitPolicy::default();
    let counted = CircuitPolicy {
        mode: CircuitMode::Consecutive,
        ..evidence.clone()
    };
    let literal = CircuitPolicy {
        any_failure: true,
        ..evidence.clone()
    };
    for (policy, weighs) in [(evidence, true), (counted, false), (literal, false)] {
        let mut bench = Bench::with(policy);
        let none = CallerMarks::default();
        let failed_before = Some(bench.now);
        bench.calls(3, 100, FAILURE);
        let now = bench.now;
        let weighed = bench.circuit.weigh(now, now, none, failed_before, FAILURE);
        assert_eq!(weighed, FAILURE, "nobody succeeded");
        bench.calls(1, 100, ANSWER);
        let weighed = bench.circuit.weigh(now, now, none, failed_before, FAILURE);
        assert_eq!(weighed == Signal::Neutral, weighs);
        assert_eq!(bench.circuit.weigh(now, now, none, None, FAILURE), FAILURE);
        let latest = Some(bench.now);
        assert_eq!(
            bench.circuit.weigh(now, now, none, latest, FAILURE),
            FAILURE
        );
    }
}
