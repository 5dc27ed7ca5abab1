//! The command line: parses arguments into a command, and maps its result to an exit code.
//!
//! Commands that use a server do so as any client does, over the gRPC API; `classify` and `config`
//! need none. Results go to standard output, everything else to standard error, so that both can be
//! piped. Exit codes: 0 done, 1 failed, 2 wrong arguments or configuration.

mod about;
mod circuits;
mod classify;
mod client;
mod config;
#[cfg(feature = "lab")]
mod demo;
mod event_line;
mod executions;
mod explain;
mod health;
mod invocations;
mod invoke;
mod json;
mod refusal;
mod releases;
#[cfg(feature = "lab")]
mod scenarios;
mod serve;
mod status;
mod terminal;
mod top;
mod watch;
mod words;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};

use self::terminal::print_note;
use crate::tool::child_guard::{GUARD_NAME, run_guard};

/// Lines about the commands of the lab.
const OF_THE_LAB: &str = if cfg!(feature = "lab") {
    "
  relight demo                               see five kinds of failure recovered; needs no key and no network
  relight demo --provider anthropic          see one provider fail in its own way, over real sockets"
} else {
    ""
};
/// Lines about the commands that follow.
const WHERE_TO_BEGIN: &str = "
  relight serve                              serve with the keys found in the environment, or with a scripted model
  relight invoke \"Say hello\"                 call a model through it, and see retries
  relight watch                              follow everything that is recovered
  relight status                             what is wrong now, since when, and what helps
  relight top                                current activity, redrawn every two seconds
  relight invocations --state failed         which calls failed
  relight explain ID                         what happened to one call";

/// Relights failed model calls in flight: a gRPC service that classifies, waits, informs, falls
/// back and protects.
#[derive(Debug, Parser)]
#[command(name = "relight", version = about::VERSION, after_help = format!("Where to begin:{OF_THE_LAB}{WHERE_TO_BEGIN}"), arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gRPC API until SIGTERM or ctrl-c.
    Serve(serve::ServeArguments),
    /// Break a scripted model in five ways and watch it being recovered; needs no key and no
    /// network.
    #[cfg(feature = "lab")]
    Demo(demo::DemoArguments),
    /// Call a model through a server, and see retries as they happen.
    Invoke(invoke::InvokeArguments),
    /// Follow what a server recovers, one event a line.
    Watch(watch::WatchArguments),
    /// Show the state of a server: what is wrong, since when, and what helps.
    Status(status::StatusArguments),
    /// Report by the exit code whether a server serves.
    Health(health::HealthArguments),
    /// Show what happened to one call: attempts, decisions, waits, notes.
    Explain(explain::ExplainArguments),
    /// Show current activity: targets, rates, recoveries, tenants; redrawn until it is interrupted.
    Top(top::TopArguments),
    /// List calls, newest first: how they ended, at which target, after how many attempts.
    Invocations(invocations::InvocationsArguments),
    /// List the executions of tools that the journal knows, newest first.
    Executions(executions::ExecutionsArguments),
    /// Show what was learnt about tools, or have it forgotten.
    Learning(executions::LearningArguments),
    /// Show and steer the targets' circuits.
    Circuits(circuits::CircuitsArguments),
    /// Show and steer versions of targets and tool servers that are on trial.
    Releases(releases::ReleasesArguments),
    /// Show what a failure is and what helps; needs no server.
    Classify(classify::ClassifyArguments),
    /// Run the scenarios that measure the recovery policy, in virtual time, and print the table;
    /// needs no server.
    #[cfg(feature = "lab")]
    Scenarios(scenarios::ScenariosArguments),
    /// Check, show or describe a configuration; needs no server.
    Config(config::ConfigArguments),
    /// Print the version, its commit and the day of that.
    Version(about::VersionArguments),
    /// Print completions for a shell.
    Completions(about::CompletionsArguments),
    /// Print the manual page, or write all of them.
    Man(about::ManArguments),
}

/// The output format of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Output {
    /// For people.
    #[default]
    #[value(alias = "table")]
    Text,
    /// For programs: JSON with the field names of the API.
    Json,
}

/// Reads the arguments of this process and runs its command; wrong ones, `--help` and `--version`
/// end the process.
#[must_use]
pub fn main() -> ExitCode {
    let name = std::env::args_os().next();
    if name.is_some_and(|name| name == GUARD_NAME) {
        return run_guard();
    }
    let ended = match CommandLine::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Invoke(arguments) => invoke::run(&arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Invocations(arguments) => invocations::run(&arguments),
        Command::Executions(arguments) => executions::run(&arguments),
        Command::Learning(arguments) => executions::learning(&arguments),
        Command::Circuits(arguments) => circuits::run(&arguments),
        Command::Releases(arguments) => releases::run(&arguments),
        Command::Classify(arguments) => classify::run(&arguments),
        #[cfg(feature = "lab")]
        Command::Scenarios(arguments) => scenarios::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Version(arguments) => about::version(&arguments),
        Command::Completions(arguments) => about::completions(&arguments),
        Command::Man(arguments) => about::man(&arguments),
    };
    ended.unwrap_or_else(|error| {
        // The reader of the output may stop reading; `relight watch | head` is not a failure.
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        {
            return ExitCode::SUCCESS;
        }
        print_note(&format!("relight: {error:#}"));
        ExitCode::FAILURE
    })
}

/// One thread is enough for a client; the server brings its own.
fn client_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Reads `key=value`.
fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        Some(_) | None => Err("write it as key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_of_every_command_fit_together() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn an_argument_that_would_be_ignored_is_refused() {
        for ignored in [
            &["--arguments", "{}", "hi"][..],
            &["--goal", "g", "hi"],
            &["--arguments", "{}"],
            &["--resume", "--tool", "t"],
            &["--resume", "--system", "s"],
            &["--resume", "--route", "r"],
            &["--resume", "--deadline", "1s"],
            &["--resume", "--label", "a=b"],
        ] {
            let line = ["relight", "invoke"]
                .into_iter()
                .chain(ignored.iter().copied());
            let refused = CommandLine::try_parse_from(line).map(|_| ());
            assert_eq!(refused.unwrap_err().exit_code(), 2, "{ignored:?}");
        }
        for used in [
            &["--tool", "t", "--arguments", "{}", "--goal", "g"][..],
            &["--resume", "--output", "json"],
            &["hi"],
        ] {
            let line = ["relight", "invoke"]
                .into_iter()
                .chain(used.iter().copied());
            assert!(CommandLine::try_parse_from(line).is_ok(), "{used:?}");
        }
    }

    #[test]
    fn a_pair_needs_a_key_and_an_equals_sign() {
        assert_eq!(
            key_value("team=blue=1"),
            Ok(("team".to_owned(), "blue=1".to_owned()))
        );
        assert!(key_value("team").is_err());
        assert!(key_value("=blue").is_err());
    }
}
