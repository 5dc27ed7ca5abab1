//! Streams that their clients resume: the id of each event, and what of a stream its client has.
//!
//! An id names an event by its invocation, the step that made it (epoch and number, the cursor of
//! the gRPC stream) and its number among the events of that step. Steps are recorded, and the same
//! steps make the same bytes, so that a stream is resumed by writing it once more from its first
//! step and sending what follows the client's last event. Only streams whose requests ask for it
//! have ids, and only they pay for them.

use std::{fmt, str::FromStr};

use axum::{
    body::Bytes,
    http::{HeaderMap, header::ToStrError},
};

use super::error::CallError;
use crate::{
    call_error::table::{EVENTS_NOT_KEPT, PAYLOADS_NOT_KEPT},
    domain::{ids::InvocationId, units},
    engine::InvocationRequest,
    execution::Started,
    journal::JournalMode,
};

/// The header by which a client asks for a stream that it can resume.
pub(super) const RESUMABLE: &str = "x-relight-resumable";
/// The header by which a client names the last event that it has.
pub(super) const LAST_EVENT_ID: &str = "last-event-id";

/// Number of an event that has no place among those of one step: blocks were sent as a whole.
const OF_NO_STEP: &str = "-";

/// Name of one event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    /// Invocation that it is an event of.
    pub(super) invocation: InvocationId,
    at: EventPlace,
}

/// Place of an event in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventPlace {
    epoch: u64,
    seq: u64,
    /// Number among the events of the step, from 1; 0 stands for all of them, and for those of all
    /// steps before.
    number: u32,
}

/// Part of a stream that its client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldPart {
    /// All up to this event.
    UpTo(EventPlace),
    /// So many events, however they were made.
    Events {
        count: u64,
        /// If set, an earlier owner may have sent events that nobody recorded.
        may_be_lost: bool,
    },
}

/// The headers of a request that concern resuming.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ResumeHeaders {
    /// `x-relight-resumable`: `true`, or the time for which the call continues without a client.
    wish: Option<ResumeWish>,
    /// `last-event-id`.
    pub(super) after: Option<EventId>,
}

/// Time for which a call continues without a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResumeWish {
    /// As long as its route allows.
    AsAllowed,
    /// This long.
    For(std::time::Duration),
}

/// Writes the ids of a stream's events, and leaves out what its client has.
#[derive(Debug)]
pub(super) struct StreamIds {
    invocation: InvocationId,
    /// Epoch and number of the step that is written.
    step: (u64, u64),
    /// Number of the last event of that step.
    number: u32,
    has: Option<HeldPart>,
    /// `true` if its client came back.
    is_resumed: bool,
}

// === impl EventId ===

impl EventId {
    /// Returns the step that it is of: epoch and number.
    pub(super) const fn step(&self) -> (u64, u64) {
        (self.at.epoch, self.at.seq)
    }

    /// Returns the id in a request's `last-event-id`; none in an empty one, which is what a client
    /// without an event may send.
    ///
    /// # Errors
    /// When it is no id of an event here.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, CallError> {
        let text = headers
            .get(LAST_EVENT_ID)
            .map(|value| value.to_str().map(str::trim));
        match text {
            None | Some(Ok("")) => Ok(None),
            Some(Ok(text)) => text.parse().map(Some),
            Some(Err(ToStrError { .. })) => Err(unreadable()),
        }
    }
}

impl FromStr for EventId {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let mut words = text.rsplitn(4, '.');
        let number = words.next().unwrap_or_default();
        let mut count = || words.next()?.parse().ok();
        let (seq, epoch) = (count(), count());
        let invocation = words.next().filter(|id| !id.is_empty());
        if number == OF_NO_STEP {
            return Err(not_kept());
        }
        match (invocation, epoch, seq, number.parse()) {
            (Some(invocation), Some(epoch), Some(seq), Ok(number)) if seq > 0 => Ok(Self {
                invocation: InvocationId::from(invocation),
                at: EventPlace { epoch, seq, number },
            }),
            _ => Err(unreadable()),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EventPlace { epoch, seq, number } = self.at;
        write!(f, "{}.{epoch}.{seq}.{number}", self.invocation)
    }
}

// === impl ResumeHeaders ===

