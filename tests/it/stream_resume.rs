//! A stream survives its client: attach, replay and resume, by token, by request id and by cursor.

use std::time::Duration;

use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, RequestDisposition, Resume, RewindMode, StreamCursor,
    StreamWithRecoveryRequest, invoke_with_recovery_response::Outcome, resume,
    stream_with_recovery_request::Start,
};
use tonic::Code;

use crate::support::{
    binary,
    folding::{Folding, start},
    process::{key, with_key},
    relight::{Relight, asking, resumable, streaming},
    targets::one_target,
    upstream::{Reply, Upstream},
};

const ANSWER: &str = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of \
                      foolishness, it was the epoch of belief, it was the epoch of incredulity.";

#[tokio::test]
async fn a_client_that_is_cut_anywhere_and_comes_back_holds_the_same_answer() {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(40)
            .paced(Duration::from_millis(1)),
    );
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "10s")).await;
    for events in 1..30 {
        for mode in [RewindMode::Rewind, RewindMode::Holdback, RewindMode::Atomic] {
            let invocation = resumable(streaming("Hello", mode));
            let mut folding = Folding::default();
            let mut stream = start(relight.recovery(), invocation).await.unwrap();
            let ended = folding.follow(&mut stream, events).await;
            assert!(ended.is_none(), "{ended:?}");
            drop(stream);
            folding.insist(&relight.recovery()).await;
            assert_eq!(folding.text(), ANSWER, "after {events} events, {mode:?}");
            assert!(folding.is_completed());
            assert_eq!(
                (folding.rewinds, folding.snapshots),
                (0, 0),
                "nothing had to be said twice"
            );
        }
    }
}

/// Cuts its stream after random numbers of events until there have been `cuts`, over as many
/// invocations as that takes.
async fn cut_and_resumed(relight: &Relight, mut seed: u64, cuts: usize) {
    let mut done = 0;
    while done < cuts {
        let mut folding = Folding::default();
        let mode = [RewindMode::Rewind, RewindMode::Holdback, RewindMode::Atomic][done % 3];
        let mut stream = start(relight.recovery(), resumable(streaming("Hello", mode)))
            .await
            .unwrap();
        while folding.terminal.is_none() {
            // Deterministic dice.
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let events = 1 + usize::try_from(seed >> 33).unwrap() % 5;
            let ended = folding.follow(&mut stream, events).await;
            assert!(ended.is_none(), "{ended:?}");
            if folding.terminal.is_none() {
                drop(stream);
                stream = relight
                    .recovery()
                    .stream_with_recovery(folding.resume())
                    .await
                    .unwrap()
                    .into_inner();
                done += 1;
            }
        }
        assert!(folding.is_completed(), "{:?}", folding.terminal);
        assert_eq!(folding.text(), ANSWER);
        assert_eq!(
            folding.terminal.as_ref().unwrap().result_hash,
            folding.hash()
        );
        assert_eq!(
            (folding.rewinds, folding.snapshots),
            (0, 0),
            "nothing had to be said twice"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_cut_a_thousand_times_at_random_folds_to_the_same_hash() {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(40)
            .paced(Duration::from_millis(1)),
    );
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "10s")).await;
    let clients = (1..=8).map(|seed| cut_and_resumed(&relight, seed, 125));
    futures_util::future::join_all(clients).await;
}

#[tokio::test]
async fn a_finished_stream_is_replayed_from_any_cursor() {
    let upstream = Upstream::start().await;
    let first = Reply::text(ANSWER);
    let half = first.body_bytes().len() / 2;
    upstream
        .push(first.cut_after(half))
        .push(Reply::text("Another answer."));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = streaming("Hello", RewindMode::Rewind);
    invocation.request_id = "r-1".to_owned();
    let (whole, _) = Folding::all(relight.recovery(), invocation).await;
    let (_, last) = whole.cursor.unwrap();
    for seq in 0..=last + 2 {
        let mut folding = Folding::default();
        let resume = Resume {
            invocation: Some(resume::Invocation::RequestId("r-1".to_owned())),
            cursor: Some(StreamCursor { epoch: 1, seq }),
            ..Resume::default()
        };
        let request = StreamWithRecoveryRequest {
            start: Some(Start::Resume(resume)),
        };
        let mut stream = relight
            .recovery()
            .stream_with_recovery(request)
            .await
            .unwrap()
            .into_inner();
        let mut seqs = Vec::new();
        let mut terminals = 0;
        while let Some(message) = stream.message().await.unwrap() {
            let event = message.event.unwrap();
            if event.seq > 0 {
                seqs.push(event.seq);
            }
            terminals += usize::from(matches!(
                event.body,
                Some(relight::internals::grpc::v1::stream_event::Body::Terminal(
                    _
                ))
            ));
            if seq == 0 {
                folding.fold(event);
            }
        }
        assert_eq!(terminals, 1, "from {seq}");
        let expected: Vec<u64> = (seq + 1..=last).collect();
        if seq < last {
            assert_eq!(seqs, expected, "from {seq}");
        }
        if seq == 0 {
            assert_eq!(folding.hash(), whole.hash());
            assert_eq!(
                folding.accepted.unwrap().disposition(),
                RequestDisposition::Replay
            );
        }
    }
    assert_eq!(upstream.requests().len(), 2, "nothing was asked again");
}

