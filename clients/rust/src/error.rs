//! The errors of calls.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::Failed;

/// An error with which a call ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The invocation failed for good, as Relight judged it.
    #[error("{0}")]
    Failed(Box<Failed>),
    /// Relight refused the call, or could not be reached.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// The time of the call is over, or no wait for another attempt fits into it. Holds the status
    /// of the last attempt, if one ended.
    #[error("the deadline of the call has passed")]
    Deadline(#[source] Option<Box<StatusError>>),
    /// The events of a stream do not fit together, also after they were fetched again.
    #[error("the events of the stream do not fit together: {0}")]
    Protocol(String),
    /// The outcome of a stream was asked for before its end.
    #[error("the stream was not read to its end")]
    Unfinished,
    /// The stream has no place from which it can be resumed.
    #[error("nothing was accepted yet, or nothing is kept, so that nothing can be resumed")]
    NotResumable,
    /// The target is not one of gRPC.
    #[error(
        "`{0}` is not a valid target; expected host:port, dns:///host:port or ipv4:address:port,…"
    )]
    Target(String),
    /// The API key has characters that no header may have.
    #[error("the API key is not a valid header value")]
    ApiKey(#[from] http::header::InvalidHeaderValue),
    /// The settings of TLS are not valid.
    #[error("the settings of TLS are not valid")]
    Tls(#[from] tonic::transport::Error),
}

/// A status that concerns Relight and never a model.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", code_name(*code), in_brackets(reason))]
#[non_exhaustive]
pub struct StatusError {
    /// Code of the status.
    pub code: Code,
    /// Text of the status.
    pub message: String,
    /// Reason in `google.rpc.ErrorInfo` (`ROUTE_NOT_FOUND`); empty if Relight could not be reached.
    pub reason: String,
    /// Least wait before another call makes sense.
    pub retry_after: Option<Duration>,
    /// Whether the same call may succeed later. It was repeated as often as the client allows.
    pub is_transient: bool,
    source: Option<Status>,
}

impl StatusError {
    /// Creates the error of a connection that ended before its time.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self {
            code: Code::Unavailable,
            message: message.into(),
            reason: String::new(),
            retry_after: None,
            is_transient: true,
            source: None,
        }
    }
}

impl From<Status> for StatusError {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        // Relight marks its own statuses that must not be repeated; others may be the transport's.
        let must_not_repeat = status
            .metadata()
            .get("grpc-retry-pushback-ms")
            .is_some_and(|pushback| pushback.as_bytes().starts_with(b"-"));
        Self {
            code: status.code(),
            message: status.message().to_owned(),
            reason: details
                .error_info()
                .map_or_else(String::new, |info| info.reason.clone()),
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
            is_transient: !must_not_repeat
                && matches!(
                    status.code(),
                    Code::Unavailable
                        | Code::ResourceExhausted
                        | Code::Internal
                        | Code::Unknown
                        | Code::Cancelled
                ),
            source: Some(status),
        }
    }
}

impl From<StatusError> for Error {
    fn from(error: StatusError) -> Self {
        Self::Status(Box::new(error))
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Failed(Box::new(failed))
    }
}

/// Returns the name of a code in words, as `tonic` debugs it.
fn code_name(code: Code) -> String {
    format!("{code:?}")
}

fn in_brackets(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    }
}
