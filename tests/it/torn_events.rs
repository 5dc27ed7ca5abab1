//! An event of a stream that is torn at any of its bytes ends the answer as broken; it never leaves
//! a gap in a text that looks whole. Once the mark of completeness was read, the answer is whole
//! whatever becomes of its connection.

use std::time::Duration;

use relight::internals::{
    domain::{completion::FinishReason, failure::TransportFault, target::Dialect},
    provider::Providers,
    wire_server::answers::{anthropic, bedrock, gemini, openai, responses},
};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    dialect::{answer_in, attempt_in, speaking, stream},
    upstream::{Reply, Upstream, chunk},
    wire::{Seen, ask, asking, providers},
};

const TEXT: &str = "Ports stay open.";

/// A reply that ends in some way after so many bytes of its body.
type Ending = fn(Reply, usize) -> Reply;

/// The spans of the events of a body: text events end with a blank line, binary frames begin with
/// their length.
fn events(dialect: Dialect, body: &[u8]) -> Vec<(usize, usize)> {
    let mut spans = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let end = if dialect == Dialect::Bedrock {
            let length: [u8; 4] = body[at..at + 4].try_into().unwrap();
            at + usize::try_from(u32::from_be_bytes(length)).unwrap()
        } else {
            let blank: &[u8] = if dialect == Dialect::Gemini {
                b"\r\n\r\n"
            } else {
                b"\n\n"
            };
            at + body[at..]
                .windows(blank.len())
                .position(|bytes| bytes == blank)
                .unwrap()
                + blank.len()
        };
        spans.push((at, end));
        at = end;
    }
    spans
}

async fn seen(upstream: &Upstream, providers: &Providers, dialect: Dialect, body: &[u8]) -> Seen {
    upstream.push(stream(body));
    ask(providers, attempt_in(dialect, asking("Hi"))).await
}

/// Whether a fault tells that the stream broke: by an end within an event, or by an event that is no
/// JSON, as two that run into each other are.
const fn is_broken(fault: Option<TransportFault>) -> bool {
    matches!(fault, Some(TransportFault::Cut | TransportFault::Protocol))
}

fn assert_whole_or_broken(seen: &Seen, words: &str) {
    if seen.finish().is_some() {
        assert_eq!(
            (seen.text().as_str(), seen.error.as_ref()),
            (TEXT, None),
            "{words}"
        );
    } else {
        assert!(
            seen.error.is_some() && TEXT.starts_with(&seen.text()),
            "{words}: {seen:?}"
        );
        let fault = seen.failed().fault;
        assert!(is_broken(fault), "{words}: {seen:?}");
    }
}

/// Tears every event at every byte: each time the answer is complete or fails, and has no gap.
async fn no_torn_event_leaves_a_gap(dialect: Dialect, whole: Reply) {
    let upstream = Upstream::start().await;
    let providers = providers(speaking(dialect, upstream.base_url()));
    let body = whole.body_bytes();
    assert_whole_or_broken(
        &seen(&upstream, &providers, dialect, &body).await,
        "untouched",
    );
    let gap: &[u8] = if dialect == Dialect::Bedrock {
        b""
    } else {
        b"\n\n"
    };
    let mut broken = 0;
    for (start, end) in events(dialect, &body) {
        for at in start + 1..end {
            let torn = [&body[..at], gap, &body[end..]].concat();
            let seen = seen(&upstream, &providers, dialect, &torn).await;
            assert_whole_or_broken(
                &seen,
                &format!("torn at byte {} of {start}..{end}", at - start),
            );
            broken += usize::from(seen.finish().is_none());
        }
    }
    assert!(
        broken > body.len() / 4,
        "only {broken} of {} places broke the answer",
        body.len()
    );
}

#[tokio::test]
async fn no_torn_event_of_chat_completions_leaves_a_gap() {
    no_torn_event_leaves_a_gap(Dialect::OpenaiChat, openai::text(TEXT)).await;
}

#[tokio::test]
async fn no_torn_event_of_responses_leaves_a_gap() {
    no_torn_event_leaves_a_gap(Dialect::OpenaiResponses, responses::text(TEXT)).await;
}

#[tokio::test]
async fn no_torn_event_of_messages_leaves_a_gap() {
    no_torn_event_leaves_a_gap(Dialect::Anthropic, anthropic::text(TEXT)).await;
}

#[tokio::test]
async fn no_torn_event_of_gemini_leaves_a_gap() {
    no_torn_event_leaves_a_gap(Dialect::Gemini, gemini::text(TEXT)).await;
}

#[tokio::test]
async fn no_torn_frame_of_bedrock_leaves_a_gap() {
    no_torn_event_leaves_a_gap(Dialect::Bedrock, bedrock::text(TEXT)).await;
}

