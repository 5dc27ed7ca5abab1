//! A long answer is in a response once, and whole; who asks for more gets it in every place.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use prost::Message as _;
use relight::internals::grpc::v1::{
    AnswerView, Completion, Invocation, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse,
    Message, Resume, RewindMode, StreamWithRecoveryRequest, invocation::Call,
    invoke_with_recovery_response::Outcome, part::Content, resume,
    stream_with_recovery_request::Start, terminal,
};
use serde_json::json;
use tonic::Code;

use crate::support::{
    folding::Folding,
    relight::{Relight, asking, streaming},
    room::room,
    targets::one_target,
    upstream::{Reply, Upstream, chunk},
};

/// More than a response repeats.
const ANSWER_BYTES: usize = 1 << 20;

async fn answered(relight: &Relight, view: AnswerView) -> InvokeWithRecoveryResponse {
    let invocation = Some(Invocation {
        answer_view: view.into(),
        ..asking("At length.")
    });
    let mut client = relight.recovery().max_decoding_message_size(usize::MAX);
    let request = InvokeWithRecoveryRequest { invocation };
    client
        .invoke_with_recovery(request)
        .await
        .unwrap()
        .into_inner()
}

fn completion(response: &InvokeWithRecoveryResponse) -> &Completion {
    match &response.outcome {
        Some(Outcome::Completion(completion)) => completion,
        other => panic!("{other:?}"),
    }
}

