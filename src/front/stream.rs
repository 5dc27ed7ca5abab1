//! A streamed answer: steps of an invocation in, events of the client's protocol out.
//!
//! The head of the answer waits for its first content, and for that no longer than the keep-alive
//! time, so that what fails until then is a clean status with the right code. From then on the
//! stream ends in one of two ways: the protocol's own end of a whole answer, or its own error
//! event. While nothing is sent, comments keep the connection alive, also before the first content.
//! The steps are those of an invocation that takes nothing back.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use async_stream::stream;
use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::Response,
};

use super::{Front, error::Refused, headers::ResponseHeaders};
use crate::{
    domain::{
        completion::{BlockKind, Completion, Usage},
        fold::{Block, StreamStep, WrittenText},
        ids::TargetId,
        invocation::{AttemptCause, Outcome},
        message::Opaque,
    },
    execution::{Follower, Lost, Started, StreamItem},
};

/// The events of one protocol.
pub(super) trait AnswerEvents: Send + 'static {
    /// Another model answers from here on.
    fn answered_by(&mut self, model: &str);

    /// What the answer cost so far.
    fn cost(&mut self, _: Usage) {}

    /// Whether the end of such a block needs its whole text.
    fn repeats(&self, kind: &BlockKind) -> bool {
        matches!(kind, BlockKind::ToolCall { .. })
    }

    /// A block grew by this text. What is sent only whole (tool calls) is sent when it stops.
    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes>;

    /// A block is whole; it has its text where that is repeated.
    fn stop(&mut self, block: &Block) -> Vec<Bytes>;

    /// The answer is whole.
    fn end(&mut self, completion: &Completion) -> Vec<Bytes>;

    /// The answer cannot go on.
    fn broken(&mut self, refused: &Refused) -> Vec<Bytes>;
}

/// One answer on its way out.
struct Relay<E> {
    follower: Follower,
    sent: Vec<SentBlock>,
    events: E,
    own_headers: ResponseHeaders,
    keepalive: Duration,
    ready: VecDeque<Bytes>,
    /// The end, once it came; an error is still to be sent.
    end: Option<Result<(), Refused>>,
}

/// A block of the answer as far as it was sent.
struct SentBlock {
    /// The block, with its text only while its end still needs it.
    block: Block,
    text: WrittenText,
}

/// Responds with a stream of these events, or with a status when it fails before its first content
/// or comment.
pub(super) async fn respond(
    front: &Front,
    started: Started,
    events: impl AnswerEvents,
) -> Result<Response, Refused> {
    let Started { id, follower, .. } = started;
    let mut relay = Relay {
        follower,
        sent: Vec::new(),
        events,
        own_headers: ResponseHeaders {
            invocation: id,
            attempts: 0,
            target: None,
            adapted: Vec::new(),
        },
        keepalive: front.settings().keepalive,
        ready: VecDeque::new(),
        end: None,
    };
    relay.fill().await;
    if relay.ready.is_empty()
        && let Some(Err(refused)) = relay.end
    {
        return Err(refused);
    }
    let own_headers = relay.own_headers.clone();
    let mut response = Response::new(Body::from_stream(relay.bytes()));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies that buffer would hold the answer until it is whole.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    own_headers.write(headers);
    Ok(response)
}

// === impl Relay ===

impl<E: AnswerEvents> Relay<E> {
    fn bytes(mut self) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
        stream! {
            loop {
                while let Some(event) = self.ready.pop_front() {
                    yield Ok(event);
                }
                match self.end.take() {
                    None => {}
                    Some(Ok(())) => return,
                    Some(Err(refused)) => {
                        for event in self.events.broken(&refused) {
                            yield Ok(event);
                        }
                        return;
                    }
                }
                self.fill().await;
            }
        }
    }

    /// Takes steps until there is something to send; a comment where that takes longer than the
    /// keep-alive time.
    async fn fill(&mut self) {
        let filled = tokio::time::timeout(self.keepalive, async {
            while self.ready.is_empty() && self.end.is_none() {
                let next = self.follower.next().await;
                self.take(next);
            }
        });
        if filled.await.is_err() {
            self.ready.push_back(comment("keep-alive"));
        }
    }

    fn take(&mut self, next: Result<Option<StreamItem>, Lost>) {
        match next {
            Ok(Some(StreamItem::Step(entry) | StreamItem::Known(entry))) => self.step(&entry.step),
            Ok(Some(StreamItem::Snapshot {
                blocks, attempt, ..
            })) => self.catch_up(blocks, attempt),
            Ok(None) => {
                self.end = Some(Err(Refused::internal(
                    "the invocation ended without an outcome",
                )));
            }
            Err(lost) => self.end = Some(Err(Refused::lost(&lost))),
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
            StreamStep::Usage { usage, .. } => self.events.cost(*usage),
            StreamStep::Recovery { adaptation, .. } => {
                self.own_headers.adapted.extend(adaptation.clone());
            }
            // Only an invocation that another front began takes something back.
            StreamStep::Rewind { .. } => self.end = Some(Err(Refused::diverged())),
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

    /// Ends a stream that is no whole answer any more.
    fn missed(&mut self) {
        // The steps come from this very process, so this is a defect, not an input.
        tracing::error!(invocation = %self.own_headers.invocation, "a step of an invocation is missing");
        self.end = Some(Err(Refused::internal(
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
            self.end = Some(Err(Refused::diverged()));
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
                self.ready.push_back(comment(&words));
                self.ready.extend(self.events.end(completion));
                self.end = Some(Ok(()));
            }
            Err(failure) => {
                self.end = Some(Err(Refused::outcome(
                    outcome,
                    failure,
                    ResponseHeaders::of(outcome),
                )));
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

    /// What of the same block, as it is by now, was not sent; `None` where that is another block.
    fn rest_of<'a>(&self, block: &'a Block) -> Option<&'a str> {
        let is_same = block.id == self.block.id && block.kind == self.block.kind;
        if is_same {
            self.text.rest_of(&block.text)
        } else {
            None
        }
    }
}

/// A comment, which clients pass over.
fn comment(words: &str) -> Bytes {
    let words: String = words.chars().filter(|c| !c.is_control()).collect();
    Bytes::from(format!(": relight {words}\n\n"))
}
