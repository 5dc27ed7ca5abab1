//! Tests of `model`, one for each guarantee.

use prost_types::value::Kind;

use super::*;
use crate::domain::message::Part;

fn model_call(wire: v1::ModelCall) -> Result<ModelCall, Violations> {
    let mut faults = Violations::default();
    let call = read_model_call(
        &Path::Root("invocation").field("model"),
        wire,
        false,
        &mut faults,
    );
    faults.or(call)
}

fn hello() -> v1::Message {
    let content = v1::part::Content::Text(v1::TextPart {
        text: "hello".to_owned(),
    });
    let part = v1::Part {
        content: Some(content),
        ..v1::Part::default()
    };
    v1::Message {
        role: v1::Role::User.into(),
        parts: vec![part],
        ..v1::Message::default()
    }
}

fn call() -> v1::ModelCall {
    v1::ModelCall {
        messages: vec![hello()],
        ..v1::ModelCall::default()
    }
}

fn fields(wire: v1::ModelCall) -> Vec<String> {
    model_call(wire)
        .unwrap_err()
        .kept()
        .iter()
        .map(|fault| fault.field.clone())
        .collect()
}

fn tool(name: &str, schema: &str) -> v1::ToolDefinition {
    let name = name.to_owned();
    let input_schema_json = schema.to_owned();
    v1::ToolDefinition {
        name,
        input_schema_json,
        ..v1::ToolDefinition::default()
    }
}

fn value(kind: Kind) -> prost_types::Value {
    prost_types::Value { kind: Some(kind) }
}

#[test]
fn the_smallest_call_leaves_everything_to_the_provider() {
    let read = model_call(call()).unwrap();
    assert_eq!(
        read,
        ModelCall {
            messages: read.messages.clone(),
            ..ModelCall::default()
        }
    );
}

#[test]
fn words_in_short_are_one_more_message_of_the_user() {
    let short = |messages| v1::ModelCall {
        messages,
        text: "hello".to_owned(),
        ..v1::ModelCall::default()
    };
    assert_eq!(
        model_call(short(Vec::new())),
        model_call(call()),
        "the smallest call"
    );
    let system = v1::Message {
        role: v1::Role::System.into(),
        text: "Be brief.".to_owned(),
        ..v1::Message::default()
    };
    let read = model_call(short(vec![system])).unwrap();
    let messages: Vec<_> = read
        .messages
        .iter()
        .map(|message| (message.role, message.parts.clone()))
        .collect();
    let text_part = |text: &str| vec![Part::Text(text.to_owned())];
    assert_eq!(
        messages,
        [
            (Role::System, text_part("Be brief.")),
            (Role::User, text_part("hello"))
        ]
    );
}

#[test]
fn every_fault_of_a_call_is_reported_at_once() {
    let wire = v1::ModelCall {
        messages: Vec::new(),
        tools: vec![tool("", "{}"), tool("a", "{"), tool("a", "[]")],
        tool_choice: Some(v1::ToolChoice {
            mode: v1::ToolChoiceMode::Named.into(),
            name: "b".to_owned(),
        }),
        sampling: Some(v1::Sampling {
            temperature: Some(2.1),
            top_p: Some(f64::NAN),
            top_k: Some(0),
            seed: Some(-1),
            frequency_penalty: Some(-2.5),
            presence_penalty: Some(2.0),
        }),
        max_output_tokens: Some(0),
        response_format: Some(v1::ResponseFormat {
            kind: v1::ResponseFormatKind::JsonSchema.into(),
            name: "n".repeat(65),
            schema_json: "{]".to_owned(),
            strict: None,
        }),
        stop: vec!["END".to_owned(), String::new()],
        extra: Some(prost_types::Struct {
            fields: [(
                "logit_bias".to_owned(),
                value(Kind::NumberValue(f64::INFINITY)),
            )]
            .into(),
        }),
        ..v1::ModelCall::default()
    };
    let at = |field: &str| format!("invocation.model.{field}");
    let expected = [
        "messages",
        "max_output_tokens",
        "stop[1]",
        "tools[0].name",
        "tools[1].input_schema_json",
        "tools[2].name",
        "tools[2].input_schema_json",
        "tool_choice.name",
        "response_format.name",
        "response_format.schema_json",
        "sampling.temperature",
        "sampling.top_p",
        "sampling.frequency_penalty",
        "sampling.top_k",
        r#"extra["logit_bias"]"#,
    ];
    assert_eq!(fields(wire), expected.map(at));
}

