//! The series of what ends with each call: attempts at a target, and invocations.
//!
//! Their labels are looked up once for each target and model, and for each route, operation and
//! tenant, and not for each call.

use std::{collections::HashMap, sync::Arc, time::Duration};

use opentelemetry::{KeyValue, StringValue};

use super::{
    Inner,
    bound::{CounterSeries, HistogramSeries},
    instruments::TokenInstruments,
    labels::TargetNames,
};
use crate::domain::{
    completion::Usage,
    event::EventScope,
    failure::FailureClass,
    ids::{Operation, RouteName, TargetId, TenantId},
    semconv::{attr, label},
};

/// Most series of a kind that are kept: callers name operations freely. Beyond it they are looked up
/// anew, which costs time and no counts.
const MAX_SERIES: usize = 1024;

/// The labels of the kinds of tokens.
const KINDS: [&str; 2] = ["input", "output"];

/// The series of what has been counted.
#[derive(Debug)]
pub(super) struct SeriesCache {
    inner: Arc<Inner>,
    names: Arc<TargetNames>,
    targets: HashMap<TargetKey, TargetSeries>,
    invocations: HashMap<InvocationKey, InvocationSeries>,
}

/// Target and model, as events name them.
type TargetKey = (Option<TargetId>, Option<Arc<str>>);

/// Invocations that are counted together.
type InvocationKey = (RouteName, Operation, TenantId, InvocationEnd);

/// The way in which an invocation ended: its outcome as a label, and the class of its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct InvocationEnd {
    pub(super) outcome: &'static str,
    pub(super) class: Option<FailureClass>,
}

/// The way in which an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AttemptEnd {
    /// The label of its cause.
    pub(super) cause: &'static str,
    /// The class of its failure, if it failed.
    pub(super) class: Option<FailureClass>,
    /// `true` if anything was sent.
    pub(super) sent: bool,
}

/// The series of one model at one target.
#[derive(Debug)]
struct TargetSeries {
    /// Target, provider and model.
    labels: [KeyValue; 3],
    /// The labels that the conventions want on every metric of a model call.
    gen_ai: [KeyValue; 3],
    ends: Vec<(AttemptEnd, EndSeries)>,
    first_chunk: HistogramSeries<f64>,
    usage: [HistogramSeries<u64>; 2],
    spent: [CounterSeries<u64>; 2],
    delivered: [CounterSeries<u64>; 2],
    cached: [CounterSeries<u64>; 2],
    cost: [CounterSeries<f64>; 2],
}

/// The series of attempts that ended alike.
#[derive(Debug, Default)]
struct EndSeries {
    count: CounterSeries<u64>,
    duration: HistogramSeries<f64>,
}

/// The series of invocations that ended alike.
#[derive(Debug, Default)]
struct InvocationSeries {
    count: CounterSeries<u64>,
    duration: HistogramSeries<f64>,
    attempts: HistogramSeries<u64>,
    of_tenant: CounterSeries<u64>,
    tenant_tokens: [CounterSeries<u64>; 2],
}

// === impl SeriesCache ===

