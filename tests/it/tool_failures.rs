//! A tool says that it failed in a result that is not marked as an error: that is a failure for its
//! caller, for what is done about it, and in the list of executions, unless its operator says that
//! the tool speaks otherwise.

use std::sync::atomic::{AtomicU32, Ordering};

use relight::internals::{
    grpc::v1::{ExecutionState, FailureClass, RecoveryStrategy},
    wire_server::mcp::{Executed, ScriptedTool},
};
use serde_json::{Value, json};

use crate::support::tool_stage::{Stage, applied, completed, failed};

const READ_ONLY: &str = "  tools: { look: { read_only: true } }";

fn returning(result: Value) -> ScriptedTool {
    ScriptedTool::new("look", &json!({"type": "object"}), move |_| {
        Executed::Result(result.clone())
    })
}

#[tokio::test]
async fn a_result_that_says_so_is_a_failure_of_the_class_of_its_words() {
    for (result, class) in [
        (
            json!({"success": false, "result": null, "error": "Access denied"}),
            FailureClass::PermissionDenied,
        ),
        (
            json!({"status": "error", "message": "Activity not found"}),
            FailureClass::NotFound,
        ),
        (
            json!("Error: 403 Forbidden"),
            FailureClass::PermissionDenied,
        ),
        (
            json!("{\"success\": false, \"error\": \"Unauthorized\"}"),
            FailureClass::Authentication,
        ),
    ] {
        let stage = Stage::with(vec![returning(result.clone())], READ_ONLY).await;
        let response = stage.call("look", json!({})).await;
        assert_eq!(
            failed(&response).failure_class(),
            class,
            "{result}: {response:#?}"
        );
        assert_eq!(
            stage.execution_states().await,
            [ExecutionState::Failed],
            "{result}"
        );
        assert_eq!(stage.script.calls().len(), 1, "{result}");
    }
}

#[tokio::test]
async fn a_failure_in_a_result_is_recovered_as_any_other() {
    let failures = AtomicU32::new(0);
    let flaky = ScriptedTool::new("look", &json!({"type": "object"}), move |_| match failures
        .fetch_add(1, Ordering::SeqCst)
    {
        0 => Executed::Result(
            json!({"success": false, "result": null, "error": "Connection refused"}),
        ),
        _ => Executed::Result(json!({"success": true, "result": 7, "error": null})),
    });
    let stage = Stage::with(vec![flaky], READ_ONLY).await;
    let response = stage.call("look", json!({})).await;
    assert_eq!(applied(&response), [RecoveryStrategy::Retry]);
    let output = completed(&response).tool_output.clone().unwrap();
    let returned: Value = serde_json::from_str(output.structured_json.as_deref().unwrap()).unwrap();
    assert_eq!(
        returned,
        json!({"success": true, "result": 7, "error": null})
    );
}

#[tokio::test]
async fn a_result_against_the_schema_that_its_tool_declares_is_a_failure() {
    let declared =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for (result, is_well) in [
        (json!({"n": 5}), true),
        (json!({"n": "five"}), false),
        (json!({}), false),
        (json!("five"), false),
        (json!(""), false),
    ] {
        let tool = returning(result.clone()).with("outputSchema", declared.clone());
        let settings = "  recovery: { max_retries: 0 }\n  tools: { look: { read_only: true } }";
        let stage = Stage::with(vec![tool], settings).await;
        let response = stage.call("look", json!({})).await;
        if is_well {
            completed(&response);
        } else {
            let class = failed(&response).failure_class();
            assert_eq!(
                class,
                FailureClass::MalformedResponse,
                "{result}: {response:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_tool_speaks_as_its_operator_says() {
    let object = json!({"success": false, "error": "the job failed"});
    let text = json!("Error: the first line of a log");
    for (result, settings, is_failure) in [
        (&object, "  failures: { object: false }", false),
        (&text, "  failures: { text: false }", false),
        (&object, "  failures: { text: false }", true),
        (
            &object,
            "  tools: { look: { failures: { object: false } } }",
            false,
        ),
        (
            &object,
            "  failures: { object: false }\n  tools: { look: { failures: { text: false } } }",
            true,
        ),
    ] {
        let stage = Stage::with(vec![returning(result.clone())], settings).await;
        let response = stage.call("look", json!({})).await;
        if is_failure {
            failed(&response);
        } else {
            completed(&response);
        }
    }
    for (server, is_failure) in [
        ("failures: { object: false }", false),
        ("failures: { empty: true }", true),
    ] {
        let stage = Stage::with_server(vec![returning(object.clone())], server, "").await;
        let response = stage.call("look", json!({})).await;
        assert_eq!(
            matches!(
                response.outcome,
                Some(
                    relight::internals::grpc::v1::invoke_with_recovery_response::Outcome::Failure(
                        _
                    )
                )
            ),
            is_failure,
            "{server}: {response:#?}"
        );
    }
    let silent = || {
        ScriptedTool::new("look", &json!({"type": "object"}), |_| {
            Executed::Result(json!(""))
        })
    };
    completed(
        &Stage::with(vec![silent()], "")
            .await
            .call("look", json!({}))
            .await,
    );
    failed(
        &Stage::with(vec![silent()], "  failures: { empty: true }")
            .await
            .call("look", json!({}))
            .await,
    );
}
