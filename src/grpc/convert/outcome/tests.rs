//! Tests of `outcome`, one for each guarantee.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::{
    domain::{
        completion::FinishReason,
        failure::{InvalidRequestDetail, Wait, WaitSource},
        invocation::{AttemptIds, HistoryPatch, InjectionRecord, RecoveryStrategy},
        tool::{Coverage, ToolReply},
    },
    grpc::convert::unset::unset,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn failure(class: FailureClass) -> Failure {
    Failure {
        at: at(100),
        target: Some("a".into()),
        ..Failure::local(class, "what happened")
    }
}

fn record(number: u32, failure: Option<Failure>) -> AttemptRecord {
    AttemptRecord {
        duration: Duration::from_millis(30),
        sent: true,
        winner: failure.is_none(),
        failure,
        ids: AttemptIds {
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            ..AttemptIds::default()
        },
        ..AttemptRecord::begun(
            number,
            AttemptCause::Initial,
            "a".into(),
            "model-a".to_owned(),
            at(10),
        )
    }
}

fn answer(text: &str) -> Completion {
    Completion {
        around: None,
        tool_output: None,
        message: Message::text(Role::Assistant, text),
        finish: FinishReason::Length,
        finish_raw: "max_tokens".to_owned(),
        model: "model-a-0613".to_owned(),
        response_id: None,
        usage: Usage {
            input_tokens: 7,
            exactness: Exactness::Exact,
            ..Usage::default()
        },
    }
}

fn outcome(result: Result<Completion, Failure>, attempts: Vec<AttemptRecord>) -> Outcome {
    Outcome {
        invocation: "i1".into(),
        operation: None,
        target: result.is_ok().then(|| "a".into()),
        result,
        attempts,
        recovery_applied: Vec::new(),
        reasoning: "it was so".to_owned(),
        alternatives: (0..5).map(|n| format!("try {n}")).collect(),
        usage: Usage::default(),
        history_patch: HistoryPatch::default(),
        stopped_by: None,
    }
}

fn context() -> ResponseContext {
    let disposition = v1::RequestDisposition::Attached;
    ResponseContext {
        operation: "executor".into(),
        thread: Some("t1".into()),
        disposition,
    }
}

fn class(class: FailureClass) -> i32 {
    class.into_proto().into()
}

#[test]
fn an_answer_without_recovery_has_exactly_the_strategy_none() {
    use v1::invoke_with_recovery_response::Outcome as End;
    let sent = response(
        &outcome(Ok(answer("hello")), vec![record(1, None)]),
        &context(),
    );
    assert_eq!(
        sent.recovery_applied,
        [i32::from(v1::RecoveryStrategy::None)]
    );
    assert_eq!(
        sent.disposition,
        i32::from(v1::RequestDisposition::Attached)
    );
    assert_eq!(
        (sent.final_model.as_str(), sent.final_target.as_str()),
        ("model-a-0613", "a")
    );
    assert_eq!(
        sent.attempts[0].state,
        i32::from(v1::AttemptState::Succeeded)
    );
    let Some(End::Completion(completion)) = sent.outcome else {
        panic!("an answer")
    };
    assert_eq!(
        (
            completion.text.as_str(),
            completion.raw_finish_reason.as_str()
        ),
        ("hello", "max_tokens")
    );
    assert_eq!(
        completion.finish_reason,
        i32::from(v1::FinishReason::Length)
    );
    assert!(completion.message.is_some() && completion.tool_output.is_none());
    let spent = completion.usage.unwrap();
    assert_eq!(
        (spent.input_tokens, spent.output_tokens),
        (Some(7), Some(0))
    );
    assert_eq!(
        sent.usage.unwrap().input_tokens,
        None,
        "nothing is known of the sum"
    );
}

