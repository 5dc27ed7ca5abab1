//! Invariants of every history, through all states: leases, generations, deadlines, and the way
//! back to closed.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Admit,
    Report(Index, Signal),
    Pass(u64),
}

fn signal() -> impl Strategy<Value = Signal> {
    let retry_after = proptest::option::of((0..400_u64).prop_map(Duration::from_secs));
    prop_oneof![
        5 => Just(ANSWER),
        6 => Just(FAILURE),
        2 => Just(TIMEOUT),
        1 => retry_after.prop_map(|retry_after| Signal::Failed { kind: FailKind::Fast, retry_after, local_origin: false }),
        1 => Just(LOCAL),
        1 => Just(Signal::RateLimited),
        1 => Just(Signal::Cancelled { after_slow_threshold: true }),
        1 => Just(Signal::Abandoned),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Admit),
        8 => (any::<Index>(), signal()).prop_map(|(index, signal)| Step::Report(index, signal)),
        3 => (0..1500_u64).prop_map(Step::Pass),
        1 => (1500..40_000_u64).prop_map(Step::Pass),
    ]
}

fn neutral() -> impl Strategy<Value = Signal> {
    prop_oneof![
        Just(Signal::Neutral),
        Just(Signal::RateLimited),
        Just(Signal::Cancelled {
            after_slow_threshold: false
        }),
        Just(Signal::Abandoned),
    ]
}

/// Returns a policy that trips early, so that random histories go through all states.
fn nervous() -> CircuitPolicy {
    CircuitPolicy {
        run_at_low_rate: 2,
        ..CircuitPolicy::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn probes_stay_within_their_number_and_earlier_generations_are_ignored(
        steps in vec(step(), 1..300), rng in 0.0..=1.0,
    ) {
        let mut bench = Bench::with(nervous());
        bench.rng = rng;
        let mut permits = Vec::new();
        for step in steps {
            let before = bench.circuit.snapshot(bench.now);
            match step {
                Step::Admit => permits.extend(bench.try_admit()),
                Step::Pass(ms) => bench.pass(ms),
                Step::Report(index, signal) if !permits.is_empty() => {
                    bench.pass(0);
                    let before = bench.circuit.snapshot(bench.now);
                    let permit: &Permit = index.get(&permits);
                    bench.report(permit, signal);
                    let after = bench.circuit.snapshot(bench.now);
                    if permit.generation() != before.generation {
                        prop_assert_eq!(after, CircuitSnapshot { stale_reports: after.stale_reports, ..before });
                    }
                }
                Step::Report(..) => {}
            }
            let after = bench.circuit.snapshot(bench.now);
            // One is out for 31 s at most, and is waited for at least a second.
            prop_assert!(after.probes_outstanding <= 2 * 31);
            prop_assert!(after.generation >= before.generation);
            if (after.generation, after.state) != (before.generation, before.state) {
                prop_assert!(after.generation > before.generation, "{:?} -> {:?}", before.state, after.state);
            }
        }
    }

    #[test]
    fn an_open_time_is_never_shortened(steps in vec(step(), 1..200)) {
        let mut bench = Bench::opened();
        let mut permits: Vec<Permit> = Vec::new();
        for step in steps {
            let opens = |bench: &Bench| bench.now + bench.retry_in();
            let before = (bench.circuit.snapshot(bench.now).generation, opens(&bench));
            match step {
                Step::Admit => permits.extend(bench.try_admit()),
                Step::Pass(_) => bench.pass(100),
                Step::Report(index, signal) if !permits.is_empty() => bench.report(index.get(&permits), signal),
                Step::Report(..) => {}
            }
            let same = bench.circuit.snapshot(bench.now).generation == before.0;
            if same && bench.state() == CircuitState::Open {
                prop_assert!(opens(&bench) >= before.1);
            }
        }
    }

    #[test]
    fn neutral_calls_change_no_decision(
        calls in vec((prop_oneof![Just(ANSWER), Just(FAILURE), Just(LOCAL)], 0..900_u64, vec(neutral(), 0..4)), 1..120),
    ) {
        let mut with = Bench::new();
        let mut without = Bench::new();
        for (signal, gap, nothing) in calls {
            with.pass(gap);
            without.pass(gap);
            if with.state() != CircuitState::Closed {
                break;
            }
            for signal in nothing {
                with.call(signal);
            }
            with.call(signal);
            without.call(signal);
            prop_assert_eq!(&with.transitions, &without.transitions);
        }
    }

    #[test]
    fn the_order_in_which_failures_and_answers_arrive_changes_no_decision(
        fates in vec(any::<bool>(), 30), order in Just((0..30_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let play = |order: &[usize]| {
            let mut bench = Bench::new();
            let permits: Vec<_> = fates.iter().map(|_| bench.admit()).collect();
            for &call in order {
                bench.report(&permits[call], if fates[call] { ANSWER } else { FAILURE });
            }
            bench.state()
        };
        let in_order: Vec<_> = (0..30).collect();
        prop_assert_eq!(play(&order), play(&in_order));
    }

    #[test]
    fn with_a_healthy_target_and_traffic_it_closes_even_if_the_first_probes_are_lost(
        lost in 0..5_usize, gap_ms in 10..2000_u64, latency_ms in 0..2000_u64, rng in 0.0..=1.0,
    ) {
        let mut bench = Bench::opened();
        bench.rng = rng;
        let mut lost = lost;
        let mut elapsed = 0;
        let mut waiting = std::collections::VecDeque::new();
        while bench.state() != CircuitState::Closed {
            if let Ok(permit) = bench.try_admit() {
                if permit.is_probe() && lost > 0 { lost -= 1 } else { waiting.push_back((elapsed + latency_ms, permit)) }
            }
            while waiting.front().is_some_and(|(at, _)| *at <= elapsed) {
                let (_, permit) = waiting.pop_front().unwrap();
                bench.report(&permit, ANSWER);
            }
            bench.pass(gap_ms);
            elapsed += gap_ms;
            // Each lost probe costs its lease and an open time, the ramp three stages.
            prop_assert!(elapsed < 5 * (31_000 + 36_000 + gap_ms) + 60_000);
        }
    }
}
