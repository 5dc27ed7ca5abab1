//! Error with which Relight ends a call that it does not take, or cannot finish: one type and one
//! table for gRPC, the APIs of `OpenAI` and Anthropic, and MCP.
//!
//! Each of them writes the error from its row: `grpc::status`, `front::error` and
//! `front::mcp::error` decide nothing by its kind. A model's failure is an outcome in gRPC; over
//! HTTP, whose clients know errors alone, it has a row by its class. No error holds a prompt, an
//! answer, a key or an upstream text that was not redacted.

pub mod table;
mod violations;

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use self::table::{
    INTERNAL, INVALID_PARAMETER, INVALID_REQUEST, PAYLOADS_NOT_KEPT, REQUEST_TOO_LARGE,
    STORE_UNAVAILABLE, TENANT_LIMITED, THREAD_BUSY, UNSUPPORTED_PARAMETER,
};
pub use self::{table::ErrorRow, violations::Violations};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        ids::{InvocationId, ThreadId},
        invocation::Outcome,
        units::duration_text,
    },
    journal::JournalError,
};

/// Longest piece of the caller's own text that is quoted, in bytes.
const MAX_SHOWN_BYTES: usize = 128;

/// The longest wait that the official SDKs keep; instead of a longer one they try again at once.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Error of a call: its row, and what this one has of its own.
#[derive(Debug, Clone)]
pub struct CallError {
    row: &'static ErrorRow,
    facts: Vec<(&'static str, String)>,
    words: Vec<(&'static str, String)>,
    violations: Option<Box<Violations>>,
    retry_after: Option<Duration>,
    may_retry: bool,
    data: Option<Box<Value>>,
    outcome: Option<Box<Outcome>>,
}

// === impl CallError ===

impl CallError {
    /// The error of this row.
    #[must_use]
    pub fn new(row: &'static ErrorRow) -> Self {
        Self {
            row,
            facts: Vec::new(),
            words: Vec::new(),
            violations: None,
            retry_after: row.retry_ms.map(Duration::from_millis),
            may_retry: row.retry_ms.is_some(),
            data: None,
            outcome: None,
        }
    }

    /// Adds a fact, for programs (in lower camel case) and for the text; a long one is cut.
    #[must_use]
    pub fn fact(mut self, key: &'static str, fact: impl fmt::Display) -> Self {
        self.facts.push((key, shown(&fact.to_string())));
        self
    }

    /// Adds words that the text alone has.
    #[must_use]
    pub fn word(mut self, key: &'static str, word: impl fmt::Display) -> Self {
        self.words.push((key, word.to_string()));
        self
    }

    /// Replaces the wait after which the call may be repeated.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Adds the `data` of an error in JSON-RPC.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    /// Adds the faults of fields.
    #[must_use]
    pub fn with_violations(mut self, faults: Violations) -> Self {
        self.violations = Some(Box::new(faults));
        self
    }

    /// A single field of the request is wrong. `reason` continues a sentence that starts with it.
    #[must_use]
    pub fn invalid_field(field: &str, reason: impl Into<String>) -> Self {
        Violations::of(field, reason).into()
    }

    /// A message is larger than `server.max_message_bytes`, which is `max`.
    #[must_use]
    pub fn message_too_large(max: u64) -> Self {
        Self::new(REQUEST_TOO_LARGE)
            .fact("limit", "server.max_message_bytes")
            .word("max", max)
    }

    /// A field or header of a request over HTTP is wrong. `why` is the whole sentence.
    #[must_use]
    pub fn invalid(param: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(INVALID_PARAMETER)
            .word("param", param)
            .word("why", why)
    }

    /// A field of a request over HTTP asks for something that the front does not have.
    #[must_use]
    pub fn unsupported(param: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(UNSUPPORTED_PARAMETER)
            .word("param", param)
            .word("why", why)
    }

    /// There is no thing of this name; `nearest` is the one that was probably meant.
    #[must_use]
    pub fn not_found(row: &'static ErrorRow, name: &str, nearest: Option<&str>) -> Self {
        let nearest: Vec<String> = nearest.map(str::to_owned).into_iter().collect();
        Self::not_found_of_several(row, name, &nearest)
    }

    /// The same if several may have been meant, the nearest first.
    #[must_use]
    pub fn not_found_of_several(row: &'static ErrorRow, name: &str, nearest: &[String]) -> Self {
        let kind = row.name.trim_end_matches("_NOT_FOUND").to_ascii_lowercase();
        let error = Self::new(row).fact("kind", kind).fact("name", name);
        if nearest.is_empty() {
            return error.word("hint", "");
        }
        let names: Vec<String> = nearest
            .iter()
            .map(|name| format!("`{}`", shown(name)))
            .collect();
        error
            .fact("nearest", nearest.join(","))
            .word("hint", format!("; did you mean {}?", names.join(", ")))
    }

    /// Another invocation runs on the thread.
    #[must_use]
    pub fn thread_busy(thread: &ThreadId, running: &InvocationId) -> Self {
        Self::new(THREAD_BUSY)
            .fact("threadId", thread)
            .fact("invocationId", running)
    }

    /// A fault of Relight itself. `what` names it for the log's reader; no detail goes out beyond
    /// it.
    #[must_use]
    pub fn internal(what: &str) -> Self {
        Self::new(INTERNAL).word("what", what)
    }

    /// An invocation that failed, as an interface has it that knows errors alone.
    #[must_use]
    pub fn of_outcome(outcome: &Outcome, failure: &Failure) -> Self {
        let error = Self::from(failure);
        let sent = outcome.attempts.iter().filter(|attempt| attempt.sent);
        // A wait that did not fit into the call's deadline is not a reason to try the same again.
        let was_too_long = matches!(
            outcome.stopped_by,
            Some(FailureClass::Deadline | FailureClass::CircuitOpen)
        );
        Self {
            may_retry: error.may_retry && sent.count() <= 1 && !was_too_long,
            outcome: Some(Box::new(outcome.clone())),
            ..error
        }
    }

    /// Returns its row.
    #[must_use]
    pub fn row(&self) -> &'static ErrorRow {
        self.row
    }

    /// Returns whether it is of this row.
    #[must_use]
    pub fn is(&self, row: &ErrorRow) -> bool {
        self.row.name == row.name
    }

    /// Returns a fact or word of this name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut known = self.facts.iter().chain(&self.words);
        known
            .find(|(known, _)| *known == key)
            .map(|(_, word)| word.as_str())
    }

