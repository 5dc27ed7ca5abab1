//! A streamed completion: steps of an invocation in, events of the client's protocol out.
//!
//! The head of the completion waits for its first content, and for that no longer than the keep-alive
//! time, so that what fails until then is a clean status with the right code. From then on the
//! stream ends in one of two ways: the protocol's own end of a whole completion, or its own error
//! event. While nothing is sent, comments keep the connection alive, also before the first content.
//! The steps are those of an invocation that takes nothing back. A stream that its client resumes
//! is written once more, and what the client has is left out.

use std::{collections::VecDeque, convert::Infallible};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::{future::BoxFuture, stream};

use super::{
    Front, PeerCertificate, error::CallError, headers::ResponseHeaders, resume::StreamIds,
};
use crate::{
    call_error::table::STREAM_INTERRUPTED,
    domain::{
        completion::{BlockKind, Completion, Usage},
        fold::{Block, StreamStep, WrittenText},
        ids::TargetId,
        invocation::{AttemptCause, Outcome},
        message::Opaque,
    },
    execution::{Follower, IdleTimer, Lost, Started, StreamItem},
};

/// The events of one protocol.
pub(super) trait AnswerEvents: Send + 'static {
    /// Notes that another model answers from here on.
    fn answered_by(&mut self, model: &str);

    /// Notes what the provider said around the answer when it began.
    fn begins_with(&mut self, around: &Opaque);

    /// Notes the cost of the completion so far.
    fn cost(&mut self, _: Usage) {}

    /// Returns whether the end of such a block needs its whole text.
    fn repeats(&self, kind: &BlockKind) -> bool {
        matches!(kind, BlockKind::ToolCall { .. })
    }

    /// Handles a block that grew by this text. What is sent only whole (tool calls) is sent when it
    /// stops.
    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes>;

    /// Handles a block that is whole; it has its text if that is repeated.
    fn stop(&mut self, block: &Block) -> Vec<Bytes>;

    /// Handles the end: the completion is whole.
    fn end(&mut self, completion: &Completion) -> Vec<Bytes>;

    /// Handles a completion that cannot continue.
    fn broken(&mut self, refused: &CallError) -> Vec<Bytes>;
}

/// One answer on its way out.
struct Relay<E> {
    follower: Follower,
    /// Ends when its caller may not call any more.
    withdrawn: BoxFuture<'static, CallError>,
    sent: Vec<SentBlock>,
    events: E,
    /// The ids of its events, if it can be resumed.
    numbers: Option<StreamIds>,
    own_headers: ResponseHeaders,
    ready: VecDeque<Bytes>,
    /// The end, once it came; an error is still to be sent.
    end: Option<Result<(), CallError>>,
}

/// Block of the completion as far as it was sent.
struct SentBlock {
    /// The block, with its text only while its end still needs it.
    block: Block,
    text: WrittenText,
}

