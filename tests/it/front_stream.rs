//! A stream ends as the complete answer or as an error event, and revokes nothing that it sent.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, question},
    upstream::{Reply, Upstream, chunk},
};

const TEXT: &str = "One two three four five six seven eight.";

async fn two() -> (Upstream, Upstream) {
    (Upstream::start().await, Upstream::start().await)
}

/// A route over both, with settings of the front.
async fn front(settings: &str, (first, second): (&Upstream, &Upstream), prefill: bool) -> Front {
    let provider = |upstream: &Upstream| {
        format!(
            "{{ dialect: openai_chat, base_url: \"{}\", api_key: k, allow_plaintext: true }}",
            upstream.base_url()
        )
    };
    let rest = format!(
        "providers:\n  a: {}\n  b: {}\ntargets:\n  a: {{ provider: a, model: model-a }}\n  b: {{ provider: b, model: model-b, \
         capabilities: {{ assistant_prefill: {prefill} }} }}\nroutes:\n  chat: {{ targets: [a, b] }}\n",
        provider(first),
        provider(second)
    );
    let server = format!("  openai_front: {{ listen: \"127.0.0.1:0\"{settings} }}");
    Front::start_with(&server, &rest).await
}

/// The text's first words, then the connection is closed.
fn cut(text: &str, words: usize) -> Reply {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend(
        text.split_inclusive(' ')
            .take(words)
            .map(|word| chunk(&json!({"content": word}), None)),
    );
    let whole = Reply::events(&events);
    let bytes = whole.body_bytes().len();
    // Time for what was sent to be delivered: a reader of the front sees it before the cut.
    whole.paced(Duration::from_millis(5)).cut_after(bytes)
}

fn roles(answer: &Answer) -> usize {
    answer
        .events()
        .iter()
        .filter(|event| event.pointer("/choices/0/delta/role").is_some())
        .count()
}

#[tokio::test]
async fn a_stream_begins_with_its_role_and_ends_with_finish_usage_and_done() {
    let (a, b) = two().await;
    a.otherwise(Reply::text(TEXT));
    let answer = front("", (&a, &b), false).await.ask("chat", true).await;
    assert!(answer.succeeded_with(TEXT), "{answer:?}");
    let events = answer.events();
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(roles(&answer), 1);
    let finish = &events[events.len() - 2];
    assert_eq!(
        (&finish["choices"][0]["finish_reason"], &finish["usage"]),
        (&json!("stop"), &Value::Null)
    );
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["choices"], &last["usage"]["completion_tokens"]),
        (&json!([]), &json!(8))
    );
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
    assert_eq!(
        (
            answer.header("x-relight-attempts"),
            answer.header("x-relight-target")
        ),
        (Some("1"), Some("a"))
    );
}