    /// Returns the facts for programs.
    #[must_use]
    pub fn facts(&self) -> &[(&'static str, String)] {
        &self.facts
    }

    /// Returns the faults of fields.
    #[must_use]
    pub fn violations(&self) -> Option<&Violations> {
        self.violations.as_deref()
    }

    /// Field or header at fault, if there is one.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        let first = self.violations().and_then(|faults| faults.kept().first());
        self.get("param")
            .or(first.map(|fault| fault.field.as_str()))
            .or(self.row.param)
    }

    /// Returns the wait after which the call may be repeated, if one is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether the client may repeat the call: what Relight tried again already is not to
    /// be multiplied.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        self.may_retry
    }

    /// Returns the `data` of an error in JSON-RPC.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.data.as_deref()
    }

    /// Returns the outcome of the invocation that failed, if it is one's end.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_deref()
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.row.text;
        while let Some((before, after)) = rest.split_once('{') {
            let (key, after) = after.split_once('}').unwrap_or((after, ""));
            f.write_str(before)?;
            match (self.get(key), &self.violations) {
                (Some(word), _) => f.write_str(word)?,
                (None, Some(faults)) => faults.fmt(f)?,
                (None, None) => write!(f, "{{{key}}}")?,
            }
            rest = after;
        }
        f.write_str(rest)
    }
}

impl std::error::Error for CallError {}

impl From<Violations> for CallError {
    fn from(faults: Violations) -> Self {
        Self::new(INVALID_REQUEST).with_violations(faults)
    }
}

impl From<&Failure> for CallError {
    fn from(failure: &Failure) -> Self {
        if let Some(limited) = of_limit(failure) {
            return limited;
        }
        let row = table::of_failure(failure.class);
        let about_credential = matches!(
            failure.class,
            FailureClass::Authentication | FailureClass::PermissionDenied
        );
        let words: &str = if failure.message.is_empty() || about_credential {
            failure.class.phrase()
        } else {
            &failure.message
        };
        let wait = failure.retry_after.map(|wait| wait.duration);
        let mut error = Self::new(row).word("why", words).word("bound", words);
        error.retry_after = wait;
        // Only a wait that somebody stated, and that mends something, makes the client's own retry
        // worth its while.
        error.may_retry = failure.retryable
            && wait.is_some_and(|wait| wait <= LONGEST_WAIT)
            && matches!(row.http, 429 | 503);
        match &failure.param {
            Some(param) => error.word("param", param),
            None => error,
        }
    }
}

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        if let JournalError::NotKept(what) = error {
            return Self::new(PAYLOADS_NOT_KEPT).word("what", what);
        }
        tracing::warn!(%error, "a call needs the journal, which fails");
        Self::new(STORE_UNAVAILABLE).fact("store", "journal")
    }
}

/// Returns the error of a call that its tenant's limits refused; `None` for any other failure.
fn of_limit(failure: &Failure) -> Option<CallError> {
    let is_own = failure.class == FailureClass::RateLimited && failure.rule == "local";
    let limit = failure.param.as_ref().filter(|_| is_own)?;
    let wait = failure.retry_after?.duration;
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let data = json!({ "reason": TENANT_LIMITED.reason, "limit": limit, "retryAfterMs": millis });
    let mut error = CallError::new(TENANT_LIMITED)
        .fact("limit", limit)
        .word("bound", &failure.message)
        .word("wait", duration_text(wait))
        .after(wait)
        .with_data(data);
    error.may_retry = wait <= LONGEST_WAIT;
    Some(error)
}

fn shown(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_SHOWN_BYTES)].to_owned()
}

#[cfg(test)]
mod tests;
