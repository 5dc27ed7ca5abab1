//! One line for people from one event of the API.
//!
//! The server words its events; only what it leaves to its readers is worded here.

use crate::grpc::v1::{self, recovery_event::Body};

use super::{
    terminal::{Paint, one_line, span},
    words,
};

/// What happened, without when and to whom; `None` for a bookmark, which tells people nothing.
pub(super) fn what(event: &v1::RecoveryEvent) -> Option<String> {
    let text = match &event.body {
        Some(Body::Bookmark(_)) => return None,
        Some(Body::Missed(missed)) if missed.count == 0 => {
            "the server was started anew; what happened before is gone".to_owned()
        }
        Some(Body::Missed(missed)) => format!("{} events were missed", missed.count),
        Some(Body::RecoveryAttempted(recovery)) => match (recovery.wait_ms, words::wait_source(recovery.wait_source)) {
            (0, _) => format!("{}; at once", recovery.display_text),
            (ms, "") => format!("{}; waiting {}", recovery.display_text, span(ms)),
            (ms, source) => format!("{}; waiting {} {source}", recovery.display_text, span(ms)),
        },
        _ if event.display_text.is_empty() => "Something happened that has no words here".to_owned(),
        _ => event.display_text.clone(),
    };
    Some(one_line(&text))
}

/// The words, in the colour of what they mean.
pub(super) fn painted(event: &v1::RecoveryEvent, words: &str, paint: Paint) -> String {
    match &event.body {
        Some(Body::InvocationSucceeded(_) | Body::InvocationRecovered(_) | Body::CircuitClosed(_)) => {
            paint.green(words)
        }
        Some(Body::InvocationFailed(_) | Body::AttemptFailed(_) | Body::CircuitOpened(_)) => paint.red(words),
        Some(Body::RecoveryAttempted(_) | Body::InvocationParked(_) | Body::GateClosed(_) | Body::Missed(_)) => {
            paint.yellow(words)
        }
        Some(Body::InvocationStarted(_) | Body::AttemptStarted(_)) => paint.dim(words),
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(display_text: &str, body: Option<Body>) -> v1::RecoveryEvent {
        v1::RecoveryEvent { display_text: display_text.to_owned(), body, ..v1::RecoveryEvent::default() }
    }

    #[test]
    fn a_recovery_is_told_in_its_own_words_with_the_wait_and_its_source() {
        let recovery = v1::RecoveryAttemptedEvent {
            display_text: "Retrying executor (attempt 1/2): Rate limit reached".to_owned(),
            wait_ms: 1200,
            wait_source: v1::WaitSource::RetryAfter.into(),
            ..v1::RecoveryAttemptedEvent::default()
        };
        assert_eq!(
            what(&event("", Some(Body::RecoveryAttempted(recovery)))).unwrap(),
            "Retrying executor (attempt 1/2): Rate limit reached; waiting 1.2 s (at least what the provider's retry-after says)"
        );
    }

    #[test]
    fn upstream_words_cannot_break_the_line() {
        assert_eq!(what(&event("broken\n\u{1b}[2Jpipe", None)).unwrap(), "broken  [2Jpipe");
    }

    #[test]
    fn a_bookmark_says_nothing_and_an_event_of_a_newer_server_says_that_something_happened() {
        assert_eq!(what(&event("", Some(Body::Bookmark(v1::Bookmark {})))), None);
        assert!(what(&v1::RecoveryEvent::default()).is_some());
    }

    #[test]
    fn what_was_missed_is_said() {
        let missed = v1::Missed { count: 12, ..v1::Missed::default() };
        assert_eq!(what(&event("", Some(Body::Missed(missed)))).unwrap(), "12 events were missed");
    }
}
