//! A tool of which nothing is known is executed at most once, whatever happens to its connection: a
//! thousand connections are broken at random points, and what was executed is counted at the tool.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use relight::internals::{
    grpc::v1::{FailureClass, invoke_with_recovery_response::Outcome},
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{relight::Relight, room::room, tool_stage::calling};

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
    let _room = room().await;
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

/// What a server does with one call of a tool that it executes, or not.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// It executes the tool, and then this happens to the result.
    Executed(&'static str),
    /// It does not execute it, and says so.
    Refused(&'static str),
}

const AFTER_EXECUTION: [&str; 14] = [
    "fine", "fine", "500", "502", "503", "504", "reset", "silent", "timeout", "lost", "protocol",
    "missing", "misfit", "empty",
];
const INSTEAD: [&str; 4] = ["400", "422", "-32602", "-32601"];

// === impl Fault ===

impl Fault {
    fn any(rng: &mut StdRng) -> Self {
        if rng.random_range(0..4) == 0 {
            Self::Refused(INSTEAD[rng.random_range(0..INSTEAD.len())])
        } else {
            Self::Executed(AFTER_EXECUTION[rng.random_range(0..AFTER_EXECUTION.len())])
        }
    }

    fn result(self, arguments: &serde_json::Value) -> Executed {
        let wire = |reply: Reply| Executed::Wire(Box::new(reply));
        let said = |error: &str| {
            Executed::Result(json!({"success": false, "result": null, "error": error}))
        };
        match self {
            Self::Executed("fine") => Executed::Result(json!({"done": arguments["text"]})),
            Self::Executed("reset") => wire(Reply::reset()),
            Self::Executed("silent") => wire(Reply::silence()),
            Self::Executed("timeout") => said("Request timeout"),
            Self::Executed("lost") => said("Connection reset by peer"),
            Self::Executed("protocol") => said("MCP error -32602: Invalid arguments"),
            Self::Executed("missing") => Executed::Result(json!("Error: 404 not found")),
            Self::Executed("misfit") => Executed::Result(json!({"done": 7})),
            Self::Executed("empty") => Executed::Result(json!("")),
            Self::Refused("-32602") => Executed::Refused(-32602, "Invalid arguments".to_owned()),
            Self::Refused("-32601") => Executed::Refused(-32601, "Unknown tool".to_owned()),
            Self::Executed(status) | Self::Refused(status) => {
                wire(Reply::status(status.parse().unwrap()))
            }
        }
    }
}

/// A server of the tool `pay`, which notes what it executes.
fn paying(seed: u64, executed: &Arc<Mutex<Vec<String>>>) -> ScriptedTool {
    let (executed, rng) = (
        Arc::clone(executed),
        Mutex::new(StdRng::seed_from_u64(seed)),
    );
    let schema =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let declared =
        json!({"type": "object", "properties": {"done": {"type": "string"}}, "required": ["done"]});
    ScriptedTool::new("pay", &schema, move |arguments| {
        let fault = Fault::any(&mut rng.lock().unwrap());
        if let (Fault::Executed(_), Some(text)) = (fault, arguments["text"].as_str()) {
            executed.lock().unwrap().push(text.to_owned());
        }
        fault.result(arguments)
    })
    .with("outputSchema", declared)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_idempotent_is_executed_at_most_once_by_all_equal_tools_whatever_they_say() {
    let _room = room().await;
    let executed = Arc::new(Mutex::new(Vec::new()));
    let (mut wires, mut servers) = (Vec::new(), String::new());
    let seed: u64 = rand::rng().random();
    for (name, seed) in [("a", seed), ("b", !seed)] {
        let wire = WireServer::start().await.unwrap();
        McpScript::new(vec![paying(seed, &executed)]).play_on(&wire);
        servers.extend([format!(
            "    {name}: {{ url: \"http://{}/mcp\" }}\n",
            wire.address()
        )]);
        wires.push(wire);
    }
    let relight = Relight::start(&format!(
        "policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms, cap: 5ms }} }} }} }}\n\
         circuit: {{ mode: \"off\" }}\n\
         journal: {{ store: memory }}\n\
         tools:\n  servers:\n{servers}  \
           tools: {{ pay: {{ timeout: 300ms }} }}\n  \
           groups: {{ paying: [a/pay, b/pay] }}\n"
    ))
    .await;
    let outcomes: Vec<(String, Outcome)> = stream::iter(0..FAULTS)
        .map(|number| {
            let (text, relight) = (format!("payment {number}"), &relight);
            async move {
                let response = relight
                    .invoke(calling("a/pay", json!({ "text": text })))
                    .await;
                (text, response.outcome.unwrap())
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let executed = executed.lock().unwrap();
    let mut done = 0;
    for (text, outcome) in &outcomes {
        let times = executed.iter().filter(|one| *one == text).count();
        assert!(
            times <= 1,
            "seed {seed}: {text} was executed {times} times: {outcome:#?}"
        );
        if matches!(outcome, Outcome::Completion(_)) {
            assert_eq!(times, 1, "seed {seed}: {text} was done");
            done += 1;
        }
    }
    assert!(done > 0, "seed {seed}: {} were executed", executed.len());
}
