//! What a client of the chat completions API is refused with: its own faults, its provider's, keys
//! and routes.

use hyper::Method;
use relight::internals::domain::failure::FailureClass;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::over;
use crate::support::{
    front::{Front, question},
    upstream::{Reply, Upstream},
};

#[tokio::test]
async fn a_fault_of_the_request_names_its_field_and_costs_nothing() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over(&[&upstream])).await;
    let mut body = question("chat", false);
    body["n"] = json!(2);
    let answer = front.chat(&body).await;
    assert_eq!(
        (answer.status, answer.error()["param"].as_str()),
        (400, Some("n"))
    );
    assert_eq!(answer.error()["type"], "invalid_request_error");
    for (path, body, status) in [
        ("/v1/chat/completions", "{", 400),
        ("/v1/completions", "{}", 404),
        ("/v1/models", "{}", 405),
    ] {
        let answer = front.send(Method::POST, path, &[], body).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.error()["message"].is_string());
    }
    let headers = [("x-relight-max-retries", "9")];
    let answer = front
        .send(
            Method::POST,
            "/v1/chat/completions",
            &headers,
            question("chat", false).to_string(),
        )
        .await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_refused() {
    let upstream = Upstream::start().await;
    let front = Front::start_with("  max_message_bytes: 1KiB", &over(&[&upstream])).await;
    let answer = front
        .send(Method::POST, "/v1/chat/completions", &[], "x".repeat(2048))
        .await;
    assert_eq!((answer.status, upstream.requests().len()), (413, 0));
}