#[tokio::test]
async fn usage_is_sent_only_where_it_was_requested() {
    let (a, b) = two().await;
    let mut body = question("chat", true);
    body.as_object_mut().unwrap().remove("stream_options");
    let answer = front("", (&a, &b), false).await.chat(&body).await;
    assert!(
        answer.is_done() && !answer.body.contains("usage"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_tool_call_comes_with_index_id_and_name_and_then_its_arguments() {
    let (a, b) = two().await;
    a.otherwise(Reply::tool_call("add", "{\"a\":1,\"b\":22}"));
    let front = front("", (&a, &b), false).await;
    let mut body = question("chat", true);
    body["tools"] = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    let answer = front.chat(&body).await;
    let events = answer.events();
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant"}),
        "no content is none, and no empty one"
    );
    let calls: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0"))
        .collect();
    let first = json!({"id": "call_a", "type": "function", "function": {"name": "add", "arguments": ""}, "index": 0});
    assert_eq!(*calls[0], first);
    assert_eq!(
        *calls[1],
        json!({"index": 0, "function": {"arguments": "{\"a\":1,\"b\":22}"}})
    );
    assert!(
        events
            .iter()
            .any(|event| event["choices"][0]["finish_reason"] == "tool_calls")
    );
    assert!(answer.is_done());

    body["stream"] = json!(false);
    let document = front.chat(&body).await.json();
    assert_eq!(
        document["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
        "{\"a\":1,\"b\":22}"
    );
    assert_eq!(document["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn reasoning_has_its_own_field() {
    // The second server sends the other name as well, and the third in a way that few write.
    for (thought, said) in [
        (
            json!({"role": "assistant", "reasoning_content": "Hm."}),
            json!("Yes."),
        ),
        (
            json!({"role": "assistant", "reasoning_content": "", "reasoning": "Hm."}),
            json!("Yes."),
        ),
        (
            json!({"content": [], "reasoning_content": "", "reasoning": "Hm."}),
            json!([{"type": "text", "text": "Yes."}]),
        ),
    ] {
        let (a, b) = two().await;
        let said = chunk(&json!({"content": said}), None);
        a.otherwise(Reply::events(&[
            chunk(&thought, None),
            said,
            chunk(&json!({}), Some("stop")),
        ]));
        let answer = front("", (&a, &b), false).await.ask("chat", true).await;
        assert!(answer.succeeded_with("Yes."), "{answer:?}");
        let events = answer.events();
        let pieces = events
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["reasoning_content"].as_str());
        assert_eq!(pieces.collect::<String>(), "Hm.", "{thought}");
    }
}

#[tokio::test]
async fn a_cut_stream_whose_restart_repeats_it_continues_without_a_trace() {
    let (a, b) = two().await;
    a.otherwise(cut(TEXT, 5));
    b.otherwise(Reply::text(TEXT));
    let answer = front("", (&a, &b), false).await.ask("chat", true).await;
    assert!(answer.succeeded_with(TEXT), "{answer:?}");
    assert_eq!(
        (roles(&answer), a.requests().len(), b.requests().len()),
        (1, 2, 1),
        "the target that wrote it goes first"
    );
    assert!(
        answer.body.contains(": relight attempts=3 target=b"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn another_text_after_a_cut_ends_in_an_error_event_and_without_done() {
    let (a, b) = two().await;
    a.otherwise(cut(TEXT, 5));
    b.otherwise(Reply::text("Something else entirely."));
    let answer = front("", (&a, &b), false).await.ask("chat", true).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.clean && !answer.body.contains("[DONE]"),
        "{answer:?}"
    );
    assert_eq!(answer.error()["code"], "stream_interrupted");
    assert!(
        TEXT.starts_with(&answer.text()),
        "nothing of the other text was sent: {answer:?}"
    );
}

#[tokio::test]
async fn another_text_after_a_cut_is_continued_by_a_target_that_can() {
    let (a, b) = two().await;
    a.otherwise(cut("One two three four,", 4));
    b.push(Reply::text("Something else entirely."));
    b.push(Reply::text(" five six."));
    // Two calls of the target that wrote it, one of the other, and one for the rest.
    let answer = front("", (&a, &b), true)
        .await
        .send(
            Method::POST,
            "/v1/chat/completions",
            &[("x-relight-max-retries", "3")],
            question("chat", true).to_string(),
        )
        .await;
    assert!(
        answer.succeeded_with("One two three four, five six."),
        "{answer:?}"
    );
    let begun = b.await_request(2).await.body["messages"]
        .as_array()
        .unwrap()
        .last()
        .cloned();
    assert_eq!(
        begun,
        Some(json!({"role": "assistant", "content": "One two three four,"}))
    );
}

#[tokio::test]
async fn continuation_can_be_switched_off() {
    let (a, b) = two().await;
    a.otherwise(cut("One two three four,", 4));
    b.otherwise(Reply::text("Something else entirely."));
    let answer = front(", on_divergence: error", (&a, &b), true)
        .await
        .ask("chat", true)
        .await;
    assert_eq!(
        (answer.error()["code"].as_str(), b.requests().len()),
        (Some("stream_interrupted"), 1)
    );
}

#[tokio::test]
async fn what_is_held_back_can_be_begun_anew_with_other_text() {
    for hold_back in ["whole", "1KiB"] {
        let (a, b) = two().await;
        a.otherwise(cut(TEXT, 5));
        b.otherwise(Reply::text("Something else entirely."));
        let settings = format!(", hold_back: {hold_back}");
        let answer = front(&settings, (&a, &b), false)
            .await
            .ask("chat", true)
            .await;
        assert!(
            answer.succeeded_with("Something else entirely."),
            "{hold_back}: {answer:?}"
        );
        assert_eq!(
            (
                answer.header("x-relight-attempts"),
                answer.header("x-relight-target")
            ),
            (Some("2"), Some("b"))
        );
    }
}

#[tokio::test]
async fn a_stream_that_no_target_can_finish_ends_with_the_reason_in_its_last_event() {
    let (a, b) = two().await;
    for upstream in [&a, &b] {
        upstream.otherwise(cut(TEXT, 5));
    }
    let answer = front("", (&a, &b), false).await.ask("chat", true).await;
    assert!(
        answer.clean && !answer.body.contains("[DONE]"),
        "{answer:?}"
    );
    assert_eq!(answer.error()["relight"]["class"], "stream_interrupted");
    assert_eq!(answer.error()["relight"]["attempts"], 3);
    assert_eq!(answer.text(), "One two three four five ");
}

#[tokio::test]
async fn comments_keep_a_silent_stream_alive() {
    let (a, b) = two().await;
    let pieces = Reply::text("One two.").body_bytes();
    let text = String::from_utf8(pieces).unwrap();
    let (begin, end) = text.split_at(
        text.find("two")
            .and_then(|at| text[..at].rfind("data:"))
            .unwrap(),
    );
    let pause = Duration::from_millis(400);
    a.otherwise(Reply::stream(vec![
        (Duration::ZERO, begin.into()),
        (pause, end.into()),
    ]));
    let answer = front(", keepalive: 100ms", (&a, &b), false)
        .await
        .ask("chat", true)
        .await;
    assert!(answer.succeeded_with("One two."), "{answer:?}");
    assert!(answer.body.contains(": relight keep-alive"), "{answer:?}");
}

#[tokio::test]
async fn a_stream_begins_with_comments_when_its_first_content_takes_longer_than_the_keepalive() {
    let (a, b) = two().await;
    a.push(Reply::status(500).slow_head(Duration::from_millis(250)));
    a.push(Reply::text(TEXT).slow_head(Duration::from_millis(250)));
    let answer = front(", keepalive: 100ms", (&a, &b), false)
        .await
        .ask("chat", true)
        .await;
    assert!(answer.succeeded_with(TEXT), "{answer:?}");
    let comments = answer
        .body
        .lines()
        .take_while(|line| !line.starts_with("data:"));
    assert!(
        comments
            .filter(|line| *line == ": relight keep-alive")
            .count()
            >= 2,
        "{answer:?}"
    );
    let shown = ["x-relight-attempts", "x-relight-target"].map(|name| answer.header(name));
    assert_eq!(
        shown,
        [Some("1"), Some("a")],
        "as known when the response began: {answer:?}"
    );
    assert!(
        answer.body.contains(": relight attempts=2 target=a"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_failure_after_the_keepalive_is_the_protocols_error_event_and_one_before_it_a_status() {
    let paths = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];
    for (path, kinds) in
        paths
            .into_iter()
            .zip([vec![""], vec!["error", "response.failed"], vec!["error"]])
    {
        let (a, b) = two().await;
        a.push(Reply::status(500).slow_head(Duration::from_millis(250)))
            .push(Reply::status(500));
        let front = front(", keepalive: 100ms", (&a, &b), false).await;
        let mut body = question("chat", true);
        body["input"] = body["messages"].clone();
        body["max_tokens"] = json!(9);
        let dropped = if path.ends_with("responses") {
            "messages"
        } else {
            "input"
        };
        body.as_object_mut().unwrap().remove(dropped);
        let headers = [("x-relight-max-retries", "0")];
        let answers = [
            front
                .send(Method::POST, path, &headers, body.to_string())
                .await,
            front
                .send(Method::POST, path, &headers, body.to_string())
                .await,
        ];
        assert_eq!(
            (answers[0].status, answers[0].clean, answers[1].status),
            (200, true, 502),
            "{answers:?}"
        );
        let events = answers[0].events();
        let shown: Vec<&str> = events
            .iter()
            .map(|event| event["type"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(shown, kinds, "{answers:?}");
        assert!(!answers[0].body.contains("[DONE]"), "{answers:?}");
        assert_eq!(
            [&answers[0], &answers[1]].map(|answer| answer.error()["code"].clone()),
            ["upstream_error"; 2]
        );
    }
}

#[tokio::test]
async fn comments_come_while_a_long_tool_call_is_awaited() {
    let (a, b) = two().await;
    a.otherwise(
        Reply::tool_call("add", "{\"a\":1,\"b\":22}")
            .in_pieces_of(120)
            .paced(Duration::from_millis(60)),
    );
    let mut body = question("chat", true);
    body["tools"] = json!([{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]);
    let answer = front(", keepalive: 100ms", (&a, &b), false)
        .await
        .chat(&body)
        .await;
    assert!(
        answer.is_done() && answer.body.contains("tool_calls"),
        "{answer:?}"
    );
    assert!(
        answer.body.matches(": relight keep-alive").count() >= 2,
        "{answer:?}"
    );
}
