//! Root span of an invocation, and the spans of calls that come back to one later.
//!
//! An invocation keeps its one span even when it outlives the call that started it; a later call
//! gets a span of its own with a link. The root of a recovered invocation carries no error: that is
//! the convention, and its outcome says more.

use std::time::Duration;

use opentelemetry::{
    KeyValue,
    trace::{Link, SpanBuilder, SpanKind},
};

use super::{
    AttemptSpan, SpanGuard, SpanNode, Spans, attempt, count, failure_attributes, remote_parent,
};
use crate::domain::{
    invocation::{AttemptCause, Invocation, Outcome, TraceContext},
    semconv::{attr, relight},
};

/// Most labels of a caller that a span carries; the rest is left out.
const MAX_LABELS: usize = 16;

const ABANDONED: &[(&str, &str)] = &[
    (relight::OUTCOME, "cancelled"),
    (attr::ERROR_TYPE, "cancelled"),
];

/// Through which door a call came in; it names the root span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoint {
    /// A gRPC method, fully qualified: `relight.v1.RecoveryService/InvokeWithRecovery`.
    Grpc(&'static str),
    /// A plain HTTP route.
    Http {
        /// The method.
        method: &'static str,
        /// The route's template.
        route: &'static str,
    },
}

/// The root span of one invocation.
#[derive(Debug)]
pub struct InvocationSpan {
    guard: SpanGuard,
    is_http: bool,
}

/// Parent of the spans of an invocation: given to the layers below, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct InvocationTrace {
    node: SpanNode,
}

/// The span of a wait for a closed target.
#[derive(Debug)]
pub struct ParkedSpan {
    _guard: SpanGuard,
}

/// The span of a call that comes back to an invocation: a watch, a resume.
#[derive(Debug)]
pub struct RpcSpan {
    guard: SpanGuard,
}

// === impl EntryPoint ===

impl EntryPoint {
    fn name(self) -> String {
        match self {
            Self::Grpc(method) => method.to_owned(),
            Self::Http { method, route } => format!("{method} {route}"),
        }
    }

    fn attributes(self) -> Vec<KeyValue> {
        let kind = KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN");
        match self {
            Self::Grpc(method) => {
                vec![
                    kind,
                    KeyValue::new(attr::RPC_SYSTEM, "grpc"),
                    KeyValue::new(attr::RPC_METHOD, method),
                ]
            }
            Self::Http { method, route } => vec![
                kind,
                KeyValue::new(attr::HTTP_METHOD, method),
                KeyValue::new(attr::HTTP_ROUTE, route),
                // Routes that start invocations have no parameters.
                KeyValue::new(attr::URL_PATH, route),
            ],
        }
    }
}

// === impl Spans ===

impl Spans {
    /// Opens the root span of an invocation, under the caller's span if the caller sent one.
    #[must_use]
    pub fn invocation(&self, entry: EntryPoint, invocation: &Invocation) -> InvocationSpan {
        let builder = || {
            let mut attributes = entry.attributes();
            attributes.push(KeyValue::new(
                relight::INVOCATION,
                invocation.id.to_string(),
            ));
            attributes.push(KeyValue::new(relight::ROUTE, invocation.route.to_string()));
            attributes.push(KeyValue::new(
                relight::OPERATION,
                invocation.operation.to_string(),
            ));
            if !invocation.tenant.is_empty() {
                attributes.push(KeyValue::new(
                    relight::TENANT,
                    invocation.tenant.to_string(),
                ));
            }
            if let Some(thread) = &invocation.thread {
                attributes.push(KeyValue::new(attr::SESSION_ID, thread.to_string()));
                attributes.push(KeyValue::new(attr::GEN_AI_CONVERSATION, thread.to_string()));
            }
            for (label, value) in invocation.labels.iter().take(MAX_LABELS) {
                attributes.push(KeyValue::new(
                    format!("{}{label}", relight::LABEL_PREFIX),
                    value.clone(),
                ));
            }
            SpanBuilder::from_name(entry.name())
                .with_kind(SpanKind::Server)
                .with_attributes(attributes)
        };
        let guard = SpanGuard::new(
            self.open(&remote_parent(&invocation.trace), builder),
            ABANDONED,
        );
        InvocationSpan {
            guard,
            is_http: matches!(entry, EntryPoint::Http { .. }),
        }
    }

    /// Opens the span of a call that comes back to an invocation, linked to the invocation's own
    /// span if `origin` (as `InvocationTrace::outgoing` gave it) is known.
    #[must_use]
    pub fn returning(
        &self,
        entry: EntryPoint,
        caller: &TraceContext,
        origin: &TraceContext,
    ) -> RpcSpan {
        let builder = || {
            let linked = remote_parent(origin);
            let links = if linked.is_valid() {
                vec![Link::with_context(linked)]
            } else {
                Vec::new()
            };
            SpanBuilder::from_name(entry.name())
                .with_kind(SpanKind::Server)
                .with_attributes(entry.attributes())
                .with_links(links)
        };
        RpcSpan {
            guard: SpanGuard::new(self.open(&remote_parent(caller), builder), super::CANCELLED),
        }
    }
}

