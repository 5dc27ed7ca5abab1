//! What a call costs beside a bare reverse proxy: CPU time of the server per call, as a table.
//!
//! An upstream in this process responds at once, or a piece at a time as models do. Each kind of
//! call of `tests/cost` is made by 16 connections in a closed loop, first through a reverse proxy
//! of hyper that does nothing else, then through `relight serve`; each is a process of its own,
//! whose CPU time the system counts. Each cell is the median of three rounds, and means something
//! on an idle machine only. Unary calls are made by 64 connections, too, and long streams are also
//! measured with their pieces apart.
//!
//! `cargo bench --bench overhead` measures the binary that it builds,
//! `RELIGHT_BINARY=… cargo bench --bench overhead` another one; words after `--` select the kinds
//! that have one of them in their names. Two measurements of memory run only where a word is their
//! whole name: `resident after calls` (a fresh process, after 40,000 calls and after 200,000; some
//! minutes) and `streams in flight` (each of 400 streams after 120 pieces; a minute). So does the
//! table `under faults`: what an answer costs while one request in ten fails upstream, beside the same
//! gateway before a healthy provider.
//!
//! `RELIGHT_PEERS="NAME=COMMAND; NAME=COMMAND"` names other gateways, which are measured in the
//! same rounds where a call is over HTTP (`just bench-peers`). A command gets the upstream's
//! address as its last argument; the first line that it prints is the URL to call and what the
//! model is called there.
//!
//! With `RELIGHT_PROFILE` the first of the kinds is recorded by `perf` into that file instead
//! (`just profile`), with `RELIGHT_INSTRUCTIONS` the instructions of the server's own code are
//! counted into that file by `callgrind` (`just instructions`), which no other load changes. Runs
//! on Linux only.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark of what does not work must stop"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark has its own tasks, measures real time and reads the environment"
)]

#[path = "../tests/cost/callgrind.rs"]
mod callgrind;
#[path = "../tests/cost/calls.rs"]
mod calls;
#[path = "overhead/faults.rs"]
mod faults;
#[path = "overhead/load.rs"]
mod load;
#[path = "overhead/memory.rs"]
mod memory;
#[path = "overhead/passthrough.rs"]
mod passthrough;
#[path = "overhead/peers.rs"]
mod peers;
#[path = "overhead/process.rs"]
mod process;
#[path = "overhead/upstream.rs"]
mod upstream;

use std::time::Duration;

use calls::{FRONT_UNARY, KINDS, Kind, SQLITE, front, grpc};
use load::{CONNECTIONS, Measured, RATE, SCHEDULED, closed_loop, ms, open_loop};
use peers::Peer;
use process::{COUNTS, Process};
use upstream::Pace;

const ROUNDS: usize = 3;
const DURATION: Duration = Duration::from_secs(3);

/// Calls of each connection whose instructions are counted.
const COUNTED: u32 = 20;

/// The loads: which kinds are measured under each, by words of their names, what it adds to these,
/// how many connections call, and how streams come.
const LOADS: &[(&str, &str, u32, Pace)] = &[
    ("", "", CONNECTIONS, Pace::AtOnce),
    (
        "stream of 64",
        ", 2 ms apart",
        CONNECTIONS,
        Pace::Apart(Duration::from_millis(2)),
    ),
    ("unary", ", 64 connections", 64, Pace::AtOnce),
];

/// Long answers: how many events they have, and how these come.
const LONG: &[(usize, &str, Pace)] = &[
    (500, "500", Pace::AtOnce),
    (
        500,
        "500, 2 ms apart",
        Pace::Apart(Duration::from_millis(2)),
    ),
    (2_000, "2,000", Pace::AtOnce),
];

/// A row of the table.
struct Row {
    name: String,
    store: &'static str,
    kind: Kind,
    connections: u32,
    pace: Pace,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(upstream) = arguments
        .next()
        .filter(|first| first == passthrough::ARGUMENT)
        .and(arguments.next())
    {
        return passthrough::serve(upstream.parse().unwrap());
    }
    let is_kind = |argument: &String| !argument.is_empty() && !argument.starts_with('-');
    let wanted: Vec<String> = std::env::args().skip(1).filter(is_kind).collect();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(measure(&wanted));
}

