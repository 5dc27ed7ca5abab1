//! A caller that is a program, such as one with the SDK of a provider.
//!
//! It reads `{"address", "path", "headers", "body"}` from its standard input, calls, and writes what it
//! holds to its standard output: `{"status", "text", "tools": [[name, arguments]], "finish", "error"}`.

use std::{io, process::Stdio, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command, time::Instant};

use crate::caller::HeldByCaller;

/// Longest time that a program may take, its start included.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a program writes.
#[derive(Deserialize)]
struct ProgramOutput {
    status: u16,
    text: String,
    tools: Vec<(String, String)>,
    finish: Option<String>,
    error: Option<String>,
}

/// Has the program make one call, and returns what it holds.
pub(crate) async fn call(program: &str, arguments: &[String], request: &Value) -> HeldByCaller {
    let began = Instant::now();
    let ran = tokio::time::timeout(PATIENCE, run(program, arguments, request)).await;
    let written = ran.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut held = match written {
        Ok(written) => HeldByCaller {
            status: written.status,
            text: written.text,
            tools: (0..).zip(written.tools).collect(),
            finish: written.finish,
            error: written.error,
            ..HeldByCaller::default()
        },
        Err(fault) => HeldByCaller {
            error: Some(format!("{program}: {fault}")),
            ..HeldByCaller::default()
        },
    };
    held.elapsed = began.elapsed();
    held
}

async fn run(program: &str, arguments: &[String], request: &Value) -> io::Result<ProgramOutput> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(request.to_string().as_bytes()).await?;
    }
    let ended = child.wait_with_output().await?;
    Ok(serde_json::from_slice(&ended.stdout)?)
}
