//! Every parameter, through every protocol, to every dialect: it is sent, obtained in another way
//! and reported, left out and reported, or refused by its name, as one table has it.

use std::fmt::Write as _;

use hyper::Method;
use relight::internals::{
    domain::{
        left_out::{CallParameter, DIALECTS, Handling, ParameterRow, TABLE},
        target::Dialect,
    },
    grpc::v1::{
        ImagePart, Invocation, InvokeWithRecoveryRequest, Message, ModelCall, Part, ResponseFormat,
        ResponseFormatKind, Role, Sampling, TextPart, ToolChoice, ToolChoiceMode, ToolDefinition,
        image_part, invocation::Call, part::Content,
        recovery_service_client::RecoveryServiceClient,
    },
};
use serde_json::{Value, json};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::{
    dialect::stream,
    front::{Answer, Front},
    relight::asking,
    told::{Told, Words},
    upstream::{Reply, Request, Upstream},
};

const CHAT: usize = 0;
const MESSAGES: usize = 1;
const RESPONSES: usize = 2;
const CONTRACT: usize = 3;
/// The paths of the protocols of the HTTP front, in the order of the table's columns.
const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/messages", "/v1/responses"];
const PIXEL: &str = "data:image/png;base64,aGk=";
const BETA: &str = "zz-beta-1";

/// Relight before one target of each dialect, each on the route of its dialect's name.
struct EveryDialect {
    front: Front,
    upstreams: Vec<Upstream>,
}

// === impl EveryDialect ===

impl EveryDialect {
    async fn start() -> Self {
        let (mut providers, mut targets, mut routes) =
            (String::new(), String::new(), String::new());
        let mut upstreams = Vec::new();
        for (index, dialect) in DIALECTS.into_iter().enumerate() {
            let upstream = Upstream::start().await;
            upstream.otherwise(answer(dialect));
            let (name, url) = (dialect.as_str(), upstream.base_url());
            // Only Bedrock has regions.
            let region = match dialect {
                Dialect::Bedrock => ", region: eu-test-1",
                _ => "",
            };
            let _ = writeln!(
                providers,
                "  p{index}: {{ dialect: {name}, base_url: \"{url}\", api_key: k, allow_plaintext: true{region} }}"
            );
            let _ = writeln!(targets, "  t{index}: {{ provider: p{index}, model: m }}");
            let _ = writeln!(routes, "  {name}: {{ targets: [t{index}] }}");
            upstreams.push(upstream);
        }
        let front = Front::start(&format!(
            "providers:\n{providers}targets:\n{targets}routes:\n{routes}"
        ))
        .await;
        Self { front, upstreams }
    }

    /// Sends the parameter through a protocol of the HTTP front; returns the answer, and the
    /// request that its provider got.
    async fn ask(
        &self,
        row: &ParameterRow,
        protocol: usize,
        dialect: usize,
    ) -> (Answer, Option<Request>) {
        let before = self.upstreams[dialect].requests().len();
        let mut body = body(row, protocol);
        body["model"] = json!(DIALECTS[dialect].as_str());
        let betas = [("anthropic-beta", BETA)];
        let headers: &[(&str, &str)] = match row.parameter {
            CallParameter::Betas => &betas,
            _ => &[],
        };
        let answer = self
            .front
            .send(Method::POST, PATHS[protocol], headers, body.to_string())
            .await;
        let request = self.upstreams[dialect].requests().get(before).cloned();
        (answer, request)
    }
}

/// An answer that is whole whatever is demanded of it.
fn answer(dialect: Dialect) -> Reply {
    let words = Words {
        reasoning: Vec::new(),
        text: vec!["{}".to_owned()],
        calls: Vec::new(),
        is_numbered: true,
    };
    stream(&Told::of(dialect, &words).events.concat())
}

fn schema() -> Value {
    json!({"type": "object", "properties": {}})
}

