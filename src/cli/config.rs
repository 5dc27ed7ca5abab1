//! `relight config`: checks a configuration, shows what is in force with it, and describes the
//! settings.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    config::{self, Config, ConfigFaults, Fault, Loaded, ProcessEnvironment},
    engine,
};
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
        ConfigCommand::Check { file } => match (load(Some(file)), arguments.output) {
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

/// Loads a configuration, and builds what it names as far as that needs no network: what passes is
/// what a server starts with.
pub(super) fn load(file: Option<&Path>) -> Result<Loaded, ConfigFaults> {
    let loaded = config::load(file, &ProcessEnvironment)?;
    match engine::buildable(&loaded.config) {
        Ok(()) => Ok(loaded),
        Err(error) => Err(ConfigFaults::of_whole(
            file,
            format!("{:#}", anyhow::Error::new(error)),
        )),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relight.yaml");
        std::fs::write(&file, text).unwrap();
        load(Some(&file)).map(|_| ()).map_err(|faults| {
            let place = folder.path().display().to_string();
            faults.to_string().replace(&place, "")
        })
    }

    #[test]
    fn what_no_server_can_be_built_of_is_a_fault_of_the_file() {
        let provider = |settings: &str| {
            checked(&format!(
                "providers: {{ p: {{ {settings} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}"
            ))
        };
        assert_eq!(
            provider(
                "dialect: bedrock, base_url: 'https://b.example/?code=hunter2', api_key: 'a:b'"
            )
            .unwrap_err(),
            "/relight.yaml: provider `p`: `https://b.example/?code=[redacted]` is no usable base URL: no region is named to sign for"
        );
        let fault = provider("dialect: scripted, script: { bogus: 1 }").unwrap_err();
        assert!(
            fault.starts_with("/relight.yaml: providers.p.script: unknown field `bogus`"),
            "{fault}"
        );
        for dialect in [
            "openai_chat",
            "openai_responses",
            "anthropic",
            "gemini",
            "scripted",
            "bedrock, region: eu-central-1, identity: { cloud: aws }",
        ] {
            assert_eq!(provider(&format!("dialect: {dialect}")), Ok(()));
        }
        let tools = "tools: { servers: { a: { url: 'https://h/mcp' }, b: { command: x }, \
                     c: { http: { base_url: 'https://h', tools: { t: { path: /t } } } } } }";
        assert_eq!(checked(tools), Ok(()));
    }
}
