//! Bounded label values: what callers and configurations name freely must not make series without
//! end.
//!
//! The first values seen keep their names; once a label has as many as allowed, each new one
//! becomes `other`. What callers name is bounded for each tenant, too. Names that are closed by type (classes, causes, states) do not pass here.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use opentelemetry::{KeyValue, StringValue};
use parking_lot::Mutex;

use crate::{
    config::price::PriceConfig,
    domain::{
        completion::Usage,
        ids::{RouteName, TargetId, TenantId},
        invocation::{AttemptCause, RecoveryStrategy},
        semconv::label::{MODEL, PROVIDER, TARGET},
        target::Target,
    },
};

/// The label value for values beyond the bound.
pub(super) const OTHER: &str = "other";
/// Label value if nothing is known.
pub(super) const UNKNOWN: &str = "unknown";

/// The configured routes and tenants, and which provider and model each target is; replaced as a
/// whole when the configuration changes.
#[derive(Debug, Clone, Default)]
pub struct TargetNames {
    names: HashMap<TargetId, TargetName>,
    routes: Vec<RouteName>,
    tenants: Vec<TenantId>,
    prices: HashMap<TargetId, PriceConfig>,
    currency: Option<Arc<str>>,
}

/// A target's provider and model, as label values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TargetName {
    family: Arc<str>,
    model: Arc<str>,
}

/// The values that each label has had so far.
#[derive(Debug)]
pub(super) struct LabelValues {
    max_values: usize,
    seen: Mutex<HashMap<&'static str, SeenValues>>,
}

/// The values of one label, and how many of them each tenant has brought.
#[derive(Debug, Default)]
struct SeenValues {
    values: BTreeSet<Arc<str>>,
    by_tenant: HashMap<TenantId, usize>,
}

// === impl TargetNames ===

impl TargetNames {
    /// The names of these targets.
    pub fn of<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Self {
        let names = targets
            .into_iter()
            .map(|target| {
                let name = TargetName {
                    family: Arc::clone(&target.family),
                    model: Arc::clone(&target.model),
                };
                (target.id.clone(), name)
            })
            .collect();
        Self {
            names,
            ..Self::default()
        }
    }

    /// The same with the routes that are configured.
    #[must_use]
    pub fn with_routes(mut self, routes: impl IntoIterator<Item = RouteName>) -> Self {
        self.routes = routes.into_iter().collect();
        self
    }

    /// Returns every route that is configured.
    pub(super) fn routes(&self) -> &[RouteName] {
        &self.routes
    }

    /// The same with the tenants that are configured.
    #[must_use]
    pub fn with_tenants(mut self, tenants: impl IntoIterator<Item = TenantId>) -> Self {
        self.tenants = tenants.into_iter().collect();
        self
    }

    /// The same with what the targets' tokens cost, in this currency.
    #[must_use]
    pub fn with_prices(
        mut self,
        currency: &str,
        prices: impl IntoIterator<Item = (TargetId, PriceConfig)>,
    ) -> Self {
        self.prices = prices.into_iter().collect();
        self.currency = Some(currency.into());
        self
    }

    /// Returns the cost of so many tokens of a target, with the currency; `None` if it has no
    /// price, or there are no tokens.
    #[expect(clippy::cast_precision_loss, reason = "nobody pays 2^53 millionths")]
    pub(super) fn cost(&self, target: Option<&TargetId>, usage: Usage) -> Option<(Arc<str>, f64)> {
        let micros = self.prices.get(target?)?.micros(usage);
        (micros > 0).then_some((self.currency.clone()?, micros as f64 / 1e6))
    }

    /// Returns every tenant that is configured.
    pub(super) fn tenants(&self) -> &[TenantId] {
        &self.tenants
    }

    /// Returns every target that is configured.
    pub(super) fn targets(&self) -> impl Iterator<Item = &TargetId> {
        self.names.keys()
    }

    pub(super) fn contains(&self, target: &TargetId) -> bool {
        self.names.contains_key(target)
    }

    fn get(&self, target: &TargetId) -> Option<&TargetName> {
        self.names.get(target)
    }
}