/// Responds with a stream of these events, or with a status when it fails before its first content
/// or comment. A client that came back and has it all gets no content, after which it does not come
/// again.
pub(super) async fn respond(
    front: &Front,
    caller: (&HeaderMap, &PeerCertificate),
    (started, numbers): (Started, Option<StreamIds>),
    events: impl AnswerEvents,
) -> Result<Response, CallError> {
    let Started {
        id,
        route,
        follower,
        ..
    } = started;
    let mut relay = Relay {
        follower,
        withdrawn: front.withdrawn(caller, route),
        sent: Vec::new(),
        events,
        numbers,
        own_headers: ResponseHeaders {
            invocation: id,
            attempts: 0,
            target: None,
            adapted: Vec::new(),
        },
        ready: VecDeque::new(),
        end: None,
    };
    let mut timer = IdleTimer::new(front.settings().keepalive);
    relay.fill_within(&mut timer).await;
    if relay.is_resumed() {
        relay.fail_as_before();
    }
    match relay.end {
        Some(Err(refused)) if relay.ready.is_empty() => return Err(refused),
        Some(Ok(())) if relay.ready.is_empty() => return Ok(nothing_left(&relay.own_headers)),
        _ => {}
    }
    let own_headers = relay.own_headers.clone();
    let mut response = Response::new(Body::from_stream(relay.bytes(timer)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies that buffer would hold the completion until it is whole.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    own_headers.write(headers);
    Ok(response)
}

/// Returns the response to a client that has the whole stream.
fn nothing_left(own_headers: &ResponseHeaders) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    own_headers.write(response.headers_mut());
    response
}

// === impl Relay ===

impl<E: AnswerEvents> Relay<E> {
    fn bytes(
        self,
        timer: IdleTimer,
    ) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(Box::new((self, timer)), async |mut state| {
            let (relay, timer) = &mut *state;
            let event = relay.next(timer).await?;
            Some((Ok(event), state))
        })
    }

    /// Returns the next event or comment; `None` after the last.
    async fn next(&mut self, timer: &mut IdleTimer) -> Option<Bytes> {
        loop {
            if self.ready.is_empty() {
                self.fail_as_before();
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.end.take() {
                None => self.fill_within(timer).await,
                Some(Ok(())) => return None,
                Some(Err(refused)) => {
                    self.ready.extend(self.events.broken(&refused));
                    self.end = Some(Ok(()));
                }
            }
        }
    }

    /// Takes steps until there is something to send; a comment if that takes longer than the
    /// keep-alive time.
    async fn fill_within(&mut self, timer: &mut IdleTimer) {
        if timer.bounded(self.fill()).await.is_none() {
            self.comment("keep-alive");
        }
    }

    async fn fill(&mut self) {
        while self.ready.is_empty() && self.end.is_none() {
            tokio::select! {
                biased;
                refusal = &mut self.withdrawn => self.end = Some(Err(refusal)),
                next = self.follower.next() => self.take(next),
            }
        }
    }

    fn take(&mut self, next: Result<Option<StreamItem>, Lost>) {
        let already = self.ready.len();
        match next {
            Ok(Some(StreamItem::Step(entry) | StreamItem::Known(entry))) => {
                self.step(&entry.step);
                let step = (entry.epoch, entry.seq);
                self.number(already, |numbers, events| numbers.of_step(step, events));
                if matches!(self.end, Some(Ok(()))) {
                    self.number(already, |numbers, events| numbers.ended().map(|()| events));
                }
            }
            Ok(Some(StreamItem::Snapshot {
                epoch,
                seq,
                blocks,
                attempt,
                ..
            })) => {
                self.catch_up(blocks, attempt);
                self.number(already, |numbers, events| {
                    numbers.of_whole((epoch, seq), events)
                });
            }
            Ok(None) => {
                self.end = Some(Err(CallError::internal(
                    "the invocation ended without an outcome",
                )));
            }
            Err(lost) => {
                let id = &self.own_headers.invocation;
                self.end = Some(Err(if self.numbers.is_some() {
                    lost.of_resumable(id)
                } else {
                    lost.of_call(id, false)
                }));
            }
        }
    }

    /// Replaces the newest events, all behind the first `already`, by what `write` makes of them,
    /// if the stream can be resumed.
    fn number(
        &mut self,
        already: usize,
        write: impl FnOnce(&mut StreamIds, Vec<Bytes>) -> Result<Vec<Bytes>, CallError>,
    ) {
        let Some(numbers) = &mut self.numbers else {
            return;
        };
        let events = self.ready.drain(already..).collect();
        match write(numbers, events) {
            Ok(events) => self.ready.extend(events),
            Err(refused) => self.end = Some(Err(refused)),
        }
    }

    /// Sends a comment, which clients pass over. Among events with ids no empty line follows it: the
    /// official SDKs take that for the end of an event.
    fn comment(&mut self, words: &str) {
        let words: String = words.chars().filter(|c| !c.is_control()).collect();
        let end = if self.numbers.is_some() { "" } else { "\n" };
        let comment = format!(": relight {words}\n{end}");
        self.ready.push_back(Bytes::from(comment));
    }

    fn is_resumed(&self) -> bool {
        self.numbers.as_ref().is_some_and(StreamIds::is_resumed)
    }

    /// Writes the failure of the invocation itself, which all its streams end with, as events like
    /// any others.
    fn fail_as_before(&mut self) {
        let Some(numbers) = &mut self.numbers else {
            return;
        };
        let Some(Err(refused)) = self.end.take_if(|end| is_own_failure(end)) else {
            return;
        };
        let events = self.events.broken(&refused);
        match numbers.of_last_step(events) {
            Ok(events) => {
                self.ready.extend(events);
                self.end = Some(Ok(()));
            }
            Err(refused) => self.end = Some(Err(refused)),
        }
    }

    fn step(&mut self, step: &StreamStep) {
        if let StreamStep::Terminal(outcome) = step {
            return self.over(outcome);
        }
        match step {
            StreamStep::AttemptStarted {
                attempt,
                target,
                cause,
                model,
                repaired,
                ..
            } => {
                self.own_headers.adapted.extend(repaired.clone());
                self.started(*attempt, target, *cause, model);
            }
            StreamStep::BlockStart { block, kind } => {
                self.sent.push(SentBlock::new(*block, kind.clone()));
            }
            StreamStep::BlockDelta {
                block,
                offset,
                text,
            } => self.grow(*block, *offset, text),
            StreamStep::BlockStop { block, opaque, .. } => self.stop(*block, opaque.as_ref()),
            StreamStep::ResponseStarted { model, around, .. } => {
                if let Some(model) = model {
                    self.events.answered_by(model);
                }
                self.events.begins_with(around);
            }
            StreamStep::Usage { usage, .. } => self.events.cost(*usage),
            StreamStep::Recovery { adaptation, .. } => {
                self.own_headers.adapted.extend(adaptation.clone());
            }
            // Only an invocation that another front started takes something back.
            StreamStep::Rewind { .. } => self.end = Some(Err(CallError::new(STREAM_INTERRUPTED))),
            StreamStep::ContextInjected { .. }
            | StreamStep::Parked { .. }
            | StreamStep::Terminal(_) => {}
        }
    }

    fn grow(&mut self, block: u32, offset: u64, text: &str) {
        let sent = self
            .sent
            .iter_mut()
            .find(|sent| sent.block.id == block && sent.text.bytes() == offset);
        let Some(sent) = sent else {
            return self.missed();
        };
        sent.text.grow(text);
        if self.events.repeats(&sent.block.kind) {
            sent.block.text.push_str(text);
        }
        self.ready.extend(self.events.text(&sent.block, text));
    }

    fn stop(&mut self, block: u32, opaque: Option<&Opaque>) {
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.block.id == block) else {
            return self.missed();
        };
        (sent.block.stopped, sent.block.opaque) = (true, opaque.cloned());
        self.ready.extend(self.events.stop(&sent.block));
        sent.block.text = String::new();
    }

    /// Ends a stream that is no longer a whole completion.
    fn missed(&mut self) {
        // The steps come from this very process, so this is a defect, not an input.
        tracing::error!(invocation = %self.own_headers.invocation, "a step of an invocation is missing");
        self.end = Some(Err(CallError::internal(
            "a step of the invocation is missing",
        )));
    }

    /// Sends what of all blocks was not sent yet, in place of the steps that made them.
    fn catch_up(&mut self, blocks: Vec<Block>, attempt: u32) {
        self.own_headers.attempts = self.own_headers.attempts.max(attempt);
        let rests: Option<Vec<&str>> = blocks
            .iter()
            .enumerate()
            .map(|(index, block)| {
                self.sent
                    .get(index)
                    .map_or(Some(&*block.text), |sent| sent.rest_of(block))
            })
            .collect();
        let Some(rests) = rests.filter(|rests| rests.len() >= self.sent.len()) else {
            // Its owner was lost, and with it the record of what was sent last.
            self.end = Some(Err(CallError::new(STREAM_INTERRUPTED)));
            return;
        };
        for (index, (block, rest)) in blocks.iter().zip(rests).enumerate() {
            if !rest.is_empty() {
                self.ready.extend(self.events.text(block, rest));
            }
            if block.stopped && self.sent.get(index).is_none_or(|sent| !sent.block.stopped) {
                self.ready.extend(self.events.stop(block));
            }
        }
        self.sent = blocks
            .into_iter()
            .map(|block| SentBlock::of(block, &self.events))
            .collect();
    }

    fn started(&mut self, attempt: u32, target: &TargetId, cause: AttemptCause, model: &str) {
        self.own_headers.attempts = self.own_headers.attempts.max(attempt);
        if cause == AttemptCause::Hedge {
            // Either of the two may speak first; the last chunk says who did.
            self.own_headers.target = None;
            return;
        }
        self.own_headers.target = Some(target.clone());
        self.events.answered_by(model);
    }

    fn over(&mut self, outcome: &Outcome) {
        match &outcome.result {
            Ok(completion) => {
                self.own_headers = ResponseHeaders::of(outcome);
                let target = outcome
                    .target
                    .as_ref()
                    .map(TargetId::as_str)
                    .unwrap_or_default();
                let mut words = format!("attempts={} target={target}", outcome.attempts.len());
                if let Some(changes) = self.own_headers.changes() {
                    words = format!("{words} adapted={changes}");
                }
                self.comment(&words);
                self.ready.extend(self.events.end(completion));
                self.end = Some(Ok(()));
            }
            Err(failure) => {
                self.end = Some(Err(CallError::of_outcome(outcome, failure)));
            }
        }
    }
}

// === impl SentBlock ===

impl SentBlock {
    /// A block of which nothing was sent.
    fn new(id: u32, kind: BlockKind) -> Self {
        let block = Block {
            id,
            kind,
            text: String::new(),
            opaque: None,
            stopped: false,
            committed: false,
        };
        Self {
            block,
            text: WrittenText::default(),
        }
    }

    /// A block that was sent so far.
    fn of(mut block: Block, events: &impl AnswerEvents) -> Self {
        let mut text = WrittenText::default();
        text.grow(&block.text);
        if block.stopped || !events.repeats(&block.kind) {
            block.text = String::new();
        }
        Self { block, text }
    }

    /// Returns the part of the same block, as it is by now, that was not sent; `None` if that is
    /// another block.
    fn rest_of<'a>(&self, block: &'a Block) -> Option<&'a str> {
        let is_same = block.id == self.block.id && block.kind == self.block.kind;
        if is_same {
            self.text.rest_of(&block.text)
        } else {
            None
        }
    }
}

/// Returns whether a stream ends so because its invocation failed, and not on its way to the
/// client.
fn is_own_failure(end: &Result<(), CallError>) -> bool {
    end.as_ref()
        .is_err_and(|refused| refused.outcome().is_some())
}
