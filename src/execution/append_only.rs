//! Delivery to clients that cannot take back: the sent text only ever grows, whatever restarts
//! below.
//!
//! Steps of the engine come in, and steps without a rewind are emitted. A restarted attempt is
//! compared with what was sent: nothing is emitted while it only repeats that, and the rest is
//! emitted once it has. If every attempt has another text, the text that was sent is continued by a
//! target that can, and the invocation fails if none can. It pulls the engine's steps one by one,
//! and the steps that it emits are those that the journal records and every follower sees.

mod channel;
mod rest;
mod seam;

use std::{collections::VecDeque, sync::Arc};

use futures_util::StreamExt as _;

use self::{
    channel::Diverged,
    seam::{AnswerPiece, AppendOnlyAnswer},
};
use crate::{
    config::server::OnDivergence,
    domain::{
        completion::BlockKind,
        failure::{Failure, FailureClass},
        fold::{Block, StreamStep, WrittenText},
        invocation::{Call, HistoryPatch, Outcome},
        item_source::{ItemSource, items_of},
        message::Opaque,
    },
    engine::Engine,
    layers::{
        StepStream,
        invocation::{InvocationContext, sent_of},
    },
    policy::continuation::{ContinuationStitcher, Stitched, Way},
};

/// Runs an invocation of which `sent` was sent before, and emits its steps without ever taking
/// anything back.
///
/// # Errors
/// When it is refused before any attempt: too much work.
pub(super) async fn run(
    engine: &Engine,
    incoming: InvocationContext,
    sent: &[Block],
) -> Result<StepStream, Failure> {
    let settings = engine
        .config()
        .server
        .openai_front
        .clone()
        .unwrap_or_default();
    let hold_back = match &incoming.invocation.call {
        Call::Model(call) => settings.hold_back.for_format(&call.response_format),
        Call::Tool(_) => settings.hold_back,
    };
    if settings.on_divergence == OnDivergence::Continue && rest::may_be_requested(&incoming) {
        incoming.append_only.continued_by_another_request();
    }
    let mut seam = AppendOnlyAnswer::new(hold_back);
    seam.restore(sent);
    if !sent.is_empty() {
        incoming.append_only.sent();
    }
    let steps = engine.run(incoming.clone()).await?;
    Ok(Box::pin(items_of(AppendOnlyFilter {
        engine: engine.clone(),
        incoming,
        steps,
        seam,
        writer: BlockWriter::after(sent),
        on_divergence: settings.on_divergence,
        begun: None,
        diverged: DivergedAttempts::default(),
        ready: VecDeque::new(),
        is_over: false,
    })))
}

/// Answer whose steps are emitted.
struct AppendOnlyFilter {
    engine: Engine,
    incoming: InvocationContext,
    steps: StepStream,
    seam: AppendOnlyAnswer,
    writer: BlockWriter,
    on_divergence: OnDivergence,
    /// Start of the completion, if the steps are those of the rest of it.
    begun: Option<ContinuedAnswer>,
    diverged: DivergedAttempts,
    ready: VecDeque<StreamStep>,
    /// `true` if the end was emitted, which nothing follows.
    is_over: bool,
}

/// Attempts that had another text than the one that was sent.
#[derive(Debug, Clone, Copy, Default)]
struct DivergedAttempts {
    /// `true` if any did.
    any: bool,
    /// `true` if the running one did.
    running: bool,
}

/// Start of a completion that is being continued.
struct ContinuedAnswer {
    outcome: Arc<Outcome>,
    stitcher: ContinuationStitcher,
    /// The text of both parts, as far as it was sent.
    text: String,
}

/// Writes pieces as steps of blocks that only grow.
#[derive(Debug, Default)]
struct BlockWriter {
    last_block: u32,
    open: Option<WrittenBlock>,
}

/// The block that is being written.
#[derive(Debug)]
struct WrittenBlock {
    id: u32,
    kind: BlockKind,
    text: WrittenText,
}

// === impl AppendOnlyFilter ===

impl ItemSource for AppendOnlyFilter {
    type Item = StreamStep;

    async fn next(&mut self) -> Option<StreamStep> {
        while !self.is_over {
            if let Some(step) = self.ready.pop_front() {
                self.is_over = matches!(step, StreamStep::Terminal(_));
                return Some(step);
            }
            let step = self.steps.next().await?;
            self.take(step).await;
        }
        None
    }
}

