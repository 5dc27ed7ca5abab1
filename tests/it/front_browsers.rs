//! A web page cannot spend the keys of a front on its reader's host: JSON only, and no foreign
//! origin.

use hyper::Method;

use crate::support::{
    front::{Front, question},
    upstream::Upstream,
};

async fn sent(front: &Front, headers: &[(&str, &str)]) -> u16 {
    front
        .send(
            Method::POST,
            "/v1/chat/completions",
            headers,
            question("default", false).to_string(),
        )
        .await
        .status
}

#[tokio::test]
async fn a_page_of_another_origin_and_a_body_that_is_not_declared_as_json_are_refused() {
    let upstream = Upstream::start().await;
    let rest = format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\n",
        upstream.base_url()
    );
    let front = Front::start_with(
        "  cors: { allow_origins: [\"https://app.example.com\"] }\n",
        &rest,
    )
    .await;
    for kind in [
        "text/plain",
        "text/plain; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        assert_eq!(sent(&front, &[("content-type", kind)]).await, 415, "{kind}");
    }
    for origin in [
        "https://evil.example",
        "null",
        "http://127.0.0.1:3000",
        "https://app.example.com.evil.example",
    ] {
        assert_eq!(sent(&front, &[("origin", origin)]).await, 403, "{origin}");
    }
    assert!(
        upstream.requests().is_empty(),
        "nothing of it reaches a provider"
    );
    assert_eq!(
        sent(&front, &[("origin", "https://app.example.com")]).await,
        200
    );
    assert_eq!(
        sent(
            &front,
            &[("content-type", "application/json; charset=utf-8")]
        )
        .await,
        200
    );
}
