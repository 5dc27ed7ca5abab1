//! What a request of the Messages API says is carried, or refused by the name of its field.

use serde_json::json;

use super::*;
use crate::{
    domain::message::{CacheMark, Media, MediaSource, Opaque, Part, Role},
    front::{carried, error::Protocol},
};

fn read(body: &Value) -> Result<MessagesRequest, CallError> {
    MessagesRequest::read(body.to_string().as_bytes())
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"model": "default", "max_tokens": 7, "messages": [{"role": "user", "content": "Hi"}]});
    body[field] = value;
    body
}

#[test]
fn what_the_neutral_call_has_a_word_for_is_read_and_the_rest_goes_to_this_dialect_alone() {
    let mut body = with(
        "system",
        json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]),
    );
    body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}}]);
    body["tool_choice"] = json!({"type": "any", "disable_parallel_tool_use": true});
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2048});
    body["output_config"] = json!({"effort": "low", "task_budget": {"total": 9}});
    body["metadata"] = json!({"user_id": "u-1"});
    let request = read(&body).unwrap();
    let call = &request.call;
    assert_eq!(
        (
            call.messages[0].role,
            call.messages[0].joined_text().as_ref()
        ),
        (Role::System, "Be brief.")
    );
    assert_eq!(
        (call.tools[0].name.as_str(), &call.tool_choice),
        ("add", &ToolChoice::Required)
    );
    assert_eq!(
        (call.parallel_tool_calls, call.max_output_tokens),
        (Some(false), Some(7))
    );
    assert_eq!(call.reasoning_effort.as_deref(), Some("low"));
    assert_eq!(request.labels.get("user").map(String::as_str), Some("u-1"));
    assert_eq!(
        call.messages[0].cache_marks,
        [CacheMark {
            part: 0,
            mark: json!({"type": "ephemeral"})
        }]
    );
    let output = json!({"task_budget": {"total": 9}});
    let passed_on = json!({"thinking": body["thinking"], "metadata": body["metadata"], "output_config": output});
    assert_eq!(
        call.extra_for("anthropic").cloned().map(Value::Object),
        Some(passed_on)
    );
    assert_eq!(call.extra_for("openai_chat"), None);
}

#[test]
fn blocks_are_carried_with_what_providers_need_back() {
    let foreign = Opaque {
        kind: "gemini.thought_signature".to_owned(),
        bytes: vec![7],
    };
    let body = with(
        "messages",
        json!([
            {"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
                {"type": "redacted_thinking", "data": carried::seal(&foreign, Some("c1"))},
                {"type": "redacted_thinking", "data": "AbC"},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": [
                    {"type": "text", "text": "no"},
                    {"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}}]}]},
        ]),
    );
    let messages = read(&body).unwrap().call.messages;
    assert!(
        matches!(&messages[0].parts[0], Part::Image(media) if media.source == MediaSource::Bytes(b"hi".to_vec()))
    );
    let kinds: Vec<String> = messages[1]
        .parts
        .iter()
        .map(|part| match part {
            Part::Reasoning(thought) => thought.opaque.as_ref().unwrap().kind.clone(),
            Part::ToolCall(call) => {
                format!("{} {}", call.arguments, call.opaque.as_ref().unwrap().kind)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "anthropic.signature",
        "anthropic.redacted_thinking",
        "{\"a\":1} gemini.thought_signature",
    ];
    assert_eq!(kinds, expected);
    let Part::ToolResult(result) = &messages[2].parts[0] else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (
            result.name.as_str(),
            result.content.as_str(),
            result.is_error
        ),
        ("add", "no", true)
    );
    assert!(matches!(&messages[2].parts[1], Part::Image(_)));
}

#[test]
fn an_image_of_a_result_is_told_from_one_of_the_user() {
    let image = |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let result = |id: &str, content: Value| json!({"type": "tool_result", "tool_use_id": id, "content": content});
    let mark = json!({"type": "ephemeral"});
    let mut own = image("b3du");
    own["cache_control"] = mark.clone();
    let blocks = json!([
        result("a", json!([{"type": "text", "text": "first"}, image("b25l")])),
        result("b", json!("second")),
        own,
        {"type": "text", "text": "and this?"},
    ]);
    let read_of = |blocks: Value| {
        let body = with("messages", json!([{"role": "user", "content": blocks}]));
        read(&body).unwrap().call.messages.clone()
    };
    let messages = read_of(blocks.clone());
    let [results, users] = &messages[..] else {
        panic!("{messages:?}")
    };
    assert_eq!((results.role, users.role), (Role::Tool, Role::User));
    assert!(matches!(
        &results.parts[..],
        [
            Part::ToolResult(_),
            Part::Image(Media { source: MediaSource::Bytes(bytes), .. }),
            Part::ToolResult(_),
        ] if bytes == b"one"
    ));
    assert!(matches!(&users.parts[..], [Part::Image(_), Part::Text(_)]));
    assert_eq!(users.cache_marks, [CacheMark { part: 0, mark }]);
    let alone = read_of(json!([blocks[0]]));
    assert!(
        matches!(&alone[..], [message] if message.role == Role::Tool),
        "{alone:?}"
    );
}

#[test]
fn a_fault_is_named_by_its_place() {
    for (body, param) in [
        (with("model", Value::Null), "model"),
        (with("messages", json!([])), "messages"),
        (
            with("messages", json!([{"role": "robot", "content": "x"}])),
            "messages[0].role",
        ),
        (
            with(
                "messages",
                json!([{"role": "user", "content": [{"text": "no type"}]}]),
            ),
            "messages[0].content[0].type",
        ),
        (
            with("tools", json!([{"type": "custom", "name": "x"}])),
            "tools[0].input_schema",
        ),
        (with("tool_choice", json!("auto")), "tool_choice"),
        (with("stop_sequences", json!("x")), "stop_sequences"),
        (with("temperature", json!(3)), "temperature"),
        (
            with("output_config", json!({"format": {"type": "xml"}})),
            "output_config",
        ),
        (with("max_tokens", json!(0)), "max_tokens"),
    ] {
        let error = read(&body).unwrap_err().object(Protocol::Anthropic);
        let shown = (
            &error["type"],
            &error["error"]["type"],
            &error["error"]["param"],
        );
        assert_eq!(
            shown,
            (
                &json!("error"),
                &json!("invalid_request_error"),
                &json!(param)
            ),
            "{body}"
        );
    }
}
