//! The rest of a completion whose restarts say something else: the way it is requested, and the way
//! both parts become one outcome.
//!
//! Some models continue an assistant's turn that is given to them started. If the route has a
//! target that can, the text that was sent is given back and the rest is requested, within the same
//! deadline: the reader then holds one text, started by one model and ended by another. Only plain
//! text is ever continued: a tool call or a completion of a given shape that two models wrote half
//! each would be worse than none.

use std::sync::Arc;

use crate::{
    domain::{
        completion::Completion,
        failure::FailureClass,
        fold::StreamStep,
        ids::InvocationId,
        invocation::{AttemptCause, Call, HistoryPatch, Outcome, RecoveryStrategy},
        message::{Message, Part, ResponseFormat, Role},
        target::Target,
    },
    layers::{
        append_only::AppendOnly,
        invocation::{InvocationContext, PreviousRun},
    },
};

/// Returns whether the rest of a text may be requested: the caller asked for plain text, and a
/// target of the route can continue one.
pub(super) fn may_be_requested(incoming: &InvocationContext) -> bool {
    let Call::Model(call) = &incoming.invocation.call else {
        return false;
    };
    call.tools.is_empty()
        && call.response_format == ResponseFormat::Text
        && incoming.plan.targets.iter().any(can_continue)
}

fn can_continue(target: &Arc<Target>) -> bool {
    target.capabilities.assistant_prefill
}

/// Returns the request for what follows `sent`, one call; `None` if no target of the route can
/// continue it.
pub(super) fn request(incoming: &InvocationContext, sent: &str) -> Option<InvocationContext> {
    // A turn that ends in white space is refused by most servers, and cannot be ended otherwise.
    if !may_be_requested(incoming) || sent.is_empty() || sent.ends_with(char::is_whitespace) {
        return None;
    }
    let mut request = incoming.clone();
    let plan = Arc::make_mut(&mut request.plan);
    plan.targets.retain(can_continue);
    plan.retry = plan.retry.clone().with_max_retries(0);
    let invocation = Arc::make_mut(&mut request.invocation);
    invocation.id = InvocationId::mint();
    // The key belongs to the whole completion, not to its rest.
    invocation.request_id = None;
    if let Call::Model(call) = &mut invocation.call {
        Arc::make_mut(call)
            .messages
            .push(Message::text(Role::Assistant, sent));
    }
    (request.before, request.append_only) = (PreviousRun::default(), AppendOnly::default());
    Some(request)
}

/// Returns the number of an outcome's last attempt.
pub(super) fn last_attempt(outcome: &Outcome) -> u32 {
    outcome.attempts.last().map_or(0, |record| record.number)
}

/// Returns a step of the rest as one of the whole, of which there were so many attempts before.
pub(super) fn renumbered(mut step: StreamStep, earlier: u32) -> StreamStep {
    match &mut step {
        StreamStep::AttemptStarted {
            attempt,
            cause,
            repaired,
            ..
        } => {
            *attempt += earlier;
            if earlier > 0 {
                *cause = cause_of_the_rest(*cause);
                *repaired = None;
            }
        }
        StreamStep::ContextInjected { attempt, .. }
        | StreamStep::Recovery { attempt, .. }
        | StreamStep::Parked { attempt, .. }
        | StreamStep::Rewind { attempt, .. }
        | StreamStep::ResponseStarted { attempt, .. }
        | StreamStep::Usage { attempt, .. } => *attempt += earlier,
        StreamStep::BlockStart { .. }
        | StreamStep::BlockDelta { .. }
        | StreamStep::BlockStop { .. }
        | StreamStep::Terminal(_) => {}
    }
    step
}

/// Joins a completion's start and its rest into one outcome; both together say `text`.
pub(super) fn joined(begun: Outcome, text: String, rest: Outcome) -> Outcome {
    let earlier = last_attempt(&begun);
    let mut attempts = begun.attempts;
    for record in &mut attempts {
        record.winner = false;
    }
    attempts.extend(rest.attempts.into_iter().map(|mut record| {
        record.number += earlier;
        record.cause = cause_of_the_rest(record.cause);
        record.repaired = None;
        record
    }));
    let mut recovery_applied = begun.recovery_applied;
    for strategy in [RecoveryStrategy::Continue]
        .into_iter()
        .chain(rest.recovery_applied)
    {
        if !recovery_applied.contains(&strategy) {
            recovery_applied.push(strategy);
        }
    }
    let result = rest.result.map(|completion| saying(text, completion));
    let messages = result
        .as_ref()
        .map(|completion| vec![completion.message.clone()])
        .unwrap_or_default();
    Outcome {
        invocation: begun.invocation,
        result,
        attempts,
        recovery_applied,
        usage: begun.usage.plus(rest.usage),
        history_patch: HistoryPatch {
            replace_tail: 0,
            messages,
        },
        ..rest
    }
}

/// Returns the completion with this text in place of the text of its rest.
fn saying(text: String, mut rest: Completion) -> Completion {
    rest.message
        .parts
        .retain(|part| !matches!(part, Part::Text(_)));
    rest.message.parts.push(Part::Text(text));
    rest
}

fn cause_of_the_rest(cause: AttemptCause) -> AttemptCause {
    match cause {
        AttemptCause::Initial => AttemptCause::Continue(FailureClass::StreamInterrupted),
        AttemptCause::Retry(_)
        | AttemptCause::Fallback(_)
        | AttemptCause::Hedge
        | AttemptCause::Continue(_)
        | AttemptCause::Adapt(_)
        | AttemptCause::Extend
        | AttemptCause::Attach(_)
        | AttemptCause::Chunk(_)
        | AttemptCause::Rotate(_) => cause,
    }
}
