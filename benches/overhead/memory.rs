//! Resident memory: of a process after many calls, and of streams in flight.

use std::{io::Write as _, time::Duration};

use relight::internals::grpc::v1::{
    StreamWithRecoveryRequest, stream_with_recovery_request::Start,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::sleep,
};

use crate::{
    calls::{FRONT_UNARY, GRPC_UNARY, Interfaces, SQLITE, invocation},
    load::{CONNECTIONS, closed_loop},
    process::Process,
    upstream::{self, Pace},
};

pub(crate) const AFTER_CALLS: &str = "resident after calls";
pub(crate) const IN_FLIGHT: &str = "streams in flight";

/// What a process does late, such as records, belongs to the calls before.
const SETTLING: Duration = Duration::from_secs(1);

/// Streams that are open before those that are measured, so that code, tables and threads are
/// there.
const OPEN_BEFORE: u32 = 40;

/// So few that the sockets of both ends are within 1,024 open files.
const MEASURED: u32 = 400;

/// Pieces that each stream has got.
const PIECES: usize = 120;

/// The time between two pieces, so that each arrives alone.
const PACE: Duration = Duration::from_millis(50);

/// The time between the begins of two streams, so that no queue of connections overflows.
const BETWEEN_BEGINS: Duration = Duration::from_millis(5);

/// The resident memory of a fresh process when it is idle, after 40,000 calls and after 200,000.
pub(crate) async fn after_calls() {
    println!(
        "{AFTER_CALLS:<32}{:>15}{:>15}{:>15}",
        "0: MiB", "40,000: MiB", "200,000: MiB"
    );
    let upstream = upstream::start(Pace::AtOnce).await;
    for (interface, kind) in [("front", FRONT_UNARY), ("grpc", GRPC_UNARY)] {
        for (name, store) in [("sqlite", SQLITE), ("memory", "memory")] {
            let server = Process::relight(upstream, store).await;
            print!("{:<32}", format!("{interface}, {name}"));
            for calls in [0, 40_000, 160_000] {
                let calls_of_each = calls / CONNECTIONS;
                closed_loop(&server, kind, CONNECTIONS, move |calls, _| {
                    calls < calls_of_each
                })
                .await;
                sleep(SETTLING).await;
                print!("{:>15.1}", server.resident_mib());
                std::io::stdout().flush().unwrap();
            }
            println!();
        }
    }
}

/// The growth of the resident memory by each of many streams that have got some pieces and have not
/// ended.
pub(crate) async fn in_flight() {
    println!("{IN_FLIGHT:<32}{:>15}", "KiB each");
    let upstream = upstream::start(Pace::Open(PACE)).await;
    for (name, is_relight, is_grpc) in [
        ("bare proxy", false, false),
        ("front", true, false),
        ("grpc", true, true),
    ] {
        let server = if is_relight {
            Process::relight(upstream, "memory").await
        } else {
            Process::passthrough(upstream).await
        };
        let _before = open_streams(&server.interfaces, is_grpc, OPEN_BEFORE).await;
        let before = server.resident_mib();
        let _measured = open_streams(&server.interfaces, is_grpc, MEASURED).await;
        let each = (server.resident_mib() - before) * 1024.0 / f64::from(MEASURED);
        println!("{name:<32}{each:>15.1}");
    }
}

/// Opens streams, which stay so until what is returned is dropped.
async fn open_streams(interfaces: &Interfaces, is_grpc: bool, streams: u32) -> Vec<Box<dyn Send>> {
    let mut tasks = JoinSet::new();
    for _ in 0..streams {
        let interfaces = interfaces.clone();
        tasks.spawn(async move {
            if is_grpc {
                open_over_grpc(&interfaces).await
            } else {
                open_over_http(&interfaces).await
            }
        });
        sleep(BETWEEN_BEGINS).await;
    }
    let streams = tasks.join_all().await;
    sleep(SETTLING).await;
    streams
}

async fn open_over_http(interfaces: &Interfaces) -> Box<dyn Send> {
    let mut socket = interfaces.connect_front().await;
    for part in interfaces.chat(true, PIECES, 20, 0, 0) {
        socket.write_all(part.as_bytes()).await.unwrap();
    }
    let mut answer = Vec::new();
    while !is_last(&String::from_utf8_lossy(&answer)) {
        assert!(
            socket.read_buf(&mut answer).await.unwrap() > 0,
            "a stream ended"
        );
    }
    Box::new(socket)
}

async fn open_over_grpc(interfaces: &Interfaces) -> Box<dyn Send> {
    let mut client = interfaces.connect_grpc();
    let request = StreamWithRecoveryRequest {
        start: Some(Start::Invocation(invocation(true, PIECES, false))),
    };
    let mut steps = client
        .stream_with_recovery(request)
        .await
        .unwrap()
        .into_inner();
    while !is_last(&format!("{:?}", steps.message().await.unwrap().unwrap())) {}
    Box::new(steps)
}

fn is_last(text: &str) -> bool {
    text.contains(&format!("word {}", PIECES - 1))
}
