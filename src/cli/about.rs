//! Information about the program itself: its version, completions for shells, its manual.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use serde_json::json;

use super::{CommandLine, Output, terminal::print_line};

/// The version, the commit, and the day of the commit; `build.rs` reads the latter two.
pub(super) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("RELIGHT_COMMIT"), ")");

#[derive(Debug, Args)]
pub(super) struct VersionArguments {
    /// As text or as JSON.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight completions bash > /etc/bash_completion.d/relight
  relight completions zsh > \"${fpath[1]}/_relight\"")]
pub(super) struct CompletionsArguments {
    /// For which shell.
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Write one page for each command into this folder, in place of the main page to standard
    /// output.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Prints the version.
pub(super) fn version(arguments: &VersionArguments) -> anyhow::Result<ExitCode> {
    print_line(&match arguments.output {
        Output::Text => format!("relight {VERSION}"),
        Output::Json => {
            let (commit, date) = env!("RELIGHT_COMMIT")
                .rsplit_once(", ")
                .unwrap_or((env!("RELIGHT_COMMIT"), ""));
            json!({ "version": env!("CARGO_PKG_VERSION"), "commit": commit, "date": date })
                .to_string()
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of a shell.
pub(super) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    // Into memory, as the generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut CommandLine::command(),
        "relight",
        &mut script,
    );
    print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual, or writes all of it.
pub(super) fn man(arguments: &ManArguments) -> anyhow::Result<ExitCode> {
    let Some(folder) = &arguments.into else {
        let mut page = Vec::new();
        clap_mangen::Man::new(CommandLine::command()).render(&mut page)?;
        print_line(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    clap_mangen::generate_to(CommandLine::command(), folder)
        .with_context(|| format!("{}", folder.display()))?;
    print_line(&format!(
        "{} pages in {}",
        pages(&CommandLine::command()),
        folder.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Number of pages of the manual: one for each command that is shown.
fn pages(command: &Command) -> usize {
    let shown = |command: &&Command| !command.is_hide_set();
    1 + command
        .get_subcommands()
        .filter(shown)
        .map(pages)
        .sum::<usize>()
}
