//! What each change reports: its generation, the state before it, the evidence, and how long that
//! state lasted.

use super::*;

/// Returns the changes of state, and the stages of recovery.
fn moves(bench: &Bench) -> Vec<Transition> {
    let degraded =
        |transition: &&Transition| !matches!(transition.kind, TransitionKind::Degraded(_));
    bench.transition.iter().filter(degraded).copied().collect()
}

#[test]
fn each_change_reports_the_state_before_it_how_long_that_lasted_and_a_greater_generation() {
    let mut bench = Bench::opened();
    let opened_at = bench.now;
    bench.pass(1000);
    bench.calls(2, 500, ANSWER);
    for _ in 0..3 {
        bench.pass(5000);
        bench.call(ANSWER);
    }
    bench.pass(5000);
    assert_eq!(bench.state(), CircuitState::Closed);
    let moves = moves(&bench);
    let reported: Vec<_> = moves
        .iter()
        .map(|transition| (transition.generation, transition.from, transition.streak))
        .collect();
    assert_eq!(
        reported,
        [
            (1, CircuitState::Closed, 1),
            (2, CircuitState::Open, 1),
            (3, CircuitState::HalfOpen, 1),
            // A later stage is no new state.
            (3, CircuitState::Recovering, 1),
            (3, CircuitState::Recovering, 1),
            (4, CircuitState::Recovering, 0),
        ]
    );
    let lasted: Vec<_> = moves
        .iter()
        .map(|transition| transition.lasted.map(|lasted| lasted.as_millis()))
        .collect();
    assert_eq!(lasted[..3], [None, Some(1500), Some(500)]);
    let [opened, .., closed] = &moves[..] else {
        panic!("{moves:?}")
    };
    assert_eq!(opened.disturbed, Duration::ZERO);
    assert_eq!(closed.disturbed, bench.circuit.since().unwrap() - opened_at);
    assert!(
        moves
            .iter()
            .all(|transition| !transition.forced && !transition.silent)
    );
}

#[test]
fn a_change_reports_the_evidence_that_it_resets() {
    let mut bench = Bench::opened();
    let opened = moves(&bench)[0];
    assert_eq!(
        (opened.evidence.failures, opened.evidence.consecutive),
        (8, 8)
    );
    assert_eq!(bench.evidence().committed, 0, "it is forgotten");
    bench.pass(1000);
    bench.calls(2, 0, ANSWER);
    assert_eq!(
        moves(&bench).last().copied().unwrap().evidence.committed,
        2,
        "two probes were answered"
    );
    bench.calls(1, 100, ANSWER);
    bench.calls(40, 200, FAILURE);
    let opened = |transition: &Transition| matches!(transition.kind, TransitionKind::Opened { .. });
    let again = moves(&bench).into_iter().filter(opened).nth(1).unwrap();
    assert!(again.evidence.failures > 0, "{again:?}");
    assert_eq!((again.from, again.streak), (CircuitState::Recovering, 2));
    assert!(again.disturbed > Duration::from_secs(1));
}

#[test]
fn evidence_names_the_time_over_which_it_counts() {
    let millis = |window: Duration| u64::try_from(window.as_millis()).unwrap();
    let mut busy = Bench::new();
    busy.calls(4, 10, ANSWER);
    assert_eq!(busy.evidence().window_ms, millis(setting::WINDOW));
    let mut sparse = Bench::new();
    sparse.calls(4, 20_000, ANSWER);
    assert_eq!(
        (sparse.evidence().committed, sparse.evidence().window_ms),
        (4, millis(setting::SPARSE_WINDOW))
    );
}

#[test]
fn changes_by_an_operator_and_by_silence_are_reported_as_such() {
    let mut bench = Bench::new();
    bench.force(Forced::Open);
    bench.pass(3000);
    bench.force(Forced::Auto);
    bench.pass(2000);
    let _out = bench.admit();
    let half_open = *moves(&bench).last().unwrap();
    assert_eq!(half_open.kind, TransitionKind::HalfOpen);
    assert_eq!(
        half_open.lasted,
        Some(Duration::from_secs(5)),
        "it was open all the time, whoever held it so"
    );
    // The probe stays silent.
    bench.pass(600_000);
    let opened = *moves(&bench).last().unwrap();
    assert!(opened.silent && !opened.forced, "{opened:?}");
    bench.force(Forced::Closed);
    let closed = *moves(&bench).last().unwrap();
    assert_eq!(
        (closed.from, closed.forced, closed.streak),
        (CircuitState::Open, true, 0)
    );
    assert_eq!(closed.disturbed, Duration::from_secs(605));
    assert!(moves(&bench)[0].forced);
    assert_eq!(moves(&bench)[0].streak, 1);
}

#[test]
fn a_snapshot_counts_the_openings_in_a_row() {
    let mut bench = Bench::new();
    assert_eq!(bench.circuit.snapshot(bench.now).times_opened(), 0);
    bench.calls(8, 1000, FAILURE);
    assert_eq!(bench.circuit.snapshot(bench.now).times_opened(), 1);
    bench.pass(1000);
    bench.call(FAILURE);
    assert_eq!(bench.circuit.snapshot(bench.now).times_opened(), 2);
    bench.circuit.reset(bench.now);
    assert_eq!(bench.circuit.snapshot(bench.now).times_opened(), 0);
}

#[test]
fn probes_that_are_still_out_are_reported_when_an_operator_ends_the_probing() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    bench.call(ANSWER);
    let _out = bench.admit();
    let transitions = bench.circuit.reset(bench.now);
    let evidence = transitions
        .last()
        .map(|transition| (transition.evidence.committed, transition.evidence.pending));
    assert_eq!(evidence, Some((1, 1)));
}
