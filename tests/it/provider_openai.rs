//! A response of a chat completions server is complete, or it is an error that names the fault:
//! over real sockets.

use relight::internals::domain::{
    completion::{BlockKind, Delta, Exactness, FinishReason},
    failure::{Surface, TransportFault},
};
use relight::internals::provider::{KeyHeader, ProviderSpec, StreamMode};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::{
    upstream::{Reply, Upstream, chunk},
    wire::{Seen, ask, asking, attempt, providers, spec},
};

async fn answer_to(reply: Reply) -> Seen {
    let upstream = Upstream::start().await;
    upstream.push(reply);
    ask(&providers(spec(upstream.base_url())), attempt(asking("Hi"))).await
}

fn content(text: &str) -> String {
    chunk(&json!({"content": text}), None)
}

fn stop() -> String {
    chunk(&json!({}), Some("stop"))
}

#[tokio::test]
async fn a_streamed_answer_comes_in_pieces_with_its_usage_and_its_finish() {
    let seen = answer_to(Reply::text("Hello there, reader.")).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Hello there, reader.");
    assert_eq!(seen.finish(), Some(FinishReason::Stop));
    let usage = seen.usage().unwrap();
    assert_eq!(
        (usage.input_tokens, usage.output_tokens, usage.exactness),
        (10, 3, Exactness::Exact)
    );
    assert!(
        matches!(&seen.deltas[0], Delta::Start { model: Some(model), .. } if model == "test-model")
    );
}

#[tokio::test]
async fn a_request_carries_key_extra_headers_trace_and_body() {
    let upstream = Upstream::start().await;
    let mut given = spec(format!("{}?api-version=1", upstream.base_url()));
    given
        .credentials
        .insert("main".to_owned(), SecretString::from("sk-1"));
    given.api_key_header = KeyHeader::ApiKey;
    given
        .extra_headers
        .insert("x-team".to_owned(), "red".to_owned());
    let mut call = attempt(asking("Hi"));
    given.propagate_trace = true;
    call.trace.traceparent = Some("00-aa-bb-01".to_owned());
    assert_eq!(ask(&providers(given), call).await.error, None);
    let request = upstream.await_request(1).await;
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/v1/chat/completions?api-version=1")
    );
    assert_eq!(request.header("api-key"), Some("sk-1"));
    assert_eq!(request.header("x-team"), Some("red"));
    assert_eq!(request.header("traceparent"), Some("00-aa-bb-01"));
    assert_eq!(request.body["stream"], true);
    assert_eq!(request.body["stream_options"]["include_usage"], true);
    assert_eq!(request.texts_of("user"), ["Hi"]);
}

#[tokio::test]
async fn a_missing_credential_is_refused_before_anything_is_sent() {
    let upstream = Upstream::start().await;
    let given = ProviderSpec {
        credentials: [("a".to_owned(), "k".into())].into(),
        ..spec(upstream.base_url())
    };
    let mut call = attempt(asking("Hi"));
    std::sync::Arc::make_mut(&mut call.target).credential = "b".into();
    let seen = ask(&providers(given), call).await;
    assert!(
        seen.failed()
            .message
            .as_deref()
            .unwrap()
            .contains("no credential is configured under the name `b`")
    );
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn an_unknown_provider_is_a_fact_of_the_configuration() {
    let given = ProviderSpec {
        name: "other".into(),
        ..spec("http://127.0.0.1:9/v1")
    };
    let seen = ask(&providers(given), attempt(asking("Hi"))).await;
    assert_eq!(
        seen.failed().message.as_deref(),
        Some("no provider is configured under the name `fake`")
    );
}

#[tokio::test]
async fn every_shape_of_an_error_inside_a_stream_ends_the_answer_as_an_error() {
    let shapes = [
        r#"data: {"error":{"message":"marker","type":"server_error","code":"x"}}"#,
        r#"data: {"error":"marker"}"#,
        r#"data: {"object":"error","message":"marker","code":500}"#,
        r#"data: {"type":"error","error":{"type":"overloaded_error","message":"marker"}}"#,
        "event: error\ndata: {\"message\":\"marker\"}",
        "event: error\ndata: marker in plain words",
        r#"error: {"code":400,"message":"marker","type":"exceed_context_size_error"}"#,
        r#"data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}],"error":{"message":"marker"}}"#,
        r#"data: {"choices":[{"index":0,"delta":{},"error":{"message":"marker"}}]}"#,
        r#"data: {"choices":[],"error":{"code":502,"message":"marker"}}"#,
    ];
    for shape in shapes {
        for tail in ["\n\ndata: [DONE]\n\n", "\n\n", ""] {
            let body = format!("data: {}\n\n{shape}{tail}", content("Hel"));
            let seen = answer_to(Reply::stream(vec![(
                std::time::Duration::ZERO,
                body.into_bytes(),
            )]))
            .await;
            let error = seen.failed();
            assert_eq!(
                (error.surface, error.status),
                (Surface::Stream, Some(200)),
                "{shape}"
            );
            assert!(error.body.as_deref().unwrap().contains("marker"), "{shape}");
            assert_eq!(seen.text(), "Hel", "{shape}");
        }
    }
}

#[tokio::test]
async fn an_error_document_with_status_200_is_an_error() {
    let shapes = [
        json!({"error": {"message": "marker"}}),
        json!([{"error": {"message": "marker"}}]),
        json!({"code": "InvalidApiKey", "message": "marker"}),
        json!({"detail": "marker"}),
    ];
    for shape in shapes {
        let error = answer_to(Reply::document(&shape)).await.error.unwrap();
        assert_eq!((error.status, error.fault), (Some(200), None), "{shape}");
        assert!(error.body.unwrap().contains("marker"), "{shape}");
    }
}

#[tokio::test]
async fn a_whole_document_in_place_of_a_stream_is_an_answer() {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}});
    let message = json!({"role": "assistant", "content": "Sum:", "tool_calls": [call]});
    let document = json!({
        "id": "r1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    });
    let seen = answer_to(Reply::document(&document)).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Sum:");
    assert_eq!(
        seen.tool_calls(),
        [(
            "c1".to_owned(),
            "add".to_owned(),
            "{\"a\":1}".to_owned(),
            true
        )]
    );
    assert_eq!(seen.finish(), Some(FinishReason::ToolCalls));
    assert_eq!(seen.usage().unwrap().output_tokens, 2);
}

#[tokio::test]
async fn a_document_is_requested_of_a_server_without_streaming() {
    let upstream = Upstream::start().await;
    let choice = json!({"message": {"content": "All."}, "finish_reason": "stop"});
    upstream.push(Reply::document(&json!({"choices": [choice]})));
    let mut given = spec(upstream.base_url());
    given.chat.stream = StreamMode::Never;
    let seen = ask(&providers(given), attempt(asking("Hi"))).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("All.", Some(FinishReason::Stop))
    );
    let request = upstream.await_request(1).await;
    assert_eq!(request.body["stream"], false);
    assert_eq!(request.body.get("stream_options"), None);
}

