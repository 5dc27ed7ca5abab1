//! The task that owns one invocation: it drives the engine, emits and records its steps, and ends
//! it once.
//!
//! The end is published only when it is recorded, in one piece with the last steps and the thread's
//! change, so that no follower sees an end that a crash could undo. A failing journal ends no
//! invocation that does not need it.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    ExecutionShared,
    abandoned::{CLIENT_GONE, is_abandoned},
    checkpoint::ThreadCheckpoint,
    delivery_filter::DeliveryFilter,
    driver::Driver,
    live::Execution,
    recorder::{StepRecorder, WriteResult},
    upstream::UpstreamHandleRecorder,
};
use crate::{
    domain::{
        clock,
        failure::{Failure, FailureClass},
        fold::{Block, StreamStep},
        ids::InvocationId,
        invocation::{HistoryPatch, Outcome},
    },
    journal::{
        AppendError, Entry, Finish, FinishError, Journal, JournalError, JournalMode, ThreadEnd,
        ThreadError,
    },
    layers::StepStream,
};

/// Time that an end waits for an unavailable journal before it is published without a record.
const UNRECORDED_AFTER: Duration = Duration::from_millis(500);

/// Time that an end that must be recorded waits for an unavailable journal.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3);

/// Time for which the record of an end that is already published is retried.
const RECORD_WITHIN: Duration = Duration::from_mins(1);

const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// One invocation as this replica executes it.
pub(super) struct Run {
    pub(super) shared: Arc<ExecutionShared>,
    pub(super) execution: Arc<Execution>,
    pub(super) steps: StepStream,
    pub(super) filter: DeliveryFilter,
    pub(super) recorder: StepRecorder,
    pub(super) turn: Option<ThreadCheckpoint>,
    /// If set, no target is called, so that its end, a failure, may be published without a record.
    pub(super) calls_no_target: bool,
    /// Time for which it continues without a follower.
    pub(super) grace: Duration,
}

/// Takes the invocation off the list of running ones, whatever happens.
struct Listed {
    shared: Arc<ExecutionShared>,
    execution: Arc<Execution>,
}

/// State of an invocation in a thread before its end, for another end in its place.
struct UnendedRun {
    /// Its steps that are not written yet.
    entries: Vec<Entry>,
    /// Result of all its steps.
    blocks: Vec<Block>,
    /// The number of its next step.
    seq: u64,
}

/// The result of writing the end.
enum Written {
    Done,
    Lost,
    /// It can never be written.
    Never,
    /// The journal is unavailable.
    Unavailable,
    /// The thread cannot take the turn.
    Refused(ThreadError),
}

impl Drop for Listed {
    fn drop(&mut self) {
        // Followers that still wait here read the journal from now on.
        self.shared.fence(&self.execution);
    }
}

// === impl Run ===

impl Run {
    /// Lists the invocation as running here; it proceeds as the driver is polled.
    pub(super) fn begin(self) -> Driver {
        let shared = Arc::clone(&self.shared);
        let listed = Listed {
            shared: Arc::clone(&shared),
            execution: Arc::clone(&self.execution),
        };
        shared
            .running()
            .insert(self.execution.id.clone(), Arc::clone(&self.execution));
        Driver::new(shared, async move {
            let _listed = listed;
            self.run().await;
        })
    }

    async fn run(mut self) {
        let execution = Arc::clone(&self.execution);
        let abandoned = execution.abandoned(self.grace);
        tokio::pin!(abandoned);
        let mut left = false;
        let fenced = execution.fenced();
        tokio::pin!(fenced);
        let mut handles =
            UpstreamHandleRecorder::new(Arc::clone(&self.shared), Arc::clone(&execution));
        let queue = Arc::clone(&self.shared.journal_use.queue);
        let outcome = loop {
            let has_room = self.recorder.has_room();
            tokio::select! {
                biased;
                () = &mut fenced => break None,
                () = &mut abandoned, if !left => {
                    left = true;
                    execution.links.cancel.cancel(CLIENT_GONE);
                }
                written = self.recorder.turn() => match written {
                    WriteResult::GoOn => {}
                    WriteResult::Full => self.filter.tighten(),
                    WriteResult::Lost => return,
                },
                written = handles.turn() => if written == WriteResult::Lost { return },
                () = queue.room(), if !has_room => {}
                step = self.steps.next(), if has_room => {
                    execution.replay.note_activity();
                    match step {
                        Some(StreamStep::Terminal(outcome)) => break Some(outcome),
                        Some(step) => for step in self.filter.pass(step) { self.recorder.take(step); },
                        None => break Some(Arc::new(self.cut())),
                    }
                }
            }
        };
        // A write that it still waits for would keep the end from being recorded.
        drop(handles);
        match outcome {
            Some(outcome) => self.end(outcome).await,
            None => self.leave().await,
        }
    }

