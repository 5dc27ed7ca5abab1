//! Loads: connections that call as fast as they can, and calls on schedule.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    calls::{Caller, Kind},
    process::Process,
};

/// Connections where nothing else is said.
pub(crate) const CONNECTIONS: u32 = 16;

/// Calls in each second of the open loop.
pub(crate) const RATE: u32 = 200;

/// Calls of the open loop.
pub(crate) const SCHEDULED: u32 = RATE * 5;

/// How a process did under load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    pub(crate) calls: u32,
    pub(crate) cpu_ms: f64,
    pub(crate) calls_per_second: f64,
}

/// Calls by some connections, each of which makes its next call when the last has ended, while its
/// number of calls and the time since the begin let it.
pub(crate) async fn closed_loop(
    process: &Process,
    kind: Kind,
    connections: u32,
    continues: impl Fn(u32, Duration) -> bool + Clone + Send + 'static,
) -> Measured {
    let callers = callers(process, connections);
    let (began, before) = (Instant::now(), process.cpu());
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let continues = continues.clone();
        tasks.spawn(async move {
            let mut calls = 0;
            while continues(calls, began.elapsed()) {
                caller.call(kind).await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u32 = tasks.join_all().await.into_iter().sum();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), process.cpu() - before);
    Measured {
        calls,
        cpu_ms: ms(cpu) / f64::from(calls),
        calls_per_second: f64::from(calls) / seconds,
    }
}

/// The median latency of calls that start on schedule, whatever became of those before.
pub(crate) async fn open_loop(process: &Process, kind: Kind) -> Duration {
    let idle = Arc::new(Mutex::new(callers(process, CONNECTIONS)));
    let (mut ticks, mut tasks) = (interval(Duration::from_secs(1) / RATE), JoinSet::new());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..SCHEDULED {
        let due = ticks.tick().await;
        let (idle, interfaces) = (Arc::clone(&idle), process.interfaces.clone());
        tasks.spawn(async move {
            let free = idle.lock().await.pop();
            let mut caller = free.unwrap_or_else(|| Caller::new(&interfaces));
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

fn callers(process: &Process, connections: u32) -> Vec<Caller> {
    (0..connections)
        .map(|_| Caller::new(&process.interfaces))
        .collect()
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