// === impl LabelValues ===

impl LabelValues {
    pub(super) fn new(max_values: usize) -> Self {
        Self {
            max_values: max_values.max(1),
            seen: Mutex::default(),
        }
    }

    /// Returns the label with this value, or with `other` once the label has its fill.
    pub(super) fn bounded(&self, label: &'static str, value: &str) -> KeyValue {
        self.bounded_for(None, label, value)
    }

    /// Returns the same with a value that a caller of this tenant named: a tenant brings no more
    /// values than are left for others, so that none of them fills a label alone.
    pub(super) fn bounded_for(
        &self,
        tenant: Option<&TenantId>,
        label: &'static str,
        value: &str,
    ) -> KeyValue {
        let mut seen = self.seen.lock();
        let SeenValues { values, by_tenant } = seen.entry(label).or_default();
        if let Some(known) = values.get(value) {
            return KeyValue::new(label, StringValue::from(Arc::clone(known)));
        }
        let left = self.max_values.saturating_sub(values.len());
        let brought = tenant.and_then(|tenant| by_tenant.get(tenant).copied());
        if left == 0 || brought.is_some_and(|brought| brought >= left) {
            return KeyValue::new(label, OTHER);
        }
        if let Some(tenant) = tenant {
            *by_tenant.entry(tenant.clone()).or_default() += 1;
        }
        let value: Arc<str> = Arc::from(value);
        values.insert(Arc::clone(&value));
        KeyValue::new(label, StringValue::from(value))
    }

    /// Target, provider and model. Configured targets are few and keep their names; any other is
    /// bounded.
    pub(super) fn target(
        &self,
        names: &TargetNames,
        target: Option<&TargetId>,
        model: Option<&str>,
    ) -> [KeyValue; 3] {
        match target.and_then(|id| names.get(id).map(|name| (id, name))) {
            Some((id, name)) => [
                KeyValue::new(TARGET, id.to_string()),
                KeyValue::new(PROVIDER, StringValue::from(Arc::clone(&name.family))),
                KeyValue::new(MODEL, StringValue::from(Arc::clone(&name.model))),
            ],
            None => [
                target.map_or_else(
                    || KeyValue::new(TARGET, UNKNOWN),
                    |id| self.bounded(TARGET, id.as_str()),
                ),
                KeyValue::new(PROVIDER, UNKNOWN),
                model.map_or_else(
                    || KeyValue::new(MODEL, UNKNOWN),
                    |model| self.bounded(MODEL, model),
                ),
            ],
        }
    }
}

/// Returns the cause without its class, which would multiply series; spans carry both.
pub(super) fn cause_label(cause: AttemptCause) -> &'static str {
    match cause {
        AttemptCause::Extend | AttemptCause::Attach(_) => "continue",
        cause => cause.as_str(),
    }
}

/// Strategies as labels: lower case, like every other label value.
pub(super) fn strategy_label(strategy: RecoveryStrategy) -> String {
    strategy.as_str().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_become_other_and_known_ones_keep_their_names() {
        let labels = LabelValues::new(2);
        let value_of = |value: &str| {
            labels
                .bounded("operation", value)
                .value
                .as_str()
                .into_owned()
        };
        assert_eq!(
            ["planner", "executor", "third", "planner", "fourth"].map(value_of),
            ["planner", "executor", "other", "planner", "other"]
        );
        assert_eq!(
            labels.bounded("route", "third").value.as_str(),
            "third",
            "each label has a bound of its own"
        );
    }

    #[test]
    fn no_tenant_fills_a_label_alone() {
        let labels = LabelValues::new(64);
        let named = |tenant: &str| {
            let tenant = TenantId::from(tenant);
            let values = (0..1000).map(|number| format!("{tenant}-{number}"));
            let kept = values.filter(|value| {
                let bounded = labels.bounded_for(Some(&tenant), "operation", value);
                bounded.value.as_str() == *value
            });
            kept.count()
        };
        assert_eq!(
            ["greedy", "second", "third", "greedy"].map(named),
            [32, 16, 8, 32]
        );
    }
}
