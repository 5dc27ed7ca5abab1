//! Changes of targets, each setting by itself, seen in the requests that reach the provider.

use relight::internals::{
    grpc::v1::{
        ImagePart, Invocation, InvokeWithRecoveryRequest, Message, Part, Role, TextPart,
        ToolCallPart, ToolContent, ToolDefinition, ToolResultPart, image_part::Source,
        invocation::Call, part::Content, tool_content,
    },
    wire_server::Request,
};
use serde_json::{Value, json};

use crate::support::{
    relight::asking,
    reloaded::{Reloaded, merge},
    upstream::{Reply, Upstream, chunk},
};

/// A call with one more message, and with one tool.
fn invocation_with(message: Message) -> Invocation {
    let mut invocation = asking("hello");
    if let Some(Call::Model(call)) = &mut invocation.call {
        call.messages.push(message);
        let input_schema_json = json!({ "type": "object" }).to_string();
        call.tools = vec![ToolDefinition {
            name: "look".to_owned(),
            input_schema_json,
            ..ToolDefinition::default()
        }];
        call.parallel_tool_calls = Some(false);
        call.max_output_tokens = Some(100);
    }
    invocation
}

fn message(role: Role, content: Vec<Content>) -> Message {
    let parts = content
        .into_iter()
        .map(|content| Part {
            content: Some(content),
            ..Part::default()
        })
        .collect();
    Message {
        role: role.into(),
        parts,
        ..Message::default()
    }
}

fn text(role: Role, words: &str) -> Message {
    let mut invocation = asking(words);
    let Some(Call::Model(call)) = &mut invocation.call else {
        unreachable!()
    };
    Message {
        role: role.into(),
        ..call.messages.remove(0)
    }
}

/// Makes a call of which the provider first fails, and returns the requests.
async fn requests_of(server: &Reloaded, invocation: Invocation) -> Vec<Request> {
    let before = server.upstream.requests().len();
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap();
    server.upstream.requests().split_off(before)
}

async fn changed(capabilities: Value, settings: Value) -> Reloaded {
    let quick = json!({ "retry": { "backoff": { "base": "1ms", "cap": "1ms" } }, "injection": { "mode": "always", "short_for": [] } });
    let mut config = json!({
        "policies": { "standard": quick },
        "targets": { "spare": { "provider": "p", "model": "m-2" } },
        "routes": { "default": { "targets": ["main", "spare"] } },
    });
    merge(&mut config, settings);
    let mut server = Reloaded::start(config).await;
    server
        .change(json!({ "targets": { "main": { "capabilities": capabilities } } }))
        .await;
    server
}

#[tokio::test]
async fn a_call_goes_to_the_changed_provider_and_model_of_its_target() {
    let other = Upstream::start().await;
    let q = json!({ "dialect": "openai_chat", "base_url": other.base_url(), "api_key": "k" });
    let mut server = Reloaded::start(json!({ "providers": { "q": q } })).await;
    server
        .change(json!({ "targets": { "main": { "model": "m-9" } } }))
        .await;
    server.invoke().await;
    assert_eq!(server.upstream.await_request(1).await.body["model"], "m-9");
    server
        .change(json!({ "targets": { "main": { "provider": "q" } } }))
        .await;
    server.invoke().await;
    assert_eq!(
        (server.upstream.requests().len(), other.requests().len()),
        (1, 1)
    );
    server
        .change(json!({ "targets": { "main": { "system_prompt": "Be brief." } } }))
        .await;
    server.invoke().await;
    assert_eq!(
        other.await_request(2).await.texts_of("system"),
        ["Be brief."]
    );
}

#[tokio::test]
async fn a_request_is_written_as_each_changed_capability_of_its_target_requires() {
    for (developer_role, role) in [(true, "developer"), (false, "system")] {
        let server = changed(json!({ "developer_role": developer_role }), json!({})).await;
        let sent = requests_of(&server, invocation_with(text(Role::Developer, "Be brief."))).await;
        assert_eq!(sent[0].body["messages"][1]["role"], role, "developer_role");
    }
    for output_limit_field in ["max_tokens", "max_completion_tokens"] {
        let server = changed(
            json!({ "output_limit_field": output_limit_field }),
            json!({}),
        )
        .await;
        let sent = requests_of(&server, invocation_with(text(Role::User, "Go on."))).await;
        assert_eq!(sent[0].body[output_limit_field], 100, "{}", sent[0].body);
    }
    for parallel_tools in [true, false] {
        let server = changed(json!({ "parallel_tools": parallel_tools }), json!({})).await;
        let sent = requests_of(&server, invocation_with(text(Role::User, "Go on."))).await;
        assert_eq!(
            sent[0].body.get("parallel_tool_calls").is_some(),
            parallel_tools,
            "{}",
            sent[0].body
        );
    }
    for background in [true, false] {
        let able = json!({ "background": background });
        let server = changed(
            able,
            json!({ "providers": { "p": { "dialect": "openai_responses" } } }),
        )
        .await;
        let sent = requests_of(&server, asking("hello")).await;
        assert_eq!(
            sent[0].body["background"] == true,
            background,
            "{}",
            sent[0].body
        );
    }
    for signed_calls in [true, false] {
        let server = changed(
            json!({ "signed_calls": signed_calls }),
            json!({ "providers": { "p": { "dialect": "gemini" } } }),
        )
        .await;
        let call = ToolCallPart {
            id: "c1".to_owned(),
            name: "look".to_owned(),
            arguments_json: "{}".to_owned(),
        };
        let mut invocation =
            invocation_with(message(Role::Assistant, vec![Content::ToolCall(call)]));
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.messages.push(tool_result());
        }
        let sent = requests_of(&server, invocation).await;
        let is_signed = sent[0].body.to_string().contains("thoughtSignature");
        assert_eq!(is_signed, signed_calls, "{}", sent[0].body);
    }
}

