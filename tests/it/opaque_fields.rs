//! What only one dialect knows of an answer comes back to it through every front as it came, and is
//! named where another target cannot have it.

use hyper::Method;
use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use relight::internals::{
    domain::target::Dialect,
    grpc::v1::{
        Invocation, Message, Part, Role, TextPart, ToolContent, ToolDefinition, ToolResultPart,
        invocation::Call, part::Content, tool_content,
    },
    wire_server::answers,
};
use serde_json::{Map, Value, json};

use crate::support::{
    any_fields::fields,
    every_front::{FRONTS, Protocol},
    front::{Answer, Front, folded, over},
    relight::{Relight, asking},
    upstream::{Reply, Upstream, chunk, pieces},
};

/// An answer with a tool call, with these fields of the message and of the call.
fn calling(own: &Map<String, Value>, of_call: &Map<String, Value>, is_stream: bool) -> Reply {
    let mut call = json!({"id": "call_a", "type": "function",
        "function": {"name": "look", "arguments": "{\"city\":\"Oslo\"}"}});
    call.as_object_mut().unwrap().extend(of_call.clone());
    if !is_stream {
        let mut message =
            json!({"role": "assistant", "content": null, "reasoning": "Hm.", "tool_calls": [call]});
        message.as_object_mut().unwrap().extend(own.clone());
        let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
        return Reply::document(
            &json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}),
        );
    }
    call["index"] = json!(0);
    Reply::events(&[
        chunk(&json!({"role": "assistant", "content": ""}), None),
        chunk(&json!({"reasoning": "Hm."}), None),
        chunk(&Value::Object(own.clone()), None),
        chunk(&json!({"tool_calls": [call]}), None),
        chunk(&json!({}), Some("tool_calls")),
        "[DONE]".to_owned(),
    ])
}

/// The message that a client of a stream holds at the end.
fn chat_message(answer: &Answer, is_stream: bool) -> Value {
    if !is_stream {
        return answer.json()["choices"][0]["message"].clone();
    }
    assert!(answer.is_done(), "{answer:?}");
    let mut message = json!({});
    for event in answer.events() {
        if let Some(delta) = event["choices"][0]["delta"].as_object() {
            add(&mut message, delta);
        }
    }
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        call.as_object_mut().unwrap().remove("index");
    }
    message
}

/// Adds a piece as SDKs do.
fn add(held: &mut Value, piece: &Map<String, Value>) {
    for (name, more) in piece {
        match (name.as_str(), &mut held[name]) {
            ("content" | "reasoning_content" | "arguments", Value::String(text)) => {
                text.push_str(more.as_str().unwrap_or_default());
            }
            ("function", known @ Value::Object(_)) => add(known, more.as_object().unwrap()),
            ("tool_calls", Value::Array(calls)) => {
                for call in more.as_array().unwrap() {
                    let known = calls.iter_mut().find(|one| one["index"] == call["index"]);
                    match known {
                        Some(known) => add(known, call.as_object().unwrap()),
                        None => calls.push(call.clone()),
                    }
                }
            }
            (_, Value::Array(items)) => items.extend(more.as_array().unwrap().iter().cloned()),
            (_, place) => *place = more.clone(),
        }
    }
}