impl ResumeHeaders {
    /// Reads them.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, CallError> {
        let wish = headers
            .get(RESUMABLE)
            .map(|value| value.to_str().unwrap_or_default().trim());
        let wish = match wish {
            None | Some("false") => None,
            Some("true") => Some(ResumeWish::AsAllowed),
            Some(time) => {
                let time = units::parse_duration(time)
                    .ok()
                    .filter(|time| !time.is_zero());
                let refused = || {
                    let why = format!(
                        "the header {RESUMABLE} is neither `true` nor a time above zero with its unit, such as `30s`"
                    );
                    CallError::invalid(RESUMABLE, why)
                };
                Some(ResumeWish::For(time.ok_or_else(refused)?))
            }
        };
        let after = EventId::of(headers)?;
        Ok(Self { wish, after })
    }

    /// Writes into a request what they ask for.
    ///
    /// # Errors
    /// When this server keeps nothing that could be resumed, or no stream is requested.
    pub(super) fn apply(
        &self,
        request: &mut InvocationRequest,
        (is_stream, is_kept): (bool, bool),
    ) -> Result<(), CallError> {
        if self.after.is_some() && !is_stream {
            let why = format!(
                "the header {LAST_EVENT_ID} resumes a stream, and this request asks for none"
            );
            return Err(CallError::invalid(LAST_EVENT_ID, why));
        }
        if self.wish.is_some() && !is_kept {
            return Err(CallError::new(PAYLOADS_NOT_KEPT).word("what", RESUMABLE));
        }
        match self.wish {
            None => {}
            Some(ResumeWish::AsAllowed) => request.lifetime.resumable = true,
            Some(ResumeWish::For(time)) => request.overrides.resumable_grace = Some(time),
        }
        Ok(())
    }

    /// Returns whether the call is to be one that can be resumed.
    pub(super) const fn is_resumable(&self) -> bool {
        self.wish.is_some()
    }

    /// Returns the numbers of the stream's events, if it can be resumed.
    pub(super) fn numbers(&self, started: &Started) -> Option<StreamIds> {
        let can = self.wish.is_some() && !started.events_kept.is_zero();
        can.then(|| StreamIds::after(&started.id, self.after.as_ref()))
    }
}

// === impl StreamIds ===

impl StreamIds {
    /// Numbers of the events behind this one.
    pub(super) fn after(invocation: &InvocationId, last: Option<&EventId>) -> Self {
        Self {
            invocation: invocation.clone(),
            step: (0, 0),
            number: 0,
            has: last.map(|last| HeldPart::UpTo(last.at)),
            is_resumed: last.is_some(),
        }
    }

    /// Numbers of the events behind the first `count`.
    pub(super) fn after_events(invocation: &InvocationId, count: u64, mode: JournalMode) -> Self {
        let may_be_lost = mode == JournalMode::Fast;
        let has = (count > 0).then_some(HeldPart::Events { count, may_be_lost });
        Self {
            has,
            is_resumed: true,
            ..Self::after(invocation, None)
        }
    }

    /// Returns whether its client came back.
    pub(super) const fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Returns these events of the step with their ids, but for those that the client has. Events
    /// of the same step may come in several calls.
    ///
    /// # Errors
    /// When the client has what this stream never had, or what is no longer known.
    pub(super) fn of_step(
        &mut self,
        step: (u64, u64),
        events: Vec<Bytes>,
    ) -> Result<Vec<Bytes>, CallError> {
        if self.step != step {
            if self.step.0 != 0 && self.step.0 != step.0 && self.has_uncertain_part() {
                return Err(not_kept());
            }
            (self.step, self.number) = (step, 0);
        }
        let mut left = Vec::with_capacity(events.len());
        for event in events {
            if is_comment(&event) {
                left.extend(self.has.is_none().then_some(event));
                continue;
            }
            self.number += 1;
            if self.is_next()? {
                left.push(self.with_id(&event, &self.number.to_string()));
            }
        }
        Ok(left)
    }

    /// Returns these events of the last step, which is the last of the stream.
    ///
    /// # Errors
    /// As for [`of_step`](Self::of_step) and [`ended`](Self::ended).
    pub(super) fn of_last_step(&mut self, events: Vec<Bytes>) -> Result<Vec<Bytes>, CallError> {
        let left = self.of_step(self.step, events)?;
        self.ended().map(|()| left)
    }

    /// Returns the events of blocks that are sent as a whole, in place of all steps up to this one:
    /// the last of them has an id that can be resumed from.
    ///
    /// # Errors
    /// When the client came back, and the steps that would tell what it has are gone.
    pub(super) fn of_whole(
        &mut self,
        step: (u64, u64),
        mut events: Vec<Bytes>,
    ) -> Result<Vec<Bytes>, CallError> {
        if self.has.is_some() {
            return Err(not_kept());
        }
        (self.step, self.number) = (step, 0);
        let last = events.len().saturating_sub(1);
        for (index, event) in events.iter_mut().enumerate() {
            *event = self.with_id(event, if index == last { "0" } else { OF_NO_STEP });
        }
        Ok(events)
    }

    /// Checks at the end of the stream that the client has a part of it.
    ///
    /// # Errors
    /// When it has more.
    pub(super) fn ended(&self) -> Result<(), CallError> {
        match self.has {
            None | Some(HeldPart::UpTo(EventPlace { number: 0, .. })) => Ok(()),
            Some(HeldPart::UpTo(_)) => Err(no_event()),
            Some(HeldPart::Events { .. }) => {
                let why = "the stream has no such event: it ended before";
                Err(CallError::invalid("starting_after", why))
            }
        }
    }

