//! The response to a call: one document if the result is there at once, and events if it takes
//! longer: the progress that the tool reports, comments that keep the connection alive, the result.

use std::{convert::Infallible, fmt, pin::Pin, sync::Arc, time::Duration};

use async_stream::stream;
use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{results, revision::Revision, running::RunningCall, written};
use crate::{
    call_error::{CallError, table::CALL_CANCELLED},
    domain::tool::ToolProgress,
    engine::FollowedProgress,
    execution::Started,
};

/// Time for which the head of a response waits for the result.
const HEAD_WITHIN: Duration = Duration::from_secs(1);

/// Response to a call.
pub(super) struct CallResponse {
    pub(super) id: Value,
    pub(super) revision: Revision,
    /// Client's token for progress, if it wants to know that.
    pub(super) token: Option<Value>,
    /// `true` if it takes events.
    pub(super) takes_events: bool,
    /// The longest silence.
    pub(super) keepalive: Duration,
    /// The call, which the client may cancel.
    pub(super) running: RunningCall,
}

/// A call that was begun.
pub(super) struct BegunCall {
    pub(super) started: Started,
    /// The schema of its results, as the client knows it.
    pub(super) schema: Option<Arc<Value>>,
}

enum ResponsePiece {
    Progress(Value),
    Silence,
    /// The response, word for word.
    End(String),
}

type Pieces = Pin<Box<dyn Stream<Item = ResponsePiece> + Send>>;

/// Returns whether a request takes a response in events.
pub(super) fn takes_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.to_ascii_lowercase().contains("text/event-stream"))
}

// === impl CallResponse ===

impl CallResponse {
    /// Responds with the result of a call. Dropping the response cancels the call.
    pub(super) async fn respond(self, begun: BegunCall, progress: FollowedProgress) -> Response {
        let takes_events = self.takes_events;
        let mut pieces = self.pieces(begun, progress);
        let mut first = pieces.next().await;
        while !takes_events
            && matches!(
                first,
                Some(ResponsePiece::Progress(_) | ResponsePiece::Silence)
            )
        {
            first = pieces.next().await;
        }
        match first {
            Some(ResponsePiece::End(message)) => written(message),
            first => events(futures_util::stream::iter(first).chain(pieces)),
        }
    }

    fn pieces(self, begun: BegunCall, mut progress: FollowedProgress) -> Pieces {
        let BegunCall {
            mut started,
            schema,
        } = begun;
        Box::pin(stream! {
            let mut reported = f64::NEG_INFINITY;
            let mut silence = HEAD_WITHIN;
            let outcome = started.follower.outcome();
            tokio::pin!(outcome);
            let end = loop {
                let piece = tokio::select! {
                    biased;
                    outcome = &mut outcome => {
                        break outcome.map_err(|lost| lost.of_call(&started.id, true));
                    }
                    () = self.running.cancelled.cancelled() => {
                        break Err(CallError::new(CALL_CANCELLED));
                    }
                    Some(report) = progress.next(), if self.token.is_some() => {
                        match self.progress(&report, &mut reported) {
                            Some(message) => ResponsePiece::Progress(message),
                            None => continue,
                        }
                    }
                    () = sleep(silence) => ResponsePiece::Silence,
                };
                silence = self.keepalive;
                yield piece;
            };
            while let Some(report) = progress.ready() {
                if let Some(message) = self.progress(&report, &mut reported) {
                    yield ResponsePiece::Progress(message);
                }
            }
            yield ResponsePiece::End(match end {
                Ok(outcome) => {
                    results::response(&self.id, &outcome, schema.as_deref(), self.revision)
                }
                Err(error) => error.message(&self.id).to_string(),
            });
        })
    }

    /// Returns a report as the client gets it, if it wants to. It has to grow, also if parts or
    /// repetitions of a call report theirs.
    fn progress(&self, report: &ToolProgress, reported: &mut f64) -> Option<Value> {
        let token = self.token.as_ref()?;
        if report.progress <= *reported {
            return None;
        }
        *reported = report.progress;
        let mut params = json!({ "progressToken": token, "progress": report.progress });
        if let Some(total) = report.total {
            params["total"] = json!(total);
        }
        if let Some(message) = &report.message {
            params["message"] = json!(message);
        }
        Some(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    }
}

/// One event. The lines of a message that is written in several are those of its data.
pub(super) fn event(message: &impl fmt::Display) -> Bytes {
    let mut event = "event: message\n".to_owned();
    for line in message.to_string().split(['\n', '\r']) {
        event.extend(["data: ", line, "\n"]);
    }
    event.push('\n');
    Bytes::from(event)
}

/// Comment that keeps a connection alive without saying anything.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": the call goes on\n\n");

/// Returns a response of events.
pub(super) fn of_events(bytes: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(bytes.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies that buffer would hold the events until the end.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    response
}

fn events(pieces: impl Stream<Item = ResponsePiece> + Send + 'static) -> Response {
    of_events(pieces.map(|piece| match piece {
        ResponsePiece::Progress(message) => event(&message),
        ResponsePiece::End(message) => event(&message),
        ResponsePiece::Silence => COMMENT,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_is_the_data_of_one_event() {
        let event = event(&"{\n  \"a\":\r\n1}");
        let event = String::from_utf8(event.to_vec()).unwrap();
        let lines = event.lines().filter_map(|line| line.strip_prefix("data: "));
        let data = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(
            serde_json::from_str::<Value>(&data).unwrap(),
            json!({ "a": 1 })
        );
        assert_eq!(event.matches("\n\n").count(), 1, "it is one event");
    }
}
