//! A call that nobody reads along is asked for as a document once that shows no less than a stream.

use hyper::Method;
use serde_json::json;
use std::time::Duration;

use crate::support::{
    front::{Front, question},
    upstream::{Reply, Request, Upstream},
};

/// Completions after which a target is known.
const KNOWN: usize = 20;

const TEXT: &str = "Hello from upstream.";

/// A provider's response: in the form that was requested.
fn as_requested(request: &Request) -> Reply {
    if request.body["stream"] == true {
        Reply::text(TEXT)
    } else {
        let message = json!({"role": "assistant", "content": TEXT});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        Reply::document(&json!({"object": "chat.completion", "model": "m", "choices": [choice]}))
    }
}

fn config(upstream: &Upstream, chat: &str, more: &str) -> String {
    let url = upstream.base_url();
    format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, chat: {{ {chat} }} }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\nroutes: {{ r: {{ targets: [t] }} }}\n\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms, cap: 2ms }} }} }} }}\n{more}\n"
    )
}

/// Asks until the target is known.
async fn get_known(front: &Front) {
    for _ in 0..KNOWN {
        assert!(front.ask("r", false).await.succeeded_with(TEXT));
    }
}

/// Returns whether each request asked for a stream.
fn streams(upstream: &Upstream) -> Vec<bool> {
    let asked = |request: &Request| request.body["stream"] == true;
    upstream.requests().iter().map(asked).collect()
}

#[tokio::test]
async fn a_target_whose_completions_are_soon_whole_is_asked_for_documents_by_calls_without_a_reader()
 {
    let upstream = Upstream::start().await;
    upstream.answering(as_requested);
    let front = Front::start(&config(&upstream, "", "")).await;
    get_known(&front).await;
    assert_eq!(streams(&upstream), [true; KNOWN]);
    for (is_streamed, headers) in [
        (false, &[][..]),
        (true, &[]),
        (false, &[("idempotency-key", "a-call")]),
        (false, &[]),
    ] {
        let body = question("r", is_streamed).to_string();
        let path = "/v1/chat/completions";
        let answer = front.send(Method::POST, path, headers, body).await;
        assert!(answer.succeeded_with(TEXT), "{answer:?}");
    }
    assert_eq!(streams(&upstream)[KNOWN..], [false, true, true, false]);
}

#[tokio::test]
async fn a_document_that_is_cut_malformed_or_does_not_come_is_followed_by_a_stream() {
    let upstream = Upstream::start().await;
    upstream.answering(as_requested);
    let limits = "timers: { first_token: 1s, first_token_alone: 1s, soft_first_token: 0ms }";
    let front = Front::start(&config(&upstream, "", limits)).await;
    get_known(&front).await;
    let document = as_requested(&upstream.requests()[0]);
    let mut asked = KNOWN;
    for fault in [
        document.clone().cut_in_the_middle(),
        Reply::silence(),
        document.stall_after(10),
        Reply::html(),
        Reply::status(503),
    ] {
        upstream.push(fault);
        let answer = front.ask("r", false).await;
        assert!(answer.succeeded_with(TEXT), "{answer:?}");
        assert_eq!(streams(&upstream)[asked..], [false, true]);
        asked += 2;
    }
}

#[tokio::test]
async fn a_server_of_streams_alone_is_asked_for_one_document_and_its_caller_gets_the_answer() {
    for words in [
        "This model only support stream mode, please enable the stream parameter to access the model.",
        "Stream must be set to true",
    ] {
        let upstream = Upstream::start().await;
        upstream.answering(move |request| {
            if request.body["stream"] == true {
                return Reply::text(TEXT);
            }
            let error = json!({"message": words, "type": "invalid_request_error"});
            Reply::refusal(400, &[], &json!({ "error": error }))
        });
        let front = Front::start(&config(&upstream, "", "")).await;
        get_known(&front).await;
        for _ in 0..3 {
            let answer = front.ask("r", false).await;
            assert!(answer.succeeded_with(TEXT), "{answer:?}");
        }
        assert_eq!(streams(&upstream)[KNOWN..], [false, true, true, true]);
    }
}

#[tokio::test]
async fn completions_that_take_long_are_streams_and_the_setting_decides_for_all() {
    // Longer than half of the time after which a first token counts as slow.
    let slow = |request: &Request| as_requested(request).slow_head(Duration::from_millis(400));
    for (chat, is_slow, expected) in [
        ("", true, true),
        ("stream: always", false, true),
        ("stream: true", false, true),
        ("stream: never", true, false),
        ("stream: false", true, false),
    ] {
        let upstream = Upstream::start().await;
        upstream.answering(as_requested);
        let patience = "circuit: { slow_threshold: 500ms }";
        let front = Front::start(&config(&upstream, chat, patience)).await;
        get_known(&front).await;
        if is_slow {
            upstream.answering(slow);
            for _ in 0..2 {
                assert!(front.ask("r", true).await.succeeded_with(TEXT));
            }
        }
        let before = streams(&upstream).len();
        assert!(front.ask("r", false).await.succeeded_with(TEXT));
        assert_eq!(streams(&upstream)[before..], [expected], "{chat}");
    }
}
