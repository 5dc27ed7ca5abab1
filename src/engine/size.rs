//! Checks that a call has no more messages, parts and tools than allowed, and no deeper schemas.

use crate::{
    config::limits::{MAX_MESSAGES, MAX_PARTS, MAX_SCHEMA_LEVELS, MAX_TOOLS},
    domain::message::{ModelCall, ResponseFormat},
};

/// Returns the parts of a call that exceed their limit: each field and the reason.
pub(super) fn faults(call: &ModelCall) -> Vec<(String, String)> {
    let parts = call
        .messages
        .iter()
        .map(|message| message.parts.len())
        .sum();
    let counted = [
        ("messages", "messages", call.messages.len(), MAX_MESSAGES),
        ("messages", "parts", parts, MAX_PARTS),
        ("tools", "tools", call.tools.len(), MAX_TOOLS),
    ];
    let beyond = counted.into_iter().filter(|(_, _, count, max)| count > max);
    let fault = |(field, what, count, max)| {
        (
            format!("invocation.model.{field}"),
            format!("{count} {what} are more than a call may have ({max})"),
        )
    };
    beyond.map(fault).chain(deep_schemas(call)).collect()
}

/// Returns the schemas that are nested deeper than allowed: the same.
fn deep_schemas(call: &ModelCall) -> impl Iterator<Item = (String, String)> {
    let is_deep = |schema: &str| levels(schema) > MAX_SCHEMA_LEVELS;
    let tools = call.tools.iter().enumerate();
    let tools = tools
        .filter(move |(_, tool)| is_deep(&tool.parameters))
        .map(|(index, _)| format!("tools[{index}].input_schema_json"));
    let response = match &call.response_format {
        ResponseFormat::JsonSchema { schema, .. } => Some(schema),
        ResponseFormat::Text | ResponseFormat::JsonObject => None,
    };
    let response = response
        .filter(|schema| is_deep(schema))
        .map(|_| "response_format.schema_json".to_owned());
    tools.chain(response).map(|field| {
        (
            format!("invocation.model.{field}"),
            format!("is nested deeper than {MAX_SCHEMA_LEVELS} levels"),
        )
    })
}

/// Returns how deep the objects and lists of a JSON text are nested.
fn levels(json: &str) -> usize {
    let mut bytes = json.bytes();
    let mut open: usize = 0;
    let mut deepest = 0;
    let mut is_text = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' if is_text => {
                bytes.next();
            }
            b'{' | b'[' if !is_text => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' | b']' if !is_text => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::{Message, Role, ToolDefinition};

    #[test]
    fn what_is_beyond_a_limit_is_named_with_it() {
        let tool = ToolDefinition {
            name: "t".into(),
            description: String::new(),
            parameters: String::new(),
            ..ToolDefinition::default()
        };
        let mut call = ModelCall {
            messages: vec![Message::text(Role::User, "a"); MAX_MESSAGES],
            tools: vec![tool.clone(); MAX_TOOLS],
            ..ModelCall::default()
        };
        assert!(faults(&call).is_empty());
        let part = call.messages[0].parts[0].clone();
        call.messages[0].parts = vec![part; MAX_PARTS];
        call.messages.push(Message::text(Role::User, "b"));
        call.tools.push(tool);
        let reasons: Vec<String> = faults(&call).into_iter().map(|(_, why)| why).collect();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(
            reasons[2].contains("1025 tools are more than a call may have (1024)"),
            "{reasons:?}"
        );
    }

    #[test]
    fn a_schema_that_is_nested_too_deep_is_named() {
        let tool = |depth: usize| ToolDefinition {
            name: "t".into(),
            parameters: format!(
                "{}\"[{{\\\"\"{}",
                "{\"a\":".repeat(depth),
                "}".repeat(depth)
            ),
            ..ToolDefinition::default()
        };
        let call = ModelCall {
            tools: vec![tool(64), tool(65)],
            ..ModelCall::default()
        };
        assert_eq!(
            faults(&call),
            [(
                "invocation.model.tools[1].input_schema_json".to_owned(),
                "is nested deeper than 64 levels".to_owned()
            )]
        );
    }
}
