//! A provider's error may repeat the key that it was sent, and the prompt: neither leaves where it may not.

use relight::internals::grpc::v1::{invoke_with_recovery_response::Outcome, watch_recovery_request::Start};
use serde_json::json;

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

const PROMPT: &str = "my-private-question";

/// A server whose provider repeats everything that it was sent.
async fn echoing(upstream: &Upstream, key: &str) -> Relight {
    upstream.answering(|request| {
        let key = request.header("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let prompt = request.texts_of("user").join(" ");
        let error = json!({"error": {"message": format!("key {key} may not say {prompt}"), "code": "invalid_request"}});
        Reply::body(400, &[("content-type", "application/json"), ("x-request-id", &key)], error.to_string().as_bytes())
    });
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: {key:?} }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\njournal: {{ store: memory }}\n",
        upstream.base_url()
    ))
    .await
}

#[tokio::test]
async fn a_key_of_any_shape_is_shown_to_none_and_a_prompt_to_its_caller_alone() {
    for key in ["sk-1234", "changeme", "Hunter2hunter2", "q\"uo/ted k"] {
        let upstream = Upstream::start().await;
        let server = echoing(&upstream, key).await;
        let mut watch = server.watch(Start::Live(true)).await;
        let response = server.invoke(asking(PROMPT)).await;
        assert_eq!(upstream.requests()[0].header("authorization"), Some(format!("Bearer {key}").as_str()));
        let Some(Outcome::Failure(failure)) = &response.outcome else { panic!("{response:?}") };
        assert!(failure.message.contains(PROMPT), "the caller gets the provider's words: {failure:?}");
        watch.until("invocation_failed").await;
        let events = format!("{:?}", watch.seen);
        let record = format!("{:?}", server.get(&response.invocation_id).await);
        for shown in [format!("{response:?}"), record, events.clone()] {
            assert!(!shown.contains(key) && !shown.contains(&format!("{key:?}")), "{key}: {shown}");
        }
        assert!(!events.contains(PROMPT), "{events}");
    }
}