async fn send(front: &Front, path: &str, body: &Value) -> Answer {
    let answer = front.send(Method::POST, path, &[], body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// Asks, and sends what came back with the result of its call.
async fn two_turns(front: &Front, (protocol, stream): (Protocol, bool)) -> Answer {
    let schema = json!({"type": "object"});
    let mut body = json!({"model": "chat", "stream": stream});
    let question = json!({"role": "user", "content": "Why?"});
    match protocol {
        Protocol::Chat => {
            let path = "/v1/chat/completions";
            body["tools"] =
                json!([{"type": "function", "function": {"name": "look", "parameters": schema}}]);
            body["messages"] = json!([question]);
            let message = chat_message(&send(front, path, &body).await, stream);
            let result = json!({"role": "tool", "tool_call_id": "call_a", "content": "rain"});
            body["messages"] = json!([question, message, result]);
            send(front, path, &body).await
        }
        Protocol::Messages => {
            let path = "/v1/messages";
            body["max_tokens"] = json!(99);
            body["tools"] = json!([{"name": "look", "input_schema": schema}]);
            body["messages"] = json!([question]);
            let answer = send(front, path, &body).await;
            let message = if stream {
                folded(&answer)
            } else {
                answer.json()
            };
            let turn = json!({"role": "assistant", "content": message["content"]});
            let result = json!({"type": "tool_result", "tool_use_id": "call_a", "content": "rain"});
            let result = json!({"role": "user", "content": [result]});
            body["messages"] = json!([question, turn, result]);
            send(front, path, &body).await
        }
        Protocol::Responses => {
            let path = "/v1/responses";
            body["store"] = json!(false);
            body["tools"] = json!([{"type": "function", "name": "look", "parameters": schema, "strict": false}]);
            body["input"] = json!([question]);
            let answer = send(front, path, &body).await;
            let response = if stream {
                answer.events().pop().unwrap()["response"].clone()
            } else {
                answer.json()
            };
            let mut items = vec![question];
            items.extend(response["output"].as_array().unwrap().iter().cloned());
            items.push(
                json!({"type": "function_call_output", "call_id": "call_a", "output": "rain"}),
            );
            body["input"] = json!(items);
            send(front, path, &body).await
        }
    }
}

/// The fields of the model's message that the upstream got last, and those of its only call.
fn assert_came_back(
    upstream: &Upstream,
    (own, of_call): (&Map<String, Value>, &Map<String, Value>),
    words: &str,
) {
    let sent = upstream.requests().pop().unwrap().body;
    let messages = sent["messages"].as_array().unwrap();
    let message = messages.iter().find(|one| one["role"] == "assistant");
    let message = message.unwrap_or_else(|| panic!("{words}: {sent}"));
    for (name, value) in own {
        assert_eq!(&message[name], value, "{words}: {name} of {message}");
    }
    let call = &message["tool_calls"][0];
    for (name, value) in of_call {
        assert_eq!(&call[name], value, "{words}: {name} of {call}");
    }
    assert!(!sent.to_string().contains("relight."), "{words}: {sent}");
}

#[tokio::test]
async fn unknown_fields_of_messages_and_calls_come_back_through_every_front() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let mut runner = TestRunner::new(Config::default());
    let samples = (fields(), fields());
    for is_stream in [true, false] {
        for protocol in FRONTS {
            for _ in 0..4 {
                let (own, of_call) = samples.new_tree(&mut runner).unwrap().current();
                upstream.push(calling(&own, &of_call, is_stream));
                two_turns(&front, protocol).await;
                let words = format!("{protocol:?}, the upstream streams: {is_stream}");
                assert_came_back(&upstream, (&own, &of_call), &words);
            }
        }
    }
}

#[tokio::test]
async fn a_client_of_chat_completions_gets_the_fields_in_their_places() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let details =
        |n: u32| json!([{"type": "reasoning.encrypted", "data": format!("ENC{n}"), "index": n}]);
    let call = json!({"index": 0, "id": "call_a", "type": "function",
        "function": {"name": "look", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "U0lH"}}});
    for stream in [true, false] {
        upstream.push(Reply::events(&[
            chunk(
                &json!({"role": "assistant", "reasoning": "H", "reasoning_details": details(0)}),
                None,
            ),
            chunk(
                &json!({"reasoning": "m.", "reasoning_details": details(1)}),
                None,
            ),
            chunk(&json!({"tool_calls": [call]}), None),
            chunk(&json!({}), Some("tool_calls")),
            "[DONE]".to_owned(),
        ]));
        let body = json!({"model": "chat", "stream": stream, "messages": [{"role": "user", "content": "Why?"}],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]});
        let message = chat_message(&front.chat(&body).await, stream);
        assert_eq!(message["reasoning_content"], "Hm.");
        assert_eq!(
            message["reasoning_details"],
            json!([details(0)[0], details(1)[0]])
        );
        assert_eq!(
            message["tool_calls"][0]["extra_content"],
            call["extra_content"]
        );
    }
}

#[tokio::test]
async fn unknown_fields_come_back_through_the_contract() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let mut runner = TestRunner::new(Config::default());
    let samples = (fields(), fields());
    for is_stream in [true, false] {
        let (own, of_call) = samples.new_tree(&mut runner).unwrap().current();
        upstream.push(calling(&own, &of_call, is_stream));
        let invocation = |more: Vec<Message>| {
            let mut invocation = Invocation {
                route: "chat".to_owned(),
                ..asking("Why?")
            };
            if let Some(Call::Model(call)) = &mut invocation.call {
                call.messages.extend(more);
                call.tools = vec![ToolDefinition {
                    name: "look".to_owned(),
                    input_schema_json: "{\"type\":\"object\"}".to_owned(),
                    ..ToolDefinition::default()
                }];
            }
            invocation
        };
        let response = relight.invoke(invocation(Vec::new())).await;
        let mut more = response.history_patch;
        assert_eq!(more.len(), 1, "{more:?}");
        let text = tool_content::Content::Text(TextPart {
            text: "rain".to_owned(),
        });
        let result = ToolResultPart {
            call_id: "call_a".to_owned(),
            content: vec![ToolContent {
                content: Some(text),
                ..ToolContent::default()
            }],
            ..ToolResultPart::default()
        };
        let result = Message {
            role: Role::Tool.into(),
            parts: vec![Part {
                content: Some(Content::ToolResult(result)),
                ..Part::default()
            }],
            ..Message::default()
        };
        more.push(result);
        relight.invoke(invocation(more)).await;
        assert_came_back(&upstream, (&own, &of_call), "the contract");
    }
}

