//! The span of an attempt and of the wait inside it.
//!
//! Attempts are siblings, hedges too: a link between them would make waterfalls draw one under the other. The span
//! carries what the layers decided on the way: the target and why, the circuit, what was left of the budget, the note.

use opentelemetry::{KeyValue, trace::SpanKind};

use super::{CANCELLED, ChatSpan, ChatStart, Guard, Node, failure_attributes, wire};
use crate::domain::{
    failure::{Failure, Wait},
    ids::TargetId,
    invocation::AttemptCause,
    semconv::{attr, relight},
};

/// The span of one attempt.
#[derive(Debug)]
pub struct AttemptSpan {
    guard: Guard,
}

/// Where the spans of an attempt hang and what is said of it: given to the layers below, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AttemptTrace {
    node: Node,
}

/// The span of a wait.
#[derive(Debug)]
pub struct BackoffSpan {
    guard: Guard,
}

/// Which target was chosen, and what was known then.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The target.
    pub target: &'a TargetId,
    /// The state of its circuit: `closed`, `open`, `half_open`, `recovering`.
    pub circuit: &'a str,
    /// What is left of its retry budget, in tokens; `None` where none applies.
    pub budget_left: Option<f64>,
    /// Why this target, in a few of Relight's words.
    pub reason: &'a str,
}

pub(super) fn open(parent: &Node, number: u32, cause: AttemptCause) -> AttemptSpan {
    let attributes = vec![
        KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN"),
        KeyValue::new(relight::ATTEMPT_NUMBER, i64::from(number)),
        KeyValue::new(relight::ATTEMPT_CAUSE, cause.label()),
    ];
    AttemptSpan {
        guard: Guard::new(parent.child(format!("attempt {number}"), SpanKind::Internal, attributes), CANCELLED),
    }
}

// === impl AttemptSpan ===

impl AttemptSpan {
    /// Where the layers below hang their spans.
    #[must_use]
    pub fn trace(&self) -> AttemptTrace {
        AttemptTrace { node: self.guard.node.clone() }
    }

    /// Ends the span of an attempt that answered; `winner` when its answer is the one that was kept.
    pub fn finish_ok(self, winner: bool) {
        self.guard.node.set([KeyValue::new(relight::ATTEMPT_WINNER, winner)]);
        self.guard.end();
    }

    /// Ends the span of an attempt that failed; `sent` is false when Relight refused it before anything was sent.
    pub fn finish_failed(self, failure: &Failure, sent: bool) {
        let node = &self.guard.node;
        node.set(failure_attributes(failure));
        node.set([KeyValue::new(relight::ATTEMPT_SENT, sent)]);
        node.fail(failure);
        self.guard.end();
    }

    /// Ends the span of an attempt that was cancelled on purpose, such as the slower of two: no error.
    pub fn finish_cancelled(self) {
        drop(self);
    }
}

// === impl AttemptTrace ===

impl AttemptTrace {
    /// The hex id of the attempt's span; empty without tracing.
    #[must_use]
    pub fn span_id(&self) -> String {
        self.node.span_id()
    }

    /// Says which target was chosen and why.
    pub fn chose(&self, choice: Choice<'_>) {
        self.node.set([
            KeyValue::new(relight::TARGET, choice.target.to_string()),
            KeyValue::new(relight::CIRCUIT, choice.circuit.to_owned()),
            KeyValue::new(relight::TARGET_REASON, choice.reason.to_owned()),
        ]);
        if let Some(left) = choice.budget_left {
            self.node.set([KeyValue::new(relight::BUDGET_LEFT, left)]);
        }
    }

    /// Says whether the model was told of its failure: the vehicle of the note, or `None`. The note itself never.
    pub fn injected(&self, vehicle: Option<&str>) {
        self.node.set([KeyValue::new(relight::INJECTED, vehicle.is_some())]);
        if let Some(vehicle) = vehicle {
            self.node.set([KeyValue::new(relight::INJECTED_VEHICLE, vehicle.to_owned())]);
        }
    }

    /// Says what of the request was changed so that the target takes it, in Relight's words.
    pub fn adapted(&self, change: &str) {
        self.node.set([KeyValue::new(relight::ADAPTATION, change.to_owned())]);
    }

    /// Opens the span of the wait before this attempt.
    #[must_use]
    pub fn backoff(&self, wait: Wait) -> BackoffSpan {
        let attributes = vec![
            KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN"),
            KeyValue::new(relight::BACKOFF_SECONDS, wait.duration.as_secs_f64()),
            KeyValue::new(relight::BACKOFF_SOURCE, wait.source.as_str()),
        ];
        BackoffSpan {
            guard: Guard::new(self.node.child("backoff".to_owned(), SpanKind::Internal, attributes), CANCELLED),
        }
    }

    /// Opens the span of the model call that this attempt makes.
    #[must_use]
    pub fn chat(&self, start: ChatStart<'_>) -> ChatSpan {
        wire::open_chat(&self.node, start)
    }

    /// Opens the span of the tool call that this attempt makes.
    #[must_use]
    pub fn tool(&self, tool: &str) -> ChatSpan {
        wire::open_tool(&self.node, tool)
    }
}

// === impl BackoffSpan ===

impl BackoffSpan {
    /// Ends the span of a wait that was waited to its end.
    pub fn finish(self) {
        self.guard.end();
    }
}
