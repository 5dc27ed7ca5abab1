//! Looks up invocations and threads in the journal, cancels the former and deletes the latter.
//!
//! Another tenant's invocations and threads are reported as not found, except to an administrator;
//! so are invocations on routes that a key may not use.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    auth::Identity,
    convert::{
        enums::{IntoProto as _, class_field, strategies_field, wait_fields},
        message::wire_message,
        outcome::{
            ResponseContext, attempts, completion_of, failure_of, final_model, final_target,
            history_patch, usage,
        },
        time::{millis, wire_time},
    },
    recovery::Recovery,
    stream::is_end,
    v1,
};
use crate::{
    call_error::{
        CallError,
        table::{INVOCATION_NOT_FOUND, THREAD_NOT_ALLOWED, THREAD_NOT_FOUND, THREAD_VERSION},
    },
    config::Config,
    domain::{
        clock,
        failure::FailureClass,
        fold::StreamStep,
        ids::ThreadId,
        invocation::{Outcome, RecoveryStrategy},
    },
    execution::{Cancelled, InvocationName},
    journal::{Entry, Record, RunState, Thread, ThreadError, ThreadKey},
};

/// Time for which a cancellation waits for the end that it causes.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Most recorded steps that are read to explain an invocation that runs.
const MAX_STEPS: usize = 100_000;

impl Recovery {
    /// Returns an invocation of this caller's tenant on a route that it may use, as it is kept; for
    /// one who administers, of any tenant.
    pub(super) async fn record(
        &self,
        identity: &Identity,
        name: &InvocationName,
    ) -> Result<Record, CallError> {
        let found = match name {
            InvocationName::Id(id) if identity.is_admin() => self.executions.find_of_any(id).await,
            name => self.executions.find(&identity.tenant, name).await,
        };
        found?
            .filter(|record| identity.may_use(&record.route).is_ok())
            .ok_or_else(|| {
                let name = match name {
                    InvocationName::Id(id) => id.as_str(),
                    InvocationName::Request(request) => request.as_str(),
                };
                CallError::new(INVOCATION_NOT_FOUND).fact("invocation", name)
            })
    }

    /// Explains an invocation.
    pub(super) async fn explain(
        &self,
        identity: &Identity,
        name: InvocationName,
    ) -> Result<v1::GetInvocationResponse, CallError> {
        let record = self.record(identity, &name).await?;
        let steps = self.executions.steps(&record.id, MAX_STEPS).await?;
        Ok(v1::GetInvocationResponse {
            invocation: Some(explained(&record, &steps, &self.engine.config())),
        })
    }

    /// Cancels an invocation and waits, for a while, until it has ended.
    pub(super) async fn cancel(
        &self,
        identity: &Identity,
        name: InvocationName,
        reason: &str,
    ) -> Result<v1::CancelInvocationResponse, CallError> {
        let record = self.record(identity, &name).await?;
        let id = record.id.clone();
        let words = if reason.is_empty() {
            "CancelInvocation".to_owned()
        } else {
            format!("CancelInvocation: {reason}")
        };
        let cancellation = self.executions.cancel(&id, &words).await?;
        let state = match cancellation {
            Cancelled::Unknown => {
                return Err(CallError::new(INVOCATION_NOT_FOUND).fact("invocation", id));
            }
            Cancelled::Ended => state(record.outcome.as_deref(), &record, &[]),
            Cancelled::Accepted => {
                let mut follower = self.executions.follow(&record, None).follower;
                match tokio::time::timeout(END_WITHIN, follower.outcome()).await {
                    Ok(Ok(outcome)) => state(Some(&outcome), &record, &[]),
                    // The request is recorded; the owner sees it with its next renewal.
                    Ok(Err(_)) | Err(_) => v1::InvocationState::Running,
                }
            }
        };
        let cancelled =
            cancellation == Cancelled::Accepted && state == v1::InvocationState::Cancelled;
        Ok(v1::CancelInvocationResponse {
            invocation_id: id.as_str().to_owned(),
            state: state.into(),
            cancelled,
        })
    }

    /// Reads a kept conversation.
    pub(super) async fn thread(
        &self,
        identity: &Identity,
        id: ThreadId,
    ) -> Result<v1::GetThreadResponse, CallError> {
        let key = ThreadKey::new(identity.tenant.clone(), id.clone());
        let thread = self.open_thread(identity, &key).await?;
        let error = |outcome: &Outcome| {
            let operation = outcome.operation.clone().unwrap_or_else(|| "".into());
            let disposition = v1::RequestDisposition::Unspecified;
            failure_of(
                outcome,
                &ResponseContext {
                    operation,
                    thread: Some(id.clone()),
                    disposition,
                },
            )
        };
        let wire = v1::Thread {
            thread_id: id.as_str().to_owned(),
            version: thread.version,
            messages: thread
                .messages
                .iter()
                .map(|message| wire_message(message, false))
                .collect(),
            errors: thread.errors.iter().filter_map(error).collect(),
            created_at: Some(wire_time(thread.created_at)),
            updated_at: Some(wire_time(thread.updated_at)),
            running_invocation_id: thread
                .running
                .map(|running| running.as_str().to_owned())
                .unwrap_or_default(),
        };
        Ok(v1::GetThreadResponse { thread: Some(wire) })
    }

