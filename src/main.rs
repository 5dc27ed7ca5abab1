//! Relight: relights failed model calls in flight.

use std::process::ExitCode;

fn main() -> ExitCode {
    relight::cli::main()
}
