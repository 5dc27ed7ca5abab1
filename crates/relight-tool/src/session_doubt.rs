//! Signs in a failed response that its session is over: the protocol has a 404 for that, and
//! servers have many other words.

use http::StatusCode;
use rmcp::model::ErrorData;

/// Meaning of a failed response for the session that its request was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionDoubt {
    /// The server does not have it, and executed nothing.
    Lost,
    /// It may be over, which a request that does nothing shows.
    Possible {
        /// If set, the failed request was surely not executed in that case.
        was_refused: bool,
    },
}

/// Returns what a status that is not a success says; `is_correlated`: its body names the request
/// that it responds to, so that the tool itself may have said it. A refusal that does not speak of
/// the session does not prove that the request was not executed.
pub(super) fn of_status(
    status: StatusCode,
    body: &str,
    is_correlated: bool,
) -> Option<SessionDoubt> {
    let speaks_of_it = speaks_of_session(body);
    let possible = Some(SessionDoubt::Possible {
        was_refused: speaks_of_it,
    });
    match status.as_u16() {
        404 if !is_correlated => Some(SessionDoubt::Lost),
        // They have a cause of their own.
        401 | 402 | 403 | 407 | 408 | 413 | 425 | 429 if !speaks_of_it => None,
        401 | 402 | 403 | 407 | 408 | 413 | 425 | 429 | 503 => possible,
        400..=499 if speaks_of_it && !is_correlated => Some(SessionDoubt::Lost),
        400..=499 => possible,
        500..=599 => Some(SessionDoubt::Possible { was_refused: false }),
        _ => None,
    }
}

/// Returns what an error of the protocol says; `is_correlated`: it names the request that it
/// responds to, so that the tool itself may have said it.
pub(super) fn of_error(error: &ErrorData, is_correlated: bool) -> Option<SessionDoubt> {
    let doubt = if is_correlated {
        SessionDoubt::Possible { was_refused: true }
    } else {
        SessionDoubt::Lost
    };
    speaks_of_session(&error.message).then_some(doubt)
}

fn speaks_of_session(words: &str) -> bool {
    names(words, &["session", "sessions", "sessionid"])
        || words.to_ascii_lowercase().contains("no transport")
        || asks_for_start(words)
}

/// Returns whether a server says that it has to be initialized first, which one without sessions
/// says after its own restart, too.
pub(super) fn asks_for_start(words: &str) -> bool {
    names(words, &["initialized", "uninitialized", "initialised"])
        || words.to_ascii_lowercase().contains("before initiali")
}

fn names(words: &str, sought: &[&str]) -> bool {
    words
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| sought.iter().any(|it| it.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_known_by_status_and_words_and_a_doubt_stays_one() {
        let possible = |was_refused| Some(SessionDoubt::Possible { was_refused });
        let lost = Some(SessionDoubt::Lost);
        for (status, body, doubt) in [
            (404, "", lost),
            (400, "Bad Request: No valid session ID provided", lost),
            (400, "Bad Request: Missing session ID", lost),
            (400, "Bad Request: Server not initialized", lost),
            (400, "No transport found for sessionId", lost),
            (410, r#"{"error":"unknown session"}"#, lost),
            (400, "limit must be positive", possible(false)),
            (410, "", possible(false)),
            (401, "invalid token", None),
            (429, "slow down", None),
            (403, "session expired", possible(true)),
            (503, "unknown session", possible(true)),
            (503, "down", possible(false)),
            (500, "the database session is closed", possible(false)),
            (302, "session", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(of_status(status, body, false), doubt, "{status} {body}");
        }
        for (status, body, doubt) in [
            (404, "no such activity", possible(false)),
            (400, "Session 7 of the browser not found", possible(true)),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(of_status(status, body, true), doubt, "{status} {body}");
        }
    }

    #[test]
    fn an_error_that_names_its_request_may_be_the_tools_own_words() {
        let error = |words: &'static str| ErrorData::invalid_request(words, None);
        assert_eq!(
            of_error(&error("Session not found"), false),
            Some(SessionDoubt::Lost)
        );
        assert_eq!(
            of_error(&error("Session not found"), true),
            Some(SessionDoubt::Possible { was_refused: true })
        );
        assert_eq!(of_error(&error("missing field `path`"), false), None);
    }
}
