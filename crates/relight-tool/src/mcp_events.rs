//! The events of MCP's streamable transport: bounded, and checked that they respond to the request
//! that was made.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream::BoxStream};
use rmcp::{
    model::{ErrorData, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::SseError,
};
use sse_stream::{Sse, SseStream};

use super::{
    body,
    errors::{self, WireError},
    facts::RequestFacts,
    open_requests::number,
    sent, session_doubt,
    unsolicited::Unsolicited,
};
use crate::{
    domain::failure::{ProviderError, TransportFault},
    outbound::ReplyBody,
};

/// Longest piece of a response that is quoted, in bytes.
const MAX_QUOTE_BYTES: usize = 120;
/// The wait before a stream that was a flood without end is opened again.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_mins(1);

type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The one request that a response or a stream of events is for.
#[derive(Debug, Clone)]
pub(super) struct ExpectedResponse {
    pub(super) id: RequestId,
    /// If set, the request was made in a session.
    pub(super) has_session: bool,
    pub(super) facts: RequestFacts,
}

/// Counts the bytes since the last empty line, which ends an event.
#[derive(Debug)]
struct EventMeter {
    max_bytes: usize,
    bytes: usize,
    line_is_empty: bool,
}

// === impl ExpectedResponse ===

impl ExpectedResponse {
    /// Returns a whole response, if it is one to this request. An error is one, whatever request it
    /// names: a server that cannot read a request does not know its id.
    pub(super) fn check(&self, text: &[u8]) -> Result<ServerJsonRpcMessage, ProviderError> {
        let facts_of = |id: &RequestId| (self.is_id(id)).then(|| self.facts.clone());
        let message = sent::message(text, facts_of).map_err(|_| {
            let quote = String::from_utf8_lossy(&text[..text.len().min(MAX_QUOTE_BYTES)]);
            let words = format!(
                "the tool server responded with what is no message of the protocol: {quote:?}"
            );
            errors::fault(TransportFault::Protocol, words)
        })?;
        let words = match message {
            ServerJsonRpcMessage::Response(response) if self.is_id(&response.id) => {
                return Ok(ServerJsonRpcMessage::Response(response));
            }
            ServerJsonRpcMessage::Response(response) => format!(
                "the tool server responded to request {}, where {} was made",
                response.id, self.id
            ),
            ServerJsonRpcMessage::Error(error) => {
                let is_correlated = error.id.as_ref().is_some_and(|id| self.is_id(id));
                let doubt = session_doubt::of_error(&error.error, is_correlated);
                let may_be =
                    self.has_session || session_doubt::asks_for_start(&error.error.message);
                if let Some(doubt) = doubt.filter(|_| may_be) {
                    self.facts.note_doubt(doubt);
                }
                return Ok(ServerJsonRpcMessage::error(
                    error.error,
                    Some(self.id.clone()),
                ));
            }
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
                "the tool server's response is none".to_owned()
            }
        };
        Err(errors::fault(TransportFault::Protocol, words))
    }

    /// Some servers respond with the number as a text.
    fn is_id(&self, id: &RequestId) -> bool {
        id.to_string() == self.id.to_string()
    }

    /// Returns whether a text is an error that names this request.
    pub(super) fn is_named_by(&self, text: &str) -> bool {
        match serde_json::from_str(text) {
            Ok(ServerJsonRpcMessage::Error(error)) => error.id.is_some_and(|id| self.is_id(&id)),
            _ => false,
        }
    }

    /// Returns whether a text in the stream of this request responds to another one, or to none: it
    /// names another number, or it is no message and does not name this request.
    fn is_stray(&self, text: &str) -> bool {
        #[derive(serde::Deserialize)]
        struct Named {
            id: RequestId,
        }
        let named = serde_json::from_str::<Named>(text).ok();
        let named = named.map(|named| named.id);
        if named.as_ref().is_some_and(|id| self.is_id(id)) {
            return false;
        }
        match serde_json::from_str(text) {
            // A server that cannot read a request does not know its number.
            Ok(ServerJsonRpcMessage::Error(_)) => named.as_ref().and_then(number).is_some(),
            _ => true,
        }
    }

    /// Ends the request with this error in place of its response; its facts are noted.
    fn fail(&self, error: ProviderError) -> Sse {
        let words = error.to_string();
        self.facts.note_error(error);
        let failed = ServerJsonRpcMessage::error(
            ErrorData::internal_error(words, None),
            Some(self.id.clone()),
        );
        Sse::default().data(serde_json::to_string(&failed).unwrap_or_default())
    }
}

// === impl EventMeter ===

impl EventMeter {
    /// Counts more bytes; whether their event is longer than it may be.
    fn is_exceeded(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            match byte {
                b'\r' => {}
                b'\n' if self.line_is_empty => self.bytes = 0,
                b'\n' => self.line_is_empty = true,
                _ => self.line_is_empty = false,
            }
            self.bytes += 1;
            if self.bytes > self.max_bytes {
                return true;
            }
        }
        false
    }
}

