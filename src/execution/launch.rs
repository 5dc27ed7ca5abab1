//! Start of an invocation's run here, new or taken over: the engine's steps, its run, and its end
//! if it never runs.

use std::{sync::Arc, time::Duration};

use super::{
    ExecutionShared, append_only,
    checkpoint::ThreadCheckpoint,
    delivery_filter::DeliveryFilter,
    live::{Commitments, Execution, LayerLinks},
    recorder::StepRecorder,
    replay_buffer::ReplayBuffer,
    run::{Run, failed},
};
use crate::{
    domain::{
        clock,
        failure::Failure,
        fold::{Block, StreamStep},
        ids::InvocationId,
        invocation::{AttemptRecord, Invocation, Outcome, RewindMode},
    },
    journal::{Entry, Finish, Record},
    layers::{StepStream, invocation::InvocationContext},
};

/// An invocation that is about to run here.
pub(super) struct Launch {
    pub(super) id: InvocationId,
    pub(super) epoch: u64,
    pub(super) commitments: Commitments,
    pub(super) links: LayerLinks,
    pub(super) steps: StepStream,
    pub(super) mode: RewindMode,
    /// Content that earlier owners published of it.
    pub(super) before: PublishedBefore,
    pub(super) turn: Option<ThreadCheckpoint>,
    /// If set, no target is called, so that its end, a failure, may be published without a record.
    pub(super) calls_no_target: bool,
    /// Time for which it continues without a follower.
    pub(super) grace: Duration,
}

/// Content that earlier owners published of an invocation; nothing of a new one.
#[derive(Default)]
pub(super) struct PublishedBefore {
    /// The number of the last step.
    pub(super) last: u64,
    /// Number of attempts that started.
    pub(super) attempts: u32,
    /// Part of the completion that followers hold.
    pub(super) blocks: Vec<Block>,
}

// === impl Launch ===

impl Launch {
    /// A new invocation without a thread that is recorded and may be looked up.
    pub(super) fn new(
        invocation: &Invocation,
        epoch: u64,
        links: LayerLinks,
        steps: StepStream,
    ) -> Self {
        Self {
            id: invocation.id.clone(),
            epoch,
            commitments: Commitments {
                is_recorded: true,
                is_promised: true,
            },
            links,
            steps,
            mode: mode_of(invocation),
            before: PublishedBefore::default(),
            turn: None,
            calls_no_target: false,
            grace: invocation.overrides.resumable_grace.unwrap_or_default(),
        }
    }
}

// === impl ExecutionShared ===

impl ExecutionShared {
    /// Prepares the run of an invocation; it is listed and proceeds once [`Run::begin`] is called,
    /// so that a follower may take its place before.
    pub(super) fn launch(self: &Arc<Self>, launch: Launch) -> Run {
        let Launch {
            id,
            epoch,
            commitments,
            links,
            steps,
            mode,
            before,
            turn,
            calls_no_target,
            grace,
        } = launch;
        let PublishedBefore {
            last,
            attempts,
            blocks,
        } = before;
        let filter = DeliveryFilter::new(mode, &blocks);
        let kept = self.settings.tail_bytes;
        let replay = ReplayBuffer::new(kept, commitments.is_promised, last, attempts, blocks);
        let execution = Arc::new(Execution::new(id, epoch, commitments, links, replay));
        Run {
            shared: Arc::clone(self),
            recorder: StepRecorder::new(Arc::clone(self), Arc::clone(&execution), attempts),
            execution,
            steps,
            filter,
            turn,
            calls_no_target,
            grace,
        }
    }

    /// Runs an invocation of which `sent` was sent before; its steps are such as its delivery mode
    /// allows.
    pub(super) async fn run_engine(
        &self,
        incoming: InvocationContext,
        sent: &[Block],
    ) -> Result<StepStream, Failure> {
        if mode_of(&incoming.invocation) == RewindMode::AppendOnly {
            // Boxed, so that no other call carries its room.
            Box::pin(append_only::run(&self.engine, incoming, sent)).await
        } else {
            self.engine.run(incoming).await
        }
    }

    /// Ends an invocation that is recorded but does not run, after its step `last`; `attempts`: what
    /// earlier owners did for it.
    pub(super) async fn end_unrun(
        &self,
        id: &InvocationId,
        epoch: u64,
        last: u64,
        failure: Failure,
        attempts: Vec<AttemptRecord>,
    ) {
        let reasoning = if attempts.is_empty() {
            "It ended before a target was called."
        } else {
            "It ended with the replicas that called a target."
        };
        let outcome = Arc::new(Outcome {
            target: attempts.last().and_then(|attempt| attempt.target.clone()),
            attempts,
            ..failed(id, failure, reasoning)
        });
        let step = StreamStep::Terminal(Arc::clone(&outcome));
        let now = clock::wall_now();
        let entries = vec![Entry {
            epoch,
            seq: last + 1,
            attempt: 0,
            at: now,
            step,
        }];
        let snapshot = Vec::new();
        let ended_before = Duration::ZERO;
        let finish = Finish {
            id: id.clone(),
            epoch,
            entries,
            outcome,
            snapshot,
            thread: None,
            ended_before,
        };
        if let Err(error) = self.journal.finish(finish, now).await {
            tracing::warn!(invocation = %id, %error, "an end could not be recorded");
        }
    }
}

/// Returns the mode in which content is delivered: a client that does not say that it understands
/// rewinds gets only final content.
pub(super) fn mode_of(invocation: &Invocation) -> RewindMode {
    invocation
        .overrides
        .rewind_mode
        .unwrap_or(RewindMode::Atomic)
}

/// Returns the same, of a recorded invocation.
pub(super) fn mode_of_record(record: &Record) -> RewindMode {
    record
        .request
        .as_ref()
        .and_then(|request| request.overrides.rewind_mode)
        .unwrap_or(RewindMode::Atomic)
}
