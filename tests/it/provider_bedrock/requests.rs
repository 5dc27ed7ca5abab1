//! What the provider is sent: signed or with a key, the call in its own form.

use std::sync::Arc;

use relight::internals::{
    domain::message::{
        Media, MediaSource, Message, ModelCall, Part, Role, ToolChoice, ToolDefinition,
    },
    provider::{KeyHeader, ProviderSpec},
};
use serde_json::json;

use super::{BEDROCK, ok, signature};
use crate::support::{
    dialect::{attempt_in, exchange, result, speaking},
    upstream::Upstream,
    wire::{ask, asking, providers},
};

fn with_keys(base_url: String, keys: &[(&str, &str)]) -> ProviderSpec {
    let credentials = keys
        .iter()
        .map(|(name, key)| ((*name).to_owned(), (*key).into()))
        .collect();
    ProviderSpec {
        credentials,
        ..speaking(BEDROCK, base_url)
    }
}

#[tokio::test]
async fn api_keys_are_sent_as_tokens_and_aws_keys_sign() {
    let upstream = Upstream::start().await;
    upstream.otherwise(ok());
    let given = with_keys(
        upstream.base_url(),
        &[
            ("api", "ABSKkey"),
            ("aws", "AKIDEXAMPLE:secret/key:token+1"),
        ],
    );
    let providers = providers(given);
    for credential in ["api", "aws", "aws"] {
        let mut call = attempt_in(BEDROCK, asking("Hi"));
        let target = Arc::make_mut(&mut call.target);
        target.credential = credential.into();
        target.model = "eu.anthropic.claude-test-v1:0".into();
        assert_eq!(ask(&providers, call).await.error, None);
    }
    let requests = upstream.requests();
    for request in &requests {
        assert_eq!(
            request.path,
            "/v1/model/eu.anthropic.claude-test-v1%3A0/converse-stream"
        );
    }
    assert_eq!(requests[0].header("authorization"), Some("Bearer ABSKkey"));
    assert_eq!(requests[1].header("x-amz-security-token"), Some("token+1"));
    let day = requests[1].header("x-amz-date").unwrap()[..8].to_owned();
    let scope =
        format!("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{day}/eu-test-1/bedrock/aws4_request, ");
    let authorization = requests[1].header("authorization").unwrap();
    assert!(authorization.starts_with(&scope), "{authorization}");
    assert!(
        authorization.contains("SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=")
    );
    assert_eq!(
        upstream.connections(),
        2,
        "one for the API key, and one that signed requests share"
    );
    // What was signed is what was sent.
    assert!(
        authorization.ends_with(&signature::of(&requests[1], "secret/key", "eu-test-1")),
        "{authorization}"
    );
}

#[tokio::test]
async fn a_credential_that_is_missing_or_not_named_is_refused_before_anything_is_sent() {
    let upstream = Upstream::start().await;
    let given = with_keys(upstream.base_url(), &[("a", "AKID:one"), ("b", "AKID:two")]);
    for credential in ["", "c"] {
        let mut call = attempt_in(BEDROCK, asking("Hi"));
        Arc::make_mut(&mut call.target).credential = credential.into();
        let seen = ask(&providers(given.clone()), call).await;
        assert!(
            seen.failed()
                .message
                .as_deref()
                .unwrap()
                .starts_with("Missing credentials"),
            "{:?}",
            seen.error
        );
    }
    assert_eq!(upstream.connections(), 0);
    upstream.otherwise(ok());
    let keyless = ProviderSpec {
        api_key_header: KeyHeader::None,
        ..given
    };
    assert_eq!(
        ask(&providers(keyless), attempt_in(BEDROCK, asking("Hi")))
            .await
            .error,
        None
    );
    assert_eq!(
        upstream.await_request(1).await.header("authorization"),
        None
    );
}

#[tokio::test]
async fn parameters_media_tools_and_instructions_are_translated_for_the_api() {
    let media = |mime: &str, bytes: &[u8]| Media {
        mime_type: mime.to_owned(),
        source: MediaSource::Bytes(bytes.to_vec()),
        name: Some("a.pdf".to_owned()),
        detail: None,
    };
    let parts = vec![
        Part::Image(media("image/png", &[1, 2])),
        Part::File(media("application/pdf", &[3])),
        Part::Text("See.".into()),
    ];
    let mut call = ModelCall {
        messages: vec![
            Message::text(Role::System, "You help."),
            Message::new(Role::User, parts),
        ],
        tools: vec![ToolDefinition {
            name: "search".into(),
            description: "Finds.".into(),
            parameters: "{}".into(),
            ..ToolDefinition::default()
        }],
        tool_choice: ToolChoice::Tool("search".into()),
        max_output_tokens: Some(9),
        stop: vec!["END".into()],
        extra:
            json!({"additionalModelRequestFields": {"top_k": 5}, "inferenceConfig": {"topP": 0.5}})
                .as_object()
                .unwrap()
                .clone(),
        ..ModelCall::default()
    };
    call.sampling.temperature = Some(0.5);
    let (_, request) = exchange(BEDROCK, ok(), call.clone()).await;
    let content = json!([
        {"image": {"format": "png", "source": {"bytes": "AQI="}}},
        {"document": {"format": "pdf", "name": "a pdf", "source": {"bytes": "Aw=="}}},
        {"text": "See."},
    ]);
    let expected = json!({
        "system": [{"text": "You help."}],
        "messages": [{"role": "user", "content": content}],
        "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["END"], "topP": 0.5},
        "toolConfig": {
            "tools": [{"toolSpec": {"name": "search", "inputSchema": {"json": {}}, "description": "Finds."}}],
            "toolChoice": {"tool": {"name": "search"}},
        },
        "additionalModelRequestFields": {"top_k": 5},
    });
    assert_eq!(request.body, expected);
    call.tool_choice = ToolChoice::None;
    let (_, request) = exchange(BEDROCK, ok(), call).await;
    assert_eq!(request.body.get("toolConfig"), None);
}

#[tokio::test]
async fn a_model_that_takes_nothing_beside_results_gets_the_users_text_inside_the_last_one() {
    let upstream = Upstream::start().await;
    let turn = relight::internals::domain::message::ToolCall {
        id: "a".into(),
        name: "search".into(),
        arguments: "{}".into(),
        opaque: None,
    };
    let mut call = asking("Hi");
    call.messages
        .push(Message::new(Role::Assistant, vec![Part::ToolCall(turn)]));
    call.messages.push(result("a", "search", " "));
    call.messages.push(Message::text(Role::User, "Hurry."));
    let mut attempt = attempt_in(BEDROCK, call);
    Arc::make_mut(&mut attempt.target)
        .capabilities
        .user_after_tool = false;
    ask(&providers(speaking(BEDROCK, upstream.base_url())), attempt).await;
    let answered =
        json!({"toolResult": {"toolUseId": "a", "content": [{"json": {}}, {"text": "Hurry."}]}});
    assert_eq!(
        upstream.await_request(1).await.body["messages"][2]["content"],
        json!([answered])
    );
}
