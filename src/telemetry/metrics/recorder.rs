//! From events to numbers: the one reader that counts what happened.
//!
//! Most events count alone. An attempt's cause and an invocation's kept answer are known from
//! earlier events, so a small, bounded memory of open invocations is kept; when events were missed
//! it is forgotten rather than guessed at.

mod lone_events;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use opentelemetry::{KeyValue, StringValue, metrics::Counter};

use super::{
    Inner,
    labels::{TargetNames, UNKNOWN, cause_label, strategy_label},
};
use crate::{
    domain::{
        completion::Usage,
        event::{Event, EventBody, EventScope},
        failure::FailureClass,
        ids::{InvocationId, TargetId},
        invocation::AttemptCause,
        semconv::{attr, label},
    },
    events::BusItem,
    telemetry::reader::Consume,
};

/// Most open invocations that are remembered; beyond it all are forgotten, which costs labels and
/// no counts.
const MAX_OPEN: usize = 65_536;

/// Counts what it reads.
#[derive(Debug)]
pub(super) struct MetricsRecorder {
    inner: Arc<Inner>,
    open: HashMap<InvocationId, OpenInvocation>,
}

/// Facts that are remembered of an invocation until it ends.
#[derive(Debug, Default)]
struct OpenInvocation {
    attempts: HashMap<u32, OpenAttempt>,
    answered: Option<(Option<TargetId>, Usage)>,
}

#[derive(Debug, Clone)]
struct OpenAttempt {
    cause: &'static str,
    model: Arc<str>,
}

/// End of an attempt.
struct AttemptEnd {
    duration_ms: u64,
    usage: Usage,
    class: Option<FailureClass>,
    sent: bool,
}

