//! A stream survives its server: real processes, killed and stopped, on one durable journal.

use std::{path::Path, time::Duration};

use relight::internals::grpc::v1::RewindMode;
use rustix::process::{Signal, WaitOptions, waitpid};
use sqlx::{ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};

use crate::support::{
    folding::{Folding, start},
    http::free_address,
    postgres::Database,
    process::{Process, Serve},
    relight::{resumable, streaming},
    room::room,
    slow_upstream::{ANSWER, configured, slow_upstream},
    targets::one_target,
    upstream::{Reply, Upstream},
};

mod reattached;

/// How many streams run on a server that is killed under load.
const LOAD: usize = 24;

/// Time that ends a test which hangs: a busy machine takes long for what is waited for.
const PATIENCE: Duration = Duration::from_mins(2);

/// Kills the owner after so many events, and continues at another process.
async fn killed_after(events: usize, config: &str) {
    let first = Process::start(config).await;
    let second = Process::start(config).await;
    let mut folding = Folding::default();
    let mut stream = start(
        first.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    assert!(folding.follow(&mut stream, events).await.is_none());
    first.signal(Signal::KILL);
    // What was sent already still arrives; then the connection breaks.
    let broken = folding.follow(&mut stream, usize::MAX).await;
    if folding.terminal.is_none() {
        assert!(
            broken.is_some(),
            "a broken stream does not look like success"
        );
    }
    tokio::time::timeout(PATIENCE, folding.insist(&second.recovery()))
        .await
        .expect("it is taken over");
    assert_eq!(folding.text(), ANSWER, "killed after {events} events");
    assert!(folding.is_completed());
    // One that a busy machine holds up takes it over from itself.
    assert!(folding.cursor.unwrap().0 >= 2, "another owner ended it");
}

/// Stops it, but not within a transaction on this file of `SQLite`, whose lock would stop every
/// other writer, too.
async fn stop_between_writes(process: &Process, journal: &Path) {
    let options = SqliteConnectOptions::new()
        .filename(journal)
        .busy_timeout(Duration::ZERO);
    let mut file = options.connect().await.unwrap();
    loop {
        process.signal(Signal::STOP);
        // Until all its threads have stopped: one that is held up within the kernel may still lock.
        waitpid(Some(process.pid()), WaitOptions::UNTRACED).unwrap();
        if let Ok(transaction) = file.begin_with("BEGIN IMMEDIATE").await {
            transaction.rollback().await.unwrap();
            return;
        }
        process.signal(Signal::CONT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Kills an owner at a random point while many streams run on it, and has all of them continue at
/// another process.
async fn killed_under_load(config: &str, mut seed: u64) {
    let (first, second) = (Process::start(config).await, Process::start(config).await);
    let mut begun = Vec::new();
    for _ in 0..LOAD {
        let mut folding = Folding::default();
        let mut stream = start(
            first.recovery(),
            resumable(streaming("Hello", RewindMode::Rewind)),
        )
        .await
        .unwrap();
        assert!(folding.follow(&mut stream, 1).await.is_none());
        begun.push((folding, stream));
    }
    // Somewhere between the batches of all these records, which are written every 100 ms.
    seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let (last, stream) = begun.last_mut().unwrap();
    last.follow(stream, usize::try_from(seed >> 33).unwrap() % 20)
        .await;
    tokio::time::sleep(Duration::from_millis((seed >> 40) % 200)).await;
    first.signal(Signal::KILL);
    let continuing = begun.into_iter().map(|(mut folding, mut stream)| {
        let second = second.recovery();
        async move {
            folding.follow(&mut stream, usize::MAX).await;
            folding.insist(&second).await;
            folding
        }
    });
    let continuing = futures_util::future::join_all(continuing);
    let ended = tokio::time::timeout(Duration::from_mins(2), continuing)
        .await
        .expect("all of them are taken over");
    let mut ids = std::collections::BTreeSet::new();
    for folding in ended {
        assert_eq!(
            folding.text(),
            ANSWER,
            "nothing lost, nothing doubled: seed {seed}"
        );
        assert!(folding.is_completed());
        assert_eq!(
            folding.terminal.as_ref().unwrap().result_hash,
            folding.hash()
        );
        ids.insert(folding.invocation);
    }
    assert_eq!(ids.len(), LOAD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_and_doubles_nothing_of_a_file() {
    let _room = room().await;
    let (upstream, folder) = (slow_upstream().await, tempfile::tempdir().unwrap());
    for (seed, mode) in [(1, "fast"), (2, "strict")] {
        let store = format!(
            "sqlite:{}",
            folder.path().join(format!("{mode}.db")).display()
        );
        killed_under_load(&configured(&store, mode, &upstream), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_under_load_loses_and_doubles_nothing_of_postgres() {
    let _room = room().await;
    let upstream = slow_upstream().await;
    for (seed, mode) in [(3, "fast"), (4, "strict")] {
        let Some(database) = Database::create().await else {
            return;
        };
        killed_under_load(&configured(&database.url(), mode, &upstream), seed).await;
        database.drop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_streams_are_taken_over_from_a_file() {
    let _room = room().await;
    let upstream = slow_upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let config = configured(&store, "fast", &upstream);
    tokio::join!(
        killed_after(3, &config),
        killed_after(9, &config),
        killed_after(16, &config)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_streams_are_taken_over_from_postgres() {
    let _room = room().await;
    let Some(database) = Database::create().await else {
        return;
    };
    let upstream = slow_upstream().await;
    let config = configured(&database.url(), "fast", &upstream);
    tokio::join!(killed_after(4, &config), killed_after(12, &config));
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_the_default_journal_finds_its_streams_again_after_a_kill() {
    let _room = room().await;
    let (upstream, folder) = (slow_upstream().await, tempfile::tempdir().unwrap());
    let address = free_address().to_string();
    let started = || {
        Serve::on(&address, &one_target(&upstream))
            .env("XDG_STATE_HOME", folder.path())
            .start()
    };
    let mut first = started().await;
    let mut folding = Folding::default();
    let mut stream = start(
        first.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    folding.follow(&mut stream, 8).await;
    first.kill().await;
    folding.follow(&mut stream, usize::MAX).await;
    let second = started().await;
    tokio::time::timeout(PATIENCE, folding.insist(&second.recovery()))
        .await
        .expect("it is taken over");
    assert_eq!(folding.text(), ANSWER);
    assert_eq!(folding.cursor.unwrap().0, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_owner_that_wakes_up_cannot_write() {
    let _room = room().await;
    let upstream = slow_upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.db");
    let store = format!("sqlite:{}", journal.display());
    let config = configured(&store, "fast", &upstream);
    let (old, new) = (Process::start(&config).await, Process::start(&config).await);
    let mut early = Folding::default();
    let mut stream = start(
        old.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    early.follow(&mut stream, 8).await;
    stop_between_writes(&old, &journal).await;
    let mut folding = early.clone();
    tokio::time::timeout(PATIENCE, folding.insist(&new.recovery()))
        .await
        .expect("it is taken over");
    assert_eq!(folding.text(), ANSWER);
    old.signal(Signal::CONT);
    // The client that stayed is served on: by what the new owner recorded, not by what the old one
    // thinks.
    let ended = tokio::time::timeout(PATIENCE, early.follow(&mut stream, usize::MAX))
        .await
        .unwrap();
    if early.terminal.is_none() {
        assert!(ended.is_some(), "a lost stream does not look like success");
        early.insist(&new.recovery()).await;
    }
    assert_eq!(early.text(), ANSWER);
    assert_eq!(
        early.terminal, folding.terminal,
        "one end, whoever is asked"
    );
    assert_eq!(early.cursor, folding.cursor);
}
