//! The pace after an opening, in isolation.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TOOK: Duration = Duration::from_millis(20);

/// Calls that pass in that time when a caller is always waiting.
fn passed(pace: &mut Pacer, from: Instant, time: Duration) -> u32 {
    let mut now = from;
    let mut count = 0;
    while now < from + time {
        match pace.take(now) {
            Ok(()) => count += 1,
            Err(wait) => now += wait,
        }
    }
    count
}

#[test]
fn the_end_of_a_limit_is_found_within_half_a_second() {
    let now = Instant::now();
    let mut pace = Pacer::new(now, TOOK, ReplicaPlace::default());
    pace.opens(now + SECOND);
    let count = passed(&mut pace, now + SECOND, SECOND / 2);
    assert!(count > 500, "{count}");
    assert!(pace.is_over(now + SECOND + SECOND / 2));
}

/// Returns a pace that found so many calls to pass in the second before it opens again, now.
fn found(rate: u32) -> (Pacer, Instant) {
    let start = Instant::now();
    let mut pace = Pacer::new(start, TOOK, ReplicaPlace::default());
    pace.opens(start);
    (0..rate).for_each(|_| pace.pass(start));
    pace.limited(start + SECOND, TOOK);
    pace.refused();
    pace.pass(start);
    pace.opens(start + SECOND);
    (pace, start + SECOND)
}

#[test]
fn what_passed_between_two_closings_is_what_the_limit_lets_pass() {
    for rate in [4, 20, 300] {
        let (mut pace, now) = found(rate);
        let count = passed(&mut pace, now, SECOND);
        assert!(
            count <= rate + 1 && count * 10 >= rate * 7,
            "{count} of {rate} a second"
        );
        let later = passed(&mut pace, now + SECOND * 2, SECOND * 4);
        assert!(later > rate * 4, "it is raised after a while: {later}");
    }
}

#[test]
fn a_measured_limit_that_is_gone_is_left_behind_within_a_few_seconds() {
    for rate in [4, 20, 300] {
        let (mut pace, now) = found(rate);
        let count = passed(&mut pace, now, SECOND * 5);
        assert!(count > rate * 20, "{count} in five seconds of {rate}");
    }
}

#[test]
fn a_slow_limit_that_is_gone_is_left_behind_while_calls_of_twenty_seconds_wait() {
    let start = Instant::now();
    let mut pace = Pacer::new(start, TOOK, ReplicaPlace::default());
    pace.opens(start);
    (0..6).for_each(|_| pace.pass(start));
    let now = start + SECOND * 10;
    pace.limited(now, TOOK);
    pace.refused();
    pace.opens(now);
    let held = passed(&mut pace, now, SECOND * 8);
    assert!((3..6).contains(&held), "half a call a second: {held}");
    let later = passed(&mut pace, now + SECOND * 8, SECOND * 4);
    assert!(later > 20, "{later}");
}

#[test]
fn a_limit_that_cannot_be_measured_again_is_lowered() {
    let (mut pace, now) = found(20);
    for round in 0..5 {
        let at = now + SECOND * round / 10;
        pace.limited(at, TOOK);
        pace.opens(at);
    }
    let now = now + SECOND;
    assert!(passed(&mut pace, now, SECOND) < 12);
}

#[test]
fn it_is_over_when_nobody_had_to_wait_for_long() {
    let (mut pace, now) = found(20);
    passed(&mut pace, now, SECOND);
    assert!(!pace.is_over(now + SECOND * 10));
    assert!(pace.is_over(now + SECOND * 11));
}

#[test]
fn the_time_at_which_a_call_passes_is_foretold() {
    let (mut pace, now) = found(20);
    for before in [0, 5, 20, 100] {
        let foretold = pace.clone().ready_at(now, before) - now;
        let mut waiting = pace.clone();
        let mut at = now;
        let mut passed = 0;
        while passed < before + 1 {
            match waiting.take(at) {
                Ok(()) => passed += 1,
                Err(wait) => at += wait,
            }
        }
        let really = at - now;
        assert!(
            foretold <= really + SECOND && really <= foretold + SECOND,
            "{before}: {foretold:?}, {really:?}"
        );
    }
    pace.pass(now);
}

/// Times since the opening at which calls pass that always wait, of a pace with this place.
fn passes(place: ReplicaPlace, took: Duration, time: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let mut pace = Pacer::new(start, took, place);
    let opened = start + SECOND;
    pace.opens(opened);
    let (mut now, mut all) = (opened, Vec::new());
    while now < opened + time && all.len() < 2000 {
        match pace.take(now) {
            Ok(()) => all.push(now - opened),
            Err(wait) => now += wait,
        }
    }
    all
}

proptest::proptest! {
    /// However many replicas there are: what all of them let pass is what one alone would, within
    /// one call of each, at every moment, and two by which the pace of one alone is rounded.
    #[test]
    fn replicas_together_return_as_one_alone_would(
        live in 2_u32..20,
        took_ms in 10_u64..300,
        steps in 1_u32..6,
    ) {
        let took = Duration::from_millis(took_ms);
        let time = (took * 2).clamp(STEP.0, STEP.1) * steps;
        let alone = passes(ReplicaPlace::default(), took, time);
        let mut together: Vec<Duration> = (0..live)
            .flat_map(|rank| passes(ReplicaPlace { rank, live }, took, time))
            .collect();
        together.sort();
        for at in alone.iter().chain(&together) {
            let count = |all: &[Duration]| all.iter().filter(|it| *it <= at).count();
            let (one, all) = (count(&alone), count(&together));
            proptest::prop_assert!(
                all <= one + live as usize + 2 && one <= all + live as usize,
                "{all} by {live} replicas after {at:?}, {one} by one alone"
            );
        }
        // The first calls come one after the other.
        let at_once = together.iter().filter(|at| at.is_zero()).count();
        proptest::prop_assert_eq!(at_once, 1);
    }

    /// A limit that one replica measured is shared with those that come, and whole again when they
    /// are gone.
    #[test]
    fn a_measured_limit_is_shared_by_the_replicas_that_live(rate in 20_u32..300, live in 2_u32..8) {
        let (mut pace, now) = found(rate);
        let alone = passed(&mut pace.clone(), now, SECOND);
        pace.share(ReplicaPlace { rank: 1, live });
        let shared = passed(&mut pace.clone(), now, SECOND);
        proptest::prop_assert!(shared.abs_diff(alone / live) <= alone / live / 4 + 2, "{shared} of {alone}");
        pace.share(ReplicaPlace::default());
        let again = passed(&mut pace, now, SECOND);
        proptest::prop_assert!(again.abs_diff(alone) <= 1, "{again}, {alone}");
    }
}