impl Consume for MetricsRecorder {
    async fn consume(&mut self, batch: Vec<BusItem>) {
        for reading in batch {
            match reading {
                BusItem::Event(event) => self.record(&event),
                BusItem::Missed { count, .. } => {
                    self.open.clear();
                    self.inner
                        .gauges
                        .metrics_missed
                        .fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }
}

// === impl MetricsRecorder ===

impl MetricsRecorder {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            open: HashMap::new(),
        }
    }

    fn record(&mut self, event: &Event) {
        let target = event.target.as_ref();
        let inner = Arc::clone(&self.inner);
        let names = inner.names();
        match &event.body {
            EventBody::AttemptStarted {
                cause,
                model,
                wait: _,
            } => self.begun(event, *cause, model),
            EventBody::FirstToken { after_ms } => {
                let model = self.begun_at(event).map(|begun| begun.model);
                inner.instruments.first_chunk.record(
                    seconds(*after_ms),
                    &inner.gen_ai(&names, target, model.as_deref()),
                );
            }
            EventBody::AttemptSucceeded {
                duration_ms, usage, ..
            } => {
                let ended = AttemptEnd {
                    duration_ms: *duration_ms,
                    usage: *usage,
                    class: None,
                    sent: true,
                };
                self.ended(event, &names, &ended);
                self.open_of(event, |open| {
                    open.answered = Some((event.target.clone(), *usage));
                });
            }
            EventBody::AttemptFailed {
                class,
                duration_ms,
                sent,
                usage,
                ..
            } => {
                let ended = AttemptEnd {
                    duration_ms: *duration_ms,
                    usage: *usage,
                    class: Some(*class),
                    sent: *sent,
                };
                self.ended(event, &names, &ended);
            }
            EventBody::InvocationSucceeded { duration_ms, usage } => {
                self.invocation(event, "succeeded", *duration_ms, 1, None);
                self.tenant(event, "succeeded", *usage);
                self.delivered(event, &names, Some(*usage));
            }
            EventBody::InvocationRecovered {
                duration_ms,
                attempts,
                strategies,
                usage,
                ..
            } => {
                self.invocation(event, "recovered", *duration_ms, *attempts, None);
                self.tenant(event, "recovered", *usage);
                self.delivered(event, &names, None);
                for strategy in strategies {
                    let strategy = KeyValue::new(label::STRATEGY, strategy_label(*strategy));
                    inner.instruments.recoveries_succeeded.add(1, &[strategy]);
                }
            }
            EventBody::InvocationFailed {
                duration_ms,
                attempts,
                class,
                usage,
                ..
            } => {
                let outcome = if *class == FailureClass::Cancelled {
                    "cancelled"
                } else {
                    "failed"
                };
                self.invocation(event, outcome, *duration_ms, *attempts, Some(*class));
                self.tenant(event, outcome, *usage);
                self.forget(event);
            }
            EventBody::RecoveryAttempted {
                class,
                strategy,
                wait,
                ..
            } => inner.recovery(*class, *strategy, *wait),
            _ => inner.record_lone(event),
        }
    }

    fn begun(&mut self, event: &Event, cause: AttemptCause, model: &str) {
        let begun = OpenAttempt {
            cause: cause_label(cause),
            model: Arc::from(model),
        };
        self.open_of(event, |open| {
            open.attempts.insert(event.attempt, begun);
        });
    }

    fn begun_at(&self, event: &Event) -> Option<OpenAttempt> {
        self.open
            .get(&event.scope.as_ref()?.invocation)?
            .attempts
            .get(&event.attempt)
            .cloned()
    }

    fn ended(&self, event: &Event, names: &TargetNames, ended: &AttemptEnd) {
        let inner = &self.inner;
        let begun = self.begun_at(event);
        let model = begun.as_ref().map(|begun| &*begun.model);
        let class = ended.class.map_or("", FailureClass::as_str);
        let [target, provider, model_label] =
            inner.labels.target(names, event.target.as_ref(), model);
        inner.instruments.attempts.add(
            1,
            &[
                target.clone(),
                provider.clone(),
                model_label.clone(),
                KeyValue::new(
                    label::CAUSE,
                    begun.as_ref().map_or(UNKNOWN, |begun| begun.cause),
                ),
                KeyValue::new(label::CLASS, class),
                KeyValue::new(
                    label::OUTCOME,
                    match (ended.class, ended.sent) {
                        (None, _) => "answered",
                        (Some(FailureClass::Cancelled), _) => "cancelled",
                        (Some(_), true) => "failed",
                        (Some(_), false) => "refused",
                    },
                ),
            ],
        );
        if ended.class == Some(FailureClass::Unknown) {
            inner
                .instruments
                .classifier_unknown
                .add(1, std::slice::from_ref(&provider));
        }
        if !ended.sent {
            return;
        }
        let mut attributes = inner.gen_ai(names, event.target.as_ref(), model).to_vec();
        attributes.extend(
            ended
                .class
                .map(|class| KeyValue::new(attr::ERROR_TYPE, class.as_str())),
        );
        inner
            .instruments
            .operation_duration
            .record(seconds(ended.duration_ms), &attributes);
        for (kind, tokens) in token_types(ended.usage) {
            let mut attributes = inner.gen_ai(names, event.target.as_ref(), model).to_vec();
            attributes.push(KeyValue::new(attr::GEN_AI_TOKEN_TYPE, kind));
            inner.instruments.token_usage.record(tokens, &attributes);
        }
        let labels = [target, provider, model_label];
        count_tokens(
            &inner.instruments.tokens_spent,
            &labels,
            token_types(ended.usage),
        );
        count_tokens(
            &inner.instruments.tokens_cached,
            &labels,
            cached(ended.usage),
        );
        count_cost(
            &inner.instruments.cost_spent,
            &labels,
            names.cost(event.target.as_ref(), ended.usage),
        );
    }

    fn invocation(
        &self,
        event: &Event,
        outcome: &'static str,
        duration_ms: u64,
        attempts: u32,
        class: Option<FailureClass>,
    ) {
        let inner = &self.inner;
        let Some(scope) = &event.scope else { return };
        let [route, operation] = inner.scope(scope);
        if class == Some(FailureClass::Shed) {
            inner
                .instruments
                .shed
                .add(1, &[route.clone(), operation.clone()]);
        }
        let mut attributes = vec![route, operation, KeyValue::new(label::OUTCOME, outcome)];
        inner
            .instruments
            .invocation_duration
            .record(seconds(duration_ms), &attributes);
        inner
            .instruments
            .invocation_attempts
            .record(u64::from(attempts), &attributes);
        attributes.push(KeyValue::new(
            label::CLASS,
            class.map_or("", FailureClass::as_str),
        ));
        inner.instruments.invocations.add(1, &attributes);
    }

    /// Counts whose invocation ended, and what it cost.
    fn tenant(&self, event: &Event, outcome: &'static str, usage: Usage) {
        let inner = &self.inner;
        let Some(scope) = &event.scope else { return };
        let tenant = inner.labels.bounded(label::TENANT, scope.tenant.as_str());
        inner
            .instruments
            .tenant_invocations
            .add(1, &[tenant.clone(), KeyValue::new(label::OUTCOME, outcome)]);
        for (kind, tokens) in token_types(usage) {
            inner.instruments.tenant_tokens.add(
                tokens,
                &[tenant.clone(), KeyValue::new(label::TOKEN_TYPE, kind)],
            );
        }
    }

    /// Counts the tokens of the kept answer: those of the last successful attempt, else those in
    /// the event.
    fn delivered(&mut self, event: &Event, names: &TargetNames, otherwise: Option<Usage>) {
        let answered = self.forget(event).and_then(|open| open.answered);
        let Some((target, usage)) =
            answered.or_else(|| otherwise.map(|usage| (event.target.clone(), usage)))
        else {
            return;
        };
        let labels = self.inner.labels.target(names, target.as_ref(), None);
        count_tokens(
            &self.inner.instruments.tokens_delivered,
            &labels,
            token_types(usage),
        );
        count_cost(
            &self.inner.instruments.cost_delivered,
            &labels,
            names.cost(target.as_ref(), usage),
        );
    }

    fn open_of(&mut self, event: &Event, change: impl FnOnce(&mut OpenInvocation)) {
        let Some(scope) = &event.scope else { return };
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&scope.invocation) {
            self.open.clear();
        }
        change(self.open.entry(scope.invocation.clone()).or_default());
    }

