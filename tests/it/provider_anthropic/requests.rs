//! What the provider is sent: its key and path, the messages in its own form, over one connection.

use std::sync::Arc;

use relight::internals::{
    domain::message::{Media, MediaSource, Message, ModelCall, Opaque, Part, Reasoning, Role},
    provider::KeyHeader,
};
use serde_json::json;

use super::{ANTHROPIC, events, said};
use crate::support::{
    dialect::{attempt_in, exchange, speaking},
    upstream::Upstream,
    wire::{ask, asking, providers},
};

#[tokio::test]
async fn thinking_of_other_providers_and_without_a_signature_is_not_sent() {
    let foreign = Some(Opaque {
        kind: "bedrock.signature".to_owned(),
        bytes: b"sig".to_vec(),
    });
    let parts = vec![
        Part::Reasoning(Reasoning {
            text: "foreign".to_owned(),
            opaque: foreign,
        }),
        Part::Reasoning(Reasoning {
            text: "bare".to_owned(),
            opaque: None,
        }),
        Part::Text("Hello".to_owned()),
    ];
    let mut call = asking("Hi");
    call.messages.push(Message::new(Role::Assistant, parts));
    call.messages.push(Message::text(Role::User, "Bye"));
    let (_, request) = exchange(ANTHROPIC, events(&said("Bye.", "end_turn")), call).await;
    assert_eq!(
        request.body["messages"][1]["content"],
        json!([{"type": "text", "text": "Hello"}])
    );
}

#[tokio::test]
async fn a_request_carries_key_version_and_its_own_path() {
    let upstream = Upstream::start().await;
    upstream.otherwise(events(&said("Hello", "end_turn")));
    let mut given = speaking(ANTHROPIC, upstream.base_url());
    given
        .credentials
        .insert("main".to_owned(), "sk-ant-api-1".into());
    given
        .credentials
        .insert("oauth".to_owned(), "sk-ant-oat-2".into());
    given
        .extra_headers
        .insert("anthropic-beta".to_owned(), "some-beta".to_owned());
    let root = upstream.base_url().trim_end_matches("/v1").to_owned();
    let asked = |given: &relight::internals::provider::ProviderSpec, credential: &str| {
        let mut call = attempt_in(ANTHROPIC, asking("Hi"));
        Arc::make_mut(&mut call.target).credential = credential.into();
        let providers = providers(given.clone());
        async move { ask(&providers, call).await }
    };
    assert_eq!(asked(&given, "main").await.error, None);
    assert_eq!(asked(&given, "oauth").await.error, None);
    let missing = asked(&given, "other").await;
    assert!(
        missing
            .failed()
            .message
            .as_deref()
            .unwrap()
            .contains("no credential is configured under the name `other`")
    );
    let keyless = relight::internals::provider::ProviderSpec {
        api_key_header: KeyHeader::None,
        base_url: root,
        ..given
    };
    assert_eq!(asked(&keyless, "main").await.error, None);
    let requests = upstream.requests();
    let heads: Vec<_> = requests
        .iter()
        .map(|it| {
            (
                it.path.as_str(),
                it.header("x-api-key"),
                it.header("authorization"),
            )
        })
        .collect();
    let path = "/v1/messages";
    assert_eq!(
        heads,
        [
            (path, Some("sk-ant-api-1"), None),
            (path, None, Some("Bearer sk-ant-oat-2")),
            (path, None, None)
        ]
    );
    for request in &requests {
        assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(request.header("anthropic-beta"), Some("some-beta"));
        assert_eq!(
            (&request.body["stream"], &request.body["max_tokens"]),
            (&json!(true), &json!(8192))
        );
    }
}

#[tokio::test]
async fn images_files_and_instructions_are_translated_for_the_api() {
    let media = |mime: &str, source| Media {
        mime_type: mime.to_owned(),
        source,
        name: Some("a.pdf".to_owned()),
        detail: None,
    };
    let parts = vec![
        Part::Image(media("image/png", MediaSource::Bytes(vec![1, 2]))),
        Part::Image(media(
            "image/png",
            MediaSource::Url("https://x.test/a.png".to_owned()),
        )),
        Part::File(media("application/pdf", MediaSource::Bytes(vec![3]))),
        Part::File(media("text/csv", MediaSource::Bytes(b"a,b".to_vec()))),
    ];
    let messages = vec![
        Message::text(Role::System, "You help."),
        Message::text(Role::Developer, "Be brief."),
        Message::new(Role::User, parts),
        Message::text(Role::System, "The last attempt failed."),
    ];
    let call = ModelCall {
        messages,
        ..ModelCall::default()
    };
    let (_, request) = exchange(ANTHROPIC, events(&said("Ok", "end_turn")), call).await;
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(
        request.body["system"],
        json!([text("You help."), text("Be brief.")])
    );
    let content = json!([
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQI="}},
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "Aw=="}, "title": "a.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "a.pdf"},
    ]);
    let messages = json!([
        {"role": "user", "content": content},
        {"role": "system", "content": [text("The last attempt failed.")]},
    ]);
    assert_eq!(request.body["messages"], messages);
}

#[tokio::test]
async fn calls_one_after_the_other_use_one_connection() {
    let upstream = Upstream::start().await;
    upstream.otherwise(events(&said("Hello", "end_turn")));
    let providers = providers(speaking(ANTHROPIC, upstream.base_url()));
    for _ in 0..3 {
        assert_eq!(
            ask(&providers, attempt_in(ANTHROPIC, asking("Hi")))
                .await
                .error,
            None
        );
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (3, 1));
}
