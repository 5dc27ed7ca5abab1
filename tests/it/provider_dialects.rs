//! Whatever a history ends with, and whatever note was put there, its dialect's provider accepts
//! the request.

use std::sync::Arc;

use relight::internals::{
    domain::{
        completion::FinishReason,
        failure::{Failure, FailureClass},
        ids::Operation,
        invocation::InjectionMode,
        message::{
            Message, ModelCall, Opaque, Part, Reasoning, Role, ToolCall, ToolDefinition, ToolResult,
        },
        target::{Capabilities, Dialect},
        wire::{CompletionForm, ProviderRequest},
    },
    policy::inject::{InjectionPolicy, Placement, inject, repair, validators},
    provider::StreamMode,
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{attempt_in, speaking},
    upstream::{Reply, Upstream},
    wire::{ask, asking, providers},
};

const DIALECTS: [Dialect; 4] = [
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::OpenaiResponses,
    Dialect::Bedrock,
];

fn thought(kind: &str) -> Part {
    let opaque = Some(Opaque {
        kind: kind.to_owned(),
        bytes: b"c2ln".to_vec(),
    });
    Part::Reasoning(Reasoning {
        text: "hm".to_owned(),
        opaque,
    })
}

fn called(id: &str, name: &str, arguments: &str) -> Part {
    let opaque = None;
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        opaque,
    })
}

fn answered(id: &str, name: &str, is_error: bool) -> Part {
    let content = "{\"error\":\"no index\"}".to_owned();
    Part::ToolResult(ToolResult {
        call_id: id.to_owned(),
        name: name.to_owned(),
        content,
        is_error,
    })
}

fn says(role: Role, parts: Vec<Part>) -> Message {
    Message::new(role, parts)
}

type History = (&'static str, Vec<Message>);

fn text(role: Role, words: &str) -> Message {
    Message::text(role, words)
}

fn rain() -> Message {
    text(Role::Assistant, "Rain.")
}

fn beginning() -> Vec<Message> {
    vec![
        text(Role::System, "You help."),
        text(Role::Developer, "Be brief."),
        text(Role::User, "What is the weather?"),
        says(
            Role::Assistant,
            vec![
                thought("openai.encrypted_content"),
                Part::Text("Where?".to_owned()),
            ],
        ),
        text(Role::User, "In Oslo."),
    ]
}

/// A conversation whose last turn calls two tools.
fn calling() -> Vec<Message> {
    let kinds = [
        "anthropic.signature",
        "anthropic.redacted_thinking",
        "gemini.thought_signature",
        "bedrock.signature",
    ];
    let mut parts: Vec<Part> = kinds.into_iter().map(thought).collect();
    parts.extend([
        called("functions.search:0", "search", "{\"q\":1}"),
        called("b", "weather", "{broken"),
    ]);
    [beginning(), vec![says(Role::Assistant, parts)]].concat()
}

/// Conversations by how they end; each holds reasoning of every provider.
fn histories() -> Vec<History> {
    [histories_without_tools(), histories_with_tools()].concat()
}

fn histories_without_tools() -> Vec<History> {
    vec![
        ("user", beginning()),
        (
            "two users",
            [beginning(), vec![text(Role::User, "Please.")]].concat(),
        ),
        (
            "blank user",
            [
                beginning(),
                vec![rain(), text(Role::User, " "), text(Role::User, "Go on")],
            ]
            .concat(),
        ),
        (
            "instructions in the middle",
            [
                beginning(),
                vec![
                    rain(),
                    text(Role::System, "Hurry."),
                    text(Role::User, "So?"),
                ],
            ]
            .concat(),
        ),
        (
            "instructions after the user",
            [beginning(), vec![text(Role::Developer, "Hurry.")]].concat(),
        ),
        ("assistant", [beginning(), vec![rain()]].concat()),
        (
            "empty assistant",
            [
                beginning(),
                vec![text(Role::Assistant, ""), text(Role::User, "Hello?")],
            ]
            .concat(),
        ),
    ]
}

fn histories_with_tools() -> Vec<History> {
    let result = |id: &str, name: &str| says(Role::Tool, vec![answered(id, name, false)]);
    let results = || {
        vec![
            result("functions.search:0", "search"),
            result("b", "weather"),
        ]
    };
    let failed = says(
        Role::Tool,
        vec![
            answered("functions.search:0", "search", true),
            answered("b", "weather", false),
        ],
    );
    let swapped = vec![
        result("b", "weather"),
        result("functions.search:0", "search"),
    ];
    let split = vec![
        says(Role::Assistant, vec![called("a", "search", "{}")]),
        says(Role::Assistant, vec![called("b", "search", "{}")]),
        result("a", "search"),
        result("b", "search"),
    ];
    let in_user_turn = says(
        Role::User,
        vec![
            Part::Text("Here.".to_owned()),
            answered("functions.search:0", "search", false),
            answered("b", "weather", false),
        ],
    );
    vec![
        (
            "instructions after tools",
            [calling(), results(), vec![text(Role::System, "Hurry.")]].concat(),
        ),
        ("tool results", [calling(), results()].concat()),
        (
            "tool results in another order",
            [calling(), swapped].concat(),
        ),
        (
            "failed tool result in one message",
            [calling(), vec![failed]].concat(),
        ),
        (
            "results in the user's turn",
            [calling(), vec![in_user_turn]].concat(),
        ),
        ("calls in two messages", [beginning(), split].concat()),
        (
            "two rounds of tools",
            [
                calling(),
                results(),
                vec![says(
                    Role::Assistant,
                    vec![
                        thought("gemini.thought_signature"),
                        called("c", "search", ""),
                    ],
                )],
                vec![result("c", "search")],
            ]
            .concat(),
        ),
        (
            "user after tools",
            [
                calling(),
                results(),
                vec![rain(), text(Role::User, "And tomorrow?")],
            ]
            .concat(),
        ),
        (
            "user right after tools",
            [
                calling(),
                results(),
                vec![text(Role::User, "And tomorrow?")],
            ]
            .concat(),
        ),
        ("dangling tool calls", calling()),
    ]
}

fn abilities() -> Vec<Capabilities> {
    let mixes = [(true, true), (true, false), (false, true), (false, false)];
    let able = |(tail_system_message, user_after_tool)| Capabilities {
        tail_system_message,
        user_after_tool,
        ..Capabilities::default()
    };
    mixes.into_iter().map(able).collect()
}

fn call(messages: Vec<Message>) -> ModelCall {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        parameters: "{\"type\":\"object\"}".to_owned(),
        ..ToolDefinition::default()
    };
    ModelCall {
        messages,
        tools: vec![tool("search"), tool("weather")],
        ..ModelCall::default()
    }
}

