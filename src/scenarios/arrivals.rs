//! The calls of a run and their times: drawn once per run, so that Relight, the naive client and
//! the ideal get the same load.

use std::time::Duration;

use super::spec::Scenario;
use crate::{
    domain::ids::InvocationId,
    policy::rng::{SeededRng, place},
};

/// One call to come.
#[derive(Debug, Clone)]
pub(super) struct ExpectedCall {
    /// Time from the start of the run.
    pub(super) at: Duration,
    /// Kind of caller.
    pub(super) caller: usize,
    /// The replica to which it comes.
    pub(super) replica: usize,
    /// Its id.
    pub(super) id: InvocationId,
    /// Duration of a completion at a healthy provider.
    pub(super) service: Duration,
}

/// The random properties of one attempt at an upstream.
#[derive(Debug)]
pub(super) struct Draw {
    /// Duration of a complete completion at a healthy provider.
    pub(super) service: Duration,
    /// Place at which it breaks off, 0 to 1, if it does.
    pub(super) cut: f64,
    /// Choice among the stated waits, 0 to 1.
    pub(super) wait: f64,
    /// For each fault in turn: whether it hits.
    pub(super) faults: SeededRng,
}

/// Median duration of a completion, in seconds.
const MEDIAN: f64 = 2.0;
/// Spread of its logarithm.
const SIGMA: f64 = 0.5;
/// Share of a completion's duration at which its first token comes.
pub(super) const FIRST_TOKEN: f64 = 0.3;

/// Draws all calls of a run.
pub(super) fn draw(scenario: &Scenario, seed: u64) -> Vec<ExpectedCall> {
    let mut rng = SeededRng::new(seed, &InvocationId::from("arrivals"), 0);
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    loop {
        at += -(1.0 - rng.unit()).ln() / scenario.rate;
        let when = Duration::from_secs_f64(at);
        if when >= scenario.length() {
            return arrivals;
        }
        let Some(caller) = pick(scenario, when, rng.unit()) else {
            continue;
        };
        let name = scenario
            .callers
            .get(caller)
            .map_or("", |callers| callers.name.as_str());
        let id = InvocationId::from(format!("{name}-{}", arrivals.len()));
        let service = of_attempt(seed, &id, 1).service;
        arrivals.push(ExpectedCall {
            at: when,
            caller,
            replica: replica(scenario, seed, when, &id),
            id,
            service,
        });
    }
}

/// Draws the random properties of an attempt, the same for every client.
pub(super) fn of_attempt(seed: u64, id: &InvocationId, attempt: u32) -> Draw {
    // Not the planner's own dice: an upstream must not be as lucky as a wait is long.
    let mut rng = SeededRng::new(seed ^ 0x75_70_73_74_72_65_61_6d, id, attempt);
    let one = 1.0 - rng.unit();
    let other = rng.unit();
    let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
    let service = Duration::from_secs_f64(MEDIAN * (SIGMA * normal).exp());
    Draw {
        service,
        cut: rng.unit(),
        wait: rng.unit(),
        faults: rng,
    }
}

/// Returns the replica to which a call comes, drawn among those that are there.
fn replica(scenario: &Scenario, seed: u64, at: Duration, id: &InvocationId) -> usize {
    if scenario.replicas == 1 {
        return 0;
    }
    let reached = scenario.reached(at);
    let mut rng = SeededRng::new(seed ^ 0x72_65_70_6c_69_63_61_73, id, 0);
    let place = place(rng.unit(), reached.len());
    reached.get(place).copied().unwrap_or_default()
}

fn pick(scenario: &Scenario, at: Duration, sample: f64) -> Option<usize> {
    let there =
        |callers: &super::Callers| callers.until.is_none_or(|until| at < scenario.warm + until);
    let sum: f64 = scenario.callers.iter().map(|callers| callers.share).sum();
    let mut left = sample * sum;
    for (index, callers) in scenario.callers.iter().enumerate() {
        if left < callers.share {
            return there(callers).then_some(index);
        }
        left -= callers.share;
    }
    None
}
