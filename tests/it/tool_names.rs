//! Names of arguments are held against the tool's schema as it is now, before the call: a server
//! that ignores what it does not know cannot turn a renamed argument into a wrong result.

use std::time::Duration;

use relight::internals::{
    grpc::v1::{FailureClass, RecoveryStrategy},
    wire_server::mcp::{Executed, ScriptedTool},
};
use serde_json::{Value, json};

use crate::support::tool_stage::{Stage, applied, completed, failed};

/// Longer than a list of tools is used in these tests.
const LIST_IS_OLD: Duration = Duration::from_millis(1_100);

/// A stage whose server's list is used for a second.
async fn stage(tools: Vec<ScriptedTool>, settings: &str) -> Stage {
    Stage::with_server(tools, "refresh: 1s", settings).await
}

/// A search that returns as many as it is asked for, or 100, and ignores what it does not know.
fn search(limit: &'static str, more: &[&str]) -> ScriptedTool {
    let mut properties = json!({"query": {"type": "string"}, (limit): {"type": "integer"}});
    for name in more {
        properties[*name] = json!({"type": "string"});
    }
    let schema = json!({"type": "object", "properties": properties, "required": ["query"]});
    ScriptedTool::new("search", &schema, move |arguments| {
        let count = arguments[limit].as_u64().unwrap_or(100);
        Executed::Result(json!({ "count": count }))
    })
}

const READ_ONLY: &str = "  tools: { search: { read_only: true } }";

fn count(response: &relight::internals::grpc::v1::InvokeWithRecoveryResponse) -> Value {
    let output = completed(response).tool_output.clone().unwrap();
    serde_json::from_str::<Value>(output.structured_json.as_deref().unwrap()).unwrap()["count"]
        .clone()
}

#[tokio::test]
async fn a_renamed_argument_is_sent_by_its_new_name_to_a_server_that_would_have_ignored_it() {
    let stage = stage(vec![search("limit", &[])], READ_ONLY).await;
    let arguments = json!({"query": "hills", "limit": 10});
    assert_eq!(count(&stage.call("search", arguments.clone()).await), 10);
    stage.script.replace(vec![search("max_results", &[])]);
    tokio::time::sleep(LIST_IS_OLD).await;
    let response = stage.call("search", arguments).await;
    assert_eq!(count(&response), 10);
    assert_eq!(
        (response.attempts.len(), applied(&response)),
        (1, vec![RecoveryStrategy::Adapt])
    );
    assert!(
        response.reasoning.contains("max_results"),
        "{}",
        response.reasoning
    );
    assert_eq!(
        stage.script.calls()[1].1,
        json!({"query": "hills", "max_results": 10})
    );
}

#[tokio::test]
async fn a_name_that_nothing_explains_is_told_and_not_sent() {
    let stage = stage(vec![search("limit", &[])], READ_ONLY).await;
    for (arguments, name) in [
        (json!({"query": "hills", "colour": "red"}), "colour"),
        (
            json!({"query": "hills", "exclude_archived": true}),
            "exclude_archived",
        ),
        (json!({"query": "hills", "limit": 5, "Limit2": 7}), "Limit2"),
    ] {
        let response = stage.call("search", arguments).await;
        let failure = failed(&response);
        assert_eq!(failure.failure_class(), FailureClass::InvalidRequest);
        assert!(
            failure.reasoning.contains(&format!("`{name}`")),
            "{failure:#?}"
        );
        assert!(
            failure.reasoning.contains("`query` (string, required)"),
            "{failure:#?}"
        );
    }
    assert!(stage.script.calls().is_empty());
}

#[tokio::test]
async fn a_tool_that_may_destroy_something_is_told_of_a_rename_and_not_called() {
    let stage = stage(vec![search("max_results", &[])], "").await;
    let response = stage
        .call("search", json!({"query": "hills", "limit": 10}))
        .await;
    assert_eq!(
        failed(&response).failure_class(),
        FailureClass::InvalidRequest
    );
    assert!(stage.script.calls().is_empty());
}

#[tokio::test]
async fn an_argument_that_is_newer_than_the_known_list_is_looked_up_and_sent() {
    // The list is used for five minutes here.
    let stage = Stage::with(vec![search("limit", &[])], READ_ONLY).await;
    stage.call("search", json!({"query": "hills"})).await;
    stage.script.replace(vec![search("limit", &["area"])]);
    let arguments = json!({"query": "hills", "area": "north"});
    completed(&stage.call("search", arguments.clone()).await);
    assert_eq!(stage.script.calls()[1].1, arguments);
}

#[tokio::test]
async fn what_a_schema_allows_and_what_is_not_to_be_looked_at_is_sent_as_it_is() {
    let arguments = json!({"query": "hills", "colour": "red"});
    let open = json!({"type": "object", "properties": {"query": {}}, "additionalProperties": true});
    let any = json!({"type": "object"});
    for schema in [open, any] {
        let tool = ScriptedTool::new("search", &schema, |arguments| {
            Executed::Result(arguments.clone())
        });
        let stage = Stage::with(vec![tool], READ_ONLY).await;
        completed(&stage.call("search", arguments.clone()).await);
        assert_eq!(stage.script.calls()[0].1, arguments);
    }
    for settings in [
        "  tools: { search: { read_only: true, recovery: { check_names: false } } }",
        "  recovery: { check_names: false }",
        "  recovery: { enabled: false }",
    ] {
        let stage = Stage::with(vec![search("limit", &[])], settings).await;
        completed(&stage.call("search", arguments.clone()).await);
        assert_eq!(stage.script.calls()[0].1, arguments, "{settings}");
    }
}
