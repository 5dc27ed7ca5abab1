//! The gauges: what is so at the moment of a scrape, rather than what has happened.
//!
//! They are observed, not pushed, so that a target that left the configuration leaves no series
//! behind.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use opentelemetry::{KeyValue, metrics::Meter};
use parking_lot::{Mutex, MutexGuard};

use super::TargetNames;
use crate::domain::{
    circuit::{CircuitState, GateKind},
    ids::{TargetId, TenantId},
    semconv::{label, metric},
};

/// Most stores with a series of their own.
const MAX_STORES: usize = 16;

/// Levels that their owners count, read at each scrape.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GaugeLevels {
    /// Invocations in flight.
    pub inflight: i64,
    /// Invocations that wait for a circuit or gate.
    pub parked: i64,
    /// Open watch streams.
    pub watchers: i64,
    /// Events that slow watch streams did not get, since the beginning.
    pub watchers_missed: u64,
    /// The state of each target's circuit.
    pub circuits: Vec<(TargetId, CircuitState)>,
    /// Gates of the keys of pools, each with whether it is closed.
    pub keys: Vec<(TargetId, Arc<str>, GateKind, bool)>,
    /// Tokens left in the retry budgets of targets.
    pub budgets: Vec<(TargetId, f64)>,
    /// Contents of the journal.
    pub journal: JournalLevels,
    /// Tool servers that were asked, each with whether it lists its tools.
    pub tool_servers: Vec<(String, bool)>,
    /// Calls that were refused because of a limit: the tenant, the limit, how many so far.
    pub limited: Vec<(TenantId, &'static str, u64)>,
    /// Live replicas of the fleet, this one with them; `None` without a fleet.
    pub replicas: Option<u64>,
    /// The other replicas that were asked, each with whether the last question reached it.
    pub peers: Vec<(String, bool)>,
}

/// Contents of the journal, as of its newest compaction, and what waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalLevels {
    /// Steps that wait to be recorded.
    pub waiting: u64,
    /// Steps that were delivered but not recorded, since the start.
    pub dropped: u64,
    /// Invocations that ran without a record, since the start.
    pub unrecorded: u64,
    /// Invocations.
    pub invocations: u64,
    /// Steps.
    pub steps: u64,
    /// Bytes of all that it keeps.
    pub bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Invocations whose steps the retention took, since the beginning.
    pub stripped: u64,
    /// Invocations that the retention removed whole, since the beginning.
    pub deleted: u64,
    /// Threads that the retention removed, since the beginning.
    pub threads_removed: u64,
}

/// State at this moment.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    pub(super) inflight: AtomicI64,
    pub(super) parked: AtomicI64,
    pub(super) watchers: AtomicI64,
    pub(super) draining: AtomicBool,
    /// Events that the metrics themselves missed.
    pub(super) metrics_missed: AtomicU64,
    source: OnceLock<Source>,
    board: Mutex<Board>,
}

/// A gauge of one number: its name, what it means, how it is read.
type Level = (&'static str, &'static str, fn(&Gauges) -> i64);

/// The same of the journal.
type JournalLevel = (&'static str, &'static str, fn(JournalLevels) -> u64);

struct Source(Box<dyn Fn() -> GaugeLevels + Send + Sync>);

#[derive(Debug, Default)]
struct Board {
    gates: BTreeMap<(TargetId, &'static str), bool>,
    budgets: BTreeMap<TargetId, f64>,
    stores: BTreeMap<String, bool>,
    known: TargetNames,
}

// === impl Source ===

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

// === impl Gauges ===

impl Gauges {
    /// Reads levels from there as well; the first source stays.
    pub(super) fn read_from(&self, source: Box<dyn Fn() -> GaugeLevels + Send + Sync>) {
        // A second source would be a programming error; the first one stays.
        let _ = self.source.set(Source(source));
    }

    fn levels(&self) -> GaugeLevels {
        self.source
            .get()
            .map(|source| (source.0)())
            .unwrap_or_default()
    }

    /// Forgets all but these targets.
    pub(super) fn targets_changed(&self, names: TargetNames) {
        let mut board = self.board();
        board.gates.retain(|(target, _), _| names.contains(target));
        for target in names.targets() {
            for gate in GateKind::ALL {
                let key = (target.clone(), gate.as_str());
                board.gates.entry(key).or_insert(false);
            }
        }
        board.budgets.retain(|target, _| names.contains(target));
        board.known = names;
    }

