//! Tests of `openai`, one for each guarantee.

use serde_json::{Value, json};

use super::*;
use crate::{
    domain::{
        message::{
            Media, MediaSource, Message, ModelCall, Part, Reasoning, ResponseFormat, Role,
            Sampling, ToolCall, ToolChoice, ToolDefinition, ToolResult,
        },
        target::Dialect,
    },
    known::{ModelRef, capabilities},
};

/// What a call becomes at that URL, with these options.
fn written_at(call: &ModelCall, base_url: &str, options: &ChatOptions) -> Value {
    let place = ModelRef {
        dialect: Dialect::OpenaiChat,
        family: "p",
        endpoint: base_url,
        model: "m",
    };
    let dialect = ChatDialect::of(
        options,
        true,
        &capabilities(&place),
        &DialectOverrides::default(),
    );
    body_of(call, &dialect)
}

fn body_of(call: &ModelCall, dialect: &ChatDialect<'_>) -> Value {
    let mut body = Vec::new();
    request::write("m", call, dialect, &mut body);
    serde_json::from_slice(&body).unwrap()
}

fn written(call: &ModelCall, base_url: &str) -> Value {
    written_at(call, base_url, &ChatOptions::default())
}

fn messages(call: &ModelCall) -> Value {
    written(call, "https://example.com/v1")["messages"].clone()
}

fn message(role: Role, parts: Vec<Part>) -> Message {
    Message::new(role, parts)
}

fn result(call_id: &str, content: &str, is_error: bool) -> Part {
    Part::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        name: "f".to_owned(),
        content: content.to_owned(),
        is_error,
    })
}

fn made(id: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        opaque: None,
    })
}

