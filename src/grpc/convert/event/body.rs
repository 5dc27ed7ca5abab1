//! The typed body of each event.
//!
//! One exhaustive match, so that a new event does not compile until it is converted or excluded on
//! purpose.

use crate::{
    domain::{
        event::{Event, EventBody, Evidence, SettingFault},
        failure::WaitSource,
        invocation::{AttemptCause, RecoveryStrategy},
        release::ReleaseAction,
    },
    grpc::{
        convert::{
            enums::{
                IntoProto as _, class_field, detail_field, skip_reason, store_kind,
                strategies_field, vehicle, wait_fields, wait_source,
            },
            outcome::{bounded, target_field, usage},
            release::wire_decision,
            time::{after, wait_millis, wire_time},
        },
        v1,
    },
};
use v1::recovery_event::Body;

/// Most paths, or faults, of a configuration that are reported.
const MAX_PATHS: usize = 100;

/// The body; `None` for an event that the contract does not include.
#[expect(
    clippy::too_many_lines,
    reason = "one arm an event: splitting it would need arms that cannot happen"
)]
pub(super) fn body(event: &Event) -> Option<Body> {
    Some(match &event.body {
        EventBody::FirstToken { .. }
        | EventBody::AttemptSucceeded { .. }
        | EventBody::CallsRefused { .. } => {
            return None;
        }
        EventBody::InvocationStarted {
            deadline_ms,
            max_retries,
        } => {
            let deadline = after(event.at, std::time::Duration::from_millis(*deadline_ms));
            Body::InvocationStarted(v1::InvocationStartedEvent {
                // Only a new invocation starts: one that is joined or replayed started before.
                disposition: v1::RequestDisposition::New.into(),
                max_retries: *max_retries,
                deadline: Some(wire_time(deadline)),
            })
        }
        EventBody::InvocationSucceeded {
            duration_ms,
            usage: spent,
        } => Body::InvocationSucceeded(v1::InvocationSucceededEvent {
            duration_ms: *duration_ms,
            attempts: 1,
            usage: Some(usage(spent)),
        }),
        EventBody::InvocationRecovered {
            duration_ms,
            attempts,
            strategies,
            usage: spent,
            first_failure,
        } => Body::InvocationRecovered(v1::InvocationRecoveredEvent {
            duration_ms: *duration_ms,
            attempts: *attempts,
            usage: Some(usage(spent)),
            recovery_applied: strategies_field(strategies),
            first_failure_class: class_field(*first_failure),
        }),
        EventBody::InvocationFailed {
            duration_ms,
            attempts,
            usage: spent,
            strategies,
            class,
            detail,
            message,
            user_message,
            recovery_hint,
            stopped_by,
        } => Body::InvocationFailed(v1::InvocationFailedEvent {
            duration_ms: *duration_ms,
            attempts: *attempts,
            usage: Some(usage(spent)),
            recovery_applied: strategies_field(strategies),
            failure_class: class_field(Some(*class)),
            detail: detail_field(*detail),
            code: class.code().into_proto().into(),
            message: bounded(message),
            user_message: user_message.clone(),
            recovery_hint: recovery_hint.clone(),
            stopped_by: class_field(*stopped_by),
        }),
        EventBody::InvocationParked {
            class,
            wait_ms,
            in_line,
        } => Body::InvocationParked(v1::InvocationParkedEvent {
            failure_class: class_field(Some(*class)),
            wait_ms: *wait_ms,
            wait_source: wait_source(WaitSource::Parked, false, Some(*class)).into(),
            in_line: *in_line,
        }),
        EventBody::AttemptStarted { cause, model, wait } => {
            let to_other = matches!(cause, AttemptCause::Fallback(_));
            let (wait_before_ms, wait_source) = wait_fields(*wait, to_other, cause.class());
            Body::AttemptStarted(v1::AttemptStartedEvent {
                cause: cause.into_proto().into(),
                model: model.clone(),
                wait_before_ms,
                wait_source,
            })
        }
        EventBody::AttemptReadOn { reason, requests } => {
            Body::AttemptReadOn(v1::AttemptReadOnEvent {
                reason: reason.clone(),
                requests: *requests,
            })
        }
        EventBody::AttemptFailed {
            class,
            detail,
            signature: _,
            recovery_hint: _,
            message,
            retryable,
            retry_after,
            status: _,
            duration_ms,
            sent,
            usage: spent,
        } => Body::AttemptFailed(v1::AttemptFailedEvent {
            failure_class: class_field(Some(*class)),
            detail: detail_field(*detail),
            message: bounded(message),
            duration_ms: *duration_ms,
            retryable_same_target: *retryable,
            retry_after_ms: retry_after.map(|wait| wait_millis(wait.duration)),
            sent: *sent,
            usage: Some(usage(spent)),
        }),
        EventBody::RecoveryAttempted {
            error,
            class,
            retry,
            max_retries,
            strategy,
            wait,
            adaptation,
            ..
        } => {
            let to_other = *strategy == RecoveryStrategy::Fallback;
            let (wait_ms, wait_source) = wait_fields(Some(*wait), to_other, Some(*class));
            let scope = event.scope.as_deref();
            Body::RecoveryAttempted(v1::RecoveryAttemptedEvent {
                operation: scope
                    .map(|scope| scope.operation.as_str().to_owned())
                    .unwrap_or_default(),
                error: error.clone(),
                attempt: *retry,
                max_retries: *max_retries,
                strategy: strategy.into_proto().into(),
                wait_ms,
                wait_source,
                display_text: event.display(),
                failure_class: class_field(Some(*class)),
                adaptation: adaptation.clone().unwrap_or_default(),
            })
        }
        EventBody::ContextInjected {
            vehicle: place,
            class,
            note_bytes,
        } => Body::ContextInjected(v1::ContextInjectedEvent {
            vehicle: vehicle(place).into(),
            failure_class: class_field(Some(*class)),
            note_bytes: *note_bytes,
        }),
        EventBody::ContextInjectionSkipped { reason, class } => {
            Body::ContextInjectionSkipped(v1::ContextInjectionSkippedEvent {
                reason: skip_reason(reason).into(),
                failure_class: class_field(Some(*class)),
            })
        }
        EventBody::FallbackChosen { from, class } => {
            Body::FallbackChosen(v1::FallbackChosenEvent {
                from_target: from.as_str().to_owned(),
                to_target: target_field(event.target.as_ref()),
                failure_class: class_field(Some(*class)),
                reason: class.phrase().to_owned(),
            })
        }
        EventBody::HedgeStarted { beside, after_ms } => Body::HedgeStarted(v1::HedgeStartedEvent {
            slow_target: beside.as_str().to_owned(),
            hedge_target: target_field(event.target.as_ref()),
            delay_ms: *after_ms,
        }),
        EventBody::CircuitOpened {
            generation,
            from,
            evidence,
            retry_in_ms,
            reason,
            class,
            streak,
            forced,
        } => Body::CircuitOpened(v1::CircuitOpenedEvent {
            generation: *generation,
            previous_state: from.into_proto().into(),
            evidence: Some(circuit_evidence(evidence)),
            rule: reason.clone(),
            cause: class_field(*class),
            retry_in_ms: *retry_in_ms,
            streak: *streak,
            forced: *forced,
        }),
        EventBody::CircuitHalfOpen {
            generation,
            open_ms,
            probes,
        } => {
            let generation = *generation;
            let open_ms = *open_ms;
            let probes = *probes;
            Body::CircuitHalfOpen(v1::CircuitHalfOpenEvent {
                generation,
                open_ms,
                probes,
            })
        }
        EventBody::CircuitRecovering {
            generation,
            admitted_percent,
            evidence,
        } => Body::CircuitRecovering(v1::CircuitRecoveringEvent {
            generation: *generation,
            admitted_ratio: f64::from(*admitted_percent) / 100.0,
            evidence: Some(circuit_evidence(evidence)),
        }),
        EventBody::CircuitClosed {
            generation,
            from,
            evidence,
            disturbed_ms,
            forced,
        } => Body::CircuitClosed(v1::CircuitClosedEvent {
            generation: *generation,
            previous_state: from.into_proto().into(),
            evidence: Some(circuit_evidence(evidence)),
            disturbed_ms: *disturbed_ms,
            forced: *forced,
        }),
        EventBody::GateClosed {
            gate,
            reopens_in_ms,
            source,
            class,
            key,
        } => Body::GateClosed(v1::GateClosedEvent {
            kind: gate.into_proto().into(),
            cause: class_field(Some(*class)),
            reopens_in_ms: Some(*reopens_in_ms),
            wait_source: wait_source(*source, false, Some(*class)).into(),
            key: key.clone().unwrap_or_default(),
        }),
        EventBody::GateOpened {
            gate,
            key,
            closed_ms,
        } => Body::GateOpened(v1::GateOpenedEvent {
            kind: gate.into_proto().into(),
            closed_ms: *closed_ms,
            key: key.clone().unwrap_or_default(),
        }),
        EventBody::BudgetExhausted { level, capacity } => {
            Body::BudgetExhausted(budget_exhausted(event, *level, *capacity))
        }
        EventBody::ReleaseDecided {
            subject,
            release,
            to,
            decision,
        } => {
            let (release_id, subject, to_release_id) =
                (release.clone(), subject.clone(), to.clone());
            let wire = Some(wire_decision(decision));
            if decision.action == ReleaseAction::RolledBack {
                Body::ReleaseRolledBack(v1::ReleaseRolledBackEvent {
                    release_id,
                    subject,
                    to_release_id,
                    decision: wire,
                })
            } else {
                Body::ReleaseDecided(v1::ReleaseDecidedEvent {
                    release_id,
                    subject,
                    decision: wire,
                })
            }
        }
        EventBody::ConfigurationReloaded {
            generation,
            changed,
            needs_restart,
        } => {
            let first = |paths: &[String]| paths.iter().take(MAX_PATHS).cloned().collect();
            Body::ConfigurationReloaded(v1::ConfigurationReloadedEvent {
                generation: *generation,
                changed_paths: first(changed),
                needs_restart_paths: first(needs_restart),
            })
        }
        EventBody::ConfigurationRejected { reason: _, faults } => {
            let faults = setting_faults(faults);
            Body::ConfigurationRejected(v1::ConfigurationRejectedEvent { faults })
        }
        EventBody::StoreLost { store, reason } => Body::StoreLost(v1::StoreLostEvent {
            kind: store_kind(store).into(),
            reason: reason.clone(),
        }),
        EventBody::StoreFound { store, lost_ms } => Body::StoreFound(v1::StoreFoundEvent {
            kind: store_kind(store).into(),
            lost_ms: *lost_ms,
        }),
    })
}

