//! Whatever an upstream does in the middle of a stream: the client's answer is complete, or the
//! client gets the reason.

#![expect(clippy::unwrap_used, reason = "a test ends where its world fails")]

use relight::internals::grpc::v1::{FailureClass, RewindMode};
use serde_json::json;

use crate::support::{
    folding::Folding,
    relight::{Relight, streaming},
    targets::one_target,
    upstream::{Reply, Upstream, chunk},
};

const ANSWER: &str = "Whole at last, and nobody saw the seams.";

fn piece(text: &str) -> String {
    chunk(&json!({ "content": text }), None)
}

/// Plays `broken`, then a complete answer; checks that the answer is complete and returns how the
/// first attempt failed.
async fn recovered_from(broken: Reply) -> (Folding, FailureClass) {
    let upstream = Upstream::start().await;
    upstream.push(broken).otherwise(Reply::text(ANSWER));
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, ended) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(ended.is_none(), "{ended:?}");
    assert!(folding.is_completed(), "{:?}", folding.terminal);
    assert_eq!(folding.text(), ANSWER);
    let attempts = &folding.terminal.as_ref().unwrap().attempts;
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    let class = attempts[0].failure_class();
    (folding, class)
}

#[tokio::test]
async fn a_stream_that_stalls_is_begun_anew() {
    let whole = Reply::text(ANSWER);
    let half = whole.body_bytes().len() / 2;
    let (folding, _) = recovered_from(whole.stall_after(half)).await;
    assert_eq!(folding.rewinds, 0, "the second answer repeats the first");
}

#[tokio::test]
async fn an_error_inside_a_stream_revokes_what_came_before_it() {
    let error =
        json!({ "error": { "message": "The server is overloaded", "type": "overloaded_error" } })
            .to_string();
    let (folding, class) =
        recovered_from(Reply::events(&[piece("Something "), piece("else"), error])).await;
    assert_eq!((folding.rewinds, class), (1, FailureClass::Overloaded));
}

#[tokio::test]
async fn an_end_without_its_mark_is_a_cut_however_clean_it_looks() {
    let whole = Reply::text(ANSWER);
    let half = whole.body_bytes().len() / 2;
    let (_, class) = recovered_from(whole.ended_after(half)).await;
    assert_eq!(class, FailureClass::StreamInterrupted);
}

#[tokio::test]
async fn an_answer_without_its_done_is_whole() {
    let upstream = Upstream::start().await;
    let whole = [piece("Whole."), chunk(&json!({}), Some("stop"))]
        .map(|data| format!("data: {data}\n\n"))
        .concat();
    let bytes = whole.len();
    upstream.otherwise(
        Reply::events(&[piece("Whole."), chunk(&json!({}), Some("stop"))]).ended_after(bytes),
    );
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, _) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(folding.is_completed(), "{:?}", folding.terminal);
    assert_eq!(
        (folding.text().as_str(), upstream.requests().len()),
        ("Whole.", 1)
    );
}

#[tokio::test]
async fn a_malformed_event_breaks_the_stream_and_the_answer_is_made_again() {
    let upstream = Upstream::start().await;
    let finish = chunk(&json!({}), Some("stop"));
    upstream.push(Reply::events(&[
        piece("One "),
        "{\"choices\": [".to_owned(),
        piece("two."),
        finish.clone(),
    ]));
    upstream.otherwise(Reply::events(&[piece("One lost "), piece("two."), finish]));
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, _) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(folding.is_completed(), "{:?}", folding.terminal);
    assert_eq!(folding.text(), "One lost two.");
}

#[tokio::test]
async fn a_tool_call_that_is_cut_anywhere_is_committed_once_and_whole() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let arguments = "{\"city\":\"Ålesund\",\"days\":[1,2,3]}";
    let whole = Reply::tool_call("weather", arguments);
    for cut in (0..whole.body_bytes().len()).step_by(13) {
        upstream
            .push(whole.clone().cut_after(cut))
            .push(whole.clone());
        // The folding itself refuses a rewind of a committed call, and a committed call that is no
        // JSON.
        let (folding, ended) =
            Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
        assert!(
            ended.is_none() && folding.is_completed(),
            "cut after {cut}: {ended:?}"
        );
        let committed: Vec<&str> = folding
            .blocks
            .values()
            .filter(|block| block.committed)
            .map(|block| block.text.as_str())
            .collect();
        assert_eq!(committed, [arguments], "cut after {cut}");
        while upstream.unplayed() > 0 {
            // The first answer was whole after all where only its last mark was cut off.
            relight.ask("Take what is left.").await;
        }
    }
}

#[tokio::test]
async fn every_failure_is_reported_in_order_and_none_replaces_another() {
    let upstream = Upstream::start().await;
    let half = Reply::text(ANSWER).body_bytes().len() / 2;
    upstream
        .push(Reply::status(503))
        .push(Reply::text(ANSWER).cut_after(half))
        .otherwise(Reply::status(401));
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, _) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    let told: Vec<FailureClass> = folding
        .terminal
        .unwrap()
        .attempts
        .iter()
        .map(relight::internals::grpc::v1::Attempt::failure_class)
        .collect();
    assert_eq!(
        told,
        [
            FailureClass::Overloaded,
            FailureClass::StreamInterrupted,
            FailureClass::Authentication
        ]
    );
}

#[tokio::test]
async fn a_second_tool_call_that_reuses_an_index_is_a_call_of_its_own() {
    let upstream = Upstream::start().await;
    let call = |id: &str, arguments: &str| {
        let function = json!({ "name": "search", "arguments": arguments });
        chunk(
            &json!({ "tool_calls": [{ "index": 0, "id": id, "type": "function", "function": function }] }),
            None,
        )
    };
    let finish = chunk(&json!({}), Some("tool_calls"));
    upstream.otherwise(Reply::events(&[
        call("call_a", "{\"q\":1}"),
        call("call_b", "{\"q\":2}"),
        finish,
    ]));
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, _) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(folding.is_completed(), "{:?}", folding.terminal);
    let calls: Vec<&str> = folding
        .blocks
        .values()
        .filter(|block| block.committed)
        .map(|block| block.text.as_str())
        .collect();
    assert_eq!(calls, ["{\"q\":1}", "{\"q\":2}"]);
}
