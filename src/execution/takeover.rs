//! Takeover: an invocation whose owner died continues here, from what was recorded of it.
//!
//! The attempt that was under way is an attempt that failed; what follows is decided as after any
//! failure, within what is left of the allowance and the deadline. Nothing that was recorded is
//! recorded again, and the old owner can write no more.

mod recovered_state;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use self::recovered_state::RecoveredState;
use super::{
    ExecutionShared, RECONNECT_GRACE,
    checkpoint::ThreadUnusable,
    launch::{Launch, PublishedBefore, mode_of_record},
    leases::Claim,
    live::LayerLinks,
};
use crate::{
    domain::{
        clock,
        failure::{Failure, FailureClass},
        ids::InvocationId,
        invocation::AttemptRecord,
        upstream::UpstreamHandle,
    },
    engine::{Arrival, InvocationRequest},
    journal::{Held, JournalError, Record, Takeover, ThreadKey},
    layers::{
        cancel::Cancel,
        invocation::{InvocationContext, PreviousRun},
        spans::EntryPoint,
    },
};

const PAGE: usize = 512;

/// Number of times an invocation whose owner died is taken over: one that kills its owners is not
/// run for ever. It is counted in the journal before it runs again.
const MAX_TAKEOVERS: u64 = 8;

impl ExecutionShared {
    /// Takes an invocation over if no replica executes it; returns whether it runs here now.
    pub(super) async fn take_over_orphan(
        self: &Arc<Self>,
        id: &InvocationId,
    ) -> Result<bool, JournalError> {
        let Some(record) = self.journal.get(id).await? else {
            return Ok(false);
        };
        if record.is_released()
            || record.is_orphaned(clock::wall_now()) && self.leases.may_take_over()
        {
            self.take_over(
                &Held {
                    id: record.id,
                    epoch: record.epoch,
                },
                true,
            )
            .await?;
        }
        Ok(self.execution(id).is_some())
    }

    /// Looks after an invocation that has no owner and that no caller has resumed since: one that
    /// was to continue without its caller is taken over; another one waits for its caller, and ends
    /// if it `waited_in_vain`.
    pub(super) async fn look_after(
        self: &Arc<Self>,
        orphan: &Held,
        waited_in_vain: bool,
    ) -> Result<(), JournalError> {
        let Some(record) = self.journal.get(&orphan.id).await? else {
            return Ok(());
        };
        let goes_on = record
            .request
            .as_ref()
            .is_none_or(|request| request.overrides.resumable_grace.is_some());
        let is_over = record.cancel_requested || record.deadline_at <= clock::wall_now();
        if goes_on || is_over {
            self.take_over(orphan, true).await
        } else if waited_in_vain {
            self.take_over(orphan, false).await
        } else {
            Ok(())
        }
    }

    /// Takes an invocation over, unless its owner lives or another replica was faster. Unless it
    /// `is_wanted`, it is ended.
    async fn take_over(
        self: &Arc<Self>,
        expected: &Held,
        is_wanted: bool,
    ) -> Result<(), JournalError> {
        if self.tasks.are_closing() {
            return Ok(());
        }
        match self
            .journal
            .take_over(expected, &self.settings.owner, clock::wall_now())
            .await?
        {
            Takeover::Taken(record) => self.run_recovered(*record, is_wanted).await,
            Takeover::Lost { .. }
            | Takeover::Alive { .. }
            | Takeover::Finished
            | Takeover::Unknown => Ok(()),
        }
    }

    async fn run_recovered(
        self: &Arc<Self>,
        record: Record,
        is_wanted: bool,
    ) -> Result<(), JournalError> {
        tracing::info!(invocation = %record.id, epoch = record.epoch, "an invocation is taken over");
        // Its lease is good while it waits for room.
        let _claim = Claim::new(
            Arc::clone(self),
            Held {
                id: record.id.clone(),
                epoch: record.epoch,
            },
        );
        let mut left = self.load(&record).await?;
        let id = record.id.clone();
        let epoch = record.epoch;
        let last = left.last_seq.max(record.last_seq);
        if let Some(failure) = not_run_again(&record, is_wanted) {
            self.end_abandoned(&record, last, failure, left.attempts)
                .await;
            return Ok(());
        }
        let prepared = self.prepare_again(&record, last, &left).await;
        let Some(mut incoming) = prepared else {
            return Ok(());
        };
        let turn = match &record.thread {
            None => None,
            Some(thread) => {
                let key = ThreadKey::new(record.tenant.clone(), thread.clone());
                match self.load_turn(&key, &mut incoming.invocation, &[]).await {
                    Ok(turn) => Some(turn),
                    Err(ThreadUnusable::Busy(running)) => {
                        let words = format!(
                            "invocation {running} took the thread while no replica executed this one"
                        );
                        let failure = Failure::local(FailureClass::State, words);
                        self.end_abandoned(&record, last, failure, left.attempts)
                            .await;
                        return Ok(());
                    }
                    Err(ThreadUnusable::OtherRoute) => return Ok(()),
                    Err(ThreadUnusable::Load(error)) => return Err(error),
                }
            }
        };
        incoming.cancel = Cancel::default();
        incoming.background = self.leases.background();
        let links = LayerLinks::of(&incoming);
        let blocks = left.fold.blocks().to_vec();
        let attempts = u32::try_from(left.attempts.len()).unwrap_or(u32::MAX);
        let upstream = self.response_to_read_on(&record, &mut left, &incoming);
        incoming.before = PreviousRun {
            was_owned: true,
            attempts: left.attempts,
            blocks: blocks.clone(),
            last_block: left.last_block,
            upstream,
        };
        let invocation = Arc::clone(&incoming.invocation);
        let grace = invocation
            .overrides
            .resumable_grace
            .unwrap_or_default()
            .max(RECONNECT_GRACE);
        let steps = match self.run_engine(incoming, &blocks).await {
            Ok(steps) => steps,
            Err(refused) => {
                // There is no room here now; another replica, or this one later, takes it.
                tracing::warn!(invocation = %id, reason = refused.message, "a taken-over invocation is left again");
                let held = [Held { id, epoch }];
                return self.journal.release(&self.settings.owner, &held).await;
            }
        };
        let run = self.launch(Launch {
            mode: mode_of_record(&record),
            before: PublishedBefore {
                last,
                attempts,
                blocks,
            },
            turn,
            grace,
            ..Launch::new(&invocation, epoch, links, steps)
        });
        // No caller waits for it here: it is a task from its beginning.
        drop(run.begin());
        Ok(())
    }

