//! `relight scenarios`: measures how well failures are recovered, on the real layers in virtual
//! time.
//!
//! Needs no server and no network. Every scenario is run beside a naive client and an ideal that
//! knows the future; the exit code is 1 when a gate is not passed.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::scenarios::{self, Report, Scenario, ScenarioOptions};
use anyhow::bail;
use clap::Args;
use parking_lot::Mutex;
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
  relight scenarios --seeds 1-40           other dice, forty times
  relight scenarios --random-hours 24      a day of faults drawn at random
  relight scenarios --markdown             the table of docs/proofs.md
  relight scenarios --output json          for programs";

/// Scenarios to run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScenariosArguments {
    /// Only these scenarios (`3`, `6b`), or all that start with such a number; a list with commas,
    /// or repeated.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<String>,
    /// The seed of all dice; the same seed gives the same events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Several seeds, such as 1-40: all scenarios with each of them; only what fails is printed.
    #[arg(long, value_name = "FIRST-LAST", value_parser = seeds, conflicts_with = "seed")]
    seeds: Option<(u64, u64)>,
    /// So many hours of faults drawn at random in place of the scenarios, from `--seed` on; lists
    /// the minutes in which fewer calls succeeded than with the naive client.
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["only", "rate", "seeds"])]
    random_hours: Option<u64>,
    /// Calls per second, in place of each scenario's own.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Print one table in Markdown.
    #[arg(long, conflicts_with_all = ["seeds", "random_hours", "output"])]
    markdown: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the command.
pub(super) fn run(arguments: &ScenariosArguments) -> anyhow::Result<ExitCode> {
    if let Some(hours) = arguments.random_hours {
        return random_hours(arguments.seed, hours);
    }
    let chosen: Vec<Scenario> = scenarios::all()?
        .into_iter()
        .filter(|one| arguments.wants(&one.id))
        .collect();
    if chosen.is_empty() {
        bail!("there is no scenario {}", arguments.only.join(", "));
    }
    let (first, last) = arguments.seeds.unwrap_or((arguments.seed, arguments.seed));
    let mut reports = Vec::new();
    for seed in first..=last {
        let options = ScenarioOptions {
            seed,
            rate: arguments.rate,
            ..ScenarioOptions::default()
        };
        let of_seed = run_all(&chosen, options)?;
        if arguments.seeds.is_some() && arguments.output == Output::Text {
            print_failures(seed, &of_seed)?;
        }
        reports.extend(of_seed);
    }
    match arguments.output {
        _ if arguments.markdown => print_line(scenarios::markdown(&reports).trim_end())?,
        Output::Text if arguments.seeds.is_some() => {
            let passed = reports.iter().filter(|report| report.passed()).count();
            print_line(&format!("{passed} of {} runs passed", reports.len()))?;
        }
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

/// Prints the gates that were not passed, one a line.
fn print_failures(seed: u64, reports: &[Report]) -> anyhow::Result<()> {
    for report in reports {
        for verdict in report.verdicts.iter().filter(|verdict| verdict.failed()) {
            let value = verdict.value.unwrap_or(f64::NAN);
            let id = &report.id;
            let gate = verdict.gate();
            let remark = verdict.remark();
            print_line(&format!(
                "seed {seed}, scenario {id}: {gate} ({value:.4}){remark}"
            ))?;
        }
    }
    Ok(())
}

/// Runs hours of faults drawn at random, and prints each minute that was worse than without.
fn random_hours(first: u64, hours: u64) -> anyhow::Result<ExitCode> {
    let next = AtomicU64::new(first);
    let work = || {
        let mut calls = 0;
        let mut minutes = 0;
        let mut worse = 0;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + hours {
                return Ok::<_, anyhow::Error>((calls, minutes, worse));
            }
            let run = scenarios::random(seed, Duration::from_hours(1))?;
            calls += run.calls;
            minutes += run.minutes;
            worse += run.worse.len();
            for minute in run.worse {
                print_line(&format!(
                    "hour {seed}, minute {}: {} of {} calls, naive {}; {}",
                    minute.minute,
                    minute.ours,
                    minute.calls,
                    minute.naive,
                    minute.faults.join("; ")
                ))?;
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut calls = 0;
    let mut minutes = 0;
    let mut worse = 0;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let done = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            calls += done.0;
            minutes += done.1;
            worse += done.2;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    print_line(&format!(
        "{hours} hours, {calls} calls: {worse} of {minutes} minutes were worse than the naive client's"
    ))?;
    Ok(ExitCode::SUCCESS)
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
            let Some((place, scenario)) = next.lock().next() else {
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

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err("must be two numbers, such as 1-40".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=10_000.0).contains(&rate) => Ok(rate),
        Ok(_) | Err(_) => Err("must be a number from 0.01 to 10000".to_owned()),
    }
}
