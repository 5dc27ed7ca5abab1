//! `GET /v1/responses/{id}?stream=true`: the events of a response once more, from its first one or
//! behind one that the client has.
//!
//! The client names what it has by `starting_after`, the `sequence_number` of its last event, or by
//! that event's id in `last-event-id`, which a browser's `EventSource` sends by itself.

use axum::{http::HeaderMap, response::Response};

use super::{
    super::{
        Front, PeerCertificate, Principal,
        error::CallError,
        resume::{EventId, StreamIds},
        stream,
    },
    events::ResponseEvents,
    stored,
};
use crate::call_error::table::{EVENT_OF_OTHER_REQUEST, PAYLOADS_NOT_KEPT};

/// Name of the parameter that asks for a stream, and of that which names the client's last event.
const NAMES: [&str; 2] = ["stream", "starting_after"];

/// The query of a request for the stream of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamQuery {
    /// The `sequence_number` of the last event that the client has.
    starting_after: Option<u64>,
}

// === impl StreamQuery ===

impl StreamQuery {
    /// Reads a query; `None` if it asks for no stream.
    ///
    /// # Errors
    /// When `starting_after` is no number, or there is nothing that it could be of.
    pub(super) fn read(query: &str) -> Result<Option<Self>, CallError> {
        let [stream, after] = NAMES.map(|wanted| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(name, value)| (name == wanted).then_some(value))
        });
        let is_stream = stream.is_some_and(|value| !value.eq_ignore_ascii_case("false"));
        if !is_stream && after.is_some() {
            let why = "`starting_after` is of a stream: it needs `stream=true`";
            return Err(CallError::invalid("starting_after", why));
        }
        let starting_after = after.map(|number| {
            let refused = |_| {
                let why = "`starting_after` must be the `sequence_number` of an event";
                CallError::invalid("starting_after", why)
            };
            number.parse::<u64>().map_err(refused)
        });
        let starting_after = starting_after.transpose()?;
        Ok(is_stream.then_some(Self { starting_after }))
    }

    /// Returns the stream of a response.
    ///
    /// # Errors
    /// When the caller has no such response, or its events are not kept.
    pub(super) async fn of(
        self,
        front: &Front,
        caller: (&HeaderMap, &PeerCertificate),
        principal: &Principal,
        response: &str,
    ) -> Result<Response, CallError> {
        let last = EventId::of(caller.0)?;
        let settings = front.executions.settings();
        let record = stored::known(front, principal, response).await?;
        if settings.events_kept.is_zero() {
            return Err(CallError::new(PAYLOADS_NOT_KEPT).word("what", "a stored stream"));
        }
        let numbers = match (self.starting_after, &last) {
            (Some(_), Some(_)) => {
                let why = "`starting_after` and the header last-event-id name one event both";
                return Err(CallError::invalid("starting_after", why));
            }
            (None, Some(last)) if last.invocation != record.id => {
                let id = &last.invocation;
                return Err(CallError::new(EVENT_OF_OTHER_REQUEST).fact("invocationId", id));
            }
            (Some(number), None) => {
                StreamIds::after_events(&record.id, number.saturating_add(1), settings.mode)
            }
            (None, last) => StreamIds::after(&record.id, last.as_ref()),
        };
        let after = last.as_ref().map(EventId::step);
        let started = front.executions.follow(&record, after);
        let events = ResponseEvents::new(stored::begun(&record), record.route.to_string());
        stream::respond(front, caller, (started, Some(numbers)), events).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_a_stream_or_for_a_document() {
        let read = |query| StreamQuery::read(query).map_err(|refused| refused.to_string());
        let from = |starting_after| Ok(Some(StreamQuery { starting_after }));
        assert_eq!(read("stream=true"), from(None));
        assert_eq!(read("starting_after=7&stream=True"), from(Some(7)));
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("stream=false&include=x"), Ok(None));
        for bad in [
            "starting_after=7",
            "stream=true&starting_after=-1",
            "stream=true&starting_after=",
        ] {
            let refused = StreamQuery::read(bad).unwrap_err();
            assert_eq!(refused.param(), Some("starting_after"), "{bad}");
        }
    }
}