#[tokio::test]
async fn an_answer_that_is_none_is_malformed_and_its_beginning_is_kept() {
    let plain = |body: &str| Reply::body(200, &[("content-type", "text/plain")], body.as_bytes());
    let cases = [
        (Reply::html(), "It works!"),
        (plain("upstream connect error"), "upstream connect error"),
        (
            Reply::document(&json!({"id": "x", "choices": []})),
            "choices",
        ),
        (Reply::document(&json!({"hello": "world"})), "world"),
        (
            Reply::body(
                200,
                &[("content-type", "application/json")],
                b"{\"choices\": oops}",
            ),
            "oops",
        ),
        (Reply::events(&["[DONE]"]), "[DONE]"),
        (Reply::events(&["{\"choices\":[]}", "[DONE]"]), "choices"),
    ];
    for (reply, excerpt) in cases {
        let seen = answer_to(reply).await;
        let error = seen.failed();
        assert_eq!(
            (error.fault, error.status),
            (Some(TransportFault::Protocol), Some(200)),
            "{excerpt}"
        );
        assert!(
            error.body.as_deref().unwrap().contains(excerpt),
            "{error:?}"
        );
    }
    let empty = answer_to(Reply::empty()).await;
    assert_eq!(empty.failed().fault, Some(TransportFault::Protocol));
    assert_eq!(
        empty.failed().message.as_deref(),
        Some("the answer is empty")
    );
}

