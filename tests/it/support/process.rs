//! `relight serve` in a process of its own: how it is started, what it logs, and how it ends.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        admin_service_client::AdminServiceClient, recovery_service_client::RecoveryServiceClient,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use tonic::{
    Request,
    transport::{Channel, Endpoint},
};

use super::binary::relight;

/// Longest wait for a start, an end or a line of the log.
const PATIENCE: Duration = Duration::from_mins(1);

/// A port of this host that is free.
const FREE: &str = "127.0.0.1:0";

/// The key of the tenant `acme`.
pub(crate) const KEY: &str = "acme-key";

/// A key of a tenant as the configuration names it, with further settings of the key.
pub(crate) fn key(tenant: &str, key: &str, settings: &str) -> String {
    format!(
        "{{ tenant: {tenant}, sha256: \"{}\"{settings} }}",
        hash_text(key)
    )
}

/// Replaces a file in one step, so that a server never reads a half of it.
pub(crate) fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

/// A request with a key, or without one where it is empty.
pub(crate) fn with_key<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !key.is_empty() {
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    request
}

/// A server that is not started yet.
pub(crate) struct Serve {
    command: Command,
    file: PathBuf,
    folder: tempfile::TempDir,
}

/// A running server, which is killed when it is dropped.
pub(crate) struct Process {
    /// Where it serves gRPC.
    pub(crate) address: String,
    /// Where it serves health and metrics.
    pub(crate) admin_address: String,
    /// Where it serves the OpenAI-compatible front; empty without one.
    pub(crate) front_address: String,
    /// Its configuration, which is in a folder of its own.
    pub(crate) file: PathBuf,
    child: Child,
    channel: Channel,
    log: Arc<Mutex<Vec<Value>>>,
    _reading: JoinSet<()>,
    _folder: tempfile::TempDir,
}

// === impl Serve ===

impl Serve {
    /// A server with these arguments, and with a file of this configuration unless it is empty.
    pub(crate) fn new(arguments: &[&str], config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = relight(&["serve"]);
        command.args(arguments).stdout(Stdio::null());
        let file = folder.path().join("relight.yaml");
        if !config.is_empty() {
            fs::write(&file, config).unwrap();
            command.arg("--config").arg(&file);
        }
        Self {
            command,
            file,
            folder,
        }
    }

    /// A server at this address with this configuration.
    pub(crate) fn on(address: &str, config: &str) -> Self {
        Self::new(&["--listen", address, "--admin-listen", FREE], config)
    }

    /// A server with a front and a configuration that begins with further settings of `server`,
    /// each indented by two.
    pub(crate) fn with_front(settings: &str) -> Self {
        Self::on(
            FREE,
            &format!("server:\n  openai_front: {{ listen: \"{FREE}\" }}\n{settings}"),
        )
    }

    /// Adds a variable to its environment, which has no other.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts it through a program that runs the program which follows its own arguments.
    pub(crate) fn through(mut self, program: &[&str]) -> Self {
        let own = self.command.as_std();
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .arg(own.get_program())
            .args(own.get_args())
            .env_clear()
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for (name, value) in own.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        self.command = command;
        self
    }

    /// Starts it, and retries while another process has its address.
    pub(crate) async fn start(mut self) -> Process {
        let starting = async {
            loop {
                let mut child = self.command.spawn().unwrap();
                let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
                let mut log = Vec::new();
                while let Some(line) = lines.next_line().await.unwrap() {
                    let line = parsed(line);
                    log.push(line.clone());
                    if line["event"] == "listening" {
                        return (child, lines, log, line);
                    }
                }
                assert!(
                    format!("{log:?}").contains("is in use"),
                    "it ended: {log:?}"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let (child, mut lines, log, listening) = tokio::time::timeout(PATIENCE, starting)
            .await
            .expect("the server starts");
        let log = Arc::new(Mutex::new(log));
        // Its log is read on, so that it never blocks on a full pipe.
        let (written, mut reading) = (Arc::clone(&log), JoinSet::new());
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                written.lock().unwrap().push(parsed(line));
            }
        });
        // One that listens on all addresses is reached on this host.
        let address = |name: &str| {
            listening[name]
                .as_str()
                .unwrap_or_default()
                .replace("0.0.0.0", "127.0.0.1")
        };
        Process {
            address: address("address"),
            admin_address: address("admin_address"),
            front_address: address("openai_front_address"),
            file: self.file,
            child,
            channel: Endpoint::from_shared(format!("http://{}", address("address")))
                .unwrap()
                .connect_lazy(),
            log,
            _reading: reading,
            _folder: self.folder,
        }
    }
}

/// A line of the log as JSON, which the reason of a start that failed is not.
fn parsed(line: String) -> Value {
    serde_json::from_str(&line).unwrap_or(Value::String(line))
}

// === impl Process ===

impl Process {
    /// Starts a server on free ports with this configuration, or with none where it is empty.
    pub(crate) async fn start(config: &str) -> Self {
        Serve::on(FREE, config).start().await
    }

    /// A client of `RecoveryService`; all clients share a connection.
    pub(crate) fn recovery(&self) -> RecoveryServiceClient<Channel> {
        RecoveryServiceClient::new(self.channel.clone())
    }

    /// A client of `AdminService`.
    pub(crate) fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone())
    }

    /// The lines of its log so far.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.log.lock().unwrap().clone()
    }

    /// The lines of its log once they are enough.
    pub(crate) async fn log_until(&self, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let reading = async {
            // A long log takes its time to be looked through.
            while !enough(&self.log()) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, reading).await;
        assert!(
            in_time.is_ok(),
            "it did not log what was waited for: {:?}",
            self.log()
        );
        self.log()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills it, and waits until it has ended.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Signals it to end in order, and returns its exit code.
    pub(crate) async fn terminate(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Waits until it has ended, and returns its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .expect("the server ends")
            .unwrap()
            .code()
    }

    /// A figure of its memory as Linux counts it (`VmRSS`, `VmHWM`), in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("it has ended: {status}{:?}", self.log()));
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            << 10
    }

    /// The CPU time that it has used, which Linux counts in hundredths of a second.
    pub(crate) fn worked(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let hundredths = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(10 * hundredths)
    }
}
