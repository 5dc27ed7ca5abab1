//! Other requests of callers: to start or resume a stream, to watch, to name an invocation or a
//! thread.

use super::{
    event::parse_cursor,
    filter::{EventFilter, read_filter},
    fleet_cursor::FleetCursor,
    invocation::{check_id, request},
    violation::{Path, Violations},
};
use crate::{
    domain::ids::{Cursor, MAX_ID_BYTES, RequestId, ThreadId},
    engine::{Arrival, InvocationRequest},
    execution::InvocationName,
    grpc::v1,
};

/// Longest reason that a person gives for the record, in bytes.
pub const MAX_REASON_BYTES: usize = 256;
const MAX_TOKEN_BYTES: usize = 4096;

/// A stream as a caller requests it.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamStart {
    /// Of a new invocation.
    New(Box<InvocationRequest>),
    /// Of an earlier one.
    Resume(Resume),
}

/// Earlier invocation to resume, and the position from which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// The invocation.
    pub of: ResumeName,
    /// Epoch and sequence number of the last step that the client folded; `None` is from the
    /// beginning.
    pub after: Option<(u64, u64)>,
}

/// An invocation to resume, as a caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumeName {
    /// By the token that it was given; not yet verified.
    Token(String),
    /// By the caller's own id for it.
    Request(RequestId),
}

/// Position at which a watcher starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStart {
    /// After the event with this cursor, of one replica.
    After(Cursor),
    /// After these positions at the replicas of a fleet.
    AfterAll(FleetCursor),
    /// With the oldest event that is kept.
    Oldest,
    /// With what happens from now on.
    Live,
}

/// Returns the invocation that an `InvokeWithRecovery` request describes.
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn invoke_request(
    wire: v1::InvokeWithRecoveryRequest,
    arrival: Arrival,
) -> Result<InvocationRequest, Violations> {
    let invocation = wire
        .invocation
        .ok_or_else(|| Violations::of("invocation", "is not set"))?;
    request(invocation, arrival)
}

/// Returns the stream that a `StreamWithRecovery` request describes.
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn stream_request(
    wire: v1::StreamWithRecoveryRequest,
    arrival: Arrival,
) -> Result<StreamStart, Violations> {
    use v1::stream_with_recovery_request::Start;
    match wire.start {
        Some(Start::Invocation(invocation)) => {
            Ok(StreamStart::New(Box::new(request(invocation, arrival)?)))
        }
        Some(Start::Resume(wire)) => resume(wire).map(StreamStart::Resume),
        None => Err(Violations::of(
            "invocation",
            "is not set; one of invocation, resume is required",
        )),
    }
}

/// Returns the filter and start of a `WatchRecovery` request.
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn watch_request(
    wire: v1::WatchRecoveryRequest,
) -> Result<(EventFilter, WatchStart), Violations> {
    use v1::watch_recovery_request::Start;
    let mut faults = Violations::default();
    let filter = read_filter(
        &Path::Root("filter"),
        wire.filter.unwrap_or_default(),
        &mut faults,
    );
    let start = match wire.start {
        None | Some(Start::Live(true)) => WatchStart::Live,
        Some(Start::FromStart(true)) => WatchStart::Oldest,
        Some(Start::After(text)) => match parse_cursor(&text) {
            Ok(cursor) => WatchStart::After(cursor),
            Err(reason) => {
                if let Some(cursor) = FleetCursor::parse(&text) {
                    WatchStart::AfterAll(cursor)
                } else {
                    faults.add("after", reason);
                    WatchStart::Live
                }
            }
        },
        Some(Start::Live(false)) => only_true("live", &mut faults),
        Some(Start::FromStart(false)) => only_true("from_start", &mut faults),
    };
    faults.or((filter, start))
}

/// Returns the invocation that a `GetInvocation` request names.
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn get_request(wire: v1::GetInvocationRequest) -> Result<InvocationName, Violations> {
    use v1::get_invocation_request::Invocation;
    let name = match wire.invocation {
        Some(Invocation::InvocationId(id)) => Some(InvocationName::Id(id.into())),
        Some(Invocation::RequestId(id)) => Some(InvocationName::Request(id.into())),
        None => None,
    };
    let mut faults = Violations::default();
    let name = invocation_name(name, &mut faults);
    faults.or_some(name)
}

/// Returns the invocation that a `CancelInvocation` request names, and the reason for cancelling it
/// (empty: none given).
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn cancel_request(
    wire: v1::CancelInvocationRequest,
) -> Result<(InvocationName, String), Violations> {
    use v1::cancel_invocation_request::Invocation;
    let name = match wire.invocation {
        Some(Invocation::InvocationId(id)) => Some(InvocationName::Id(id.into())),
        Some(Invocation::RequestId(id)) => Some(InvocationName::Request(id.into())),
        None => None,
    };
    let mut faults = Violations::default();
    let name = invocation_name(name, &mut faults);
    check_id("reason", &wire.reason, MAX_REASON_BYTES, &mut faults);
    faults.or_some(name.map(|name| (name, wire.reason)))
}

/// Returns the thread that a request names in its field `thread_id`.
///
/// # Errors
/// When it is empty, too long or holds control characters.
pub fn thread_id(id: String) -> Result<ThreadId, Violations> {
    let mut faults = Violations::default();
    check_named("thread_id", &id, &mut faults);
    faults.or(ThreadId::from(id))
}

