//! `relight scenarios`: the measure of the recovery policy, printed as one table.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Args;
use relight::scenarios::{self, Options, Report};

use super::{Output, terminal::tell};

/// What `relight scenarios` takes.
#[derive(Debug, Args)]
pub(crate) struct ScenariosArguments {
    /// Only these, by number, such as `3` or `2b`; may be given several times or with commas. Default: all.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    only: Vec<String>,
    /// Seed of every dice; the same seed gives the same event log.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls per second in place of each scenario's own.
    #[arg(long, value_name = "CALLS")]
    rate: Option<f64>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Runs the scenarios and prints what they showed.
///
/// # Errors
/// When a number names no scenario, or nothing can be written.
pub(crate) fn run(arguments: &ScenariosArguments) -> anyhow::Result<ExitCode> {
    let mut wanted = scenarios::all()?;
    if !arguments.only.is_empty() {
        for number in &arguments.only {
            if !wanted.iter().any(|scenario| scenario.id == *number) {
                let known: Vec<&str> = wanted.iter().map(|scenario| scenario.id.as_str()).collect();
                anyhow::bail!("there is no scenario `{number}`; there are: {}", known.join(", "));
            }
        }
        wanted.retain(|scenario| arguments.only.contains(&scenario.id));
    }
    let options = Options { seed: arguments.seed, rate: arguments.rate, length: None };
    let mut reports: Vec<Report> = Vec::new();
    for scenario in &wanted {
        tell(&format!("scenario {}: {} …", scenario.id, scenario.title));
        reports.push(scenarios::run(scenario, options)?);
    }
    let mut out = io::stdout().lock();
    match arguments.output {
        Output::Text => writeln!(out, "{}", scenarios::table(&reports))?,
        Output::Json => {
            let all: Vec<_> = reports.iter().map(Report::to_json).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        }
    }
    Ok(if reports.iter().all(Report::passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
