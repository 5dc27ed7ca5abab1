//! A journal that is away for seconds freezes nothing: while answers stream fast on the only worker
//! of a process, other calls are served and a signal ends the process in its time; when the store
//! is back, each answer is whole, and so is its record.
//!
//! `RELIGHT_TEST_OUTAGE_SECONDS` makes the outages longer than they are every day.

use std::time::Duration;

use relight::internals::grpc::v1::{
    GetInvocationRequest, Invocation, InvokeWithRecoveryRequest, RewindMode,
    get_invocation_request, invoke_with_recovery_response::Outcome,
};
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tokio::{
    sync::watch,
    task::{JoinSet, block_in_place},
    time::{Instant, sleep, timeout},
};

use crate::support::{
    cluster::Cluster,
    folding::{Folding, start},
    front::{Answer, folded, post_with},
    process::{Process, Serve},
    relight::{asking, resumable, streaming},
    room::whole_room,
    slow_upstream::configured,
    upstream::{Reply, Upstream, chunk},
};

/// Words of one stream in a second; of the four streams together, a thousand.
const WORDS_PER_SECOND: u64 = 250;

/// How long streams run before the store is taken, and at least after it is back.
const AROUND: Duration = Duration::from_secs(2);

/// The longest answer, in which a client of the front still waits for its end.
const LONGEST: Duration = Duration::from_secs(45);

/// Longest time in which another call is answered, with room for a busy machine.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// How long calls in flight may continue after a signal.
const DRAIN: Duration = Duration::from_secs(2);

/// Longest time in which a process then ends: it also lets load balancers notice, hands over, and
/// flushes its telemetry.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// A store that can be away.
enum Store {
    /// A file that another connection locks.
    Locked(tempfile::TempDir),
    /// A file that cannot take a byte more.
    Full(tempfile::TempDir),
    /// A database that is stopped.
    Stopped(Cluster),
    /// A database whose processes are paused.
    Frozen(Cluster),
    /// A database that only reads.
    ReadOnly(Cluster),
}

/// What keeps a store away.
struct Away(Option<SqliteConnection>);

/// Four clients that stream fast, each by another protocol.
struct Streams {
    fronts: JoinSet<Answer>,
    grpc: JoinSet<Folding>,
}

/// Calls that are made beside the streams, one after the other.
struct Others {
    stop: watch::Sender<bool>,
    calling: JoinSet<(usize, Duration)>,
}

/// How long a store is away.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are configured by their environment alone"
)]
fn outage() -> Duration {
    let seconds = std::env::var("RELIGHT_TEST_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(4))
}

/// How many words an answer has: it lasts longer than the outage where it can.
fn words() -> u64 {
    WORDS_PER_SECOND * (outage() + 2 * AROUND).min(LONGEST).as_secs()
}

fn text() -> String {
    (1..=words()).map(|word| format!("w{word} ")).collect()
}

/// An upstream that streams a long answer fast, and gives short ones at once.
async fn fast_upstream() -> Upstream {
    let upstream = Upstream::start().await;
    let event = |data: String| format!("data: {data}\n\n").into_bytes();
    let pause = Duration::from_millis(1000 / WORDS_PER_SECOND);
    let mut pieces: Vec<(Duration, Vec<u8>)> = (1..=words())
        .map(|word| {
            let piece = chunk(&json!({"content": format!("w{word} ")}), None);
            (pause, event(piece))
        })
        .collect();
    pieces.push((pause, event(chunk(&json!({}), Some("stop")))));
    pieces.push((Duration::ZERO, event("[DONE]".to_owned())));
    let long = Reply::stream(pieces);
    upstream.answering(move |request| {
        if request.body.to_string().contains("Long?") {
            long.clone()
        } else {
            Reply::text("Fine.")
        }
    });
    upstream
}

// === impl Store ===

impl Store {
    fn url(&self) -> String {
        match self {
            Self::Locked(folder) | Self::Full(folder) => {
                format!("sqlite:{}", folder.path().join("journal.db").display())
            }
            Self::Stopped(cluster) | Self::Frozen(cluster) | Self::ReadOnly(cluster) => {
                cluster.url().to_owned()
            }
        }
    }

    /// A process with one worker and this journal, whose queue has room for all that is streamed.
    async fn serve(&self, mode: &str, upstream: &Upstream) -> Process {
        let config = configured(&self.url(), mode, upstream)
            .replace("mode:", "queue: 1000000, mode:")
            .replace("deadline: 2m", "deadline: 3m");
        let settings = format!("  drain_timeout: {}s\n{config}", DRAIN.as_secs());
        let serve = Serve::with_front(&settings).env("TOKIO_WORKER_THREADS", "1");
        match self {
            // A write beyond the limit then fails, as on a full disk, in place of ending it.
            Self::Full(_) => serve.through(&["/usr/bin/env", "--ignore-signal=XFSZ"]),
            Self::Locked(_) | Self::Stopped(_) | Self::Frozen(_) | Self::ReadOnly(_) => serve,
        }
        .start()
        .await
    }

    async fn take(&self, process: &Process) -> Away {
        let mut lock = None;
        match self {
            Self::Locked(folder) => {
                let options = sqlx::sqlite::SqliteConnectOptions::new()
                    .filename(folder.path().join("journal.db"))
                    .busy_timeout(Duration::from_secs(30));
                let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
                connection.execute("BEGIN EXCLUSIVE").await.unwrap();
                lock = Some(connection);
            }
            Self::Full(_) => limit_files(process, Some(1)),
            Self::Stopped(cluster) => block_in_place(|| cluster.stop()),
            Self::Frozen(cluster) => block_in_place(|| cluster.freeze()),
            Self::ReadOnly(cluster) => read_only(cluster, "on").await,
        }
        Away(lock)
    }

    async fn give_back(&self, process: &Process, away: Away) {
        match self {
            Self::Locked(_) => {
                let mut connection = away.0.unwrap();
                connection.execute("ROLLBACK").await.unwrap();
            }
            Self::Full(_) => limit_files(process, None),
            Self::Stopped(cluster) => block_in_place(|| cluster.start_again()),
            Self::Frozen(cluster) => block_in_place(|| cluster.thaw()),
            Self::ReadOnly(cluster) => read_only(cluster, "off").await,
        }
    }
}

/// Bounds the files that a process may write, in bytes.
fn limit_files(process: &Process, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Some(process.pid()), Resource::Fsize, limit).unwrap();
}

