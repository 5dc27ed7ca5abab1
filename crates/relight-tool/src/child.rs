//! A child process: started in a process group of its own, with the environment that is configured
//! and no other, its standard error in the log, ended with everything that it started.

use std::{io, process::ExitStatus, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinSet,
    time::Instant,
};
use tokio_stream::StreamExt as _;
use tokio_util::codec::FramedRead;

use super::{
    child_guard, errors,
    facts::LastWords,
    lines::{PipeLine, PipeLines},
    spec::{ChildSpec, ToolServerSpec},
};
use crate::{
    domain::failure::{ProviderError, TransportFault},
    policy::redact::redact,
};

/// Longest line of standard error that is logged, in bytes; the rest of it is left out.
const MAX_LOG_LINE_BYTES: usize = 1024;
/// Time for which the standard error of a process that ended is still read.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);
/// Most lines of standard error that are logged in a second.
const MAX_LOG_LINES_PER_SECOND: u32 = 50;
/// `EAGAIN`, `ENOMEM`, `ENFILE` and `EMFILE`: this host has no room for another process.
const EXHAUSTED_OS_ERRORS: [i32; 4] = [11, 12, 23, 24];

/// A running child. Dropping it kills its process group, and so does the guard if this process is
/// killed.
#[derive(Debug)]
pub(super) struct ChildProcess {
    child: Child,
    group: Option<Pid>,
    /// Logs its standard error.
    log: JoinSet<()>,
}

/// Streams written to and read from a child.
#[derive(Debug)]
pub(super) struct ChildPipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

// === impl ChildProcess ===

impl ChildProcess {
    /// Starts the child of a server.
    pub(super) fn start(
        server: &ToolServerSpec,
        spec: &ChildSpec,
        last_words: &LastWords,
    ) -> Result<(Self, ChildPipes), ProviderError> {
        let mut command = Command::new(&spec.command);
        command
            .args(&spec.args)
            .env_clear()
            .envs(spec.env.exposed())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        child_guard::ready();
        let mut child = command.spawn().map_err(|error| not_started(spec, &error))?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        group.inspect(|group| child_guard::begun(*group));
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut process = Self {
            child,
            group,
            log: JoinSet::new(),
        };
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(errors::fault(
                TransportFault::NotStarted,
                "the tool server's process has no pipes",
            ));
        };
        if let Some(stderr) = stderr {
            process.log.spawn(log_lines(
                server.name.to_string(),
                stderr,
                last_words.clone(),
            ));
        }
        Ok((process, ChildPipes { stdin, stdout }))
    }

    /// Waits until it exits. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it: by itself after its input was closed, else by `SIGTERM`, else by `SIGKILL`. What it
    /// started is killed.
    pub(super) async fn stop(&mut self, grace: Duration) {
        if tokio::time::timeout(grace, self.child.wait())
            .await
            .is_err()
        {
            self.signal(Signal::TERM);
            if tokio::time::timeout(grace, self.child.wait())
                .await
                .is_err()
            {
                self.kill();
                let _ = self.child.wait().await;
            }
        }
        self.kill();
    }

    /// Kills it and everything that it started, at once.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // Nothing is left of a group that cannot be signalled.
        let _ = self.group.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
        self.group.inspect(|group| child_guard::ended(*group));
        // What it wrote last is still in its pipe, and says why it ended.
        let mut log = std::mem::take(&mut self.log);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = tokio::time::timeout(LAST_LINES_WITHIN, log.join_next()).await;
            });
        }
    }
}

fn not_started(spec: &ChildSpec, error: &io::Error) -> ProviderError {
    let exhausted = error
        .raw_os_error()
        .is_some_and(|number| EXHAUSTED_OS_ERRORS.contains(&number));
    let fault = if exhausted {
        TransportFault::LocalExhaustion
    } else {
        TransportFault::NotStarted
    };
    let missing_folder = spec.cwd.as_ref().filter(|cwd| !cwd.is_dir());
    errors::fault(
        fault,
        match missing_folder {
            Some(cwd) => {
                format!(
                    "the tool server was not started: its working directory {} does not exist",
                    cwd.display()
                )
            }
            None => format!(
                "the tool server's command `{}` cannot be started: {error}",
                spec.command
            ),
        },
    )
}

/// Logs the lines of a child's standard error, bounded in length and rate.
async fn log_lines(server: String, stderr: ChildStderr, last_words: LastWords) {
    let lines = PipeLines::new(MAX_LOG_LINE_BYTES, MAX_LOG_LINE_BYTES);
    let mut lines = FramedRead::new(stderr, lines);
    let mut second = Instant::now();
    let mut logged = 0;
    let mut left_out = 0_u64;
    // Its pipe is read to the end: a child whose standard error is closed dies when it writes to
    // it.
    while let Some(Ok(line)) = lines.next().await {
        let line = match line {
            PipeLine::Whole(line) => line,
            PipeLine::TooLong { head, .. } => format!("{head}…"),
            PipeLine::PassedOver(_) => continue,
        };
        if line.trim().is_empty() {
            continue;
        }
        // It may hold what the child was given or fetched, and what a terminal takes for commands.
        let line = redact(&line, MAX_LOG_LINE_BYTES);
        if second.elapsed() >= Duration::from_secs(1) {
            if left_out > 0 {
                tracing::warn!(%server, left_out, "the tool server wrote more lines to its standard error than are logged");
            }
            (second, logged, left_out) = (Instant::now(), 0, 0);
        }
        if logged < MAX_LOG_LINES_PER_SECOND {
            logged += 1;
            tracing::info!(%server, "standard error of the tool server: {line}");
        } else {
            left_out += 1;
        }
        last_words.set(line);
    }
}
