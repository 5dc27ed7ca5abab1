//! Attempts in the order of admission: their numbers, and runs that are certain before all are
//! decided.

use super::{
    admission_queue::{AdmissionQueue, AttemptOutcome},
    outcome_window::{OutcomeCounts, OutcomeWindow},
    *,
};

#[test]
fn no_number_is_given_twice() {
    let mut queue = AdmissionQueue::default();
    let now = Instant::now();
    let numbers = [
        queue.push(now, AttemptOutcome::Pending, 0),
        queue.skip(),
        queue.push(now, AttemptOutcome::Pending, 0),
        queue.push(now, AttemptOutcome::Pending, 0),
        queue.skip(),
    ];
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn around_a_number_that_was_never_given_there_is_no_run() {
    assert_eq!(AdmissionQueue::default().run_around(0).failures, 0);
}

#[test]
fn no_more_of_the_old_attempts_are_looked_at_than_are_wanted() {
    let mut queue = AdmissionQueue::default();
    let now = Instant::now();
    for outcome in [
        AttemptOutcome::Silent,
        AttemptOutcome::Removed,
        AttemptOutcome::Answered { slow: false },
        AttemptOutcome::Pending,
    ] {
        queue.push(now, outcome, 0);
    }
    let later = now + Duration::from_secs(1);
    assert_eq!(
        [1, 2, 3, 9].map(|max| queue.aged(later, Duration::from_secs(1), max)),
        [(1, 1), (2, 1), (3, 2), (3, 2)]
    );
    assert_eq!(queue.aged(later, Duration::from_secs(2), 9), (0, 0));
}

#[test]
fn failures_behind_a_call_that_still_waits_are_the_evidence_they_open_on() {
    let mut bench = Bench::new();
    let _head = bench.admit();
    bench.calls(8, 1000, TIMEOUT);
    let Some(TransitionKind::Opened { evidence, .. }) = bench.transitions.last() else {
        panic!("{:?}", bench.transitions)
    };
    let seen = [
        evidence.committed,
        evidence.failures,
        evidence.slow,
        evidence.consecutive,
    ];
    assert_eq!(seen, [8, 8, 8, 8]);
}

#[test]
fn a_call_that_was_given_up_opens_nothing_after_failures_that_were_not_enough_when_they_came() {
    let mut bench = Bench::new();
    let _heads: Vec<_> = (0..12).map(|_| bench.admit()).collect();
    // At two calls a second it takes nine, and eight once the rate has fallen.
    bench.calls(8, 50, FAILURE);
    assert_eq!(bench.state(), CircuitState::Closed);
    bench.pass(15_000);
    let given_up = bench.admit();
    bench.report(&given_up, Signal::Neutral);
    assert_eq!(bench.state(), CircuitState::Closed);
}

#[test]
fn a_probe_that_fails_is_reported_as_one_failure() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    bench.call(FAILURE);
    let Some(TransitionKind::Opened { evidence, .. }) = bench.transitions.last() else {
        panic!("{:?}", bench.transitions)
    };
    assert_eq!(
        [evidence.committed, evidence.failures, evidence.consecutive],
        [1, 1, 1]
    );
}

#[test]
fn a_window_gives_back_every_count_that_it_was_given() {
    let mut window = Sliding::new(Duration::from_secs(10));
    let start = Instant::now();
    let one = OutcomeCounts {
        answered: 1,
        failed: 2,
        failed_slow: 3,
        silent: 4,
        slow: 5,
    };
    window.add(start, one);
    window.add(start, one);
    assert_eq!(
        window.total(start),
        OutcomeCounts {
            answered: 2,
            failed: 4,
            failed_slow: 6,
            silent: 8,
            slow: 10
        }
    );
    window.take_back(start, one);
    assert_eq!(window.total(start), one);
    assert_eq!(
        window.total(start + Duration::from_secs(10)),
        OutcomeCounts::default()
    );
    let four = OutcomeCounts {
        answered: 2,
        failed: 1,
        silent: 1,
        slow: 1,
        ..OutcomeCounts::default()
    };
    assert_eq!(
        (
            four.committed(),
            four.failure_share() * 4.0,
            four.slow_share() * 4.0
        ),
        (4, 1.0, 1.0)
    );
}

#[test]
fn the_last_outcomes_show_how_many_were_slow_while_they_are_recent() {
    let mut window = OutcomeWindow::new();
    let now = Instant::now();
    for slow in [true, true, true, false, false] {
        window.commit(now, now, AttemptOutcome::Answered { slow });
    }
    let seen = |later, max| window.last_slow(now + Duration::from_millis(later), max);
    assert_eq!(
        [seen(0, 1), seen(0, 2), seen(0, 3), seen(0, 9)],
        [(1, 0), (2, 0), (3, 1), (5, 3)]
    );
    assert_eq!([seen(300_000, 9), seen(300_001, 9)], [(5, 3), (0, 0)]);
}
