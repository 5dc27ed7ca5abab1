//! Embeddings are passed on, with Relight's retries and fallbacks and nothing else.

use hyper::Method;
use serde_json::json;

use crate::support::{
    front::{Front, over},
    upstream::{Reply, Upstream},
};

#[tokio::test]
async fn a_request_is_passed_on_as_it_is_and_falls_back_to_a_target_that_can() {
    let (claude, busy, free) = (
        Upstream::start().await,
        Upstream::start().await,
        Upstream::start().await,
    );
    busy.otherwise(Reply::status(503));
    let vectors = json!({"object": "list", "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}],
        "usage": {"prompt_tokens": 5, "total_tokens": 5}});
    free.otherwise(Reply::document(&vectors));
    let front = Front::start(&over(
        "embed",
        &[
            (&claude, "anthropic"),
            (&busy, "openai_chat"),
            (&free, "openai_responses"),
        ],
    ))
    .await;
    let body =
        json!({"model": "embed", "input": ["a"], "encoding_format": "base64", "dimensions": 2});
    let answer = front
        .send(Method::POST, "/v1/embeddings", &[], body.to_string())
        .await;
    assert_eq!((answer.status, answer.json()), (200, vectors), "{answer:?}");
    assert_eq!(answer.header("x-relight-target"), Some("t2"));
    let sent = &free.requests()[0];
    assert_eq!(sent.path, "/v1/embeddings");
    let expected = json!({"model": "model-2", "input": ["a"], "encoding_format": "base64",
        "dimensions": 2});
    assert_eq!(sent.body, expected);
    assert_eq!(claude.requests().len(), 0, "it has no embeddings");
    assert!(!busy.requests().is_empty());
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_in_words() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("embed", &[(&upstream, "anthropic")])).await;
    for (body, param) in [
        (json!({"model": "embed", "input": "a"}), "model"),
        (json!({"model": "embed"}), "input"),
        (json!({"input": "a"}), "model"),
    ] {
        let answer = front
            .send(Method::POST, "/v1/embeddings", &[], body.to_string())
            .await;
        assert_eq!(
            (answer.status, answer.error()["param"].as_str()),
            (400, Some(param)),
            "{answer:?}"
        );
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_document_that_is_none_is_no_answer() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::document(&json!({"object": "list"})));
    let front = Front::start(&over("embed", &[(&upstream, "openai_chat")])).await;
    let body = json!({"model": "embed", "input": "a"});
    let headers = [("x-relight-max-retries", "0")];
    let answer = front
        .send(Method::POST, "/v1/embeddings", &headers, body.to_string())
        .await;
    assert_eq!(answer.status, 502, "{answer:?}");
}

#[tokio::test]
async fn vectors_that_are_missing_empty_or_null_are_requested_again() {
    let vector = |embedding: serde_json::Value| json!({"object": "embedding", "index": 0, "embedding": embedding});
    let list = |data: Vec<serde_json::Value>| {
        Reply::document(&json!({"object": "list", "model": "m", "data": data}))
    };
    let good = vector(json!([0.25, -0.5]));
    for bad in [
        vec![],
        vec![good.clone()],
        vec![good.clone(), vector(json!(null))],
        vec![good.clone(), vector(json!([]))],
        vec![good.clone(), vector(json!([0.25]))],
    ] {
        let upstream = Upstream::start().await;
        upstream
            .push(list(bad.clone()))
            .otherwise(list(vec![good.clone(), good.clone()]));
        let front = Front::start(&over("embed", &[(&upstream, "openai_chat")])).await;
        let body = json!({"model": "embed", "input": ["a", "b"]});
        let answer = front
            .send(Method::POST, "/v1/embeddings", &[], body.to_string())
            .await;
        assert_eq!(answer.status, 200, "{bad:?}: {answer:?}");
        assert_eq!(answer.json()["data"].as_array().map(Vec::len), Some(2));
        assert_eq!(upstream.requests().len(), 2, "{bad:?}");
    }
}

#[tokio::test]
async fn vectors_come_as_base64_if_that_is_requested() {
    let upstream = Upstream::start().await;
    let data = json!([{"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 1.0]}]);
    upstream.otherwise(Reply::document(
        &json!({"object": "list", "model": "m", "data": data}),
    ));
    let front = Front::start(&over("embed", &[(&upstream, "openai_chat")])).await;
    for (format, expected) in [
        ("base64", json!("AACAPgAAAL8AAIA/")),
        ("float", json!([0.25, -0.5, 1.0])),
    ] {
        let body = json!({"model": "embed", "input": "a", "encoding_format": format});
        let answer = front
            .send(Method::POST, "/v1/embeddings", &[], body.to_string())
            .await;
        assert_eq!(
            answer.json()["data"][0]["embedding"],
            expected,
            "{answer:?}"
        );
    }
}
