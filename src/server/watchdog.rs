//! Detects workers of the runtime that do not return from a task, from a thread of its own.
//!
//! A worker that computes or blocks for long serves nothing else, and enough of them freeze the
//! process. The watchdog needs no worker to detect that: it logs which worker is stuck and since
//! when, and fails `/livez`, so that the process is replaced.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeMetrics},
    time::Instant,
};

/// Number of times that workers are checked within the time that they may take.
const LOOKS: u32 = 10;

/// Ends the watchdog's thread when it is dropped.
#[derive(Debug)]
pub(super) struct Watchdog {
    _end: mpsc::Sender<()>,
}

/// The last observation of a worker.
#[derive(Debug)]
struct Worker {
    seen: (u64, Duration),
    since: Instant,
    is_reported: bool,
}

/// Starts to watch the workers of this runtime; `live` is false as long as one of them has not come
/// back for `limit`.
///
/// # Errors
/// When no thread can be started.
pub(super) fn start(
    runtime: &Handle,
    limit: Duration,
    live: Arc<AtomicBool>,
) -> io::Result<Watchdog> {
    let (sender, end) = mpsc::channel::<()>();
    let metrics = runtime.metrics();
    let watch = move || {
        let mut workers: Vec<Worker> = (0..metrics.num_workers())
            .map(|index| Worker::new(&metrics, index))
            .collect();
        while end.recv_timeout(limit / LOOKS) == Err(RecvTimeoutError::Timeout) {
            let mut all_come_back = true;
            for (index, worker) in workers.iter_mut().enumerate() {
                all_come_back &= worker.comes_back(&metrics, index, limit);
            }
            live.store(all_come_back, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new()
        .name("relight-watchdog".to_owned())
        .spawn(watch)?;
    Ok(Watchdog { _end: sender })
}

// === impl Worker ===

impl Worker {
    fn new(metrics: &RuntimeMetrics, index: usize) -> Self {
        Self {
            seen: seen(metrics, index),
            since: Instant::now(),
            is_reported: false,
        }
    }

    /// Returns whether it was idle, or returned from a task, within the limit; logs once if it did
    /// not, and when it is back.
    fn comes_back(&mut self, metrics: &RuntimeMetrics, index: usize, limit: Duration) -> bool {
        let now = seen(metrics, index);
        // An odd number of parks and unparks: it waits for work.
        let is_idle = now.0 % 2 == 1;
        if now != self.seen || is_idle {
            if self.is_reported {
                let gone_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(
                    worker = index,
                    gone_ms,
                    "a worker of the runtime is back from its task"
                );
            }
            *self = Self {
                seen: now,
                since: Instant::now(),
                is_reported: false,
            };
            return true;
        }
        let gone = self.since.elapsed();
        if gone < limit {
            return true;
        }
        if !self.is_reported {
            self.is_reported = true;
            let threads = threads();
            let gone_ms = u64::try_from(gone.as_millis()).unwrap_or(u64::MAX);
            tracing::error!(
                worker = index,
                ?threads,
                gone_ms,
                "a worker of the runtime does not come back from its task; /livez fails"
            );
        }
        false
    }
}

/// Returns the values that change with everything that a worker does.
fn seen(metrics: &RuntimeMetrics, index: usize) -> (u64, Duration) {
    (
        metrics.worker_park_unpark_count(index),
        metrics.worker_total_busy_duration(index),
    )
}

/// Returns the worker threads of this process and the state of each (`1234 R`: runs, `S`: sleeps,
/// `D`: waits for a disk), if the host reports them.
fn threads() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let workers = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        let (id, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        name.starts_with("tokio")
            .then(|| format!("{id} {}", &rest[..1]))
    });
    workers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(20);

    fn wait_until(live: &AtomicBool, wanted: bool) {
        let began = Instant::now();
        while live.load(Ordering::Relaxed) != wanted {
            assert!(began.elapsed() < PATIENCE, "not {wanted} in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_worker_that_does_not_come_back_is_noticed_and_so_is_its_return() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let live = Arc::new(AtomicBool::new(true));
        let _watchdog = start(runtime.handle(), LIMIT, Arc::clone(&live)).unwrap();
        let (release, released) = mpsc::channel::<()>();
        runtime.spawn(async move {
            let _ = released.recv();
        });
        wait_until(&live, false);
        drop(release);
        wait_until(&live, true);
    }

    #[test]
    fn workers_that_are_idle_or_just_busy_are_well() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let live = Arc::new(AtomicBool::new(true));
        let _watchdog = start(runtime.handle(), LIMIT * 5, Arc::clone(&live)).unwrap();
        let busy = runtime.spawn(async {
            let began = Instant::now();
            while began.elapsed() < LIMIT * 15 {
                std::thread::sleep(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        });
        while !busy.is_finished() {
            assert!(live.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
