//! The span of an attempt and of the wait inside it.
//!
//! Attempts are siblings, hedges too: a link between them would make waterfalls draw one under the
//! other. The span carries what the layers decided on the way: the target and why, the circuit,
//! what was left of the budget, the note. It is opened when the attempt starts, backdated to when
//! it was planned: one that Relight refuses itself has no span.

use std::{mem, sync::Arc, time::SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use opentelemetry::{
    KeyValue,
    trace::{SpanBuilder, SpanKind},
};

use super::{CANCELLED, ChatSpan, ChatStart, SpanNode, ToolStart, failure_attributes, wire};
use crate::domain::{
    clock,
    failure::{Failure, Wait},
    ids::TargetId,
    invocation::AttemptCause,
    semconv::{attr, relight},
};

/// The span of one attempt; ends on drop, as cancelled unless it was finished.
#[derive(Debug)]
pub struct AttemptSpan {
    trace: AttemptTrace,
    finished: bool,
}

/// Parent of the spans of an attempt and the data that is written to them: given to the layers
/// below, cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AttemptTrace {
    shared: Arc<Mutex<AttemptSpanState>>,
}

/// The span of an attempt, before it starts and after.
#[derive(Debug)]
enum AttemptSpanState {
    Planned(Planned),
    Open(SpanNode),
}

/// Known data of the span of an attempt that has not started.
#[derive(Debug)]
struct Planned {
    parent: SpanNode,
    since: SystemTime,
    attributes: Vec<KeyValue>,
    waits: Vec<EndedWait>,
}

/// A wait that was waited to its end.
#[derive(Debug)]
struct EndedWait {
    /// The wait before a retry; `None` in the queue for a slot.
    wait: Option<Wait>,
    began: SystemTime,
    ended: SystemTime,
}

/// The wait before an attempt; one that is cut short has no span.
#[derive(Debug)]
pub struct BackoffSpan {
    trace: AttemptTrace,
    wait: Wait,
    began: SystemTime,
}

/// The chosen target, and what was known then.
#[derive(Debug, Clone, Copy)]
pub struct TargetChoice<'a> {
    /// The target.
    pub target: &'a TargetId,
    /// The state of its circuit: `closed`, `open`, `half_open`, `recovering`.
    pub circuit: &'a str,
    /// Rest of its retry budget, in tokens; `None` if none applies.
    pub budget_left: Option<f64>,
    /// Reason for this target, in a few of Relight's words.
    pub reason: &'a str,
}

/// Plans a span under `parent`.
pub(super) fn plan(parent: &SpanNode) -> AttemptSpan {
    let planned = Planned {
        parent: parent.clone(),
        since: now(),
        attributes: Vec::new(),
        waits: Vec::new(),
    };
    AttemptSpan {
        trace: AttemptTrace {
            shared: Arc::new(Mutex::new(AttemptSpanState::Planned(planned))),
        },
        finished: false,
    }
}

// === impl AttemptSpan ===

impl AttemptSpan {
    /// Returns the trace to which the spans of the layers below belong.
    #[must_use]
    pub fn trace(&self) -> AttemptTrace {
        self.trace.clone()
    }

    /// Ends the span of an attempt that succeeded; `winner` if its completion is the one that was kept.
    pub fn finish_ok(mut self, winner: bool) {
        self.trace
            .set(|| [KeyValue::new(relight::ATTEMPT_WINNER, winner)]);
        self.finished = true;
    }

    /// Ends the span of an attempt that failed; `sent` is false when nothing reached the target.
    pub fn finish_failed(mut self, failure: &Failure, sent: bool) {
        let node = self.trace.node();
        node.set(|| failure_attributes(failure));
        node.set(|| [KeyValue::new(relight::ATTEMPT_SENT, sent)]);
        node.fail(failure);
        self.finished = true;
    }

    /// Ends the span of an attempt that was cancelled on purpose, such as the slower of two: no
    /// error.
    pub fn finish_cancelled(self) {
        drop(self);
    }
}

impl Drop for AttemptSpan {
    fn drop(&mut self) {
        let node = self.trace.node();
        if !self.finished {
            node.set(|| {
                CANCELLED
                    .iter()
                    .map(|&(name, value)| KeyValue::new(name, value))
            });
        }
        node.end();
    }
}

// === impl AttemptSpanState ===

impl Default for AttemptSpanState {
    fn default() -> Self {
        Self::Open(SpanNode::default())
    }
}

// === impl AttemptTrace ===

