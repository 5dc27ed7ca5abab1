//! Checks that a call has no more messages, parts and tools than allowed.

use crate::{config::limits::LimitsConfig, domain::message::ModelCall};

/// What of a call is more than its limit: each field and why.
pub(super) fn faults(limits: &LimitsConfig, call: &ModelCall) -> Vec<(String, String)> {
    let parts = call
        .messages
        .iter()
        .map(|message| message.parts.len())
        .sum();
    let counted = [
        ("messages", "messages", call.messages.len(), limits.messages),
        ("messages", "parts", parts, limits.parts),
        ("tools", "tools", call.tools.len(), limits.tools),
    ];
    let beyond = counted.into_iter().filter(|(_, _, count, max)| count > max);
    let fault = |(field, what, count, max)| {
        (
            format!("invocation.model.{field}"),
            format!("{count} {what} are more than server.limits.{what} allows ({max})"),
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
        let limits = LimitsConfig {
            messages: 2,
            parts: 2,
            tools: 1,
            ..LimitsConfig::default()
        };
        let tool = ToolDefinition {
            name: "t".into(),
            description: String::new(),
            parameters: String::new(),
            ..ToolDefinition::default()
        };
        let mut call = ModelCall {
            messages: vec![Message::text(Role::User, "a"); 2],
            tools: vec![tool.clone()],
            ..ModelCall::default()
        };
        assert!(faults(&limits, &call).is_empty());
        call.messages.push(Message::text(Role::User, "b"));
        call.tools.push(tool);
        let reasons: Vec<String> = faults(&limits, &call)
            .into_iter()
            .map(|(_, why)| why)
            .collect();
        assert_eq!(reasons.len(), 3, "{reasons:?}");
        assert!(
            reasons[2].contains("2 tools are more than server.limits.tools allows (1)"),
            "{reasons:?}"
        );
    }
}
