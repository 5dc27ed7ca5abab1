//! While one target is silent or limited, the others are not forgotten: what is called when, over
//! real sockets.

use std::time::Duration;

use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryResponse, Overrides, invoke_with_recovery_response::Outcome,
};
use tokio::time::Instant;

use crate::support::{
    relight::{Relight, asking},
    targets::two_targets,
    upstream::{Reply, Upstream},
};

/// Two targets with one deadline of 20 s: the first may be silent for 10 s, and the second is
/// called beside it early.
fn patient(first: &Upstream, second: &Upstream) -> String {
    let timers = "first_token: 15s, first_token_alone: 15s, soft_first_token: 300ms, idle: 15s";
    two_targets(first, second)
        .replace(
            "first_token: 400ms, first_token_alone: 400ms, soft_first_token: 300ms, idle: 400ms",
            timers,
        )
        .replace("base: 10ms, cap: 40ms", "base: 1s")
}

fn limited() -> Reply {
    Reply::body(
        429,
        &[("retry-after", "1")],
        b"{\"error\":{\"message\":\"Rate limit reached\"}}",
    )
}

fn is_from(response: &InvokeWithRecoveryResponse, target: &str) -> bool {
    matches!(response.outcome, Some(Outcome::Completion(_))) && response.final_target == target
}

#[tokio::test]
async fn a_fallback_that_fails_while_the_first_target_is_silent_is_retried_after_its_wait() {
    for (reply, wait_ms) in [(limited(), 1000), (Reply::status(503), 400)] {
        let (first, second) = (Upstream::start().await, Upstream::start().await);
        first.otherwise(Reply::silence());
        second.push(reply);
        let relight = Relight::start(&patient(&first, &second)).await;
        let began = Instant::now();
        let response = relight.ask("Hello").await;
        assert!(is_from(&response, "second"), "{response:?}");
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        let requests = second.requests();
        assert!(
            requests[1].at - requests[0].at >= Duration::from_millis(wait_ms),
            "not before its wait is over"
        );
        assert_eq!((first.requests().len(), requests.len()), (1, 2));
    }
}

#[tokio::test]
async fn a_fallback_that_is_limited_when_the_first_target_falls_silent_is_called_once_its_limit_is_over()
 {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::silence());
    second.push(limited());
    let yaml = patient(&first, &second).replace(
        "routes: { ",
        "default_route: default\nroutes: { other: { targets: [second] }, ",
    );
    let relight = Relight::start(&yaml).await;
    let overrides = Some(Overrides {
        max_retries: Some(0),
        ..Overrides::default()
    });
    let other = Invocation {
        route: "other".to_owned(),
        overrides,
        ..asking("Hello")
    };
    assert!(
        matches!(
            relight.invoke(other).await.outcome,
            Some(Outcome::Failure(_))
        ),
        "its limit is reached"
    );
    let began = Instant::now();
    let response = relight.ask("Hello").await;
    assert!(is_from(&response, "second"), "{response:?}");
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_fallback_that_is_limited_after_the_first_target_timed_out_is_retried() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::silence());
    second.push(limited());
    let yaml = patient(&first, &second).replace("soft_first_token: 300ms", "soft_first_token: 0ms");
    let yaml = yaml.replace("first_token: 15s", "first_token: 1s");
    let relight = Relight::start(&yaml).await;
    let response = relight.ask("Hello").await;
    assert!(is_from(&response, "second"), "{response:?}");
    assert_eq!((first.requests().len(), second.requests().len()), (1, 2));
}

#[tokio::test]
async fn targets_that_are_silent_one_after_the_other_leave_time_for_an_answer() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.push(Reply::silence());
    second.push(Reply::silence());
    let yaml = patient(&first, &second)
        .replace("soft_first_token: 300ms", "soft_first_token: 0ms")
        .replace("deadline: 20s", "deadline: 12s");
    let relight = Relight::start(&yaml).await;
    let response = relight.ask("Hello").await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    assert_eq!(first.requests().len() + second.requests().len(), 3);
}

#[tokio::test]
async fn a_reset_is_answered_by_the_fallback_at_once() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::reset());
    let relight = Relight::start(&patient(&first, &second)).await;
    let began = Instant::now();
    let response = relight.ask("Hello").await;
    assert!(is_from(&response, "second"), "{response:?}");
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_slow_answer_whose_tokens_keep_coming_is_never_cut_by_the_time_kept_for_a_retry() {
    let upstream = Upstream::start().await;
    let words = "One two three four five six seven eight nine ten.";
    // Its first word comes before half of the deadline, the last one long after it.
    upstream.otherwise(Reply::text(words).paced(Duration::from_millis(400)));
    let yaml = format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ r: {{ targets: [main], deadline: 8s }} }}\n",
        upstream.base_url()
    );
    let relight = Relight::start(&yaml).await;
    let began = Instant::now();
    let response = relight.ask("Hello").await;
    assert!(
        matches!(&response.outcome, Some(Outcome::Completion(it)) if it.text == words),
        "{response:?}"
    );
    assert!(
        began.elapsed() > Duration::from_secs(4) && upstream.requests().len() == 1,
        "{:?}",
        began.elapsed()
    );
}