    /// Writes what followers have seen and the journal has not, if this replica ends: who continues
    /// the invocation continues behind that.
    async fn leave(mut self) {
        if !self.shared.tasks.are_closing() || self.recorder.writes_nothing() {
            return;
        }
        let Ok(rest) = self.recorder.rest().await else {
            return;
        };
        if rest.is_empty() {
            return;
        }
        let written = self.shared.journal.append(&self.execution.id, &rest).await;
        if let Err(error) = written {
            tracing::debug!(invocation = %self.execution.id, %error, "the last steps could not be written");
        }
    }

    /// Records the end and publishes it.
    async fn end(mut self, outcome: Arc<Outcome>) {
        let ended = Instant::now();
        let Ok(mut entries) = self.recorder.rest().await else {
            return;
        };
        let unended = self.turn.is_some().then(|| UnendedRun {
            seq: self.recorder.next_seq(),
            blocks: self.execution.replay.blocks_with(&entries),
            entries: entries.clone(),
        });
        let last = self.filter.pass(StreamStep::Terminal(Arc::clone(&outcome)));
        entries.extend(last.into_iter().map(|step| self.recorder.number(step)));
        self.execution.mark_ending();
        if !self.execution.commitments.is_recorded {
            self.execution.replay.publish(entries);
            return;
        }
        let thread = self.turn.as_ref().and_then(|turn| turn.end(&outcome));
        let strict = self.shared.settings.mode == JournalMode::Strict;
        let needs_record = !self.calls_no_target && (thread.is_some() || strict);
        let snapshot = self.execution.replay.blocks_with(&entries);
        let finish = self.finish(entries, Arc::clone(&outcome), snapshot, thread);
        match self.write_and_publish(finish, ended, needs_record).await {
            Written::Done | Written::Lost => {}
            Written::Never | Written::Unavailable if self.turn.is_none() && !needs_record => {}
            Written::Never | Written::Unavailable => {
                let words = "the end could not be recorded";
                // If the journal is back by then, the thread records the failure.
                self.end_unsaved(&outcome, words, Some(ThreadEnd::Fail), unended)
                    .await;
            }
            Written::Refused(error) => {
                let thread = match &error {
                    ThreadError::NotLocked { .. } => None,
                    ThreadError::Version { .. }
                    | ThreadError::Busy { .. }
                    | ThreadError::Store(_) => Some(ThreadEnd::Fail),
                };
                self.end_unsaved(&outcome, &error.to_string(), thread, unended)
                    .await;
            }
        }
    }

    /// Ends it with a failure instead, because the turn or the end could not be saved: nothing is
    /// half written.
    async fn end_unsaved(
        &mut self,
        outcome: &Outcome,
        words: &str,
        thread: Option<ThreadEnd>,
        unended: Option<UnendedRun>,
    ) {
        // Without a turn nothing is published in `strict` that is not recorded: followers get an
        // error that says to resume.
        let Some(UnendedRun {
            mut entries,
            blocks,
            seq,
        }) = unended
        else {
            return;
        };
        let failed = Arc::new(unsaved(outcome, words));
        self.recorder.renumber_from(seq);
        entries.push(
            self.recorder
                .number(StreamStep::Terminal(Arc::clone(&failed))),
        );
        let finish = self.finish(entries, failed, blocks, thread);
        let entries = finish.entries.clone();
        match self.write_and_publish(finish, Instant::now(), false).await {
            Written::Done | Written::Lost | Written::Unavailable => {}
            Written::Never | Written::Refused(_) => self.execution.replay.publish(entries),
        }
    }

    /// Writes the end, and retries while the journal is unavailable; publishes it once it is
    /// written, or, unless it needs its record, when that takes too long.
    async fn write_and_publish(
        &mut self,
        finish: Finish,
        ended: Instant,
        needs_record: bool,
    ) -> Written {
        let began = Instant::now();
        let mut published = false;
        loop {
            let mut writing = self.write(finish.clone(), ended);
            let written = if needs_record || published {
                writing.await
            } else if let Ok(written) = timeout_at(began + UNRECORDED_AFTER, &mut writing).await {
                written
            } else {
                self.execution.replay.publish(finish.entries.clone());
                published = true;
                writing.await
            };
            match written {
                Written::Unavailable => {}
                Written::Done => {
                    if !published {
                        self.execution.replay.publish(finish.entries);
                    }
                    return Written::Done;
                }
                Written::Never if !needs_record && !published => {
                    self.execution.replay.publish(finish.entries);
                    return Written::Never;
                }
                other => return other,
            }
            if !needs_record
                && !published
                && (self.shared.journal_is_away() || began.elapsed() >= UNRECORDED_AFTER)
            {
                tracing::debug!(invocation = %self.execution.id, "the journal is unavailable; an end is published without a record");
                self.execution.replay.publish(finish.entries.clone());
                published = true;
            }
            if began.elapsed()
                >= if needs_record {
                    GIVE_UP_AFTER
                } else {
                    RECORD_WITHIN
                }
            {
                return Written::Unavailable;
            }
            tokio::select! {
                () = self.execution.fenced() => return Written::Lost,
                () = sleep(RETRY_INTERVAL) => {}
            }
        }
    }

