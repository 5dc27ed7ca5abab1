//! A target that sends nothing, one that responds late, and callers who do not wait for it.

use super::*;

/// Admits a call each 20 ms for that time; each gives up after its patience, and succeeds where
/// `answered` returns true.
fn impatient(
    bench: &mut Bench,
    ms: u64,
    patience_ms: u64,
    mut answered: impl FnMut(usize) -> bool,
) -> Option<u64> {
    let mut waiting = std::collections::VecDeque::new();
    for step in 0..ms / 20 {
        if let Ok(permit) = bench.try_admit() {
            waiting.push_back((step * 20 + patience_ms, waiting.len(), permit));
        }
        while waiting
            .front()
            .is_some_and(|(until, ..)| *until <= step * 20)
        {
            let (_, call, permit) = waiting.pop_front().unwrap();
            bench.report(&permit, if answered(call) { ANSWER } else { GAVE_UP });
        }
        if bench.state() == CircuitState::Open {
            return Some(step * 20);
        }
        bench.pass(20);
    }
    None
}

#[test]
fn a_hang_opens_within_half_a_second_after_the_first_token_timeout_even_without_reports() {
    let mut bench = Bench::new();
    let mut hanging = Vec::new();
    let mut elapsed = 0;
    while bench.state() == CircuitState::Closed {
        hanging.push(bench.admit());
        bench.pass(20);
        elapsed += 20;
        assert!(elapsed <= 30_500);
    }
    assert!(elapsed >= 30_000);
    assert_eq!(bench.reason(), "failures in a row");
}

#[test]
fn silence_costs_up_to_thirty_seconds_of_open_time_and_fast_failures_one() {
    for (signal, longest) in [(TIMEOUT, 30), (FAILURE, 1)] {
        let mut bench = Bench::new();
        bench.calls(8, 10_000, signal);
        for _ in 0..10 {
            let wait = bench.retry_in();
            bench.pass(u64::try_from(wait.as_millis()).unwrap());
            bench.call(signal);
        }
        assert_eq!(bench.retry_in(), Duration::from_secs(longest));
    }
}

#[test]
fn an_attempt_that_answers_after_the_first_token_timeout_stays_failed() {
    let mut bench = Bench::new();
    let permit = bench.admit();
    bench.pass(29_999);
    assert_eq!(bench.evidence().pending, 1);
    bench.pass(1);
    assert_eq!(
        (bench.evidence().pending, bench.evidence().consecutive),
        (0, 1)
    );
    bench.report(&permit, ANSWER);
    assert_eq!(
        (bench.evidence().committed, bench.evidence().consecutive),
        (1, 1)
    );
}

#[test]
fn slow_answers_never_open_and_are_called_degraded() {
    let mut bench = Bench::new();
    bench.alternative = true;
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..3000 {
        waiting.push_back(bench.admit());
        if waiting.len() > 1000 {
            let permit = waiting.pop_front().unwrap();
            bench.report(&permit, ANSWER);
        }
        bench.pass(20);
    }
    assert_eq!(bench.transitions, [TransitionKind::Degraded(true)]);
}

#[test]
fn callers_who_give_up_on_a_hang_one_after_the_other_open() {
    let mut bench = Bench::new();
    let detected = impatient(&mut bench, 60_000, 3000, |_| false).unwrap();
    assert!(detected <= 3000 + 2500 + 500, "{detected} ms");
    assert_eq!(bench.reason(), "no call succeeded");
}

#[test]
fn callers_who_give_up_do_not_open_while_others_are_answered() {
    let mut bench = Bench::new();
    assert_eq!(
        impatient(&mut bench, 120_000, 3000, |call| call % 10 == 0),
        None
    );
    assert!(bench.circuit.degraded());
}

#[test]
fn one_pause_does_not_open_however_many_give_up_on_it() {
    let mut bench = Bench::new();
    let waiting: Vec<_> = (0..500).map(|_| bench.admit()).collect();
    bench.pass(3000);
    for permit in &waiting {
        bench.report(permit, GAVE_UP);
    }
    assert_eq!(bench.state(), CircuitState::Closed);
    let late = bench.admit();
    bench.pass(3000);
    bench.report(&late, GAVE_UP);
    assert_eq!(bench.state(), CircuitState::Open, "but a second one does");
}

#[test]
fn a_caller_who_vanishes_or_cancels_is_judged_by_how_long_he_waited() {
    for signal in [
        Signal::Abandoned,
        Signal::Cancelled {
            after_slow_threshold: false,
        },
    ] {
        for (patience_ms, slow) in [(2499, 0), (2500, 1)] {
            let mut bench = Bench::new();
            let permit = bench.admit();
            bench.pass(patience_ms);
            bench.report(&permit, signal);
            assert_eq!(
                (bench.evidence().committed, bench.evidence().slow),
                (slow, slow)
            );
            assert_eq!(bench.evidence().failures, 0);
        }
    }
}

#[test]
fn giving_up_does_not_interrupt_failures_in_a_row_and_does_not_count_as_one() {
    let mut bench = Bench::new();
    for _ in 0..7 {
        bench.calls(1, 10, FAILURE);
        bench.calls(3, 10, GAVE_UP);
    }
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.calls(4, 10, FAILURE);
    assert_eq!(
        bench.state(),
        CircuitState::Closed,
        "at this rate it takes twelve"
    );
    bench.calls(1, 10, FAILURE);
    assert_eq!(bench.reason(), "failures in a row");
}

#[test]
fn the_memory_of_undecided_attempts_is_bounded() {
    assert!(size_of::<admission_queue::QueuedOutcome>() <= 24);
    let mut bench = Bench::new();
    for _ in 0..20_000 {
        let _hangs = bench.admit();
    }
    bench.pass(1);
    assert!(bench.evidence().pending <= 16_385);
    assert_eq!(
        bench.evidence().committed,
        0,
        "who is let go while young leaves no trace"
    );
}

#[test]
fn a_hang_beyond_the_bound_of_memory_is_still_found() {
    let mut bench = Bench::new();
    let mut seconds = 0;
    while bench.state() == CircuitState::Closed {
        for _ in 0..1000 {
            let _hangs = bench.try_admit();
        }
        bench.pass(1000);
        seconds += 1;
        assert!(seconds < 25, "its timer would have found it");
    }
    assert_eq!(bench.reason(), "no call succeeded");
}

#[test]
fn silence_after_slow_answers_is_told_from_silence_out_of_the_blue() {
    for (took, slowed) in [(2000, false), (3000, true)] {
        let mut bench = Bench::new();
        for _ in 0..3 {
            let permit = bench.admit();
            bench.pass(took);
            bench.report(&permit, ANSWER);
        }
        bench.calls(8, 1000, TIMEOUT);
        let opened = bench.transition.last().expect("it opened");
        assert!(matches!(opened.kind, TransitionKind::Opened { .. }));
        assert_eq!((opened.silent, opened.slowed), (true, slowed));
    }
}
