//! What a call costs beside a bare reverse proxy: CPU time of the server per call, as a table.
//!
//! An upstream in this process responds at once, or a piece at a time as models do. Each kind of call of `tests/cost` is made
//! by 16 connections in a closed loop, first through a reverse proxy of hyper that does nothing else, then through
//! `relight serve`; each is a process of its own, whose CPU time the system counts. Each cell is the median of three rounds,
//! and means something on an idle machine only.
//!
//! `cargo bench --bench overhead` measures the binary that it builds, `RELIGHT_BINARY=… cargo bench --bench overhead` another
//! one; words after `--` select the kinds that have one of them in their names. With `RELIGHT_PROFILE` the first of them
//! is recorded by `perf` into that file instead (`just profile`), with `RELIGHT_INSTRUCTIONS` the instructions of the server's
//! own code are counted into that file by `callgrind` (`just instructions`), which no other load changes. Runs on Linux only.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark of what does not work must stop")]
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark has its own tasks, measures real time and reads the environment"
)]

#[path = "../tests/cost/calls.rs"]
mod calls;
#[path = "overhead/passthrough.rs"]
mod passthrough;
#[path = "overhead/process.rs"]
mod process;
#[path = "overhead/upstream.rs"]
mod upstream;

use std::{sync::Arc, time::Duration};

use calls::{Caller, KINDS, Kind};
use process::{COUNTS, Process};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

const CONNECTIONS: usize = 16;
const ROUNDS: usize = 3;
const DURATION: Duration = Duration::from_secs(3);

/// The kind that is also measured with its pieces apart, and how far apart they are.
const PACED: (&str, Duration) = ("stream of 64", Duration::from_millis(2));

/// Calls in each second of the open loop.
const RATE: u32 = 200;

/// How a process did under load.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    calls: u32,
    cpu_ms: f64,
    calls_per_second: f64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(upstream) = arguments.next().filter(|first| first == passthrough::ARGUMENT).and(arguments.next()) {
        return passthrough::serve(upstream.parse().unwrap());
    }
    let is_kind = |argument: &String| !argument.is_empty() && !argument.starts_with('-');
    let wanted: Vec<String> = std::env::args().skip(1).filter(is_kind).collect();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(measure(&wanted));
}

async fn measure(wanted: &[String]) {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    let (paced, pace) = PACED;
    let at_once = KINDS.iter().map(|(name, store, kind)| ((*name).to_owned(), *store, *kind, Duration::ZERO));
    let apart = KINDS.iter().filter(|(name, ..)| name.contains(paced));
    let apart =
        apart.map(|(name, store, kind)| (format!("{name}, {} ms apart", pace.as_millis()), *store, *kind, pace));
    let (kinds, others): (Vec<_>, Vec<_>) = at_once.chain(apart).partition(|(name, ..)| is_wanted(name));
    let others: Vec<String> = others.into_iter().map(|(name, ..)| name).collect();
    assert!(!kinds.is_empty(), "no kind has {wanted:?} in its name, of {others:?}");
    println!("{:<32}{:>13}{:>10}{:>8}{:>10}", "kind", "bare proxy ms", "ms", "ratio", "calls/s");
    for (name, store, kind, pace) in kinds {
        let upstream = upstream::start(pace).await;
        let proxy = Process::passthrough(upstream).await;
        let server = Process::relight(upstream, store).await;
        if let Ok(file) = std::env::var("RELIGHT_PROFILE") {
            let mut recorder = server.profile(&file, DURATION);
            closed_loop(&server, kind).await;
            assert!(recorder.wait().await.unwrap().success(), "perf failed");
            return;
        }
        if let Ok(file) = std::env::var(COUNTS) {
            closed_loop(&server, kind).await;
            server.count_instructions(true).await;
            let calls = closed_loop(&server, kind).await.calls;
            server.count_instructions(false).await;
            let instructions = server.instructions(&file).await;
            println!("{name}: {} instructions a call ({calls} calls)", instructions / u64::from(calls));
            return;
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push((closed_loop(&proxy, same_over_http(kind)).await, closed_loop(&server, kind).await));
        }
        let bare = median(rounds.iter().map(|round| round.0.cpu_ms));
        let own = median(rounds.iter().map(|round| round.1.cpu_ms));
        let calls = median(rounds.iter().map(|round| round.1.calls_per_second));
        println!("{name:<32}{bare:>13.3}{own:>10.3}{:>8.1}{calls:>10.0}", own / bare);
    }
    if wanted.is_empty() {
        added_latency().await;
    }
}

/// The median latency at a fixed rate, and what the process holds and how soon it was ready.
async fn added_latency() {
    let upstream = upstream::start(Duration::ZERO).await;
    let bare = open_loop(&Process::passthrough(upstream).await, KINDS[0].2).await;
    println!("\nat {RATE} calls/s: {:.2} ms through the bare proxy (median)", ms(bare));
    for store in ["memory", "sqlite:{}/journal.db"] {
        let server = Process::relight(upstream, store).await;
        let idle = server.resident_mib();
        let latency = open_loop(&server, KINDS[0].2).await;
        let (ready, ratio) = (ms(server.ready_after), latency.as_secs_f64() / bare.as_secs_f64());
        println!(
            "relight, {store}: {:.2} ms ({ratio:.1} times), ready after {ready:.0} ms, idle {idle:.0} MiB, after {} calls {:.0} MiB",
            ms(latency),
            RATE * 5,
            server.resident_mib(),
        );
    }
}

/// Calls by some connections, each of which makes its next call when the last has ended.
async fn closed_loop(process: &Process, kind: Kind) -> Measured {
    let callers = connections(process).await;
    let (began, before) = (Instant::now(), process.cpu());
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        tasks.spawn(async move {
            let mut calls = 0_u32;
            while began.elapsed() < DURATION {
                caller.call(kind).await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u32 = tasks.join_all().await.into_iter().sum();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), process.cpu() - before);
    Measured { calls, cpu_ms: ms(cpu) / f64::from(calls), calls_per_second: f64::from(calls) / seconds }
}

/// The median latency of calls that start on schedule, whatever became of those before.
async fn open_loop(process: &Process, kind: Kind) -> Duration {
    let idle: Arc<tokio::sync::Mutex<Vec<Caller>>> = Arc::new(connections(process).await.into());
    let (mut ticks, mut tasks) = (interval(Duration::from_secs(1) / RATE), JoinSet::new());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..RATE * 5 {
        let due = ticks.tick().await;
        let (idle, (front, grpc)) = (Arc::clone(&idle), (process.front, process.grpc));
        tasks.spawn(async move {
            let free = idle.lock().await.pop();
            let mut caller = match free {
                Some(caller) => caller,
                None => Caller::connect(front, grpc).await,
            };
            caller.call(kind).await;
            let latency = due.elapsed();
            idle.lock().await.push(caller);
            latency
        });
    }
    let mut latencies = tasks.join_all().await;
    latencies.sort_unstable();
    latencies[latencies.len() / 2]
}

async fn connections(process: &Process) -> Vec<Caller> {
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        callers.push(Caller::connect(process.front, process.grpc).await);
    }
    callers
}

/// The call over HTTP that a call over gRPC is compared with.
const fn same_over_http(kind: Kind) -> Kind {
    match kind {
        Kind::Front { .. } => kind,
        Kind::Grpc { stream, pieces, .. } => Kind::Front { stream, pieces, prompt_bytes: 20, turns: 0, tools: 0 },
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