    /// Writes the end, with the time since then. The future borrows nothing of this, so that it may
    /// move between threads.
    fn write(&self, mut finish: Finish, ended: Instant) -> BoxFuture<'static, Written> {
        let shared = Arc::clone(&self.shared);
        let execution = Arc::clone(&self.execution);
        if self.recorder.writes_nothing() {
            // Its steps have gaps in the journal; its end has none.
            finish.entries.clear();
        }
        Box::pin(async move {
            let abandoned = is_abandoned(&finish.outcome);
            let finish = Finish {
                ended_before: ended.elapsed(),
                ..finish
            };
            let id = &execution.id;
            match shared.journal.finish(finish, clock::wall_now()).await {
                Ok(()) => {
                    if abandoned
                        && let Err(error) = free_unless_kept(shared.journal.as_ref(), id).await
                    {
                        tracing::debug!(invocation = %id, %error, "a request id stays bound to an abandoned invocation");
                    }
                    Written::Done
                }
                Err(FinishError::Append(AppendError::Fenced { .. } | AppendError::Finished)) => {
                    Written::Lost
                }
                Err(FinishError::Append(AppendError::Unknown))
                    if !shared.continues_without_record(&execution) =>
                {
                    Written::Lost
                }
                Err(
                    FinishError::Append(AppendError::Store(JournalError::Unavailable(_)))
                    | FinishError::Thread(ThreadError::Store(JournalError::Unavailable(_))),
                ) => Written::Unavailable,
                Err(FinishError::Append(error)) => {
                    tracing::error!(invocation = %id, %error, "an end cannot be recorded");
                    Written::Never
                }
                Err(FinishError::Thread(error)) => Written::Refused(error),
            }
        })
    }

    fn finish(
        &self,
        entries: Vec<Entry>,
        outcome: Arc<Outcome>,
        snapshot: Vec<Block>,
        thread: Option<ThreadEnd>,
    ) -> Finish {
        let id = self.execution.id.clone();
        let epoch = self.execution.epoch;
        let ended_before = Duration::ZERO;
        Finish {
            id,
            epoch,
            entries,
            outcome,
            snapshot,
            thread,
            ended_before,
        }
    }

    /// Returns the end of a stack that ended without one, which would be a defect.
    fn cut(&self) -> Outcome {
        let failure = Failure::local(
            FailureClass::State,
            "the invocation ended without an outcome",
        );
        failed(&self.execution.id, failure, "It ended without an outcome.")
    }
}

/// Returns an outcome that is nothing but a failure.
pub(super) fn failed(
    id: &crate::domain::ids::InvocationId,
    failure: Failure,
    reasoning: &str,
) -> Outcome {
    Outcome {
        invocation: id.clone(),
        operation: None,
        result: Err(failure),
        attempts: Vec::new(),
        recovery_applied: Vec::new(),
        reasoning: reasoning.to_owned(),
        alternatives: Vec::new(),
        usage: crate::domain::completion::Usage::default(),
        history_patch: HistoryPatch::default(),
        target: None,
        stopped_by: None,
    }
}

/// Returns the same attempts, but the turn was not saved.
fn unsaved(outcome: &Outcome, words: &str) -> Outcome {
    let mut failure = Failure::local(
        FailureClass::State,
        format!("the conversation could not be saved: {words}"),
    );
    "The conversation could not be saved, so this turn does not count. Please try again."
        .clone_into(&mut failure.user_message);
    "Look at the journal's store; nothing was half-written.".clone_into(&mut failure.recovery_hint);
    failure.target.clone_from(&outcome.target);
    Outcome {
        result: Err(failure),
        reasoning: "The answer could not be saved to its thread.".to_owned(),
        history_patch: HistoryPatch::default(),
        ..outcome.clone()
    }
}

/// Frees the request id of an abandoned invocation if the journal does not keep the outcome by
/// which a repeated request would know that; if it is kept, the invocation can still be looked up
/// by the id.
async fn free_unless_kept(journal: &dyn Journal, id: &InvocationId) -> Result<(), JournalError> {
    match journal.get(id).await? {
        Some(record) if record.outcome.is_none() => journal.free_request(id).await,
        Some(_) | None => Ok(()),
    }
}