    /// Returns whether the current event is one that the client has not.
    fn is_next(&mut self) -> Result<bool, CallError> {
        let (_, seq) = self.step;
        match &mut self.has {
            None => Ok(true),
            Some(HeldPart::Events { count, .. }) => {
                *count -= 1;
                if *count == 0 {
                    self.has = None;
                }
                Ok(false)
            }
            Some(HeldPart::UpTo(place)) if place.number == 0 => {
                let is_next = seq > place.seq;
                if is_next {
                    self.has = None;
                }
                Ok(is_next)
            }
            Some(HeldPart::UpTo(place)) => {
                let (last, current) = ((place.seq, place.number), (seq, self.number));
                if current > last {
                    return Err(no_event());
                }
                if current == last && place.epoch == self.step.0 {
                    self.has = None;
                }
                Ok(false)
            }
        }
    }

    /// Returns whether the client counts events that may not be those of the recorded steps.
    const fn has_uncertain_part(&self) -> bool {
        matches!(
            self.has,
            Some(HeldPart::Events {
                may_be_lost: true,
                ..
            })
        )
    }

    fn with_id(&self, event: &Bytes, number: &str) -> Bytes {
        let (epoch, seq) = self.step;
        let id = format!("id: {}.{epoch}.{seq}.{number}\n", self.invocation);
        Bytes::from([id.as_bytes(), event].concat())
    }
}

fn is_comment(event: &[u8]) -> bool {
    event.starts_with(b":")
}

fn unreadable() -> CallError {
    let why = format!("the header {LAST_EVENT_ID} is not the id of an event of this service");
    CallError::invalid(LAST_EVENT_ID, why)
}

fn no_event() -> CallError {
    let why = format!("the header {LAST_EVENT_ID} names no event of this stream");
    CallError::invalid(LAST_EVENT_ID, why)
}

fn not_kept() -> CallError {
    CallError::new(EVENTS_NOT_KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(epoch: u64, seq: u64, number: u32) -> EventId {
        let at = EventPlace { epoch, seq, number };
        EventId {
            invocation: InvocationId::from("a.b"),
            at,
        }
    }

    /// The ids of a stream whose steps make so many events each, behind `last`.
    fn ids(steps: &[usize], last: Option<&EventId>) -> Result<Vec<String>, CallError> {
        let mut numbers = StreamIds::after(&InvocationId::from("a.b"), last);
        let mut ids = Vec::new();
        for (seq, count) in (1..).zip(steps) {
            let events = vec![Bytes::from_static(b"data: x\n\n"); *count];
            for event in numbers.of_step((1, seq), events)? {
                let text = String::from_utf8(event.to_vec()).unwrap();
                ids.push(text.lines().next().unwrap()[4..].to_owned());
            }
        }
        numbers.ended()?;
        Ok(ids)
    }

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for id in [place(1, 2, 3), place(9, u64::MAX, 0)] {
            assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        }
        for text in ["", "x", "a.1.2", ".1.2.3", "a.1.0.1", "a.1.2.-1", "a.x.2.3"] {
            let refused = text.parse::<EventId>().unwrap_err();
            assert_eq!(refused.param(), Some(LAST_EVENT_ID), "{text}");
        }
        let refused = "a.1.2.-".parse::<EventId>().unwrap_err();
        assert_eq!(refused.row().name, "EVENTS_NOT_KEPT");
    }

    #[test]
    fn behind_each_event_the_rest_of_the_stream_follows() {
        let steps = [2, 0, 1, 3];
        let all = ids(&steps, None).unwrap();
        assert_eq!(all.len(), 6);
        for (index, last) in all.iter().enumerate() {
            let rest = ids(&steps, Some(&last.parse().unwrap())).unwrap();
            assert_eq!(rest, all[index + 1..], "behind {last}");
        }
    }

    #[test]
    fn an_event_that_the_stream_never_had_is_refused() {
        let steps = [2, 0, 1, 3];
        for (seq, number) in [(1, 3), (2, 1), (4, 4), (5, 1)] {
            let refused = ids(&steps, Some(&place(1, seq, number))).unwrap_err();
            assert_eq!(refused.param(), Some(LAST_EVENT_ID), "{seq}.{number}");
        }
        let other_owner = ids(&steps, Some(&place(2, 3, 1))).unwrap_err();
        assert_eq!(other_owner.param(), Some(LAST_EVENT_ID));
    }

    #[test]
    fn events_that_another_owner_may_have_sent_unrecorded_are_not_counted() {
        let id = InvocationId::from("a");
        let event = || vec![Bytes::from_static(b"data: x\n\n")];
        for (mode, is_taken) in [(JournalMode::Fast, false), (JournalMode::Strict, true)] {
            let mut numbers = StreamIds::after_events(&id, 2, mode);
            assert!(numbers.of_step((1, 1), event()).unwrap().is_empty());
            let second = numbers.of_step((2, 2), event());
            assert_eq!(second.is_ok(), is_taken, "{mode:?}");
        }
    }
}
