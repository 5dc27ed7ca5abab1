//! A caller's schema, however costly, freezes no worker: the response passes unchecked, and the
//! attempt reports it.

use std::{sync::Arc, time::Duration};

use relight::internals::grpc::v1::{
    Invocation, ResponseFormat, ResponseFormatKind, ToolDefinition, invocation::Call,
    invoke_with_recovery_response::Outcome as End,
};
use serde_json::{Map, Value, json};

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Longest wait for a response that takes milliseconds where nothing freezes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Definitions of which each refers twice to the one before it: 2.4 KB that require 2^34 steps.
fn doubled() -> String {
    let mut definitions = Map::new();
    definitions.insert("d0".to_owned(), json!({"type": "object"}));
    for level in 1..=34 {
        let reference = json!({"$ref": format!("#/$defs/d{}", level - 1)});
        definitions.insert(
            format!("d{level}"),
            json!({"allOf": [reference, reference]}),
        );
    }
    json!({"$ref": "#/$defs/d34", "$defs": Value::Object(definitions)}).to_string()
}

fn requiring(schema: &str) -> Invocation {
    let mut invocation = asking("As JSON, please.");
    if let Some(Call::Model(call)) = &mut invocation.call {
        call.response_format = Some(ResponseFormat {
            kind: ResponseFormatKind::JsonSchema.into(),
            schema_json: schema.to_owned(),
            ..ResponseFormat::default()
        });
    }
    invocation
}

async fn server(upstream: &Upstream) -> Relight {
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\njournal: {{ store: memory }}\n",
        upstream.base_url()
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_that_double_themselves_freeze_nothing_and_are_reported_as_unchecked() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("{\"a\": 1}"));
    let server = Arc::new(server(&upstream).await);
    let schema = doubled();
    assert!(schema.len() < 3_000);
    let calls = (0..4).map(|_| server.invoke(requiring(&schema)));
    let responses = tokio::time::timeout(PATIENCE, futures_util::future::join_all(calls))
        .await
        .expect("it freezes");
    for response in responses {
        assert!(
            matches!(response.outcome, Some(End::Completion(_))),
            "{response:?}"
        );
        assert_eq!(response.attempts.len(), 1);
        assert!(
            response.attempts[0].unchecked.contains("cost too much"),
            "{response:?}"
        );
    }
    let ordinary = r#"{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}"#;
    let response = server.invoke(requiring(ordinary)).await;
    assert_eq!(
        response.attempts[0].unchecked, "",
        "an ordinary schema is checked"
    );
    let record = server
        .get(&server.invoke(requiring(&schema)).await.invocation_id)
        .await;
    assert!(
        record.attempts[0].unchecked.contains("cost too much"),
        "{record:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_whose_parameters_double_themselves_freezes_nothing() {
    let upstream = Upstream::start().await;
    let call = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
        "finish_reason": "tool_calls", "message": {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}}]}}]});
    let headers = [("content-type", "application/json")];
    upstream.otherwise(Reply::body(200, &headers, call.to_string().as_bytes()));
    let server = server(&upstream).await;
    let mut invocation = asking("Look.");
    if let Some(Call::Model(call)) = &mut invocation.call {
        let input_schema_json = doubled();
        call.tools = vec![ToolDefinition {
            name: "look".to_owned(),
            input_schema_json,
            ..ToolDefinition::default()
        }];
    }
    let response = tokio::time::timeout(PATIENCE, server.invoke(invocation))
        .await
        .expect("it freezes");
    assert!(
        matches!(response.outcome, Some(End::Completion(_))),
        "{response:?}"
    );
    assert!(
        response.attempts[0].unchecked.contains("cost too much"),
        "{response:?}"
    );
}