    fn forget(&mut self, event: &Event) -> Option<OpenInvocation> {
        self.open.remove(&event.scope.as_ref()?.invocation)
    }
}

// === impl Inner ===

impl Inner {
    fn scope(&self, scope: &EventScope) -> [KeyValue; 2] {
        [
            self.labels.bounded(label::ROUTE, scope.route.as_str()),
            self.labels.bounded_for(
                Some(&scope.tenant),
                label::OPERATION,
                scope.operation.as_str(),
            ),
        ]
    }

    /// Returns the labels that the conventions want on every metric of a model call.
    fn gen_ai(
        &self,
        names: &TargetNames,
        target: Option<&TargetId>,
        model: Option<&str>,
    ) -> [KeyValue; 3] {
        // A tool has no model, and is not one of the targets that are configured.
        let is_tool = model.is_some_and(str::is_empty)
            && target.is_some_and(|target| !names.contains(target));
        let [_, provider, model] = self.labels.target(names, target, model);
        [
            KeyValue::new(
                attr::GEN_AI_OPERATION,
                if is_tool { "execute_tool" } else { "chat" },
            ),
            KeyValue::new(attr::GEN_AI_PROVIDER, provider.value),
            KeyValue::new(attr::GEN_AI_REQUEST_MODEL, model.value),
        ]
    }
}

fn count_tokens(
    counter: &Counter<u64>,
    labels: &[KeyValue; 3],
    types: impl Iterator<Item = (&'static str, u64)>,
) {
    for (kind, tokens) in types {
        let [target, provider, model] = labels.clone();
        counter.add(
            tokens,
            &[
                target,
                provider,
                model,
                KeyValue::new(label::TOKEN_TYPE, kind),
            ],
        );
    }
}

fn count_cost(counter: &Counter<f64>, labels: &[KeyValue; 3], cost: Option<(Arc<str>, f64)>) {
    let Some((currency, amount)) = cost else {
        return;
    };
    let [target, provider, model] = labels.clone();
    counter.add(
        amount,
        &[
            target,
            provider,
            model,
            KeyValue::new(label::CURRENCY, StringValue::from(currency)),
        ],
    );
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

/// Returns the counts that are not zero: a zero would look like a provider that charges nothing.
/// Returns the tokens that a prompt cache held, and those that were written to it.
fn cached(usage: Usage) -> impl Iterator<Item = (&'static str, u64)> {
    let types = [
        ("read", usage.cached_input_tokens),
        ("write", usage.cache_write_tokens),
    ];
    types
        .into_iter()
        .filter_map(|(kind, tokens)| Some((kind, tokens.filter(|tokens| *tokens > 0)?)))
}

fn token_types(usage: Usage) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
    ]
    .into_iter()
    .filter(|(_, tokens)| *tokens > 0)
}
