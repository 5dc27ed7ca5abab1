//! Five replicas: each knows what one of them met, also after one was killed.

use serde_json::json;

use super::*;

/// A refusal that states a wait.
fn limited() -> Reply {
    let body = json!({"error": {"message": "no", "code": "rate_limit_exceeded"}});
    Reply::refusal(429, &[("retry-after", "60")], &body)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_outage_one_word_and_one_limit_are_known_to_all_five_and_to_those_that_are_left() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let url = server.url();
        let upstream = Upstream::start().await;
        let targets = format!("{}circuit: {{ open_base: 60s }}\n", one_target(&upstream));
        let mut replicas = Replicas::many(5, server, &url, upstream, &targets).await;

        replicas.upstream.otherwise(Reply::status(500));
        while state_of(&target(&replicas.all[0]).await) == CircuitState::Closed {
            failure(&replicas.all[0]).await;
        }
        let is_open = |target: &Target| state_of(target) == CircuitState::Open;
        replicas.until_all(0, "an outage", is_open).await;
        let called = replicas.called();
        for replica in &replicas.all {
            failure(replica).await;
        }
        assert_eq!(replicas.called(), called, "{engine}: they called");

        replicas.all.remove(4).kill().await;
        for replica in &replicas.all {
            known_to_live(replica, 4).await;
        }
        force(&replicas.all[1], CircuitForce::Closed).await;
        let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedClosed;
        replicas.until_all(0, "a word", is_forced).await;

        replicas.upstream.otherwise(limited());
        let first = &replicas.all[0];
        until("a limit at the first one", async || {
            failure(first).await;
            is_closed_gate(&target(first).await, GateKind::Rate)
        })
        .await;
        let is_limited = |target: &Target| is_closed_gate(target, GateKind::Rate);
        replicas.until_all(0, "a limit", is_limited).await;

        // Whoever comes in the place of the killed one knows all of it.
        let late = replicas.start_another().await;
        known_to_live(late, 5).await;
        until("all at the new one", async || {
            let target = target(late).await;
            is_forced(&target) && is_limited(&target)
        })
        .await;
    }
}
