//! Relight: relights failed model calls in flight.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(cli::arguments())
}
