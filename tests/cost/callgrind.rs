//! Instructions of a server's own code, counted by `callgrind`: no other load changes their number.

use std::path::Path;

use tokio::process::Command;

/// Returns the command that runs a program and writes its count into `file`; it counts nothing until
/// [`count`] says so.
pub(crate) fn command(file: &Path, program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--instr-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program);
    command
}

/// Counts the instructions of this process from now on, or no longer.
pub(crate) async fn count(process: u32, on: bool) {
    let switch = if on { "--instr=on" } else { "--instr=off" };
    let mut control = Command::new("callgrind_control");
    let control = control.args([switch, &process.to_string()]);
    let output = control.output().await.unwrap();
    assert!(output.status.success(), "callgrind_control: {output:?}");
}

/// Returns how many instructions were counted by a process that has ended.
pub(crate) fn counted(file: &Path) -> u64 {
    let counts = std::fs::read_to_string(file).unwrap();
    let total = counts
        .lines()
        .find_map(|line| line.strip_prefix("totals: "));
    total.unwrap().trim().parse().unwrap()
}
