//! A terminal: a real one, with a shell in it that has job control, so that keys such as Ctrl-Z
//! mean what they mean.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its world fails"
)]

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Longest time that the terminal may take to show something.
const PATIENCE: Duration = Duration::from_mins(1);

/// The key that stops the foreground job.
pub(crate) const CTRL_Z: &str = "\u{1a}";

/// A terminal with a shell that runs a script.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// Everything that was shown so far.
    pub(crate) shown: String,
}

impl Terminal {
    /// Runs `script` in bash, with job control; `state` is where programs in it keep their state.
    pub(crate) fn run(script: &str, state: &Path) -> Self {
        let file = state.join("script.sh");
        std::fs::write(&file, format!("set -m\n{script}")).unwrap();
        let mut command = Command::new("script");
        command.args([
            "--quiet",
            "--return",
            "--command",
            &format!("exec bash '{}'", file.display()),
            "/dev/null",
        ]);
        command.env_clear().envs([
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("TERM", "dumb"),
            ("SHELL", "/bin/sh"),
        ]);
        command.env("XDG_STATE_HOME", state).kill_on_drop(true);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self {
            child,
            keys,
            screen,
            shown: String::new(),
        }
    }

    /// Presses keys.
    pub(crate) async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    /// Waits until this was shown, anywhere after `from`.
    pub(crate) async fn until(&mut self, from: usize, words: &str) {
        let mut bytes = [0; 4096];
        let mut unread = Vec::new();
        while !self.shown[from..].contains(words) {
            let read = tokio::time::timeout(PATIENCE, self.screen.read(&mut bytes)).await;
            let read = read
                .unwrap_or_else(|_| panic!("no {words:?} in {}", self.shown))
                .unwrap_or(0);
            assert!(read > 0, "it ended without {words:?}: {}", self.shown);
            unread.extend_from_slice(&bytes[..read]);
            let whole = unread
                .utf8_chunks()
                .next()
                .map_or(0, |chunk| chunk.valid().len());
            self.shown
                .push_str(&String::from_utf8(unread.drain(..whole).collect()).unwrap());
        }
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> String {
        let mut rest = Vec::new();
        // A terminal whose last program ended is an error to read from.
        let _ = tokio::time::timeout(PATIENCE, self.screen.read_to_end(&mut rest))
            .await
            .unwrap();
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap()
            .unwrap();
        self.shown
    }
}
