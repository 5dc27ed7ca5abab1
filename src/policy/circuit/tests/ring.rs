//! Attempts in the order of admission: their numbers, and runs that are certain before all are decided.

use super::{
    ledger::{Fate, Ledger},
    *,
};

#[test]
fn no_number_is_given_twice() {
    let mut ledger = Ledger::default();
    let now = Instant::now();
    let numbers = [
        ledger.push(now, Fate::Pending, 0),
        ledger.skip(),
        ledger.push(now, Fate::Pending, 0),
        ledger.push(now, Fate::Pending, 0),
        ledger.skip(),
    ];
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[test]
fn around_a_number_that_was_never_given_there_is_no_run() {
    assert_eq!(Ledger::default().run_around(0).failures, 0);
}

#[test]
fn no_more_of_the_old_attempts_are_looked_at_than_are_wanted() {
    let mut ledger = Ledger::default();
    let now = Instant::now();
    for fate in [Fate::Silent, Fate::Removed, Fate::Answered { slow: false }, Fate::Pending] {
        ledger.push(now, fate, 0);
    }
    let later = now + Duration::from_secs(1);
    assert_eq!(
        [1, 2, 3, 9].map(|most| ledger.aged(later, Duration::from_secs(1), most)),
        [(1, 1), (2, 1), (3, 2), (3, 2)]
    );
    assert_eq!(ledger.aged(later, Duration::from_secs(2), 9), (0, 0));
}

#[test]
fn failures_behind_a_call_that_still_waits_are_the_evidence_they_open_on() {
    let mut bench = Bench::new();
    let _head = bench.admit();
    bench.calls(8, 1000, TIMEOUT);
    let Some(Transition::Opened { evidence, .. }) = bench.said.last() else { panic!("{:?}", bench.said) };
    let seen = [evidence.committed, evidence.failures, evidence.slow, evidence.consecutive];
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
    bench.tell(&given_up, Signal::Neutral);
    assert_eq!(bench.state(), CircuitState::Closed);
}

#[test]
fn a_probe_that_fails_is_told_as_the_one_failure_it_is() {
    let mut bench = Bench::opened();
    bench.pass(1000);
    bench.call(FAILURE);
    let Some(Transition::Opened { evidence, .. }) = bench.said.last() else { panic!("{:?}", bench.said) };
    assert_eq!([evidence.committed, evidence.failures, evidence.consecutive], [1, 1, 1]);
}
