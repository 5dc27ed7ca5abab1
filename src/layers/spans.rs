//! Spans of an invocation: the view that a person has of a recovery in a tracing UI.
//!
//! The tree is `relight.v1.RecoveryService/…` (SERVER) over `attempt 1`, `attempt 2`, … (INTERNAL),
//! each over its `backoff` and its `chat {model}` (CLIENT), which is over `POST` (CLIENT). The wait
//! sits inside the attempt that it delays, so that a waterfall explains its gaps; names distinguish
//! attempts, because most UIs show nothing else. A failed attempt is an error, a recovered
//! invocation is not, and neither is anything that was cancelled on purpose.
//!
//! Spans are opened from an explicit tracer, because several servers may live in one process. A
//! span is a guard: a `finish…` method consumes it, and one that is dropped ends as cancelled.
//! Prompts and completions enter the span of a model call only if that is switched on.

mod attempt;
mod content;
mod invocation;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, LazyLock},
    time::SystemTime,
};

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator},
    trace::{Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{IdGenerator as _, RandomIdGenerator, SdkTracer, Span},
};
use parking_lot::{Mutex, MutexGuard};

pub use self::{
    attempt::{AttemptSpan, AttemptTrace, TargetChoice},
    invocation::{EntryPoint, InvocationSpan, InvocationTrace},
    wire::{ChatSpan, ChatStart, HttpSpan, ToolStart},
};
use crate::domain::{
    failure::{Failure, FailureClass},
    invocation::TraceContext,
    semconv::{attr, relight},
};

/// Longest status message of a span, in bytes: UIs show it as a banner.
pub const MAX_STATUS_BYTES: usize = 120;

/// Opens root spans; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    origin: SpanOrigin,
    captures_content: bool,
}

/// Source of spans.
#[derive(Debug, Clone, Default)]
enum SpanOrigin {
    /// There are none, and no ids.
    #[default]
    Nowhere,
    /// No exporter takes spans: there are only their ids, and the decision of the caller's trace,
    /// to be passed on.
    IdsAlone,
    /// A tracer, which decides what is recorded.
    Tracer(SdkTracer),
}

/// An open span, shared by its guard and by those who add to it.
#[derive(Debug, Clone)]
struct SpanNode {
    /// Context with which its children are opened; `None` if it is not recorded, and then neither
    /// are they.
    recorded: Option<Recorded>,
    context: SpanContext,
}

/// A span that is recorded.
#[derive(Debug, Clone)]
struct Recorded {
    tracer: SdkTracer,
    captures_content: bool,
    /// `None` once it has ended.
    span: Arc<Mutex<Option<Span>>>,
}

/// Ends its span on drop, as cancelled unless it was finished.
#[derive(Debug)]
struct SpanGuard {
    node: SpanNode,
    /// The status of a span that is dropped unfinished; `None` once it is finished.
    abandoned: Option<&'static [(&'static str, &'static str)]>,
}

/// Makes the ids of spans that are not recorded.
static IDS: LazyLock<RandomIdGenerator> = LazyLock::new(RandomIdGenerator::default);

const CANCELLED: &[(&str, &str)] = &[(attr::ERROR_TYPE, "cancelled")];

// === impl Spans ===

impl Spans {
    /// Opens spans with this tracer.
    #[must_use]
    pub fn new(tracer: SdkTracer) -> Self {
        Self {
            origin: SpanOrigin::Tracer(tracer),
            captures_content: false,
        }
    }

    /// Opens nothing, but makes the ids by which a log line, a response and the caller's own trace
    /// name the same thing.
    #[must_use]
    pub fn ids_alone() -> Self {
        Self {
            origin: SpanOrigin::IdsAlone,
            captures_content: false,
        }
    }

    /// Puts prompts and completions on the spans of model calls, if `wanted`.
    #[must_use]
    pub const fn capturing_content(mut self, wanted: bool) -> Self {
        self.captures_content = wanted;
        self
    }

    /// Opens nothing; trace ids are empty.
    #[must_use]
    pub fn disabled() -> Self {
        Self::default()
    }

    fn open(&self, parent: &SpanContext, builder: impl FnOnce() -> SpanBuilder) -> SpanNode {
        match &self.origin {
            SpanOrigin::Nowhere => SpanNode::default(),
            SpanOrigin::IdsAlone => SpanNode::unrecorded(parent),
            SpanOrigin::Tracer(tracer) => {
                SpanNode::open(tracer, self.captures_content, parent, builder())
            }
        }
    }
}

// === impl SpanNode ===

impl Default for SpanNode {
    fn default() -> Self {
        Self {
            recorded: None,
            context: SpanContext::empty_context(),
        }
    }
}

impl SpanNode {
    /// A root, or the child of a span that is recorded.
    fn open(
        tracer: &SdkTracer,
        captures_content: bool,
        parent: &SpanContext,
        builder: SpanBuilder,
    ) -> Self {
        let parent = if parent.is_valid() {
            Context::new().with_remote_span_context(parent.clone())
        } else {
            Context::new()
        };
        let span = tracer.build_with_context(builder, &parent);
        let context = span.span_context().clone();
        let recorded = span.is_recording().then(|| Recorded {
            tracer: tracer.clone(),
            captures_content,
            span: Arc::new(Mutex::new(Some(span))),
        });
        Self { recorded, context }
    }