#[test]
fn a_failure_is_complete_in_itself() {
    let first = failure(FailureClass::Timeout)
        .with_retry_after(Duration::from_micros(1_500), WaitSource::RetryAfter);
    let refusal = failure(FailureClass::BudgetEmpty);
    let mut refused = AttemptRecord {
        sent: false,
        ..record(2, Some(refusal))
    };
    refused.target = None;
    refused.model = String::new();
    let mut end = outcome(Err(first.clone()), vec![record(1, Some(first)), refused]);
    end.recovery_applied = vec![RecoveryStrategy::Retry];
    let sent = failure_of(&end, &context()).unwrap();
    assert_eq!(sent.failure_class, class(FailureClass::Timeout));
    assert_eq!(sent.code, i32::from(v1::FailureCode::LlmError));
    assert_eq!(sent.stopped_by, class(FailureClass::BudgetEmpty));
    assert_eq!((sent.retries_attempted, sent.retry_after_ms), (1, Some(2)));
    assert_eq!(
        (sent.failed_operation.as_str(), sent.thread_id.as_str()),
        ("executor", "t1")
    );
    assert_eq!(
        (sent.invocation_id.as_str(), sent.target.as_str()),
        ("i1", "a")
    );
    assert_eq!(sent.attempts.len(), 2);
    assert!(!sent.attempts[1].sent);
    assert_eq!(sent.alternatives.len(), 3);
    assert_eq!(
        sent.recovery_applied,
        [i32::from(v1::RecoveryStrategy::Retry)]
    );
    assert_eq!(sent.timestamp, Some(wire_time(at(100))));
    let whole = response(&end, &context());
    assert_eq!(
        (whole.final_model.as_str(), whole.final_target.as_str()),
        ("model-a", "a")
    );
    assert!(failure_of(&outcome(Ok(answer("")), Vec::new()), &context()).is_none());
}

#[test]
fn a_refusal_that_is_the_failure_itself_stopped_nothing() {
    let shed = failure(FailureClass::Shed);
    let end = outcome(Err(shed.clone()), vec![record(1, Some(shed))]);
    assert_eq!(
        failure_of(&end, &context()).unwrap().stopped_by,
        class_field(None)
    );
}

#[test]
fn an_attempt_reports_its_cause_and_the_wait_before_it() {
    let fallback = AttemptRecord {
        cause: AttemptCause::Fallback(FailureClass::Overloaded),
        wait: Some(Wait {
            duration: Duration::from_secs(2),
            source: WaitSource::Backoff,
        }),
        first_token: Some(Duration::from_micros(2_900)),
        injection: InjectionRecord {
            note: Some("be shorter".to_owned()),
            skipped: Some("context_full".to_owned()),
            refused: false,
        },
        ..record(
            2,
            Some(Failure {
                status: Some(529),
                ..failure(FailureClass::Overloaded)
            }),
        )
    };
    let sent = attempt(&fallback, true);
    assert_eq!(sent.cause, i32::from(v1::AttemptCause::Fallback));
    assert_eq!(sent.started_at, Some(wire_time(at(10))));
    assert_eq!(
        (sent.wait_before_ms, sent.wait_source),
        (2000, v1::WaitSource::TargetSwitch.into())
    );
    assert_eq!((sent.duration_ms, sent.first_token_ms), (30, Some(2)));
    assert_eq!(
        (sent.http_status, sent.injected_note.as_str()),
        (Some(529), "be shorter")
    );
    assert_eq!(
        sent.injection_skipped,
        i32::from(v1::InjectionSkipReason::ContextFull)
    );
}

#[test]
fn an_attempt_without_an_end_runs_until_its_invocation_ended() {
    let open = AttemptRecord {
        winner: false,
        ..record(1, None)
    };
    assert_eq!(
        attempt(&open, false).state,
        i32::from(v1::AttemptState::Running)
    );
    assert_eq!(
        attempt(&open, true).state,
        i32::from(v1::AttemptState::Cancelled)
    );
    let cancelled = record(1, Some(failure(FailureClass::Cancelled)));
    assert_eq!(
        attempt(&cancelled, false).state,
        i32::from(v1::AttemptState::Cancelled)
    );
    let failed = record(1, Some(failure(FailureClass::Network)));
    assert_eq!(
        attempt(&failed, true).state,
        i32::from(v1::AttemptState::Failed)
    );
}

#[test]
fn a_technical_message_keeps_to_a_kibibyte_of_whole_characters() {
    let long = Failure {
        message: "é".repeat(1000),
        ..failure(FailureClass::Unknown)
    };
    assert_eq!(bare_failure(&long).message.len(), 1024);
    let odd = Failure {
        message: format!("a{}", "é".repeat(1000)),
        ..failure(FailureClass::Unknown)
    };
    assert_eq!(bare_failure(&odd).message.len(), 1023);
}

