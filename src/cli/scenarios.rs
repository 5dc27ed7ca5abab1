//! `relight scenarios`: measures how well failures are recovered, on the real layers in virtual
//! time.
//!
//! Needs no server and no network. Every scenario is run beside a naive client and an ideal that
//! knows the future; the exit code is 1 when a gate is not passed.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::scenarios::{self, RandomMinute, Report, Scenario, ScenarioOptions};
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
    /// the minutes in which fewer calls succeeded than with the naive client by more than chance.
    #[arg(long, value_name = "HOURS", conflicts_with_all = ["only", "seeds"])]
    random_hours: Option<u64>,
    /// Calls per second, in place of each scenario's own; of random hours at most.
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
        return random_hours(arguments.seed, hours, arguments.rate);
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

/// Minutes of random hours, and how many calls succeeded in them.
#[derive(Debug, Default)]
struct MinuteTally {
    minutes: u64,
    calls: u64,
    ours: u64,
    naive: u64,
    worse: u64,
    beyond_chance: u64,
}

// === impl MinuteTally ===

impl MinuteTally {
    fn add(&mut self, minute: &RandomMinute) {
        self.minutes += 1;
        self.calls += u64::from(minute.calls);
        self.ours += u64::from(minute.both + minute.only_ours);
        self.naive += u64::from(minute.both + minute.only_naive);
        self.worse += u64::from(minute.is_worse());
        self.beyond_chance += u64::from(minute.is_worse_beyond_chance());
    }
}

/// Runs hours of faults drawn at random, and prints each minute that was worse than without by more
/// than chance, and the kinds of faults in such minutes.
fn random_hours(first: u64, hours: u64, most: Option<f64>) -> anyhow::Result<ExitCode> {
    let next = AtomicU64::new(first);
    let tallies = Mutex::new((MinuteTally::default(), BTreeMap::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + hours {
                return Ok::<_, anyhow::Error>(());
            }
            let run = scenarios::random(seed, Duration::from_hours(1), most)?;
            let mut tallies = tallies.lock();
            let (all, by_kind) = &mut *tallies;
            for minute in &run.minutes {
                all.add(minute);
                let kinds = by_kind.entry(minute.kinds.clone());
                kinds.or_insert_with(MinuteTally::default).add(minute);
                if minute.is_worse_beyond_chance() {
                    print_line(&format!(
                        "hour {seed}, minute {}: {} of {} calls, naive {}; {}",
                        minute.minute,
                        minute.both + minute.only_ours,
                        minute.calls,
                        minute.both + minute.only_naive,
                        minute.faults.join("; ")
                    ))?;
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let joined = worker.join();
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let (all, by_kind) = tallies.into_inner();
    let mut worse: Vec<_> = by_kind
        .into_iter()
        .filter(|(_, tally)| tally.beyond_chance > 0)
        .collect();
    worse.sort_by_key(|(_, tally)| Reverse(tally.beyond_chance));
    for (kinds, tally) in worse {
        let MinuteTally {
            minutes,
            calls,
            ours,
            naive,
            beyond_chance,
            ..
        } = tally;
        print_line(&format!(
            "{beyond_chance} of {minutes} minutes with [{kinds}]: {ours} of {calls} calls, naive {naive}"
        ))?;
    }
    print_line(&format!(
        "{hours} hours, {} of {} calls succeeded, {} with the naive client; it answered more in {} of {} minutes, in {} by more than chance",
        all.ours, all.calls, all.naive, all.worse, all.minutes, all.beyond_chance
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
