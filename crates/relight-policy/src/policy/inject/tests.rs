//! The guarantees of context injection, over every dialect, end of history and failure class.

use serde_json::json;

use crate::domain::{
    failure::{Failure, FailureClass},
    message::{
        Message, ModelCall, Opaque, Part, Reasoning, Role, ToolCall, ToolDefinition, ToolResult,
    },
    target::{Capabilities, Dialect, Target},
};

mod legality;
mod policy;
mod render;
mod repairs;
mod rules;
mod untrusted;
mod wording;

const DIALECTS: [Dialect; 6] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Bedrock,
    Dialect::Scripted,
];

fn target(
    dialect: Dialect,
    family: &str,
    tail_system_message: bool,
    user_after_tool: bool,
) -> Target {
    Target {
        id: "target".into(),
        provider: "provider".into(),
        family: family.into(),
        dialect,
        model: "model".into(),
        credential: "credential".into(),
        endpoint: "https://model.test".into(),
        capabilities: Capabilities {
            tail_system_message,
            user_after_tool,
            developer_role: family == "openai",
            ..Capabilities::default()
        },
        system_prompt: None,
    }
}

/// Returns every dialect with every mix of the capabilities that matter here.
fn targets() -> Vec<Target> {
    let mixes = [(true, true), (true, false), (false, true), (false, false)];
    let families = ["openai", "mistral"];
    let all = DIALECTS
        .into_iter()
        .flat_map(|dialect| mixes.map(|mix| (dialect, mix)));
    all.flat_map(|(dialect, (tail, after))| {
        families.map(|family| target(dialect, family, tail, after))
    })
    .collect()
}

/// Returns a retryable failure that reached a provider.
fn failure(class: FailureClass) -> Failure {
    Failure {
        retryable: true,
        never_sent: false,
        ..Failure::local(class, "upstream said so")
    }
}

fn tool_call(id: &str, name: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: "{\"query\":\"x\"}".into(),
        opaque: Some(Opaque {
            kind: "gemini.thought_signature".into(),
            bytes: vec![1, 2, 3],
        }),
    })
}

fn tool_result(id: &str, name: &str, content: &str, is_error: bool) -> Message {
    let result = ToolResult {
        call_id: id.into(),
        name: name.into(),
        content: content.into(),
        is_error,
    };
    Message::new(Role::Tool, vec![Part::ToolResult(result)])
}

fn tool(name: &str) -> ToolDefinition {
    let parameters = json!({
        "type": "object",
        "properties": {"date": {"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"}, "query": {"type": "string"}},
        "required": ["date"],
    });
    ToolDefinition {
        name: name.into(),
        description: "A tool.".into(),
        parameters: parameters.to_string(),
        ..ToolDefinition::default()
    }
}

fn call(messages: Vec<Message>) -> ModelCall {
    ModelCall {
        messages,
        tools: vec![tool("search"), tool("weather"), tool("calendar")],
        ..ModelCall::default()
    }
}

/// Histories by how they end.
fn histories() -> Vec<(&'static str, ModelCall)> {
    let begin = || {
        vec![
            Message::text(Role::System, "You help."),
            Message::text(Role::User, "What is the weather?"),
            Message::text(Role::Assistant, "Where?"),
            Message::text(Role::User, "In Oslo."),
        ]
    };
    let ask = || {
        let reasoning = Reasoning {
            text: "hm".into(),
            opaque: Some(Opaque {
                kind: "anthropic.signature".into(),
                bytes: vec![9],
            }),
        };
        let parts = vec![
            Part::Reasoning(reasoning),
            tool_call("a", "search"),
            tool_call("b", "weather"),
        ];
        [begin(), vec![Message::new(Role::Assistant, parts)]].concat()
    };
    let results = |failed: bool| {
        vec![
            tool_result("a", "search", "{\"error\":\"no index\"}", failed),
            tool_result("b", "weather", "rain", false),
        ]
    };
    vec![
        ("user", call(begin())),
        ("tool results", call([ask(), results(false)].concat())),
        ("failed tool result", call([ask(), results(true)].concat())),
        (
            "user after tools",
            call(
                [
                    ask(),
                    results(false),
                    vec![
                        Message::text(Role::Assistant, "Rain."),
                        Message::text(Role::User, "And tomorrow?"),
                    ],
                ]
                .concat(),
            ),
        ),
        (
            "user right after tools",
            call(
                [
                    ask(),
                    results(false),
                    vec![Message::text(Role::User, "And tomorrow?")],
                ]
                .concat(),
            ),
        ),
        (
            "assistant",
            call([begin(), vec![Message::text(Role::Assistant, "Rain.")]].concat()),
        ),
        ("dangling tool calls", call(ask())),
        ("empty", call(Vec::new())),
        (
            "instructions only",
            call(vec![Message::text(Role::System, "You help.")]),
        ),
    ]
}