/// A value of the parameter in the words of this protocol.
fn value(row: &ParameterRow, protocol: usize) -> Value {
    use CallParameter as P;
    match row.parameter {
        P::MaxOutputTokens => json!(3131),
        P::Temperature => json!(0.6875),
        P::TopP => json!(0.5625),
        P::TopK => json!(373_737),
        P::Stop => json!(["HALT-HERE"]),
        P::Seed => json!(471_147),
        P::FrequencyPenalty => json!(0.8125),
        P::PresencePenalty => json!(0.4375),
        P::ReasoningEffort => json!("medium"),
        P::ExtremeEffort => json!("xhigh"),
        P::OneToolAtOnce => json!(protocol == MESSAGES),
        P::NoTool if protocol == MESSAGES => json!({"type": "none"}),
        P::NoTool => json!("none"),
        P::AnyTool if protocol == MESSAGES => json!({"type": "any"}),
        P::AnyTool => json!("required"),
        P::NamedTool => match protocol {
            CHAT => json!({"type": "function", "function": {"name": "look"}}),
            MESSAGES => json!({"type": "tool", "name": "look"}),
            _ => json!({"type": "function", "name": "look"}),
        },
        P::JsonObject => json!({"type": "json_object"}),
        P::JsonSchema if protocol == CHAT => {
            json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema()}})
        }
        P::JsonSchema => json!({"type": "json_schema", "name": "a", "schema": schema()}),
        P::LaterInstructions => json!("system"),
        P::SpeakerName => json!("zz-name"),
        P::CacheMarks => json!({"type": "ephemeral"}),
        P::Betas => json!(BETA),
        P::Extra("logit_bias") => json!({"77123": -1}),
        P::Extra("prediction") => json!({"type": "content", "content": "zz-prediction"}),
        P::ImageDetail | P::Extra("verbosity") => json!("low"),
        P::StrictTool | P::Extra("store") => json!(true),
        P::Extra(name) => json!(format!("zz-{name}")),
        P::Internal => match row.name {
            "metadata" => json!({"team": "zz-label"}),
            "user" => json!("zz-label"),
            "n above 1" => json!(2),
            "log probabilities" if protocol == RESPONSES => json!(["message.output_text.logprobs"]),
            "top_logprobs" => json!(3),
            "audio" => json!({"voice": "alloy"}),
            _ => json!(true),
        },
    }
}

/// The texts of which a request that has the parameter holds one.
fn shown(row: &ParameterRow) -> Vec<String> {
    use CallParameter as P;
    let fixed: &[&str] = match row.parameter {
        P::ReasoningEffort => &["\"medium\"", "\"MEDIUM\""],
        P::ExtremeEffort => &["\"xhigh\""],
        P::OneToolAtOnce => &[
            "\"parallel_tool_calls\":false",
            "\"disable_parallel_tool_use\":true",
        ],
        P::NoTool => &[
            "\"tool_choice\":\"none\"",
            "\"type\":\"none\"",
            "\"mode\":\"NONE\"",
        ],
        P::AnyTool => &[
            "\"tool_choice\":\"required\"",
            "\"type\":\"any\"",
            "\"mode\":\"ANY\"",
            "\"any\":{}",
        ],
        P::NamedTool => &[
            "\"function\":{\"name\":\"look\"}",
            "\"tool_choice\":{\"type\":\"function\"",
            "\"type\":\"tool\"",
            "\"allowedFunctionNames\":[\"look\"]",
            "\"tool\":{\"name\":\"look\"}",
        ],
        P::JsonObject => &["\"json_object\"", "\"application/json\""],
        P::JsonSchema => &["\"json_schema\"", "\"responseJsonSchema\""],
        P::StrictTool => &["\"strict\":true"],
        P::LaterInstructions => &["\"role\":\"system\""],
        P::ImageDetail => &["\"detail\":\"low\""],
        P::CacheMarks => &["ephemeral"],
        P::Stop => &["HALT-HERE"],
        P::Betas => &[BETA],
        P::Extra("verbosity") => &["\"verbosity\":\"low\""],
        P::Extra("store") => &["\"store\":true"],
        P::Extra("logit_bias") => &["77123"],
        P::Extra("prediction") => &["zz-prediction"],
        P::Internal => &["zz-label"],
        _ => &[],
    };
    if fixed.is_empty() {
        return vec![value(row, CHAT).to_string()];
    }
    fixed.iter().map(|text| (*text).to_owned()).collect()
}

/// A request of the HTTP front that has the parameter.
fn body(row: &ParameterRow, protocol: usize) -> Value {
    let mut body = match protocol {
        CHAT => {
            let look =
                json!({"type": "function", "function": {"name": "look", "parameters": schema()}});
            json!({"messages": [{"role": "user", "content": "Hi"}], "tools": [look]})
        }
        MESSAGES => {
            let look = json!({"name": "look", "input_schema": schema()});
            json!({"messages": [{"role": "user", "content": "Hi"}], "tools": [look], "max_tokens": 4000})
        }
        _ => {
            let look = json!({"type": "function", "name": "look", "parameters": schema(), "strict": false});
            json!({"input": "Hi", "tools": [look]})
        }
    };
    let value = value(row, protocol);
    match row.fields[protocol] {
        "messages[].name" => body["messages"][0]["name"] = value,
        "messages[].role" => body["messages"] = instructed_later(&value),
        "input[].role" => body["input"] = instructed_later(&value),
        "tools[].function.strict" => body["tools"][0]["function"]["strict"] = value,
        "tools[].strict" => body["tools"][0]["strict"] = value,
        "image_url.detail" => {
            let image = json!({"type": "image_url", "image_url": {"url": PIXEL, "detail": value}});
            body["messages"][0]["content"] = json!([image]);
        }
        "input_image.detail" => {
            let image = json!({"type": "input_image", "image_url": PIXEL, "detail": value});
            body["input"] = json!([{"role": "user", "content": [image]}]);
        }
        "cache_control" => {
            body["system"] = json!([{"type": "text", "text": "Be brief.", "cache_control": value}]);
        }
        "anthropic-beta" => {}
        "tool_choice.disable_parallel_tool_use" => {
            body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": value});
        }
        field => match field.split_once('.') {
            Some((object, field)) => body[object][field] = value,
            None => body[field] = value,
        },
    }
    body
}

