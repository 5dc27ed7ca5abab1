//! The one place that builds a gRPC status: Relight's own refusals, not a model's failures.
//!
//! A status always identifies its source (`ErrorInfo` with domain, reason and facts), and one that
//! must not be retried carries the pushback trailer, so that no client library or mesh retries it.
//! A model's failure is an outcome in an OK response. No status holds a prompt, an answer, a key or
//! an upstream text.

use std::{collections::HashMap, time::Duration};

use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

use super::convert::Violations;
use crate::domain::ids::{InvocationId, RequestId, ThreadId};

/// The `ErrorInfo` domain of every status.
pub const DOMAIN: &str = "relight.dev";

/// The trailer that makes a client's own retry stop (gRFC A6).
pub const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Most bytes of violations in one status: trailers beyond 8 KiB are refused by common clients, and
/// details travel in base64. What does not fit is counted in the metadata of `ErrorInfo`.
const MAX_VIOLATION_BYTES: usize = 4096;

/// Longest piece of the caller's own text that is quoted, in bytes.
const MAX_SHOWN_BYTES: usize = 128;

/// When a retry makes sense after a limit of bytes was reached.
const NO_ROOM_RETRY: Duration = Duration::from_secs(1);

/// Whether the caller may simply retry.
#[derive(Clone, Copy)]
enum Again {
    Never,
    After(Duration),
}

/// `INVALID_ARGUMENT`: every fault of the request, each with its field's path.
#[must_use]
pub fn invalid_argument(faults: &Violations) -> Status {
    let mut bytes = 0;
    let shown: Vec<FieldViolation> = faults
        .kept()
        .iter()
        .take_while(|fault| {
            bytes += fault.field.len() + fault.reason.len() + 8;
            bytes <= MAX_VIOLATION_BYTES
        })
        .map(|fault| FieldViolation::new(fault.field.as_str(), fault.reason.as_str()))
        .collect();
    let mut facts = vec![("violations", faults.total().to_string())];
    if shown.len() < faults.total() {
        facts.push((
            "violationsNotShown",
            (faults.total() - shown.len()).to_string(),
        ));
    }
    let mut details = ErrorDetails::new();
    details.set_bad_request(shown);
    let message = bounded(
        &format!("the request is not valid: {faults}"),
        4 * MAX_SHOWN_BYTES,
    )
    .to_owned();
    build(
        Code::InvalidArgument,
        "INVALID_REQUEST",
        message,
        facts,
        details,
        Again::Never,
    )
}

/// `INVALID_ARGUMENT` for a single field.
#[must_use]
pub fn invalid_field(field: &str, reason: &str) -> Status {
    invalid_argument(&Violations::of(field, reason))
}

/// `NOT_FOUND`: no such route, and the one that was probably meant.
#[must_use]
pub fn route_not_found(route: &str, nearest: Option<&str>) -> Status {
    if route.is_empty() {
        let message = "no route was named, and there is no default_route".to_owned();
        return plain(
            Code::NotFound,
            "ROUTE_NOT_FOUND",
            message,
            vec![("route", String::new())],
        );
    }
    not_found("route", route, nearest)
}

/// `NOT_FOUND`: no such invocation, or it is no longer kept, or it is another tenant's. `name` is
/// its id or request id.
#[must_use]
pub fn invocation_not_found(name: &str) -> Status {
    let message = format!(
        "there is no invocation `{}`, or it is no longer kept",
        shown(name)
    );
    plain(
        Code::NotFound,
        "INVOCATION_NOT_FOUND",
        message,
        vec![("invocation", shown(name))],
    )
}

/// `NOT_FOUND`: no such thread, or it is another tenant's.
#[must_use]
pub fn thread_not_found(thread: &ThreadId) -> Status {
    let message = format!("there is no thread `{}`", shown(thread.as_str()));
    plain(
        Code::NotFound,
        "THREAD_NOT_FOUND",
        message,
        vec![("threadId", shown(thread.as_str()))],
    )
}

/// `NOT_FOUND`: no such target, release or other object of the operator's. `kind` is one lower-case
/// word (`target`).
#[must_use]
pub fn not_found(kind: &str, name: &str, nearest: Option<&str>) -> Status {
    let mut facts = vec![("kind", kind.to_owned()), ("name", shown(name))];
    let mut message = format!("there is no {kind} `{}`", shown(name));
    if let Some(nearest) = nearest {
        message = format!("{message}; did you mean `{nearest}`?");
        facts.push(("nearest", nearest.to_owned()));
    }
    let reason = format!("{}_NOT_FOUND", kind.to_ascii_uppercase());
    plain(Code::NotFound, &reason, message, facts)
}

