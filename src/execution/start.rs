//! How an invocation starts: as a new one, by joining the same one that runs, or by replaying its
//! end.

use std::{sync::Arc, time::Duration};

use futures_util::stream;
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use super::{
    ExecutionShared, Executions,
    checkpoint::{LOAD_AGAIN_AFTER, ThreadUnusable},
    driver::Driver,
    follower::Follower,
    launch::{Launch, mode_of, mode_of_record},
    live::{Commitments, LayerLinks},
    run::failed,
};
use crate::{
    call_error::{
        CallError,
        table::{ANSWER_NOT_KEPT, DRAINING, REQUEST_ID_REUSED, THREAD_NOT_ALLOWED},
    },
    domain::{
        clock,
        failure::{Failure, FailureClass},
        fold::StreamStep,
        ids::{InvocationId, RequestId, RouteName},
        invocation::{Invocation, RewindMode},
    },
    journal::{
        BeginResult, Fingerprint, JournalError, NewInvocation, Record, RecordedRequest, ThreadKey,
    },
    layers::invocation::InvocationContext,
};

/// Time that an invocation that needs no record waits for it to start.
const RECORD_WITHIN: Duration = Duration::from_millis(300);

/// Relation of an invocation to an earlier one with the same request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It is new.
    New,
    /// It joined the one that was running.
    Attached,
    /// Its end is replayed; no target was called.
    Replay,
}

/// An invocation that runs or has ended.
#[derive(Debug)]
pub struct Started {
    /// Id of the invocation.
    pub id: InvocationId,
    /// On which route.
    pub route: RouteName,
    /// Relation to an earlier one.
    pub disposition: Disposition,
    /// Time at which it ends at the latest.
    pub deadline_at: Timestamp,
    /// The epoch of its owner.
    pub epoch: u64,
    /// Mode in which content is delivered.
    pub mode: RewindMode,
    /// Time for which its events are kept after its end; zero: they are not.
    pub events_kept: Duration,
    /// Its steps.
    pub follower: Follower,
}

// === impl Started ===

impl Started {
    /// Makes the caller of a unary RPC drive its run; any other run is a task, whether it has
    /// followers or not.
    fn drives(&mut self, run: Driver, invocation: &Invocation) {
        if !invocation.is_streamed() && invocation.overrides.resumable_grace.is_none() {
            self.follower.drives(run);
        }
    }
}

// === impl Executions ===

