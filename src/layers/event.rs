//! What can happen to one invocation or to one of its attempts, and what each of its readers gets
//! of it.
//!
//! A layer that learns something reports one `InvocationEvent`, which holds the fact once. What the
//! record of the attempt, the bus, the followers of the stream and the attempt's span get of it is
//! derived here, by one function for each of them.

use std::time::Duration;

use super::spans::AttemptTrace;
use crate::{
    domain::{
        completion::{Break, Usage},
        event::{EventBody, millis, parked_words, recovery_words},
        failure::{Failure, FailureClass, Wait},
        fold::StreamStep,
        ids::{Operation, TargetId},
        invocation::{AttemptCause, AttemptRecord, Outcome, RecoveryStrategy},
        target::Target,
        tool::ExecutedTool,
    },
    policy::release,
};

/// One thing that happened to an invocation or to one of its attempts.
#[derive(Debug, Clone)]
pub enum InvocationEvent<'a> {
    /// The invocation was taken in.
    Started {
        /// The time until its deadline.
        time_left: Duration,
        /// Attempts that it may make after the first.
        max_retries: u32,
    },
    /// It ended; followers get the outcome itself as their last step.
    Ended {
        /// Its outcome.
        outcome: &'a Outcome,
        /// How long it took.
        duration: Duration,
    },
    /// No target can be called for now, and it waits.
    Parked {
        /// Why its target cannot be called: the class that closed its gate, or `circuit_open`.
        class: FailureClass,
        /// How long at the most.
        wait: Wait,
        /// Whether it waits in a queue.
        in_line: bool,
    },
    /// The retry budget of a target is empty, so that it is not called again.
    BudgetExhausted {
        /// What is left, in tokens.
        level: f64,
        /// What the full budget holds, in tokens.
        capacity: f64,
    },
    /// It was decided what follows the failure of an attempt.
    RecoveryDecided {
        /// What the caller is doing.
        operation: &'a Operation,
        /// The class of the failure.
        class: FailureClass,
        /// The number of this recovery, and how many are allowed.
        count: (u32, u32),
        /// What will be done.
        strategy: RecoveryStrategy,
        /// The wait before it.
        wait: Wait,
        /// What was changed in the request, in words.
        adaptation: Option<&'a str>,
        /// What is done in place of a retry after a crash of Relight, in words.
        going_on: Option<&'static str>,
        /// What is left of the target's retry budget, as a share of its capacity.
        budget_left: f64,
    },
    /// The request is changed before the target of this attempt, which failed, is called again.
    RequestChanged {
        /// What is changed, in words.
        words: &'a str,
    },
    /// The attempt began.
    AttemptStarted {
        /// Why it is made.
        cause: AttemptCause,
        /// The target that is called.
        target: &'a Target,
        /// The wait before it.
        wait: Option<Wait>,
        /// What of the caller's request was repaired or left out for it, in words.
        repaired: Option<String>,
        /// The execution that it is, where a tool is called.
        tool: Option<&'a ExecutedTool>,
    },
    /// Another target was chosen for it than the one before.
    FallbackChosen {
        /// The target that was left.
        from: TargetId,
        /// The class of the failure.
        class: FailureClass,
    },
    /// It was started beside a slow one.
    HedgeStarted {
        /// The slow target.
        beside: TargetId,
        /// After how long a silence.
        after: Duration,
    },
    /// A note about the failure was added for the model.
    ContextInjected {
        /// The note.
        note: String,
        /// Where it went.
        vehicle: &'static str,
        /// The position of the first message that it is in.
        message: u32,
        /// The class of the last failure in the note.
        class: FailureClass,
    },
    /// No note could be added for the model.
    ContextInjectionSkipped {
        /// Why not.
        reason: String,
        /// The class of the last failure that no note covers.
        class: FailureClass,
    },
    /// No note for the model was needed.
    ContextInjectionNotNeeded {
        /// Why not.
        reason: &'static str,
    },
    /// Its request is sent.
    RequestSent,
    /// The provider named its own id of the request.
    RequestIdReceived {
        /// That id.
        id: &'a str,
    },
    /// Its first token came.
    FirstToken {
        /// How long after its begin.
        after: Duration,
    },
    /// The connection to its response broke, and the same response is resumed.
    ReadOn {
        /// How it broke.
        cut: Break,
    },
    /// The shape of its response was not checked, where it should have been.
    ShapeUnchecked {
        /// Why not.
        reason: &'static str,
    },
    /// Its target refused the request because of the note.
    NoteRefused,
    /// It succeeded, and its answer is kept.
    AttemptSucceeded {
        /// From its begin to its end.
        duration: Duration,
        /// What it cost.
        usage: Usage,
    },
    /// It failed.
    AttemptFailed {
        /// How.
        failure: &'a Failure,
        /// From its begin to its end.
        duration: Duration,
        /// Whether anything was sent to the target.
        sent: bool,
        /// What it cost all the same.
        usage: Usage,
    },
}

