//! Ten hours of chance failures, which must not open a circuit.

use std::collections::VecDeque;

use super::*;

/// Runs calls at 50 per second, of which a share fails at once and the others succeed after 0.6 s;
/// returns how often the circuit opened.
fn opens(seed: u64, calls: u32, failure_share: f64, alternative_healthy: bool) -> usize {
    let mut rng = TestRng(seed);
    let mut circuit = Circuit::new(Arc::new(CircuitPolicy::default()));
    let mut now = Instant::now();
    let mut waiting: VecDeque<Permit> = VecDeque::new();
    let mut opened = 0;
    for _ in 0..calls {
        now += Duration::from_millis(20);
        let context = ReportContext {
            now,
            rng: 0.5,
            alternative_healthy,
        };
        let Ok(permit) = circuit.admit(now, 0.5) else {
            continue;
        };
        let mut transitions = Vec::new();
        if rng.roll() < failure_share {
            transitions = circuit.report(&permit, FAILURE, context);
        } else {
            waiting.push_back(permit);
        }
        if waiting.len() > 30
            && let Some(permit) = waiting.pop_front()
        {
            transitions.extend(circuit.report(&permit, ANSWER, context));
        }
        opened += transitions
            .iter()
            .filter(|transitions| matches!(transitions.kind, TransitionKind::Opened { .. }))
            .count();
    }
    opened
}

#[test]
fn thirty_percent_failures_at_fifty_per_second_do_not_open_in_ten_hours() {
    for seed in 1..=2 {
        assert_eq!(opens(seed, 50 * 36_000, 0.3, false), 0, "seed {seed}");
    }
}

#[test]
#[ignore = "a hundred hours of calls take half a minute without optimisation"]
fn thirty_percent_failures_open_at_most_twice_in_a_hundred_hours() {
    let opened: usize = (1..=10)
        .map(|seed| opens(seed, 50 * 36_000, 0.3, false))
        .sum();
    assert!(opened <= 2, "{opened}");
}

#[test]
fn twenty_percent_failures_do_not_open_even_when_another_target_is_healthy() {
    for seed in 1..=2 {
        assert_eq!(opens(seed, 50 * 3600, 0.2, true), 0, "seed {seed}");
    }
}

#[test]
fn ninety_five_percent_failures_open_within_two_seconds() {
    for seed in 1..=20 {
        assert!(opens(seed, 100, 0.95, false) > 0, "seed {seed}");
    }
}
