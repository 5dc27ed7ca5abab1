//! What a request of the Responses API says is carried, or refused by the name of its field.

use super::*;
use crate::{
    domain::message::{Opaque, Part, Role},
    front::{carried, error::Protocol},
};

fn read(body: &Value) -> Result<(ResponsesRequest, Vec<Message>), CallError> {
    let request = ResponsesRequest::read(body.to_string().as_bytes())?;
    let messages = request.messages()?;
    Ok((request, messages))
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"model": "default", "input": "Hi"});
    body[field] = value;
    body
}

#[test]
fn what_the_neutral_call_has_a_word_for_is_read_and_the_rest_goes_to_this_dialect_alone() {
    let mut body = with("instructions", json!("Be brief."));
    body["tools"] = json!([{"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": true}]);
    body["tool_choice"] = json!({"type": "function", "name": "add"});
    body["reasoning"] = json!({"effort": "low", "summary": "auto"});
    body["text"] =
        json!({"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"});
    body["service_tier"] = json!("flex");
    body["include"] = json!(["reasoning.encrypted_content"]);
    let (request, messages) = read(&body).unwrap();
    assert_eq!(
        (messages[0].role, messages[1].joined_text().as_ref()),
        (Role::System, "Hi")
    );
    let call = &request.call;
    assert_eq!(call.tool_choice, ToolChoice::Tool("add".to_owned()));
    assert!(
        matches!(&call.response_format, ResponseFormat::JsonSchema { name, .. } if name == "n")
    );
    assert_eq!(call.reasoning_effort.as_deref(), Some("low"));
    let passed_on =
        json!({"service_tier": "flex", "verbosity": "low", "reasoning": {"summary": "auto"}});
    assert_eq!(
        call.extra_for("openai_responses")
            .cloned()
            .map(Value::Object),
        Some(passed_on)
    );
    assert_eq!(call.extra_for("anthropic"), None);
    assert_eq!(request.echo["reasoning"], body["reasoning"]);
}

#[test]
fn items_of_the_model_are_one_turn_with_what_providers_need_back() {
    let claude = Opaque {
        kind: "anthropic.signature".to_owned(),
        bytes: b"EqQB".to_vec(),
    };
    let gemini = Opaque {
        kind: "gemini.thought_signature".to_owned(),
        bytes: vec![7],
    };
    let own =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"});
    let body = with(
        "input",
        json!([
            {"role": "user", "content": [{"type": "input_text", "text": "Add."}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
             "encrypted_content": carried::seal(&claude, None)},
            own,
            {"type": "reasoning", "summary": [], "encrypted_content": carried::seal(&gemini, Some("c1"))},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ]),
    );
    let (_, messages) = read(&body).unwrap();
    assert_eq!(
        messages
            .iter()
            .map(|message| message.role)
            .collect::<Vec<_>>(),
        [Role::User, Role::Assistant, Role::Tool]
    );
    let [
        Part::Reasoning(first),
        Part::Reasoning(second),
        Part::ToolCall(call),
    ] = &messages[1].parts[..]
    else {
        panic!("{messages:?}")
    };
    assert_eq!((first.text.as_str(), &first.opaque), ("Hm.", &Some(claude)));
    let item = serde_json::from_slice::<Value>(&second.opaque.as_ref().unwrap().bytes).unwrap();
    assert_eq!(item, own, "what is OpenAI's own goes back as it came");
    assert_eq!(call.opaque, Some(gemini));
    assert!(matches!(&messages[2].parts[0], Part::ToolResult(result) if result.name == "add"));
}

#[test]
fn a_fault_is_named_by_its_place() {
    for (body, param) in [
        (with("model", Value::Null), "model"),
        (with("input", json!([])), "input"),
        (with("input", json!(7)), "input"),
        (
            with("input", json!([{"role": "robot", "content": "x"}])),
            "input[0].role",
        ),
        (
            with(
                "input",
                json!([{"role": "user", "content": [{"text": "x"}]}]),
            ),
            "input[0].content[0].type",
        ),
        (
            with("input", json!([{"type": "computer_call"}])),
            "input[0].call_id",
        ),
        (
            with("input", json!([{"type": "item_reference", "id": "msg_1"}])),
            "input[0].id",
        ),
        (with("background", json!(true)), "background"),
        (with("conversation", json!("conv_1")), "conversation"),
        (with("tools", json!([{"name": "add"}])), "tools[0].type"),
        (with("tools", json!([{"type": "custom"}])), "tools[0].name"),
        (with("text", json!({"format": {"type": "grammar"}})), "text"),
        (with("temperature", json!("warm")), "temperature"),
    ] {
        let error = read(&body).unwrap_err().object(Protocol::Openai);
        let shown = (&error["error"]["type"], &error["error"]["param"]);
        assert_eq!(
            shown,
            (&json!("invalid_request_error"), &json!(param)),
            "{body}"
        );
    }
    let mut body = with("previous_response_id", json!("resp_1"));
    body["store"] = json!(false);
    assert_eq!(
        read(&body).unwrap_err().object(Protocol::Openai)["error"]["param"],
        "store"
    );
}
