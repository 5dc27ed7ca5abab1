//! The real binary in a process of its own, which serves a configuration file.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// Longest wait for its start or its end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The key of the tenant `acme`.
pub(crate) const KEY: &str = "acme-key";

/// A running process; ends when it is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) grpc: String,
    pub(crate) admin: String,
    pub(crate) front: String,
    _folder: tempfile::TempDir,
}

impl Process {
    /// Starts it with these settings of `server` (each line indented by two) and the rest of a configuration. `limit` is
    /// put before the command, such as `ulimit -n 64;`. Callers need `KEY`.
    pub(crate) async fn start(limit: &str, server: &str, rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relight.yaml");
        let hash = format!("{:x}", Sha256::digest(KEY.as_bytes()));
        let text = format!(
            "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  \
             openai_front: {{ listen: \"127.0.0.1:0\" }}\n  keys: [{{ tenant: acme, sha256: \"{hash}\" }}]\n\
             {server}journal: {{ store: memory }}\n{rest}"
        );
        std::fs::write(&file, text).unwrap();
        let command = format!("{limit} exec {} serve --config {}", env!("CARGO_BIN_EXE_relight"), file.display());
        let mut command_line = Command::new("sh");
        command_line.args(["-c", &command]).env_clear().kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command_line.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = tokio::time::timeout(PATIENCE, log.next_line()).await.unwrap().unwrap().unwrap();
        #[expect(clippy::disallowed_methods, reason = "it ends when the process does, which closes its log")]
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        let listening: Value = serde_json::from_str(&first).unwrap_or_else(|_| panic!("{first}"));
        let address = |name: &str| listening[name].as_str().unwrap().to_owned();
        Self {
            grpc: address("address"),
            admin: address("admin_address"),
            front: address("openai_front_address"),
            child,
            _folder: folder,
        }
    }

    /// A figure of the process from Linux's own book (`VmRSS`, `VmHWM`), in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// The time that its threads have worked, in hundredths of a second.
    pub(crate) fn worked(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id().unwrap())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}