fn tool_result() -> Message {
    let content = vec![ToolContent {
        content: Some(tool_content::Content::Text(TextPart {
            text: "nothing".to_owned(),
        })),
        mcp_json: None,
    }];
    let result = ToolResultPart {
        call_id: "c1".to_owned(),
        content,
        ..ToolResultPart::default()
    };
    message(Role::Tool, vec![Content::ToolResult(result)])
}

#[tokio::test]
async fn a_note_goes_where_each_changed_capability_of_its_target_allows_it() {
    for tail_system_message in [true, false] {
        let server = changed(
            json!({ "tail_system_message": tail_system_message }),
            json!({}),
        )
        .await;
        server.upstream.push(Reply::status(500));
        let sent = requests_of(&server, asking("hello")).await;
        let last = sent[1].body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(last["role"] != "user", tail_system_message, "{last}");
    }
    for user_after_tool in [true, false] {
        let able = json!({ "user_after_tool": user_after_tool, "tail_system_message": false });
        let server = changed(able, json!({})).await;
        let call = ToolCallPart {
            id: "c1".to_owned(),
            name: "look".to_owned(),
            arguments_json: "{}".to_owned(),
        };
        let mut invocation =
            invocation_with(message(Role::Assistant, vec![Content::ToolCall(call)]));
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.messages.push(tool_result());
        }
        server.upstream.push(Reply::status(500));
        let sent = requests_of(&server, invocation).await;
        let last = sent[1].body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(last["role"] == "user", user_after_tool, "{last}");
    }
    for assistant_prefill in [true, false] {
        let able = json!({ "assistant_prefill": assistant_prefill, "prefill_mark": "prefix" });
        let server = changed(
            able,
            json!({ "routes": { "default": { "targets": ["main"] } } }),
        )
        .await;
        // Long enough to be continued, and without its end.
        let begun: Vec<String> = (0..200)
            .map(|_| chunk(&json!({ "content": "one,two,three," }), None))
            .collect();
        server.upstream.push(Reply::events(&begun));
        let sent = requests_of(&server, asking("hello")).await;
        let last = sent[1].body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(last["prefix"] == true, assistant_prefill, "{last}");
    }
}

#[tokio::test]
async fn a_call_goes_to_another_target_where_a_changed_capability_excludes_the_first() {
    let image = ImagePart {
        source: Some(Source::Url("https://example.com/cat.png".to_owned())),
        ..ImagePart::default()
    };
    let with_image = || {
        let mut invocation =
            invocation_with(message(Role::User, vec![Content::Image(image.clone())]));
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.tools.clear();
            call.parallel_tool_calls = None;
        }
        invocation
    };
    for able in [true, false] {
        let model = if able { "m-1" } else { "m-2" };
        let server = changed(json!({ "tools": able }), json!({})).await;
        let sent = requests_of(&server, invocation_with(text(Role::User, "Go on."))).await;
        assert_eq!(sent[0].body["model"], model, "tools: {able}");
        let server = changed(json!({ "images": able }), json!({})).await;
        let sent = requests_of(&server, with_image()).await;
        assert_eq!(sent[0].body["model"], model, "images: {able}");
    }
    // A prompt that is too long for the first goes to the other one only where that has more room.
    for (context_window_tokens, requests) in [(1000, 2), (9000, 1)] {
        let spare = json!({ "targets": { "spare": { "capabilities": { "context_window_tokens": 4000 } } } });
        let server = changed(
            json!({ "context_window_tokens": context_window_tokens }),
            spare,
        )
        .await;
        let too_long = json!({ "error": { "code": "context_length_exceeded", "message": "the prompt is too long" } });
        server.upstream.push(Reply::refusal(400, &[], &too_long));
        let sent = requests_of(&server, asking("hello")).await;
        assert_eq!(
            sent.len(),
            requests,
            "context_window_tokens: {context_window_tokens}"
        );
    }
}
