//! Tools called through the same recovery as models: the real server, a real client, and a scripted
//! MCP server between.

use std::time::Duration;

use relight::internals::{
    grpc::v1::{
        ExecutionState, FailureClass, FailureCode, ListExecutionsRequest, Overrides,
        RecoveryStrategy, invocation::Call,
    },
    wire_server::{
        Reply,
        mcp::{Executed, ScriptedTool},
    },
};
use serde_json::{Value, json};

use crate::support::tool_stage::{Stage, applied, calling, completed, echo, failed, object};

#[tokio::test]
async fn a_tool_is_called_and_its_result_is_returned_with_a_message_for_the_history() {
    let stage = Stage::with(vec![echo("get_activity")], "").await;
    let response = stage.call("get_activity", json!({"id": 7})).await;
    let completion = completed(&response);
    let output = completion.tool_output.as_ref().unwrap();
    assert_eq!(
        (output.tool.as_str(), output.structured_json.as_deref()),
        ("get_activity", Some(r#"{"id":7}"#))
    );
    assert_eq!(completion.text, r#"{"id":7}"#);
    assert_eq!(
        (output.arguments_json.as_deref(), output.reasoning.as_str()),
        (None, "")
    );
    assert_eq!(applied(&response), [RecoveryStrategy::None]);
    assert_eq!(
        (
            response.final_target.as_str(),
            response.final_model.as_str()
        ),
        ("strava/get_activity", "")
    );
    assert_eq!(response.attempts.len(), 1);
    // The call itself, as the caller named no id of its own, and the result.
    assert_eq!(response.history_patch.len(), 2);
    assert_eq!(
        stage.script.calls(),
        [("get_activity".to_owned(), json!({"id": 7}))]
    );
}

#[tokio::test]
async fn a_tool_that_changes_nothing_is_called_again_after_a_failure_of_its_server() {
    let failures = std::sync::atomic::AtomicU32::new(0);
    let flaky =
        ScriptedTool::new(
            "get_activity",
            &json!({"type": "object"}),
            move |_| match failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 => Executed::Wire(Box::new(Reply::status(500))),
                _ => Executed::Result(json!("fine")),
            },
        );
    let stage = Stage::with(
        vec![flaky],
        "  tools: { get_activity: { read_only: true } }",
    )
    .await;
    let response = stage.call("strava/get_activity", json!({})).await;
    assert_eq!(completed(&response).text, "fine");
    assert_eq!(applied(&response), [RecoveryStrategy::Retry]);
    assert_eq!(stage.script.calls().len(), 2);
}

#[tokio::test]
async fn a_tool_of_which_nothing_is_known_is_not_called_again_when_its_connection_breaks() {
    let breaking = ScriptedTool::new("pay", &json!({"type": "object"}), |_| {
        Executed::Wire(Box::new(Reply::reset()))
    });
    let stage = Stage::with(vec![breaking], "").await;
    let response = stage.call("pay", json!({"amount": 5})).await;
    let failure = failed(&response);
    assert_eq!(failure.failure_class(), FailureClass::OutcomeUnknown);
    assert_eq!(failure.code(), FailureCode::ToolError);
    assert_eq!(stage.script.calls().len(), 1, "{failure:#?}");
    assert!(
        failure.user_message.contains("is not known"),
        "{failure:#?}"
    );
    assert_eq!(stage.execution_states().await, [ExecutionState::Unknown]);
}

#[tokio::test]
async fn an_execution_whose_caller_goes_away_is_listed_as_cancelled() {
    let slow = ScriptedTool::new("get_all", &json!({"type": "object"}), |_| {
        Executed::Wire(Box::new(Reply::silence()))
    });
    let stage = Stage::with(vec![slow], "  tools: { get_all: { read_only: true } }").await;
    let call = tokio::time::timeout(Duration::from_millis(500), stage.call("get_all", json!({})));
    assert!(call.await.is_err(), "the tool never returns");
    let seen = async {
        while stage.execution_states().await != [ExecutionState::Cancelled] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen)
        .await
        .expect("it is recorded in time");
}

#[tokio::test]
async fn six_months_that_time_out_are_fetched_by_month_and_merged_with_their_coverage() {
    let schema = object(
        json!({"from": {"type": "string"}, "to": {"type": "string"}}),
        &["from", "to"],
    );
    let activities = ScriptedTool::new("get_activities", &schema, |arguments| {
        let (from, to) = (
            arguments["from"].as_str().unwrap(),
            arguments["to"].as_str().unwrap(),
        );
        if from[..7] == to[..7] {
            Executed::Result(json!({"activities": [{"month": from[..7]}]}))
        } else {
            Executed::Wire(Box::new(Reply::silence()))
        }
    });
    let settings = "  tools:\n    get_activities:\n      read_only: true\n      timeout: 2s\n      \
                    chunk: [{ from: from, to: to }]";
    let stage = Stage::with(vec![activities], settings).await;
    let response = stage
        .call(
            "get_activities",
            json!({"from": "2024-01-01", "to": "2024-06-30"}),
        )
        .await;
    let output = completed(&response).tool_output.clone().unwrap();
    let coverage = output.coverage.unwrap();
    assert_eq!(
        (coverage.done, coverage.total, coverage.missing.len()),
        (6, 6, 0)
    );
    let merged: Value = serde_json::from_str(output.structured_json.as_deref().unwrap()).unwrap();
    assert_eq!(merged["activities"].as_array().unwrap().len(), 6);
    assert_eq!(applied(&response), [RecoveryStrategy::Chunk]);
    assert_eq!(stage.script.calls().len(), 7);
    let sent: Value = serde_json::from_str(output.arguments_json.as_deref().unwrap()).unwrap();
    assert_eq!(sent[5], json!({"from": "2024-06-01", "to": "2024-06-30"}));
    assert!(output.reasoning.contains("6 of 6"), "{}", output.reasoning);
}

#[tokio::test]
async fn what_is_not_allowed_is_explained_after_one_attempt_with_alternatives() {
    let schema = object(json!({"athlete": {"type": "string"}}), &["athlete"]);
    let private = ScriptedTool::new("get_activities", &schema, |_| {
        Executed::Error("403 Forbidden".to_owned())
    });
    let own = ScriptedTool::new("get_my_activities", &object(json!({}), &[]), |_| {
        Executed::Result(json!([]))
    });
    let stage = Stage::with(
        vec![private, own],
        "  tools: { get_activities: { read_only: true } }",
    )
    .await;
    let mut invocation = calling("get_activities", json!({"athlete": "X"}));
    if let Some(Call::Tool(call)) = &mut invocation.call {
        call.goal = "Get competitor X's private training data".to_owned();
    }
    let response = stage.relight.invoke(invocation).await;
    let failure = failed(&response);
    assert_eq!(failure.failure_class(), FailureClass::PermissionDenied);
    assert_eq!(applied(&response), [RecoveryStrategy::Impossible]);
    assert_eq!(stage.script.calls().len(), 1);
    assert!(
        failure
            .reasoning
            .contains("competitor X's private training data"),
        "{}",
        failure.reasoning
    );
    assert!(!failure.alternatives.is_empty(), "{failure:#?}");
    assert!(
        failure.user_message.contains("not allowed"),
        "{}",
        failure.user_message
    );
    assert_eq!(stage.execution_states().await, [ExecutionState::Failed]);
}

#[tokio::test]
async fn a_renamed_argument_is_adapted_and_the_next_call_is_adapted_before_it_fails() {
    let tool = |argument: &'static str| {
        let schema = object(json!({ (argument): {"type": "integer"} }), &[]);
        ScriptedTool::new("search", &schema, move |arguments| {
            match arguments.get(argument) {
                Some(_) => Executed::Result(arguments.clone()),
                None => Executed::Refused(
                    -32602,
                    format!("unexpected keyword argument, expected '{argument}'"),
                ),
            }
        })
    };
    let stage = Stage::with(
        vec![tool("limit")],
        "  tools: { search: { read_only: true } }",
    )
    .await;
    assert_eq!(
        completed(&stage.call("search", json!({"limit": 5})).await).text,
        r#"{"limit":5}"#
    );
    stage.script.replace(vec![tool("max_results")]);
    let response = stage.call("search", json!({"limit": 5})).await;
    let output = completed(&response).tool_output.clone().unwrap();
    assert_eq!(
        output.arguments_json.as_deref(),
        Some(r#"{"max_results":5}"#)
    );
    assert_eq!(applied(&response), [RecoveryStrategy::Adapt]);
    assert!(
        output.reasoning.contains("max_results"),
        "{}",
        output.reasoning
    );
    let before = stage.script.calls().len();
    let response = stage.call("search", json!({"limit": 9})).await;
    assert_eq!(completed(&response).text, r#"{"max_results":9}"#);
    assert_eq!(
        stage.script.calls().len(),
        before + 1,
        "it is adapted at once"
    );
}

#[tokio::test]
async fn names_that_no_server_lists_or_several_do_are_refused_with_what_may_be_meant() {
    let stage = Stage::with(vec![echo("get_activity"), echo("search")], "").await;
    let refused = |name: &'static str| {
        let (mut client, invocation) = (stage.relight.recovery(), Some(calling(name, json!({}))));
        async move {
            let request = relight::internals::grpc::v1::InvokeWithRecoveryRequest { invocation };
            client.invoke_with_recovery(request).await.unwrap_err()
        }
    };
    let status = refused("get_activty").await;
    assert_eq!(status.code(), tonic::Code::NotFound);
    assert!(
        status.message().contains("`strava/get_activity`"),
        "{}",
        status.message()
    );
    assert!(!status.message().contains("search"), "{}", status.message());
    let status = refused("strava/nothing").await;
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn a_deadline_that_ends_a_tool_which_may_have_acted_says_that_nobody_knows() {
    let slow = ScriptedTool::new("pay", &json!({"type": "object"}), |_| {
        Executed::Wire(Box::new(Reply::silence()))
    });
    let stage = Stage::with(vec![slow], "").await;
    let mut invocation = calling("pay", json!({}));
    invocation.overrides = Some(Overrides {
        deadline_ms: Some(400),
        ..Overrides::default()
    });
    let response = stage.relight.invoke(invocation).await;
    assert_eq!(
        failed(&response).failure_class(),
        FailureClass::OutcomeUnknown,
        "{response:#?}"
    );
    assert_eq!(stage.script.calls().len(), 1);
}

#[tokio::test]
async fn every_execution_is_listed_with_its_arguments_and_without_secrets() {
    let stage = Stage::with(
        vec![echo("get_activity")],
        "  tools: { get_activity: { redact: [/note] } }",
    )
    .await;
    let response = stage
        .call(
            "get_activity",
            json!({"id": 7, "api_key": "k-1", "note": "private"}),
        )
        .await;
    let list = |page_size, page_token| {
        let mut client = stage.relight.recovery();
        async move {
            let request = ListExecutionsRequest {
                page_size,
                page_token,
                ..ListExecutionsRequest::default()
            };
            client.list_executions(request).await.unwrap().into_inner()
        }
    };
    let listed = list(0, String::new()).await;
    let [one] = listed.executions.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!(
        (one.invocation_id.as_str(), one.target.as_str()),
        (&*response.invocation_id, "strava/get_activity")
    );
    assert_eq!(
        (one.state(), one.cause.as_str(), one.attempt),
        (ExecutionState::Succeeded, "initial", 1)
    );
    let kept: Value = serde_json::from_str(&one.arguments_json).unwrap();
    assert_eq!(
        kept,
        json!({"id": 7, "api_key": "[redacted]", "note": "[redacted]"})
    );
    assert!(!one.release.is_empty());
    stage.call("get_activity", json!({})).await;
    let first = list(1, String::new()).await;
    assert_eq!(first.executions.len(), 1);
    let second = list(1, first.next_page_token).await;
    assert_eq!(
        (
            second.executions[0].invocation_id.as_str(),
            second.next_page_token.as_str()
        ),
        (&*response.invocation_id, "")
    );
}

#[tokio::test]
async fn the_last_attempts_at_a_goal_are_told_with_the_next_failure() {
    let private = ScriptedTool::new("get_private", &json!({"type": "object"}), |_| {
        Executed::Error("403 Forbidden".into())
    });
    let stage = Stage::with(vec![private], "").await;
    let call = || {
        let mut invocation = calling("get_private", json!({"athlete": "X"}));
        if let Some(Call::Tool(call)) = &mut invocation.call {
            call.goal = "compare with X".to_owned();
        }
        stage.relight.invoke(invocation)
    };
    assert!(
        !failed(&call().await)
            .reasoning
            .contains("Previous attempts")
    );
    let reasoning = failed(&call().await).reasoning.clone();
    assert!(
        reasoning.contains("Previous attempts:\n1. Called `get_private`"),
        "{reasoning}"
    );
    assert!(
        reasoning.ends_with("what should be tried differently?"),
        "{reasoning}"
    );
}