// === impl InvocationSpan ===

impl InvocationSpan {
    /// Hex trace id; empty when spans are disabled.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.guard.node.trace_id()
    }

    /// Returns the trace to which the spans of the layers below belong.
    #[must_use]
    pub fn trace(&self) -> InvocationTrace {
        InvocationTrace {
            node: self.guard.node.clone(),
        }
    }

    /// Records the HTTP status of the call's response; an invocation that came in by gRPC has none.
    pub fn answered_over_http(&self, outcome: &Outcome, has_begun: bool) {
        if !self.is_http {
            return;
        }
        let status = match &outcome.result {
            Err(failure) if !has_begun => failure.class.row().http.0,
            // A stream that has begun said 200 long ago.
            Ok(_) | Err(_) => 200,
        };
        self.guard
            .node
            .set(|| [KeyValue::new(attr::HTTP_STATUS, i64::from(status))]);
    }

    /// Ends the span with the invocation's outcome. Only an invocation that failed for good is an
    /// error.
    pub fn finish(self, outcome: &Outcome) {
        let node = &self.guard.node;
        node.set(|| {
            let made = |wanted: fn(AttemptCause) -> bool| {
                count(
                    outcome
                        .attempts
                        .iter()
                        .filter(|attempt| wanted(attempt.cause))
                        .count() as u64,
                )
            };
            let waited: Duration = outcome
                .attempts
                .iter()
                .filter_map(|attempt| attempt.wait)
                .map(|wait| wait.duration)
                .sum();
            [
                KeyValue::new(relight::OUTCOME, outcome.label()),
                KeyValue::new(relight::ATTEMPTS, count(outcome.attempts.len() as u64)),
                KeyValue::new(relight::RETRIES, made(is_retry)),
                KeyValue::new(
                    relight::FALLBACKS,
                    made(|cause| matches!(cause, AttemptCause::Fallback(_))),
                ),
                KeyValue::new(
                    relight::HEDGES,
                    made(|cause| matches!(cause, AttemptCause::Hedge)),
                ),
                KeyValue::new(relight::BACKOFF_TOTAL, waited.as_secs_f64()),
            ]
        });
        if let Some(target) = &outcome.target {
            node.set(|| [KeyValue::new(relight::TARGET, target.to_string())]);
        }
        if let Err(failure) = &outcome.result {
            node.set(|| failure_attributes(failure));
            node.fail(failure);
        }
        self.guard.end();
    }
}

// === impl InvocationTrace ===

impl InvocationTrace {
    /// Hex trace id; empty when spans are disabled.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.node.trace_id()
    }

    /// Returns the invocation's span as W3C context; empty when spans are disabled.
    #[must_use]
    pub fn outgoing(&self) -> TraceContext {
        self.node.outgoing()
    }

    /// Records the gRPC status of the call's response, by its name (`UNAVAILABLE`).
    pub fn answered(&self, status: &'static str) {
        self.node.set(|| [KeyValue::new(attr::RPC_STATUS, status)]);
    }

    /// Opens the span of a wait for a closed target, which belongs to no attempt; it ends when it
    /// is dropped.
    #[must_use]
    pub fn parked(&self) -> ParkedSpan {
        let node = self.node.open_child(|| {
            let kind = vec![KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN")];
            SpanBuilder::from_name("parked")
                .with_kind(SpanKind::Internal)
                .with_attributes(kind)
        });
        ParkedSpan {
            _guard: SpanGuard {
                node,
                abandoned: None,
            },
        }
    }

    /// Plans the span of an attempt, its wait included: it starts when the attempt before it ended.
    #[must_use]
    pub fn attempt(&self) -> AttemptSpan {
        attempt::plan(&self.node)
    }
}

// === impl RpcSpan ===

impl RpcSpan {
    /// Hex trace id; empty when spans are disabled.
    #[must_use]
    pub fn trace_id(&self) -> String {
        self.guard.node.trace_id()
    }

    /// Ends the span with a gRPC status by its name (`OK`, `NOT_FOUND`). Only what the conventions
    /// count as a server's error is one.
    pub fn finish(self, status: &'static str) {
        let node = &self.guard.node;
        node.set(|| [KeyValue::new(attr::RPC_STATUS, status)]);
        if matches!(
            status,
            "UNKNOWN"
                | "DEADLINE_EXCEEDED"
                | "UNIMPLEMENTED"
                | "INTERNAL"
                | "UNAVAILABLE"
                | "DATA_LOSS"
        ) {
            node.error(status, || status.to_owned());
        }
        self.guard.end();
    }
}

/// Returns whether the same target was called again, in whatever way.
fn is_retry(cause: AttemptCause) -> bool {
    match cause {
        AttemptCause::Retry(_)
        | AttemptCause::Continue(_)
        | AttemptCause::Adapt(_)
        | AttemptCause::Extend
        | AttemptCause::Attach(_)
        | AttemptCause::Rotate(_) => true,
        AttemptCause::Initial
        | AttemptCause::Fallback(_)
        | AttemptCause::Hedge
        | AttemptCause::Chunk(_) => false,
    }
}