/// `NOT_FOUND`: no tool server lists such a tool, and which ones may have been meant.
#[must_use]
pub fn tool_not_found(tool: &str, nearest: &[String]) -> Status {
    let mut facts = vec![("kind", "tool".to_owned()), ("name", shown(tool))];
    let mut message = format!("no tool server lists a tool `{}`", shown(tool));
    if !nearest.is_empty() {
        let names = nearest
            .iter()
            .map(|name| format!("`{}`", shown(name)))
            .collect::<Vec<_>>()
            .join(", ");
        message = format!("{message}; did you mean {names}?");
        facts.push(("nearest", shown(&nearest.join(","))));
    }
    plain(Code::NotFound, "TOOL_NOT_FOUND", message, facts)
}

/// `UNAVAILABLE`: whether there is such a tool is not known, because these servers did not list
/// theirs.
#[must_use]
pub fn tools_unlisted(tool: &str, servers: &[String], retry_in: Duration) -> Status {
    let facts = vec![("name", shown(tool))];
    let servers = bounded(&servers.join(", "), 2 * MAX_SHOWN_BYTES).to_owned();
    let message = format!(
        "the tool `{}` cannot be looked up; no tools are listed by {servers}",
        shown(tool)
    );
    build(
        Code::Unavailable,
        "TOOLS_UNLISTED",
        message,
        facts,
        ErrorDetails::new(),
        Again::After(retry_in),
    )
}

/// `ALREADY_EXISTS`: the request id was used for another request. `earlier` is the invocation that
/// has it.
#[must_use]
pub fn request_id_reused(request: &RequestId, earlier: Option<&InvocationId>) -> Status {
    let mut facts = vec![("requestId", shown(request.as_str()))];
    facts.extend(earlier.map(|id| ("invocationId", shown(id.as_str()))));
    let message = format!(
        "request_id `{}` was used for another request",
        shown(request.as_str())
    );
    plain(Code::AlreadyExists, "REQUEST_ID_REUSED", message, facts)
}

/// `RESOURCE_EXHAUSTED`: too much work at once. `subject` is the owner of the bound that was
/// reached (`tenant:<name>`, `relight`), and `retry_in` is when a retry makes sense.
#[must_use]
pub fn shed(subject: &str, bound: &str, retry_in: Duration) -> Status {
    let mut details = ErrorDetails::new();
    details.add_quota_failure_violation(shown(subject), bound);
    let facts = vec![("subject", shown(subject))];
    let message = format!("too much work at once: {bound}");
    build(
        Code::ResourceExhausted,
        "SHED",
        message,
        facts,
        details,
        Again::After(retry_in),
    )
}

/// `RESOURCE_EXHAUSTED`: one request is larger than allowed. `limit` is the setting with the bound.
#[must_use]
pub fn too_large(limit: &str, max: u64) -> Status {
    let message = format!("the request is larger than {limit} allows ({max})");
    plain(
        Code::ResourceExhausted,
        "REQUEST_TOO_LARGE",
        message,
        vec![("limit", limit.to_owned())],
    )
}

/// `RESOURCE_EXHAUSTED`: requests hold as many bytes as allowed. `limit` is the setting with the
/// bound.
#[must_use]
pub fn no_room(limit: &str) -> Status {
    let message = format!("too many requests at once: {limit} is reached");
    let facts = vec![("limit", limit.to_owned())];
    build(
        Code::ResourceExhausted,
        "SHED",
        message,
        facts,
        ErrorDetails::new(),
        Again::After(NO_ROOM_RETRY),
    )
}

/// `INVALID_ARGUMENT`: the bytes are no message of this method.
#[must_use]
pub fn undecodable() -> Status {
    let message = "the request is no message of this method".to_owned();
    plain(
        Code::InvalidArgument,
        "UNDECODABLE_REQUEST",
        message,
        Vec::new(),
    )
}

/// `UNAVAILABLE`: this replica ends what is in flight and takes nothing new.
#[must_use]
pub fn draining(retry_in: Duration) -> Status {
    let message = "this replica is draining; retry, and another one will respond".to_owned();
    build(
        Code::Unavailable,
        "DRAINING",
        message,
        Vec::new(),
        ErrorDetails::new(),
        Again::After(retry_in),
    )
}

/// `UNAVAILABLE`: a store that this call needs is unavailable. `store` is its name (`journal`).
#[must_use]
pub fn store_unavailable(store: &str, retry_in: Duration) -> Status {
    let facts = vec![("store", store.to_owned())];
    let message = format!("the {store} store cannot be reached");
    build(
        Code::Unavailable,
        "STORE_UNAVAILABLE",
        message,
        facts,
        ErrorDetails::new(),
        Again::After(retry_in),
    )
}

