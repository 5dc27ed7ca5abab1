//! The instruments: every counter and histogram that Relight exports, with its unit and buckets.
//!
//! Buckets reach from tenths of a second to minutes, because that is how long model calls take.

use std::sync::Arc;

use opentelemetry::metrics::{Counter, Histogram, Meter};

use super::bound::BoundSeconds;
use crate::domain::semconv::metric;

const ATTEMPT_SECONDS: [f64; 14] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
];
const INVOCATION_SECONDS: [f64; 12] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0,
];
const RPC_SECONDS: [f64; 19] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 320.0,
];
const DELAY_SECONDS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0];
const JOURNAL_SECONDS: [f64; 11] = [
    0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0,
];
const ATTEMPT_COUNTS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0];
const TOKEN_COUNTS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Counters and histograms, by what they count; gauges are in `gauges.rs`.
#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) requests: RequestInstruments,
    pub(super) attempts: AttemptInstruments,
    pub(super) tokens: TokenInstruments,
    pub(super) invocations: InvocationInstruments,
    pub(super) recovery: RecoveryInstruments,
    pub(super) operation: OperationInstruments,
}

/// Requests that are served, and the journal for which they wait.
#[derive(Debug)]
pub(super) struct RequestInstruments {
    /// By method and status.
    pub(super) rpc: BoundSeconds<(Arc<str>, &'static str)>,
    /// By method, route and status.
    pub(super) http: BoundSeconds<(&'static str, Arc<str>, u16)>,
    /// By operation.
    pub(super) journal: BoundSeconds<&'static str>,
}

/// Attempts at targets.
#[derive(Debug)]
pub(super) struct AttemptInstruments {
    pub(super) ended: Counter<u64>,
    pub(super) duration: Histogram<f64>,
    pub(super) first_chunk: Histogram<f64>,
    pub(super) classifier_unknown: Counter<u64>,
}

/// Tokens and money that attempts take.
#[derive(Debug)]
pub(super) struct TokenInstruments {
    pub(super) usage: Histogram<u64>,
    pub(super) spent: Counter<u64>,
    pub(super) delivered: Counter<u64>,
    pub(super) cached: Counter<u64>,
    pub(super) cost_spent: Counter<f64>,
    pub(super) cost_delivered: Counter<f64>,
}

/// Invocations that ended.
#[derive(Debug)]
pub(super) struct InvocationInstruments {
    pub(super) ended: Counter<u64>,
    pub(super) duration: Histogram<f64>,
    pub(super) attempts: Histogram<u64>,
    pub(super) shed: Counter<u64>,
    pub(super) of_tenant: Counter<u64>,
    pub(super) tenant_tokens: Counter<u64>,
}

/// Steps that were taken about failures.
#[derive(Debug)]
pub(super) struct RecoveryInstruments {
    pub(super) decided: Counter<u64>,
    pub(super) succeeded: Counter<u64>,
    pub(super) delay: Histogram<f64>,
    pub(super) hedges: Counter<u64>,
    pub(super) fallbacks: Counter<u64>,
    pub(super) injections: Counter<u64>,
    pub(super) budget_exhausted: Counter<u64>,
}

/// Changes of what is in force.
#[derive(Debug)]
pub(super) struct OperationInstruments {
    pub(super) circuit_transitions: Counter<u64>,
    pub(super) config_reloads: Counter<u64>,
    pub(super) release_decisions: Counter<u64>,
}

// === impl Instruments ===

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            requests: RequestInstruments::new(meter),
            attempts: AttemptInstruments::new(meter),
            tokens: TokenInstruments::new(meter),
            invocations: InvocationInstruments::new(meter),
            recovery: RecoveryInstruments::new(meter),
            operation: OperationInstruments::new(meter),
        }
    }
}

impl RequestInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            rpc: BoundSeconds::new(seconds(
                meter,
                metric::RPC_DURATION,
                &RPC_SECONDS,
                "Duration of gRPC calls, streams to their end",
            )),
            http: BoundSeconds::new(seconds(
                meter,
                metric::HTTP_DURATION,
                &RPC_SECONDS,
                "Duration of requests of the HTTP front, streams to their end",
            )),
            journal: BoundSeconds::new(seconds(
                meter,
                metric::JOURNAL_DURATION,
                &JOURNAL_SECONDS,
                "Duration of journal operations",
            )),
        }
    }
}

impl AttemptInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            ended: counter(meter, metric::ATTEMPTS, "{attempt}", "Attempts that ended"),
            duration: seconds(
                meter,
                metric::GEN_AI_DURATION,
                &ATTEMPT_SECONDS,
                "Duration of sent attempts",
            ),
            first_chunk: seconds(
                meter,
                metric::GEN_AI_FIRST_CHUNK,
                &ATTEMPT_SECONDS,
                "Time to the first token of an attempt",
            ),
            classifier_unknown: counter(
                meter,
                metric::CLASSIFIER_UNKNOWN,
                "{failure}",
                "Failures that no rule matched",
            ),
        }
    }
}

