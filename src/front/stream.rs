//! A streamed answer: steps of an invocation in, events of this wire out.
//!
//! The head of the answer waits for its first content, so that what fails before that is a clean status with the
//! right code. From then on the stream ends in one of two ways: `[DONE]` after a whole answer, or an error event. While
//! nothing comes, comments keep the connection alive. The steps are those of an invocation that takes nothing back.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use async_stream::stream;
use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::Response,
};

use super::{Front, chunks::Chunks, error::Refused, headers::ResponseHeaders};
use crate::{
    domain::{
        clock,
        completion::BlockKind,
        fold::{AnswerState, Block, StreamStep},
        ids::TargetId,
        invocation::{AttemptCause, Outcome},
    },
    execution::{Follower, Lost, Started, StreamItem},
};

/// One answer on its way out.
struct Relay {
    follower: Follower,
    fold: AnswerState,
    chunks: Chunks,
    told: ResponseHeaders,
    keepalive: Duration,
    ready: VecDeque<Bytes>,
    /// The end, once it came; an error is still to be sent.
    end: Option<Result<(), Refused>>,
}

/// Responds with a stream, or with a status when it fails before its first content. `model` is the caller's name for it.
pub(super) async fn respond(
    front: &Front,
    started: Started,
    model: String,
    include_usage: bool,
) -> Result<Response, Refused> {
    let Started { id, follower, .. } = started;
    let mut relay = Relay {
        follower,
        fold: AnswerState::default(),
        chunks: Chunks::new(&id, clock::wall_now().as_second(), model, include_usage),
        told: ResponseHeaders { invocation: id, attempts: 0, target: None, adapted: Vec::new() },
        keepalive: front.settings().keepalive,
        ready: VecDeque::new(),
        end: None,
    };
    while relay.ready.is_empty() && relay.end.is_none() {
        let next = relay.follower.next().await;
        relay.take(next);
    }
    if relay.ready.is_empty()
        && let Some(Err(refused)) = relay.end
    {
        return Err(refused);
    }
    let told = relay.told.clone();
    let mut response = Response::new(Body::from_stream(relay.events()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Reverse proxies that buffer would hold the answer until it is whole.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    told.write(headers);
    Ok(response)
}

// === impl Relay ===

impl Relay {
    fn events(mut self) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
        stream! {
            loop {
                while let Some(event) = self.ready.pop_front() {
                    yield Ok(event);
                }
                match self.end.take() {
                    None => {}
                    Some(Ok(())) => return,
                    Some(Err(refused)) => {
                        yield Ok(Chunks::broken(&refused));
                        return;
                    }
                }
                match tokio::time::timeout(self.keepalive, self.follower.next()).await {
                    Ok(next) => self.take(next),
                    Err(_) => yield Ok(Chunks::comment("keep-alive")),
                }
            }
        }
    }

    fn take(&mut self, next: Result<Option<StreamItem>, Lost>) {
        match next {
            Ok(Some(StreamItem::Step(entry) | StreamItem::Known(entry))) => self.step(&entry.step),
            Ok(Some(StreamItem::Snapshot { blocks, attempt, .. })) => self.catch_up(blocks, attempt),
            Ok(None) => self.end = Some(Err(Refused::internal("the invocation ended without an outcome"))),
            Err(lost) => self.end = Some(Err(Refused::lost(&lost))),
        }
    }

    fn step(&mut self, step: &StreamStep) {
        if let StreamStep::Terminal(outcome) = step {
            return self.over(outcome);
        }
        if let Err(error) = self.fold.apply(step) {
            // The steps come from this very process, so this is a defect, not an input.
            tracing::error!(%error, "a step of an invocation does not fold");
            self.end = Some(Err(Refused::internal("a step of the invocation is missing")));
            return;
        }
        match step {
            StreamStep::AttemptStarted { attempt, target, cause, model } => {
                self.started(*attempt, target, *cause, model);
            }
            StreamStep::BlockDelta { block, text, .. } => {
                if let Some(block) = self.fold.blocks().iter().find(|known| known.id == *block) {
                    self.ready.extend(self.chunks.text(&block.kind, text));
                }
            }
            StreamStep::BlockStop { block, .. } => {
                if let Some(block) = self.fold.blocks().iter().find(|known| known.id == *block).cloned() {
                    self.tool_call(&block);
                }
            }
            StreamStep::Recovery { adaptation, .. } => self.told.adapted.extend(adaptation.clone()),
            // Only an invocation that another front began takes something back.
            StreamStep::Rewind { .. } => self.end = Some(Err(Refused::diverged())),
            StreamStep::ContextInjected { .. }
            | StreamStep::BlockStart { .. }
            | StreamStep::Parked { .. }
            | StreamStep::Usage { .. }
            | StreamStep::Terminal(_) => {}
        }
    }

    /// Sends what of all blocks was not sent yet, in place of the steps that made them.
    fn catch_up(&mut self, blocks: Vec<Block>, attempt: u32) {
        self.told.attempts = self.told.attempts.max(attempt);
        let sent = std::mem::take(&mut self.fold);
        let sent = sent.blocks();
        let continues = |(index, old): (usize, &Block)| {
            let new = blocks.get(index);
            new.is_some_and(|new| new.id == old.id && new.kind == old.kind && new.text.starts_with(&old.text))
        };
        if !sent.iter().enumerate().all(continues) {
            // Its owner was lost, and with it the record of what was sent last.
            self.end = Some(Err(Refused::diverged()));
            return;
        }
        for (index, block) in blocks.iter().enumerate() {
            let old = sent.get(index);
            let more = &block.text[old.map_or(0, |old| old.text.len())..];
            if !more.is_empty() {
                self.ready.extend(self.chunks.text(&block.kind, more));
            }
            if block.stopped && old.is_none_or(|old| !old.stopped) {
                self.tool_call(block);
            }
        }
        self.fold.restore(blocks);
    }

    /// Sends a tool call that is whole.
    fn tool_call(&mut self, block: &Block) {
        if let BlockKind::ToolCall { id, name } = &block.kind {
            self.ready.extend(self.chunks.tool_call(id, name, &block.text));
        }
    }

    fn started(&mut self, attempt: u32, target: &TargetId, cause: AttemptCause, model: &str) {
        self.told.attempts = self.told.attempts.max(attempt);
        if cause == AttemptCause::Hedge {
            // Either of the two may speak first; the last chunk says who did.
            self.told.target = None;
            return;
        }
        self.told.target = Some(target.clone());
        self.chunks.answered_by(model);
    }

    fn over(&mut self, outcome: &Outcome) {
        match &outcome.result {
            Ok(completion) => {
                self.told = ResponseHeaders::of(outcome);
                let target = outcome.target.as_ref().map(TargetId::as_str).unwrap_or_default();
                let words = format!("attempts={} target={target}", outcome.attempts.len());
                self.ready.push_back(Chunks::comment(&words));
                self.ready.extend(self.chunks.end(completion));
                self.end = Some(Ok(()));
            }
            Err(failure) => self.end = Some(Err(Refused::outcome(outcome, failure, ResponseHeaders::of(outcome)))),
        }
    }
}