/// Returns the faults of a configuration, within the contract's bound.
pub(in crate::grpc) fn setting_faults(faults: &[SettingFault]) -> Vec<v1::ConfigurationFault> {
    let wire_fault = |fault: &SettingFault| v1::ConfigurationFault {
        path: fault.path.clone(),
        reason: fault.reason.clone(),
        nearest: fault.nearest.clone().unwrap_or_default(),
    };
    faults.iter().take(MAX_PATHS).map(wire_fault).collect()
}

/// Returns the evidence by which a circuit judges.
pub(in crate::grpc) fn circuit_evidence(evidence: &Evidence) -> v1::CircuitEvidence {
    v1::CircuitEvidence {
        committed: evidence.committed.into(),
        failures: evidence.failures.into(),
        slow: evidence.slow.into(),
        pending: evidence.pending.into(),
        consecutive_failures: evidence.consecutive.into(),
        window_ms: evidence.window_ms,
        threshold: evidence.threshold,
    }
}

fn budget_exhausted(event: &Event, level: f64, capacity: f64) -> v1::BudgetExhaustedEvent {
    let (scope, budget) = if event.target.is_some() {
        let budget = v1::RetryBudget { level, capacity };
        (v1::BudgetScope::Target, Some(budget))
    } else {
        (v1::BudgetScope::Invocation, None)
    };
    v1::BudgetExhaustedEvent {
        scope: scope.into(),
        budget,
    }
}
