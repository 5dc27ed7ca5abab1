//! A stream survives its upstream: what `StreamWithRecovery` promises while its client stays.

use std::time::Duration;

use relight::internals::grpc::v1::{
    CancelInvocationRequest, GetInvocationRequest, InvocationState, RecoveryStrategy,
    RequestDisposition, RewindMode, cancel_invocation_request, get_invocation_request,
    terminal::Outcome,
};
use tonic::Code;

use crate::support::{
    folding::{Folding, start},
    relight::{Relight, streaming},
    targets::one_target,
    upstream::{Reply, Upstream},
};

const ANSWER: &str =
    "The quick brown fox jumps over the lazy dog — naïve café, 👩‍👩‍👧 and नमस्ते, twice over.";

#[tokio::test]
async fn a_stream_begins_with_accepted_and_ends_with_one_terminal() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(ANSWER));
    let relight = Relight::start(&one_target(&upstream)).await;
    for mode in [
        RewindMode::Unspecified,
        RewindMode::Atomic,
        RewindMode::Holdback,
        RewindMode::Rewind,
    ] {
        let (folding, ended) = Folding::all(relight.recovery(), streaming("Hello", mode)).await;
        assert!(ended.is_none(), "{ended:?}");
        assert_eq!(folding.text(), ANSWER, "{mode:?}");
        assert!(folding.is_completed());
        let accepted = folding.accepted.unwrap();
        assert_eq!(accepted.disposition(), RequestDisposition::New);
        let told = if mode == RewindMode::Unspecified {
            RewindMode::Atomic
        } else {
            mode
        };
        assert_eq!(accepted.rewind_mode(), told);
        assert!(!accepted.resume_token.is_empty());
    }
}

#[tokio::test]
async fn an_upstream_cut_anywhere_is_recovered_and_the_answer_is_whole() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let whole = Reply::text(ANSWER);
    let bytes = whole.body_bytes().len();
    for mode in [RewindMode::Rewind, RewindMode::Holdback, RewindMode::Atomic] {
        for cut in (0..bytes).step_by(97) {
            upstream
                .push(whole.clone().cut_after(cut))
                .push(whole.clone());
            let (folding, ended) = Folding::all(relight.recovery(), streaming("Hello", mode)).await;
            assert!(ended.is_none(), "cut after {cut}: {ended:?}");
            assert_eq!(folding.text(), ANSWER, "cut after {cut}, {mode:?}");
            assert!(folding.is_completed(), "cut after {cut}");
            assert_eq!(
                folding.rewinds, 0,
                "the second answer repeats the first: cut after {cut}"
            );
            // The first answer was whole after all where only [DONE] was cut off.
            upstream.requests();
            while upstream.unplayed() > 0 {
                relight.ask("Take what is left.").await;
            }
        }
    }
}

#[tokio::test]
async fn a_silent_upstream_is_shown_to_be_waited_for_every_ten_seconds() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(ANSWER).slow_head(Duration::from_secs(11)));
    let relight = Relight::start(
        &one_target(&upstream)
            .replace("400ms", "15s")
            .replace("deadline: 20s", "deadline: 60s"),
    )
    .await;
    let (folding, ended) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(ended.is_none(), "{ended:?}");
    assert!(folding.heartbeats >= 1);
    assert_eq!(folding.text(), ANSWER);
    let (_, last) = folding.cursor.unwrap();
    assert_eq!(
        folding.events as u64,
        last + 1 + folding.heartbeats as u64,
        "they are not numbered"
    );
}

#[tokio::test]
async fn another_answer_after_the_break_takes_the_first_back() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    for (mode, rewinds) in [
        (RewindMode::Rewind, 1),
        (RewindMode::Holdback, 0),
        (RewindMode::Atomic, 0),
    ] {
        let first = Reply::text(ANSWER);
        let half = first.body_bytes().len() / 2;
        upstream
            .push(first.cut_after(half))
            .push(Reply::text("Something else entirely."));
        let (folding, ended) = Folding::all(relight.recovery(), streaming("Hello", mode)).await;
        assert!(ended.is_none(), "{ended:?}");
        assert_eq!(folding.text(), "Something else entirely.");
        assert_eq!(folding.rewinds, rewinds, "{mode:?}");
        assert!(
            folding.recoveries[0].starts_with("Retrying executor (attempt 1/2)"),
            "{:?}",
            folding.recoveries
        );
    }
}

#[tokio::test]
async fn a_failure_for_good_is_a_terminal_and_not_a_status() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(401));
    let relight = Relight::start(&one_target(&upstream)).await;
    let (folding, ended) =
        Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
    assert!(ended.is_none(), "{ended:?}");
    let terminal = folding.terminal.unwrap();
    assert!(
        matches!(terminal.outcome, Some(Outcome::Failed(_))),
        "{terminal:?}"
    );
    assert_eq!(terminal.attempts.len(), 1);
}