    pub(super) fn gate_moved(&self, target: &TargetId, gate: GateKind, closed: bool) {
        let mut board = self.board();
        if board.known.contains(target) {
            board.gates.insert((target.clone(), gate.as_str()), closed);
        }
    }

    pub(super) fn budget_is(&self, target: &TargetId, level: f64) {
        let mut board = self.board();
        if board.known.contains(target) {
            board.budgets.insert(target.clone(), level);
        }
    }

    pub(super) fn store_is(&self, store: &str, up: bool) {
        let mut board = self.board();
        if board.stores.len() < MAX_STORES || board.stores.contains_key(store) {
            board.stores.insert(store.to_owned(), up);
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock()
    }

    /// Registers all gauges with a meter.
    pub(super) fn observed_by(self: &Arc<Self>, meter: &Meter) {
        self.observe_process(meter);
        self.observe_targets(meter);
        self.observe_tool_servers(meter);
        self.observe_limits(meter);
        self.observe_replicas(meter);
        self.observe_journal(meter);
    }

    fn observe_journal(self: &Arc<Self>, meter: &Meter) {
        let levels: [JournalLevel; 5] = [
            (
                metric::JOURNAL_WAITING,
                "Steps that wait to be recorded",
                |journal| journal.waiting,
            ),
            (
                metric::JOURNAL_INVOCATIONS,
                "Invocations that the journal keeps",
                |journal| journal.invocations,
            ),
            (
                metric::JOURNAL_STEPS,
                "Steps that the journal keeps",
                |journal| journal.steps,
            ),
            (
                metric::JOURNAL_SIZE,
                "Bytes that the journal keeps",
                |journal| journal.bytes,
            ),
            (
                metric::JOURNAL_THREADS,
                "Threads that the journal keeps",
                |journal| journal.threads,
            ),
        ];
        for (name, description, read) in levels {
            let gauges = Arc::clone(self);
            meter
                .u64_observable_gauge(name)
                .with_description(description)
                .with_callback(move |observer| observer.observe(read(gauges.levels().journal), &[]))
                .build();
        }
        let gauges = Arc::clone(self);
        meter
            .u64_observable_counter(metric::JOURNAL_DROPPED)
            .with_description("Steps that were delivered but not recorded")
            .with_callback(move |observer| observer.observe(gauges.levels().journal.dropped, &[]))
            .build();
        let gauges = Arc::clone(self);
        meter
            .u64_observable_counter(metric::JOURNAL_UNRECORDED)
            .with_description(
                "Invocations that ran without a record because the journal was unavailable",
            )
            .with_callback(move |observer| {
                observer.observe(gauges.levels().journal.unrecorded, &[]);
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .u64_observable_counter(metric::JOURNAL_REMOVED)
            .with_description(
                "Invocations from which the retention took their steps, or which it removed whole",
            )
            .with_callback(move |observer| {
                let JournalLevels {
                    stripped,
                    deleted,
                    threads_removed,
                    ..
                } = gauges.levels().journal;
                for (what, count) in [
                    ("steps", stripped),
                    ("invocation", deleted),
                    ("thread", threads_removed),
                ] {
                    observer.observe(count, &[KeyValue::new(label::WHAT, what)]);
                }
            })
            .build();
    }

    fn observe_process(self: &Arc<Self>, meter: &Meter) {
        let levels: [Level; 4] = [
            (metric::INFLIGHT, "Invocations in flight", |gauges| {
                gauges.inflight.load(Relaxed) + gauges.levels().inflight
            }),
            (
                metric::PARKED,
                "Invocations that wait for a circuit or gate",
                |gauges| gauges.parked.load(Relaxed) + gauges.levels().parked,
            ),
            (metric::WATCHERS, "Open watch streams", |gauges| {
                gauges.watchers.load(Relaxed) + gauges.levels().watchers
            }),
            (metric::DRAINING, "1 while the process drains", |gauges| {
                i64::from(gauges.draining.load(Relaxed))
            }),
        ];
        for (name, description, read) in levels {
            let gauges = Arc::clone(self);
            meter
                .i64_observable_gauge(name)
                .with_description(description)
                .with_callback(move |observer| observer.observe(read(&gauges), &[]))
                .build();
        }
        meter
            .u64_observable_gauge(metric::BUILD_INFO)
            .with_description("Always 1; its labels are the version and the commit that run")
            .with_callback(|observer| {
                let version = KeyValue::new(label::VERSION, env!("CARGO_PKG_VERSION"));
                observer.observe(
                    1,
                    &[
                        version,
                        KeyValue::new(label::COMMIT, env!("RELIGHT_COMMIT")),
                    ],
                );
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .u64_observable_counter(metric::EVENTS_MISSED)
            .with_unit("{event}")
            .with_description("Events that a slow reader did not get")
            .with_callback(move |observer| {
                let metrics = gauges.metrics_missed.load(Relaxed);
                let watch = gauges.levels().watchers_missed;
                for (reader, count) in [("metrics", metrics), ("watch", watch)] {
                    observer.observe(count, &[KeyValue::new(label::READER, reader)]);
                }
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .i64_observable_gauge(metric::STORE_UP)
            .with_description("1 while a store can be reached")
            .with_callback(move |observer| {
                for (store, up) in &gauges.board().stores {
                    observer.observe(
                        i64::from(*up),
                        &[KeyValue::new(label::STORE, store.clone())],
                    );
                }
            })
            .build();
    }

    fn observe_tool_servers(self: &Arc<Self>, meter: &Meter) {
        let gauges = Arc::clone(self);
        meter
            .i64_observable_gauge(metric::TOOL_SERVER_UP)
            .with_description("1 while a tool server lists its tools")
            .with_callback(move |observer| {
                for (server, up) in gauges.levels().tool_servers {
                    observer.observe(i64::from(up), &[KeyValue::new(label::SERVER, server)]);
                }
            })
            .build();
    }

    fn observe_replicas(self: &Arc<Self>, meter: &Meter) {
        let gauges = Arc::clone(self);
        meter
            .u64_observable_gauge(metric::FLEET_REPLICAS)
            .with_unit("{replica}")
            .with_description("Live replicas of the fleet, as this one knows them, itself included")
            .with_callback(move |observer| {
                if let Some(replicas) = gauges.levels().replicas {
                    observer.observe(replicas, &[]);
                }
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .i64_observable_gauge(metric::FLEET_PEER_UP)
            .with_description("1 while another replica of the fleet responds to this one")
            .with_callback(move |observer| {
                for (replica, up) in gauges.levels().peers {
                    observer.observe(i64::from(up), &[KeyValue::new(label::REPLICA, replica)]);
                }
            })
            .build();
    }

    fn observe_limits(self: &Arc<Self>, meter: &Meter) {
        let gauges = Arc::clone(self);
        meter
            .u64_observable_counter(metric::TENANT_LIMITED)
            .with_description("Calls refused because their tenant is over a limit")
            .with_callback(move |observer| {
                for (tenant, limit, count) in gauges.levels().limited {
                    observer.observe(
                        count,
                        &[
                            KeyValue::new(label::TENANT, tenant.to_string()),
                            KeyValue::new(label::LIMIT, limit),
                        ],
                    );
                }
            })
            .build();
    }

    fn observe_targets(self: &Arc<Self>, meter: &Meter) {
        let gauges = Arc::clone(self);
        meter
            .i64_observable_gauge(metric::CIRCUIT_STATE)
            .with_description("1 for the state that a target's circuit is in, 0 for the others")
            .with_callback(move |observer| {
                for (target, is) in gauges.levels().circuits {
                    for state in CircuitState::ALL {
                        observer.observe(
                            i64::from(state == is),
                            &[
                                KeyValue::new(label::TARGET, target.to_string()),
                                KeyValue::new(label::STATE, state.as_str()),
                            ],
                        );
                    }
                }
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .i64_observable_gauge(metric::GATE_CLOSED)
            .with_description("1 while a gate is closed")
            .with_callback(move |observer| {
                for ((target, gate), closed) in &gauges.board().gates {
                    observer.observe(
                        i64::from(*closed),
                        &[
                            KeyValue::new(label::TARGET, target.to_string()),
                            KeyValue::new(label::GATE, *gate),
                        ],
                    );
                }
                for (target, key, gate, closed) in gauges.levels().keys {
                    observer.observe(
                        i64::from(closed),
                        &[
                            KeyValue::new(label::TARGET, target.to_string()),
                            KeyValue::new(label::GATE, gate.as_str()),
                            KeyValue::new(label::KEY, key),
                        ],
                    );
                }
            })
            .build();
        let gauges = Arc::clone(self);
        meter
            .f64_observable_gauge(metric::BUDGET_LEVEL)
            .with_description("Tokens left in a target's retry budget")
            .with_callback(move |observer| {
                for (target, level) in gauges.levels().budgets {
                    gauges.budget_is(&target, level);
                }
                for (target, level) in &gauges.board().budgets {
                    observer.observe(*level, &[KeyValue::new(label::TARGET, target.to_string())]);
                }
            })
            .build();
    }
}
