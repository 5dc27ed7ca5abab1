//! Runs the real binary as a shell would, with an environment of its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its world fails"
)]

use std::{process::Stdio, time::Duration};

use tokio::{io::AsyncWriteExt as _, process::Command};

/// Longest time that a command may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// The output of a command and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary with these arguments; nothing of this process's environment reaches it.
pub(crate) fn relight(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relight"));
    command.args(arguments).env_clear().kill_on_drop(true);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) async fn run(arguments: &[&str]) -> Ran {
    run_with(arguments, "").await
}

/// Runs it to its end with this standard input.
pub(crate) async fn run_with(arguments: &[&str], input: &str) -> Ran {
    let mut child = relight(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read its input closes it.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let ended = ended
        .unwrap_or_else(|_| panic!("{arguments:?} did not end in {PATIENCE:?}"))
        .unwrap();
    Ran {
        code: ended.status.code(),
        out: String::from_utf8(ended.stdout).unwrap(),
        err: String::from_utf8(ended.stderr).unwrap(),
    }
}
