//! Scenarios measure a recovery policy: the real stack over scripted providers, in virtual time.
//!
//! A scenario is a data file (`scenarios/*.yaml`): the callers, the faults of the provider and
//! their times, and the gates that the outcome must pass. The harness runs the production layers
//! over scripted providers, on one thread with a paused clock, so that two minutes of traffic take
//! seconds and the same seed gives the same event log. Two references run beside it: a naive
//! client, and an ideal that knows the timeline beforehand. Every scenario is held to one rule
//! beside them (`rule.rs`), and so are faults that are drawn at random (`random.rs`).
//!
//! It opens no socket, reads no file at run time and does not depend on the command line.

mod arrivals;
mod beside;
mod beyond;
mod call;
mod files;
mod gates;
mod ideal;
mod load;
mod measure;
mod naive;
mod observed;
mod random;
mod replicas;
mod rule;
mod run;
mod spec;
mod table;
mod upstream;

use std::{collections::BTreeMap, fmt, time::Duration};

pub use self::{
    gates::{Bounds, GateResult},
    measure::Measures,
    random::{RandomMinute, random},
    spec::{Callers, Scenario, Upstream},
    table::{markdown, table},
};
use crate::config::ConfigFaults;

/// Options that override a scenario's file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScenarioOptions {
    /// Seed of every dice; the same seed gives the same run.
    pub seed: u64,
    /// Calls per second; `None` for the file's.
    pub rate: Option<f64>,
    /// Length of the scenario's own time (after its warm-up, before its tail); `None` for the
    /// file's. Only for scenarios in which nothing fails at a given time.
    pub length: Option<Duration>,
    /// If set, the naive client and the ideal are run beside it.
    pub references: bool,
}

/// The results of a scenario.
#[derive(Debug, Clone)]
pub struct Report {
    /// The scenario's number, such as `2b`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The seed of its dice.
    pub seed: u64,
    /// Calls a second.
    pub rate: f64,
    /// Measures of Relight.
    pub ours: Measures,
    /// Measures of a naive client.
    pub naive: Measures,
    /// Best possible measures.
    pub ideal: Measures,
    /// Each gate, and whether it was passed.
    pub verdicts: Vec<GateResult>,
    /// A hash of the whole event log with its virtual times: the same for the same seed.
    pub events_hash: String,
    /// The same of what circuits and gates did.
    pub circuits_hash: String,
    /// Transitions of the circuits: seconds since the fault started, target, and event.
    pub circuits: Vec<(f64, String, String)>,
    /// Calls that were made.
    pub calls: usize,
}

/// Error returned if a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Its file contradicts itself.
    #[error("scenario {file}: {reason}")]
    File {
        /// The file's name.
        file: String,
        /// Description of the fault.
        reason: String,
    },
    /// The file is not a valid scenario.
    #[error(transparent)]
    Spec(#[from] ConfigFaults),
    /// The runtime cannot be built.
    #[error("the runtime cannot be built: {0}")]
    Runtime(#[from] std::io::Error),
}

// === impl ScenarioOptions ===

impl Default for ScenarioOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            rate: None,
            length: None,
            references: true,
        }
    }
}

// === impl Report ===

impl Report {
    /// Returns whether every gate was passed, except for those that are known not to be.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.verdicts.iter().any(GateResult::failed)
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let gates: Vec<_> = self.verdicts.iter().map(GateResult::to_json).collect();
        serde_json::json!({
            "id": self.id,
            "title": self.title,
            "seed": self.seed,
            "rate": self.rate,
            "calls": self.calls,
            "passed": self.passed(),
            "ours": self.ours.values(),
            "naive": self.naive.values(),
            "ideal": self.ideal.values(),
            "gates": gates,
            "circuits": self.circuits,
            "events_hash": self.events_hash,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(std::slice::from_ref(self)))
    }
}

/// Returns every scenario, in the order of their numbers.
///
/// # Errors
/// When a file cannot be read, which a test excludes.
pub fn all() -> Result<Vec<Scenario>, ScenarioError> {
    files::FILES
        .iter()
        .map(|(file, text)| Scenario::parse(file, text))
        .collect()
}

/// Runs a scenario and both references. It blocks the thread, and must not be called from within a
/// runtime.
///
/// # Errors
/// When the runtime cannot be built.
pub fn run(scenario: &Scenario, options: ScenarioOptions) -> Result<Report, ScenarioError> {
    let scenario = scenario.with(options);
    let plan = arrivals::draw(&scenario, options.seed);
    let ours = run::ours(&scenario, options.seed, &plan)?;
    let mut naive = Measures::default();
    let mut best = Measures::default();
    if options.references {
        naive = measure::measure(
            &scenario,
            &plan,
            &run::naive(&scenario, options.seed, &plan)?,
        );
        best = ideal::ideal(&scenario, options.seed, &plan);
    }
    let mut measured = measure::measure(&scenario, &plan, &ours);
    beside::add(&scenario, options.seed, &plan, &mut measured)?;
    // A scenario's own bounds are those of its own rate and length.
    let as_written = options.rate.is_none() && options.length.is_none();
    let mut verdicts = Vec::new();
    if as_written {
        verdicts = gates::judge(&scenario.gates, &measured);
    }
    verdicts.extend(rule::verdicts(&measured, &naive, Some(&best)));
    let usual = options == ScenarioOptions::default();
    scenario.beyond.apply(&mut verdicts, usual);
    scenario.by_chance.apply(&mut verdicts, false);
    Ok(Report {
        id: scenario.id.clone(),
        title: scenario.title.clone(),
        seed: options.seed,
        rate: scenario.rate,
        naive,
        ideal: best,
        verdicts,
        events_hash: ours.events_hash.clone(),
        circuits_hash: ours.circuits_hash.clone(),
        circuits: ours
            .circuits
            .iter()
            .map(|moved| moved.seconds_target_and_change(scenario.warm))
            .collect(),
        calls: plan.len(),
        ours: measured,
    })
}

/// Gates by the name of what they bound.
pub type GateBounds = BTreeMap<String, Bounds>;
