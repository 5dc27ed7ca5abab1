//! A background response is resumed where its connection broke, and requested once: over real
//! sockets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use relight::internals::{
    domain::{
        completion::{Break, Delta},
        failure::TransportFault,
        target::Dialect,
        wire::ProviderRequest,
    },
    provider::Providers,
    wire_server::answers::responses::{text, text_after},
};
use serde_json::json;
use tower::Service as _;

use crate::support::{
    dialect::{attempt_in, speaking},
    upstream::{Reply, Request, Upstream},
    wire::{Seen, ask, asking, providers},
};

mod recovered;
mod taken_over;

const TEXT: &str = "One two three four five six seven eight.";

/// An attempt whose answer is made in the background.
fn in_background() -> ProviderRequest {
    let mut call = attempt_in(Dialect::OpenaiResponses, asking("Count."));
    Arc::make_mut(&mut call.target).capabilities.background = true;
    call
}

fn at(upstream: &Upstream) -> Providers {
    providers(speaking(Dialect::OpenaiResponses, upstream.base_url()))
}

/// Where the rest that a request resumes begins; `None` for any other request.
fn resumed_after(request: &Request) -> Option<u64> {
    let after = request
        .path
        .strip_prefix("/v1/responses/resp_1?stream=true&starting_after=")?;
    (request.method == "GET").then(|| after.parse().unwrap())
}

fn is_cancel(request: &Request) -> bool {
    request.method == "POST" && request.path == "/v1/responses/resp_1/cancel"
}

/// A server that knows the rest of the answer, whose `n`th one (from 0) is changed before it is
/// sent.
async fn knowing(change: impl Fn(usize, Reply) -> Reply + Send + Sync + 'static) -> Upstream {
    let upstream = Upstream::start().await;
    let rests = AtomicUsize::new(0);
    upstream.answering(move |request| match resumed_after(request) {
        Some(after) => change(
            rests.fetch_add(1, Ordering::SeqCst),
            text_after(TEXT, after),
        ),
        None if is_cancel(request) => {
            Reply::document(&json!({"id": "resp_1", "status": "cancelled"}))
        }
        None => text(TEXT),
    });
    upstream
}

/// The places of the answer that are behind a whole event: its number, and the bytes up to it.
fn places() -> Vec<(u64, usize)> {
    let body = text(TEXT).body_bytes();
    let ends = body
        .windows(2)
        .enumerate()
        .filter(|(_, window)| *window == b"\n\n")
        .map(|(at, _)| at + 2);
    (0..).zip(ends).collect()
}

/// A cut within the event after the third word.
fn middle() -> (u64, usize) {
    let (number, bytes) = places()[5];
    (number, bytes + 40)
}

fn reads_on(seen: &Seen) -> Vec<Break> {
    let told = seen.deltas.iter().filter_map(|delta| match delta {
        Delta::ReadOn(told) => Some(*told),
        _ => None,
    });
    told.collect()
}

fn without_breaks(seen: &Seen) -> Vec<Delta> {
    seen.deltas
        .iter()
        .filter(|delta| !matches!(delta, Delta::ReadOn(_)))
        .cloned()
        .collect()
}

fn methods(upstream: &Upstream) -> Vec<String> {
    upstream
        .requests()
        .iter()
        .map(|request| request.method.clone())
        .collect()
}

#[tokio::test]
async fn a_response_that_is_cut_is_requested_once_and_resumed_behind_its_last_event() {
    let upstream = knowing(|_, rest| rest).await;
    let (number, bytes) = middle();
    upstream.push(text(TEXT).cut_after(bytes));
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    assert_eq!(
        reads_on(&seen),
        [Break {
            fault: TransportFault::Cut,
            requests: 1
        }]
    );
    let requests = upstream.requests();
    assert_eq!(methods(&upstream), ["POST", "GET"]);
    assert_eq!(resumed_after(&requests[1]), Some(number));
    for name in ["background", "store", "stream"] {
        assert_eq!(requests[0].body[name], json!(true), "{name}");
    }
}

#[tokio::test]
async fn wherever_and_however_it_breaks_nothing_is_lost_or_doubled() {
    let whole = ask(&at(&knowing(|_, rest| rest).await), in_background()).await;
    let body = text(TEXT).body_bytes();
    let begun = places()[0].1;
    let upstream = knowing(|_, rest| rest).await;
    let providers = at(&upstream);
    for bytes in (begun..body.len() - 2).step_by(61) {
        for broken in [text(TEXT).cut_after(bytes), text(TEXT).ended_after(bytes)] {
            upstream.push(broken);
            let seen = ask(&providers, in_background()).await;
            assert_eq!(seen.error, None, "at {bytes}");
            assert_eq!(without_breaks(&seen), whole.deltas, "at {bytes}");
        }
    }
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| !is_cancel(request))
    );
}

#[tokio::test]
async fn a_rest_that_is_cut_is_read_on_too() {
    let upstream = knowing(|n, rest| {
        if n == 0 {
            rest.cut_in_the_middle()
        } else {
            rest
        }
    })
    .await;
    upstream.push(text(TEXT).reset_after(middle().1));
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    assert_eq!(reads_on(&seen).len(), 2);
    let asked: Vec<u64> = upstream
        .requests()
        .iter()
        .filter_map(resumed_after)
        .collect();
    assert!(asked.len() == 2 && asked[0] < asked[1], "{asked:?}");
}