#[test]
fn the_history_patch_marks_what_relight_added_and_is_empty_after_a_failure() {
    let completion = answer("hello");
    let note = Message::text(Role::Developer, "the previous call failed");
    let noted = Message::text(Role::User, "what the caller wrote, and a note");
    let mut end = outcome(Ok(completion.clone()), vec![record(1, None)]);
    end.history_patch = HistoryPatch {
        replace_tail: 1,
        messages: vec![noted, note, completion.message],
    };
    let sent = response(&end, &context());
    let injected: Vec<bool> = sent
        .history_patch
        .iter()
        .map(|message| message.parts[0].injected)
        .collect();
    assert_eq!(
        (injected.as_slice(), sent.history_replace_tail),
        ([false, true, false].as_slice(), 1)
    );
    end.result = Err(failure(FailureClass::Timeout));
    let sent = response(&end, &context());
    assert_eq!(
        (sent.history_patch.len(), sent.history_replace_tail),
        (0, 0),
        "nothing of the caller's is cut off"
    );
}

#[test]
fn what_a_tool_returned_is_sent_whole_and_no_turn_of_a_model() {
    let sent = r#"{"content":[{"type":"text","text":"found","annotations":{"priority":1}}],"structuredContent":[1],"_meta":{"a":1}}"#;
    let (reply, _) = ToolReply::of_mcp(sent.to_owned()).unwrap();
    let coverage = Coverage {
        done: 7,
        total: 8,
        missing: vec!["May".to_owned()],
    };
    let output = ToolOutput {
        tool: "search".to_owned(),
        reply,
        arguments: Some(r#"{"max_results":5}"#.to_owned()),
        coverage: Some(coverage),
        reasoning: "It was split.".to_owned(),
    };
    let sent = completion_of(&Completion {
        tool_output: Some(Box::new(output)),
        ..answer("")
    });
    assert!(sent.message.is_none());
    assert_eq!(
        (sent.text.as_str(), sent.finish_reason),
        ("found", i32::from(v1::FinishReason::Stop))
    );
    let output = sent.tool_output.unwrap();
    assert_eq!((output.tool.as_str(), output.content.len()), ("search", 1));
    assert_eq!(unset("ToolOutput", &output), [""; 0]);
    assert_eq!(unset("ToolContent", &output.content[0]), [""; 0]);
    assert_eq!(unset("Coverage", &output.coverage.unwrap()), [""; 0]);
}

#[test]
fn no_field_of_an_attempt_or_a_failure_is_left_unset_when_its_fact_is_known() {
    let wait = Wait {
        duration: Duration::from_secs(2),
        source: WaitSource::RetryAfter,
    };
    let failed = Failure {
        detail: Some(InvalidRequestDetail::BadSchema),
        retryable: true,
        recovery_hint: "mend the schema".to_owned(),
        status: Some(400),
        ..failure(FailureClass::InvalidRequest).with_retry_after(wait.duration, wait.source)
    };
    let whole = AttemptRecord {
        cause: AttemptCause::Adapt(FailureClass::InvalidRequest),
        wait: Some(wait),
        first_token: Some(Duration::from_millis(2)),
        injection: InjectionRecord {
            note: Some("be shorter".to_owned()),
            skipped: Some("context_full".to_owned()),
            refused: false,
        },
        adaptation: Some("the schema was left out".to_owned()),
        unchecked: Some("the response is longer than 4 MiB".to_owned()),
        usage: Usage {
            cached_input_tokens: Some(1),
            cache_write_tokens: Some(2),
            reasoning_tokens: Some(3),
            ..answer("").usage
        },
        ids: AttemptIds {
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            span_id: "b7ad6b7169203331".to_owned(),
            upstream_request_id: "req-7".to_owned(),
        },
        key: Some("…1234".to_owned()),
        ..record(2, Some(failed.clone()))
    };
    assert_eq!(unset("Attempt", &attempt(&whole, true)), [""; 0]);
    let mut end = outcome(Err(failed), vec![whole]);
    end.recovery_applied = vec![RecoveryStrategy::Adapt];
    end.stopped_by = Some(FailureClass::BudgetEmpty);
    let sent = failure_of(&end, &context()).unwrap();
    // One attempt, and so none after the first; and no tool that returned anything.
    assert_eq!(
        unset("Failure", &sent),
        ["retries_attempted", "tool_result"]
    );
}
