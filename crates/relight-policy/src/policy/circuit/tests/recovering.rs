//! The way back: open times, probes, stages.

use super::*;

#[test]
fn an_open_circuit_rejects_until_its_time_with_the_time_left() {
    let mut bench = Bench::opened();
    assert_eq!(
        bench.try_admit().unwrap_err(),
        Reject {
            retry_in: Duration::from_secs(1)
        }
    );
    bench.pass(400);
    let wait = Duration::from_millis(600);
    assert_eq!(bench.try_admit().unwrap_err(), Reject { retry_in: wait });
    assert_eq!(
        bench.circuit.peek(bench.now, false),
        Peek::Wait {
            retry_in: Some(wait)
        }
    );
    bench.pass(600);
    assert_eq!(bench.circuit.peek(bench.now, false), Peek::Ready);
    assert_eq!(bench.state(), CircuitState::Open, "looking changes nothing");
    assert!(bench.admit().is_probe());
    assert_eq!(bench.transitions.last(), Some(&TransitionKind::HalfOpen));
}

#[test]
fn open_times_double_after_timeouts_and_are_shorter_by_up_to_a_fifth() {
    for (rng, percent) in [(0.0, 80), (0.25, 90), (0.5, 100), (1.0, 80)] {
        let mut bench = Bench::new();
        bench.rng = rng;
        bench.calls(8, 10_000, TIMEOUT);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            let wait = bench.retry_in();
            assert_eq!(wait.as_millis(), seconds * 10 * percent);
            bench.pass(u64::try_from(wait.as_millis()).unwrap());
            bench.call(TIMEOUT);
        }
    }
}

#[test]
fn of_a_hundred_callers_at_half_open_two_get_through() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    let probes: Vec<_> = (0..100).filter_map(|_| bench.try_admit().ok()).collect();
    assert_eq!(probes.len(), 2);
    assert_eq!(bench.circuit.snapshot(bench.now).probes_outstanding, 2);
    bench.report(&probes[0], ANSWER);
    assert!(bench.try_admit().is_ok(), "the slot is free again");
    assert_eq!(
        bench.try_admit().unwrap_err(),
        Reject {
            retry_in: Duration::from_secs(1)
        }
    );
}

#[test]
fn a_round_of_probes_recovers_with_two_successes_unless_failures_outnumber_them_before() {
    for answers in 0_u32..16 {
        let mut bench = Bench::opened();
        bench.pass(1000);
        let mut good = 0;
        let mut bad = 0;
        for probe in 0..4 {
            let well = answers >> probe & 1 == 1;
            bench.call(if well { ANSWER } else { FAILURE });
            good += u32::from(well);
            bad += u32::from(!well);
            let expected = if bad > good {
                CircuitState::Open
            } else if good == 2 {
                CircuitState::Recovering
            } else {
                CircuitState::HalfOpen
            };
            assert_eq!(bench.state(), expected, "{answers:04b} at {probe}");
            if expected != CircuitState::HalfOpen {
                break;
            }
        }
    }
}

#[test]
fn only_rounds_without_any_success_make_the_next_wait_longer() {
    let mut bench = Bench::new();
    bench.calls(8, 10_000, TIMEOUT);
    for (with_a_success, next) in [(true, 1), (false, 2), (true, 2), (false, 4)] {
        bench.pass(5000);
        if with_a_success {
            bench.call(ANSWER);
            bench.call(TIMEOUT);
        }
        bench.call(TIMEOUT);
        assert_eq!(bench.retry_in(), Duration::from_secs(next));
    }
}

#[test]
fn one_bad_probe_is_enough_while_another_target_serves_the_callers() {
    let mut bench = Bench::opened();
    bench.alternative = true;
    bench.pass(1000);
    bench.call(ANSWER);
    bench.call(FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn a_probe_whose_answer_is_cut_opens_again() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    let probe = bench.admit();
    bench.report(&probe, ANSWER);
    bench.report(&probe, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
}

#[test]
fn a_lost_probe_fails_when_its_lease_ends() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    let lost = bench.admit();
    bench.pass(30_999);
    assert_eq!(bench.state(), CircuitState::HalfOpen);
    bench.pass(1);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "a probe was not answered in time");
    assert_eq!(bench.retry_in(), Duration::from_secs(2));
    bench.report(&lost, ANSWER);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.circuit.snapshot(bench.now).stale_reports, 1);
}

