//! The instruments: every counter and histogram that Relight exports, with its unit and buckets.
//!
//! Buckets reach from tenths of a second to minutes, because that is how long model calls take.

use opentelemetry::metrics::{Counter, Histogram, Meter};

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

/// Counters and histograms; gauges are in `gauges.rs`.
#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) rpc_duration: Histogram<f64>,
    pub(super) http_duration: Histogram<f64>,
    pub(super) operation_duration: Histogram<f64>,
    pub(super) first_chunk: Histogram<f64>,
    pub(super) token_usage: Histogram<u64>,
    pub(super) invocations: Counter<u64>,
    pub(super) tenant_invocations: Counter<u64>,
    pub(super) tenant_tokens: Counter<u64>,
    pub(super) invocation_duration: Histogram<f64>,
    pub(super) invocation_attempts: Histogram<u64>,
    pub(super) attempts: Counter<u64>,
    pub(super) recoveries: Counter<u64>,
    pub(super) recoveries_succeeded: Counter<u64>,
    pub(super) retry_delay: Histogram<f64>,
    pub(super) hedges: Counter<u64>,
    pub(super) fallbacks: Counter<u64>,
    pub(super) injections: Counter<u64>,
    pub(super) tokens_spent: Counter<u64>,
    pub(super) tokens_delivered: Counter<u64>,
    pub(super) tokens_cached: Counter<u64>,
    pub(super) cost_spent: Counter<f64>,
    pub(super) cost_delivered: Counter<f64>,
    pub(super) circuit_transitions: Counter<u64>,
    pub(super) budget_exhausted: Counter<u64>,
    pub(super) shed: Counter<u64>,
    pub(super) classifier_unknown: Counter<u64>,
    pub(super) config_reloads: Counter<u64>,
    pub(super) release_decisions: Counter<u64>,
    pub(super) journal_duration: Histogram<f64>,
}

// === impl Instruments ===

impl Instruments {
    #[expect(clippy::too_many_lines, reason = "one field for each instrument")]
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, unit: &'static str, description: &'static str| {
            meter
                .u64_counter(name)
                .with_unit(unit)
                .with_description(description)
                .build()
        };
        let money = |name: &'static str, description: &'static str| {
            meter
                .f64_counter(name)
                .with_unit("{currency}")
                .with_description(description)
                .build()
        };
        let seconds = |name: &'static str, buckets: &[f64], description: &'static str| {
            let histogram = meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(description);
            histogram.with_boundaries(buckets.to_vec()).build()
        };
        let counts =
            |name: &'static str, unit: &'static str, buckets: &[f64], description: &'static str| {
                let histogram = meter
                    .u64_histogram(name)
                    .with_unit(unit)
                    .with_description(description);
                histogram.with_boundaries(buckets.to_vec()).build()
            };
        Self {
            rpc_duration: seconds(
                metric::RPC_DURATION,
                &RPC_SECONDS,
                "Duration of gRPC calls, streams to their end",
            ),
            http_duration: seconds(
                metric::HTTP_DURATION,
                &RPC_SECONDS,
                "Duration of requests of the HTTP front, streams to their end",
            ),
            operation_duration: seconds(
                metric::GEN_AI_DURATION,
                &ATTEMPT_SECONDS,
                "Duration of sent attempts",
            ),
            first_chunk: seconds(
                metric::GEN_AI_FIRST_CHUNK,
                &ATTEMPT_SECONDS,
                "Time to the first token of an attempt",
            ),
            token_usage: counts(
                metric::GEN_AI_TOKENS,
                "{token}",
                &TOKEN_COUNTS,
                "Tokens of an attempt",
            ),
            invocations: counter(
                metric::INVOCATIONS,
                "{invocation}",
                "Invocations that ended",
            ),
            tenant_invocations: counter(
                metric::TENANT_INVOCATIONS,
                "{invocation}",
                "Invocations that ended, of the first 64 tenants; those of others are counted as other",
            ),
            tenant_tokens: counter(
                metric::TENANT_TOKENS,
                "{token}",
                "Tokens of all attempts, of the first 64 tenants; those of others are counted as other",
            ),
            invocation_duration: seconds(
                metric::INVOCATION_DURATION,
                &INVOCATION_SECONDS,
                "Duration of invocations, recovery included",
            ),
            invocation_attempts: counts(
                metric::INVOCATION_ATTEMPTS,
                "{attempt}",
                &ATTEMPT_COUNTS,
                "Attempts that an invocation took",
            ),
            attempts: counter(metric::ATTEMPTS, "{attempt}", "Attempts that ended"),
            recoveries: counter(
                metric::RECOVERIES,
                "{recovery}",
                "Recoveries that were decided",
            ),
            recoveries_succeeded: counter(
                metric::RECOVERIES_SUCCEEDED,
                "{recovery}",
                "Recoveries that led to an answer",
            ),
            retry_delay: seconds(
                metric::RETRY_DELAY,
                &DELAY_SECONDS,
                "Waits before recoveries, as planned",
            ),
            hedges: counter(
                metric::HEDGES,
                "{attempt}",
                "Attempts started beside a slow one",
            ),
            fallbacks: counter(metric::FALLBACKS, "{attempt}", "Moves to another target"),
            injections: counter(
                metric::INJECTIONS,
                "{note}",
                "Notes that informed the model of a failure",
            ),
            tokens_spent: counter(metric::TOKENS_SPENT, "{token}", "Tokens of all attempts"),
            tokens_delivered: counter(
                metric::TOKENS_DELIVERED,
                "{token}",
                "Tokens of the answers that were kept; spent less delivered is the price of recovery",
            ),
            tokens_cached: counter(
                metric::TOKENS_CACHED,
                "{token}",
                "Tokens of prompts that the target's prompt cache held (read), and that were written to it",
            ),
            cost_spent: money(
                metric::COST_SPENT,
                "Money for all attempts at targets with prices",
            ),
            cost_delivered: money(
                metric::COST_DELIVERED,
                "Money for the answers that were kept; spent less delivered is the price of recovery",
            ),
            circuit_transitions: counter(
                metric::CIRCUIT_TRANSITIONS,
                "{transition}",
                "Moves of circuits",
            ),
            budget_exhausted: counter(
                metric::BUDGET_EXHAUSTED,
                "{refusal}",
                "Times a retry budget was found empty",
            ),
            shed: counter(
                metric::SHED,
                "{invocation}",
                "Invocations refused because of too much work",
            ),
            classifier_unknown: counter(
                metric::CLASSIFIER_UNKNOWN,
                "{failure}",
                "Failures that no rule matched",
            ),
            config_reloads: counter(
                metric::CONFIG_RELOADS,
                "{reload}",
                "Configurations put in force or refused",
            ),
            release_decisions: counter(
                metric::RELEASE_DECISIONS,
                "{decision}",
                "Decisions about releases",
            ),
            journal_duration: seconds(
                metric::JOURNAL_DURATION,
                &JOURNAL_SECONDS,
                "Duration of journal operations",
            ),
        }
    }
}