impl SeriesCache {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self {
            names: inner.names(),
            inner,
            targets: HashMap::new(),
            invocations: HashMap::new(),
        }
    }

    /// Counts by the names and prices that are in force now.
    pub(super) fn follow_names(&mut self) {
        let names = self.inner.names.load();
        if !Arc::ptr_eq(&names, &self.names) {
            self.names = Arc::clone(&names);
            self.targets.clear();
        }
    }

    /// Records the first token of an attempt.
    pub(super) fn first_token(
        &mut self,
        target: Option<&TargetId>,
        model: Option<&Arc<str>>,
        after: Duration,
    ) {
        let inner = Arc::clone(&self.inner);
        self.target(target, model).first_token(&inner, after);
    }

    /// Counts an attempt that ended.
    pub(super) fn attempt(
        &mut self,
        target: Option<&TargetId>,
        model: Option<&Arc<str>>,
        (end, took, usage): (AttemptEnd, Duration, Usage),
    ) {
        let inner = Arc::clone(&self.inner);
        let cost = self.names.cost(target, usage);
        let series = self.target(target, model);
        series.ended(&inner, end, took);
        if end.sent {
            series.spent(&inner.instruments.tokens, usage, cost);
        }
    }

    /// Counts the tokens of a kept answer.
    pub(super) fn delivered(&mut self, target: Option<&TargetId>, usage: Usage) {
        let inner = Arc::clone(&self.inner);
        let cost = self.names.cost(target, usage);
        let series = self.target(target, None);
        series.delivered(&inner.instruments.tokens, usage, cost);
    }

    fn target(&mut self, target: Option<&TargetId>, model: Option<&Arc<str>>) -> &mut TargetSeries {
        let key = (target.cloned(), model.cloned());
        if self.targets.len() >= MAX_SERIES && !self.targets.contains_key(&key) {
            self.targets.clear();
        }
        self.targets
            .entry(key)
            .or_insert_with_key(|(target, model)| {
                TargetSeries::new(&self.inner, &self.names, target.as_ref(), model.as_deref())
            })
    }

    /// Counts an invocation that ended.
    pub(super) fn invocation(
        &mut self,
        scope: &EventScope,
        end: InvocationEnd,
        (took, attempts, usage): (Duration, u32, Usage),
    ) {
        let inner = &self.inner;
        let instruments = &inner.instruments.invocations;
        let key = (
            scope.route.clone(),
            scope.operation.clone(),
            scope.tenant.clone(),
            end,
        );
        if self.invocations.len() >= MAX_SERIES && !self.invocations.contains_key(&key) {
            self.invocations.clear();
        }
        let series = self.invocations.entry(key).or_default();
        let outcome = || KeyValue::new(label::OUTCOME, end.outcome);
        let labels = || {
            let [route, operation] = inner.scope(scope);
            [route, operation, outcome()]
        };
        let tenant = || inner.labels.bounded(label::TENANT, scope.tenant.as_str());
        series
            .duration
            .record(&instruments.duration, took.as_secs_f64(), labels);
        series
            .attempts
            .record(&instruments.attempts, u64::from(attempts), labels);
        series.count.add(&instruments.ended, 1, || {
            let [route, operation, outcome] = labels();
            let class = end.class.map_or("", FailureClass::as_str);
            [
                route,
                operation,
                outcome,
                KeyValue::new(label::CLASS, class),
            ]
        });
        series
            .of_tenant
            .add(&instruments.of_tenant, 1, || [tenant(), outcome()]);
        for (kind, tokens) in token_types(usage) {
            series.tenant_tokens[kind].add(&instruments.tenant_tokens, tokens, || {
                [tenant(), KeyValue::new(label::TOKEN_TYPE, KINDS[kind])]
            });
        }
        if end.class == Some(FailureClass::Shed) {
            instruments.shed.add(1, &inner.scope(scope));
        }
    }
}

// === impl TargetSeries ===

impl TargetSeries {
    fn new(
        inner: &Inner,
        names: &TargetNames,
        target: Option<&TargetId>,
        model: Option<&str>,
    ) -> Self {
        // A tool has no model, and is not one of the targets that are configured.
        let is_tool = model.is_some_and(str::is_empty)
            && target.is_some_and(|target| !names.contains(target));
        let labels = inner.labels.target(names, target, model);
        let [_, provider, model] = labels.clone();
        Self {
            labels,
            gen_ai: [
                KeyValue::new(
                    attr::GEN_AI_OPERATION,
                    if is_tool { "execute_tool" } else { "chat" },
                ),
                KeyValue::new(attr::GEN_AI_PROVIDER, provider.value),
                KeyValue::new(attr::GEN_AI_REQUEST_MODEL, model.value),
            ],
            ends: Vec::new(),
            first_chunk: HistogramSeries::default(),
            usage: Default::default(),
            spent: Default::default(),
            delivered: Default::default(),
            cached: Default::default(),
            cost: Default::default(),
        }
    }

    fn first_token(&mut self, inner: &Inner, after: Duration) {
        let histogram = &inner.instruments.attempts.first_chunk;
        self.first_chunk
            .record(histogram, after.as_secs_f64(), || &self.gen_ai);
    }

