//! Where calls are few: two failures are enough to prefer another target, and probes are rare while
//! that one works.

use super::*;

/// Returns a target that was healthy, and then failed twice, half a second apart, four seconds
/// after its last success.
fn failed_twice() -> Bench {
    let mut bench = Bench::new();
    bench.alternative = true;
    bench.calls(3, 4000, ANSWER);
    bench.calls(1, 4000, FAILURE);
    bench.calls(1, 500, FAILURE);
    bench
}

#[test]
fn two_failures_without_an_answer_in_three_seconds_are_called_degraded() {
    let bench = failed_twice();
    assert_eq!(
        (bench.state(), bench.circuit.degraded()),
        (CircuitState::Closed, true)
    );
}

#[test]
fn one_failure_is_not_called_degraded_however_long_ago_the_last_answer_was() {
    let mut bench = Bench::new();
    bench.calls(1, 0, ANSWER);
    bench.calls(1, 3_600_000, FAILURE);
    bench.pass(19_999);
    assert!(!bench.circuit.degraded());
}

#[test]
fn failures_do_not_degrade_a_target_where_a_call_just_succeeded() {
    for (gap_ms, degraded) in [(999, false), (1000, true)] {
        let mut bench = Bench::new();
        bench.calls(1, 0, ANSWER);
        bench.calls(3, gap_ms, FAILURE);
        assert_eq!(bench.circuit.degraded(), degraded, "{gap_ms}");
    }
}

#[test]
fn a_target_without_earlier_calls_is_given_the_same_time() {
    let mut bench = Bench::new();
    bench.calls(2, 1600, FAILURE);
    bench.pass(1399);
    assert!(!bench.circuit.degraded());
    bench.pass(1);
    assert!(bench.circuit.degraded());
}

#[test]
fn callers_who_got_no_answer_at_all_count_like_failures() {
    let mut bench = Bench::new();
    bench.calls(1, 0, ANSWER);
    for _ in 0..2 {
        let permit = bench.admit();
        bench.pass(2500);
        bench.report(&permit, GAVE_UP);
    }
    assert!(bench.circuit.degraded());
}

#[test]
fn after_twice_the_time_of_the_failures_one_call_probes_and_the_others_still_prefer_other_targets()
{
    let mut bench = failed_twice();
    bench.pass(999);
    assert!(bench.circuit.degraded());
    bench.pass(1);
    assert!(
        !bench.circuit.degraded(),
        "worth a look, and not to be stayed with"
    );
    let look = bench.admit();
    bench.pass(0);
    assert!(bench.circuit.degraded());
    bench.report(&look, FAILURE);
    bench.pass(2999);
    assert!(
        bench.circuit.degraded(),
        "a look that fails shows that the outage lasts longer"
    );
    bench.pass(1);
    bench.call(ANSWER);
    assert!(!bench.circuit.degraded(), "one answer is enough");
}

#[test]
fn an_absence_is_at_most_twice_as_long_as_the_outage_and_a_minute_of_failures_costs_four_attempts()
{
    let gap = 4;
    for outage in 1..=120_u64 {
        let mut bench = Bench::new();
        bench.alternative = true;
        bench.call(ANSWER);
        let mut failed = 0;
        let mut now = 0;
        let back = loop {
            bench.pass(gap * 1000);
            now += gap;
            let is_called = bench.state() != CircuitState::Open && !bench.circuit.degraded();
            if is_called && now > outage {
                break now;
            }
            if is_called {
                failed += 1;
                bench.call(FAILURE);
            }
        };
        assert!(
            back <= outage + (2 * outage).min(25) + gap,
            "{outage} s: back after {back} s"
        );
        assert!(failed <= 4 || outage > 60, "{outage} s: {failed} attempts");
    }
}

#[test]
fn a_target_whose_circuit_is_not_closed_is_failing_and_so_is_a_degraded_one() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.calls(1, 50, FAILURE);
        bench.calls(1, 50, ANSWER);
    }
    assert!(
        bench.circuit.degraded(),
        "although the last call was answered"
    );
}

#[test]
fn a_run_that_is_not_looked_at_for_minutes_is_not_forgotten() {
    let mut bench = failed_twice();
    bench.pass(120_000);
    bench.call(FAILURE);
    assert!(bench.circuit.degraded());
}

#[test]
fn thirty_percent_failures_at_fifty_per_second_are_never_called_degraded() {
    let mut bench = Bench::new();
    let mut rng = TestRng(7);
    for _ in 0..100_000 {
        bench.calls(1, 20, if rng.roll() < 0.3 { FAILURE } else { ANSWER });
    }
    assert_eq!(bench.transitions, []);
}

#[test]
fn while_another_target_serves_few_callers_the_first_look_is_late_and_while_many_wait_it_is_soon() {
    for (gap_ms, alternative, open_s) in [
        (1000, true, 14),
        (1000, false, 1),
        (100, true, 2),
        (20, true, 1),
    ] {
        let mut bench = Bench::new();
        bench.alternative = alternative;
        bench.calls(200, gap_ms, ANSWER);
        while bench.state() == CircuitState::Closed {
            bench.calls(1, gap_ms, FAILURE);
        }
        assert_eq!(
            bench.retry_in().as_secs(),
            open_s,
            "{gap_ms} ms, {alternative}"
        );
    }
}

#[test]
fn a_probe_is_brought_forward_to_its_time_at_a_lone_target_once_no_other_one_serves() {
    let waits = [true, false].map(|served| {
        let mut bench = Bench::new();
        bench.alternative = served;
        bench.calls(3, 4000, ANSWER);
        while bench.state() == CircuitState::Closed {
            bench.calls(1, 4000, FAILURE);
        }
        let retry_in = |bench: &Bench| bench.circuit.snapshot(bench.now).retry_in.unwrap();
        let stated = retry_in(&bench);
        assert_eq!(bench.circuit.bring_probe_forward(), served);
        let alone = retry_in(&bench);
        assert!(!bench.circuit.bring_probe_forward(), "once");
        bench.circuit.stay_open(bench.now + stated);
        assert!(
            !bench.circuit.bring_probe_forward(),
            "another replica probes"
        );
        (stated, alone)
    });
    let [served, lone] = waits;
    assert!(served.0 >= 10 * served.1, "{served:?}");
    assert_eq!((served.1, lone.1), (lone.0, lone.0));
}
