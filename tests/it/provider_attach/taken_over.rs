//! A response that an earlier owner of the invocation requested is read by another process: from
//! its beginning, once.

use relight::internals::domain::upstream::{BackgroundResponses, UpstreamHandle};

use super::*;

fn handle(attempt: u32) -> UpstreamHandle {
    let target = in_background().target.id.clone();
    UpstreamHandle {
        attempt,
        target,
        id: "resp_1".to_owned(),
    }
}

/// The second attempt of an invocation, whose first one had begun an answer.
fn taking_over() -> ProviderRequest {
    ProviderRequest {
        attempt: 2,
        attach: Some(handle(1)),
        ..in_background()
    }
}

/// A server on which the answer is whole by now.
async fn keeping(answer: Reply) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.answering(move |request| match resumed_after(request) {
        Some(after) => text_after(TEXT, after),
        None if request.method == "GET" => answer.clone(),
        None => Reply::document(&json!({"id": "resp_1", "status": "cancelled"})),
    });
    upstream
}

fn paths(upstream: &Upstream) -> Vec<String> {
    upstream
        .requests()
        .iter()
        .map(|request| format!("{} {}", request.method, request.path))
        .collect()
}

const FROM_THE_BEGINNING: &str = "GET /v1/responses/resp_1?stream=true";

#[tokio::test]
async fn it_is_read_from_its_beginning_and_nothing_new_is_requested() {
    let asked = ask(&at(&knowing(|_, rest| rest).await), in_background()).await;
    let upstream = keeping(text(TEXT)).await;
    let seen = ask(&at(&upstream), taking_over()).await;
    assert_eq!((seen.error.as_ref(), &seen.deltas), (None, &asked.deltas));
    assert_eq!(paths(&upstream), [FROM_THE_BEGINNING]);
}

#[tokio::test]
async fn one_that_breaks_off_again_is_read_on_as_any_other() {
    let upstream = keeping(text(TEXT).cut_after(middle().1)).await;
    let seen = ask(&at(&upstream), taking_over()).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    let rest = format!("{FROM_THE_BEGINNING}&starting_after={}", middle().0);
    assert_eq!(paths(&upstream), [FROM_THE_BEGINNING, &rest]);
}

#[tokio::test]
async fn one_that_comes_whole_is_whole() {
    let item = json!({"type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": TEXT, "annotations": []}]});
    let upstream = keeping(Reply::document(
        &json!({"id": "resp_1", "status": "completed", "output": [item]}),
    ))
    .await;
    let seen = ask(&at(&upstream), taking_over()).await;
    assert_eq!((seen.error.as_ref(), seen.text().as_str()), (None, TEXT));
    assert_eq!(
        paths(&upstream),
        [FROM_THE_BEGINNING],
        "what is whole is not cancelled"
    );
}

#[tokio::test]
async fn one_that_is_gone_or_refused_is_a_cut_of_that_answer_and_no_fault_of_the_target() {
    for status in [400, 401, 403, 404, 410] {
        let upstream = keeping(Reply::status(status)).await;
        let error = ask(&at(&upstream), taking_over()).await.failed().clone();
        assert_eq!(
            (error.fault, error.status),
            (Some(TransportFault::Cut), Some(status))
        );
        if status == 404 {
            assert_eq!(
                paths(&upstream),
                [FROM_THE_BEGINNING],
                "there is nothing to cancel"
            );
        } else {
            assert!(
                is_cancel(&upstream.await_request(2).await),
                "{status}: it may go on"
            );
        }
    }
}

#[tokio::test]
async fn a_failing_server_is_called_once_and_its_facts_are_reported() {
    let upstream = keeping(Reply::status(503)).await;
    let error = ask(&at(&upstream), taking_over()).await.failed().clone();
    assert_eq!((error.fault, error.status), (None, Some(503)));
    assert!(is_cancel(&upstream.await_request(2).await));
    assert_eq!(paths(&upstream).len(), 2);
}

#[tokio::test]
async fn whatever_is_not_that_answer_is_a_cut_of_it() {
    let cancelled = json!({"type": "response.cancelled", "sequence_number": 0,
        "response": {"id": "resp_1", "status": "cancelled", "error": null}});
    let runs = json!({"id": "resp_1", "status": "in_progress", "output": []});
    for other in [
        Reply::named_events(&[("response.cancelled", cancelled)]),
        Reply::document(&json!({"id": "resp_1", "status": "cancelled"})),
        Reply::document(&runs),
        Reply::html(),
        Reply::empty(),
        text_after(TEXT, 3),
    ] {
        let seen = ask(&at(&keeping(other).await), taking_over()).await;
        assert_eq!(seen.failed().fault, Some(TransportFault::Cut), "{seen:?}");
        assert_eq!(seen.text(), "");
    }
}

#[tokio::test]
async fn one_that_failed_reports_its_own_reason() {
    let answers = relight::internals::wire_server::answers::responses::overloaded_amid;
    let seen = ask(&at(&keeping(answers(TEXT)).await), taking_over()).await;
    let error = seen.failed();
    assert_eq!(error.fault, None);
    assert!(
        error
            .body
            .as_deref()
            .unwrap()
            .contains("server_is_overloaded"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_target_without_background_responses_any_more_is_not_called() {
    let upstream = keeping(text(TEXT)).await;
    let mut call = taking_over();
    Arc::make_mut(&mut call.target).capabilities.background = false;
    let error = ask(&at(&upstream), call).await.failed().clone();
    assert_eq!(error.fault, Some(TransportFault::Cut));
}

#[tokio::test]
async fn its_handle_is_registered_as_soon_as_it_is_known_and_until_it_ends() {
    let upstream = knowing(|_, rest| rest).await;
    let background = BackgroundResponses::default();
    let mut running = background.running();
    let call = ProviderRequest {
        background: background.clone(),
        ..in_background()
    };
    let mut stream = at(&upstream).call(call).await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(*running.borrow_and_update(), [handle(1)]);
    while stream.next().await.is_some() {}
    drop(stream);
    assert!(running.borrow_and_update().is_empty());
}

#[tokio::test]
async fn one_that_another_owner_may_be_reading_is_left_to_it() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).stall_after(middle().1));
    upstream.push(text(TEXT).stall_after(middle().1));
    let providers = at(&upstream);
    for is_known in [true, false] {
        let background = BackgroundResponses::default();
        let call = ProviderRequest {
            background: background.clone(),
            ..in_background()
        };
        let mut stream = providers.clone().call(call).await.unwrap();
        stream.next().await.unwrap().unwrap();
        background.set_findable(is_known.then(|| handle(1)));
        background.hand_over();
        drop(stream);
    }
    // Of the two only the one that no other owner can find is cancelled.
    assert!(is_cancel(&upstream.await_request(3).await));
    upstream.await_cancel(1).await;
    assert_eq!(methods(&upstream), ["POST", "POST", "POST"]);
}
