//! What a request says is carried, or refused by the name of its field.

use serde_json::json;

use super::*;
use crate::{
    domain::message::{Media, MediaSource, Part, Role},
    front::error::Protocol,
};

fn read(body: &Value) -> Result<ChatRequest, CallError> {
    ChatRequest::read(body.to_string().as_bytes())
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "Hi"}]});
    body[field] = value;
    body
}

fn param(body: &Value) -> String {
    let object = read(body).unwrap_err().object(Protocol::Openai);
    object["error"]["param"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn every_field_that_is_modelled_arrives_and_the_others_are_passed_on() {
    let request = read(&json!({
        "model": "default", "messages": [{"role": "user", "content": "Hi"}], "stream": true,
        "stream_options": {"include_usage": true}, "temperature": 0.5, "top_p": 1, "seed": -3, "n": 1,
        "frequency_penalty": 0.1, "presence_penalty": -0.1, "max_tokens": 5, "max_completion_tokens": 9,
        "parallel_tool_calls": false, "reasoning_effort": "low", "stop": "END", "user": "u-1",
        "metadata": {"team": "red"}, "logit_bias": {"50256": -100}, "service_tier": null, "logprobs": false,
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": true}},
    }))
    .unwrap();
    assert!(request.stream && request.include_usage);
    let call = &request.call;
    let sampling = call.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.seed),
        (Some(0.5), Some(1.0), Some(-3))
    );
    assert_eq!(
        (sampling.frequency_penalty, sampling.presence_penalty),
        (Some(0.1), Some(-0.1))
    );
    assert_eq!(call.max_output_tokens, Some(9), "the newer name goes first");
    assert_eq!(
        (call.parallel_tool_calls, call.reasoning_effort.as_deref()),
        (Some(false), Some("low"))
    );
    assert_eq!(call.stop, ["END"]);
    assert_eq!(call.tools[0].parameters, r#"{"type":"object"}"#);
    assert_eq!(call.tool_choice, ToolChoice::Tool("add".to_owned()));
    assert!(matches!(
        &call.response_format,
        ResponseFormat::JsonSchema { strict: true, .. }
    ));
    assert_eq!(
        request.labels,
        [("team", "red"), ("user", "u-1")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    );
    let passed: Vec<&String> = call.extra.keys().collect();
    assert_eq!(passed, ["logit_bias"], "null is as good as nothing");
}

#[test]
fn what_cannot_be_given_is_refused_by_its_name() {
    for (field, value) in [
        ("n", json!(2)),
        ("logprobs", json!(true)),
        ("functions", json!([])),
        ("modalities", json!(["text", "audio"])),
        ("temperature", json!("hot")),
        ("max_tokens", json!(0)),
        ("stop", json!([1])),
        ("tool_choice", json!("some")),
        ("metadata", json!({"a": 1})),
        ("messages", json!([])),
        ("stream", json!("yes")),
    ] {
        assert_eq!(param(&with(field, value)), field);
    }
    assert_eq!(
        param(&json!({"messages": [{"role": "user", "content": "Hi"}]})),
        "model"
    );
    assert_eq!(param(&json!([])), "body");
}

#[test]
fn a_conversation_with_tools_is_carried_in_its_order() {
    let request = read(&with(
        "messages",
        json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://host/a.JPG?x=1"}}]},
            {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "2"}]},
        ]),
    ))
    .unwrap();
    let messages = &request.call.messages;
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::Developer, Role::User, Role::Assistant, Role::Tool]
    );
    let png = Media {
        mime_type: "image/png".into(),
        source: MediaSource::Bytes(b"hi".into()),
        name: None,
        detail: Some("low".into()),
    };
    assert_eq!(messages[1].parts[1], Part::Image(png));
    assert!(
        matches!(&messages[1].parts[2], Part::Image(Media { mime_type, .. }) if mime_type == "image/jpeg")
    );
    assert!(
        matches!(&messages[2].parts[..], [Part::Reasoning(_), Part::ToolCall(call)] if call.arguments == "{\"a\":1}")
    );
    assert!(
        matches!(&messages[3].parts[0], Part::ToolResult(result) if result.name == "add" && result.content == "2")
    );
}

#[test]
fn an_image_that_a_tool_returned_stands_behind_its_result() {
    let of_tool = |content: Value| {
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": content});
        read(&with("messages", json!([result])))
    };
    let text = |words: &str| json!({"type": "text", "text": words});
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "x": 1}});
    let request = of_tool(json!([text("a"), image, text("b")])).unwrap();
    let parts = &request.call.messages[0].parts;
    assert!(
        matches!(&parts[..], [Part::ToolResult(result), Part::Image(_), fields]
            if result.content == "a\nb" && fields.is_fields()),
        "{parts:?}"
    );
    assert!(of_tool(json!([{"type": "video_url"}])).is_err());
}

#[test]
fn a_part_that_cannot_be_carried_is_refused_with_its_place() {
    let user = |part: Value| with("messages", json!([{"role": "user", "content": [part]}]));
    for (body, path) in [
        (user(json!({"text": "x"})), "messages[0].content[0].type"),
        (
            user(json!({"type": "image_url", "image_url": {"url": "file:///etc"}})),
            "messages[0].content[0].image_url.url",
        ),
        (
            with("messages", json!([{"role": "critic", "content": "x"}])),
            "messages[0].role",
        ),
        (
            with("messages", json!([{"role": "tool", "content": "x"}])),
            "messages[0].tool_call_id",
        ),
        (
            with("messages", json!([{"role": "user"}])),
            "messages[0].content",
        ),
        (
            with(
                "messages",
                json!([{"role": "user", "name": 7, "content": "x"}]),
            ),
            "messages[0].name",
        ),
        (
            with("messages", json!([{"role": 7, "content": "x"}])),
            "messages[0].role",
        ),
        (
            user(
                json!({"type": "image_url", "image_url": {"url": "https://host/a.png", "detail": 7}}),
            ),
            "messages[0].content[0].image_url.detail",
        ),
        (
            with("messages", json!([["user", "an array is no message"]])),
            "messages[0].role",
        ),
        (
            with("messages", json!([{"role": "user", "content": "x"}, 7])),
            "messages[1].role",
        ),
        (with("messages", json!([])), "messages"),
        (
            with("messages", json!({"role": "user", "content": "x"})),
            "messages",
        ),
        (
            with("tools", json!([["function", {"name": "add"}]])),
            "tools[0].function.name",
        ),
        (
            with(
                "tools",
                json!([{"type": "function", "function": ["add", "Adds.", {}]}]),
            ),
            "tools[0].function.name",
        ),
        (
            with(
                "tools",
                json!([{"type": "function", "function": {"name": "add", "strict": "yes"}}]),
            ),
            "tools[0].function.strict",
        ),
    ] {
        assert_eq!(param(&body), path);
    }
}