#[test]
fn an_unknown_mode_is_reported_by_its_number() {
    let wire = v1::ModelCall {
        tool_choice: Some(v1::ToolChoice {
            mode: 9,
            name: String::new(),
        }),
        response_format: Some(v1::ResponseFormat {
            kind: 7,
            ..v1::ResponseFormat::default()
        }),
        ..call()
    };
    let faults = model_call(wire).unwrap_err();
    let reasons: Vec<&str> = faults
        .kept()
        .iter()
        .map(|fault| fault.reason.as_str())
        .collect();
    assert_eq!(reasons, ["9 is no mode", "7 is no kind of answer"]);
}

#[test]
fn a_schema_or_name_where_none_is_taken_is_a_fault() {
    let wire = v1::ModelCall {
        tool_choice: Some(v1::ToolChoice {
            mode: v1::ToolChoiceMode::Auto.into(),
            name: "a".to_owned(),
        }),
        response_format: Some(v1::ResponseFormat {
            schema_json: "{}".to_owned(),
            ..v1::ResponseFormat::default()
        }),
        ..call()
    };
    assert_eq!(
        fields(wire),
        [
            "invocation.model.tool_choice.name",
            "invocation.model.response_format.schema_json"
        ]
    );
}

#[test]
fn a_tool_choice_is_read_in_each_of_its_modes() {
    for (mode, name, expected) in [
        (v1::ToolChoiceMode::Unspecified, "", ToolChoice::Unset),
        (v1::ToolChoiceMode::Auto, "", ToolChoice::Auto),
        (v1::ToolChoiceMode::None, "", ToolChoice::None),
        (v1::ToolChoiceMode::Required, "", ToolChoice::Required),
        (
            v1::ToolChoiceMode::Named,
            "a",
            ToolChoice::Tool("a".to_owned()),
        ),
    ] {
        let choice = v1::ToolChoice {
            mode: mode.into(),
            name: name.to_owned(),
        };
        let wire = v1::ModelCall {
            tools: vec![tool("a", "")],
            tool_choice: Some(choice),
            ..call()
        };
        assert_eq!(model_call(wire).unwrap().tool_choice, expected);
    }
}

#[test]
fn raw_json_is_passed_on_as_written_and_defaults_are_filled_in() {
    let schema = "{ \"b\": 1.0,\n \"a\": 2 }";
    let wire = v1::ModelCall {
        tools: vec![tool("raw", schema), tool("none", "")],
        response_format: Some(v1::ResponseFormat {
            kind: v1::ResponseFormatKind::JsonSchema.into(),
            schema_json: schema.to_owned(),
            ..v1::ResponseFormat::default()
        }),
        ..call()
    };
    let read = model_call(wire).unwrap();
    assert_eq!(
        (
            read.tools[0].parameters.as_str(),
            read.tools[1].parameters.as_str()
        ),
        (schema, NO_ARGUMENTS)
    );
    let expected = ResponseFormat::JsonSchema {
        name: "response".into(),
        description: None,
        schema: schema.into(),
        strict: false,
    };
    assert_eq!(read.response_format, expected);
}

#[test]
fn extra_keeps_whole_numbers_whole_and_nothing_else() {
    let list = prost_types::ListValue {
        values: vec![
            value(Kind::NumberValue(5.0)),
            value(Kind::NumberValue(0.5)),
            value(Kind::NumberValue(-3.0)),
        ],
    };
    let inner = prost_types::Struct {
        fields: [("big".to_owned(), value(Kind::NumberValue(1e300)))].into(),
    };
    let fields = [
        ("list".to_owned(), value(Kind::ListValue(list))),
        ("inner".to_owned(), value(Kind::StructValue(inner))),
        ("none".to_owned(), value(Kind::NullValue(0))),
        ("yes".to_owned(), value(Kind::BoolValue(true))),
    ];
    let wire = v1::ModelCall {
        extra: Some(prost_types::Struct {
            fields: fields.into(),
        }),
        ..call()
    };
    let expected = serde_json::json!({"list": [5, 0.5, -3], "inner": {"big": 1e300}, "none": null, "yes": true});
    assert_eq!(Value::Object(model_call(wire).unwrap().extra), expected);
}