#[test]
fn every_tool_result_is_a_message_of_its_own_right_behind_its_call() {
    let call = ModelCall {
        messages: vec![
            Message::text(Role::User, "Do it"),
            message(
                Role::Assistant,
                vec![made("a", "{\"x\": 1}"), made("b", "")],
            ),
            message(
                Role::Tool,
                vec![
                    result("a", "done", false),
                    Part::Text("hurry".to_owned()),
                    result("b", "no", true),
                ],
            ),
        ],
        ..ModelCall::default()
    };
    let function = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let expected = json!([
        {"role": "user", "content": "Do it"},
        {"role": "assistant", "content": null, "tool_calls": [function("a", "{\"x\": 1}"), function("b", "{}")]},
        {"role": "tool", "tool_call_id": "a", "content": "done"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
        {"role": "user", "content": "hurry"},
    ]);
    assert_eq!(messages(&call), expected);
}

#[test]
fn media_are_parts_by_value_or_by_reference() {
    let media = |mime_type: &str, source| Media {
        mime_type: mime_type.to_owned(),
        source,
        name: None,
        detail: None,
    };
    let call = ModelCall {
        messages: vec![message(
            Role::User,
            vec![
                Part::Text("Look".to_owned()),
                Part::Image(media("image/png", MediaSource::Bytes(vec![1, 2, 3]))),
                Part::Image(media(
                    "image/png",
                    MediaSource::Url("https://example.com/a.png".to_owned()),
                )),
                Part::File(media("application/pdf", MediaSource::Bytes(vec![4]))),
                Part::File(media("audio/mpeg", MediaSource::Bytes(vec![5]))),
            ],
        )],
        ..ModelCall::default()
    };
    let expected = json!([{"role": "user", "content": [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,BA=="}},
        {"type": "input_audio", "input_audio": {"data": "BQ==", "format": "mp3"}},
    ]}]);
    assert_eq!(messages(&call), expected);
}

#[test]
fn a_developer_message_is_a_system_message_where_the_server_knows_no_developer() {
    let call = ModelCall {
        messages: vec![Message::text(Role::Developer, "Be brief")],
        ..ModelCall::default()
    };
    let role = |base_url: &str| written(&call, base_url)["messages"][0]["role"].clone();
    assert_eq!(role("https://example.com/v1"), "system");
    assert_eq!(role("https://api.openai.com/v1"), "developer");
}

#[test]
fn reasoning_goes_back_only_where_the_server_wants_it() {
    let thought = Part::Reasoning(Reasoning {
        text: "Hm.".to_owned(),
        opaque: None,
    });
    let call = ModelCall {
        messages: vec![message(
            Role::Assistant,
            vec![thought, Part::Text("Yes.".to_owned())],
        )],
        ..ModelCall::default()
    };
    assert_eq!(
        messages(&call),
        json!([{"role": "assistant", "content": "Yes."}])
    );
    let options = ChatOptions {
        reasoning_field: Some("reasoning_content".to_owned()),
        ..ChatOptions::default()
    };
    let message = &written_at(&call, "https://api.deepseek.com", &options)["messages"][0];
    assert_eq!(
        message,
        &json!({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."})
    );
}

#[test]
fn the_output_limit_has_the_name_that_the_server_knows() {
    let call = ModelCall {
        max_output_tokens: Some(7),
        ..ModelCall::default()
    };
    for (base_url, name) in [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        (
            "https://x.openai.azure.com/openai/deployments/{model}?api-version=1",
            "max_completion_tokens",
        ),
        ("http://localhost:8000/v1", "max_tokens"),
    ] {
        assert_eq!(written(&call, base_url)[name], 7, "{base_url}");
    }
}

#[test]
fn tools_sampling_format_and_effort_are_written_and_extra_comes_last() {
    let tool = ToolDefinition {
        name: "f".to_owned(),
        description: "does".to_owned(),
        parameters: "{\"type\":\"object\"}".to_owned(),
        ..ToolDefinition::default()
    };
    let call = ModelCall {
        tools: vec![tool],
        tool_choice: ToolChoice::Tool("f".to_owned()),
        parallel_tool_calls: Some(false),
        sampling: Sampling {
            temperature: Some(0.5),
            seed: Some(7),
            ..Sampling::default()
        },
        reasoning_effort: Some("low".to_owned()),
        response_format: ResponseFormat::JsonSchema {
            name: "s".to_owned(),
            description: None,
            schema: "{\"type\":\"object\"}".to_owned(),
            strict: true,
        },
        stop: vec!["END".to_owned()],
        extra: json!({"temperature": 1, "service_tier": "flex"})
            .as_object()
            .cloned()
            .unwrap(),
        ..ModelCall::default()
    };
    let expected = json!({
        "model": "m",
        "messages": [],
        "stream": true,
        "stream_options": {"include_usage": true},
        "tools": [{"type": "function",
            "function": {"name": "f", "description": "does", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": false,
        "temperature": 1,
        "seed": 7,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}},
        "stop": ["END"],
        "service_tier": "flex",
    });
    assert_eq!(written(&call, "https://example.com/v1"), expected);
}

#[test]
fn a_begun_answer_is_marked_as_the_server_wants_it_and_nothing_else_is() {
    let begun = ModelCall {
        messages: vec![
            Message::text(Role::User, "Tell."),
            Message::text(Role::Assistant, "Once"),
        ],
        ..ModelCall::default()
    };
    let vllm = written(&begun, "http://vllm:8000/v1");
    assert_eq!(
        (
            &vllm["continue_final_message"],
            &vllm["add_generation_prompt"]
        ),
        (&json!(true), &json!(false))
    );
    let mistral = written(&begun, "https://api.mistral.ai/v1");
    assert_eq!(
        mistral["messages"][1],
        json!({"role": "assistant", "content": "Once", "prefix": true})
    );
    let bare = written(&begun, "https://api.openai.com/v1");
    assert_eq!(
        (
            &bare["continue_final_message"],
            &bare["messages"][1]["prefix"]
        ),
        (&Value::Null, &Value::Null)
    );
    let asked = ModelCall {
        messages: vec![Message::text(Role::User, "Tell.")],
        ..ModelCall::default()
    };
    assert_eq!(
        written(&asked, "http://vllm:8000/v1")["continue_final_message"],
        Value::Null
    );
}

#[test]
fn what_a_target_was_found_not_to_take_is_worded_otherwise() {
    let call = ModelCall {
        messages: vec![Message::text(Role::Developer, "Be brief.")],
        max_output_tokens: Some(7),
        ..ModelCall::default()
    };
    let wording = DialectOverrides {
        output_limit_field: Some(OutputLimitField::MaxTokens),
        without_stream_usage: true,
        developer_as_system: true,
    };
    let options = ChatOptions::default();
    let able = Capabilities {
        developer_role: true,
        output_limit_field: OutputLimitField::MaxCompletionTokens,
        ..Capabilities::default()
    };
    let dialect = ChatDialect::of(&options, true, &able, &wording);
    let expected = json!({"model": "m", "stream": true, "max_tokens": 7,
        "messages": [{"role": "system", "content": "Be brief."}]});
    assert_eq!(body_of(&call, &dialect), expected);
}

#[test]
fn what_a_tool_returned_beside_text_is_in_the_users_next_message() {
    let call = ModelCall {
        messages: crate::tool_media::tests::conversation(false, None),
        ..ModelCall::default()
    };
    let written = messages(&call);
    let text = |words: &str| json!({"type": "text", "text": words});
    let image = |data: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
    let document = json!({"type": "file", "file": {"filename": "two.pdf", "file_data": "data:application/pdf;base64,dHdv"}});
    let noted = "first\n[image/png: shown after the results of the tools]\n[application/pdf `two.pdf`: shown after the results of the tools]";
    let whose = text("Returned by the tool `draw`:");
    assert_eq!(
        written.as_array().unwrap()[2..],
        [
            json!({"role": "tool", "tool_call_id": "a", "content": noted}),
            json!({"role": "tool", "tool_call_id": "b", "content": "second"}),
            json!({"role": "user", "content": [whose, image("b25l"), whose, document, image("b3du"), text("and this?")]}),
        ]
    );
    let mut unfinished = call;
    unfinished.messages.truncate(4);
    let written = messages(&unfinished);
    assert_eq!(written[4]["role"], "user");
    assert_eq!(written[4]["content"].as_array().unwrap().len(), 4);
}