/// What was decided about an attempt before it starts; reported when it does.
#[derive(Debug, Clone, Default)]
pub struct Preparation {
    /// The wait before it.
    pub wait: Option<Wait>,
    /// What led to it.
    pub events: Vec<InvocationEvent<'static>>,
}

// === impl InvocationEvent ===

impl InvocationEvent<'_> {
    /// Writes what the record of its attempt keeps.
    pub fn write_record(&self, record: &mut AttemptRecord) {
        match self {
            Self::AttemptStarted {
                wait,
                repaired,
                tool,
                ..
            } => {
                record.wait = *wait;
                record.repaired.clone_from(repaired);
                record.tool = tool.map(|tool| Box::new(tool.clone()));
            }
            Self::ContextInjected { note, .. } => record.note = Some(note.clone()),
            Self::ContextInjectionSkipped { reason, .. } => {
                record.injection_skipped = Some(reason.clone());
            }
            Self::ContextInjectionNotNeeded { reason } => {
                record.injection_skipped = Some((*reason).to_owned());
            }
            Self::RequestSent => record.sent = true,
            Self::RequestIdReceived { id } => (*id).clone_into(&mut record.upstream_request_id),
            Self::FirstToken { after } => record.first_token = Some(*after),
            Self::ShapeUnchecked { reason } => record.unchecked = Some((*reason).to_owned()),
            Self::NoteRefused => record.note_refused = true,
            Self::RequestChanged { words } => record.adaptation = Some((*words).to_owned()),
            Self::AttemptSucceeded { duration, usage } => {
                (record.duration, record.usage) = (*duration, *usage);
                (record.sent, record.winner) = (true, true);
            }
            Self::AttemptFailed {
                failure,
                duration,
                sent,
                usage,
            } => {
                (record.duration, record.usage, record.sent) = (*duration, *usage, *sent);
                record.failure = Some((*failure).clone());
            }
            Self::Started { .. }
            | Self::Ended { .. }
            | Self::Parked { .. }
            | Self::BudgetExhausted { .. }
            | Self::RecoveryDecided { .. }
            | Self::FallbackChosen { .. }
            | Self::HedgeStarted { .. }
            | Self::ReadOn { .. } => {}
        }
    }

    /// What the bus publishes: telemetry, logs and watchers read it.
    pub fn body(&self) -> Option<EventBody> {
        Some(match self {
            Self::Started {
                time_left,
                max_retries,
            } => EventBody::InvocationStarted {
                deadline_ms: millis(*time_left),
                max_retries: *max_retries,
            },
            Self::Ended { outcome, duration } => ended(outcome, *duration),
            Self::Parked {
                class,
                wait,
                in_line,
            } => EventBody::InvocationParked {
                class: *class,
                wait_ms: millis(wait.duration),
                in_line: *in_line,
            },
            Self::BudgetExhausted { level, capacity } => EventBody::BudgetExhausted {
                level: *level,
                capacity: *capacity,
            },
            Self::RecoveryDecided {
                class,
                count,
                strategy,
                wait,
                adaptation,
                going_on,
                ..
            } => EventBody::RecoveryAttempted {
                error: class.phrase().to_owned(),
                class: *class,
                retry: count.0,
                max_retries: count.1,
                strategy: *strategy,
                wait: *wait,
                adaptation: adaptation.map(str::to_owned),
                going_on: going_on.map(str::to_owned),
            },
            Self::AttemptStarted {
                cause,
                target,
                wait,
                ..
            } => EventBody::AttemptStarted {
                cause: *cause,
                model: target.model.to_string(),
                wait: *wait,
            },
            Self::FallbackChosen { from, class } => EventBody::FallbackChosen {
                from: from.clone(),
                class: *class,
            },
            Self::HedgeStarted { beside, after } => EventBody::HedgeStarted {
                beside: beside.clone(),
                after_ms: millis(*after),
            },
            Self::ContextInjected {
                note,
                vehicle,
                class,
                ..
            } => EventBody::ContextInjected {
                vehicle: (*vehicle).to_owned(),
                class: *class,
                note_bytes: note.len() as u64,
            },
            Self::ContextInjectionSkipped { reason, class } => EventBody::ContextInjectionSkipped {
                reason: reason.clone(),
                class: *class,
            },
            Self::FirstToken { after } => EventBody::FirstToken {
                after_ms: millis(*after),
            },
            Self::ReadOn { cut } => EventBody::AttemptReadOn {
                reason: cut.words().to_owned(),
                requests: cut.requests,
            },
            Self::AttemptSucceeded { duration, usage } => EventBody::AttemptSucceeded {
                duration_ms: millis(*duration),
                usage: *usage,
            },
            Self::AttemptFailed {
                failure,
                duration,
                sent,
                usage,
            } => attempt_failed(failure, *duration, *sent, *usage),
            Self::RequestChanged { .. }
            | Self::ContextInjectionNotNeeded { .. }
            | Self::RequestSent
            | Self::RequestIdReceived { .. }
            | Self::ShapeUnchecked { .. }
            | Self::NoteRefused => return None,
        })
    }

    /// The step that followers of the stream receive.
    pub fn step(&self, attempt: u32, target: Option<&TargetId>) -> Option<StreamStep> {
        Some(match self {
            Self::Parked {
                class,
                wait,
                in_line,
            } => {
                let target = target?.clone();
                let display =
                    parked_words(target.as_str(), *class, millis(wait.duration), *in_line);
                StreamStep::Parked {
                    attempt,
                    target,
                    class: *class,
                    wait: *wait,
                    display,
                }
            }
            Self::RecoveryDecided {
                operation,
                class,
                count,
                strategy,
                wait,
                adaptation,
                going_on,
                budget_left,
            } => {
                let display = match (strategy, adaptation) {
                    (RecoveryStrategy::Chunk, Some(reason)) => {
                        format!("Splitting {operation}: {reason}")
                    }
                    _ => recovery_words(
                        operation.as_str(),
                        class.phrase(),
                        *count,
                        *adaptation,
                        *going_on,
                    ),
                };
                StreamStep::Recovery {
                    attempt,
                    class: *class,
                    strategy: *strategy,
                    wait: *wait,
                    display,
                    budget_left: *budget_left,
                    adaptation: adaptation.map(str::to_owned),
                }
            }
            Self::AttemptStarted {
                cause,
                target,
                repaired,
                ..
            } => StreamStep::AttemptStarted {
                attempt,
                target: target.id.clone(),
                cause: *cause,
                model: target.model.to_string(),
                repaired: repaired.clone(),
            },
            Self::ContextInjected {
                note,
                vehicle,
                message,
                ..
            } => StreamStep::ContextInjected {
                attempt,
                note: note.clone(),
                vehicle: (*vehicle).to_owned(),
                message: *message,
            },
            Self::Started { .. }
            | Self::Ended { .. }
            | Self::BudgetExhausted { .. }
            | Self::RequestChanged { .. }
            | Self::FallbackChosen { .. }
            | Self::HedgeStarted { .. }
            | Self::ContextInjectionSkipped { .. }
            | Self::ContextInjectionNotNeeded { .. }
            | Self::RequestSent
            | Self::RequestIdReceived { .. }
            | Self::FirstToken { .. }
            | Self::ReadOn { .. }
            | Self::ShapeUnchecked { .. }
            | Self::NoteRefused
            | Self::AttemptSucceeded { .. }
            | Self::AttemptFailed { .. } => return None,
        })
    }

    /// Writes what the span of its attempt shows; an attempt that begins opens it. What a span
    /// alone shows (why a target was chosen, waits, how it ended) is no event and is written to the
    /// span where it is known.
    pub fn write_span(&self, attempt: u32, trace: &AttemptTrace) {
        match self {
            Self::AttemptStarted { cause, .. } => trace.begin(attempt, *cause),
            Self::ContextInjected { vehicle, .. } => trace.injected(vehicle),
            _ => {}
        }
    }
}