/// Has every session of a server only read, or write again.
async fn read_only(cluster: &Cluster, value: &str) {
    let mut connection = PgConnection::connect(cluster.url()).await.unwrap();
    for sql in [
        format!("ALTER SYSTEM SET default_transaction_read_only = {value}"),
        "SELECT pg_reload_conf()".to_owned(),
    ] {
        connection.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

// === impl Streams ===

impl Streams {
    /// Starts them, and waits until all run; a caller of each front, and one of gRPC who may resume.
    async fn start(process: &Process, upstream: &Upstream) -> Self {
        let long = json!([{"role": "user", "content": "Long?"}]);
        let bodies = [
            (
                "/v1/chat/completions",
                json!({"model": "default", "messages": long, "stream": true}),
            ),
            (
                "/v1/messages",
                json!({"model": "default", "messages": long, "stream": true, "max_tokens": 100_000}),
            ),
            (
                "/v1/responses",
                json!({"model": "default", "input": "Long?", "stream": true, "store": false}),
            ),
        ];
        let mut fronts = JoinSet::new();
        for (path, body) in bodies {
            let address = process.front_address.clone();
            fronts.spawn(async move { post_with(address, path, &[], &body).await });
        }
        let (client, mut grpc) = (process.recovery(), JoinSet::new());
        grpc.spawn(async move {
            let mut folding = Folding::default();
            let invocation = resumable(streaming("Long?", RewindMode::Rewind));
            let mut stream = start(client.clone(), invocation).await.unwrap();
            folding.follow(&mut stream, usize::MAX).await;
            folding.insist(&client).await;
            folding
        });
        upstream.await_request(4).await;
        Self { fronts, grpc }
    }

    /// Waits for their ends; each must hold the whole answer. Returns the invocations, and what the
    /// client of gRPC holds.
    async fn whole(self) -> (Vec<String>, Folding) {
        let ended = async {
            (
                self.fronts.join_all().await,
                self.grpc.join_all().await.remove(0),
            )
        };
        let (answers, folding) = timeout(Duration::from_mins(2), ended)
            .await
            .expect("every stream ends");
        let mut invocations = vec![folding.invocation.clone()];
        for answer in &answers {
            assert!(
                answer.status == 200 && answer.clean && streamed(answer) == text(),
                "not whole: {:?} {}…",
                answer.headers,
                &answer.body[answer.body.len().saturating_sub(1500)..]
            );
            invocations.push(answer.header("x-relight-invocation").unwrap().to_owned());
        }
        assert!(folding.is_completed(), "{:?}", folding.terminal);
        assert_eq!(folding.text(), text());
        (invocations, folding)
    }
}

/// The text of a stream that says that it is whole; empty where it does not.
fn streamed(answer: &Answer) -> String {
    if answer.body.contains("[DONE]") {
        return answer.text();
    }
    if answer.body.contains("message_stop") {
        let message = folded(answer);
        return message["content"][0]["text"].as_str().unwrap().to_owned();
    }
    let last = answer.events().pop().unwrap_or(Value::Null);
    if last["type"] != "response.completed" {
        return String::new();
    }
    let text = last["response"]["output"][0]["content"][0]["text"].as_str();
    text.unwrap_or_default().to_owned()
}

// === impl Others ===

impl Others {
    /// Makes a call each 100 ms; each must be answered in time. Where ends are `written_first`, one
    /// that was recorded when it began may be told that its end cannot be.
    fn start(process: &Process, written_first: bool) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (client, mut calling) = (process.recovery(), JoinSet::new());
        calling.spawn(async move {
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while !*stopped.borrow() {
                let began = Instant::now();
                let request = InvokeWithRecoveryRequest {
                    invocation: Some(asking("Short?")),
                };
                let mut client = client.clone();
                let called = timeout(ANSWERED_WITHIN, client.invoke_with_recovery(request));
                match called.await.expect("other calls are answered") {
                    Ok(answered) => {
                        let outcome = answered.into_inner().outcome;
                        let is_answer = matches!(outcome, Some(Outcome::Completion(_)));
                        assert!(is_answer, "{outcome:?}");
                    }
                    Err(status) => assert!(
                        written_first && status.code() == tonic::Code::Unavailable,
                        "{status:?}"
                    ),
                }
                (calls, longest) = (calls + 1, longest.max(began.elapsed()));
                sleep(Duration::from_millis(100)).await;
            }
            (calls, longest)
        });
        Self { stop, calling }
    }

    /// Ends them, and returns how many were answered.
    async fn answered(self) -> usize {
        self.stop.send_replace(true);
        self.calling.join_all().await[0].0
    }
}

/// Takes a store away while answers stream, and gives it back.
async fn outlives(store: Store, mode: &str) {
    let upstream = fast_upstream().await;
    let process = store.serve(mode, &upstream).await;
    let streams = Streams::start(&process, &upstream).await;
    sleep(AROUND).await;
    let others = Others::start(&process, mode == "strict");
    let away = store.take(&process).await;
    sleep(outage()).await;
    assert!(others.answered().await > 0, "other calls were answered");
    store.give_back(&process, away).await;
    let (invocations, folding) = streams.whole().await;
    for invocation in invocations {
        recorded(&process, &invocation).await;
    }
    // A client that has nothing yet reads the same answer from the journal.
    let mut again = Folding {
        token: folding.token.clone(),
        ..Folding::default()
    };
    again.insist(&process.recovery()).await;
    assert_eq!(again.text(), text());
    promised(&process).await;
}

/// Waits until an invocation is recorded as answered.
async fn recorded(process: &Process, id: &str) {
    let invocation = Some(get_invocation_request::Invocation::InvocationId(
        id.to_owned(),
    ));
    let request = GetInvocationRequest { invocation };
    let waiting = async {
        loop {
            let found = process.recovery().get_invocation(request.clone()).await;
            let record = found.ok().and_then(|found| found.into_inner().invocation);
            if let Some(record) = record.filter(|record| record.finished_at.is_some()) {
                return record;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let record = timeout(Duration::from_mins(3), waiting)
        .await
        .expect("its end is recorded");
    assert!(record.outcome.is_some(), "{record:?}");
}

/// Waits until a call that needs the journal is served.
async fn promised(process: &Process) {
    let request = InvokeWithRecoveryRequest {
        invocation: Some(Invocation {
            request_id: "once".to_owned(),
            ..asking("Short?")
        }),
    };
    let waiting = async {
        while let Err(status) = process
            .recovery()
            .invoke_with_recovery(request.clone())
            .await
        {
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(30), waiting)
        .await
        .expect("the store is used again");
}

/// Takes a store away while answers stream, and signals the process to end meanwhile.
async fn ends_in_time(store: Store, mode: &str) {
    let upstream = fast_upstream().await;
    let mut process = store.serve(mode, &upstream).await;
    let mut streams = Streams::start(&process, &upstream).await;
    sleep(AROUND).await;
    let _away = store.take(&process).await;
    sleep(AROUND).await;
    process.signal(Signal::TERM);
    let code = timeout(ENDED_WITHIN, process.ended())
        .await
        .expect("a signal ends it in its time");
    assert_eq!(code, Some(0), "{:?}", process.log());
    streams.grpc.abort_all();
}

fn file() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_a_signal_outlive_a_file_that_is_locked_or_full() {
    let _room = whole_room().await;
    outlives(Store::Locked(file()), "fast").await;
    outlives(Store::Locked(file()), "strict").await;
    outlives(Store::Full(file()), "fast").await;
    ends_in_time(Store::Locked(file()), "fast").await;
    ends_in_time(Store::Full(file()), "strict").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_a_signal_outlive_a_database_that_is_stopped_paused_or_only_reads() {
    let _room = whole_room().await;
    for away in [Store::Stopped, Store::Frozen, Store::ReadOnly] {
        let Some(cluster) = Cluster::start() else {
            return;
        };
        outlives(away(cluster), "fast").await;
    }
    let (Some(stopped), Some(paused)) = (Cluster::start(), Cluster::start()) else {
        return;
    };
    ends_in_time(Store::Stopped(stopped), "fast").await;
    ends_in_time(Store::Frozen(paused), "strict").await;
}