    /// Opens a kept conversation that started on a route which the caller may use.
    async fn open_thread(&self, identity: &Identity, key: &ThreadKey) -> Result<Thread, CallError> {
        let thread = self.executions.thread(key).await?;
        let thread = thread.ok_or_else(|| missing(&key.id))?;
        if thread.is_open_to(&identity.routes) {
            Ok(thread)
        } else {
            Err(CallError::new(THREAD_NOT_ALLOWED))
        }
    }

    /// Deletes a kept conversation for good.
    pub(super) async fn forget_thread(
        &self,
        identity: &Identity,
        id: ThreadId,
        version: Option<u64>,
    ) -> Result<v1::DeleteThreadResponse, CallError> {
        let key = ThreadKey::new(identity.tenant.clone(), id.clone());
        if !identity.routes.is_empty() {
            self.open_thread(identity, &key).await?;
        }
        match self.executions.delete_thread(&key, version).await {
            Ok(true) => Ok(v1::DeleteThreadResponse {}),
            Ok(false) => Err(missing(&id)),
            Err(ThreadError::Busy { running }) => Err(CallError::thread_busy(&id, &running)),
            Err(ThreadError::Version { current }) => Err(CallError::new(THREAD_VERSION)
                .fact("threadId", id)
                .fact("version", current)),
            Err(ThreadError::NotLocked { .. }) => {
                Err(CallError::internal("a deletion required a lock"))
            }
            Err(ThreadError::Store(error)) => Err(error.into()),
        }
    }
}

fn explained(record: &Record, steps: &[Entry], config: &Config) -> v1::InvocationRecord {
    use v1::invocation_record::Outcome as End;
    let outcome = record.outcome.as_deref();
    let context = ResponseContext {
        operation: record.operation.clone(),
        thread: record.thread.clone(),
        disposition: v1::RequestDisposition::Unspecified,
    };
    let finished_at = match record.state {
        RunState::Finished { at } => Some(wire_time(at)),
        RunState::Running { .. } => None,
    };
    v1::InvocationRecord {
        invocation_id: record.id.as_str().to_owned(),
        request_id: record
            .request_id
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default(),
        route: record.route.as_str().to_owned(),
        operation: record.operation.as_str().to_owned(),
        thread_id: record
            .thread
            .as_ref()
            .map(|id| id.as_str().to_owned())
            .unwrap_or_default(),
        labels: record.labels.clone().into_iter().collect(),
        state: state(outcome, record, steps).into(),
        created_at: Some(wire_time(record.created_at)),
        finished_at,
        deadline: Some(wire_time(record.deadline_at)),
        attempts: outcome.map_or_else(|| attempts_so_far(steps, clock::wall_now()), attempts),
        decisions: decisions(steps)
            .into_iter()
            .chain(outcome.and_then(|outcome| end(outcome, finished_at)))
            .collect(),
        outcome: outcome.map(|outcome| match &outcome.result {
            Ok(completion) => End::Completion(completion_of(completion)),
            Err(_) => End::Failure(failure_of(outcome, &context).unwrap_or_default()),
        }),
        recovery_applied: outcome
            .map(|outcome| strategies_field(&outcome.recovery_applied))
            .unwrap_or_default(),
        reasoning: outcome
            .map(|outcome| outcome.reasoning.clone())
            .unwrap_or_default(),
        usage: outcome.map(|outcome| usage(&outcome.usage)),
        history_patch: outcome.map(history_patch).unwrap_or_default(),
        final_model: outcome.map(final_model).unwrap_or_default(),
        final_target: outcome.map(final_target).unwrap_or_default(),
        epoch: record.epoch,
        last_seq: record.last_seq,
        rewinds: rewinds(steps),
        cost: outcome
            .and_then(|outcome| config.cost_of(outcome))
            .map(|cost| v1::Cost {
                currency: config.currency.clone(),
                spent_micros: cost.spent_micros,
                delivered_micros: cost.delivered_micros,
            }),
    }
}

fn missing(thread: &ThreadId) -> CallError {
    CallError::new(THREAD_NOT_FOUND).fact("threadId", thread)
}

/// Returns the state of an invocation. One whose completion is not kept counts as succeeded.
pub(super) fn state(
    outcome: Option<&Outcome>,
    record: &Record,
    steps: &[Entry],
) -> v1::InvocationState {
    match outcome.map(|outcome| &outcome.result) {
        Some(Ok(_)) => v1::InvocationState::Succeeded,
        Some(Err(failure)) if failure.class == FailureClass::Cancelled => {
            v1::InvocationState::Cancelled
        }
        Some(Err(_)) => v1::InvocationState::Failed,
        None if record.is_finished() => v1::InvocationState::Succeeded,
        None => {
            let waits = steps.iter().rev().find_map(|entry| match entry.step {
                StreamStep::Recovery { .. } | StreamStep::Parked { .. } => Some(true),
                StreamStep::AttemptStarted { .. } => Some(false),
                StreamStep::ContextInjected { .. }
                | StreamStep::BlockStart { .. }
                | StreamStep::BlockDelta { .. }
                | StreamStep::BlockStop { .. }
                | StreamStep::Rewind { .. }
                | StreamStep::ResponseStarted { .. }
                | StreamStep::Usage { .. }
                | StreamStep::Terminal(_) => None,
            });
            if waits == Some(true) {
                v1::InvocationState::Waiting
            } else {
                v1::InvocationState::Running
            }
        }
    }
}

