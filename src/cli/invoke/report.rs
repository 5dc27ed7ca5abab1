//! Formats the result of an invocation for people: the completion, or the reason why there is none and
//! the attempts made.

use crate::grpc::v1::{self, part::Content};

use crate::cli::{
    terminal::{Paint, Table, one_line, span},
    words,
};

/// Returns the completion's text, and the model's tool calls.
pub(crate) fn answer(completion: &v1::Completion) -> String {
    let parts = completion.message.iter().flat_map(|message| &message.parts);
    let calls = parts.filter_map(|part| match &part.content {
        Some(Content::ToolCall(call)) => Some(format!("{}({})", call.name, call.arguments_json)),
        Some(Content::Refusal(refusal)) => Some(refusal.text.clone()),
        _ => None,
    });
    let text = Some(completion.text.clone()).filter(|text| !text.is_empty());
    let shown = text.into_iter().chain(calls).collect::<Vec<_>>().join("\n");
    let refused = matches!(
        completion.finish_reason(),
        v1::FinishReason::Refusal | v1::FinishReason::ContentFilter
    );
    if shown.is_empty() && refused {
        "(refused without words)".to_owned()
    } else {
        shown
    }
}

/// Returns the effort, if it took more than one attempt.
pub(super) fn recovered(response: &v1::InvokeWithRecoveryResponse) -> Option<String> {
    let strategies = words::strategies(&response.recovery_applied);
    // An attempt that Relight itself refused, as the circuit was open, is nothing that was
    // recovered from.
    (response.attempts.len() > 1 && !matches!(strategies.as_str(), "" | "nothing")).then(|| {
        format!(
            "Recovered by {}: attempt {} answered, by {}.",
            strategies,
            response.attempts.len(),
            one_line(&response.final_target)
        )
    })
}

/// Returns the steps that made a tool call return, and the part of it that was done.
pub(super) fn tool(completion: &v1::Completion) -> Option<String> {
    let output = completion.tool_output.as_ref()?;
    let covered = output.coverage.as_ref().map(|coverage| {
        let missing = if coverage.missing.is_empty() {
            String::new()
        } else {
            format!(", without {}", coverage.missing.join(", "))
        };
        format!(" ({} of {} parts{missing})", coverage.done, coverage.total)
    });
    let covered = covered.unwrap_or_default();
    (!output.reasoning.is_empty()).then(|| one_line(&format!("{}{covered}", output.reasoning)))
}

/// Returns the reason why there is no completion: for the user, for the operator, and every attempt.
pub(super) fn failure(
    failure: &v1::Failure,
    response: &v1::InvokeWithRecoveryResponse,
    paint: Paint,
) -> Vec<String> {
    let mut lines = vec![paint.bold(&paint.red(&one_line(&failure.user_message)))];
    let class = words::class(failure.failure_class);
    let code = v1::FailureCode::try_from(failure.code).map_or("", |code| code.as_str_name());
    let code = code.trim_start_matches("FAILURE_CODE_");
    lines.push(format!("{class} ({code}): {}", one_line(&failure.message)));
    if !failure.recovery_hint.is_empty() {
        lines.push(format!("Hint: {}", one_line(&failure.recovery_hint)));
    }
    for alternative in &failure.alternatives {
        lines.push(format!("Instead: {}", one_line(&alternative.reason)));
    }
    let stopped_by = words::class(failure.stopped_by);
    if stopped_by != "-" {
        lines.push(format!("Recovery was stopped by: {stopped_by}"));
    }
    if let Some(ms) = failure.retry_after_ms {
        lines.push(format!("A retry makes sense in {}.", span(ms)));
    }
    if !response.attempts.is_empty() {
        lines.push(String::new());
        lines.extend(attempts(&response.attempts).lines());
    }
    lines.push(String::new());
    lines.push(paint.dim(&format!("invocation {}", one_line(&response.invocation_id))));
    lines
}