impl AppendOnlyFilter {
    async fn take(&mut self, step: StreamStep) {
        if let StreamStep::Terminal(outcome) = step {
            return self.over(outcome).await;
        }
        if matches!(step, StreamStep::AttemptStarted { .. }) {
            self.diverged.running = false;
        }
        match self.seam.step(&step) {
            Ok(pieces) => self.send(pieces),
            // Another attempt may repeat what was sent; what remains of this one is of no use.
            Err(Diverged) if !self.diverged.running => {
                self.incoming.append_only.diverged();
                self.diverged = DivergedAttempts {
                    any: true,
                    running: true,
                };
            }
            Err(Diverged) => {}
        }
        match step {
            StreamStep::BlockStart { .. }
            | StreamStep::BlockDelta { .. }
            | StreamStep::BlockStop { .. }
            | StreamStep::Rewind { .. }
            | StreamStep::Terminal(_) => {}
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. } => {
                let earlier = self
                    .begun
                    .as_ref()
                    .map_or(0, |begun| rest::last_attempt(&begun.outcome));
                self.ready.push_back(rest::renumbered(step, earlier));
            }
        }
    }

    fn send(&mut self, pieces: Vec<AnswerPiece>) {
        for piece in pieces {
            let piece = match (piece, &mut self.begun) {
                (AnswerPiece::Text(text), Some(begun)) => {
                    let stitched = begun.stitcher.push(&text);
                    self.send_stitched(stitched);
                    continue;
                }
                // The rest of a text is the same text.
                (AnswerPiece::TextEnd, Some(_)) => continue,
                (piece, _) => piece,
            };
            // Reasoning is never compared: it binds no attempt.
            if !matches!(
                piece,
                AnswerPiece::Reasoning(_) | AnswerPiece::Signed(_) | AnswerPiece::SignedAnew(..)
            ) {
                self.incoming.append_only.sent();
            }
            self.ready.extend(self.writer.write(piece));
        }
    }

    /// Sends the part of a continuation that is new. A text that starts anew is never glued to what
    /// was sent.
    fn send_stitched(&mut self, stitched: Stitched) {
        match stitched {
            Stitched::New(text) if !text.is_empty() => {
                if let Some(begun) = &mut self.begun {
                    begun.text.push_str(&text);
                }
                self.ready
                    .extend(self.writer.write(AnswerPiece::Text(text)));
            }
            Stitched::New(_) | Stitched::Undecided => {}
            Stitched::Anew(_) => {
                if let Some(begun) = self.begun.take() {
                    self.end(broken(begun.outcome));
                }
            }
        }
    }

    async fn over(&mut self, outcome: Arc<Outcome>) {
        match &outcome.result {
            Ok(_) => match self.seam.finish() {
                Ok(pieces) => {
                    self.send(pieces);
                    if let Some(stitched) = self.begun.as_mut().map(|begun| begun.stitcher.finish())
                    {
                        self.send_stitched(stitched);
                    }
                    self.ready.extend(self.writer.close());
                    self.end(outcome);
                }
                Err(Diverged) => self.diverged(outcome).await,
            },
            Err(failure) if self.diverged.any && failure.class != FailureClass::Cancelled => {
                self.diverged(outcome).await;
            }
            Err(_) => self.end(outcome),
        }
    }

    /// Ends the completion. Of several ends the first one counts, which nothing follows.
    fn end(&mut self, outcome: Arc<Outcome>) {
        let outcome = match self.begun.take() {
            Some(ContinuedAnswer {
                outcome: begun,
                text,
                ..
            }) => Arc::new(rest::joined(
                Arc::unwrap_or_clone(begun),
                text,
                Arc::unwrap_or_clone(outcome),
            )),
            None => outcome,
        };
        self.ready.push_back(StreamStep::Terminal(outcome));
    }

    /// The sent text is not the start of any new completion: it is continued if a target can, else the
    /// invocation fails.
    async fn diverged(&mut self, outcome: Arc<Outcome>) {
        let may_continue = self.on_divergence == OnDivergence::Continue
            && self.begun.is_none()
            && self.seam.sent_only_text()
            && sent_of(&outcome.attempts) <= self.incoming.plan.retry.max_retries;
        let text = self.seam.sent_text().to_owned();
        let request = if may_continue {
            rest::request(&self.incoming, &text)
        } else {
            None
        };
        let Some(request) = request else {
            return self.end(broken(outcome));
        };
        // Boxed, because few answers diverge, and the future of each step would be as large.
        match Box::pin(self.engine.run(request)).await {
            Ok(steps) => {
                self.steps = steps;
                self.seam = self.seam.anew();
                self.diverged = DivergedAttempts::default();
                let stitcher = ContinuationStitcher::new(text.as_str().into(), Way::Prefill);
                self.begun = Some(ContinuedAnswer {
                    outcome,
                    stitcher,
                    text,
                });
            }
            Err(refused) => self.end(Arc::new(Outcome {
                result: Err(refused),
                ..Arc::unwrap_or_clone(outcome)
            })),
        }
    }
}

