//! An outage that one replica meets, its end, and the probes between.

use super::*;

/// The classic breaker, whose numbers are easy to read.
const CLASSIC: &str =
    "circuit: { mode: consecutive, consecutive_failures: 3, consecutive_open: 2s }";

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_that_one_replica_meets_costs_no_call_of_the_others() {
    let _room = room().await;
    for mode in ["consecutive", "evidence"] {
        let settings = format!(
            "circuit: {{ mode: {mode}, consecutive_failures: 3, consecutive_open: 60s, open_base: 60s }}"
        );
        let Some(replicas) = Replicas::three(&settings).await else {
            return;
        };
        replicas.upstream.otherwise(Reply::status(500));
        let first = &replicas.all[0];
        while state_of(&target(first).await) == CircuitState::Closed {
            failure(first).await;
        }
        let is_open = |target: &Target| state_of(target) == CircuitState::Open;
        replicas.until_all(1, mode, is_open).await;
        let before = replicas.called();
        for replica in &replicas.all[1..] {
            failure(replica).await;
        }
        assert_eq!(replicas.called(), before, "{mode}: others called");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_together_send_one_probe_at_a_time_and_all_follow_its_success() {
    let _room = room().await;
    let Some(replicas) = Replicas::three(CLASSIC).await else {
        return;
    };
    replicas.upstream.otherwise(Reply::status(500));
    let first = &replicas.all[0];
    while state_of(&target(first).await) == CircuitState::Closed {
        failure(first).await;
    }
    let is_open = |target: &Target| state_of(target) == CircuitState::Open;
    replicas.until_all(0, "open", is_open).await;
    let before = replicas.called();
    let slow = Reply::text("Well again.").slow_head(Duration::from_millis(300));
    replicas.upstream.otherwise(slow);
    // All replicas get calls all the time, until one of them was sent.
    let began = Instant::now();
    while replicas.called() == before {
        assert!(began.elapsed() < KNOWN * 2, "no probe");
        let calls = replicas.all.iter().map(|replica| async move {
            let _ = tokio::time::timeout(Duration::from_millis(30), call(replica)).await;
        });
        futures_util::future::join_all(calls).await;
    }
    let is_closed = |target: &Target| state_of(target) == CircuitState::Closed;
    let probed = replicas.all.iter().map(call);
    futures_util::future::join_all(probed).await;
    replicas.until_all(0, "closed", is_closed).await;
    let requests = replicas.upstream.requests();
    assert!(requests.len() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_with_a_probe_in_hand_keeps_the_others_away_for_its_lease_only() {
    let _room = room().await;
    let Some(mut replicas) = Replicas::three(CLASSIC).await else {
        return;
    };
    replicas.upstream.otherwise(Reply::status(500));
    while state_of(&target(&replicas.all[0]).await) == CircuitState::Closed {
        failure(&replicas.all[0]).await;
    }
    let is_open = |target: &Target| state_of(target) == CircuitState::Open;
    replicas.until_all(0, "open", is_open).await;
    let before = replicas.called();
    replicas.upstream.otherwise(Reply::silence());
    let mut probing = replicas.all[0].recovery();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let request = InvokeWithRecoveryRequest {
                invocation: Some(asking("Hello")),
            };
            if probing.invoke_with_recovery(request).await.is_err() {
                break;
            }
        }
    });
    replicas.upstream.await_request(before + 1).await;
    replicas.all[0].kill().await;
    replicas.upstream.otherwise(Reply::text("Well again."));
    // The first-token timer and a second, and the store's look at it.
    until("a probe of another one", async || {
        is_answered(&replicas.all[1]).await || is_answered(&replicas.all[2]).await
    })
    .await;
    let is_closed = |target: &Target| state_of(target) == CircuitState::Closed;
    replicas.until_all(1, "closed", is_closed).await;
}
