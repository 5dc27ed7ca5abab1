//! A pause of the database, or of a replica, that is longer than a lease costs no stream a word and
//! no process its life.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use relight::internals::grpc::v1::RewindMode;
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::support::{
    cluster::Cluster,
    folding::{Folding, start},
    process::Process,
    relight::{resumable, streaming},
    room::room,
    slow_upstream::{ANSWER, configured},
    upstream::{Reply, Upstream},
};

/// Longer than the lease of 10 s.
const PAUSE: Duration = Duration::from_secs(16);

/// Streams on each replica.
const STREAMS: usize = 8;

/// An upstream whose answers take about 22 s.
async fn slow() -> Upstream {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(120)
            .paced(Duration::from_millis(400)),
    );
    upstream
}

/// Streams that follow their answers, whatever breaks, until each has its end.
fn following(process: &Process, count: usize) -> JoinSet<Folding> {
    let mut streams = JoinSet::new();
    for _ in 0..count {
        let client = process.recovery();
        streams.spawn(async move {
            let mut folding = Folding::default();
            let mut stream = start(
                client.clone(),
                resumable(streaming("Hello", RewindMode::Rewind)),
            )
            .await
            .unwrap();
            folding.follow(&mut stream, usize::MAX).await;
            folding.insist(&client).await;
            folding
        });
    }
    streams
}

/// Requests `/livez` repeatedly; counts how often it was not served within 2 s.
fn watched(process: &Process) -> (JoinSet<()>, Arc<AtomicUsize>) {
    let (address, missed) = (process.admin_address.clone(), Arc::new(AtomicUsize::new(0)));
    let mut watching = JoinSet::new();
    let count = Arc::clone(&missed);
    watching.spawn(async move {
        loop {
            if !is_live(&address).await {
                count.fetch_add(1, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(250)).await;
        }
    });
    (watching, missed)
}

async fn is_live(address: &str) -> bool {
    let asking = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nhost: relight\r\nconnection: close\r\n\r\n")
            .await
            .ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.ok()?;
        response.starts_with("HTTP/1.1 200").then_some(())
    };
    matches!(timeout(Duration::from_secs(2), asking).await, Ok(Some(())))
}

/// Waits for all streams, and checks that each is whole; returns the last epochs.
async fn whole(streams: JoinSet<Folding>) -> Vec<u64> {
    let ended = timeout(Duration::from_secs(90), streams.join_all())
        .await
        .expect("every stream ends");
    for folding in &ended {
        assert_eq!(folding.text(), ANSWER);
        assert!(folding.is_completed());
    }
    ended
        .into_iter()
        .map(|folding| folding.cursor.unwrap().0)
        .collect()
}

/// Freezes the database for longer than a lease while two replicas stream.
async fn database_frozen() -> bool {
    let Some(cluster) = Cluster::start() else {
        return false;
    };
    let upstream = slow().await;
    let config = configured(cluster.url(), "fast", &upstream);
    let replicas = [Process::start(&config).await, Process::start(&config).await];
    let streams = replicas
        .each_ref()
        .map(|replica| following(replica, STREAMS));
    sleep(Duration::from_secs(3)).await;
    let live = replicas.each_ref().map(watched);
    let (began, before) = (Instant::now(), replicas.each_ref().map(Process::worked));
    cluster.freeze();
    sleep(PAUSE).await;
    cluster.thaw();
    for streams in streams {
        let epochs = whole(streams).await;
        assert_eq!(
            epochs, [1; STREAMS],
            "an owner that lives keeps its invocations"
        );
    }
    for (replica, before) in replicas.iter().zip(before) {
        let busy = replica.worked() - before;
        assert!(
            busy < began.elapsed() / 2,
            "{busy:?} of CPU time in {:?}",
            began.elapsed()
        );
    }
    for (_watching, missed) in live {
        assert_eq!(
            missed.load(Ordering::SeqCst),
            0,
            "/livez was served throughout"
        );
    }
    true
}

/// Freezes one of two replicas for longer than a lease while both stream.
async fn replica_frozen() -> bool {
    let Some(cluster) = Cluster::start() else {
        return false;
    };
    let upstream = slow().await;
    let config = configured(cluster.url(), "fast", &upstream);
    let replicas = [Process::start(&config).await, Process::start(&config).await];
    let streams = replicas
        .each_ref()
        .map(|replica| following(replica, STREAMS));
    sleep(Duration::from_secs(3)).await;
    let (_watching, missed) = watched(&replicas[1]);
    let (began, before) = (Instant::now(), replicas.each_ref().map(Process::worked));
    replicas[0].signal(Signal::STOP);
    sleep(PAUSE).await;
    replicas[0].signal(Signal::CONT);
    let [frozen, other] = streams;
    whole(frozen).await;
    assert_eq!(
        whole(other).await,
        [1; STREAMS],
        "an owner that lives keeps its invocations"
    );
    for (replica, before) in replicas.iter().zip(before) {
        let busy = replica.worked() - before;
        assert!(
            busy < began.elapsed() / 2,
            "{busy:?} of CPU time in {:?}",
            began.elapsed()
        );
    }
    assert_eq!(
        missed.load(Ordering::SeqCst),
        0,
        "/livez of the other one was served throughout"
    );
    assert!(
        is_live(&replicas[0].admin_address).await,
        "and of the one that was frozen"
    );
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_frozen_for_16_s_costs_no_stream_any_text_and_no_owner_its_invocations() {
    let _room = room().await;
    database_frozen().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_frozen_for_16_s_costs_no_stream_any_text() {
    let _room = room().await;
    replica_frozen().await;
}

/// `cargo test --test it -- --ignored --exact ownership_outage::twenty_rounds_of_frozen_databases_and_replicas`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes 25 minutes"]
async fn twenty_rounds_of_frozen_databases_and_replicas() {
    for _ in 0..20 {
        database_frozen().await;
        replica_frozen().await;
    }
}
