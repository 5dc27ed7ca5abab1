//! A neutral call in the words of chat completions.
//!
//! What the caller put into `extra` is merged last and as it is: it is the way to everything that
//! is not modelled.

use serde_json::json;

use super::{
    ChatDialect,
    json::{ArrayWriter, ObjectWriter},
    messages,
};
use crate::domain::{
    left_out::{extra_in, sent_stops},
    message::{ModelCall, ResponseFormat, Role, ToolChoice, ToolDefinition},
    own_fields,
    target::{Dialect, PrefillMark},
    wire::ProviderRequest,
};

/// Returns the request's JSON body.
pub(super) fn body(call: &ProviderRequest, dialect: &ChatDialect<'_>) -> Vec<u8> {
    // A sixteenth more for what is escaped, so that a long body is not moved while it is written.
    let expected = call.call.approximate_bytes();
    let mut body = Vec::with_capacity(1024 + expected + expected / 16);
    write(&call.target.model, &call.call, dialect, &mut body);
    body
}

/// Writes the body.
pub(super) fn write(model: &str, call: &ModelCall, dialect: &ChatDialect<'_>, into: &mut Vec<u8>) {
    let extra = extra_in(call, Dialect::OpenaiChat);
    let mut body = ObjectWriter::ending_with(extra.as_deref(), into);
    body.text("model", model);
    let begun = call
        .messages
        .last()
        .is_some_and(|message| message.role == Role::Assistant);
    if begun && dialect.prefill_mark == PrefillMark::ContinueFinalMessage {
        body.value("continue_final_message", true);
        body.value("add_generation_prompt", false);
    }
    let is_prefix = begun && dialect.prefill_mark == PrefillMark::Prefix;
    body.field("messages", |into| {
        messages::write(&call.messages, is_prefix, dialect, into);
    });
    body.value("stream", dialect.stream);
    if dialect.stream_usage {
        body.object("stream_options", |options| {
            options.value("include_usage", true);
        });
    }
    if !call.tools.is_empty() {
        body.field("tools", |into| write_tools(&call.tools, into));
        write_tool_choice(&call.tool_choice, &mut body);
        if let Some(parallel) = call.parallel_tool_calls.filter(|_| dialect.parallel_tools) {
            body.value("parallel_tool_calls", parallel);
        }
    }
    let sampling = &call.sampling;
    let numbers = [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("frequency_penalty", sampling.frequency_penalty),
        ("presence_penalty", sampling.presence_penalty),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            body.value(name, value);
        }
    }
    if let Some(top_k) = sampling.top_k {
        body.value("top_k", top_k);
    }
    if let Some(seed) = sampling.seed {
        body.value("seed", seed);
    }
    if let Some(limit) = call.max_output_tokens {
        body.value(dialect.output_limit_field.as_str(), limit);
    }
    if let Some(effort) = &call.reasoning_effort {
        body.text("reasoning_effort", effort);
    }
    write_response_format(&call.response_format, &mut body);
    let stops = sent_stops(call, Dialect::OpenaiChat);
    if !stops.is_empty() {
        body.value("stop", json!(stops));
    }
    body.end();
}

fn write_tools(tools: &[ToolDefinition], into: &mut Vec<u8>) {
    let mut written = ArrayWriter::new(into);
    for definition in tools {
        let write = |tool: &mut ObjectWriter<'_>| {
            tool.word("type", "function");
            tool.object("function", |function| {
                function.text("name", &definition.name);
                if !definition.description.is_empty() {
                    function.text("description", &definition.description);
                }
                let schema = definition.parameters.trim();
                if !schema.is_empty() {
                    function.raw("parameters", schema);
                }
                if let Some(strict) = definition.strict {
                    function.value("strict", strict);
                }
            });
        };
        let own = own_fields::fields_in(Dialect::OpenaiChat, definition.own.as_ref());
        let own = Some(&own).filter(|own| !own.is_empty());
        written.changed_by(own, write, |own, tool| {
            own_fields::merge(tool, own);
        });
    }
    written.end();
}

fn write_tool_choice(choice: &ToolChoice, body: &mut ObjectWriter<'_>) {
    let value = match choice {
        ToolChoice::Unset => return,
        ToolChoice::Auto => json!("auto"),
        ToolChoice::None => json!("none"),
        ToolChoice::Required => json!("required"),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    };
    body.value("tool_choice", value);
}

fn write_response_format(format: &ResponseFormat, body: &mut ObjectWriter<'_>) {
    match format {
        ResponseFormat::Text => {}
        ResponseFormat::JsonObject => body.value("response_format", json!({"type": "json_object"})),
        ResponseFormat::JsonSchema {
            name,
            description,
            schema,
            strict,
        } => body.object("response_format", |format| {
            format.word("type", "json_schema");
            format.object("json_schema", |named| {
                named.text("name", name);
                if let Some(description) = description {
                    named.text("description", description);
                }
                named.raw("schema", schema.trim());
                named.value("strict", *strict);
            });
        }),
    }
}
