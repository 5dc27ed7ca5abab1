//! Runs the load of a scenario in virtual time, through the real stack or as a naive client.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Builder, task::JoinSet, time::Instant};

use super::{
    ScenarioError,
    arrivals::ExpectedCall,
    call::CallResult,
    load::targets,
    naive::Naive,
    observed::StateChange,
    replicas::SimulatedReplicas,
    spec::Scenario,
    upstream::{Sent, World},
};

/// Everything recorded in a run.
#[derive(Debug, Default)]
pub(super) struct ScenarioRun {
    pub(super) results: Vec<CallResult>,
    pub(super) sent: Vec<Sent>,
    pub(super) circuits: Vec<StateChange>,
    /// Reports that came too late to count.
    pub(super) stale: u64,
    /// A hash of every event, in order, with its virtual time.
    pub(super) events_hash: String,
    /// The same of what circuits did.
    pub(super) circuits_hash: String,
}

/// Time that a run may continue after the last deadline.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// Runs the real stack, at replicas that act as one if there are several.
pub(super) fn ours(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
) -> Result<ScenarioRun, ScenarioError> {
    run_stack(scenario, seed, arrivals, true)
}

/// Runs the real stack, at replicas of which each is alone.
pub(super) fn lone(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
) -> Result<ScenarioRun, ScenarioError> {
    run_stack(scenario, seed, arrivals, false)
}

fn run_stack(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
    is_shared: bool,
) -> Result<ScenarioRun, ScenarioError> {
    virtually(async {
        let scenario = Arc::new(scenario.clone());
        let began = Instant::now();
        let world = World::new(Arc::clone(&scenario), seed);
        let replicas = SimulatedReplicas::start(&scenario, seed, world.clone(), is_shared).await;
        let results = attend(arrivals, began, |arrival, number| {
            let replicas = Arc::clone(&replicas);
            async move { replicas.call(arrival, number).await }
        });
        let results = results.await;
        tokio::time::sleep(LAST_EVENTS).await;
        let (observed, stale) = replicas.end().await;
        ScenarioRun {
            results,
            sent: world.sent(),
            circuits: observed.circuits,
            stale,
            events_hash: observed.all.hex(),
            circuits_hash: observed.moves.hex(),
        }
    })
}

/// Runs the naive client.
pub(super) fn naive(
    scenario: &Scenario,
    seed: u64,
    arrivals: &[ExpectedCall],
) -> Result<ScenarioRun, ScenarioError> {
    virtually(async {
        let scenario = Arc::new(scenario.clone());
        let began = Instant::now();
        let world = World::new(Arc::clone(&scenario), seed);
        let naive = Arc::new(Naive::new(
            Arc::clone(&scenario),
            seed,
            world.clone(),
            targets(&scenario),
        ));
        let results = attend(arrivals, began, |arrival, number| {
            let naive = Arc::clone(&naive);
            async move { naive.call(arrival, number, began).await }
        });
        ScenarioRun {
            results: results.await,
            sent: world.sent(),
            ..ScenarioRun::default()
        }
    })
}

/// Runs a future to its end on one thread, with a clock that jumps when there is nothing to do.
fn virtually<T>(future: impl Future<Output = T>) -> Result<T, ScenarioError> {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(future))
}

/// Starts every call at its time, and waits for the last.
async fn attend<F>(
    arrivals: &[ExpectedCall],
    began: Instant,
    make: impl Fn(ExpectedCall, usize) -> F,
) -> Vec<CallResult>
where
    F: Future<Output = CallResult> + Send + 'static,
{
    let mut calls = JoinSet::new();
    let mut results = Vec::with_capacity(arrivals.len());
    for (number, arrival) in arrivals.iter().enumerate() {
        tokio::time::sleep_until(began + arrival.at).await;
        calls.spawn(make(arrival.clone(), number));
        while let Some(result) = calls.try_join_next() {
            results.extend(result);
        }
    }
    while let Some(result) = calls.join_next().await {
        results.extend(result);
    }
    results.sort_by_key(|result: &CallResult| result.call);
    results
}