#[test]
fn a_probe_without_verdict_frees_its_slot_and_five_in_a_row_are_spaced() {
    let nothing = [
        Signal::Neutral,
        Signal::RateLimited,
        Signal::Cancelled {
            after_slow_threshold: true,
        },
        Signal::Abandoned,
        Signal::Cancelled {
            after_slow_threshold: false,
        },
    ];
    let mut bench = Bench::opened();
    bench.pass(1000);
    for signal in nothing {
        let probe = bench.admit();
        bench.report(&probe, signal);
        assert_eq!(bench.state(), CircuitState::HalfOpen, "{signal:?}");
    }
    assert_eq!(
        bench.try_admit().unwrap_err(),
        Reject {
            retry_in: Duration::from_secs(1)
        }
    );
    bench.pass(999);
    assert!(bench.try_admit().is_err());
    bench.pass(1);
    bench.call(ANSWER);
    bench.call(ANSWER);
    assert_eq!(
        bench.state(),
        CircuitState::Recovering,
        "a verdict ends the spacing"
    );
}

#[test]
fn a_recovery_admits_a_quarter_then_half_then_all_then_closes() {
    let mut bench = Bench::recovering();
    for (percent, admitted_of_hundred) in [(25, 25), (50, 50), (100, 100)] {
        assert_eq!(
            bench.transitions.last(),
            Some(&TransitionKind::Recovering {
                admitted_percent: percent
            })
        );
        let permits: Vec<_> = (0..100).filter_map(|_| bench.try_admit().ok()).collect();
        assert_eq!(permits.len(), admitted_of_hundred);
        bench.pass(1000);
        bench.report(&permits[0], ANSWER);
    }
    assert_eq!(bench.state(), CircuitState::Closed);
    assert_eq!(bench.transitions.last(), Some(&TransitionKind::Closed));
}

#[test]
fn twenty_outcomes_end_a_stage_before_its_time() {
    let mut bench = Bench::recovering();
    for _ in 0..3 {
        let mut admitted = 0;
        while admitted < 20 {
            assert_eq!(bench.state(), CircuitState::Recovering);
            let Ok(permit) = bench.try_admit() else {
                continue;
            };
            bench.report(&permit, ANSWER);
            admitted += 1;
        }
    }
    assert_eq!(bench.state(), CircuitState::Closed);
}

#[test]
fn time_alone_recovers_nothing() {
    let mut bench = Bench::recovering();
    bench.pass(3_600_000);
    assert_eq!(bench.state(), CircuitState::Recovering);
    assert_eq!(
        bench.transitions.last(),
        Some(&TransitionKind::Recovering {
            admitted_percent: 25
        })
    );
    bench.call(ANSWER);
    assert_eq!(
        bench.transitions.last(),
        Some(&TransitionKind::Recovering {
            admitted_percent: 50
        })
    );
}

#[test]
fn a_recovery_in_which_ten_outcomes_are_mostly_failures_opens_again() {
    let mut bench = Bench::recovering();
    let admitted = |bench: &mut Bench, signal| (0..4).for_each(|_| bench.call(signal));
    for signal in [
        FAILURE, FAILURE, FAILURE, FAILURE, ANSWER, FAILURE, FAILURE, FAILURE, FAILURE,
    ] {
        admitted(&mut bench, signal);
        assert_eq!(bench.state(), CircuitState::Recovering);
    }
    admitted(&mut bench, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "share of failures");
    assert_eq!(bench.retry_in(), Duration::from_secs(1));
}

#[test]
fn a_recovery_with_failures_in_a_row_opens_again() {
    let mut bench = Bench::recovering();
    for _ in 0..40 {
        bench.call(FAILURE);
    }
    assert_eq!(bench.state(), CircuitState::Open);
    assert_eq!(bench.reason(), "failures in a row");
}

#[test]
fn an_answer_behind_a_slow_head_ends_a_stage() {
    let mut bench = Bench::recovering();
    let _slow_head = bench.admit();
    bench.pass(1000);
    for _ in 0..4 {
        bench.call(ANSWER);
    }
    assert_eq!(
        bench.transitions.last(),
        Some(&TransitionKind::Recovering {
            admitted_percent: 50
        })
    );
}

