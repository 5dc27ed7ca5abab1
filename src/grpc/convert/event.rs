//! Events as watchers receive them: the envelope, one typed body, and cursors.
//!
//! A cursor is opaque to clients; it is the event's position in this process's journal in decimal
//! digits. Two kinds of event are not sent, since the contract has no body for them: a first token
//! and a successful attempt.

use jiff::Timestamp;

use super::{outcome::target_field, time::wire_time};
use crate::{
    domain::{
        event::{Event, EventBody},
        ids::Cursor,
        release::ReleaseAction,
    },
    grpc::v1,
};
use v1::recovery_event::Body;

mod body;

pub(in crate::grpc) use self::body::{circuit_evidence, setting_faults};

/// The text of a cursor, as a client gives it back.
#[must_use]
pub fn cursor_text(cursor: Cursor) -> String {
    cursor.0.to_string()
}

/// The place that a cursor's text names.
///
/// # Errors
/// When the text is none that Relight gave out; the reason completes a sentence that begins with
/// the field.
pub fn parse_cursor(text: &str) -> Result<Cursor, &'static str> {
    const GARBAGE: &str = "is no cursor: give back the cursor of an event, unchanged";
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(GARBAGE);
    }
    text.parse().map(Cursor).map_err(|_| GARBAGE)
}

/// An event as watchers receive it; `None` for one that the contract does not include.
#[must_use]
pub fn recovery_event(event: &Event) -> Option<v1::RecoveryEvent> {
    let body = body::body(event)?;
    let scope = event.scope.as_deref();
    Some(v1::RecoveryEvent {
        cursor: cursor_text(event.cursor),
        time: Some(wire_time(event.at)),
        invocation_id: scope
            .map(|scope| scope.invocation.as_str().to_owned())
            .unwrap_or_default(),
        attempt: event.attempt,
        operation: scope
            .map(|scope| scope.operation.as_str().to_owned())
            .unwrap_or_default(),
        target: target_field(event.target.as_ref()),
        route: scope
            .map(|scope| scope.route.as_str().to_owned())
            .unwrap_or_default(),
        thread_id: scope
            .and_then(|scope| scope.thread.as_ref())
            .map(|thread| thread.as_str().to_owned())
            .unwrap_or_default(),
        labels: scope
            .map(|scope| {
                scope
                    .labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            })
            .unwrap_or_default(),
        severity: v1::Severity::from(event.body.severity()).into(),
        trace_id: scope
            .map(|scope| scope.trace_id.clone())
            .unwrap_or_default(),
        display_text: event.display(),
        tenant: scope
            .map(|scope| scope.tenant.as_str().to_owned())
            .unwrap_or_default(),
        request_id: scope
            .and_then(|scope| scope.request_id.as_ref())
            .map(|request| request.as_str().to_owned())
            .unwrap_or_default(),
        body: Some(body),
    })
}

/// Replaces `count` events from `from` to `to`, both included, that a slow watcher missed.
#[must_use]
pub fn missed(count: u64, from: Cursor, to: Cursor, at: Timestamp) -> v1::RecoveryEvent {
    let before = Cursor(from.0.saturating_sub(1));
    let from_cursor = if before.0 == 0 {
        String::new()
    } else {
        cursor_text(before)
    };
    v1::RecoveryEvent {
        // They are lost: a client that returns continues after them.
        cursor: cursor_text(to),
        time: Some(wire_time(at)),
        severity: v1::Severity::Warning.into(),
        body: Some(Body::Missed(v1::Missed {
            count,
            from_cursor,
            to_cursor: cursor_text(to),
        })),
        ..v1::RecoveryEvent::default()
    }
}

/// Keeps an idle watcher's cursor fresh.
#[must_use]
pub fn bookmark(cursor: Cursor, at: Timestamp) -> v1::RecoveryEvent {
    v1::RecoveryEvent {
        cursor: cursor_text(cursor),
        time: Some(wire_time(at)),
        severity: v1::Severity::Info.into(),
        body: Some(Body::Bookmark(v1::Bookmark {})),
        ..v1::RecoveryEvent::default()
    }
}

/// The contract's type of an event; `None` for one that the contract does not include.
#[must_use]
pub const fn event_type(body: &EventBody) -> Option<v1::RecoveryEventType> {
    use v1::RecoveryEventType as Type;
    Some(match body {
        EventBody::FirstToken { .. }
        | EventBody::AttemptSucceeded { .. }
        | EventBody::CallsRefused { .. } => {
            return None;
        }
        EventBody::InvocationStarted { .. } => Type::InvocationStarted,
        EventBody::InvocationSucceeded { .. } => Type::InvocationSucceeded,
        EventBody::InvocationRecovered { .. } => Type::InvocationRecovered,
        EventBody::InvocationFailed { .. } => Type::InvocationFailed,
        EventBody::InvocationParked { .. } => Type::InvocationParked,
        EventBody::AttemptStarted { .. } => Type::AttemptStarted,
        EventBody::AttemptReadOn { .. } => Type::AttemptReadOn,
        EventBody::AttemptFailed { .. } => Type::AttemptFailed,
        EventBody::RecoveryAttempted { .. } => Type::RecoveryAttempted,
        EventBody::ContextInjected { .. } => Type::ContextInjected,
        EventBody::ContextInjectionSkipped { .. } => Type::ContextInjectionSkipped,
        EventBody::FallbackChosen { .. } => Type::FallbackChosen,
        EventBody::HedgeStarted { .. } => Type::HedgeStarted,
        EventBody::CircuitOpened { .. } => Type::CircuitOpened,
        EventBody::CircuitHalfOpen { .. } => Type::CircuitHalfOpen,
        EventBody::CircuitRecovering { .. } => Type::CircuitRecovering,
        EventBody::CircuitClosed { .. } => Type::CircuitClosed,
        EventBody::GateClosed { .. } => Type::GateClosed,
        EventBody::GateOpened { .. } => Type::GateOpened,
        EventBody::BudgetExhausted { .. } => Type::BudgetExhausted,
        EventBody::ReleaseDecided { decision, .. } => match decision.action {
            ReleaseAction::RolledBack => Type::ReleaseRolledBack,
            ReleaseAction::Promoted | ReleaseAction::Reinstated | ReleaseAction::Held => {
                Type::ReleaseDecided
            }
        },
        EventBody::ConfigurationReloaded { .. } => Type::ConfigurationReloaded,
        EventBody::ConfigurationRejected { .. } => Type::ConfigurationRejected,
        EventBody::StoreLost { .. } => Type::StoreLost,
        EventBody::StoreFound { .. } => Type::StoreFound,
    })
}

#[cfg(test)]
mod tests;