/// Returns the attempts, a row an attempt.
pub(crate) fn attempts(attempts: &[v1::Attempt]) -> Table {
    let mut table = Table::new(&["#", "TARGET", "WHY", "WAITED", "TOOK", "CAME TO", "MESSAGE"]);
    for attempt in attempts {
        table.row(vec![
            attempt.number.to_string(),
            if attempt.key.is_empty() {
                attempt.target.clone()
            } else {
                format!("{} ({})", attempt.target, attempt.key)
            },
            words::cause(attempt.cause),
            if attempt.wait_before_ms == 0 {
                "-".to_owned()
            } else {
                span(attempt.wait_before_ms)
            },
            // How long it has taken so far is not known to servers of earlier versions.
            if is_running(attempt) && attempt.duration_ms == 0 {
                "-".to_owned()
            } else {
                span(attempt.duration_ms)
            },
            came_to(attempt).to_owned(),
            attempt.message.clone(),
        ]);
    }
    table
}

fn is_running(attempt: &v1::Attempt) -> bool {
    attempt.state() == v1::AttemptState::Running
}

/// Returns the end of an attempt, as far as it ended.
fn came_to(attempt: &v1::Attempt) -> &'static str {
    match attempt.state() {
        _ if attempt.failure_class != 0 => words::class(attempt.failure_class),
        v1::AttemptState::Running => "running",
        v1::AttemptState::Cancelled => "cancelled",
        v1::AttemptState::Failed => "failure",
        v1::AttemptState::Succeeded | v1::AttemptState::Unspecified => "answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_has_not_ended_is_shown_as_running_with_its_time_so_far() {
        let attempt = |number, state: v1::AttemptState, duration_ms| v1::Attempt {
            number,
            target: "gpt".to_owned(),
            cause: v1::AttemptCause::First.into(),
            state: state.into(),
            duration_ms,
            ..v1::Attempt::default()
        };
        let shown = attempts(&[
            attempt(1, v1::AttemptState::Succeeded, 41),
            attempt(2, v1::AttemptState::Running, 1200),
            attempt(3, v1::AttemptState::Running, 0),
            attempt(4, v1::AttemptState::Cancelled, 7),
        ]);
        assert_eq!(
            shown.lines(),
            [
                "#  TARGET  WHY    WAITED  TOOK   CAME TO    MESSAGE",
                "1  gpt     first  -       41 ms  answer",
                "2  gpt     first  -       1.2 s  running",
                "3  gpt     first  -       -      running",
                "4  gpt     first  -       7 ms   cancelled",
            ]
        );
    }

    #[test]
    fn a_failure_has_hints_for_user_and_operator_and_lists_every_attempt() {
        let example = v1::Failure {
            failure_class: v1::FailureClass::QuotaExceeded.into(),
            code: v1::FailureCode::LlmError.into(),
            message: "insufficient_quota".to_owned(),
            user_message: "The service is out of credit.".to_owned(),
            recovery_hint: "Check the account's limits.".to_owned(),
            ..v1::Failure::default()
        };
        let attempt = v1::Attempt {
            number: 1,
            target: "gpt".to_owned(),
            cause: v1::AttemptCause::First.into(),
            failure_class: v1::FailureClass::QuotaExceeded.into(),
            message: "insufficient_quota".to_owned(),
            duration_ms: 41,
            ..v1::Attempt::default()
        };
        let response = v1::InvokeWithRecoveryResponse {
            invocation_id: "inv-1".to_owned(),
            attempts: vec![attempt],
            ..v1::InvokeWithRecoveryResponse::default()
        };
        assert_eq!(
            failure(&example, &response, Paint::none()),
            [
                "The service is out of credit.",
                "quota_exceeded (LLM_ERROR): insufficient_quota",
                "Hint: Check the account's limits.",
                "",
                "#  TARGET  WHY    WAITED  TOOK   CAME TO         MESSAGE",
                "1  gpt     first  -       41 ms  quota_exceeded  insufficient_quota",
                "",
                "invocation inv-1",
            ]
        );
    }

    #[test]
    fn an_answer_of_tool_calls_shows_them() {
        let call = v1::ToolCallPart {
            name: "get_weather".to_owned(),
            arguments_json: "{\"city\":\"Oslo\"}".to_owned(),
            ..v1::ToolCallPart::default()
        };
        let part = v1::Part {
            content: Some(Content::ToolCall(call)),
            ..v1::Part::default()
        };
        let message = v1::Message {
            parts: vec![part],
            ..v1::Message::default()
        };
        let completion = v1::Completion {
            message: Some(message),
            ..v1::Completion::default()
        };
        assert_eq!(answer(&completion), "get_weather({\"city\":\"Oslo\"})");
    }
}
