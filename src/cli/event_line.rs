//! Formats one event of the API as a line for people.
//!
//! The server describes its events; only what it leaves to its readers is written here.

use crate::grpc::v1::{self, recovery_event::Body};

use super::{
    terminal::{Paint, one_line, span},
    words,
};

/// Returns the event, without time and invocation; `None` for a bookmark, which is of no interest
/// to people.
pub(super) fn what(event: &v1::RecoveryEvent) -> Option<String> {
    let text = match &event.body {
        Some(Body::Bookmark(_)) => return None,
        Some(Body::Missed(missed)) if missed.count == 0 && !event.replica.is_empty() => {
            "what it did before is not known".to_owned()
        }
        Some(Body::Missed(missed)) if missed.count == 0 => {
            "the server was started anew; what happened before is gone".to_owned()
        }
        Some(Body::Missed(missed)) => format!("{} events were missed", missed.count),
        Some(Body::RecoveryAttempted(recovery)) => {
            match (recovery.wait_ms, words::wait_source(recovery.wait_source)) {
                (0, _) => format!("{}; at once", recovery.display_text),
                (ms, "") => format!("{}; waiting {}", recovery.display_text, span(ms)),
                (ms, source) => format!("{}; waiting {} {source}", recovery.display_text, span(ms)),
            }
        }
        _ if event.display_text.is_empty() => {
            "Something happened that has no words here".to_owned()
        }
        _ => event.display_text.clone(),
    };
    Some(one_line(&text))
}

/// Returns the text in the colour of its meaning.
pub(super) fn painted(event: &v1::RecoveryEvent, words: &str, paint: Paint) -> String {
    match &event.body {
        Some(
            Body::InvocationSucceeded(_) | Body::InvocationRecovered(_) | Body::CircuitClosed(_),
        ) => paint.green(words),
        Some(Body::InvocationFailed(_) | Body::AttemptFailed(_) | Body::CircuitOpened(_)) => {
            paint.red(words)
        }
        Some(
            Body::RecoveryAttempted(_)
            | Body::InvocationParked(_)
            | Body::GateClosed(_)
            | Body::ReplicaLost(_)
            | Body::Missed(_),
        ) => paint.yellow(words),
        Some(Body::InvocationStarted(_) | Body::AttemptStarted(_)) => paint.dim(words),
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(display_text: &str, body: Option<Body>) -> v1::RecoveryEvent {
        v1::RecoveryEvent {
            display_text: display_text.to_owned(),
            body,
            ..v1::RecoveryEvent::default()
        }
    }

    #[test]
    fn a_recovery_is_one_line_with_the_wait_and_its_source() {
        let recovery = v1::RecoveryAttemptedEvent {
            display_text: "Retrying executor (attempt 1/2): Rate limit reached".to_owned(),
            wait_ms: 1200,
            wait_source: v1::WaitSource::RetryAfter.into(),
            ..v1::RecoveryAttemptedEvent::default()
        };
        assert_eq!(
            what(&event("", Some(Body::RecoveryAttempted(recovery)))).unwrap(),
            "Retrying executor (attempt 1/2): Rate limit reached; waiting 1.2 s (at least the provider's retry-after)"
        );
    }

    #[test]
    fn upstream_text_cannot_break_the_line() {
        assert_eq!(
            what(&event("broken\n\u{1b}[2Jpipe", None)).unwrap(),
            "broken  [2Jpipe"
        );
    }

    #[test]
    fn a_bookmark_has_no_line_and_an_event_of_a_newer_server_has_a_general_one() {
        assert_eq!(
            what(&event("", Some(Body::Bookmark(v1::Bookmark {})))),
            None
        );
        assert!(what(&v1::RecoveryEvent::default()).is_some());
    }

    #[test]
    fn missed_events_are_reported() {
        let missed = v1::Missed {
            count: 12,
            ..v1::Missed::default()
        };
        assert_eq!(
            what(&event("", Some(Body::Missed(missed)))).unwrap(),
            "12 events were missed"
        );
    }
}
