//! A tool of which nothing is known is executed at most once, whatever happens to its connection: a
//! thousand connections are broken at random points, and what was executed is counted at the tool.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use relight::internals::{
    grpc::v1::{FailureClass, invoke_with_recovery_response::Outcome},
    wire_server::{
        WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{relight::Relight, tool_stage::calling};

/// How many connections are broken.
const FAULTS: usize = 1_000;

/// Calls that are under way at once.
const AT_ONCE: usize = 16;

/// Longer than what one connection carries between two breaks, in bytes.
const LONGEST: usize = 3_000;

/// Between Relight and a tool server: passes bytes on, and breaks each connection after a random
/// number of them.
struct FaultyProxy {
    address: SocketAddr,
    broken: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl FaultyProxy {
    async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, broken) = (
            listener.local_addr().unwrap(),
            Arc::new(AtomicUsize::new(0)),
        );
        let count = Arc::clone(&broken);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            for seed in 0.. {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                let (mut rng, count) = (StdRng::seed_from_u64(seed), Arc::clone(&count));
                connections.spawn(async move {
                    let Ok(server) = TcpStream::connect(upstream).await else {
                        return;
                    };
                    let (up, down) = (rng.random_range(0..LONGEST), rng.random_range(0..LONGEST));
                    let silent = rng.random_range(0..5) == 0;
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        () = pass(from_client, to_server, up) => {}
                        () = pass(from_server, to_client, down) => {}
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    // What was read is dropped with both connections, some of them after a silence.
                    if silent {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                });
            }
        });
        Self {
            address,
            broken,
            _accepting: accepting,
        }
    }
}

/// Passes so many bytes on.
async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut left: usize,
) {
    let mut buffer = vec![0; 512];
    while left > 0 {
        let most = left.min(buffer.len());
        match from.read(&mut buffer[..most]).await {
            Ok(read) if read > 0 && to.write_all(&buffer[..read]).await.is_ok() => left -= read,
            _ => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_idempotent_is_executed_at_most_once_in_a_thousand_faults() {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let (script, wire) = (
        McpScript::new(vec![ScriptedTool::new(
            "add_comment",
            &schema,
            |arguments| Executed::Result(arguments.clone()),
        )]),
        WireServer::start().await.unwrap(),
    );
    script.play_on(&wire);
    let proxy = FaultyProxy::start(wire.address()).await;
    let relight = Relight::start(&format!(
        "policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms }} }} }} }}\n\
         circuit: {{ mode: \"off\" }}\n\
         journal: {{ store: memory }}\n\
         tools:\n  servers: {{ blog: {{ url: \"http://{}/mcp\" }} }}\n  \
           tools: {{ add_comment: {{ timeout: 300ms }} }}\n",
        proxy.address
    ))
    .await;
    let is_enough = || proxy.broken.load(Ordering::Relaxed) >= FAULTS;
    let outcomes: Vec<(String, Outcome)> = stream::iter(0..FAULTS * 10)
        .take_while(|_| std::future::ready(!is_enough()))
        .map(|number| {
            let (text, relight) = (format!("comment {number}"), &relight);
            async move {
                let response = relight
                    .invoke(calling("blog/add_comment", json!({ "text": text })))
                    .await;
                (text, response.outcome.unwrap())
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut executed: BTreeMap<String, usize> = BTreeMap::new();
    for (_, arguments) in script.calls() {
        *executed
            .entry(arguments["text"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    let (mut done, mut unknown, mut not_done) = (0, 0, 0);
    for (text, outcome) in &outcomes {
        let times = executed.get(text).copied().unwrap_or_default();
        match outcome {
            Outcome::Completion(_) => {
                assert_eq!(times, 1, "{text} was done");
                done += 1;
            }
            Outcome::Failure(failure)
                if failure.failure_class() == FailureClass::OutcomeUnknown =>
            {
                assert!(times <= 1, "{text} was executed {times} times");
                unknown += 1;
            }
            Outcome::Failure(failure) => {
                assert_eq!(
                    times, 0,
                    "{text} failed as surely not executed: {failure:#?}"
                );
                not_done += 1;
            }
        }
    }
    let broken = proxy.broken.load(Ordering::Relaxed);
    assert!(
        broken >= FAULTS && done > 100 && unknown > 100,
        "{broken} faults: {done}, {unknown}, {not_done}"
    );
}
