//! Formats a gRPC status for people: Relight's own refusal, with all of its details.

use std::{fmt, time::Duration};

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::terminal::{one_line, span};

/// Text for the case that the server's HTTP/2 does not know such a call and gives no reason.
const NO_SUCH_CALL: &str = "this port serves no such call; is it the address of the API (`server.listen`) and not of health and metrics?";

/// Words of the client for a response that is not gRPC, and the text in their place.
const NO_FRAME: &str = "invalid compression flag";
const NOT_GRPC: &str = "what responds there is not gRPC; is it the address of the API (`server.listen`) and not of an HTTP front?";

/// Refusal of a server, and its reason; `Display` writes one line and one more for each detail.
#[derive(Debug)]
pub(super) struct ServerRefusal {
    code: Code,
    message: String,
    reason: Option<String>,
    /// The field and what is wrong with it.
    violations: Vec<(String, String)>,
    /// Violations that did not fit into the status.
    not_shown: u64,
    retry_in: Option<Duration>,
}

// === impl ServerRefusal ===

impl From<Status> for ServerRefusal {
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info();
        let fact = |key: &str| {
            info.as_ref()
                .and_then(|info| info.metadata.get(key))
                .cloned()
        };
        let faults = status
            .get_details_bad_request()
            .map(|bad| bad.field_violations)
            .unwrap_or_default();
        Self {
            code: status.code(),
            message: match status.code() {
                Code::Unimplemented if status.message().is_empty() => NO_SUCH_CALL.to_owned(),
                Code::Internal if status.message().contains(NO_FRAME) => NOT_GRPC.to_owned(),
                _ => one_line(status.message()),
            },
            violations: faults
                .iter()
                .map(|fault| (one_line(&fault.field), one_line(&fault.description)))
                .collect(),
            not_shown: fact("violationsNotShown")
                .and_then(|count| count.parse().ok())
                .unwrap_or(0),
            retry_in: status
                .get_details_retry_info()
                .and_then(|info| info.retry_delay),
            reason: info.map(|info| info.reason),
        }
    }
}

impl fmt::Display for ServerRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match &self.reason {
            Some(reason) => format!("{:?}, {reason}", self.code),
            None => format!("{:?}", self.code),
        };
        if self.violations.is_empty() {
            write!(f, "{} ({who})", self.message)?;
        } else {
            write!(f, "the request is not valid ({who})")?;
        }
        for (field, reason) in &self.violations {
            write!(f, "\n  {field} {reason}")?;
        }
        if self.not_shown > 0 {
            write!(f, "\n  and {} more", self.not_shown)?;
        }
        if let Some(wait) = self.retry_in {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            write!(f, "\n  a retry makes sense in {}", span(ms))?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerRefusal {}

#[cfg(test)]
mod tests {
    use crate::call_error::{
        CallError, Violations,
        table::{DRAINING, ROUTE_NOT_FOUND, TARGET_NOT_FOUND},
    };

    use super::*;

    #[test]
    fn all_violations_are_shown_each_on_its_line() {
        let mut faults = Violations::default();
        faults.add("invocation.route", "is too long");
        faults.add("invocation.labels", "has an empty key");
        let shown = ServerRefusal::from(Status::from(faults)).to_string();
        assert_eq!(
            shown,
            "the request is not valid (InvalidArgument, INVALID_REQUEST)\n  invocation.route is too long\n  \
             invocation.labels has an empty key"
        );
    }

    #[test]
    fn the_nearest_name_and_the_retry_time_are_shown_once() {
        let shown = |error: CallError| ServerRefusal::from(Status::from(error)).to_string();
        let shown_of = |row, name, nearest| shown(CallError::not_found(row, name, Some(nearest)));
        assert_eq!(
            shown_of(ROUTE_NOT_FOUND, "defualt", "default"),
            "there is no route `defualt`; did you mean `default`? (NotFound, ROUTE_NOT_FOUND)"
        );
        assert_eq!(
            shown_of(TARGET_NOT_FOUND, "gtp", "gpt"),
            "there is no target `gtp`; did you mean `gpt`? (NotFound, TARGET_NOT_FOUND)"
        );
        let shown = shown(CallError::new(DRAINING).after(Duration::from_millis(1500)));
        assert!(
            shown.ends_with("\n  a retry makes sense in 1.5 s"),
            "{shown}"
        );
    }

    #[test]
    fn an_http_front_is_recognised_by_what_the_client_says_of_its_response() {
        let status = Status::internal(
            "protocol error: received message with invalid compression flag: 123 (valid flags are 0 and 1)",
        );
        assert_eq!(
            ServerRefusal::from(status).to_string(),
            format!("{NOT_GRPC} (Internal)")
        );
    }
}
