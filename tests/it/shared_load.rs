//! Load on a target: no call waits for a slot before the target signals overload, and hanging calls
//! do not delay others. Without retries there is one upstream call.

use std::time::Duration;

use futures_util::future::join_all;
use relight::internals::grpc::v1::{
    InvokeWithRecoveryResponse, Overrides, invoke_with_recovery_response::Outcome,
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Time after which a call that hangs is given up.
const HANG: Duration = Duration::from_secs(6);

async fn before(upstream: &Upstream, more: &str) -> Relight {
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ r: {{ targets: [main], deadline: 60s }} }}\n{more}",
        upstream.base_url()
    ))
    .await
}

fn is_answered(response: &InvokeWithRecoveryResponse) -> bool {
    matches!(response.outcome, Some(Outcome::Completion(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_on_a_cold_target_waits_for_no_slot() {
    let upstream = Upstream::start().await;
    // Nobody is answered before the last one has asked: a call that waits for a slot waits for ever.
    upstream.otherwise(Reply::text("Done.").slow_head(Duration::from_secs(45)));
    let relight = before(&upstream, "").await;
    let burst = join_all((0..150).map(|_| relight.ask("Go.")));
    tokio::select! {
        _ = burst => panic!("answered before all had asked"),
        _ = timeout(Duration::from_secs(40), upstream.await_request(150)) => {}
    }
    assert_eq!(upstream.requests().len(), 150);
}

#[tokio::test]
async fn calls_that_hang_keep_no_others_waiting() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        if request.texts_of("user").iter().any(|text| text == "hang") {
            Reply::silence()
        } else {
            Reply::text("Done.")
        }
    });
    let hang = HANG.as_secs();
    let timers = format!(
        "timers: {{ first_token: {hang}s, first_token_alone: {hang}s, soft_first_token: 0ms }}\n\
         circuit: {{ mode: off }}\n"
    );
    let relight = before(&upstream, &timers).await;
    let hanging = join_all((0..40).map(|_| {
        let overrides = Overrides {
            max_retries: Some(0),
            ..Overrides::default()
        };
        let invocation = asking("hang");
        relight.invoke(relight::internals::grpc::v1::Invocation {
            overrides: Some(overrides),
            ..invocation
        })
    }));
    let healthy = async {
        upstream.await_request(40).await;
        let began = Instant::now();
        let responses = join_all((0..40).map(|_| relight.ask("Go."))).await;
        (responses, began.elapsed())
    };
    let (hung, (responses, took)) = tokio::join!(hanging, healthy);
    assert!(
        responses.iter().all(is_answered) && took < HANG,
        "beside them: {took:?}"
    );
    assert!(hung.iter().all(|response| !is_answered(response)));
    let began = Instant::now();
    let responses = join_all((0..40).map(|_| relight.ask("Go."))).await;
    let took = began.elapsed();
    assert!(
        responses.iter().all(is_answered) && took < HANG,
        "after them: {took:?}"
    );
}

#[tokio::test]
async fn without_retries_a_malformed_answer_is_paid_for_once() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::document(&json!({"hello": "world"})));
    let relight = before(
        &upstream,
        "policies: { standard: { retry: { max_retries: 0 } } }\n",
    )
    .await;
    let response = relight.ask("Go.").await;
    assert_eq!(
        (response.attempts.len(), upstream.requests().len()),
        (1, 1),
        "{response:?}"
    );
}
