//! Events that are counted alone, without memory of earlier ones.

use opentelemetry::KeyValue;

use crate::{
    domain::{
        circuit::CircuitState,
        event::{Event, EventBody},
        failure::{FailureClass, Wait},
        invocation::RecoveryStrategy,
        release::ReleaseLane,
        semconv::label,
    },
    telemetry::metrics::{Inner, labels::strategy_label},
};

impl Inner {
    /// Counts an event that needs no memory of others.
    pub(super) fn record_lone(&self, event: &Event) {
        let names = self.names();
        let target = event.target.as_ref();
        let at_target = || self.labels.target(&names, target, None)[0].clone();
        match &event.body {
            EventBody::ContextInjected { vehicle, .. } => {
                self.instruments
                    .recovery
                    .injections
                    .add(1, &[self.labels.bounded(label::VEHICLE, vehicle)]);
            }
            EventBody::ContextInjectionSkipped { .. } => {
                self.instruments
                    .recovery
                    .injections
                    .add(1, &[KeyValue::new(label::VEHICLE, "skipped")]);
            }
            EventBody::FallbackChosen { from, class } => {
                let left = self.labels.target(&names, Some(from), None)[0]
                    .value
                    .clone();
                self.instruments.recovery.fallbacks.add(
                    1,
                    &[
                        KeyValue::new(label::FROM, left),
                        KeyValue::new(label::TO, at_target().value),
                        KeyValue::new(label::CLASS, class.as_str()),
                    ],
                );
            }
            EventBody::HedgeStarted { .. } => {
                self.instruments.recovery.hedges.add(1, &[at_target()]);
            }
            EventBody::CircuitOpened { .. } => self.circuit_moved(CircuitState::Open, at_target()),
            EventBody::CircuitHalfOpen { .. } => {
                self.circuit_moved(CircuitState::HalfOpen, at_target());
            }
            EventBody::CircuitRecovering { .. } => {
                self.circuit_moved(CircuitState::Recovering, at_target());
            }
            EventBody::CircuitClosed { .. } => {
                self.circuit_moved(CircuitState::Closed, at_target());
            }
            // Those of the keys of a pool are read at each scrape.
            EventBody::GateClosed { key: Some(_), .. }
            | EventBody::GateOpened { key: Some(_), .. } => {}
            EventBody::GateClosed { gate, .. } => {
                if let Some(target) = target {
                    self.gauges.gate_moved(target, *gate, true);
                }
            }
            EventBody::GateOpened { gate, .. } => {
                if let Some(target) = target {
                    self.gauges.gate_moved(target, *gate, false);
                }
            }
            EventBody::BudgetExhausted { level, .. } => {
                self.instruments
                    .recovery
                    .budget_exhausted
                    .add(1, &[at_target()]);
                if let Some(target) = target {
                    self.gauges.budget_is(target, *level);
                }
            }
            EventBody::ReleaseDecided { decision, .. } => {
                let lane = decision.lane.map_or("operator", ReleaseLane::as_str);
                let labels = [
                    KeyValue::new(label::ACTION, decision.action.as_str()),
                    KeyValue::new(label::LANE, lane),
                ];
                self.instruments.operation.release_decisions.add(1, &labels);
            }
            EventBody::ConfigurationReloaded { .. } => {
                self.instruments
                    .operation
                    .config_reloads
                    .add(1, &[KeyValue::new(label::RESULT, "accepted")]);
            }
            EventBody::ConfigurationRejected { .. } => {
                self.instruments
                    .operation
                    .config_reloads
                    .add(1, &[KeyValue::new(label::RESULT, "rejected")]);
            }
            EventBody::StoreLost { store, .. } => self.gauges.store_is(store, false),
            EventBody::StoreFound { store, .. } => self.gauges.store_is(store, true),
            // An invocation is counted when it ends; the rest is counted with its attempt or
            // invocation, or has no number.
            _ => {}
        }
    }

    pub(super) fn recovery(&self, class: FailureClass, strategy: RecoveryStrategy, wait: Wait) {
        let class = KeyValue::new(label::CLASS, class.as_str());
        let strategy = KeyValue::new(label::STRATEGY, strategy_label(strategy));
        let source = KeyValue::new(label::SOURCE, wait.source.as_str());
        self.instruments
            .recovery
            .decided
            .add(1, &[strategy, class.clone()]);
        self.instruments
            .recovery
            .delay
            .record(wait.duration.as_secs_f64(), &[source, class]);
    }

    fn circuit_moved(&self, to: CircuitState, at: KeyValue) {
        self.instruments
            .operation
            .circuit_transitions
            .add(1, &[at, KeyValue::new(label::TO, to.as_str())]);
    }
}
