//! Checks that a call has no more messages, parts and tools than allowed.

use crate::{
    config::limits::{MAX_MESSAGES, MAX_PARTS, MAX_TOOLS},
    domain::message::ModelCall,
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
    beyond.map(fault).collect()
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
}
