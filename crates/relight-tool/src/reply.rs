//! What a tool returned, out of what its server sent.

use rmcp::model::{ServerResult, Tool};
use serde_json::Value;

use super::errors;
use crate::domain::{
    failure::{ProviderError, TransportFault},
    invocation::SideEffects,
    tool::{ToolReply, ToolSpec},
};

/// Returns the reply of an execution, from its result as it was sent; what the tool itself marked
/// as an error is one.
pub(super) fn of_sent(result: String) -> Result<ToolReply, ProviderError> {
    match ToolReply::of_mcp(result) {
        Some((reply, false)) => Ok(reply),
        Some((reply, true)) => Err(errors::of_tool(reply)),
        None => Err(protocol("the response is no result of a tool")),
    }
}

/// Returns the same for a result that the SDK read.
pub(super) fn of_result(result: &ServerResult) -> ProviderError {
    match result {
        ServerResult::InputRequiredResult(_) => errors::of_tool(ToolReply::of_text(
            "the tool requires input from a person: this client does not support elicitation",
        )),
        ServerResult::CreateTaskResult(_) => {
            protocol("the tool returned a task in place of a result")
        }
        _ => protocol("the response is no result of a tool"),
    }
}

/// A tool as it is listed.
pub(super) fn of_tool(tool: &Tool) -> ToolSpec {
    let schema = |object: &serde_json::Map<String, Value>| {
        std::sync::Arc::new(Value::Object(object.clone()))
    };
    let hints = tool.annotations.as_ref();
    ToolSpec {
        name: tool.name.to_string(),
        description: tool.description.as_deref().unwrap_or_default().to_owned(),
        input_schema: schema(&tool.input_schema),
        output_schema: tool.output_schema.as_deref().map(schema),
        annotations: SideEffects {
            read_only: hints.and_then(|hints| hints.read_only_hint),
            idempotent: hints.and_then(|hints| hints.idempotent_hint),
            destructive: hints.and_then(|hints| hints.destructive_hint),
            open_world: hints.and_then(|hints| hints.open_world_hint),
        },
        sent: serde_json::to_value(tool).ok().map(std::sync::Arc::new),
    }
}

fn protocol(words: &str) -> ProviderError {
    errors::fault(TransportFault::Protocol, words)
}
