//! `ConverseStream` as AWS documents it: binary frames, each with its own checksums.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answers, documents, pieces};
use crate::wire_server::Reply;

pub(super) const ANSWERS: Answers = Answers {
    text,
    tool_call,
    broken_tool_call,
    rate_limited,
    overloaded_amid,
    unfit,
    refuses,
    document: documents::bedrock,
};

/// Bytes of a frame beside its headers and payload.
const FRAMING_BYTES: usize = 16;

/// Mark of a header whose value is text.
const TEXT: u8 = 7;

/// Returns a text, word by word.
#[must_use]
pub fn text(text: &str) -> Reply {
    let mut frames = begun(text);
    frames.extend(end("end_turn"));
    stream(frames)
}

/// Returns a call whose input comes in pieces.
#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Reply {
    let start = json!({"toolUse": {"toolUseId": "tooluse_1", "name": name}});
    let mut frames = vec![
        event("messageStart", &json!({"role": "assistant"})),
        event(
            "contentBlockStart",
            &json!({"contentBlockIndex": 0, "start": start}),
        ),
    ];
    frames.extend(
        pieces(arguments, 5)
            .into_iter()
            .map(|piece| delta(&json!({"toolUse": {"input": piece}}))),
    );
    frames.extend(end("tool_use"));
    stream(frames)
}

/// Its input is not valid JSON.
#[must_use]
pub fn broken_tool_call(name: &str) -> Reply {
    tool_call(name, "{\"city\": \"Os")
}

/// `ThrottlingException`; AWS states no wait.
#[must_use]
pub fn rate_limited() -> Reply {
    let body = json!({"message": "Too many requests, please wait before trying again."});
    Reply::refusal(429, &[("x-amzn-errortype", "ThrottlingException")], &body)
}

/// Returns an exception in place of an event.
#[must_use]
pub fn overloaded_amid(text: &str) -> Reply {
    let mut frames = begun(text);
    let headers = [
        (":exception-type", "serviceUnavailableException"),
        (":message-type", "exception"),
    ];
    frames.push(frame(
        &headers,
        &json!({"message": "Bedrock is unable to process your request."}).to_string(),
    ));
    stream(frames)
}

/// The requested output limit is too large.
#[must_use]
pub fn unfit() -> Reply {
    let message = "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value \
                   that is lower than 4096.";
    Reply::refusal(
        400,
        &[("x-amzn-errortype", "ValidationException")],
        &json!({"message": message}),
    )
}

/// Returns a guardrail intervened.
#[must_use]
pub fn refuses() -> Reply {
    let mut frames = begun("Sorry, the model cannot answer this question.");
    frames.extend(end("guardrail_intervened"));
    stream(frames)
}

/// Returns an event of a stream.
#[must_use]
pub fn event(name: &str, payload: &Value) -> Vec<u8> {
    let headers = [
        (":event-type", name),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    frame(&headers, &payload.to_string())
}

/// Returns a frame of these headers, whose values are text, and this payload.
#[must_use]
pub fn frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut head = Vec::new();
    for (name, value) in headers {
        head.extend(u8::try_from(name.len()).unwrap_or(u8::MAX).to_be_bytes());
        head.extend(name.bytes());
        head.push(TEXT);
        head.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend(value.bytes());
    }
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = [
        number(head.len() + payload.len() + FRAMING_BYTES),
        number(head.len()),
    ]
    .concat();
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(head);
    frame.extend(payload.bytes());
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

fn delta(delta: &Value) -> Vec<u8> {
    event(
        "contentBlockDelta",
        &json!({"contentBlockIndex": 0, "delta": delta, "p": "abcd"}),
    )
}

fn begun(text: &str) -> Vec<Vec<u8>> {
    let start = event("messageStart", &json!({"role": "assistant"}));
    let words = text
        .split_inclusive(' ')
        .map(|word| delta(&json!({"text": word})));
    [start].into_iter().chain(words).collect()
}

fn end(stop_reason: &str) -> [Vec<u8>; 3] {
    let usage = json!({"inputTokens": 10, "outputTokens": 8, "totalTokens": 18});
    [
        event("contentBlockStop", &json!({"contentBlockIndex": 0})),
        event("messageStop", &json!({"stopReason": stop_reason})),
        event(
            "metadata",
            &json!({"usage": usage, "metrics": {"latencyMs": 9}}),
        ),
    ]
}

fn stream(frames: Vec<Vec<u8>>) -> Reply {
    Reply::stream(
        frames
            .into_iter()
            .map(|frame| (Duration::ZERO, frame))
            .collect(),
    )
}