fn attempt(dialect: Dialect, able: &Capabilities, call: &ModelCall) -> ProviderRequest {
    let mut attempt = attempt_in(dialect, call.clone());
    Arc::make_mut(&mut attempt.target).capabilities = able.clone();
    attempt
}

/// The attempts that a history can lead to: as it is, and with a note where there is a place for
/// one.
fn attempts(
    dialect: Dialect,
    able: &Capabilities,
    end: &str,
    messages: Vec<Message>,
) -> Vec<ProviderRequest> {
    let call = call(messages);
    let plain = attempt(dialect, able, &repair(&call));
    let failure = Failure {
        retryable: true,
        never_sent: false,
        ..Failure::local(FailureClass::Timeout, "late")
    };
    let policy = InjectionPolicy::default();
    let operation = Operation::from("executor");
    let placed = inject(
        &policy,
        InjectionMode::Always,
        &operation,
        &call,
        &plain.target,
        &[&failure],
    );
    let mut attempts = Vec::new();
    // Without a note it is up to the caller that the model's turn is last.
    if end != "assistant"
        || !matches!(
            dialect,
            Dialect::Anthropic | Dialect::Gemini | Dialect::Bedrock
        )
    {
        attempts.push(plain);
    }
    if let Placement::Injected { call, .. } = placed {
        attempts.push(attempt(dialect, able, &call));
    }
    attempts
}

#[tokio::test]
async fn every_dialect_accepts_every_history_with_and_without_a_note() {
    for dialect in DIALECTS {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::empty());
        let providers = providers(speaking(dialect, upstream.base_url()));
        let mut sent = 0;
        for able in abilities() {
            for (end, messages) in histories() {
                for attempt in attempts(dialect, &able, end, messages) {
                    // The answer does not matter here, only what was sent.
                    let seen = ask(&providers, attempt).await;
                    sent += 1;
                    let requests = upstream.requests();
                    assert_eq!(
                        requests.len(),
                        sent,
                        "{dialect:?}, {end}: nothing was sent: {:?}",
                        seen.error
                    );
                    let body: &Value = &requests[sent - 1].body;
                    let verdict = validators::check(dialect, &able, body);
                    assert_eq!(verdict, Ok(()), "{dialect:?}, {end}, {able:?}: {body:#}");
                }
            }
        }
        assert!(
            sent > 100,
            "only {sent} requests of {dialect:?} were checked"
        );
    }
}

#[tokio::test]
async fn every_dialect_can_request_a_response_in_one_document() {
    let openai = json!({"model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."},
        "finish_reason": "stop"}]});
    let message = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]});
    let responses = json!({"id": "r", "status": "completed", "error": null, "output": [message]});
    let anthropic = json!({"type": "message", "content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"});
    let gemini = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]});
    let bedrock = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}},
        "stopReason": "end_turn"});
    for (dialect, document, path, flag) in [
        (
            Dialect::OpenaiChat,
            openai,
            "/v1/chat/completions",
            Some(false),
        ),
        (
            Dialect::OpenaiResponses,
            responses,
            "/v1/responses",
            Some(false),
        ),
        (Dialect::Anthropic, anthropic, "/v1/messages", Some(false)),
        (
            Dialect::Gemini,
            gemini,
            "/v1/models/test-model:generateContent",
            None,
        ),
        (
            Dialect::Bedrock,
            bedrock,
            "/v1/model/test-model/converse",
            None,
        ),
    ] {
        for (mode, form) in [
            (StreamMode::Never, CompletionForm::Pieces),
            (StreamMode::Auto, CompletionForm::Document),
        ] {
            let upstream = Upstream::start().await;
            upstream.push(Reply::document(&document));
            let mut given = speaking(dialect, upstream.base_url());
            given.chat.stream = mode;
            let asked = ProviderRequest {
                form,
                ..attempt_in(dialect, asking("Hi"))
            };
            let seen = ask(&providers(given), asked).await;
            assert_eq!(
                (seen.text().as_str(), seen.finish()),
                ("Hello.", Some(FinishReason::Stop)),
                "{dialect:?}, {mode:?}: {seen:?}"
            );
            let request = upstream.await_request(1).await;
            assert_eq!(
                (request.path.as_str(), request.body["stream"].as_bool()),
                (path, flag),
                "{dialect:?}, {mode:?}"
            );
            assert_eq!(
                request.header("accept"),
                Some("application/json"),
                "{dialect:?}, {mode:?}"
            );
        }
    }
}
