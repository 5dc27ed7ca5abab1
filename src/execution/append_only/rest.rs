//! The rest of an answer whose restarts say something else: how it is requested, and how both parts
//! become one outcome.
//!
//! Some models continue an assistant's turn that is given to them begun. Where the route has a
//! target that can, the text that was sent is given back and the rest is requested, within the same
//! deadline: the reader then holds one text, begun by one model and ended by another. Only plain
//! text is ever continued: a tool call or an answer of a given shape that two models wrote half
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

/// The request for what follows `sent`; `None` where no target of the route can continue it.
pub(super) fn request(incoming: &InvocationContext, sent: &str) -> Option<InvocationContext> {
    let Call::Model(call) = &incoming.invocation.call else {
        return None;
    };
    let is_plain = call.tools.is_empty() && call.response_format == ResponseFormat::Text;
    // A turn that ends in white space is refused by most servers, and cannot be ended otherwise.
    if !is_plain || sent.is_empty() || sent.ends_with(char::is_whitespace) {
        return None;
    }
    let mut request = incoming.clone();
    let plan = Arc::make_mut(&mut request.plan);
    plan.targets
        .retain(|target: &Arc<Target>| target.capabilities.assistant_prefill);
    plan.retry = plan.retry.clone().with_max_retries(0);
    if plan.targets.is_empty() {
        return None;
    }
    let invocation = Arc::make_mut(&mut request.invocation);
    invocation.id = InvocationId::mint();
    // The key belongs to the whole answer, not to its rest.
    invocation.request_id = None;
    if let Call::Model(call) = &mut invocation.call {
        Arc::make_mut(call)
            .messages
            .push(Message::text(Role::Assistant, sent));
    }
    (request.before, request.append_only) = (PreviousRun::default(), AppendOnly::default());
    Some(request)
}

/// The number of an outcome's last attempt.
pub(super) fn last_attempt(outcome: &Outcome) -> u32 {
    outcome.attempts.last().map_or(0, |record| record.number)
}

/// A step of the rest as one of the whole, of which there were so many attempts before.
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
        | StreamStep::Usage { attempt, .. } => *attempt += earlier,
        StreamStep::BlockStart { .. }
        | StreamStep::BlockDelta { .. }
        | StreamStep::BlockStop { .. }
        | StreamStep::Terminal(_) => {}
    }
    step
}

/// One outcome of an answer's beginning and of its rest; both together say `text`.
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

/// The answer with this text in place of the text of its rest.
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
        | AttemptCause::Chunk(_) => cause,
    }
}