/// Returns the events that respond to a request. Whatever is wrong with them ends the request with
/// its facts; what responds to another request is passed over.
pub(super) fn of_request(
    body: ReplyBody,
    max_event_bytes: usize,
    expected: ExpectedResponse,
    mut unsolicited: Unsolicited,
) -> Events {
    let mut events = SseStream::from_bytes_stream(bounded(body, max_event_bytes)).boxed();
    let stream = async_stream::stream! {
        while let Some(event) = events.next().await {
            let mut event = match event {
                Ok(event) => event,
                Err(error) => {
                    match facts_of(&error) {
                        // A cut stream may be read on; the SDK knows how.
                        Some(facts) if facts.fault != Some(TransportFault::TooLarge) => expected.facts.note_error(facts),
                        Some(facts) => {
                            yield Ok(expected.fail(facts));
                            return;
                        }
                        None => {
                            let words = "the tool server's events break the protocol";
                            yield Ok(expected.fail(errors::fault(TransportFault::Protocol, words)));
                            return;
                        }
                    }
                    yield Err(error);
                    return;
                }
            };
            let data = event.data.as_deref().unwrap_or_default();
            if is_response(data) && !expected.is_stray(data) {
                match expected.check(data.as_bytes()) {
                    Ok(message) => {
                        event.data = serde_json::to_string(&message).ok();
                        yield Ok(event);
                        // The rest is read for the connection's sake, and responds to nothing.
                        while let Some(Ok(_)) = events.next().await {}
                        return;
                    }
                    Err(facts) => {
                        yield Ok(expected.fail(facts));
                        return;
                    }
                }
            } else if unsolicited.is_flood(data.len()) {
                let words = "the tool server floods the response with messages";
                yield Ok(expected.fail(errors::fault(TransportFault::TooLarge, words)));
                return;
            }
            event.data = left_for_sdk(data, &mut unsolicited);
            yield Ok(event);
        }
    };
    stream.boxed()
}

/// Returns the events of a session that respond to no request of their own. A flood without end is
/// not read: its connection is closed, and the SDK opens another one later.
pub(super) fn of_stream(
    body: ReplyBody,
    max_event_bytes: usize,
    mut unsolicited: Unsolicited,
) -> Events {
    let mut events = SseStream::from_bytes_stream(bounded(body, max_event_bytes)).boxed();
    let stream = async_stream::stream! {
        while let Some(event) = events.next().await {
            let event = event.map(|mut event| {
                let data = event.data.take().unwrap_or_default();
                let is_flood = unsolicited.is_flood(data.len());
                event.data = if is_response(&data) {
                    Some(data)
                } else {
                    left_for_sdk(&data, &mut unsolicited)
                };
                (event, is_flood)
            });
            match event {
                Ok((_, true)) => {
                    tracing::warn!("a tool server floods its session with messages");
                    drop(events);
                    tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
                    return;
                }
                Ok((event, false)) => yield Ok(event),
                Err(error) => yield Err(error),
            }
        }
    };
    stream.boxed()
}

/// Returns what the SDK has to get of an event that responds to nothing.
fn left_for_sdk(data: &str, unsolicited: &mut Unsolicited) -> Option<String> {
    let message = serde_json::from_str(data).ok()?;
    unsolicited.take(message).map(|_| data.to_owned())
}

/// The bytes of a body as long as no event of it is too long.
fn bounded(
    mut body: ReplyBody,
    max_bytes: usize,
) -> impl Stream<Item = Result<Bytes, WireError>> + Send {
    async_stream::stream! {
        let mut meter = EventMeter { max_bytes, bytes: 0, line_is_empty: true };
        loop {
            match body.chunk().await {
                Ok(None) => return,
                Ok(Some(chunk)) if meter.is_exceeded(&chunk) => {
                    yield Err(WireError(body::too_large(max_bytes)));
                    return;
                }
                Ok(Some(chunk)) => yield Ok(chunk),
                Err(error) => {
                    yield Err(WireError(error));
                    return;
                }
            }
        }
    }
}

/// Returns the facts behind an error of the parser.
fn facts_of(error: &SseError) -> Option<ProviderError> {
    let SseError::Body(error) = error else {
        return None;
    };
    error
        .downcast_ref::<WireError>()
        .map(|WireError(facts)| facts.clone())
}

/// Returns whether a message is a response, right or wrong: it has a result or an error, or it is
/// not a valid message at all.
fn is_response(data: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct EventKind {
        #[serde(default)]
        method: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<EventKind>(data).map_or(true, |kind| kind.method.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_long_as_its_lines_up_to_the_empty_one() {
        let mut meter = EventMeter {
            max_bytes: 12,
            bytes: 0,
            line_is_empty: true,
        };
        for _ in 0..100 {
            assert!(!meter.is_exceeded(b"data: 1\n\n"));
            assert!(!meter.is_exceeded(b"data: 2\r\n\r\n"));
        }
        assert!(!meter.is_exceeded(b"data: 3"));
        assert!(meter.is_exceeded(b"456789"));
    }

    #[test]
    fn a_response_to_another_request_is_none() {
        let expected = ExpectedResponse {
            id: RequestId::Number(7),
            has_session: true,
            facts: RequestFacts::default(),
        };
        assert!(
            expected
                .check(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
                .is_ok()
        );
        assert!(
            expected
                .check(br#"{"jsonrpc":"2.0","id":"7","result":{}}"#)
                .is_ok()
        );
        for text in [
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            "<html>",
            r#"{"jsonrpc":"2.0","method":"x"}"#,
            "",
        ] {
            let error = expected.check(text.as_bytes()).unwrap_err();
            assert_eq!(error.fault, Some(TransportFault::Protocol), "{text}");
        }
    }
}