    /// Returns the ids of a span that is not recorded, below `parent` if there is one.
    fn unrecorded(parent: &SpanContext) -> Self {
        let trace = if parent.is_valid() {
            parent.trace_id()
        } else {
            IDS.new_trace_id()
        };
        let flags = parent.trace_flags();
        let state = parent.trace_state().clone();
        Self {
            recorded: None,
            context: SpanContext::new(trace, IDS.new_span_id(), flags, false, state),
        }
    }

    fn open_child(&self, builder: impl FnOnce() -> SpanBuilder) -> Self {
        match &self.recorded {
            Some(Recorded {
                tracer,
                captures_content,
                ..
            }) => Self::open(tracer, *captures_content, &self.context, builder()),
            None if self.context.is_valid() => Self::unrecorded(&self.context),
            None => Self::default(),
        }
    }

    /// Returns whether anything that is said of it is kept.
    const fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Returns whether prompts and completions are put on spans.
    fn captures_content(&self) -> bool {
        self.recorded
            .as_ref()
            .is_some_and(|recorded| recorded.captures_content)
    }

    /// Changes the span, unless it is not recorded or has ended.
    fn change(&self, change: impl FnOnce(&mut Span)) {
        if let Some(recorded) = &self.recorded
            && let Some(span) = recorded.lock().as_mut()
        {
            change(span);
        }
    }

    fn set<T: IntoIterator<Item = KeyValue>>(&self, attributes: impl FnOnce() -> T) {
        self.change(|span| span.set_attributes(attributes()));
    }

    fn event(&self, name: &'static str, attributes: impl FnOnce() -> Vec<KeyValue>) {
        self.change(|span| span.add_event(name, attributes()));
    }

    /// Marks the span as failed, with short words.
    fn error(&self, kind: &str, message: impl FnOnce() -> String) {
        self.change(|span| {
            span.set_attribute(KeyValue::new(attr::ERROR_TYPE, kind.to_owned()));
            span.set_status(Status::error(shortened(&message())));
        });
    }

    /// Tells a failure; a cancelled one is not an error.
    fn fail(&self, failure: &Failure) {
        if failure.class == FailureClass::Cancelled {
            self.set(|| [KeyValue::new(attr::ERROR_TYPE, failure.class.as_str())]);
        } else {
            self.error(failure.class.as_str(), || {
                format!("{}: {}", failure.class, failure.own_words())
            });
        }
    }

    fn end(&self) {
        if let Some(mut span) = self
            .recorded
            .as_ref()
            .and_then(|recorded| recorded.lock().take())
        {
            span.end();
        }
    }

    fn end_at(&self, at: SystemTime) {
        if let Some(mut span) = self
            .recorded
            .as_ref()
            .and_then(|recorded| recorded.lock().take())
        {
            span.end_with_timestamp(at);
        }
    }

    fn trace_id(&self) -> String {
        if self.context.is_valid() {
            self.context.trace_id().to_string()
        } else {
            String::new()
        }
    }

    fn span_id(&self) -> String {
        if self.context.is_valid() {
            self.context.span_id().to_string()
        } else {
            String::new()
        }
    }

    fn outgoing(&self) -> TraceContext {
        if !self.context.is_valid() {
            return TraceContext::default();
        }
        let flags = u8::from(self.context.trace_flags().is_sampled());
        let state = self.context.trace_state().header();
        TraceContext {
            traceparent: Some(format!(
                "00-{}-{}-{flags:02x}",
                self.context.trace_id(),
                self.context.span_id()
            )),
            tracestate: (!state.is_empty()).then_some(state),
            baggage: None,
        }
    }
}

// === impl Recorded ===

impl Recorded {
    fn lock(&self) -> MutexGuard<'_, Option<Span>> {
        self.span.lock()
    }
}

// === impl SpanGuard ===

impl SpanGuard {
    fn new(node: SpanNode, abandoned: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            node,
            abandoned: Some(abandoned),
        }
    }

    fn end(mut self) {
        self.abandoned = None;
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned {
            self.node.set(|| {
                abandoned
                    .iter()
                    .map(|&(name, value)| KeyValue::new(name, value))
            });
        }
        self.node.end();
    }
}

struct TraceHeaders<'a>(&'a TraceContext);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.0.traceparent.as_deref(),
            "tracestate" => self.0.tracestate.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// Returns the caller's span, if it sent one that can be read; else none. Never looks at the
/// thread's current span.
fn remote_parent(trace: &TraceContext) -> SpanContext {
    if trace.traceparent.is_none() {
        return SpanContext::empty_context();
    }
    let context =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &TraceHeaders(trace));
    context.span().span_context().clone()
}

/// Returns the first bytes of a message, on one line and cut at a character.
fn shortened(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let mut end = line.len().min(MAX_STATUS_BYTES);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line[..end].to_owned()
}

/// Returns the attributes by which every failed span describes its failure.
fn failure_attributes(failure: &Failure) -> Vec<KeyValue> {
    vec![
        KeyValue::new(relight::CLASS, failure.class.as_str()),
        KeyValue::new(relight::RETRYABLE, failure.retryable),
        KeyValue::new(relight::RULE, failure.rule.clone()),
        KeyValue::new(relight::FACT, failure.fact.clone()),
    ]
}

/// Returns a count as attributes know numbers.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
