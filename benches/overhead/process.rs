//! A server that is measured, in a process of its own.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use hyper::Uri;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use crate::{callgrind, calls::Interfaces, passthrough};

/// Where callgrind writes what it counts of Relight, where that is wanted.
pub(crate) const COUNTS: &str = "RELIGHT_INSTRUCTIONS";

/// The longest time in which a server listens after its start.
const PATIENCE: Duration = Duration::from_mins(2);

/// The process; it ends when it is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) interfaces: Interfaces,
    /// How long after its start it accepted a connection.
    pub(crate) ready_after: Duration,
    _folder: Option<tempfile::TempDir>,
}

impl Process {
    /// Starts the bare proxy.
    pub(crate) async fn passthrough(upstream: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(passthrough::ARGUMENT);
        Self::announced(command, upstream).await
    }

    /// Starts a program whose last argument is the upstream's address, and whose first line is the
    /// URL to call and what the model is called there. Its gRPC address is never called.
    pub(crate) async fn announced(mut command: Command, upstream: SocketAddr) -> Self {
        let began = Instant::now();
        command
            .arg(upstream.to_string())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        assert!(line.is_some(), "{command:?} ended before it listened");
        let line = line.unwrap();
        let (url, model) = line.split_once(' ').unwrap();
        let url: Uri = url.parse().unwrap();
        let front = url.authority().unwrap().as_str().parse().unwrap();
        let interfaces = Interfaces {
            front,
            path: url.path().to_owned(),
            model: model.to_owned(),
            grpc: upstream,
        };
        let ready_after = listens(&mut child, front, began).await;
        Self {
            child,
            interfaces,
            ready_after,
            _folder: None,
        }
    }

    /// Starts `relight serve` with its defaults and this journal; `{}` in `store` is replaced by a
    /// folder of its own.
    pub(crate) async fn relight(upstream: SocketAddr, store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = store.replace("{}", &folder.path().display().to_string());
        let (front, grpc, admin) = (
            free_address().await,
            free_address().await,
            free_address().await,
        );
        let configuration = folder.path().join("relight.yaml");
        let yaml = format!(
            "server: {{ listen: \"{grpc}\", admin_listen: \"{admin}\", openai_front: {{ listen: \"{front}\" }} }}\n\
             providers: {{ p: {{ dialect: openai_chat, base_url: \"http://{upstream}/v1\", api_key: k }} }}\n\
             targets: {{ main: {{ provider: p, model: m-1 }} }}\n\
             routes: {{ default: {{ targets: [main] }} }}\n\
             policies: {{ standard: {{ retry: {{ max_retries: 3 }} }} }}\n\
             journal: {{ store: \"{store}\" }}\n"
        );
        std::fs::write(&configuration, yaml).unwrap();
        let binary = std::env::var("RELIGHT_BINARY")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_relight").to_owned());
        let began = Instant::now();
        let mut command = Command::new(&binary);
        if let Ok(file) = std::env::var(COUNTS) {
            command = callgrind::command(file.as_ref(), binary.as_ref());
        }
        let mut child = command
            .args(["serve", "--config", configuration.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        listens(&mut child, front, began).await;
        let ready_after = listens(&mut child, grpc, began).await;
        Self {
            child,
            interfaces: Interfaces::new(front, grpc),
            ready_after,
            _folder: Some(folder),
        }
    }

    /// The CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.read("stat");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        // Fields 14 and 15 of proc_pid_stat(5), user and system time in hundredths of a second,
        // which Linux always reports.
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }

    /// The memory that it holds, in MiB.
    pub(crate) fn resident_mib(&self) -> f64 {
        let status = self.read("status");
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        kib.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    /// Starts to record for so long where it spends its time, into `file`.
    pub(crate) fn profile(&self, file: &str, duration: Duration) -> Child {
        let (process, seconds) = (
            self.child.id().unwrap().to_string(),
            duration.as_secs().to_string(),
        );
        let mut perf = Command::new("perf");
        perf.args([
            "record", "--quiet", "-F", "499", "-g", "-p", &process, "-o", file, "sleep", &seconds,
        ]);
        perf.spawn().unwrap()
    }

    /// Counts its instructions from now on, or no longer.
    pub(crate) async fn count_instructions(&self, on: bool) {
        callgrind::count(self.child.id().unwrap(), on).await;
    }

    /// Ends it, and returns how many instructions were counted.
    pub(crate) async fn instructions(mut self, file: &str) -> u64 {
        let terminated = Command::new("kill")
            .arg(self.child.id().unwrap().to_string())
            .status()
            .await
            .unwrap();
        assert!(
            terminated.success() && self.child.wait().await.unwrap().success(),
            "relight did not end well"
        );
        callgrind::counted(file.as_ref())
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id().unwrap())).unwrap()
    }
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}

/// How long after `began` it accepted a connection.
async fn listens(child: &mut Child, address: SocketAddr, began: Instant) -> Duration {
    while TcpStream::connect(address).await.is_err() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it listened"
        );
        assert!(began.elapsed() < PATIENCE, "nothing listens at {address}");
        sleep(Duration::from_millis(1)).await;
    }
    began.elapsed()
}