impl TokenInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            usage: counts(
                meter,
                metric::GEN_AI_TOKENS,
                "{token}",
                &TOKEN_COUNTS,
                "Tokens of an attempt",
            ),
            spent: counter(
                meter,
                metric::TOKENS_SPENT,
                "{token}",
                "Tokens of all attempts",
            ),
            delivered: counter(
                meter,
                metric::TOKENS_DELIVERED,
                "{token}",
                "Tokens of the answers that were kept; spent less delivered is the price of recovery",
            ),
            cached: counter(
                meter,
                metric::TOKENS_CACHED,
                "{token}",
                "Tokens of prompts that the target's prompt cache held (read), and that were written to it",
            ),
            cost_spent: money(
                meter,
                metric::COST_SPENT,
                "Money for all attempts at targets with prices",
            ),
            cost_delivered: money(
                meter,
                metric::COST_DELIVERED,
                "Money for the answers that were kept; spent less delivered is the price of recovery",
            ),
        }
    }
}

impl InvocationInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            ended: counter(
                meter,
                metric::INVOCATIONS,
                "{invocation}",
                "Invocations that ended",
            ),
            duration: seconds(
                meter,
                metric::INVOCATION_DURATION,
                &INVOCATION_SECONDS,
                "Duration of invocations, recovery included",
            ),
            attempts: counts(
                meter,
                metric::INVOCATION_ATTEMPTS,
                "{attempt}",
                &ATTEMPT_COUNTS,
                "Attempts that an invocation took",
            ),
            shed: counter(
                meter,
                metric::SHED,
                "{invocation}",
                "Invocations refused because of too much work",
            ),
            of_tenant: counter(
                meter,
                metric::TENANT_INVOCATIONS,
                "{invocation}",
                "Invocations that ended, of the first 64 tenants; those of others are counted as other",
            ),
            tenant_tokens: counter(
                meter,
                metric::TENANT_TOKENS,
                "{token}",
                "Tokens of all attempts, of the first 64 tenants; those of others are counted as other",
            ),
        }
    }
}

impl RecoveryInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            decided: counter(
                meter,
                metric::RECOVERIES,
                "{recovery}",
                "Recoveries that were decided",
            ),
            succeeded: counter(
                meter,
                metric::RECOVERIES_SUCCEEDED,
                "{recovery}",
                "Recoveries that led to an answer",
            ),
            delay: seconds(
                meter,
                metric::RETRY_DELAY,
                &DELAY_SECONDS,
                "Waits before recoveries, as planned",
            ),
            hedges: counter(
                meter,
                metric::HEDGES,
                "{attempt}",
                "Attempts started beside a slow one",
            ),
            fallbacks: counter(
                meter,
                metric::FALLBACKS,
                "{attempt}",
                "Moves to another target",
            ),
            injections: counter(
                meter,
                metric::INJECTIONS,
                "{note}",
                "Notes that informed the model of a failure",
            ),
            budget_exhausted: counter(
                meter,
                metric::BUDGET_EXHAUSTED,
                "{refusal}",
                "Times a retry budget was found empty",
            ),
        }
    }
}

impl OperationInstruments {
    fn new(meter: &Meter) -> Self {
        Self {
            circuit_transitions: counter(
                meter,
                metric::CIRCUIT_TRANSITIONS,
                "{transition}",
                "Moves of circuits",
            ),
            config_reloads: counter(
                meter,
                metric::CONFIG_RELOADS,
                "{reload}",
                "Configurations put in force or refused",
            ),
            release_decisions: counter(
                meter,
                metric::RELEASE_DECISIONS,
                "{decision}",
                "Decisions about releases",
            ),
        }
    }
}

fn counter(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    description: &'static str,
) -> Counter<u64> {
    let counter = meter.u64_counter(name).with_unit(unit);
    counter.with_description(description).build()
}

fn money(meter: &Meter, name: &'static str, description: &'static str) -> Counter<f64> {
    let counter = meter.f64_counter(name).with_unit("{currency}");
    counter.with_description(description).build()
}

fn seconds(
    meter: &Meter,
    name: &'static str,
    buckets: &[f64],
    description: &'static str,
) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_unit("s");
    histogram
        .with_description(description)
        .with_boundaries(buckets.to_vec())
        .build()
}

fn counts(
    meter: &Meter,
    name: &'static str,
    unit: &'static str,
    buckets: &[f64],
    description: &'static str,
) -> Histogram<u64> {
    let histogram = meter.u64_histogram(name).with_unit(unit);
    histogram
        .with_description(description)
        .with_boundaries(buckets.to_vec())
        .build()
}