/// `UNAVAILABLE`: the stream ends here, and the invocation may not have: resume it, here or at
/// another replica.
#[must_use]
pub fn resume(invocation: &InvocationId, retry_in: Duration) -> Status {
    let facts = vec![("invocationId", shown(invocation.as_str()))];
    let message = "the stream was lost, the invocation was not; resume it".to_owned();
    build(
        Code::Unavailable,
        "RESUME",
        message,
        facts,
        ErrorDetails::new(),
        Again::After(retry_in),
    )
}

/// `UNAUTHENTICATED`: no credential, or an unknown one; the status does not reveal which.
#[must_use]
pub fn unauthenticated() -> Status {
    let message = "a valid credential is required".to_owned();
    plain(
        Code::Unauthenticated,
        "UNAUTHENTICATED",
        message,
        Vec::new(),
    )
}

/// `PERMISSION_DENIED`: the caller is known and may not do this. `reason` is in plain words.
#[must_use]
pub fn permission_denied(reason: &str) -> Status {
    plain(
        Code::PermissionDenied,
        "PERMISSION_DENIED",
        reason.to_owned(),
        Vec::new(),
    )
}

/// `PERMISSION_DENIED`: the thread began on a route that the key may not use.
#[must_use]
pub fn thread_of_other_route() -> Status {
    permission_denied("the thread began on a route that this key may not use")
}

/// `DEADLINE_EXCEEDED`: not even the failure could be reported in time.
#[must_use]
pub fn deadline_exceeded(invocation: Option<&InvocationId>) -> Status {
    let facts = invocation
        .map(|id| ("invocationId", shown(id.as_str())))
        .into_iter()
        .collect();
    let message = "the deadline passed before the outcome could be reported".to_owned();
    plain(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message, facts)
}

/// `CANCELLED`: the call was cancelled by the caller or on its behalf. `reason` is in plain words.
#[must_use]
pub fn cancelled(reason: &str) -> Status {
    plain(
        Code::Cancelled,
        "CANCELLED",
        bounded(reason, 4 * MAX_SHOWN_BYTES).to_owned(),
        Vec::new(),
    )
}

/// `FAILED_PRECONDITION`: the request is right, but the state that it needs is not given. `reason`
/// is in upper snake case, `facts` have keys in lower camel case.
#[must_use]
pub fn failed_precondition(
    reason: &str,
    message: &str,
    facts: Vec<(&'static str, String)>,
) -> Status {
    plain(Code::FailedPrecondition, reason, message.to_owned(), facts)
}

/// `FAILED_PRECONDITION`: an invocation runs on the thread.
#[must_use]
pub fn thread_busy(thread: &ThreadId, running: &InvocationId) -> Status {
    let facts = vec![
        ("threadId", shown(thread.as_str())),
        ("invocationId", shown(running.as_str())),
    ];
    let message = format!(
        "invocation `{running}` runs on thread `{}`",
        shown(thread.as_str())
    );
    plain(Code::FailedPrecondition, "THREAD_BUSY", message, facts)
}

/// `INTERNAL`: a fault of Relight itself. `what` names it for the log's reader; no detail goes out
/// beyond it.
#[must_use]
pub fn internal(what: &str) -> Status {
    plain(
        Code::Internal,
        "INTERNAL",
        format!("a fault in Relight: {what}"),
        Vec::new(),
    )
}

impl From<Violations> for Status {
    fn from(faults: Violations) -> Self {
        invalid_argument(&faults)
    }
}

fn plain(code: Code, reason: &str, message: String, facts: Vec<(&'static str, String)>) -> Status {
    build(
        code,
        reason,
        message,
        facts,
        ErrorDetails::new(),
        Again::Never,
    )
}

fn build(
    code: Code,
    reason: &str,
    message: String,
    facts: Vec<(&'static str, String)>,
    mut details: ErrorDetails,
    again: Again,
) -> Status {
    let facts: HashMap<String, String> = facts
        .into_iter()
        .map(|(key, fact)| (key.to_owned(), fact))
        .collect();
    details.set_error_info(reason, DOMAIN, facts);
    let mut trailers = MetadataMap::new();
    match again {
        Again::Never => {
            trailers.insert(PUSHBACK, MetadataValue::from_static("-1"));
        }
        Again::After(wait) => {
            details.set_retry_info(Some(wait));
        }
    }
    Status::with_error_details_and_metadata(code, message, details, trailers)
}

fn shown(text: &str) -> String {
    bounded(text, MAX_SHOWN_BYTES).to_owned()
}

fn bounded(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests;
