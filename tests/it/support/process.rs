//! The real binary in a process of its own, which serves a configuration file.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use relight::internals::grpc::v1::recovery_service_client::RecoveryServiceClient;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::{Request, transport::Channel};

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
    log: Arc<Mutex<Vec<Value>>>,
    _folder: tempfile::TempDir,
}

/// A key of a tenant as the configuration names it, with further settings of the key.
pub(crate) fn key(tenant: &str, key: &str, settings: &str) -> String {
    format!("{{ tenant: {tenant}, sha256: \"{:x}\"{settings} }}", Sha256::digest(key.as_bytes()))
}

/// A request with a key.
pub(crate) fn with_key<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

/// Signals a process to end in order.
pub(crate) async fn terminate(child: &Child) {
    let command = format!("kill -TERM {}", child.id().unwrap());
    assert!(Command::new("sh").args(["-c", &command]).status().await.unwrap().success());
}

impl Process {
    /// Starts it with these settings of `server` (each line indented by two) and the rest of a configuration. `limit` is
    /// put before the command, such as `ulimit -n 64;`. Callers need `KEY`.
    pub(crate) async fn start(limit: &str, server: &str, rest: &str) -> Self {
        let key = key("acme", KEY, "");
        Self::serve(limit, &format!("  keys: [{key}]\n{server}journal: {{ store: memory }}\n{rest}")).await
    }

    /// Starts it with a configuration that begins with settings of `server` after its listeners, each indented by two.
    pub(crate) async fn serve(limit: &str, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relight.yaml");
        let text = format!(
            "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  \
             openai_front: {{ listen: \"127.0.0.1:0\" }}\n{settings}"
        );
        std::fs::write(&file, text).unwrap();
        let command = format!("{limit} exec {} serve --config {}", env!("CARGO_BIN_EXE_relight"), file.display());
        let mut command_line = Command::new("sh");
        command_line.args(["-c", &command]).env_clear().kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command_line.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut earlier = Vec::new();
        let listening: Value = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended: {earlier:?}"));
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if line["address"].is_string() {
                break line;
            }
            earlier.push(line);
        };
        let log = Arc::new(Mutex::new(earlier));
        let written = Arc::clone(&log);
        #[expect(clippy::disallowed_methods, reason = "it ends when the process does, which closes its log")]
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                written.lock().unwrap().push(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        let address = |name: &str| listening[name].as_str().unwrap().to_owned();
        Self {
            grpc: address("address"),
            admin: address("admin_address"),
            front: address("openai_front_address"),
            child,
            log,
            _folder: folder,
        }
    }

    /// The lines of its log but the one that names its addresses, so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    /// A client of `RecoveryService` with a connection of its own.
    pub(crate) async fn recovery(&self) -> RecoveryServiceClient<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.grpc)).unwrap();
        RecoveryServiceClient::new(endpoint.connect().await.unwrap())
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
