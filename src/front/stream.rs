//! A streamed answer: steps of an invocation in, events of this wire out.
//!
//! The head of the answer waits for its first content, so that what fails before that is a clean status with the
//! right code. From then on the stream ends in one of two ways: `[DONE]` after a whole answer, or an error event. While
//! nothing comes, comments keep the connection alive. Dropping the stream drops the invocation.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use async_stream::stream;
use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::Response,
};
use futures_util::StreamExt as _;

use super::{
    Front, chat,
    chunks::Chunks,
    continuation,
    error::Refused,
    headers::Told,
    seam::{Diverged, Piece, Seam},
};
use crate::{
    config::server::{HoldBack, OnDivergence},
    domain::{
        clock,
        fold::Progress,
        ids::TargetId,
        invocation::{AttemptCause, Outcome},
    },
    engine::{Asked, Engine},
    layers::{ProgressStream, observe::Incoming},
};

/// A streamed answer as it was asked for.
pub(super) struct Wanted {
    /// What was asked, to ask for the rest of it.
    pub(super) asked: Asked,
    /// The invocation.
    pub(super) incoming: Incoming,
    /// The model as the caller names it.
    pub(super) model: String,
    /// Whether the usage is told.
    pub(super) include_usage: bool,
}

/// One answer on its way out.
struct Relay {
    engine: Engine,
    asked: Asked,
    incoming: Incoming,
    steps: ProgressStream,
    seam: Seam,
    chunks: Chunks,
    told: Told,
    on_divergence: OnDivergence,
    hold_back: HoldBack,
    keepalive: Duration,
    /// Whether this is the rest of an answer that another invocation began.
    continues: bool,
    ready: VecDeque<Bytes>,
    /// The end, once it came; an error is still to be said.
    end: Option<Result<(), Refused>>,
}

/// Answers with a stream, or with a status when it fails before its first content.
pub(super) async fn respond(front: &Front, wanted: Wanted) -> Result<Response, Refused> {
    let settings = front.settings();
    let Wanted { asked, incoming, model, include_usage } = wanted;
    let invocation = incoming.invocation.id.clone();
    let steps = front.engine.run(incoming.clone()).await.map_err(|refused| Refused::failure(&refused))?;
    let mut relay = Relay {
        engine: front.engine.clone(),
        asked,
        incoming,
        steps,
        seam: Seam::new(settings.hold_back),
        chunks: Chunks::new(&invocation, clock::wall_now().as_second(), model, include_usage),
        told: Told { invocation, attempts: 0, target: None, adapted: Vec::new() },
        on_divergence: settings.on_divergence,
        hold_back: settings.hold_back,
        continues: false,
        keepalive: settings.keepalive,
        ready: VecDeque::new(),
        end: None,
    };
    while relay.ready.is_empty() && relay.end.is_none() {
        let step = relay.steps.next().await;
        relay.take(step).await;
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
                match tokio::time::timeout(self.keepalive, self.steps.next()).await {
                    Ok(step) => self.take(step).await,
                    Err(_) => yield Ok(Chunks::comment("keep-alive")),
                }
            }
        }
    }

    /// Takes the next step, or the lack of one.
    async fn take(&mut self, step: Option<Progress>) {
        let Some(step) = step else {
            self.end = Some(Err(Refused::internal("the invocation ended without an outcome")));
            return;
        };
        match &step {
            Progress::AttemptStarted { attempt, target, cause, .. } => self.started(*attempt, target, *cause),
            Progress::Terminal(outcome) => return self.over(outcome).await,
            Progress::Recovery { adaptation, .. } => self.told.adapted.extend(adaptation.clone()),
            Progress::ContextInjected { .. }
            | Progress::BlockStart { .. }
            | Progress::BlockDelta { .. }
            | Progress::BlockStop { .. }
            | Progress::Rewind { .. }
            | Progress::Parked { .. }
            | Progress::Usage { .. } => {}
        }
        match self.seam.step(&step) {
            Ok(pieces) => self.send(pieces),
            Err(Diverged) => self.diverged().await,
        }
    }

    fn started(&mut self, attempt: u32, target: &TargetId, cause: AttemptCause) {
        self.told.attempts = self.told.attempts.max(attempt);
        if cause == AttemptCause::Hedge {
            // Either of the two may speak first; the last chunk says who did.
            self.told.target = None;
            return;
        }
        self.told.target = Some(target.clone());
        if let Some(state) = self.engine.targets().state(target) {
            self.chunks.answered_by(&state.target.model);
        }
    }

    fn send(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            self.ready.extend(self.chunks.piece(piece));
        }
    }

    async fn over(&mut self, outcome: &Outcome) {
        match &outcome.result {
            Ok(completion) => match self.seam.finish() {
                Ok(pieces) => {
                    self.told = Told { invocation: self.told.invocation.clone(), ..chat::told(outcome) };
                    self.send(pieces);
                    let target = outcome.target.as_ref().map(TargetId::as_str).unwrap_or_default();
                    let words = format!("attempts={} target={target}", outcome.attempts.len());
                    self.ready.push_back(Chunks::comment(&words));
                    self.ready.extend(self.chunks.end(completion));
                    self.end = Some(Ok(()));
                }
                Err(Diverged) => self.diverged().await,
            },
            Err(failure) => self.end = Some(Err(Refused::outcome(outcome, failure, chat::told(outcome)))),
        }
    }

    /// What was sent is not how the new answer begins: it is continued where somebody can, else it ends here.
    async fn diverged(&mut self) {
        if self.on_divergence == OnDivergence::Error || self.continues || !self.seam.sent_only_text() {
            self.end = Some(Err(Refused::diverged()));
            return;
        }
        let asked = continuation::asked(&self.asked, &self.incoming, self.seam.sent_text());
        let incoming = asked.and_then(|asked| self.engine.resolve(asked).ok());
        let Some(incoming) = incoming else {
            self.end = Some(Err(Refused::diverged()));
            return;
        };
        // What runs is of no use any more; it must not be billed on while the other one is asked.
        self.steps = Box::pin(futures_util::stream::empty());
        let words = format!("continued by invocation={}", incoming.invocation.id);
        match self.engine.run(incoming).await {
            Ok(steps) => {
                self.ready.push_back(Chunks::comment(&words));
                self.steps = steps;
                self.seam = Seam::new(self.hold_back);
                self.continues = true;
            }
            Err(refused) => self.end = Some(Err(Refused::failure(&refused))),
        }
    }
}
