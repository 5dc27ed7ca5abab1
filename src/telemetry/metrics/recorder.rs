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

use opentelemetry::KeyValue;

use super::{
    Inner,
    labels::{UNKNOWN, cause_label, strategy_label},
    series::{AttemptEnd, InvocationEnd, SeriesCache},
};
use crate::{
    domain::{
        completion::Usage,
        event::{Event, EventBody, EventScope},
        failure::FailureClass,
        ids::{InvocationId, TargetId},
        invocation::AttemptCause,
        semconv::label,
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
    series: SeriesCache,
    open: HashMap<InvocationId, OpenInvocation>,
}

/// Facts that are remembered of an invocation until it ends.
#[derive(Debug, Default)]
struct OpenInvocation {
    attempts: Vec<(u32, OpenAttempt)>,
    answered: Option<(Option<TargetId>, Usage)>,
}

#[derive(Debug, Clone)]
struct OpenAttempt {
    cause: &'static str,
    model: Arc<str>,
}

impl Consume for MetricsRecorder {
    async fn consume(&mut self, batch: Vec<BusItem>) {
        self.series.follow_names();
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
            series: SeriesCache::new(Arc::clone(&inner)),
            inner,
            open: HashMap::new(),
        }
    }

    fn record(&mut self, event: &Event) {
        match &event.body {
            EventBody::AttemptStarted {
                cause,
                model,
                wait: _,
            } => self.begun(event, *cause, model),
            EventBody::FirstToken { after_ms } => {
                let model = self.begun_at(event).map(|begun| begun.model);
                let after = Duration::from_millis(*after_ms);
                self.series
                    .first_token(event.target.as_ref(), model.as_ref(), after);
            }
            EventBody::AttemptSucceeded {
                duration_ms, usage, ..
            } => {
                self.ended(event, (None, true), *duration_ms, *usage);
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
            } => self.ended(event, (Some(*class), *sent), *duration_ms, *usage),
            EventBody::InvocationSucceeded { duration_ms, usage } => {
                self.invocation(event, "succeeded", None, (*duration_ms, 1, *usage));
                self.delivered(event, Some(*usage));
            }
            EventBody::InvocationRecovered {
                duration_ms,
                attempts,
                strategies,
                usage,
                ..
            } => {
                let took = (*duration_ms, *attempts, *usage);
                self.invocation(event, "recovered", None, took);
                self.delivered(event, None);
                for strategy in strategies {
                    let strategy = KeyValue::new(label::STRATEGY, strategy_label(*strategy));
                    let recovery = &self.inner.instruments.recovery;
                    recovery.succeeded.add(1, &[strategy]);
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
                let took = (*duration_ms, *attempts, *usage);
                self.invocation(event, outcome, Some(*class), took);
                self.forget(event);
            }
            EventBody::RecoveryAttempted {
                class,
                strategy,
                wait,
                ..
            } => self.inner.recovery(*class, *strategy, *wait),
            _ => self.inner.record_lone(event),
        }
    }

    fn begun(&mut self, event: &Event, cause: AttemptCause, model: &str) {
        let begun = OpenAttempt {
            cause: cause_label(cause),
            model: Arc::from(model),
        };
        self.open_of(event, |open| open.attempts.push((event.attempt, begun)));
    }

    fn begun_at(&self, event: &Event) -> Option<OpenAttempt> {
        let open = self.open.get(&event.scope.as_ref()?.invocation)?;
        let mut attempts = open.attempts.iter().rev();
        attempts
            .find(|(number, _)| *number == event.attempt)
            .map(|(_, begun)| begun.clone())
    }

    fn ended(
        &mut self,
        event: &Event,
        (class, sent): (Option<FailureClass>, bool),
        duration_ms: u64,
        usage: Usage,
    ) {
        let begun = self.begun_at(event);
        let model = begun.as_ref().map(|begun| &begun.model);
        let end = AttemptEnd {
            cause: begun.as_ref().map_or(UNKNOWN, |begun| begun.cause),
            class,
            sent,
        };
        let took = Duration::from_millis(duration_ms);
        self.series
            .attempt(event.target.as_ref(), model, (end, took, usage));
    }

    fn invocation(
        &mut self,
        event: &Event,
        outcome: &'static str,
        class: Option<FailureClass>,
        (duration_ms, attempts, usage): (u64, u32, Usage),
    ) {
        let Some(scope) = &event.scope else { return };
        let took = Duration::from_millis(duration_ms);
        let end = InvocationEnd { outcome, class };
        self.series.invocation(scope, end, (took, attempts, usage));
    }

    /// Counts the tokens of the kept answer: those of the last successful attempt, else those in
    /// the event.
    fn delivered(&mut self, event: &Event, otherwise: Option<Usage>) {
        let answered = self.forget(event).and_then(|open| open.answered);
        let answered = answered.or_else(|| otherwise.map(|usage| (event.target.clone(), usage)));
        if let Some((target, usage)) = answered {
            self.series.delivered(target.as_ref(), usage);
        }
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
    /// Returns the labels of an invocation's route and operation.
    pub(super) fn scope(&self, scope: &EventScope) -> [KeyValue; 2] {
        [
            self.labels.bounded(label::ROUTE, scope.route.as_str()),
            self.labels.bounded_for(
                Some(&scope.tenant),
                label::OPERATION,
                scope.operation.as_str(),
            ),
        ]
    }
}
