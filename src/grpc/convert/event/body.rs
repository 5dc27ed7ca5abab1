//! The typed body of each event.
//!
//! One exhaustive match, so that a new event does not compile until it is told or kept inside on purpose.

use crate::{
    domain::{
        event::{Event, EventBody, Evidence},
        failure::FailureClass,
        invocation::RecoveryStrategy,
    },
    grpc::{
        convert::{
            enums::{class_field, skip_reason, store_kind, strategies_field, vehicle, wait_fields},
            outcome::{bounded, target_field, usage},
            time::{after, wire_time},
        },
        v1,
    },
};
use v1::recovery_event::Body;

/// The body; `None` for an event that the contract does not tell.
#[expect(clippy::too_many_lines, reason = "one arm an event: splitting it would need arms that cannot happen")]
pub(super) fn body(event: &Event) -> Option<Body> {
    Some(match &event.body {
        EventBody::FirstToken { .. } | EventBody::AttemptSucceeded { .. } => return None,
        EventBody::InvocationStarted { deadline_ms } => {
            let deadline = after(event.at, std::time::Duration::from_millis(*deadline_ms));
            Body::InvocationStarted(v1::InvocationStartedEvent {
                // Only a new invocation starts: one that is joined or replayed started before.
                disposition: v1::RequestDisposition::New.into(),
                max_retries: 0,
                deadline: Some(wire_time(deadline)),
            })
        }
        EventBody::InvocationSucceeded { duration_ms, usage: spent } => {
            Body::InvocationSucceeded(v1::InvocationSucceededEvent {
                duration_ms: *duration_ms,
                attempts: 1,
                usage: Some(usage(spent)),
            })
        }
        EventBody::InvocationRecovered { duration_ms, attempts, strategies, usage: spent } => {
            Body::InvocationRecovered(v1::InvocationRecoveredEvent {
                duration_ms: *duration_ms,
                attempts: *attempts,
                usage: Some(usage(spent)),
                recovery_applied: strategies_field(strategies),
                first_failure_class: class_field(None),
            })
        }
        EventBody::InvocationFailed { duration_ms, attempts, class, message } => {
            Body::InvocationFailed(invocation_failed(*duration_ms, *attempts, *class, message))
        }
        EventBody::AttemptStarted { cause, model } => Body::AttemptStarted(v1::AttemptStartedEvent {
            cause: v1::AttemptCause::from(*cause).into(),
            model: model.clone(),
            ..v1::AttemptStartedEvent::default()
        }),
        EventBody::AttemptFailed { class, message, status: _, duration_ms, sent, usage: spent } => {
            Body::AttemptFailed(v1::AttemptFailedEvent {
                failure_class: class_field(Some(*class)),
                message: bounded(message),
                duration_ms: *duration_ms,
                sent: *sent,
                usage: Some(usage(spent)),
                ..v1::AttemptFailedEvent::default()
            })
        }
        EventBody::RecoveryAttempted { error, class, retry, max_retries, strategy, wait, adaptation } => {
            let to_other = *strategy == RecoveryStrategy::Fallback;
            let (wait_ms, wait_source) = wait_fields(Some(*wait), to_other, Some(*class));
            let scope = event.scope.as_deref();
            Body::RecoveryAttempted(v1::RecoveryAttemptedEvent {
                operation: scope.map(|scope| scope.operation.as_str().to_owned()).unwrap_or_default(),
                error: error.clone(),
                attempt: *retry,
                max_retries: *max_retries,
                strategy: v1::RecoveryStrategy::from(*strategy).into(),
                wait_ms,
                wait_source,
                display_text: event.display(),
                failure_class: class_field(Some(*class)),
                adaptation: adaptation.clone().unwrap_or_default(),
            })
        }
        EventBody::ContextInjected { vehicle: place } => Body::ContextInjected(v1::ContextInjectedEvent {
            vehicle: vehicle(place).into(),
            ..v1::ContextInjectedEvent::default()
        }),
        EventBody::ContextInjectionSkipped { reason } => {
            Body::ContextInjectionSkipped(v1::ContextInjectionSkippedEvent {
                reason: skip_reason(reason).into(),
                ..v1::ContextInjectionSkippedEvent::default()
            })
        }
        EventBody::FallbackChosen { from, class } => Body::FallbackChosen(v1::FallbackChosenEvent {
            from_target: from.as_str().to_owned(),
            to_target: target_field(event.target.as_ref()),
            failure_class: class_field(Some(*class)),
            reason: class.phrase().to_owned(),
        }),
        EventBody::HedgeStarted { beside, after_ms } => Body::HedgeStarted(v1::HedgeStartedEvent {
            slow_target: beside.as_str().to_owned(),
            hedge_target: target_field(event.target.as_ref()),
            delay_ms: *after_ms,
        }),
        EventBody::CircuitOpened { evidence, retry_in_ms, reason } => Body::CircuitOpened(v1::CircuitOpenedEvent {
            evidence: Some(circuit_evidence(evidence)),
            rule: reason.clone(),
            retry_in_ms: Some(*retry_in_ms),
            ..v1::CircuitOpenedEvent::default()
        }),
        EventBody::CircuitHalfOpen => Body::CircuitHalfOpen(v1::CircuitHalfOpenEvent::default()),
        EventBody::CircuitRecovering { admitted_percent } => Body::CircuitRecovering(v1::CircuitRecoveringEvent {
            admitted_ratio: f64::from(*admitted_percent) / 100.0,
            ..v1::CircuitRecoveringEvent::default()
        }),
        EventBody::CircuitClosed => Body::CircuitClosed(v1::CircuitClosedEvent::default()),
        EventBody::GateClosed { gate, reopens_in_ms, class } => Body::GateClosed(v1::GateClosedEvent {
            kind: v1::GateKind::from(*gate).into(),
            cause: class_field(Some(*class)),
            reopens_in_ms: Some(*reopens_in_ms),
            wait_source: v1::WaitSource::Unspecified.into(),
        }),
        EventBody::GateOpened { gate } => {
            Body::GateOpened(v1::GateOpenedEvent { kind: v1::GateKind::from(*gate).into(), closed_ms: 0 })
        }
        EventBody::BudgetExhausted { level } => Body::BudgetExhausted(budget_exhausted(event, *level)),
        EventBody::ReleaseRolledBack { release, to, reason } => Body::ReleaseRolledBack(v1::ReleaseRolledBackEvent {
            release_id: release.clone(),
            subject: target_field(event.target.as_ref()),
            to_release_id: to.clone(),
            decision: Some(v1::ReleaseDecision {
                time: Some(wire_time(event.at)),
                action: v1::ReleaseAction::RolledBack.into(),
                reason: reason.clone(),
                ..v1::ReleaseDecision::default()
            }),
        }),
        EventBody::ConfigurationReloaded => Body::ConfigurationReloaded(v1::ConfigurationReloadedEvent::default()),
        EventBody::ConfigurationRejected { reason } => {
            let fault = v1::ConfigurationFault { reason: reason.clone(), ..v1::ConfigurationFault::default() };
            Body::ConfigurationRejected(v1::ConfigurationRejectedEvent { faults: vec![fault] })
        }
        EventBody::StoreLost { store, reason } => {
            Body::StoreLost(v1::StoreLostEvent { kind: store_kind(store).into(), reason: reason.clone() })
        }
        EventBody::StoreFound { store } => {
            Body::StoreFound(v1::StoreFoundEvent { kind: store_kind(store).into(), lost_ms: 0 })
        }
    })
}