fn texts(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.content {
        Some(Content::Text(text)) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// A server of one long text, and the text.
async fn at_length(upstream: &Upstream) -> (Relight, String) {
    let piece = "All work and no play. ".repeat(2000);
    let pieces = ANSWER_BYTES / piece.len() + 1;
    let mut events = vec![chunk(&json!({"content": piece}), None); pieces];
    events.push(chunk(&json!({}), Some("stop")));
    upstream.otherwise(Reply::events(&events));
    (
        Relight::start(&one_target(upstream)).await,
        piece.repeat(pieces),
    )
}

#[tokio::test]
async fn a_long_answer_is_once_in_its_response_by_default() {
    let upstream = Upstream::start().await;
    let (relight, text) = at_length(&upstream).await;
    for view in [AnswerView::Unspecified, AnswerView::Once] {
        let response = answered(&relight, view).await;
        assert!(
            response.encoded_len() < text.len() + (64 << 10),
            "{}",
            response.encoded_len()
        );
        let completion = completion(&response);
        assert!(completion.text == text, "{} bytes", completion.text.len());
        assert_eq!(completion.message, None);
        let turn = response.history_patch.last().unwrap();
        assert_eq!(turn.parts[0].left_out_bytes, text.len() as u64);
    }
    let response = answered(&relight, AnswerView::Repeated).await;
    let message = completion(&response).message.as_ref().unwrap();
    assert!(texts(message) == text && response.history_patch.last() == Some(message));
}

#[tokio::test]
async fn a_turn_whose_text_was_left_out_is_not_taken_for_an_empty_one() {
    let upstream = Upstream::start().await;
    let (relight, text) = at_length(&upstream).await;
    let response = answered(&relight, AnswerView::Unspecified).await;
    let mut next = asking("And then?");
    let Some(Call::Model(model)) = &mut next.call else {
        panic!("{next:?}")
    };
    let turn = response.history_patch.last().unwrap().clone();
    let question = model.messages[0].clone();
    model.messages.splice(0..0, [question, turn]);
    let request = |invocation: Invocation| InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let large = usize::MAX;
    let mut client = relight
        .recovery()
        .max_encoding_message_size(large)
        .max_decoding_message_size(large);
    let refused = client
        .invoke_with_recovery(request(next.clone()))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("left_out_bytes"), "{refused:?}");
    // With its text in its place it is the turn that it was.
    let Some(Call::Model(model)) = &mut next.call else {
        panic!("{next:?}")
    };
    let part = &mut model.messages[1].parts[0];
    part.left_out_bytes = 0;
    let Some(Content::Text(empty)) = &mut part.content else {
        panic!("{part:?}")
    };
    empty.text.clone_from(&text);
    client.invoke_with_recovery(request(next)).await.unwrap();
    let sent = upstream.requests().pop().unwrap();
    assert_eq!(sent.texts_of("assistant"), [text]);
}

/// The history patch at the end of a stream, its texts put back from the blocks, and the bytes that
/// were left out of it.
async fn end_of(relight: &Relight, start: Start) -> (Vec<Message>, u64) {
    let request = StreamWithRecoveryRequest { start: Some(start) };
    let mut client = relight.recovery().max_decoding_message_size(usize::MAX);
    let stream = client.stream_with_recovery(request).await.unwrap();
    let mut folding = Folding::default();
    folding.follow(&mut stream.into_inner(), usize::MAX).await;
    let Some(terminal::Outcome::Completed(completed)) = folding.terminal.unwrap().outcome else {
        panic!("it ended otherwise")
    };
    let mut texts = folding.blocks.into_values().map(|block| block.text);
    let mut patch = completed.history_patch;
    let mut left_out = 0;
    for part in patch.iter_mut().flat_map(|turn| &mut turn.parts) {
        if part.left_out_bytes > 0 {
            let text = texts.next().unwrap();
            assert_eq!(part.left_out_bytes, text.len() as u64);
            left_out += std::mem::take(&mut part.left_out_bytes);
            let Some(Content::Text(empty)) = &mut part.content else {
                panic!("{part:?}")
            };
            assert!(std::mem::replace(&mut empty.text, text).is_empty());
        }
    }
    (patch, left_out)
}

#[tokio::test]
async fn a_stream_and_its_resumption_hold_a_long_answer_once_by_default() {
    let _room = room().await;
    let upstream = Upstream::start().await;
    let (relight, text) = at_length(&upstream).await;
    for (number, view) in [
        AnswerView::Unspecified,
        AnswerView::Once,
        AnswerView::Repeated,
    ]
    .into_iter()
    .enumerate()
    {
        let is_once = view != AnswerView::Repeated;
        let expected = if is_once { text.len() as u64 } else { 0 };
        let mut invocation = streaming("At length.", RewindMode::Rewind);
        invocation.request_id = format!("request-{number}");
        invocation.answer_view = view.into();
        let (patch, left_out) = end_of(&relight, Start::Invocation(invocation)).await;
        assert_eq!(left_out, expected, "{view:?}");
        assert!(texts(patch.last().unwrap()) == text, "{view:?}");
        // Whatever it was started with, it is resumed as the resumption asks.
        for again in [AnswerView::Unspecified, AnswerView::Repeated] {
            let resume = Resume {
                invocation: Some(resume::Invocation::RequestId(format!("request-{number}"))),
                answer_view: again.into(),
                ..Resume::default()
            };
            let (patch, left_out) = end_of(&relight, Start::Resume(resume)).await;
            let is_once = again != AnswerView::Repeated;
            assert_eq!(left_out > 0, is_once, "{view:?}, then {again:?}");
            assert!(
                texts(patch.last().unwrap()) == text,
                "{view:?}, then {again:?}"
            );
        }
    }
    let unknown = Resume {
        invocation: Some(resume::Invocation::RequestId("request-0".to_owned())),
        answer_view: 99,
        ..Resume::default()
    };
    let start = Some(Start::Resume(unknown));
    let request = StreamWithRecoveryRequest { start };
    let refused = relight.recovery().stream_with_recovery(request).await;
    assert_eq!(refused.err().unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_short_answer_is_whole_at_the_end_of_its_stream_unless_it_is_asked_for_once() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    for (view, is_once) in [
        (AnswerView::Unspecified, false),
        (AnswerView::Once, true),
        (AnswerView::Repeated, false),
    ] {
        let mut invocation = streaming("Hello", RewindMode::Rewind);
        invocation.answer_view = view.into();
        let (patch, left_out) = end_of(&relight, Start::Invocation(invocation)).await;
        assert_eq!(left_out > 0, is_once, "{view:?}");
        assert_eq!(texts(patch.last().unwrap()), "Hello from upstream.");
    }
}