/// A conversation with a message of this role behind the model's.
fn instructed_later(role: &Value) -> Value {
    json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": role, "content": "Be brief."},
        {"role": "user", "content": "Go on."},
    ])
}

/// An invocation of the contract that has the parameter.
fn invocation(row: &ParameterRow, route: &str) -> Invocation {
    use CallParameter as P;
    let mut invocation = asking("Hi");
    route.clone_into(&mut invocation.route);
    let value = value(row, CONTRACT);
    if row.fields[CONTRACT] == "labels" {
        invocation.labels = [(row.name.to_owned(), "zz-label".to_owned())].into();
        return invocation;
    }
    let Some(Call::Model(call)) = &mut invocation.call else {
        panic!("{invocation:?}")
    };
    call.tools = vec![ToolDefinition {
        name: "look".to_owned(),
        input_schema_json: schema().to_string(),
        ..ToolDefinition::default()
    }];
    if let Some(name) = row.fields[CONTRACT].strip_prefix("extra.") {
        call.extra = Some(prost_types::Struct {
            fields: [(name.to_owned(), in_contract(&value))].into(),
        });
        return invocation;
    }
    let mut sampling = Sampling::default();
    match row.parameter {
        P::MaxOutputTokens => call.max_output_tokens = Some(3131),
        P::Temperature => sampling.temperature = value.as_f64(),
        P::TopP => sampling.top_p = value.as_f64(),
        P::TopK => sampling.top_k = Some(373_737),
        P::Seed => sampling.seed = value.as_i64(),
        P::FrequencyPenalty => sampling.frequency_penalty = value.as_f64(),
        P::PresencePenalty => sampling.presence_penalty = value.as_f64(),
        P::Stop => call.stop = vec!["HALT-HERE".to_owned()],
        P::ReasoningEffort | P::ExtremeEffort => {
            value
                .as_str()
                .unwrap()
                .clone_into(&mut call.reasoning_effort);
        }
        P::OneToolAtOnce => call.parallel_tool_calls = Some(false),
        P::NoTool => choose(call, ToolChoiceMode::None),
        P::AnyTool => choose(call, ToolChoiceMode::Required),
        P::NamedTool => choose(call, ToolChoiceMode::Named),
        P::JsonObject => demand(call, ResponseFormatKind::JsonObject),
        P::JsonSchema => demand(call, ResponseFormatKind::JsonSchema),
        P::StrictTool => call.tools[0].strict = Some(true),
        P::LaterInstructions => {
            let said = |role: Role, text: &str| Message {
                role: role.into(),
                parts: vec![Part {
                    content: Some(Content::Text(TextPart {
                        text: text.to_owned(),
                    })),
                    ..Part::default()
                }],
                ..Message::default()
            };
            call.messages.extend([
                said(Role::Assistant, "Hello."),
                said(Role::System, "Be brief."),
                said(Role::User, "Go on."),
            ]);
        }
        P::SpeakerName => "zz-name".clone_into(&mut call.messages[0].name),
        P::ImageDetail => {
            let image = ImagePart {
                source: Some(image_part::Source::Data(b"hi".to_vec())),
                mime_type: "image/png".to_owned(),
                detail: "low".to_owned(),
            };
            call.messages[0].parts.push(Part {
                content: Some(Content::Image(image)),
                ..Part::default()
            });
        }
        P::CacheMarks | P::Betas | P::Extra(_) | P::Internal => {
            panic!("the contract has no place for {row:?}")
        }
    }
    call.sampling = Some(sampling);
    invocation
}

fn choose(call: &mut ModelCall, mode: ToolChoiceMode) {
    let name = match mode {
        ToolChoiceMode::Named => "look".to_owned(),
        _ => String::new(),
    };
    call.tool_choice = Some(ToolChoice {
        mode: mode.into(),
        name,
    });
}

fn demand(call: &mut ModelCall, kind: ResponseFormatKind) {
    let schema_json = match kind {
        ResponseFormatKind::JsonSchema => schema().to_string(),
        _ => String::new(),
    };
    call.response_format = Some(ResponseFormat {
        kind: kind.into(),
        schema_json,
        ..ResponseFormat::default()
    });
}

