//! After how many refusals they are more than chance.

use super::*;
use crate::policy::rng::SeededRng;

const TOOK: Duration = Duration::from_millis(20);

fn tenant() -> TenantId {
    "t".into()
}

/// Refusals in a row after which they are more than chance.
fn until_closed(evidence: &mut RefusalEvidence, mut now: Instant) -> u32 {
    for count in 1..=100 {
        let call = evidence.admitted(now, &tenant());
        now += TOOK;
        evidence.refused(now, call, FailureClass::RateLimited, false);
        if evidence.more_than_chance(now).is_some() {
            return count;
        }
    }
    u32::MAX
}

fn after_answers(count: u32) -> (RefusalEvidence, Instant) {
    let mut evidence = RefusalEvidence::default();
    let now = Instant::now();
    for _ in 0..count {
        let call = evidence.admitted(now, &tenant());
        evidence.accepted(call);
    }
    (evidence, now)
}

#[test]
fn a_handful_of_refusals_in_a_row_is_no_chance_and_one_is() {
    for (answers, refusals) in [(0, 4), (10, 3), (50, 2), (1000, 2)] {
        let (mut evidence, now) = after_answers(answers);
        assert_eq!(
            until_closed(&mut evidence, now),
            refusals,
            "after {answers} answers"
        );
    }
}

#[test]
fn what_is_refused_of_calls_from_before_an_opening_shows_nothing() {
    let (mut evidence, now) = after_answers(50);
    let early: Vec<_> = (0..20).map(|_| evidence.admitted(now, &tenant())).collect();
    evidence.begin_anew();
    for call in early {
        assert_eq!(
            evidence.refused(now + TOOK, call, FailureClass::RateLimited, false),
            None
        );
        assert!(!evidence.accepted(call));
    }
    assert_eq!(evidence.more_than_chance(now + TOOK), None);
}

#[test]
fn an_answer_shows_something_only_if_its_call_was_admitted_after_the_last_refused_one() {
    let (mut evidence, now) = after_answers(0);
    let [before, refused, after] = [(); 3].map(|()| evidence.admitted(now, &tenant()));
    evidence.refused(now, refused, FailureClass::RateLimited, false);
    assert!(!evidence.accepted(before));
    assert!(evidence.accepted(after));
}

/// How often refusals that hit each of so many calls with this probability were taken for more,
/// where answers take 30 times as long as refusals.
fn closings(share: f64, per_second: u32, calls: u32, seed: u64) -> u32 {
    let mut evidence = RefusalEvidence::default();
    let start = Instant::now();
    let mut rng = SeededRng::new(seed, &"i-1".into(), 1);
    let mut coming: Vec<(Instant, CallNumber, bool)> = Vec::new();
    let mut closings = 0;
    for number in 0..calls {
        let now = start + Duration::from_secs(1) * number / per_second;
        let (due, later): (Vec<_>, Vec<_>) = coming.into_iter().partition(|(at, ..)| *at <= now);
        coming = later;
        for (at, call, is_refused) in due {
            if !is_refused {
                evidence.accepted(call);
            } else if evidence
                .refused(at, call, FailureClass::RateLimited, false)
                .is_some()
                && evidence.more_than_chance(at).is_some()
            {
                closings += 1;
                evidence.begin_anew();
            }
        }
        let call = evidence.admitted(now, &tenant());
        let is_refused = rng.unit() < share;
        coming.push((
            now + if is_refused { TOOK } else { TOOK * 30 },
            call,
            is_refused,
        ));
    }
    closings
}

#[test]
fn random_refusals_are_taken_for_more_about_once_in_three_thousand_calls() {
    for share in [0.01, 0.06, 0.12, 0.3] {
        for per_second in [1, 10, 40, 200] {
            let closed: u32 = (0..5)
                .map(|seed| closings(share, per_second, 4000, seed))
                .sum();
            // The share is an estimate, and nothing is known at first.
            assert!(
                closed <= 20,
                "{share} at {per_second}/s: {closed} in 20,000 calls"
            );
        }
    }
}
