//! `relight config`: checks a configuration, shows what is in force with it, and describes the
//! settings.

use std::{path::PathBuf, process::ExitCode};

use crate::config::{self, Config, ConfigFaults, Fault, Loaded, ProcessEnvironment};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Output,
    terminal::{print_line, print_note},
};

const EXAMPLES: &str = "\
Examples:
  relight config check relight.yaml             exit code 0, or 2 with every fault and its place
  relight config show relight.yaml              what is in force, defaults included and secrets not
  relight config schema > relight.schema.json   for editors
  relight config reference                      every setting, for people (docs/configuration.md)";

/// Exit code for a wrong configuration.
const WRONG: u8 = 2;

/// Operation on a configuration.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConfigArguments {
    #[command(subcommand)]
    command: ConfigCommand,
    /// Output format.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// List all faults of a file.
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Show what is in force, defaults included, without its secrets.
    Show {
        /// The file; without it, what works with the keys in the environment.
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the file.
    Schema,
    /// Print every setting with its default and what it does, as Markdown.
    Reference,
}

/// Answers.
pub(super) fn run(arguments: &ConfigArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        ConfigCommand::Check { file } => match (
            config::load(Some(file), &ProcessEnvironment),
            arguments.output,
        ) {
            (Ok(loaded), Output::Text) => {
                let Config {
                    providers,
                    targets,
                    routes,
                    ..
                } = &loaded.config;
                let counts = [
                    (providers.len(), "provider"),
                    (targets.len(), "target"),
                    (routes.len(), "route"),
                ];
                let counts = counts.map(|(count, what)| {
                    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
                });
                print_warnings(&loaded);
                print_line(&format!(
                    "{} is valid: {}",
                    file.display(),
                    counts.join(", ")
                ))?;
            }
            (Ok(loaded), Output::Json) => {
                let warnings: Vec<Value> = loaded
                    .left_out
                    .iter()
                    .chain(&loaded.retired)
                    .map(fault)
                    .collect();
                print_line(
                    &json!({ "valid": true, "faults": [], "warnings": warnings }).to_string(),
                )?;
            }
            (Err(faults), Output::Text) => return Ok(print_faults(&faults)),
            (Err(faults), Output::Json) => {
                let faults: Vec<Value> = faults.faults.iter().map(fault).collect();
                print_line(&json!({ "valid": false, "faults": faults }).to_string())?;
                return Ok(ExitCode::from(WRONG));
            }
        },
        ConfigCommand::Show { file } => match config::load(file.as_deref(), &ProcessEnvironment) {
            Ok(loaded) => print_line(&match arguments.output {
                Output::Text => format!(
                    "# Read at the start only, so that a change needs a restart: {}.\n\
                     # A change of anything else is in force as soon as the file is accepted.\n{}",
                    config::READ_AT_START.join(", "),
                    config::show(&loaded.config).trim_end(),
                ),
                Output::Json => serde_json::to_string_pretty(&loaded.config)?,
            })?,
            Err(faults) => return Ok(print_faults(&faults)),
        },
        ConfigCommand::Schema => print_line(&serde_json::to_string_pretty(&config::schema())?)?,
        ConfigCommand::Reference => print_line(config::reference(&config::schema()).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a warning of each setting that was left out, and of each that is of an earlier version.
pub(super) fn print_warnings(loaded: &Loaded) {
    for fault in &loaded.left_out {
        print_note(&format!(
            "warning: left out, its default is in force: {fault}"
        ));
    }
    for fault in &loaded.retired {
        print_note(&format!("warning: setting of an earlier version: {fault}"));
    }
}

/// Prints all faults, and returns the exit code for them.
pub(super) fn print_faults(faults: &ConfigFaults) -> ExitCode {
    print_note(&faults.to_string());
    let count = faults.faults.len();
    print_note(&format!(
        "relight: the configuration has {count} fault{}",
        if count == 1 { "" } else { "s" }
    ));
    ExitCode::from(WRONG)
}

fn fault(fault: &Fault) -> Value {
    json!({
        "path": fault.path,
        "line": fault.at.map(|at| at.line),
        "column": fault.at.map(|at| at.column),
        "value": fault.value,
        "reason": fault.reason,
        "nearest": fault.nearest,
    })
}