fn in_contract(value: &Value) -> prost_types::Value {
    use prost_types::value::Kind;
    let kind = match value {
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(value) => Kind::NumberValue(value.as_f64().unwrap()),
        Value::String(value) => Kind::StringValue(value.clone()),
        Value::Object(fields) => Kind::StructValue(prost_types::Struct {
            fields: fields
                .iter()
                .map(|(name, value)| (name.clone(), in_contract(value)))
                .collect(),
        }),
        other => panic!("{other}"),
    };
    prost_types::Value { kind: Some(kind) }
}

/// Holds a request and what was reported of it against the table.
fn check(row: &ParameterRow, dialect: Dialect, request: &Request, adapted: &str, place: &str) {
    let mut sent = request.body.to_string();
    sent += request.header("anthropic-beta").unwrap_or_default();
    let handling = row.handling(dialect);
    let is_sent = shown(row).iter().any(|text| sent.contains(text));
    let place = format!("{} by {place} to {}", row.name, dialect.as_str());
    assert_eq!(is_sent, handling == Handling::Sent, "{place}: {sent}");
    let words = match handling {
        Handling::Missing => format!("{} left out", row.name),
        Handling::Emulated => format!("{} emulated", row.name),
        Handling::Sent | Handling::Label | Handling::Refused => String::new(),
    };
    assert_eq!(adapted, words, "{place}: {sent}");
}

#[tokio::test]
async fn every_parameter_is_sent_or_reported_or_refused_through_every_protocol_of_the_front() {
    let relight = EveryDialect::start().await;
    for row in &TABLE {
        for protocol in [CHAT, MESSAGES, RESPONSES] {
            let field = row.fields[protocol];
            if field.is_empty() {
                continue;
            }
            for (index, dialect) in DIALECTS.into_iter().enumerate() {
                let (answer, request) = relight.ask(row, protocol, index).await;
                if row.handling(dialect) == Handling::Refused {
                    assert_eq!(answer.status, 400, "{field}: {answer:?}");
                    assert_eq!(answer.json()["error"]["param"], field, "{answer:?}");
                    assert_eq!(request.map(|request| request.body), None, "{field}");
                    continue;
                }
                let adapted = answer.header("x-relight-adapted").unwrap_or_default();
                let request = request.unwrap_or_else(|| panic!("{row:?}: {answer:?}"));
                check(row, dialect, &request, adapted, PATHS[protocol]);
            }
        }
    }
}

#[tokio::test]
async fn every_parameter_is_sent_or_reported_or_refused_through_the_contract() {
    let relight = EveryDialect::start().await;
    let address = format!("http://{}", relight.front.grpc_address);
    let mut client = RecoveryServiceClient::connect(address).await.unwrap();
    for row in TABLE.iter().filter(|row| !row.fields[CONTRACT].is_empty()) {
        for (index, dialect) in DIALECTS.into_iter().enumerate() {
            let before = relight.upstreams[index].requests().len();
            let request = InvokeWithRecoveryRequest {
                invocation: Some(invocation(row, dialect.as_str())),
            };
            let answered = client.invoke_with_recovery(request).await;
            if row.handling(dialect) == Handling::Refused {
                let status = answered.unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument, "{row:?}: {status:?}");
                let name = row.fields[CONTRACT].trim_start_matches("extra.");
                let violations = status.get_details_bad_request().unwrap().field_violations;
                assert_eq!(
                    violations[0].field,
                    format!("invocation.model.extra[\"{name}\"]")
                );
                continue;
            }
            let response = answered.unwrap().into_inner();
            let adapted = &response.attempts[0].adaptation;
            let request = relight.upstreams[index].requests()[before].clone();
            check(row, dialect, &request, adapted, "the contract");
        }
    }
}

#[test]
fn the_page_shows_the_whole_table() {
    let dialects = DIALECTS.map(|dialect| format!("`{}`", dialect.as_str()));
    let mut table = format!(
        "| Parameter | chat completions | messages | responses | gRPC | {} |\n{}|\n",
        dialects.join(" | "),
        "|---".repeat(10)
    );
    for row in &TABLE {
        let fields = row.fields.map(|field| match field {
            "" => "–".to_owned(),
            field => format!("`{field}`"),
        });
        let handling = row.dialects.map(|handling| match handling {
            Handling::Sent => "sent",
            Handling::Emulated => "emulated",
            Handling::Missing => "told",
            Handling::Label => "label",
            Handling::Refused => "refused",
        });
        let (fields, handling) = (fields.join(" | "), handling.join(" | "));
        let _ = writeln!(table, "| {} | {fields} | {handling} |", row.name);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/dialects.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains(&table),
        "docs/dialects.md should hold:\n{table}"
    );
}