#[test]
fn the_open_time_starts_anew_only_after_a_complete_recovery() {
    let mut bench = Bench::recovering();
    for _ in 0..40 {
        bench.call(FAILURE);
    }
    bench.pass(2000);
    bench.calls(2, 0, ANSWER);
    for _ in 0..40 {
        bench.call(FAILURE);
    }
    assert_eq!(bench.circuit.snapshot(bench.now).streak, 2);
    bench.pass(4000);
    bench.calls(2, 0, ANSWER);
    bench.calls(400, 10, ANSWER);
    assert_eq!(
        (bench.state(), bench.circuit.snapshot(bench.now).streak),
        (CircuitState::Closed, 0)
    );
    bench.pass(20_000);
    bench.calls(20, 1000, FAILURE);
    assert!(bench.transitions.iter().rev().any(|transitions| {
        matches!(transitions, TransitionKind::Opened { retry_in, .. } if *retry_in == Some(Duration::from_secs(1)))
    }));
}

#[test]
fn what_a_call_of_an_earlier_generation_reports_changes_nothing() {
    let mut bench = Bench::new();
    let early: Vec<_> = (0..200).map(|_| bench.admit()).collect();
    let mut early = early.iter().cycle();
    bench.calls(20, 100, FAILURE);
    assert_eq!(bench.state(), CircuitState::Open);
    let mut stale = 0;
    let mut all_states = |bench: &mut Bench, state: CircuitState| {
        assert_eq!(bench.state(), state);
        let before = bench.circuit.snapshot(bench.now);
        for signal in [
            ANSWER,
            FAILURE,
            TIMEOUT,
            LOCAL,
            Signal::Neutral,
            Signal::Abandoned,
        ]
        .repeat(6)
        {
            bench.report(early.next().unwrap(), signal);
            stale += 1;
        }
        let after = bench.circuit.snapshot(bench.now);
        assert_eq!(
            after,
            CircuitSnapshot {
                stale_reports: stale,
                ..before
            }
        );
    };
    all_states(&mut bench, CircuitState::Open);
    bench.pass(1000);
    bench.call(ANSWER);
    all_states(&mut bench, CircuitState::HalfOpen);
    bench.call(ANSWER);
    all_states(&mut bench, CircuitState::Recovering);
    bench.calls(400, 10, ANSWER);
    all_states(&mut bench, CircuitState::Closed);
}

#[test]
fn every_change_of_state_begins_a_generation() {
    let mut bench = Bench::opened();
    assert_eq!(bench.circuit.snapshot(bench.now).generation, 1);
    bench.pass(1000);
    bench.call(ANSWER);
    assert_eq!(bench.circuit.snapshot(bench.now).generation, 2);
    bench.call(ANSWER);
    assert_eq!(bench.circuit.snapshot(bench.now).generation, 3);
    bench.calls(400, 10, ANSWER);
    assert_eq!(bench.circuit.snapshot(bench.now).generation, 4);
}

#[test]
fn the_wait_that_a_failed_probe_states_is_kept() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    let retry_after = Some(Duration::from_secs(40));
    bench.call(Signal::Failed {
        kind: FailKind::Fast,
        retry_after,
        local_origin: false,
    });
    assert_eq!(bench.retry_in(), Duration::from_secs(40));
}

#[test]
fn a_call_beyond_the_share_of_a_stage_gets_the_time_of_its_end() {
    let mut bench = Bench::recovering();
    bench.admit();
    assert_eq!(
        bench.try_admit().unwrap_err().retry_in,
        Duration::from_millis(250)
    );
    bench.pass(230);
    assert_eq!(
        bench.try_admit().unwrap_err().retry_in,
        Duration::from_millis(50),
        "but not at once"
    );
}

#[test]
fn a_probe_that_comes_back_leaves_the_lease_of_the_other() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    let first = bench.admit();
    bench.pass(10_000);
    let second = bench.admit();
    assert!(first.is_probe() && second.is_probe() && !Bench::new().admit().is_probe());
    bench.report(&first, Signal::Neutral);
    bench.pass(30_999);
    assert_eq!(
        bench.state(),
        CircuitState::HalfOpen,
        "the lease of the first would be over"
    );
    bench.pass(1);
    assert_eq!(bench.state(), CircuitState::Open);
}