async fn measure(wanted: &[String]) {
    let is_named = |name: &str| wanted.iter().any(|word| word == name);
    let (after_calls, in_flight) = (is_named(memory::AFTER_CALLS), is_named(memory::IN_FLIGHT));
    let under_faults = is_named(faults::UNDER_FAULTS);
    let peers = Peer::all();
    if after_calls {
        memory::after_calls().await;
    }
    if in_flight {
        memory::in_flight().await;
    }
    if under_faults {
        faults::under_faults(&peers).await;
    }
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    let (rows, others): (Vec<_>, Vec<_>) = rows().partition(|row| is_wanted(&row.name));
    if rows.is_empty() {
        let others: Vec<_> = others
            .iter()
            .map(|row| row.name.as_str())
            .chain([memory::AFTER_CALLS, memory::IN_FLIGHT, faults::UNDER_FAULTS])
            .collect();
        assert!(
            after_calls || in_flight || under_faults,
            "no kind has {wanted:?} in its name, of {others:?}"
        );
        return;
    }
    println!(
        "{:<48}{:>13}{:>10}{:>8}{:>10}",
        "kind", "bare proxy ms", "ms", "ratio", "calls/s"
    );
    for row in rows {
        let upstream = upstream::start(row.pace).await;
        let server = Process::relight(upstream, row.store).await;
        if let Ok(file) = std::env::var("RELIGHT_PROFILE") {
            let mut recorder = server.profile(&file, DURATION);
            row.measure(&server, row.kind).await;
            assert!(recorder.wait().await.unwrap().success(), "perf failed");
            return;
        }
        if let Ok(file) = std::env::var(COUNTS) {
            row.count(&server).await;
            server.count_instructions(true).await;
            let calls = row.count(&server).await.calls;
            server.count_instructions(false).await;
            let instructions = server.instructions(&file).await;
            println!(
                "{}: {} instructions a call ({calls} calls)",
                row.name,
                instructions / u64::from(calls)
            );
            return;
        }
        let proxy = Process::passthrough(upstream).await;
        let mut servers = vec![(row.name.clone(), server, Vec::new())];
        if row.kind == same_over_http(row.kind) {
            for peer in &peers {
                servers.push((
                    format!("{}, {}", row.name, peer.name),
                    peer.start(upstream).await,
                    Vec::new(),
                ));
            }
        }
        let mut bare = Vec::new();
        for _ in 0..ROUNDS {
            bare.push(row.measure(&proxy, same_over_http(row.kind)).await);
            for (_, server, rounds) in &mut servers {
                rounds.push(row.measure(server, row.kind).await);
            }
        }
        let bare = median(&bare, |round| round.cpu_ms);
        for (name, _, rounds) in servers {
            let (own, calls) = (
                median(&rounds, |round| round.cpu_ms),
                median(&rounds, |round| round.calls_per_second),
            );
            println!(
                "{name:<48}{bare:>13.3}{own:>10.3}{:>8.1}{calls:>10.0}",
                own / bare
            );
        }
    }
    if wanted.is_empty() {
        added_latency(&peers).await;
    }
}

/// Each kind under each load that it is measured under.
fn rows() -> impl Iterator<Item = Row> {
    let loaded = LOADS.iter().flat_map(|&(words, added, connections, pace)| {
        KINDS
            .iter()
            .filter(move |(name, ..)| name.contains(words))
            .map(move |&(name, store, kind)| Row {
                name: format!("{name}{added}"),
                store,
                kind,
                connections,
                pace,
            })
    });
    loaded.chain(LONG.iter().flat_map(long_rows))
}

/// A long answer as each interface gives it: whole, and as a stream.
fn long_rows(&(pieces, words, pace): &(usize, &str, Pace)) -> impl Iterator<Item = Row> {
    [("unary", false), ("stream", true)]
        .into_iter()
        .flat_map(move |(way, stream)| {
            let kinds = [
                ("front", front(stream, pieces)),
                ("grpc", grpc(stream, pieces)),
            ];
            kinds.map(|(interface, kind)| Row {
                name: format!("{interface} {way} of {words}"),
                store: "memory",
                kind,
                connections: CONNECTIONS,
                pace,
            })
        })
}

impl Row {
    async fn measure(&self, process: &Process, kind: Kind) -> Measured {
        closed_loop(process, kind, self.connections, |_, elapsed| {
            elapsed < DURATION
        })
        .await
    }

    /// Makes as many calls on a busy machine as on an idle one: what does not depend on their number
    /// is a part of the count.
    async fn count(&self, process: &Process) -> Measured {
        closed_loop(process, self.kind, self.connections, |calls, _| {
            calls < COUNTED
        })
        .await
    }
}

/// The median latency at a fixed rate, and what each process holds and how soon it was ready.
async fn added_latency(peers: &[Peer]) {
    let upstream = upstream::start(Pace::AtOnce).await;
    let bare = open_loop(&Process::passthrough(upstream).await, FRONT_UNARY).await;
    println!(
        "\nat {RATE} calls/s: {:.2} ms through the bare proxy (median)",
        ms(bare)
    );
    for store in ["memory", SQLITE] {
        report_latency(
            &format!("relight, {store}"),
            &Process::relight(upstream, store).await,
            bare,
        )
        .await;
    }
    for peer in peers {
        report_latency(&peer.name, &peer.start(upstream).await, bare).await;
    }
}

async fn report_latency(name: &str, server: &Process, bare: Duration) {
    let idle = server.resident_mib();
    let latency = open_loop(server, FRONT_UNARY).await;
    let (ready, ratio) = (
        ms(server.ready_after),
        latency.as_secs_f64() / bare.as_secs_f64(),
    );
    println!(
        "{name}: {:.2} ms ({ratio:.1} times), ready after {ready:.0} ms, idle {idle:.0} MiB, after {SCHEDULED} calls {:.0} MiB",
        ms(latency),
        server.resident_mib(),
    );
}

/// The call over HTTP that a call over gRPC is compared with.
const fn same_over_http(kind: Kind) -> Kind {
    match kind {
        Kind::Front { .. } => kind,
        Kind::Grpc { stream, pieces, .. } => Kind::Front {
            stream,
            pieces,
            prompt_bytes: 20,
            turns: 0,
            tools: 0,
        },
    }
}

fn median(rounds: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
