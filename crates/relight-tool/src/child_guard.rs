//! A small process beside the server that kills what tool servers leave behind if the server itself
//! is killed: it holds the end of a pipe, reads which process groups there are, and ends those that
//! are left when the pipe ends.
//!
//! A server that is killed cannot do that. A signal at the death of a parent (`prctl`) cannot,
//! either: it is bound to the thread that started the child, and does not reach what that forked.

use std::{
    io::{self, BufRead, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
};

use parking_lot::Mutex;
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, Signal, kill_process_group},
};

/// Name (`argv[0]`) by which this program is the guard.
pub const GUARD_NAME: &str = "relight-child-guard";

/// Path of the program that runs, also after another one was installed in its place.
#[cfg(target_os = "linux")]
const OWN_PROGRAM: &str = "/proc/self/exe";

static GUARD: Mutex<Guard> = Mutex::new(Guard::Off);

/// Guard of this process's children.
enum Guard {
    /// It is not wanted, or cannot be had.
    Off,
    /// It is started together with the first child.
    Wanted(PathBuf),
    Running(Child),
}

/// Has the children of this process guarded from the first one on; its program is `relight`.
pub fn guard_children() {
    #[cfg(target_os = "linux")]
    let program = Some(PathBuf::from(OWN_PROGRAM));
    #[cfg(not(target_os = "linux"))]
    let program = std::env::current_exe().ok();
    *GUARD.lock() = program.map_or(Guard::Off, Guard::Wanted);
}

/// Starts the guard unless it runs: what it is told takes no time then.
///
/// Called before a child starts, so that a server which is killed while its guard starts has not
/// started anything else.
pub(super) fn ready() {
    GUARD.lock().start();
}

/// Notes that a process group has begun.
pub(super) fn begun(group: Pid) {
    GUARD.lock().tell('+', group);
}

/// Notes that a process group was ended.
pub(super) fn ended(group: Pid) {
    GUARD.lock().tell('-', group);
}

/// Is the guard: reads from standard input until its other end is gone.
pub fn run_guard() -> ExitCode {
    for group in left_behind(io::stdin().lock()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// Returns the groups that had begun and were not ended when the input ended.
fn left_behind(input: impl BufRead) -> Vec<Pid> {
    let mut groups = Vec::new();
    for line in input.lines().map_while(Result::ok) {
        // A group of the number 1 would be all processes there are.
        let group = line.get(1..).and_then(|number| number.parse().ok());
        let group = group.filter(|number| *number > 1).and_then(Pid::from_raw);
        match (line.as_bytes().first(), group) {
            (Some(b'+'), Some(group)) => groups.push(group),
            (Some(b'-'), Some(group)) => groups.retain(|known| *known != group),
            _ => {}
        }
    }
    groups
}

// === impl Guard ===

impl Guard {
    fn start(&mut self) {
        if let Self::Wanted(program) = self {
            *self = match start(program) {
                Ok(process) => Self::Running(process),
                Err(error) => {
                    tracing::warn!(
                        "what tool servers start is not ended if this process is killed: {error}"
                    );
                    Self::Off
                }
            };
        }
    }

    fn tell(&mut self, what: char, group: Pid) {
        let Self::Running(process) = self else { return };
        let line = format!("{what}{}\n", group.as_raw_nonzero());
        let pipe = process.stdin.as_mut();
        let written = pipe.map(|pipe| pipe.write_all(line.as_bytes()));
        if !matches!(written, Some(Ok(()))) {
            tracing::warn!("the process that guards tool servers is gone");
            // It would kill what it still knows.
            let _ = process.kill();
            let _ = process.wait();
            *self = Self::Off;
        }
    }
}

/// Starts the guard, out of reach of what is sent to this process's group.
fn start(program: &Path) -> io::Result<Child> {
    let process = Command::new(program)
        .arg0(GUARD_NAME)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    // Nothing waits for a guard that does not read.
    if let Some(pipe) = &process.stdin {
        let flags = fcntl_getfl(pipe)?;
        fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?;
    }
    Ok(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_begun_and_did_not_end() {
        let input = "+12\n+13\n-12\n+1\n+0\n+-5\n+x\n\n14\n-13 \n+15";
        let left: Vec<i32> = left_behind(input.as_bytes())
            .into_iter()
            .map(|group| group.as_raw_nonzero().get())
            .collect();
        assert_eq!(left, [13, 15]);
    }
}