#[tokio::test]
async fn what_was_read_before_is_not_taken_again() {
    let upstream = knowing(|_, _| text(TEXT)).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
}

#[tokio::test]
async fn a_rest_with_a_hole_before_it_is_no_answer() {
    let (number, bytes) = middle();
    let upstream = knowing(move |_, _| text_after(TEXT, number + 1)).await;
    upstream.push(text(TEXT).cut_after(bytes));
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
}

#[tokio::test]
async fn two_requests_in_a_row_that_bring_nothing_are_enough_and_the_response_is_cancelled() {
    let upstream = knowing(|_, _| Reply::status(503)).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let seen = ask(&at(&upstream), in_background()).await;
    let error = seen.failed();
    assert_eq!(error.fault, Some(TransportFault::Cut));
    let words = error.message.as_deref().unwrap();
    assert!(
        words.ends_with("2 requests to read on did not mend it (status 503)"),
        "{words}"
    );
    assert!(is_cancel(&upstream.await_request(4).await));
    assert_eq!(methods(&upstream), ["POST", "GET", "GET", "POST"]);
}

#[tokio::test]
async fn a_rest_that_breaks_repeatedly_is_requested_three_times() {
    // Each rest brings one event more.
    let one = |rest: Reply| {
        let body = rest.body_bytes();
        let end = body
            .windows(2)
            .position(|window| window == b"\n\n")
            .unwrap()
            + 2;
        rest.cut_after(end)
    };
    let upstream = knowing(move |_, rest| one(rest)).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
    assert_eq!(
        upstream.requests().iter().filter_map(resumed_after).count(),
        3
    );
}

#[tokio::test]
async fn an_answer_that_falls_silent_is_read_on_before_its_time_is_over() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).stall_after(middle().1));
    let call = ProviderRequest {
        idle: Some(Duration::from_millis(200)),
        ..in_background()
    };
    let seen = ask(&at(&upstream), call).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    assert_eq!(
        reads_on(&seen),
        [Break {
            fault: TransportFault::IdleTimeout,
            requests: 1
        }]
    );
}

#[tokio::test]
async fn a_silence_without_a_rest_is_only_a_silence() {
    let upstream = knowing(|_, _| Reply::status(404)).await;
    let body = text(TEXT).body_bytes();
    let (begun, rest) = body.split_at(middle().1);
    upstream.push(Reply::stream(vec![
        (Duration::ZERO, begun.to_vec()),
        (Duration::from_secs(1), rest.to_vec()),
    ]));
    let call = ProviderRequest {
        idle: Some(Duration::from_millis(200)),
        ..in_background()
    };
    let seen = ask(&at(&upstream), call).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    assert_eq!(methods(&upstream), ["POST", "GET"]);
}

#[tokio::test]
async fn a_query_of_the_base_url_goes_with_every_request() {
    let upstream = Upstream::start().await;
    upstream
        .push(text(TEXT).cut_after(middle().1))
        .push(text_after(TEXT, middle().0));
    let spec = speaking(
        Dialect::OpenaiResponses,
        format!("{}?api-version=v1", upstream.base_url()),
    );
    let seen = ask(&providers(spec), in_background()).await;
    assert_eq!(seen.text(), TEXT);
    let path = format!(
        "/v1/responses/resp_1?stream=true&starting_after={}&api-version=v1",
        middle().0
    );
    assert_eq!(upstream.requests()[1].path, path);
}

#[tokio::test]
async fn a_reader_that_leaves_cancels_the_response_with_the_same_key() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).stall_after(middle().1));
    let mut spec = speaking(Dialect::OpenaiResponses, upstream.base_url());
    spec.credentials
        .insert("default".to_owned(), "secret".into());
    let mut stream = providers(spec).call(in_background()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    // The provider itself is gone by now, as after a change of the configuration.
    drop(stream);
    let cancel = upstream.await_request(2).await;
    assert!(is_cancel(&cancel), "{cancel:?}");
    assert_eq!(cancel.header("authorization"), Some("Bearer secret"));
}

#[tokio::test]
async fn an_id_that_is_no_name_never_enters_a_path() {
    let upstream = Upstream::start().await;
    let bytes = String::from_utf8(text(TEXT).body_bytes())
        .unwrap()
        .replace("resp_1", "../../admin?x=");
    let cut = Reply::stream(vec![(Duration::ZERO, bytes.into_bytes())]).cut_after(middle().1);
    upstream.push(cut);
    let seen = ask(&at(&upstream), in_background()).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
    assert_eq!(methods(&upstream), ["POST"]);
}

#[tokio::test]
async fn without_the_capability_a_cut_is_a_cut() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let seen = ask(
        &at(&upstream),
        attempt_in(Dialect::OpenaiResponses, asking("Count.")),
    )
    .await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
    let requests = upstream.requests();
    assert_eq!(
        (requests.len(), &requests[0].body["store"]),
        (1, &json!(false))
    );
    assert_eq!(requests[0].body.get("background"), None);
}