/// Returns the decision after each failed attempt, as far as its steps are kept.
fn decisions(steps: &[Entry]) -> Vec<v1::Decision> {
    let mut decisions: Vec<v1::Decision> = Vec::new();
    for entry in steps {
        match &entry.step {
            StreamStep::Recovery {
                attempt,
                class,
                strategy,
                wait,
                display,
                ..
            } => {
                let to_other = *strategy == RecoveryStrategy::Fallback;
                let (wait_ms, wait_source) = wait_fields(Some(*wait), to_other, Some(*class));
                decisions.push(v1::Decision {
                    time: Some(wire_time(entry.at)),
                    attempt: *attempt,
                    failure_class: class_field(Some(*class)),
                    strategy: strategy.into_proto().into(),
                    target: String::new(),
                    wait_ms,
                    wait_source,
                    reason: display.clone(),
                });
            }
            StreamStep::AttemptStarted { target, .. } => {
                if let Some(last) = decisions.last_mut().filter(|last| last.target.is_empty()) {
                    target.as_str().clone_into(&mut last.target);
                }
            }
            StreamStep::ContextInjected { .. }
            | StreamStep::BlockStart { .. }
            | StreamStep::BlockDelta { .. }
            | StreamStep::BlockStop { .. }
            | StreamStep::Rewind { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. }
            | StreamStep::Terminal(_) => {}
        }
    }
    decisions
}

/// Returns the rewinds, as far as the steps are kept.
fn rewinds(steps: &[Entry]) -> Vec<v1::RecordedRewind> {
    let rewind = |entry: &Entry| {
        let StreamStep::Rewind { cause, attempt, .. } = &entry.step else {
            return None;
        };
        let time = Some(wire_time(entry.at));
        let failure_class = class_field(Some(*cause));
        Some(v1::RecordedRewind {
            time,
            attempt: *attempt,
            failure_class,
        })
    };
    steps.iter().filter_map(rewind).collect()
}

/// Returns the decision after the last attempt of a call that failed: there was no other.
fn end(outcome: &Outcome, at: Option<prost_types::Timestamp>) -> Option<v1::Decision> {
    let failure = outcome
        .result
        .as_ref()
        .err()
        .filter(|failure| failure.class != FailureClass::Cancelled)?;
    let last = outcome.attempts.last()?;
    let is_impossible = outcome
        .recovery_applied
        .contains(&RecoveryStrategy::Impossible);
    let strategy = if is_impossible {
        RecoveryStrategy::Impossible
    } else {
        RecoveryStrategy::None
    };
    let class = last
        .failure
        .as_ref()
        .map_or(failure.class, |failure| failure.class);
    Some(v1::Decision {
        time: at,
        attempt: last.number,
        failure_class: class_field(Some(class)),
        strategy: strategy.into_proto().into(),
        reason: outcome.reasoning.clone(),
        ..v1::Decision::default()
    })
}

/// Returns the attempts of an invocation that has not ended, as far as its steps show them, and how
/// long they took until `now`.
fn attempts_so_far(steps: &[Entry], now: Timestamp) -> Vec<v1::Attempt> {
    let mut attempts: Vec<v1::Attempt> = Vec::new();
    let mut starts = Vec::new();
    // A clock that was set back in between gives no negative time.
    let took = |from: Timestamp, to: Timestamp| {
        millis(Duration::try_from(to.duration_since(from)).unwrap_or_default())
    };
    for entry in steps.iter().filter(|entry| !is_end(&entry.step)) {
        if let StreamStep::AttemptStarted {
            attempt,
            target,
            cause,
            model,
            ..
        } = &entry.step
        {
            attempts.push(v1::Attempt {
                number: *attempt,
                target: target.as_str().to_owned(),
                model: model.clone(),
                cause: cause.into_proto().into(),
                state: v1::AttemptState::Running.into(),
                started_at: Some(wire_time(entry.at)),
                duration_ms: took(entry.at, now),
                sent: true,
                ..v1::Attempt::default()
            });
            starts.push(entry.at);
        }
        if let StreamStep::Recovery { attempt, class, .. } = &entry.step
            && let Some((failed, start)) = attempts
                .iter_mut()
                .zip(&starts)
                .find(|(known, _)| known.number == *attempt)
        {
            failed.state = v1::AttemptState::Failed.into();
            failed.failure_class = class_field(Some(*class));
            failed.duration_ms = took(*start, entry.at);
        }
    }
    attempts
}