#[tokio::test]
async fn a_failure_has_the_status_of_its_class_and_a_retry_time() {
    let error =
        |code: &str| json!({"error": {"message": "no", "type": "x", "code": code}}).to_string();
    let reply = |status, code: &str| {
        Reply::body(
            status,
            &[("content-type", "application/json")],
            error(code).as_bytes(),
        )
    };
    for (reply, status, code, class) in [
        (
            reply(400, "context_length_exceeded"),
            400,
            "context_length_exceeded",
            FailureClass::ContextLength,
        ),
        (
            reply(400, "content_policy_violation"),
            400,
            "content_filter",
            FailureClass::ContentFiltered,
        ),
        (
            reply(401, "invalid_api_key"),
            502,
            "upstream_authentication",
            FailureClass::Authentication,
        ),
        (
            reply(429, "insufficient_quota"),
            429,
            "insufficient_quota",
            FailureClass::QuotaExceeded,
        ),
        (
            reply(404, "model_not_found"),
            404,
            "model_not_found",
            FailureClass::NotFound,
        ),
        (
            reply(500, "server_error"),
            502,
            "upstream_error",
            FailureClass::ServerError,
        ),
        (
            Reply::reset(),
            502,
            "upstream_unreachable",
            FailureClass::Network,
        ),
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(reply);
        let front = Front::start(&over(&[&upstream])).await;
        for stream in [false, true] {
            let headers = [("x-relight-max-retries", "0")];
            let body = question("chat", stream).to_string();
            let answer = front
                .send(Method::POST, "/v1/chat/completions", &headers, body)
                .await;
            let shown = (
                answer.status,
                answer.error()["code"].as_str().map(str::to_owned),
            );
            assert_eq!(
                shown,
                (status, Some(code.to_owned())),
                "{class}, stream: {stream}: {answer:?}"
            );
            assert_eq!(answer.error()["relight"]["class"], class.as_str());
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{class}");
            assert!(answer.header("x-relight-invocation").is_some());
            if class == FailureClass::QuotaExceeded
                || class == FailureClass::NotFound
                || class == FailureClass::Authentication
            {
                // Its gate is closed now; a second call would be refused without an attempt.
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_rejected_request_names_the_field_that_the_provider_named() {
    for path in ["/v1/chat/completions", "/v1/responses"] {
        let upstream = Upstream::start().await;
        let error = json!({"message": "Invalid value.", "type": "invalid_request_error", "param": "messages[0].content",
            "code": "invalid_value"});
        upstream.otherwise(Reply::refusal(400, &[], &json!({"error": error})));
        let front = Front::start(&over(&[&upstream])).await;
        for stream in [false, true] {
            let body = json!({"model": "chat", "input": "Why?", "messages": [{"role": "user", "content": "Why?"}]});
            let mut body = body.as_object().unwrap().clone();
            body.remove(if path.ends_with("responses") {
                "messages"
            } else {
                "input"
            });
            body.insert("stream".to_owned(), json!(stream));
            let answer = front
                .send(Method::POST, path, &[], json!(body).to_string())
                .await;
            assert_eq!(
                (answer.status, &answer.error()["param"]),
                (400, &json!("messages[0].content")),
                "{answer:?}"
            );
            assert_eq!(answer.error()["code"], "invalid_request", "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_rate_limit_states_its_wait() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::body(
        429,
        &[("retry-after", "7")],
        b"{\"error\":{\"message\":\"slow down\"}}",
    ));
    let front = Front::start(&over(&[&upstream])).await;
    let headers = [("x-relight-max-retries", "0")];
    let answer = front
        .send(
            Method::POST,
            "/v1/chat/completions",
            &headers,
            question("chat", true).to_string(),
        )
        .await;
    assert_eq!(
        (answer.status, answer.error()["code"].as_str()),
        (429, Some("rate_limit_exceeded"))
    );
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=9).contains(&wait), "{wait}");
    assert_eq!(answer.header("x-should-retry"), Some("true"));
}

#[tokio::test]
async fn with_keys_only_their_owners_are_let_in_and_only_to_their_routes() {
    let upstream = Upstream::start().await;
    let hash: String = Sha256::digest(b"sk-a")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let keys = format!("  keys:\n    - {{ tenant: acme, sha256: {hash}, routes: [chat] }}");
    let config = format!(
        "{}  other: {{ targets: [t0] }}\ndefault_route: chat\n",
        over(&[&upstream])
    );
    let front = Front::start_with(&keys, &config).await;
    let body = |route| question(route, false).to_string();
    let with_key = [("authorization", "Bearer sk-a")];
    for headers in [&[][..], &[("authorization", "Bearer sk-b")]] {
        let answer = front
            .send(Method::POST, "/v1/chat/completions", headers, body("chat"))
            .await;
        assert_eq!(
            (answer.status, answer.error()["code"].as_str()),
            (401, Some("invalid_api_key"))
        );
        assert_eq!(
            front
                .send(Method::GET, "/v1/models", headers, "")
                .await
                .status,
            401
        );
    }
    assert_eq!(
        front
            .send(
                Method::POST,
                "/v1/chat/completions",
                &with_key,
                body("chat")
            )
            .await
            .status,
        200
    );
    let answer = front
        .send(
            Method::POST,
            "/v1/chat/completions",
            &with_key,
            body("other"),
        )
        .await;
    assert_eq!(
        (answer.status, answer.error()["code"].as_str()),
        (403, Some("route_not_allowed"))
    );
    let list = front
        .send(Method::GET, "/v1/models", &with_key, "")
        .await
        .json();
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect();
    assert_eq!(ids, ["chat", "t0"], "the other route is not shown");
}

#[tokio::test]
async fn a_compressed_body_is_refused_by_the_header_that_declares_it() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over(&[&upstream])).await;
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
        let compressed = b"\x1f\x8b\x08\0".as_slice();
        let answer = front
            .send(
                Method::POST,
                path,
                &[("content-encoding", "gzip")],
                compressed,
            )
            .await;
        assert_eq!(
            (answer.status, &answer.error()["param"]),
            (415, &json!("content-encoding")),
            "{answer:?}"
        );
        assert!(
            answer.error()["message"]
                .as_str()
                .unwrap()
                .contains("content-encoding"),
            "{answer:?}"
        );
    }
    let (identity, body) = (
        [("content-encoding", "identity")],
        question("chat", false).to_string(),
    );
    assert_eq!(
        front
            .send(Method::POST, "/v1/chat/completions", &identity, body)
            .await
            .status,
        200
    );
}
