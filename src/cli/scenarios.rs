//! `relight scenarios`: measures how well failures are recovered, on the real layers in virtual
//! time.
//!
//! Needs no server and no network. Every scenario is run beside a naive client and an ideal that
//! knows the future; the exit code is 1 when a gate is not passed.

use std::{
    process::ExitCode,
    sync::{Mutex, PoisonError},
    thread,
};

use crate::scenarios::{self, Report, Scenario, ScenarioOptions};
use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::{
    Output,
    terminal::{print_line, print_note},
};

const EXAMPLES: &str = "\
Examples:
  relight scenarios                        all of them: some minutes of traffic each, in seconds
  relight scenarios --only 3,10            an outage, and a provider that flaps
  relight scenarios --seed 7 --rate 300    other dice, more calls
  relight scenarios --output json          for programs";

/// Which scenarios to run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScenariosArguments {
    /// Only these scenarios (`3`, `6b`), or all that begin with such a number; a list with commas,
    /// or repeated.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<String>,
    /// The seed of all dice; the same seed gives the same events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls per second, in place of each scenario's own.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(super) fn run(arguments: &ScenariosArguments) -> anyhow::Result<ExitCode> {
    let chosen: Vec<Scenario> = scenarios::all()?
        .into_iter()
        .filter(|one| arguments.wants(&one.id))
        .collect();
    if chosen.is_empty() {
        bail!("there is no scenario {}", arguments.only.join(", "));
    }
    let options = ScenarioOptions {
        seed: arguments.seed,
        rate: arguments.rate,
        ..ScenarioOptions::default()
    };
    let reports = run_all(&chosen, options)?;
    match arguments.output {
        Output::Text => print_line(scenarios::table(&reports).trim_end())?,
        Output::Json => print_line(
            &reports
                .iter()
                .map(Report::to_json)
                .collect::<Value>()
                .to_string(),
        )?,
    }
    let passed = reports.iter().all(Report::passed);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl ScenariosArguments {
    fn wants(&self, id: &str) -> bool {
        let is =
            |wanted: &String| id == wanted || id.trim_end_matches(char::is_alphabetic) == wanted;
        self.only.is_empty() || self.only.iter().any(is)
    }
}

/// Runs scenarios on all cores; each is a world of its own.
fn run_all(chosen: &[Scenario], options: ScenarioOptions) -> anyhow::Result<Vec<Report>> {
    let cores = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(chosen.len());
    let next = Mutex::new(chosen.iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let Some((place, scenario)) =
                next.lock().unwrap_or_else(PoisonError::into_inner).next()
            else {
                return Ok::<_, scenarios::ScenarioError>(done);
            };
            print_note(&format!("{} {}", scenario.id, scenario.title));
            done.push((place, scenarios::run(scenario, options)?));
        }
    };
    let mut reports = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut reports = Vec::with_capacity(chosen.len());
        for worker in workers {
            match worker.join() {
                Ok(done) => reports.extend(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, scenarios::ScenarioError>(reports)
    })?;
    reports.sort_by_key(|(place, _)| *place);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=10_000.0).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("must be a number from 0.01 to 10000".to_owned()),
    }
}