impl AttemptTrace {
    /// Opens the span of an attempt that starts, its waits included.
    pub fn begin(&self, number: u32, cause: AttemptCause) {
        let mut state = self.lock();
        let AttemptSpanState::Planned(planned) = &mut *state else {
            return;
        };
        let Planned {
            parent,
            since,
            attributes: planned_attributes,
            ..
        } = planned;
        let node = parent.open_child(|| {
            let mut attributes = vec![
                KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN"),
                KeyValue::new(relight::ATTEMPT_NUMBER, i64::from(number)),
                KeyValue::new(relight::ATTEMPT_CAUSE, cause.label()),
            ];
            attributes.append(planned_attributes);
            SpanBuilder::from_name(format!("attempt {number}"))
                .with_kind(SpanKind::Internal)
                .with_attributes(attributes)
                .with_start_time(*since)
        });
        for ended in mem::take(&mut planned.waits) {
            ended.record_under(&node);
        }
        *state = AttemptSpanState::Open(node);
    }

    /// Returns the hex id of the attempt's span; empty without tracing and before it starts.
    #[must_use]
    pub fn span_id(&self) -> String {
        self.node().span_id()
    }

    /// Writes which target was chosen and why.
    pub fn chose(&self, choice: TargetChoice<'_>) {
        self.set(|| {
            let known = [
                KeyValue::new(relight::TARGET, choice.target.to_string()),
                KeyValue::new(relight::CIRCUIT, choice.circuit.to_owned()),
                KeyValue::new(relight::TARGET_REASON, choice.reason.to_owned()),
            ];
            known.into_iter().chain(
                choice
                    .budget_left
                    .map(|left| KeyValue::new(relight::BUDGET_LEFT, left)),
            )
        });
    }

    /// Writes in which vehicle the model got a note about the failure; never the note itself.
    pub fn injected(&self, vehicle: &'static str) {
        self.set(|| {
            [
                KeyValue::new(relight::INJECTED, true),
                KeyValue::new(relight::INJECTED_VEHICLE, vehicle),
            ]
        });
    }

    /// Writes what of the request was changed so that the target takes it, in Relight's words.
    pub fn adapted(&self, change: &str) {
        self.set(|| [KeyValue::new(relight::ADAPTATION, change.to_owned())]);
    }

    /// Measures the wait before this attempt.
    #[must_use]
    pub fn backoff(&self, wait: Wait) -> BackoffSpan {
        BackoffSpan {
            trace: self.clone(),
            wait,
            began: now(),
        }
    }

    /// Writes that it waited in the queue for a slot, since then and until now.
    pub fn queued(&self, since: Instant) {
        let ended = now();
        let began = ended.checked_sub(since.elapsed()).unwrap_or(ended);
        if let AttemptSpanState::Planned(planned) = &mut *self.lock() {
            planned.waits.push(EndedWait {
                wait: None,
                began,
                ended,
            });
        }
    }

    /// Opens the span of the model call that this attempt makes.
    #[must_use]
    pub fn chat(&self, start: ChatStart<'_>) -> ChatSpan {
        wire::open_chat(&self.node(), start)
    }

    /// Opens the span of the tool call that this attempt makes.
    #[must_use]
    pub fn tool(&self, start: ToolStart<'_>) -> ChatSpan {
        wire::open_tool(&self.node(), start)
    }

    fn set<T: IntoIterator<Item = KeyValue>>(&self, attributes: impl FnOnce() -> T) {
        match &mut *self.lock() {
            AttemptSpanState::Planned(planned) if !planned.parent.is_recorded() => {}
            AttemptSpanState::Planned(planned) => planned.attributes.extend(attributes()),
            AttemptSpanState::Open(node) => node.set(attributes),
        }
    }

    /// Returns the span; one that records nothing before the attempt starts.
    fn node(&self) -> SpanNode {
        match &*self.lock() {
            AttemptSpanState::Planned(_) => SpanNode::default(),
            AttemptSpanState::Open(node) => node.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, AttemptSpanState> {
        self.shared.lock()
    }
}

// === impl BackoffSpan ===

impl BackoffSpan {
    /// Notes a wait that was waited to its end.
    pub fn finish(self) {
        let ended = EndedWait {
            wait: Some(self.wait),
            began: self.began,
            ended: now(),
        };
        if let AttemptSpanState::Planned(planned) = &mut *self.trace.lock() {
            planned.waits.push(ended);
        }
    }
}

// === impl EndedWait ===

impl EndedWait {
    fn record_under(&self, attempt: &SpanNode) {
        let span = attempt.open_child(|| {
            let mut attributes = vec![KeyValue::new(attr::OPENINFERENCE_KIND, "CHAIN")];
            if let Some(wait) = self.wait {
                attributes.push(KeyValue::new(
                    relight::BACKOFF_SECONDS,
                    wait.duration.as_secs_f64(),
                ));
                attributes.push(KeyValue::new(relight::BACKOFF_SOURCE, wait.source.as_str()));
            }
            SpanBuilder::from_name(if self.wait.is_some() {
                "backoff"
            } else {
                "queue"
            })
            .with_kind(SpanKind::Internal)
            .with_attributes(attributes)
            .with_start_time(self.began)
        });
        span.end_at(self.ended);
    }
}

fn now() -> SystemTime {
    clock::wall_now().into()
}
