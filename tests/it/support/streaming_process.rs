//! A server in a process of its own that streams an answer slowly, so that it can be killed meanwhile.

use std::{path::Path, time::Duration};

use relight::internals::grpc::v1::recovery_service_client::RecoveryServiceClient;
use serde_json::Value;
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::transport::{Channel, Endpoint};

use crate::support::{
    binary,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const ANSWER: &str = "One owner dies, another takes over, and nobody who folds can tell: every word is there, and none \
                      is there twice, however often the lights go out.";

/// A server in a process of its own.
pub(crate) struct Process {
    child: Child,
    /// Where it serves gRPC.
    pub(crate) address: String,
    /// Where it serves health and metrics.
    pub(crate) admin_address: String,
    pub(crate) client: RecoveryServiceClient<Channel>,
}

impl Process {
    pub(crate) async fn start(config: &Path) -> Self {
        Self::start_on(config, "127.0.0.1:0").await
    }

    /// Starts it at this address.
    pub(crate) async fn start_on(config: &Path, listen: &str) -> Self {
        // Without a place for state of its own.
        Self::start_in(Path::new("/dev/null"), config, listen).await
    }

    /// Starts it at this address, with a place for state of its own.
    pub(crate) async fn start_in(state: &Path, config: &Path, listen: &str) -> Self {
        let started = async {
            loop {
                if let Some(process) = Self::try_start_in(state, config, listen).await {
                    return process;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, started).await.expect("the address becomes free")
    }

    /// The same; `None` while another process has the address.
    async fn try_start_in(state: &Path, config: &Path, listen: &str) -> Option<Self> {
        let arguments =
            ["serve", "--listen", listen, "--admin-listen", "127.0.0.1:0", "--config", config.to_str().unwrap()];
        let mut child = binary::relight(&arguments).env("XDG_STATE_HOME", state).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = loop {
            let line = tokio::time::timeout(PATIENCE, log.next_line()).await.unwrap().unwrap();
            let Some(line) = line else { panic!("it ended: {:?}", child.wait().await) };
            if line.contains("is in use") {
                return None;
            }
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if said["event"] == "listening" {
                break said;
            }
        };
        // Its log is read on, so that it never blocks on a full pipe.
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        reading.detach_all();
        let address = listening["address"].as_str().unwrap().to_owned();
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        let admin_address = listening["admin_address"].as_str().unwrap().to_owned();
        Some(Self { child, address, admin_address, client: RecoveryServiceClient::new(channel) })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Kills it, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Stops it, but not within a transaction on this file of `SQLite`, whose lock would stop every other writer, too.
    pub(crate) async fn stop_between_writes(&self, journal: &Path) {
        let options = SqliteConnectOptions::new().filename(journal).busy_timeout(Duration::ZERO);
        let mut file = options.connect().await.unwrap();
        loop {
            self.signal("-STOP").await;
            if let Ok(transaction) = file.begin_with("BEGIN IMMEDIATE").await {
                transaction.rollback().await.unwrap();
                return;
            }
            self.signal("-CONT").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends it a signal.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
    }
}

pub(crate) fn configured(folder: &Path, store: &str, upstream: &Upstream) -> std::path::PathBuf {
    configured_with(folder, store, "fast", upstream)
}

pub(crate) fn configured_with(folder: &Path, store: &str, mode: &str, upstream: &Upstream) -> std::path::PathBuf {
    let file = folder.join(format!("{mode}.yaml"));
    let yaml = format!("{}journal: {{ store: {store:?}, mode: {mode} }}\n", one_target(upstream));
    // Slots for all of the load: none of it is to wait for another.
    let yaml = yaml.replace("deadline: 20s", "deadline: 2m") + "concurrency: { start: 64 }\n";
    std::fs::write(&file, yaml.replace("400ms", "5s")).unwrap();
    file
}

pub(crate) async fn slow_upstream() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(ANSWER).in_pieces_of(120).paced(Duration::from_millis(40)));
    upstream
}
