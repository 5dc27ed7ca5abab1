//! What the replicas of a scenario differ by from one circuit and from lone replicas, with the same
//! calls.

use super::{
    Measures, ScenarioError, arrivals::ExpectedCall, measure::measure, run, spec::Scenario,
};

/// Failed first attempts beyond those of one replica that has all calls.
const FAILED_FIRST: &str = "failed_first_over_one";
/// Attempts while it fails beyond those of one replica that has all calls.
const SENT: &str = "sent_over_one";
/// Attempts in the first second after a limit beyond those of one replica, a replica.
const RETURNED: &str = "returned_over_one";
/// Success beyond that of replicas of which each is alone.
const SUCCESS: &str = "success_over_lone";

/// Success beyond that of the same replicas with a store that is well.
const SUCCESS_WELL: &str = "success_over_well_store";

/// Adds the differences that the scenario has gates for.
pub(super) fn add(
    scenario: &Scenario,
    seed: u64,
    plan: &[ExpectedCall],
    measures: &mut Measures,
) -> Result<(), ScenarioError> {
    let has = |name: &str| scenario.gates.contains_key(name);
    if [FAILED_FIRST, SENT, RETURNED].into_iter().any(has) {
        let scenario = scenario.at_one_replica();
        let one = measure(&scenario, plan, &run::ours(&scenario, seed, plan)?);
        set(measures, FAILED_FIRST, &one, "failed_first", 1.0);
        let calls = one.get("calls").unwrap_or_default();
        set(measures, SENT, &one, "amplification", calls);
        set(measures, RETURNED, &one, "returned", scenario.rate);
    }
    if has(SUCCESS) {
        let lone = measure(scenario, plan, &run::lone(scenario, seed, plan)?);
        set(measures, SUCCESS, &lone, "success", 1.0);
    }
    if has(SUCCESS_WELL) {
        let store = Vec::new();
        let scenario = Scenario {
            store,
            ..scenario.clone()
        };
        let well = measure(&scenario, plan, &run::ours(&scenario, seed, plan)?);
        set(measures, SUCCESS_WELL, &well, "success", 1.0);
    }
    Ok(())
}

fn set(measures: &mut Measures, name: &str, other: &Measures, measure: &str, times: f64) {
    if let (Some(ours), Some(other)) = (measures.get(measure), other.get(measure)) {
        measures.set(name, (ours - other) * times);
    }
}