    /// Prepares the invocation to run again, with its old id and deadline; if it cannot, it is
    /// ended.
    async fn prepare_again(
        &self,
        record: &Record,
        last: u64,
        left: &RecoveredState,
    ) -> Option<InvocationContext> {
        let Some(request) = request_of(record).filter(|_| !left.gone) else {
            let words = "its replica died, and its request is not kept";
            let failure = Failure::local(FailureClass::StreamInterrupted, words);
            self.end_abandoned(record, last, failure, left.attempts.clone())
                .await;
            return None;
        };
        let mut incoming = match self.engine.prepare(request).await {
            Ok(incoming) => incoming,
            Err(refusal) => {
                tracing::warn!(invocation = %record.id, ?refusal, "an invocation no longer fits the configuration");
                let words = "its replica died, and it no longer fits the configuration";
                let failure = Failure::local(FailureClass::Configuration, words);
                let attempts = left.attempts.clone();
                self.end_unrun(&record.id, record.epoch, last, failure, attempts)
                    .await;
                return None;
            }
        };
        let until = record.deadline_at.duration_since(clock::wall_now());
        let invocation = Arc::make_mut(&mut incoming.invocation);
        invocation.id = record.id.clone();
        invocation.deadline = Instant::now() + Duration::try_from(until).unwrap_or_default();
        Some(incoming)
    }

    /// Returns the response that was under way and is read on; one that cannot be is cancelled.
    fn response_to_read_on(
        &self,
        record: &Record,
        left: &mut RecoveredState,
        incoming: &InvocationContext,
    ) -> Option<UpstreamHandle> {
        let handle = record
            .upstream
            .clone()
            .filter(|handle| left.is_under_way(handle))?;
        if !left.may_be_read_on(&handle) {
            self.engine.abandon(incoming, handle);
            return None;
        }
        // Any later owner finds the same.
        incoming.background.set_findable(Some(handle.clone()));
        left.count_once(&handle);
        Some(handle)
    }

    /// Ends an invocation that no replica continues, with the response that is still being
    /// generated for it.
    async fn end_abandoned(
        &self,
        record: &Record,
        last: u64,
        failure: Failure,
        attempts: Vec<AttemptRecord>,
    ) {
        self.abandon_upstream(record);
        self.end_unrun(&record.id, record.epoch, last, failure, attempts)
            .await;
    }

    /// Cancels the response that is still being generated for an invocation that no replica
    /// continues.
    fn abandon_upstream(&self, record: &Record) {
        if let (Some(handle), Some(request)) = (record.upstream.clone(), request_of(record))
            && let Ok(incoming) = self.engine.resolve(request)
        {
            self.engine.abandon(&incoming, handle);
        }
    }

    /// Reads what was recorded.
    async fn load(&self, record: &Record) -> Result<RecoveredState, JournalError> {
        let mut left = RecoveredState::default();
        while let Some(page) = self.journal.read(&record.id, left.last_seq, PAGE).await? {
            left.gone |= page.gone;
            if page.entries.is_empty() {
                break;
            }
            for entry in page.entries {
                left.see(&entry)?;
            }
        }
        left.orphan_last();
        Ok(left)
    }
}

/// Returns the reason why an invocation that was taken over is ended instead of run again; `None`
/// if it is run.
fn not_run_again(record: &Record, is_wanted: bool) -> Option<Failure> {
    if record.cancel_requested {
        return Some(Failure::local(
            FailureClass::Cancelled,
            "cancelled while no replica executed it",
        ));
    }
    if !is_wanted {
        return Some(Failure::local(
            FailureClass::Cancelled,
            "its replica went away and its caller did not come back",
        ));
    }
    if record.deadline_at <= clock::wall_now() {
        return Some(Failure::local(
            FailureClass::Deadline,
            "the deadline passed while no replica ran it",
        ));
    }
    if record.takeovers > MAX_TAKEOVERS {
        let words = format!(
            "the replicas that ran it died {} times; it is not run again",
            record.takeovers
        );
        let mut failure = Failure::local(FailureClass::StreamInterrupted, words);
        "This call may be what ends the replicas: read their last log lines before you send it again."
            .clone_into(&mut failure.recovery_hint);
        return Some(failure);
    }
    None
}

/// Returns the request as its caller made it.
fn request_of(record: &Record) -> Option<InvocationRequest> {
    let request = record.request.clone()?;
    let arrival = Arrival::new(
        record.tenant.clone(),
        EntryPoint::Grpc("relight.v1.RecoveryService/TakeOver"),
    );
    Some(InvocationRequest {
        route: Some(record.route.clone()),
        operation: record.operation.clone(),
        request_id: record.request_id.clone(),
        thread: record.thread.clone(),
        labels: record.labels.clone(),
        overrides: request.overrides,
        ..InvocationRequest::new(arrival, request.call?)
    })
}
