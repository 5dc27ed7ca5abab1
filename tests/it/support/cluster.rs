//! A `PostgreSQL` server that belongs to one test: it can be stopped, frozen and thawed while
//! Relight uses it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use super::postgres::{Server, as_server_user, binaries};

/// A private server; thawed and stopped when it is dropped.
pub(crate) struct Cluster {
    server: Server,
    folder: PathBuf,
}

// === impl Cluster ===

impl Cluster {
    /// A running server; `None` where there are no binaries.
    pub(crate) fn start() -> Option<Self> {
        let server = tokio::task::block_in_place(Server::private)?;
        let folder = server.folder.clone()?;
        Some(Self { server, folder })
    }

    /// Its only database.
    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    /// Stops the processes of the server where they are: connections stay open and nothing is
    /// returned.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets its processes continue.
    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    /// Ends the server at once: connections break, and new ones are refused.
    pub(crate) fn stop(&self) {
        self.control(&["-m", "immediate", "stop"]);
    }

    /// Starts it again, on the same port and the same data.
    pub(crate) fn start_again(&self) {
        let port = self
            .url()
            .rsplit_once(':')
            .and_then(|(_, rest)| rest.split_once('/'))
            .unwrap()
            .0;
        let options = format!(
            "-h 127.0.0.1 -p {port} -k {} -c fsync=off",
            self.folder.display()
        );
        let log = self.folder.join("server.log").display().to_string();
        self.control(&["-w", "-l", &log, "-o", &options, "start"]);
    }

    fn control(&self, arguments: &[&str]) {
        let program = binaries().unwrap().join("pg_ctl");
        let mut command = as_server_user();
        command
            .arg(program)
            .arg("-D")
            .arg(self.folder.join("data"))
            .args(arguments)
            .stdin(Stdio::null());
        let done = command
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "pg_ctl {arguments:?}");
    }

    /// To its first process and all the others, which are its children.
    fn signal(&self, name: &str) {
        let Ok(text) = fs::read_to_string(self.folder.join("data/postmaster.pid")) else {
            return;
        };
        let first = text.lines().next().unwrap().to_owned();
        let children = Command::new("pgrep")
            .args(["-P", &first])
            .output()
            .unwrap()
            .stdout;
        let children = String::from_utf8(children).unwrap();
        let all = children.split_whitespace().chain([first.as_str()]);
        let _ = Command::new("kill")
            .arg(name)
            .args(all)
            .stderr(Stdio::null())
            .status()
            .unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.thaw();
    }
}