fn resume(wire: v1::Resume) -> Result<Resume, Violations> {
    let mut faults = Violations::default();
    let at = Path::Root("resume");
    let of = match wire.invocation {
        Some(v1::resume::Invocation::Token(token)) => {
            if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
                faults.add(at.field("token"), "is no resume token");
            }
            Some(ResumeName::Token(token))
        }
        Some(v1::resume::Invocation::RequestId(id)) => {
            check_named(at.field("request_id"), &id, &mut faults);
            Some(ResumeName::Request(id.into()))
        }
        None => {
            faults.add(at, "names nothing; one of token, request_id is required");
            None
        }
    };
    let after = wire.cursor.map(|cursor| (cursor.epoch, cursor.seq));
    if after.is_some_and(|(epoch, _)| epoch == 0) {
        faults.add(at.field("cursor").field("epoch"), "is 0; the least is 1");
    }
    faults.or_some(of.map(|of| Resume { of, after }))
}

fn invocation_name(
    name: Option<InvocationName>,
    faults: &mut Violations,
) -> Option<InvocationName> {
    match &name {
        Some(InvocationName::Id(id)) => check_named("invocation_id", id.as_str(), faults),
        Some(InvocationName::Request(id)) => check_named("request_id", id.as_str(), faults),
        None => faults.add(
            "invocation_id",
            "is not set; one of invocation_id, request_id is required",
        ),
    }
    name
}

fn check_named(at: impl std::fmt::Display, id: &str, faults: &mut Violations) {
    if id.is_empty() {
        faults.add(at, "is empty");
    } else {
        check_id(at, id, MAX_ID_BYTES, faults);
    }
}

fn only_true(field: &'static str, faults: &mut Violations) -> WatchStart {
    faults.add(field, "is false; leave it out instead");
    WatchStart::Live
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::spans::EntryPoint;
    use v1::{
        stream_with_recovery_request::Start as StreamWire,
        watch_recovery_request::Start as WatchWire,
    };

    fn arrival() -> Arrival {
        Arrival::new("acme".into(), EntryPoint::Grpc("test"))
    }

    fn fields<T: std::fmt::Debug>(read: Result<T, Violations>) -> Vec<String> {
        read.unwrap_err()
            .kept()
            .iter()
            .map(|fault| fault.field.clone())
            .collect()
    }

    #[test]
    fn a_watch_begins_live_unless_a_start_is_given() {
        let start = |start| {
            watch_request(v1::WatchRecoveryRequest {
                filter: None,
                start,
            })
            .map(|(_, start)| start)
        };
        assert_eq!(start(None), Ok(WatchStart::Live));
        assert_eq!(start(Some(WatchWire::Live(true))), Ok(WatchStart::Live));
        assert_eq!(
            start(Some(WatchWire::FromStart(true))),
            Ok(WatchStart::Oldest)
        );
        assert_eq!(
            start(Some(WatchWire::After("17".to_owned()))),
            Ok(WatchStart::After(Cursor(17)))
        );
        assert_eq!(
            fields(start(Some(WatchWire::FromStart(false)))),
            ["from_start"]
        );
        assert_eq!(fields(start(Some(WatchWire::Live(false)))), ["live"]);
    }

    #[test]
    fn a_watch_reports_the_faults_of_its_filter_and_of_its_cursor_together() {
        let filter = Some(v1::RecoveryEventFilter {
            event_types: vec![0],
            ..v1::RecoveryEventFilter::default()
        });
        let start = Some(WatchWire::After("soon".to_owned()));
        assert_eq!(
            fields(watch_request(v1::WatchRecoveryRequest { filter, start })),
            ["filter.event_types[0]", "after"]
        );
    }

    #[test]
    fn a_stream_starts_anew_or_resumes_after_what_was_folded() {
        let resume = |invocation, cursor| {
            stream_request(
                v1::StreamWithRecoveryRequest {
                    start: Some(StreamWire::Resume(v1::Resume {
                        invocation,
                        cursor,
                        ..v1::Resume::default()
                    })),
                },
                arrival(),
            )
        };
        let token = Some(v1::resume::Invocation::Token("t".to_owned()));
        let of = ResumeName::Token("t".to_owned());
        let cursor = Some(v1::StreamCursor { epoch: 1, seq: 9 });
        assert_eq!(
            resume(token, cursor),
            Ok(StreamStart::Resume(Resume {
                of,
                after: Some((1, 9))
            }))
        );
        assert_eq!(
            fields(resume(None, Some(v1::StreamCursor::default()))),
            ["resume", "resume.cursor.epoch"]
        );
        assert_eq!(
            fields(stream_request(
                v1::StreamWithRecoveryRequest::default(),
                arrival()
            )),
            ["invocation"]
        );
        assert_eq!(
            fields(invoke_request(
                v1::InvokeWithRecoveryRequest::default(),
                arrival()
            )),
            ["invocation"]
        );
    }

    #[test]
    fn an_invocation_is_named_by_its_id_or_by_the_caller_s() {
        use v1::cancel_invocation_request::Invocation;
        let wire = v1::CancelInvocationRequest {
            invocation: Some(Invocation::RequestId("r1".to_owned())),
            reason: "changed my mind".to_owned(),
        };
        let expected = (
            InvocationName::Request("r1".into()),
            "changed my mind".to_owned(),
        );
        assert_eq!(cancel_request(wire), Ok(expected));
        let wire = v1::CancelInvocationRequest {
            invocation: None,
            reason: "x".repeat(257),
        };
        assert_eq!(fields(cancel_request(wire)), ["invocation_id", "reason"]);
        assert_eq!(
            fields(get_request(v1::GetInvocationRequest::default())),
            ["invocation_id"]
        );
        assert_eq!(fields(thread_id(String::new())), ["thread_id"]);
        assert_eq!(thread_id("t1".to_owned()), Ok(ThreadId::from("t1")));
    }
}