#[tokio::test]
async fn a_tool_call_is_committed_once_and_whole() {
    let upstream = Upstream::start().await;
    let call = Reply::tool_call("search", "{\"query\":\"relight\"}");
    let bytes = call.body_bytes().len();
    let relight = Relight::start(&one_target(&upstream)).await;
    for cut in (0..bytes).step_by(61) {
        upstream
            .push(call.clone().cut_after(cut))
            .push(call.clone());
        let (folding, _) =
            Folding::all(relight.recovery(), streaming("Hello", RewindMode::Rewind)).await;
        assert!(folding.is_completed(), "cut after {cut}");
        let calls: Vec<_> = folding
            .blocks
            .values()
            .filter(|block| block.kind == 3)
            .collect();
        assert_eq!(calls.len(), 1, "cut after {cut}");
        assert!(calls[0].committed && calls[0].stopped);
        while upstream.unplayed() > 0 {
            relight.ask("Take what is left.").await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_its_stream_cancels_the_upstream_request() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "30s")).await;
    let mut stream = start(relight.recovery(), streaming("Hello", RewindMode::Rewind))
        .await
        .unwrap();
    let mut folding = Folding::default();
    folding.follow(&mut stream, 2).await;
    upstream.await_request(1).await;
    let gone = tokio::time::Instant::now();
    drop(stream);
    let cancelled = upstream.await_cancel(1).await;
    assert!(
        cancelled - gone < Duration::from_secs(1),
        "{:?}",
        cancelled - gone
    );
    // The record has it.
    let mut ended = relight.get(&folding.invocation).await;
    for _ in 0..100 {
        if ended.state() == InvocationState::Cancelled {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        ended = relight.get(&folding.invocation).await;
    }
    assert_eq!(ended.state(), InvocationState::Cancelled);
}

#[tokio::test]
async fn an_invocation_is_cancelled_upstream_and_its_follower_is_informed() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "30s")).await;
    let mut stream = start(relight.recovery(), streaming("Hello", RewindMode::Rewind))
        .await
        .unwrap();
    let mut folding = Folding::default();
    folding.follow(&mut stream, 2).await;
    upstream.await_request(1).await;
    let request = CancelInvocationRequest {
        invocation: Some(cancel_invocation_request::Invocation::InvocationId(
            folding.invocation.clone(),
        )),
        reason: "changed my mind".to_owned(),
    };
    let response = relight
        .recovery()
        .cancel_invocation(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(response.cancelled);
    assert_eq!(response.state(), InvocationState::Cancelled);
    upstream.await_cancel(1).await;
    assert!(folding.follow(&mut stream, usize::MAX).await.is_none());
    let Some(Outcome::Cancelled(cancelled)) = folding.terminal.unwrap().outcome else {
        panic!("not cancelled")
    };
    assert_eq!(cancelled.reason, "CancelInvocation: changed my mind");
    let again = relight
        .recovery()
        .cancel_invocation(request)
        .await
        .unwrap()
        .into_inner();
    assert!(!again.cancelled);
}

#[tokio::test]
async fn an_invocation_is_explained_while_it_runs_and_afterwards() {
    let upstream = Upstream::start().await;
    upstream
        .push(Reply::status(503))
        .push(Reply::text("Hello.").slow_head(Duration::from_millis(300)));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = streaming("Hello", RewindMode::Rewind);
    invocation.request_id = "explain-me".to_owned();
    invocation
        .labels
        .insert("team".to_owned(), "blue".to_owned());
    let mut stream = start(relight.recovery(), invocation).await.unwrap();
    let mut folding = Folding::default();
    folding.follow(&mut stream, 2).await;
    let running = relight.get(&folding.invocation).await;
    assert!(
        matches!(
            running.state(),
            InvocationState::Running | InvocationState::Waiting
        ),
        "{running:?}"
    );
    folding.follow(&mut stream, usize::MAX).await;
    let request = GetInvocationRequest {
        invocation: Some(get_invocation_request::Invocation::RequestId(
            "explain-me".to_owned(),
        )),
    };
    let record = relight
        .recovery()
        .get_invocation(request)
        .await
        .unwrap()
        .into_inner()
        .invocation
        .unwrap();
    assert_eq!(record.state(), InvocationState::Succeeded);
    assert_eq!(record.attempts.len(), 2);
    assert_eq!(record.decisions.len(), 1);
    assert_eq!(
        (
            record.decisions[0].attempt,
            record.decisions[0].target.as_str()
        ),
        (1, "main")
    );
    assert_eq!(record.labels["team"], "blue");
    upstream.otherwise(Reply::status(503));
    let failed = relight.ask("Hello").await;
    let record = relight.get(&failed.invocation_id).await;
    let decided: Vec<_> = record
        .decisions
        .iter()
        .map(|decision| (decision.attempt, decision.strategy()))
        .collect();
    let (retry, none) = (RecoveryStrategy::Retry, RecoveryStrategy::None);
    assert_eq!(
        decided,
        [(1, retry), (2, retry), (3, none)],
        "that recovery ended is a decision"
    );
    assert!(
        record.decisions[2].target.is_empty() && record.decisions[2].reason == record.reasoning,
        "{record:?}"
    );
    let unknown = GetInvocationRequest {
        invocation: Some(get_invocation_request::Invocation::InvocationId(
            "nobody".to_owned(),
        )),
    };
    assert_eq!(
        relight
            .recovery()
            .get_invocation(unknown)
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
}