impl Executions {
    /// Starts an invocation, unless its request id says that it started before.
    ///
    /// # Errors
    /// Returns an error if it is not taken; then no target was called.
    pub async fn start(&self, mut incoming: InvocationContext) -> Result<Started, CallError> {
        let shared = &self.shared;
        shared.recall_attempts(&mut incoming).await;
        if shared.tasks.are_closing() {
            return Err(CallError::new(DRAINING));
        }
        // It is compared only if a request id is used again, or a stream is resumed.
        let is_compared = incoming.invocation.is_promised();
        let fingerprint = if is_compared {
            Fingerprint::of(&incoming.invocation)
        } else {
            Fingerprint::default()
        };
        let thread = incoming.invocation.thread.clone();
        let thread =
            thread.map(|thread| ThreadKey::new(incoming.invocation.tenant.clone(), thread));
        if let Some(request) = &incoming.invocation.request_id {
            let earlier = shared.earlier(&incoming.invocation.tenant, request, &fingerprint);
            match Box::pin(earlier).await {
                Ok(None) => {}
                Ok(Some(record)) => return shared.known(&record, &fingerprint),
                // A thread that cannot be loaded is an outcome, which is published below.
                Err(_) if thread.is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        match thread {
            // Boxed, so that a call without a thread does not carry its room.
            Some(key) => Box::pin(shared.start_on_thread(incoming, fingerprint, &key)).await,
            None => shared.start_alone(incoming, fingerprint).await,
        }
    }
}

// === impl ExecutionShared ===

impl ExecutionShared {
    async fn start_alone(
        self: &Arc<Self>,
        mut incoming: InvocationContext,
        fingerprint: Fingerprint,
    ) -> Result<Started, CallError> {
        incoming.background = self.leases.background();
        let invocation = Arc::clone(&incoming.invocation);
        let links = LayerLinks::of(&incoming);
        // No target is called before the steps are polled, so that a refusal leaves no record.
        let steps = self
            .run_engine(incoming, &[])
            .await
            .map_err(|refused| shed(&refused))?;
        let is_promised = invocation.is_promised();
        let begun = self.journal.begin(
            self.new_invocation(&invocation, fingerprint),
            clock::wall_now(),
        );
        // One that needs no record waits for it for a moment only.
        let begun = if is_promised {
            Ok(begun.await)
        } else {
            timeout(RECORD_WITHIN, begun).await
        };
        let (epoch, is_recorded) = match begun {
            Ok(Ok(BeginResult::New { epoch })) => (epoch, true),
            Ok(Ok(other)) => {
                links.cancel.cannot_begin(begun_already(&other));
                return Box::pin(self.begun_before(other, &invocation)).await;
            }
            Ok(Err(error)) if is_promised => {
                links.cancel.cannot_begin(unrecorded(&error));
                return Err(error.into());
            }
            Ok(Err(_)) | Err(_) => {
                tracing::debug!(invocation = %invocation.id, "an invocation runs without a record");
                self.journal_use.runs_unrecorded();
                (1, false)
            }
        };
        let launch = Launch {
            commitments: Commitments {
                is_recorded,
                is_promised,
            },
            ..Launch::new(&invocation, epoch, links, steps)
        };
        Ok(self.started(&invocation, launch))
    }

    async fn start_on_thread(
        self: &Arc<Self>,
        mut incoming: InvocationContext,
        fingerprint: Fingerprint,
        key: &ThreadKey,
    ) -> Result<Started, CallError> {
        let in_line = match self.wait_in_line(key, incoming.invocation.deadline).await {
            Err(busy) => {
                return self
                    .same_request(&incoming.invocation, &fingerprint)
                    .await
                    .unwrap_or(Err(busy));
            }
            Ok(in_line) => in_line,
        };
        let id = incoming.invocation.id.clone();
        let epoch = match self
            .begin_on_thread(&incoming.invocation, &fingerprint)
            .await
        {
            Ok(BeginResult::New { epoch }) => epoch,
            Ok(other) => return Box::pin(self.begun_before(other, &incoming.invocation)).await,
            Err(error) => return Ok(self.not_loaded(&incoming, &error, None)),
        };
        let routes = std::mem::take(&mut incoming.caller_routes);
        let turn = match self
            .load_turn_in_line(key, epoch, &mut incoming.invocation, &routes)
            .await
        {
            Ok(turn) => turn,
            Err(ThreadUnusable::OtherRoute) => {
                let failure = Failure::local(
                    FailureClass::PermissionDenied,
                    "the thread began on another route",
                );
                self.end_unrun(&id, epoch, 0, failure, Vec::new()).await;
                return Err(CallError::new(THREAD_NOT_ALLOWED));
            }
            Err(ThreadUnusable::Busy(running)) => {
                let failure = Failure::local(
                    FailureClass::State,
                    format!("invocation {running} runs on the thread"),
                );
                self.end_unrun(&id, epoch, 0, failure, Vec::new()).await;
                return Err(CallError::thread_busy(&key.id, &running));
            }
            Err(ThreadUnusable::Load(error @ JournalError::NotKept(_))) => {
                self.end_unrun(&id, epoch, 0, unloaded(&error), Vec::new())
                    .await;
                return Err(error.into());
            }
            Err(ThreadUnusable::Load(error)) => {
                return Ok(self.not_loaded(&incoming, &error, Some(epoch)));
            }
        };
        drop(in_line);
        incoming.background = self.leases.background();
        let invocation = Arc::clone(&incoming.invocation);
        let links = LayerLinks::of(&incoming);
        let steps = match self.run_engine(incoming, &[]).await {
            Ok(steps) => steps,
            Err(refused) => {
                self.end_unrun(&id, epoch, 0, refused.clone(), Vec::new())
                    .await;
                return Err(shed(&refused));
            }
        };
        let launch = Launch {
            turn: Some(turn),
            ..Launch::new(&invocation, epoch, links, steps)
        };
        Ok(self.started(&invocation, launch))
    }

    /// Returns the same request, if it started since it was looked for.
    async fn same_request(
        self: &Arc<Self>,
        invocation: &Invocation,
        fingerprint: &Fingerprint,
    ) -> Option<Result<Started, CallError>> {
        let request = invocation.request_id.as_ref()?;
        let record = self
            .earlier(&invocation.tenant, request, fingerprint)
            .await
            .ok()??;
        Some(self.known(&record, fingerprint))
    }

    /// Begins an invocation on a thread; one failure of the journal is forgiven.
    async fn begin_on_thread(
        &self,
        invocation: &Invocation,
        of: &Fingerprint,
    ) -> Result<BeginResult, JournalError> {
        let begun = self
            .journal
            .begin(
                self.new_invocation(invocation, of.clone()),
                clock::wall_now(),
            )
            .await;
        let Err(error) = begun else { return begun };
        tracing::warn!(invocation = %invocation.id, %error, "an invocation could not begin; it is tried once more");
        sleep(LOAD_AGAIN_AFTER).await;
        // It may have begun although the journal did not say so.
        match self.journal.get(&invocation.id).await? {
            Some(record) => Ok(BeginResult::New {
                epoch: record.epoch,
            }),
            None => {
                self.journal
                    .begin(
                        self.new_invocation(invocation, of.clone()),
                        clock::wall_now(),
                    )
                    .await
            }
        }
    }

    /// Returns an invocation whose thread cannot be loaded: it has an outcome like any other, and
    /// no target is called. It is recorded at its start, in `epoch`, and published in any case.
    fn not_loaded(
        self: &Arc<Self>,
        incoming: &InvocationContext,
        error: &JournalError,
        epoch: Option<u64>,
    ) -> Started {
        let invocation = &incoming.invocation;
        let outcome = failed(
            &invocation.id,
            unloaded(error),
            "It ended before a target was called.",
        );
        let links = LayerLinks::of(incoming);
        let steps = Box::pin(stream::iter([StreamStep::Terminal(Arc::new(outcome))]));
        let launch = Launch {
            commitments: Commitments {
                is_recorded: epoch.is_some(),
                is_promised: true,
            },
            calls_no_target: true,
            grace: Duration::ZERO,
            ..Launch::new(invocation, epoch.unwrap_or(1), links, steps)
        };
        self.started(invocation, launch)
    }

    async fn begun_before(
        self: &Arc<Self>,
        begun: BeginResult,
        invocation: &Invocation,
    ) -> Result<Started, CallError> {
        match begun {
            BeginResult::Attached(record) => Ok(self.of_record(&record)),
            BeginResult::Replay(outcome) => {
                let record = self.journal.get(&outcome.invocation).await?;
                record
                    .map(|record| self.of_record(&record))
                    .ok_or_else(|| not_retained(&outcome.invocation))
            }
            BeginResult::ResultNotRetained { invocation } => Err(not_retained(&invocation)),
            BeginResult::Conflict {
                invocation: earlier,
            } => Err(reused(invocation.request_id.as_ref(), &earlier)),
            BeginResult::New { .. } => {
                Err(JournalError::Corrupt("a new invocation".to_owned()).into())
            }
        }
    }

    /// Joins or replays what the journal knows under the caller's request id.
    fn known(
        self: &Arc<Self>,
        record: &Record,
        fingerprint: &Fingerprint,
    ) -> Result<Started, CallError> {
        if record.fingerprint != *fingerprint {
            return Err(reused(record.request_id.as_ref(), &record.id));
        }
        if record.is_finished() && record.outcome.is_none() {
            return Err(not_retained(&record.id));
        }
        Ok(self.of_record(record))
    }

    /// Returns an invocation that the journal knows, from its beginning.
    pub(super) fn of_record(self: &Arc<Self>, record: &Record) -> Started {
        Started {
            disposition: if record.is_finished() {
                Disposition::Replay
            } else {
                Disposition::Attached
            },
            deadline_at: record.deadline_at,
            epoch: record.epoch,
            mode: mode_of_record(record),
            events_kept: self.settings.events_kept,
            follower: Follower::new(Arc::clone(self), record.id.clone(), None),
            id: record.id.clone(),
            route: record.route.clone(),
        }
    }

    /// Begins to run an invocation. Its first follower takes its place before, so that it misses
    /// nothing.
    fn started(self: &Arc<Self>, invocation: &Invocation, launch: Launch) -> Started {
        let run = self.launch(launch);
        let mut started = Started {
            id: invocation.id.clone(),
            route: invocation.route.clone(),
            disposition: Disposition::New,
            deadline_at: wall_deadline(invocation.deadline),
            epoch: 1,
            mode: mode_of(invocation),
            events_kept: if run.execution.commitments.is_recorded {
                self.settings.events_kept
            } else {
                Duration::ZERO
            },
            follower: Follower::of(Arc::clone(self), &run.execution),
        };
        started.drives(run.begin(), invocation);
        started
    }

    fn new_invocation(&self, invocation: &Invocation, fingerprint: Fingerprint) -> NewInvocation {
        NewInvocation {
            id: invocation.id.clone(),
            tenant: invocation.tenant.clone(),
            request_id: invocation.request_id.clone(),
            fingerprint,
            route: invocation.route.clone(),
            operation: invocation.operation.clone(),
            thread: invocation.thread.clone(),
            labels: invocation.labels.clone(),
            deadline_at: wall_deadline(invocation.deadline),
            request: RecordedRequest {
                call: Some(invocation.call.clone()),
                overrides: invocation.overrides.clone(),
            },
            owner: self.settings.owner.clone(),
        }
    }
}

/// Returns the error for a call that the engine does not take.
fn shed(refused: &Failure) -> CallError {
    CallError::from(refused).fact("subject", "invocations")
}

fn not_retained(earlier: &InvocationId) -> CallError {
    CallError::new(ANSWER_NOT_KEPT).fact("invocationId", earlier)
}

fn reused(request: Option<&RequestId>, earlier: &InvocationId) -> CallError {
    CallError::new(REQUEST_ID_REUSED)
        .fact("requestId", request.map_or("", RequestId::as_str))
        .fact("invocationId", earlier)
}

fn unloaded(error: &JournalError) -> Failure {
    let mut failure = Failure::local(
        FailureClass::Checkpoint,
        format!("the conversation could not be loaded: {error}"),
    );
    "The conversation could not be loaded. Please try again.".clone_into(&mut failure.user_message);
    "Look at the journal's store; no target was called and nothing was changed."
        .clone_into(&mut failure.recovery_hint);
    failure
}

/// Returns the reason why a call that must be recorded does not start.
fn unrecorded(error: &JournalError) -> Failure {
    let mut failure = Failure::local(
        FailureClass::State,
        format!("the call could not be recorded: {error}"),
    );
    "The call could not be recorded. Please try again.".clone_into(&mut failure.user_message);
    "Look at the journal's store; no target was called and nothing was changed."
        .clone_into(&mut failure.recovery_hint);
    failure
}

/// Returns the reason why a call does not start whose request id came to be used while it was
/// prepared.
fn begun_already(begun: &BeginResult) -> Failure {
    match begun {
        BeginResult::Attached(record) => of_same_request(&record.id),
        BeginResult::Replay(outcome) => of_same_request(&outcome.invocation),
        BeginResult::ResultNotRetained { invocation } => of_same_request(invocation),
        BeginResult::Conflict { invocation } => {
            let words =
                format!("its request id was used for another request, by invocation {invocation}");
            Failure::local(FailureClass::InvalidRequest, words)
        }
        BeginResult::New { .. } => Failure::local(FailureClass::State, "it began and was not run"),
    }
}

fn of_same_request(earlier: &InvocationId) -> Failure {
    Failure::local(
        FailureClass::Cancelled,
        format!("the same request is invocation {earlier}"),
    )
}

fn wall_deadline(deadline: Instant) -> Timestamp {
    let left = deadline.saturating_duration_since(Instant::now());
    clock::wall_now()
        .checked_add(left)
        .unwrap_or(Timestamp::MAX)
}
