//! The series that are known before anything happens, begun at zero.

use opentelemetry::KeyValue;

use super::{
    Inner,
    labels::{cause_label, strategy_label},
};
use crate::domain::{
    circuit::CircuitState,
    failure::FailureClass,
    invocation::{AttemptCause, DEFAULT_OPERATION, RecoveryStrategy},
    semconv::label,
};

impl Inner {
    /// Begins the series whose labels are known from the configuration, at zero: a rate needs a
    /// value before the first event.
    pub(super) fn begin_series(&self) {
        let names = self.names();
        let instruments = &self.instruments;
        for route in names.routes() {
            let route = self.labels.bounded(label::ROUTE, route.as_str());
            let operation = self.labels.bounded(label::OPERATION, DEFAULT_OPERATION);
            let ended = |outcome: &'static str, class: &'static str| {
                let labels = [
                    route.clone(),
                    operation.clone(),
                    KeyValue::new(label::OUTCOME, outcome),
                    KeyValue::new(label::CLASS, class),
                ];
                instruments.invocations.ended.add(0, &labels);
            };
            ended("succeeded", "");
            ended("recovered", "");
            for class in FailureClass::ALL {
                ended("failed", class.as_str());
            }
            instruments
                .invocations
                .shed
                .add(0, &[route.clone(), operation.clone()]);
        }
        for tenant in names.tenants() {
            let tenant = self.labels.bounded(label::TENANT, tenant.as_str());
            for outcome in ["succeeded", "recovered", "failed", "cancelled"] {
                instruments
                    .invocations
                    .of_tenant
                    .add(0, &[tenant.clone(), KeyValue::new(label::OUTCOME, outcome)]);
            }
        }
        for id in names.targets() {
            let [target, provider, model] = self.labels.target(&names, Some(id), None);
            let first = [
                target.clone(),
                provider.clone(),
                model,
                KeyValue::new(label::CAUSE, cause_label(AttemptCause::Initial)),
                KeyValue::new(label::CLASS, ""),
                KeyValue::new(label::OUTCOME, "answered"),
            ];
            instruments.attempts.ended.add(0, &first);
            instruments
                .recovery
                .hedges
                .add(0, std::slice::from_ref(&target));
            instruments
                .recovery
                .budget_exhausted
                .add(0, std::slice::from_ref(&target));
            instruments.attempts.classifier_unknown.add(0, &[provider]);
            for to in [
                CircuitState::Open,
                CircuitState::HalfOpen,
                CircuitState::Recovering,
                CircuitState::Closed,
            ] {
                instruments
                    .operation
                    .circuit_transitions
                    .add(0, &[target.clone(), KeyValue::new(label::TO, to.as_str())]);
            }
        }
        for strategy in [RecoveryStrategy::Retry, RecoveryStrategy::Fallback] {
            let label = KeyValue::new(label::STRATEGY, strategy_label(strategy));
            instruments
                .recovery
                .succeeded
                .add(0, std::slice::from_ref(&label));
            for class in FailureClass::ALL
                .into_iter()
                .filter(|class| !class.is_local_refusal())
            {
                instruments.recovery.decided.add(
                    0,
                    &[label.clone(), KeyValue::new(label::CLASS, class.as_str())],
                );
            }
        }
        for result in ["accepted", "rejected"] {
            instruments
                .operation
                .config_reloads
                .add(0, &[KeyValue::new(label::RESULT, result)]);
        }
    }
}