#[tokio::test]
async fn one_request_id_is_one_invocation_however_often_it_is_sent_at_once() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Once.").slow_head(Duration::from_millis(200)));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = asking("Hello");
    invocation.request_id = "same".to_owned();
    let calls = (0..16).map(|_| {
        let (mut client, invocation) = (relight.recovery(), invocation.clone());
        async move {
            let request = InvokeWithRecoveryRequest {
                invocation: Some(invocation),
            };
            client
                .invoke_with_recovery(request)
                .await
                .unwrap()
                .into_inner()
        }
    });
    let responses = futures_util::future::join_all(calls).await;
    assert_eq!(upstream.requests().len(), 1);
    let new = responses
        .iter()
        .filter(|response| response.disposition() == RequestDisposition::New)
        .count();
    assert_eq!(new, 1);
    for response in &responses {
        assert_eq!(response.invocation_id, responses[0].invocation_id);
        assert!(
            matches!(&response.outcome, Some(Outcome::Completion(completion)) if completion.text == "Once.")
        );
    }
    let replayed = relight.invoke(invocation.clone()).await;
    assert_eq!(replayed.disposition(), RequestDisposition::Replay);
    let other = InvokeWithRecoveryRequest {
        invocation: Some(relight::internals::grpc::v1::Invocation {
            request_id: "same".to_owned(),
            ..asking("Something else")
        }),
    };
    let refused = relight
        .recovery()
        .invoke_with_recovery(other)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
}

#[tokio::test]
async fn an_invocation_that_is_not_resumable_does_not_outlive_its_client() {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(20)
            .paced(Duration::from_millis(20)),
    );
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "10s")).await;
    let mut stream = start(relight.recovery(), streaming("Hello", RewindMode::Rewind))
        .await
        .unwrap();
    let mut folding = Folding::default();
    folding.follow(&mut stream, 4).await;
    drop(stream);
    upstream.await_cancel(1).await;
    folding.insist(&relight.recovery()).await;
    let outcome = folding.terminal.unwrap().outcome.unwrap();
    assert!(
        matches!(
            outcome,
            relight::internals::grpc::v1::terminal::Outcome::Cancelled(_)
        ),
        "{outcome:?}"
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_token_is_a_name_and_no_permission() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(ANSWER));
    let server = format!(
        "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  keys: [{}, {}, {}]\n",
        key("acme", "key-a", ""),
        key("acme", "key-b", ", routes: [other]"),
        key("rival", "key-c", "")
    );
    let routes =
        "routes: { other: { targets: [main] }, default: { targets: [main], deadline: 20s } }";
    let rest = one_target(&upstream).replace(
        "routes: { default: { targets: [main], deadline: 20s } }",
        routes,
    );
    let relight = Relight::start_whole(&(server + &rest)).await;
    let mut invocation = resumable(streaming("Hello", RewindMode::Rewind));
    invocation.route = "default".to_owned();
    let request = StreamWithRecoveryRequest {
        start: Some(Start::Invocation(invocation)),
    };
    let mut stream = relight
        .recovery()
        .stream_with_recovery(with_key("key-a", request))
        .await
        .unwrap()
        .into_inner();
    let mut folding = Folding::default();
    assert!(folding.follow(&mut stream, usize::MAX).await.is_none());
    for (key, refused) in [
        ("key-b", Code::NotFound),
        ("key-c", Code::NotFound),
        ("none", Code::Unauthenticated),
    ] {
        let shown = relight
            .recovery()
            .stream_with_recovery(with_key(key, folding.resume()))
            .await;
        assert_eq!(shown.unwrap_err().code(), refused, "{key}");
    }
    let own = relight
        .recovery()
        .stream_with_recovery(with_key("key-a", folding.resume()))
        .await;
    assert!(own.is_ok(), "{own:?}");
}

#[tokio::test]
async fn a_token_that_was_made_up_is_refused() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let folding = Folding {
        token: "bm9uc2Vuc2U".to_owned(),
        ..Folding::default()
    };
    let refused = relight
        .recovery()
        .stream_with_recovery(folding.resume())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_command_that_is_killed_continues_with_resume_without_a_trace() {
    let upstream = Upstream::start().await;
    upstream.otherwise(
        Reply::text(ANSWER)
            .in_pieces_of(100)
            .paced(Duration::from_millis(40)),
    );
    let relight = Relight::start(&one_target(&upstream).replace("400ms", "10s")).await;
    let address = format!("http://{}", relight.running.address);
    let home = tempfile::tempdir().unwrap();
    let command = |more: &[&str]| {
        let mut command = binary::relight(&[&["invoke", "--address", &address], more].concat());
        command.env("XDG_STATE_HOME", home.path());
        command
    };
    let mut asking = command(&["Tell me a story."]).spawn().unwrap();
    upstream.await_request(1).await;
    let token = home.path().join("relight").join("resume-token");
    while !token.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    asking.kill().await.unwrap();
    let resumed = command(&["--resume"]).output().await.unwrap();
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(
        String::from_utf8(resumed.stdout).unwrap().trim_end(),
        ANSWER
    );
    assert_eq!(upstream.requests().len(), 1, "nothing was asked twice");
    assert!(!token.exists(), "an end is not resumed");
    let nothing = command(&["--resume"]).output().await.unwrap();
    assert!(!nothing.status.success());
    assert!(
        String::from_utf8(nothing.stderr)
            .unwrap()
            .contains("nothing to resume")
    );
}