/// A conversation whose model's message and call have fields of their own.
fn history() -> Value {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "U0lH"}}});
    json!({"model": "chat", "messages": [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So.", "tool_calls": [call],
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "ENC"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]})
}

#[tokio::test]
async fn a_target_of_another_dialect_is_called_without_the_fields_and_that_is_said() {
    let upstream = Upstream::start().await;
    upstream.otherwise((answers::of(Dialect::Anthropic).text)("Fine."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let answer = front.chat(&history()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.header("x-relight-adapted"),
        Some("extra_content, reasoning_details left out")
    );
    let sent = upstream.requests().pop().unwrap().body.to_string();
    assert!(!sent.contains("ENC") && !sent.contains("U0lH"), "{sent}");
}

#[tokio::test]
async fn a_server_of_the_same_dialect_that_refuses_the_fields_is_called_once_more_without_them() {
    let upstream = Upstream::start().await;
    let words = "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property \
                 'reasoning_details' is unsupported)]";
    upstream.push(Reply::refusal(
        400,
        &[],
        &json!({"error": {"message": words, "type": "invalid_request_error"}}),
    ));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let answer = front.chat(&history()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent: Vec<Value> = upstream.requests().into_iter().map(|it| it.body).collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0]["messages"], history()["messages"]);
    assert!(
        !sent[1].to_string().contains("reasoning_details"),
        "{}",
        sent[1]
    );
    let adapted = answer.header("x-relight-adapted").unwrap_or_default();
    assert!(adapted.contains("reasoning"), "{adapted}");
}

#[tokio::test]
async fn an_answer_that_is_a_picture_reaches_the_client_and_goes_back_as_it_came() {
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let part = json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "U0lH"});
    for stream in [true, false] {
        for dialect in ["openai_chat", "gemini"] {
            let upstream = Upstream::start().await;
            let front = Front::start(&over("chat", &[(&upstream, dialect)])).await;
            if dialect == "gemini" {
                upstream.otherwise((answers::of(Dialect::Gemini).text)("Fine."));
                let content = json!({"role": "model", "parts": [part]});
                let candidate = json!({"content": content, "finishReason": "STOP", "index": 0});
                upstream.push(Reply::events(&[
                    json!({"candidates": [candidate]}).to_string()
                ]));
            } else {
                upstream.push(Reply::events(&[
                    chunk(&json!({"role": "assistant", "content": ""}), None),
                    chunk(&json!({"images": [image]}), None),
                    chunk(&json!({}), Some("stop")),
                    "[DONE]".to_owned(),
                ]));
            }
            let question = json!({"role": "user", "content": "Draw."});
            let mut body = json!({"model": "chat", "stream": stream, "messages": [question]});
            let answer = front.chat(&body).await;
            assert_eq!(upstream.requests().len(), 1, "{answer:?}");
            let message = chat_message(&answer, stream);
            assert_eq!(
                message["images"][0]["image_url"], image["image_url"],
                "{dialect}: {answer:?}"
            );
            body["messages"] = json!([question, message, {"role": "user", "content": "Again."}]);
            let answer = front.chat(&body).await;
            assert_eq!(answer.header("x-relight-adapted"), None, "{answer:?}");
            let sent = upstream.requests().pop().unwrap().body;
            if dialect == "gemini" {
                assert_eq!(sent["contents"][1]["parts"], json!([part]), "{sent}");
            } else {
                assert_eq!(sent["messages"][1]["images"], json!([image]), "{sent}");
            }
        }
    }
}

#[tokio::test]
async fn signed_thinking_goes_back_to_its_provider_through_chat_completions() {
    let upstream = Upstream::start().await;
    upstream.otherwise((answers::of(Dialect::Anthropic).text)("Fine."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let content = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "EqQB+c/="},
        {"type": "redacted_thinking", "data": "AbCd"},
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"city": "Oslo"}},
    ]);
    for stream in [true, false] {
        upstream.push(Reply::document(&json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": content,
            "stop_reason": "tool_use", "usage": {"input_tokens": 7, "output_tokens": 20}})));
        two_turns(&front, (Protocol::Chat, stream)).await;
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["messages"][1]["content"], content, "{stream}: {sent}");
    }
}

#[tokio::test]
async fn fields_of_an_attempt_that_repeats_what_was_sent_are_sent_once_at_its_end() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let source = json!({"type": "url_citation", "url_citation": {"url": "https://e.example"}});
    upstream.push(pieces("One two three ", None));
    upstream.push(Reply::events(&[
        chunk(&json!({"content": "One two three "}), None),
        chunk(&json!({"content": "four.", "annotations": [source]}), None),
        chunk(&json!({}), Some("stop")),
        "[DONE]".to_owned(),
    ]));
    let answer = front.ask("chat", true).await;
    let message = chat_message(&answer, true);
    assert_eq!(upstream.requests().len(), 2, "{answer:?}");
    assert_eq!(message["content"], "One two three four.", "{answer:?}");
    assert_eq!(message["annotations"], json!([source]), "{answer:?}");
}
