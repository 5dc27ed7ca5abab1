//! The note that a model gets about a failure: the promised sentence to the letter, with the
//! failure's message if wanted.

use relight::internals::grpc::v1::{
    InjectionSkipReason, Invocation, InvokeWithRecoveryResponse, ToolDefinition, invocation::Call,
    invoke_with_recovery_response::Outcome,
};
use serde_json::json;

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

const ADJUST: &str = "Adjust your approach — try a simpler action or different tool.";

/// A server with one target and these settings of the policy `standard`.
async fn relight(upstream: &Upstream, injection: &str) -> Relight {
    let base_url = upstream.base_url();
    Relight::start(&format!(
        r#"
providers: {{ model: {{ dialect: openai_chat, base_url: "{base_url}", api_key: k }} }}
targets: {{ main: {{ provider: model, model: m-1 }} }}
timers: {{ first_token: 400ms, first_token_alone: 400ms, soft_first_token: 0ms }}
policies:
  standard: {{ retry: {{ backoff: {{ base: 1ms, cap: 2ms }} }}, injection: {injection} }}
"#
    ))
    .await
}

fn failing(message: &str) -> Reply {
    Reply::refusal(500, &[], &json!({"error": {"message": message}}))
}

/// Role and text of the last message of the last request.
async fn last_message(
    relight: &Relight,
    upstream: &Upstream,
    invocation: Invocation,
) -> (String, String) {
    let response = relight.invoke(invocation).await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    let requests = upstream.requests();
    let message = requests.last().unwrap().body["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    (
        message["role"].as_str().unwrap().to_owned(),
        message["content"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test]
async fn the_message_of_a_failure_is_in_the_specified_sentence_as_a_user_message() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "{ mode: always, error: message }").await;
    upstream.push(failing("Request timeout"));
    let (role, text) = last_message(&relight, &upstream, asking("Hello")).await;
    assert_eq!(
        (role.as_str(), text),
        (
            "user",
            format!("The previous model call failed: Request timeout. {ADJUST}")
        )
    );

    upstream.push(failing("503 Service Unavailable"));
    let planner = Invocation {
        operation: "planner".to_owned(),
        ..asking("Hello")
    };
    let (_, text) = last_message(&relight, &upstream, planner).await;
    assert_eq!(
        text,
        "The previous call failed: 503 Service Unavailable. Adjust your approach."
    );
}

#[tokio::test]
async fn a_message_loses_its_secrets_and_never_makes_a_note_too_long() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "{ mode: always, error: message }").await;
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789";
    upstream.push(failing(&format!(
        "broken by {secret}: {}",
        "again and ".repeat(80)
    )));
    let (role, text) = last_message(&relight, &upstream, asking("Hello")).await;
    assert_eq!(role, "user");
    assert!(
        text.starts_with("The previous model call failed: broken by ") && text.ends_with(ADJUST),
        "{text}"
    );
    assert!(
        !text.contains(secret) && text.chars().count() <= 400,
        "{text}"
    );
}

#[tokio::test]
async fn always_sends_the_promised_sentence_and_no_more() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "{ mode: always }").await;
    upstream
        .push(Reply::silence())
        .push(failing("Internal error"));
    let (_, text) = last_message(&relight, &upstream, asking("Hello")).await;
    assert_eq!(
        text,
        format!("The previous model call failed: The provider failed internally. {ADJUST}")
    );
}

#[tokio::test]
async fn a_field_that_is_missing_is_named() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "{}").await;
    let schema =
        json!({"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]});
    let mut invocation = asking("What is the weather?");
    let Some(Call::Model(call)) = &mut invocation.call else {
        panic!("it asks a model")
    };
    call.tools.push(ToolDefinition {
        name: "weather".to_owned(),
        input_schema_json: schema.to_string(),
        ..ToolDefinition::default()
    });
    upstream.push(Reply::tool_call("weather", r#"{"day": 1}"#));
    let (_, text) = last_message(&relight, &upstream, invocation).await;
    assert!(text.contains("missing required field `date`"), "{text}");
}

#[tokio::test]
async fn an_attempt_without_a_note_reports_why() {
    let upstream = Upstream::start().await;
    let reason = |response: &InvokeWithRecoveryResponse| response.attempts[1].injection_skipped();
    for (injection, expected) in [
        ("{}", InjectionSkipReason::NotActionable),
        ("{ mode: never }", InjectionSkipReason::Never),
    ] {
        let relight = relight(&upstream, injection).await;
        upstream.push(failing("Internal error"));
        assert_eq!(reason(&relight.ask("Hello").await), expected, "{injection}");
    }
}