/// Returns the same attempts, but what was sent cannot be completed.
fn broken(outcome: Arc<Outcome>) -> Arc<Outcome> {
    let message = "the answer broke off, and the new attempt's text is not the one that was sent; discard this answer and \
                   ask again";
    let mut failure = Failure::local(FailureClass::StreamInterrupted, message);
    (failure.never_sent, failure.target) = (false, outcome.target.clone());
    let reasoning = "What was sent could not be taken back, and no attempt repeated it.".to_owned();
    let outcome = Arc::unwrap_or_clone(outcome);
    Arc::new(Outcome {
        result: Err(failure),
        reasoning,
        history_patch: HistoryPatch::default(),
        ..outcome
    })
}

// === impl BlockWriter ===

impl BlockWriter {
    /// Writes on behind these blocks.
    fn after(sent: &[Block]) -> Self {
        let last_block = sent.iter().map(|block| block.id).max().unwrap_or(0);
        let open = sent.last().filter(|block| !block.stopped).map(|block| {
            let mut open = WrittenBlock::new(block.id, block.kind.clone());
            open.text.grow(&block.text);
            open
        });
        Self { last_block, open }
    }

    fn write(&mut self, piece: AnswerPiece) -> Vec<StreamStep> {
        match piece {
            AnswerPiece::Text(text) => self.grow(&BlockKind::Text, &text),
            AnswerPiece::TextEnd => {
                let is_text = |open: &WrittenBlock| open.kind == BlockKind::Text;
                if self.open.as_ref().is_some_and(is_text) {
                    self.close()
                } else {
                    Vec::new()
                }
            }
            AnswerPiece::Reasoning(text) => self.grow(&BlockKind::Reasoning, &text),
            AnswerPiece::Refusal(text) => self.grow(&BlockKind::Refusal, &text),
            AnswerPiece::Signed(opaque) => self.sign("", opaque),
            AnswerPiece::SignedAnew(text, opaque) => {
                let mut steps = self.close();
                steps.extend(self.sign(&text, opaque));
                steps
            }
            AnswerPiece::ToolCall(call) => {
                let mut steps = self.close();
                steps.extend(self.grow(
                    &BlockKind::ToolCall {
                        id: call.id,
                        name: call.name,
                    },
                    &call.arguments,
                ));
                steps.extend(self.close_with(call.opaque));
                steps
            }
        }
    }

    fn grow(&mut self, kind: &BlockKind, more: &str) -> Vec<StreamStep> {
        let mut steps = Vec::new();
        if self.open.as_ref().is_some_and(|open| open.kind != *kind) {
            steps.extend(self.close());
        }
        let open = self.open.get_or_insert_with(|| {
            self.last_block += 1;
            steps.push(StreamStep::BlockStart {
                block: self.last_block,
                kind: kind.clone(),
            });
            WrittenBlock::new(self.last_block, kind.clone())
        });
        steps.push(StreamStep::BlockDelta {
            block: open.id,
            offset: open.text.bytes(),
            text: more.to_owned(),
        });
        open.text.grow(more);
        steps
    }

    /// Ends the block that is being written.
    fn close(&mut self) -> Vec<StreamStep> {
        self.close_with(None)
    }

    fn close_with(&mut self, opaque: Option<Opaque>) -> Vec<StreamStep> {
        let Some(WrittenBlock {
            id: block, text, ..
        }) = self.open.take()
        else {
            return Vec::new();
        };
        let bytes = text.bytes();
        let hash = text.hash();
        vec![StreamStep::BlockStop {
            block,
            bytes,
            hash,
            opaque,
            committed: true,
        }]
    }

    /// Ends the reasoning that is being written, which may be none, behind this much more of it.
    fn sign(&mut self, text: &str, opaque: Opaque) -> Vec<StreamStep> {
        let mut steps = self.grow(&BlockKind::Reasoning, text);
        steps
            .retain(|step| !matches!(step, StreamStep::BlockDelta { text, .. } if text.is_empty()));
        steps.extend(self.close_with(Some(opaque)));
        steps
    }
}

// === impl WrittenBlock ===

impl WrittenBlock {
    fn new(id: u32, kind: BlockKind) -> Self {
        Self {
            id,
            kind,
            text: WrittenText::default(),
        }
    }
}

#[cfg(test)]
mod tests;