    fn ended(&mut self, inner: &Inner, end: AttemptEnd, took: Duration) {
        let instruments = &inner.instruments.attempts;
        let at = self.ends.iter().position(|(known, _)| *known == end);
        let at = at.unwrap_or_else(|| {
            self.ends.push((end, EndSeries::default()));
            self.ends.len() - 1
        });
        let series = &mut self.ends[at].1;
        series.count.add(&instruments.ended, 1, || {
            let [target, provider, model] = self.labels.clone();
            [
                target,
                provider,
                model,
                KeyValue::new(label::CAUSE, end.cause),
                KeyValue::new(label::CLASS, end.class.map_or("", FailureClass::as_str)),
                KeyValue::new(label::OUTCOME, end.outcome()),
            ]
        });
        if end.sent {
            series
                .duration
                .record(&instruments.duration, took.as_secs_f64(), || {
                    let mut labels = self.gen_ai.to_vec();
                    let class = end.class.map(FailureClass::as_str);
                    labels.extend(class.map(|class| KeyValue::new(attr::ERROR_TYPE, class)));
                    labels
                });
        }
        if end.class == Some(FailureClass::Unknown) {
            let provider = std::slice::from_ref(&self.labels[1]);
            instruments.classifier_unknown.add(1, provider);
        }
    }

    fn spent(
        &mut self,
        instruments: &TokenInstruments,
        usage: Usage,
        cost: Option<(Arc<str>, f64)>,
    ) {
        for (kind, tokens) in token_types(usage) {
            self.usage[kind].record(&instruments.usage, tokens, || {
                with(&self.gen_ai, attr::GEN_AI_TOKEN_TYPE, KINDS[kind])
            });
            self.spent[kind].add(&instruments.spent, tokens, || {
                with(&self.labels, label::TOKEN_TYPE, KINDS[kind])
            });
        }
        for (kind, name, tokens) in cached(usage) {
            self.cached[kind].add(&instruments.cached, tokens, || {
                with(&self.labels, label::TOKEN_TYPE, name)
            });
        }
        if let Some((currency, amount)) = cost {
            self.cost[0].add(&instruments.cost_spent, amount, || {
                with(&self.labels, label::CURRENCY, currency)
            });
        }
    }

    fn delivered(
        &mut self,
        instruments: &TokenInstruments,
        usage: Usage,
        cost: Option<(Arc<str>, f64)>,
    ) {
        for (kind, tokens) in token_types(usage) {
            self.delivered[kind].add(&instruments.delivered, tokens, || {
                with(&self.labels, label::TOKEN_TYPE, KINDS[kind])
            });
        }
        if let Some((currency, amount)) = cost {
            self.cost[1].add(&instruments.cost_delivered, amount, || {
                with(&self.labels, label::CURRENCY, currency)
            });
        }
    }
}

// === impl AttemptEnd ===

impl AttemptEnd {
    const fn outcome(self) -> &'static str {
        match (self.class, self.sent) {
            (None, _) => "answered",
            (Some(FailureClass::Cancelled), _) => "cancelled",
            (Some(_), true) => "failed",
            (Some(_), false) => "refused",
        }
    }
}

fn with(
    labels: &[KeyValue; 3],
    name: &'static str,
    value: impl Into<StringValue>,
) -> [KeyValue; 4] {
    let [first, second, third] = labels.clone();
    [first, second, third, KeyValue::new(name, value.into())]
}

/// Returns the tokens that a prompt cache held, and those that were written to it, without zeros.
fn cached(usage: Usage) -> impl Iterator<Item = (usize, &'static str, u64)> {
    let types = [
        (0, "read", usage.cached_input_tokens),
        (1, "write", usage.cache_write_tokens),
    ];
    types
        .into_iter()
        .filter_map(|(kind, name, tokens)| Some((kind, name, tokens.filter(|it| *it > 0)?)))
}

/// Returns the counts that are not zero, by their places in [`KINDS`]: a zero would look like a
/// provider that charges nothing.
fn token_types(usage: Usage) -> impl Iterator<Item = (usize, u64)> {
    let counts = [usage.input_tokens, usage.output_tokens];
    counts
        .into_iter()
        .enumerate()
        .filter(|(_, tokens)| *tokens > 0)
}
