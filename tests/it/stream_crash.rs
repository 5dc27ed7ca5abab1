//! A stream survives its server: real processes, killed and stopped, on one durable journal.

use std::{path::Path, time::Duration};

use relight::grpc::v1::{RewindMode, recovery_service_client::RecoveryServiceClient};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::transport::{Channel, Endpoint};

use crate::{
    cli_binary,
    recovery::one_target,
    stream_live::{resumable, streaming},
    support::{
        folding::{Folding, start},
        postgres::Database,
        upstream::{Reply, Upstream},
    },
};

const ANSWER: &str = "One owner dies, another takes over, and nobody who folds can tell: every word is there, and none \
                      is there twice, however often the lights go out.";

/// Longest time that a process may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server in a process of its own.
struct Process {
    child: Child,
    client: RecoveryServiceClient<Channel>,
}

impl Process {
    async fn start(config: &Path) -> Self {
        let arguments =
            ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--config", config.to_str().unwrap()];
        let mut child = cli_binary::relight(&arguments).kill_on_drop(true).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = loop {
            let line = tokio::time::timeout(PATIENCE, log.next_line()).await.unwrap().unwrap();
            let Some(line) = line else { panic!("it ended: {:?}", child.wait().await) };
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            if said["event"] == "listening" {
                break said;
            }
        };
        // Its log is read on, so that it never blocks on a full pipe.
        let mut reading = tokio::task::JoinSet::new();
        reading.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        reading.detach_all();
        let endpoint = format!("http://{}", listening["address"].as_str().unwrap());
        let channel = Endpoint::from_shared(endpoint).unwrap().connect_lazy();
        Self { child, client: RecoveryServiceClient::new(channel) }
    }

    /// Sends it a signal.
    async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
    }
}

fn configured(folder: &Path, store: &str, upstream: &Upstream) -> std::path::PathBuf {
    let file = folder.join("relight.yaml");
    let yaml = format!("{}journal: {{ store: {store:?} }}\n", one_target(upstream));
    std::fs::write(&file, yaml.replace("deadline: 20s", "deadline: 60s")).unwrap();
    file
}

async fn slow_upstream() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(ANSWER).in_pieces_of(120).paced(Duration::from_millis(40)));
    upstream
}

/// Kills the owner after so many events, and goes on at another process.
async fn killed_after(events: usize, config: &Path) {
    let first = Process::start(config).await;
    let second = Process::start(config).await;
    let mut folding = Folding::default();
    let mut stream = start(first.client.clone(), resumable(streaming("Hello", RewindMode::Rewind))).await.unwrap();
    assert!(folding.follow(&mut stream, events).await.is_none());
    first.signal("-KILL").await;
    // What was sent already still arrives; then the connection breaks.
    let broken = folding.follow(&mut stream, usize::MAX).await;
    if folding.terminal.is_none() {
        assert!(broken.is_some(), "a broken stream does not look like success");
    }
    tokio::time::timeout(Duration::from_secs(40), folding.insist(&second.client)).await.expect("it is taken over");
    assert_eq!(folding.text(), ANSWER, "killed after {events} events");
    assert!(folding.is_completed());
    assert_eq!(folding.cursor.unwrap().0, 2, "another owner ended it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_streams_are_taken_over_from_a_file() {
    let upstream = slow_upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let config = configured(folder.path(), &store, &upstream);
    tokio::join!(killed_after(3, &config), killed_after(9, &config), killed_after(16, &config));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_streams_are_taken_over_from_postgres() {
    let Some(database) = Database::create().await else { return };
    let upstream = slow_upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let config = configured(folder.path(), &database.url(), &upstream);
    tokio::join!(killed_after(4, &config), killed_after(12, &config));
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_owner_that_wakes_up_cannot_write() {
    let upstream = slow_upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let config = configured(folder.path(), &store, &upstream);
    let (old, new) = (Process::start(&config).await, Process::start(&config).await);
    let mut early = Folding::default();
    let mut stream = start(old.client.clone(), resumable(streaming("Hello", RewindMode::Rewind))).await.unwrap();
    early.follow(&mut stream, 8).await;
    old.signal("-STOP").await;
    let mut folding = early.clone();
    tokio::time::timeout(Duration::from_secs(40), folding.insist(&new.client)).await.expect("it is taken over");
    assert_eq!(folding.text(), ANSWER);
    old.signal("-CONT").await;
    // The client that stayed is served on: by what the new owner recorded, not by what the old one thinks.
    let ended = tokio::time::timeout(Duration::from_secs(20), early.follow(&mut stream, usize::MAX)).await.unwrap();
    if early.terminal.is_none() {
        assert!(ended.is_some(), "a lost stream does not look like success");
        early.insist(&new.client).await;
    }
    assert_eq!(early.text(), ANSWER);
    assert_eq!(early.terminal, folding.terminal, "one end, whoever is asked");
    assert_eq!(early.cursor, folding.cursor);
}