fn attempt_failed(failure: &Failure, duration: Duration, sent: bool, usage: Usage) -> EventBody {
    EventBody::AttemptFailed {
        class: failure.class,
        detail: failure.detail,
        signature: release::signature(failure).to_owned(),
        message: failure.own_words().into_owned(),
        retryable: failure.retryable,
        retry_after: failure.retry_after,
        status: failure.status,
        duration_ms: millis(duration),
        sent,
        usage,
    }
}

fn ended(outcome: &Outcome, duration: Duration) -> EventBody {
    let duration_ms = millis(duration);
    let attempts = u32::try_from(outcome.attempts.len()).unwrap_or(u32::MAX);
    match &outcome.result {
        Ok(_) if attempts <= 1 => EventBody::InvocationSucceeded {
            duration_ms,
            usage: outcome.usage,
        },
        Ok(_) => EventBody::InvocationRecovered {
            duration_ms,
            attempts,
            strategies: outcome.recovery_applied.clone(),
            usage: outcome.usage,
            first_failure: outcome.first_failure(),
        },
        Err(failure) => EventBody::InvocationFailed {
            duration_ms,
            attempts,
            usage: outcome.usage,
            strategies: outcome.recovery_applied.clone(),
            class: failure.class,
            detail: failure.detail,
            message: failure.own_words().into_owned(),
            user_message: failure.user_message.clone(),
            recovery_hint: failure.recovery_hint.clone(),
            stopped_by: outcome.stopped_by(),
        },
    }
}
