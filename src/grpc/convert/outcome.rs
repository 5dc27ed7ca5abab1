//! The single result of an invocation as callers read it: answer or failure, every attempt, what
//! was done and spent.
//!
//! Nothing is decided here. What the domain does not record is sent as the contract's "unknown".

use super::{
    enums::{
        IntoProto as _, class_field, detail_field, skip_reason, strategies_field, wait_fields,
    },
    message::{tool_content, wire_message, wire_opaque},
    time::{millis, wait_millis, wire_time},
};
use crate::{
    domain::{
        completion::{Completion, Exactness, Usage},
        failure::{Failure, FailureClass},
        ids::{Operation, TargetId, ThreadId},
        invocation::{AttemptCause, AttemptRecord, Outcome},
        message::{Message, Part, Role},
        tool::{ToolOutput, ToolReply},
    },
    execution::Disposition,
    grpc::v1,
};

/// Longest technical message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Most alternatives that are reported.
const MAX_ALTERNATIVES: usize = 3;

/// Facts that the contract reports of an invocation beside its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseContext {
    /// Kind of work that the caller does.
    pub operation: Operation,
    /// The conversation that Relight keeps.
    pub thread: Option<ThreadId>,
    /// Disposition of the request: the invocation is new, was joined, or is replayed.
    pub disposition: v1::RequestDisposition,
}

/// Returns the response of `InvokeWithRecovery`.
#[must_use]
pub fn response(outcome: &Outcome, context: &ResponseContext) -> v1::InvokeWithRecoveryResponse {
    use v1::invoke_with_recovery_response::Outcome as End;
    v1::InvokeWithRecoveryResponse {
        invocation_id: outcome.invocation.as_str().to_owned(),
        outcome: Some(match &outcome.result {
            Ok(completion) => End::Completion(completion_of(completion)),
            Err(_) => End::Failure(failure_of(outcome, context).unwrap_or_default()),
        }),
        recovery_applied: strategies_field(&outcome.recovery_applied),
        attempts: attempts(outcome),
        usage: Some(usage(&outcome.usage)),
        history_patch: history_patch(outcome),
        history_replace_tail: history_replace_tail(outcome),
        final_model: final_model(outcome),
        final_target: final_target(outcome),
        disposition: context.disposition.into(),
        reasoning: outcome.reasoning.clone(),
    }
}

/// Returns a complete completion, or what a tool returned.
#[must_use]
pub fn completion_of(completion: &Completion) -> v1::Completion {
    let output = completion.tool_output.as_deref();
    v1::Completion {
        message: output
            .is_none()
            .then(|| wire_message(&completion.message, false)),
        text: output.map_or_else(
            || completion.message.joined_text().into_owned(),
            |output| output.reply.text(),
        ),
        finish_reason: output
            .map_or_else(
                || completion.finish.into_proto(),
                |_| v1::FinishReason::Stop,
            )
            .into(),
        raw_finish_reason: completion.finish_raw.clone(),
        usage: Some(usage(&completion.usage)),
        tool_output: output.map(tool_output),
        around: completion.around.as_ref().map(wire_opaque),
    }
}

/// Returns the failure that an invocation ended with, complete in itself; `None` when it succeeded.
#[must_use]
pub fn failure_of(outcome: &Outcome, context: &ResponseContext) -> Option<v1::Failure> {
    let failure = outcome.result.as_ref().err()?;
    let alternatives = outcome.alternatives.iter().take(MAX_ALTERNATIVES);
    Some(v1::Failure {
        failed_operation: context.operation.as_str().to_owned(),
        retries_attempted: outcome.retries(),
        invocation_id: outcome.invocation.as_str().to_owned(),
        thread_id: context
            .thread
            .as_ref()
            .map(|thread| thread.as_str().to_owned())
            .unwrap_or_default(),
        recovery_applied: strategies_field(&outcome.recovery_applied),
        reasoning: outcome.reasoning.clone(),
        alternatives: alternatives
            .map(|reason| v1::Alternative {
                reason: reason.clone(),
            })
            .collect(),
        tool_result: failure
            .tool
            .reply
            .as_deref()
            .map(|reply| v1::ToolResultPart {
                call_id: call_id(outcome).unwrap_or_default(),
                name: failure.tool.name.clone().unwrap_or_default(),
                content: reply_content(reply),
                is_error: true,
                structured_json: reply.structured.clone(),
                mcp_json: reply.beside(),
            }),
        attempts: attempts(outcome),
        stopped_by: class_field(outcome.stopped_by()),
        ..bare_failure(failure)
    })
}