#[tokio::test]
async fn an_event_that_runs_into_the_next_one_breaks_the_stream() {
    let piece = |text: &str| format!("data: {}\n\n", chunk(&json!({"content": text}), None));
    let stop = format!("data: {}\n\n", chunk(&json!({}), Some("stop")));
    let lost = piece("lost ");
    for at in 1..lost.len() - 1 {
        let body = format!("{}{}{}{stop}", piece("a "), &lost[..at], piece("b"));
        let seen = answer_in(Dialect::OpenaiChat, stream(body.as_bytes())).await;
        assert_eq!(seen.text(), "a ", "at {at}");
        assert!(
            is_broken(seen.failed().fault),
            "at {at}: {:?}",
            seen.failed()
        );
    }
}

#[tokio::test]
async fn heartbeats_and_comments_are_no_part_of_the_answer() {
    let piece = |text: &str| format!("data: {}\n\n", chunk(&json!({"content": text}), None));
    let stop = format!("data: {}\n\n", chunk(&json!({}), Some("stop")));
    for beat in [
        ": ping\n\n",
        "event: ping\n\n",
        "event: keepalive\ndata: \n\n",
        "id: 1\n\n",
        "retry: 10\n\n",
        "\n\n",
    ] {
        let body = format!("{}{beat}{}{stop}", piece("a "), piece("b"));
        let seen = answer_in(Dialect::OpenaiChat, stream(body.as_bytes())).await;
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            ("a b", Some(FinishReason::Stop)),
            "{beat:?}"
        );
    }
}

/// The text up to the mark of completeness, however the connection then ends.
async fn a_complete_answer_is_kept(dialect: Dialect, whole: Reply, mark: &[u8]) {
    let body = whole.body_bytes();
    let at = body
        .windows(mark.len())
        .rposition(|bytes| bytes == mark)
        .unwrap();
    let end = events(dialect, &body)
        .into_iter()
        .find(|(_, end)| *end > at)
        .unwrap()
        .1;
    let endings: [(&str, Ending); 4] = [
        ("ends", Reply::ended_after),
        ("breaks", Reply::cut_after),
        ("is reset", Reply::reset_after),
        ("stays open", Reply::stall_after),
    ];
    for (words, ending) in endings {
        let began = Instant::now();
        let seen = answer_in(dialect, ending(stream(&body), end)).await;
        assert_eq!(
            (seen.text().as_str(), seen.error.as_ref()),
            (TEXT, None),
            "{dialect:?} {words}"
        );
        assert!(seen.finish().is_some(), "{dialect:?} {words}");
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{dialect:?} {words}: {:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn an_answer_is_whole_behind_its_mark_whatever_becomes_of_its_connection() {
    a_complete_answer_is_kept(
        Dialect::OpenaiChat,
        openai::text(TEXT),
        b"\"finish_reason\":\"stop\"",
    )
    .await;
    a_complete_answer_is_kept(
        Dialect::Gemini,
        gemini::text(TEXT),
        b"\"finishReason\":\"STOP\"",
    )
    .await;
    a_complete_answer_is_kept(Dialect::Bedrock, bedrock::text(TEXT), b"messageStop").await;
    a_complete_answer_is_kept(Dialect::Anthropic, anthropic::text(TEXT), b"message_stop").await;
    a_complete_answer_is_kept(
        Dialect::OpenaiResponses,
        responses::text(TEXT),
        b"response.completed",
    )
    .await;
}

#[tokio::test]
async fn torn_data_or_an_error_behind_the_mark_costs_nothing() {
    let piece = format!(
        "data: {}\n\n",
        chunk(&json!({"content": TEXT}), Some("stop"))
    );
    for rest in [
        "data: {\"usage\": {\"prompt\n\n",
        "data: {\"error\": {\"message\": \"usage is lost\"}}\n\n",
        "da",
    ] {
        let seen = answer_in(
            Dialect::OpenaiChat,
            stream(format!("{piece}{rest}").as_bytes()),
        )
        .await;
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            (TEXT, Some(FinishReason::Stop)),
            "{rest}"
        );
    }
}

#[tokio::test]
async fn a_whole_document_is_kept_when_its_connection_breaks_or_stays_open() {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"});
    let document = json!({"id": "r1", "model": "m", "choices": [choice]}).to_string();
    let endings: [Ending; 3] = [Reply::cut_after, Reply::reset_after, Reply::stall_after];
    for ending in endings {
        let seen = answer_in(
            Dialect::OpenaiChat,
            ending(stream(document.as_bytes()), document.len()),
        )
        .await;
        assert_eq!((seen.text().as_str(), seen.error.as_ref()), (TEXT, None));
    }
}
