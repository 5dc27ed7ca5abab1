//! The less busy of two targets that are drawn at random.
//!
//! Two draws are enough for even load, and since every caller draws others, not all turn to the one
//! that is the least busy at the moment (Mitzenmacher, "The power of two choices in randomized load
//! balancing", 2001). What a target has to do shows at once in its attempts in flight, long before
//! its latency does: one that slows down is left alone by the calls that still wait for it.

use std::time::Duration;

use crate::policy::{
    retry::{Candidate, Load},
    rng::place,
};

/// Returns the cost of one call more: the share of its slots that would be in use, times its latency
/// in seconds.
fn cost_of_one_more(load: &Load, unknown: Duration) -> f64 {
    let used = f64::from(load.in_flight.saturating_add(1)) / f64::from(load.limit.max(1));
    used * load.first_token.unwrap_or(unknown).as_secs_f64()
}

/// Returns the less busy of two of `equals`; `sample`, from 0 (included) to 1 (excluded), says
/// which two. One whose latency is not known counts as quick as the quickest, so that it is tried.
pub(super) fn less_busy(candidates: &[Candidate], equals: &[usize], sample: f64) -> Option<usize> {
    let others = equals.len().saturating_sub(1);
    if others == 0 {
        return equals.first().copied();
    }
    // Every ordered pair of two different ones is as likely as any other.
    let pair = place(sample, equals.len() * others);
    let first = pair / others;
    let second = pair % others;
    let second = second + usize::from(second >= first);
    let known = equals
        .iter()
        .filter_map(|index| candidates.get(*index)?.load.first_token);
    // With no known latency all count alike: the attempts in flight decide.
    let quickest = known.min().unwrap_or(Duration::from_secs(1));
    let first = *equals.get(first)?;
    let second = *equals.get(second)?;
    let cost = |index: usize| {
        candidates
            .get(index)
            .map_or(f64::INFINITY, |one| cost_of_one_more(&one.load, quickest))
    };
    Some(if cost(second) < cost(first) {
        second
    } else {
        first
    })
}