/// Returns a judged failure alone, without its invocation and attempts.
fn bare_failure(failure: &Failure) -> v1::Failure {
    v1::Failure {
        failure_class: class_field(Some(failure.class)),
        detail: detail_field(failure.detail),
        code: failure.code().into_proto().into(),
        retryable: failure.retryable,
        message: bounded(&failure.message),
        user_message: failure.user_message.clone(),
        recovery_hint: failure.recovery_hint.clone(),
        retry_after_ms: failure.retry_after.map(|wait| wait_millis(wait.duration)),
        target: target_field(failure.target.as_ref()),
        timestamp: Some(wire_time(failure.at)),
        recovery_applied: strategies_field(&[]),
        ..v1::Failure::default()
    }
}

/// One attempt of an invocation that `ended`, or still runs.
#[must_use]
pub fn attempt(record: &AttemptRecord, ended: bool) -> v1::Attempt {
    let failure = record.failure.as_ref();
    let class = failure.map(|failure| failure.class);
    let to_other = matches!(record.cause, AttemptCause::Fallback(_));
    let (wait_before_ms, wait_source) = wait_fields(record.wait, to_other, record.cause.class());
    v1::Attempt {
        number: record.number,
        target: target_field(record.target.as_ref()),
        model: record.model.clone(),
        cause: record.cause.into_proto().into(),
        state: state(record, ended).into(),
        started_at: Some(wire_time(record.started_at)),
        duration_ms: millis(record.duration),
        first_token_ms: record.first_token.map(millis),
        failure_class: class_field(class),
        detail: detail_field(failure.and_then(|failure| failure.detail)),
        message: failure
            .map(|failure| bounded(&failure.message))
            .unwrap_or_default(),
        wait_before_ms,
        wait_source,
        injected_note: record.injection.note.clone().unwrap_or_default(),
        injection_skipped: record
            .injection
            .skipped
            .as_deref()
            .map(skip_reason)
            .unwrap_or_default()
            .into(),
        usage: Some(usage(&record.usage)),
        trace_id: record.ids.trace_id.clone(),
        span_id: record.ids.span_id.clone(),
        sent: record.sent,
        http_status: failure.and_then(|failure| failure.status).map(u32::from),
        upstream_request_id: record.ids.upstream_request_id.clone(),
        adaptation: record.changes().cloned().collect::<Vec<_>>().join("; "),
        unchecked: record.unchecked.clone().unwrap_or_default(),
        key: record.key.clone().unwrap_or_default(),
    }
}

/// Returns every attempt of an outcome, in order.
#[must_use]
pub fn attempts(outcome: &Outcome) -> Vec<v1::Attempt> {
    outcome
        .attempts
        .iter()
        .map(|record| attempt(record, true))
        .collect()
}

/// Returns the tokens; counts are absent if nothing is known.
#[must_use]
pub fn usage(usage: &Usage) -> v1::Usage {
    let known = |count: u64| (usage.exactness != Exactness::Unknown).then_some(count);
    v1::Usage {
        exactness: usage.exactness.into_proto().into(),
        input_tokens: known(usage.input_tokens),
        output_tokens: known(usage.output_tokens),
        cached_input_tokens: usage.cached_input_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        reasoning_tokens: usage.reasoning_tokens,
    }
}

/// Returns the messages that the caller appends to its history; after a failure, those of a tool
/// call alone. What was added, except the completion itself, is marked as written by Relight; a message
/// that replaces one of the caller's is the caller's, with a note in it.
#[must_use]
pub fn history_patch(outcome: &Outcome) -> Vec<v1::Message> {
    let completion = match &outcome.result {
        Ok(completion) => completion,
        Err(failure) => return failed_tool_call(outcome, failure),
    };
    let patch = &outcome.history_patch;
    let replaced = usize::try_from(patch.replace_tail).unwrap_or(usize::MAX);
    let by_relight = |(index, message): (usize, &Message)| {
        let added =
            index >= replaced && message.role != Role::Assistant && *message != completion.message;
        wire_message(message, added)
    };
    patch.messages.iter().enumerate().map(by_relight).collect()
}