fn invocation_failed(duration_ms: u64, attempts: u32, class: FailureClass, message: &str) -> v1::InvocationFailedEvent {
    v1::InvocationFailedEvent {
        duration_ms,
        attempts,
        // With one attempt nothing was done; what was done after more is not in the event.
        recovery_applied: if attempts <= 1 { strategies_field(&[]) } else { Vec::new() },
        failure_class: class_field(Some(class)),
        code: v1::FailureCode::from(class.code()).into(),
        message: bounded(message),
        user_message: class.phrase().to_owned(),
        ..v1::InvocationFailedEvent::default()
    }
}

fn budget_exhausted(event: &Event, level: u32) -> v1::BudgetExhaustedEvent {
    let (scope, budget) = if event.target.is_some() {
        let budget = v1::RetryBudget { level: level.into(), capacity: 0.0 };
        (v1::BudgetScope::Target, Some(budget))
    } else {
        (v1::BudgetScope::Invocation, None)
    };
    v1::BudgetExhaustedEvent { scope: scope.into(), budget }
}

fn circuit_evidence(evidence: &Evidence) -> v1::CircuitEvidence {
    v1::CircuitEvidence {
        committed: evidence.committed.into(),
        failures: evidence.failures.into(),
        slow: evidence.slow.into(),
        pending: evidence.pending.into(),
        consecutive_failures: evidence.consecutive.into(),
        window_ms: 0,
    }
}
