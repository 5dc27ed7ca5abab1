//! Events as watchers receive them: the envelope, one typed body, and cursors.
//!
//! A cursor is opaque to clients; it is the event's position in this process's journal in decimal
//! digits, or in a fleet the positions at all replicas (`fleet_cursor`). Three kinds of event are not sent, since the contract has no body for them: a first token,
//! a successful attempt and the count of refused calls.

use jiff::Timestamp;

use super::{
    enums::{IntoProto as _, by_name},
    outcome::target_field,
    time::wire_time,
};
use crate::{
    domain::{
        event::{Event, EventBody},
        ids::Cursor,
    },
    grpc::v1,
};
use v1::recovery_event::Body;

mod body;

pub(in crate::grpc) use self::body::{circuit_evidence, setting_faults};

/// Returns the text of a cursor, as a client gives it back.
#[must_use]
pub fn cursor_text(cursor: Cursor) -> String {
    cursor.0.to_string()
}

/// Returns the place that a cursor's text names.
///
/// # Errors
/// Returns an error if the text is not one that Relight gave out; the reason completes a
/// sentence that starts with the field.
pub fn parse_cursor(text: &str) -> Result<Cursor, &'static str> {
    const GARBAGE: &str = "is no cursor: give back the cursor of an event, unchanged";
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(GARBAGE);
    }
    text.parse().map(Cursor).map_err(|_| GARBAGE)
}

/// Returns an event as watchers receive it; `None` for one that the contract does not include.
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
        severity: event.body.severity().into_proto().into(),
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
        replica: String::new(),
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
    bookmark_at(cursor_text(cursor), at)
}

/// The same for the text of a cursor.
#[must_use]
pub fn bookmark_at(cursor: String, at: Timestamp) -> v1::RecoveryEvent {
    v1::RecoveryEvent {
        cursor,
        time: Some(wire_time(at)),
        severity: v1::Severity::Info.into(),
        body: Some(Body::Bookmark(v1::Bookmark {})),
        ..v1::RecoveryEvent::default()
    }
}

/// Returns the contract's type of an event, by its name; `None` for one that the contract does not
/// include.
#[must_use]
pub fn event_type(body: &EventBody) -> Option<v1::RecoveryEventType> {
    by_name(
        body.kind(),
        "RECOVERY_EVENT_TYPE_",
        v1::RecoveryEventType::from_str_name,
    )
}

#[cfg(test)]
mod tests;