/// Returns the result of a tool call that failed, after its call; nothing for a call of a model.
fn failed_tool_call(outcome: &Outcome, failure: &Failure) -> Vec<v1::Message> {
    let messages = &outcome.history_patch.messages;
    if messages.last().is_none_or(|last| last.role != Role::Tool) {
        return Vec::new();
    }
    let is_made_up = |message: &Message| message.role == Role::Tool && failure.tool.reply.is_none();
    let messages = messages.iter();
    messages
        .map(|message| wire_message(message, is_made_up(message)))
        .collect()
}

/// Returns the number of the caller's last messages that the patch replaces; none after a failure,
/// whose patch is empty.
#[must_use]
pub fn history_replace_tail(outcome: &Outcome) -> u32 {
    if outcome.result.is_ok() {
        outcome.history_patch.replace_tail
    } else {
        0
    }
}

/// Returns the model that succeeded, or was called last; empty when none was called.
#[must_use]
pub fn final_model(outcome: &Outcome) -> String {
    let answered = outcome
        .result
        .as_ref()
        .ok()
        .map(|completion| &completion.model);
    let context = outcome
        .attempts
        .iter()
        .rev()
        .filter(|record| record.target.is_some())
        .map(|record| &record.model);
    answered
        .into_iter()
        .chain(context)
        .find(|model| !model.is_empty())
        .cloned()
        .unwrap_or_default()
}

/// Returns the target that succeeded, or was called last; empty when none was called.
#[must_use]
pub fn final_target(outcome: &Outcome) -> String {
    let context = outcome
        .attempts
        .iter()
        .rev()
        .filter_map(|record| record.target.as_ref());
    target_field(outcome.target.as_ref().into_iter().chain(context).next())
}

fn state(record: &AttemptRecord, ended: bool) -> v1::AttemptState {
    match &record.failure {
        _ if record.winner => v1::AttemptState::Succeeded,
        Some(failure) if failure.class == FailureClass::Cancelled => v1::AttemptState::Cancelled,
        Some(_) => v1::AttemptState::Failed,
        // It neither failed nor won: the slower of a hedge, or dropped with its invocation.
        None if ended => v1::AttemptState::Cancelled,
        None => v1::AttemptState::Running,
    }
}

fn tool_output(output: &ToolOutput) -> v1::ToolOutput {
    v1::ToolOutput {
        tool: output.tool.clone(),
        content: reply_content(&output.reply),
        structured_json: output.reply.structured.clone(),
        mcp_json: output.reply.beside(),
        arguments_json: output.arguments.clone(),
        coverage: output.coverage.as_ref().map(|coverage| v1::Coverage {
            done: coverage.done,
            total: coverage.total,
            missing: coverage.missing.clone(),
        }),
        reasoning: output.reasoning.clone(),
    }
}

/// Returns what a tool returned, piece by piece.
fn reply_content(reply: &ToolReply) -> Vec<v1::ToolContent> {
    let pieces = reply.content.iter().zip(reply.pieces_beside());
    pieces
        .map(|(content, beside)| tool_content(content, beside))
        .collect()
}

/// Returns the id of the call that the patch has the result of.
fn call_id(outcome: &Outcome) -> Option<String> {
    let last = outcome.history_patch.messages.last()?;
    last.parts.iter().find_map(|part| match part {
        Part::ToolResult(result) => Some(result.call_id.clone()),
        _ => None,
    })
}

pub(super) fn target_field(target: Option<&TargetId>) -> String {
    target
        .map(|target| target.as_str().to_owned())
        .unwrap_or_default()
}

/// Returns a technical message within the contract's bound.
pub(in crate::grpc) fn bounded(message: &str) -> String {
    message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned()
}

/// Returns the disposition of a request, as the contract's value.
pub(in crate::grpc) fn wire_disposition(disposition: Disposition) -> v1::RequestDisposition {
    match disposition {
        Disposition::New => v1::RequestDisposition::New,
        Disposition::Attached => v1::RequestDisposition::Attached,
        Disposition::Replay => v1::RequestDisposition::Replay,
    }
}

#[cfg(test)]
mod tests;
