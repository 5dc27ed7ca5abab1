//! Stuck readers cost nothing: not the upstream, not the invocation, not the memory.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use relight::internals::grpc::v1::{
    RewindMode, StreamWithRecoveryResponse, recovery_service_client::RecoveryServiceClient,
    stream_event::Body,
};
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use crate::support::{
    folding::{Folding, start},
    http::metrics,
    process::Process,
    relight::streaming,
    room::room,
};

const READERS: usize = 1000;
const CONNECTIONS: usize = 10;
const WORDS: usize = 300;

/// What the process may grow by between a quarter of the answers and their end, over all readers.
/// The answers grow by some 5 MiB meanwhile, in all the places that hold them; a queue for each
/// reader grows by twice this bound.
const GROWTH: u64 = 20 << 20;

/// Everything is bounded, tightly: what is kept for readers, and what a connection may have unread.
fn config() -> String {
    let text = "word ".repeat(WORDS);
    format!(
        r#"
providers: {{ model: {{ dialect: scripted, script: {{ otherwise: {{ answer: {{ text: "{text}", tokens_per_second: 20 }} }} }} }} }}
targets: {{ main: {{ provider: model, model: m-1 }} }}
routes: {{ default: {{ targets: [main], deadline: 10m }} }}
timers: {{ first_token: 60s, first_token_alone: 60s, soft_first_token: 0ms, idle: 60s }}
concurrency: {{ max: 2000 }}
admission: {{ max_in_flight: 2000 }}
journal: {{ tail_bytes: 4KiB, payloads: none }}
telemetry: {{ log: {{ level: error }} }}
"#
    )
}

async fn connected(server: &Process) -> RecoveryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    // A stream that is not read holds up itself and no other.
    let endpoint = endpoint
        .initial_stream_window_size(4 << 10)
        .initial_connection_window_size(64 << 20);
    RecoveryServiceClient::new(endpoint.connect().await.unwrap())
}

/// Begins a stream, reads until the answer has begun, and reads no more.
async fn stuck(
    client: RecoveryServiceClient<Channel>,
) -> (Folding, Streaming<StreamWithRecoveryResponse>) {
    let mut folding = Folding::default();
    let mut stream = start(client, streaming("Tell me.", RewindMode::Rewind))
        .await
        .unwrap();
    while folding.blocks.is_empty() {
        assert!(folding.follow(&mut stream, 1).await.is_none());
    }
    (folding, stream)
}

/// Waits until no invocation runs.
async fn idle(server: &Process) {
    let is_idle = |line: &str| line.starts_with("relight_inflight") && line.ends_with(" 0");
    let idle = async {
        while !metrics(&server.admin_address).await.lines().any(is_idle) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), idle)
        .await
        .expect("all of them end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_stuck_readers_do_not_make_the_server_grow() {
    let _room = room().await;
    let server = Process::start(&config()).await;
    let clients =
        futures_util::future::join_all((0..CONNECTIONS).map(|_| connected(&server))).await;
    let begun =
        stream::iter((0..READERS).map(|number| stuck(clients[number % CONNECTIONS].clone())));
    let readers: Vec<_> = begun.buffer_unordered(READERS).collect().await;
    assert_eq!(readers.len(), READERS);

    // One that reads shows how far they all are: their models send at the same pace.
    let mut pacer = start(server.recovery(), streaming("Tell me.", RewindMode::Rewind))
        .await
        .unwrap();
    let (mut words, mut early) = (0, 0);
    while let Some(message) = pacer.message().await.unwrap() {
        words += usize::from(matches!(
            message.event.unwrap().body,
            Some(Body::BlockDelta(_))
        ));
        if words == WORDS / 4 && early == 0 {
            early = server.memory("VmRSS");
        }
    }
    assert!(early > 0, "{words} words came");
    // No answer waits for its reader: all invocations end.
    idle(&server).await;
    let late = server.memory("VmRSS");
    assert!(
        late.saturating_sub(early) < GROWTH,
        "it grew from {early} to {late} bytes"
    );

    // They come to themselves, and hold the whole answer.
    let whole = "word ".repeat(WORDS);
    let ends = readers
        .into_iter()
        .map(|(mut folding, mut stream)| async move {
            let ended = folding.follow(&mut stream, usize::MAX).await;
            assert!(ended.is_none(), "{ended:?}");
            folding
        });
    for folding in futures_util::future::join_all(ends).await {
        assert!(folding.is_completed());
        assert_eq!(folding.text(), whole);
    }
}