#[tokio::test]
async fn a_stream_is_recognised_by_its_content_whatever_its_type() {
    let body = format!(
        "\n\n: keep-alive\n\ndata: {}\n\ndata: {}\n\n",
        content("Hi."),
        stop()
    );
    for headers in [
        &[("content-type", "text/plain")][..],
        &[],
        &[("content-type", "application/json")],
    ] {
        let seen = answer_to(Reply::body(200, headers, body.as_bytes())).await;
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            ("Hi.", Some(FinishReason::Stop)),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn a_malformed_event_breaks_the_stream_because_its_content_is_lost() {
    for (torn, fault) in [
        ("{not json", TransportFault::Protocol),
        ("", TransportFault::Cut),
        ("7", TransportFault::Cut),
        (
            r#"{"choices":[{"index":0,"delta":{"content":"lost"#,
            TransportFault::Cut,
        ),
    ] {
        let seen = answer_to(Reply::events(&[
            &content("a"),
            torn,
            &content("b"),
            &stop(),
            "[DONE]",
        ]))
        .await;
        assert_eq!(
            (seen.text().as_str(), seen.failed().fault),
            ("a", Some(fault)),
            "{torn:?}"
        );
    }
}

#[tokio::test]
async fn tool_arguments_that_are_not_json_are_an_error_in_place_of_the_finish() {
    let seen = answer_to(Reply::tool_call("search", "{\"query\": \"unfinished")).await;
    let error = seen.failed();
    assert_eq!(error.fault, Some(TransportFault::Protocol));
    let message = error.message.as_deref().unwrap();
    assert!(
        message.starts_with("tool call `search`: arguments are not JSON: EOF while parsing"),
        "{message}"
    );
    assert!(message.contains("column"), "{message}");
    assert!(
        seen.tool_calls().iter().all(|(.., whole)| !whole),
        "a broken call must not look whole"
    );
}

#[tokio::test]
async fn reasoning_text_and_refusal_are_blocks_of_their_own() {
    for field in ["reasoning", "reasoning_content"] {
        let events = [chunk(&json!({field: "Hm."}), None), content("Yes."), stop()];
        let seen = answer_to(Reply::events(&events)).await;
        assert_eq!(seen.text_of(&BlockKind::Reasoning), "Hm.", "{field}");
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            ("Yes.", Some(FinishReason::Stop)),
            "{field}"
        );
    }
    let refused = answer_to(Reply::events(&[
        chunk(&json!({"refusal": "No."}), None),
        stop(),
    ]))
    .await;
    assert_eq!(refused.text_of(&BlockKind::Refusal), "No.");
    assert_eq!(refused.finish(), Some(FinishReason::Refusal));
}

#[tokio::test]
async fn a_finish_reason_is_needed_for_every_choice_that_began() {
    let choices = |finish: Value| {
        let second = json!({"index": 1, "delta": {"content": "b"}, "finish_reason": finish});
        json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}, second]}).to_string()
    };
    let cut = answer_to(Reply::events(&[choices(Value::Null), "[DONE]".to_owned()])).await;
    assert_eq!(cut.failed().fault, Some(TransportFault::Cut));
    let whole = answer_to(Reply::events(&[choices(json!("length"))])).await;
    assert_eq!(
        (whole.text().as_str(), whole.finish()),
        ("a", Some(FinishReason::Stop))
    );
}

/// What a body cut at each of its bytes may show: a beginning of the text, and a finish only where
/// it is whole.
async fn sweep(
    full: Reply,
    cut: fn(Reply, usize) -> Reply,
    whole_from: usize,
    delivered: fn(&Seen) -> String,
) {
    let upstream = Upstream::start().await;
    let providers = providers(spec(upstream.base_url()));
    let length = full.body_bytes().len();
    upstream.push(full.clone());
    let all = delivered(&ask(&providers, attempt(asking("Hi"))).await);
    for at in 1..=length {
        upstream.push(cut(full.clone(), at));
        let seen = ask(&providers, attempt(asking("Hi"))).await;
        assert!(all.starts_with(&delivered(&seen)), "cut at {at}: {seen:?}");
        assert_eq!(
            seen.finish().is_some(),
            at >= whole_from,
            "cut at {at} of {length}: {seen:?}"
        );
        if at < whole_from {
            let fault = seen.failed().fault;
            let nothing_yet = seen.deltas.is_empty() && fault == Some(TransportFault::Protocol);
            assert!(
                fault == Some(TransportFault::Cut) || nothing_yet,
                "cut at {at}: {seen:?}"
            );
        }
    }
}

/// The end of the line that holds the finish reason, its line feed not counted.
fn end_of_finish(reply: &Reply) -> usize {
    let body = String::from_utf8(reply.body_bytes()).unwrap();
    let at = body.rfind("\"finish_reason\":\"").unwrap();
    at + body[at..].find('\n').unwrap()
}

#[tokio::test]
async fn a_text_that_ends_anywhere_before_its_finish_reason_is_cut() {
    let reply = Reply::text("Zürich → 東京 🚄");
    let whole_from = end_of_finish(&reply);
    sweep(reply, Reply::ended_after, whole_from, Seen::text).await;
}

#[tokio::test]
async fn a_text_whose_connection_breaks_anywhere_before_its_finish_reason_is_cut() {
    let reply = Reply::text("Zürich → 東京 🚄");
    // Up to the blank line that ends its event.
    let whole_from = end_of_finish(&reply) + 2;
    sweep(reply, Reply::cut_after, whole_from, Seen::text).await;
}

#[tokio::test]
async fn a_tool_call_cut_anywhere_is_never_whole() {
    let reply = Reply::tool_call("search", "{\"q\": \"東京\"}");
    let whole_from = end_of_finish(&reply);
    let arguments = |seen: &Seen| {
        seen.tool_calls()
            .into_iter()
            .map(|(_, _, arguments, _)| arguments)
            .collect()
    };
    sweep(reply, Reply::ended_after, whole_from, arguments).await;
}

#[tokio::test]
async fn an_answer_sent_byte_by_byte_is_the_same() {
    let seen = answer_to(Reply::text("Zürich → 東京 🚄").in_pieces_of(1)).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("Zürich → 東京 🚄", Some(FinishReason::Stop))
    );
}
