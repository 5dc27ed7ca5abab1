//! Changes of the tools: the section takes effect as one value, and the next call is made by it.

use relight::internals::{
    grpc::v1::{InvokeWithRecoveryRequest, invoke_with_recovery_response::Outcome},
    wire_server::{
        Reply, WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::json;

use super::rows;
use crate::support::{reloaded::Reloaded, tool_stage::calling};

/// What a call of the tool came to, and how many attempts it took.
async fn called(server: &Reloaded) -> (String, usize) {
    let invocation = Some(calling("look", json!({})));
    let response = server
        .recovery()
        .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
        .await;
    let response = response.unwrap().into_inner();
    let end = match response.outcome.unwrap() {
        Outcome::Completion(completion) => completion.text,
        Outcome::Failure(failure) => failure.message,
    };
    (end, response.attempts.len())
}

async fn scripted(tool: ScriptedTool) -> (WireServer, String) {
    let wire = WireServer::start().await.unwrap();
    McpScript::new(vec![tool]).play_on(&wire);
    let url = format!("http://{}/mcp", wire.address());
    (wire, url)
}

#[tokio::test]
async fn the_next_call_of_a_tool_is_made_by_the_changed_section_of_tools() {
    let failing = |_: &_| Executed::Wire(Box::new(Reply::status(500)));
    let (_failing, url) = scripted(ScriptedTool::new(
        "look",
        &json!({"type": "object"}),
        failing,
    ))
    .await;
    let fast = json!({ "retry": { "backoff": { "base": "10ms" } } });
    let tools = json!({ "servers": { "s": { "url": url } } });
    let mut server =
        Reloaded::start(json!({ "policies": { "standard": fast }, "tools": tools })).await;
    assert_eq!(
        called(&server).await.1,
        1,
        "nothing is known of the tool, so that it is executed once"
    );
    server
        .change(json!({ "tools": { "tools": { "look": { "read_only": true } } } }))
        .await;
    assert_eq!(called(&server).await.1, 3);
    server
        .change(json!({ "tools": { "recovery": { "max_retries": 1 } } }))
        .await;
    assert_eq!(called(&server).await.1, 2);
    let fine = |_: &_| Executed::Result(json!("fine"));
    let (_fine, url) = scripted(ScriptedTool::new("look", &json!({"type": "object"}), fine)).await;
    server
        .change(json!({ "tools": { "servers": { "s": { "url": url } } } }))
        .await;
    assert_eq!(called(&server).await.0, "fine");
    // All that is below `tools` is one value, which was replaced; each setting of it is shown where
    // tools are.
    let below = rows()
        .into_iter()
        .filter(|row| row.setting.starts_with("tools.") && row.seen_by != "restart");
    assert!(below.count() > 50);
}
