//! A refused key, a used-up quota and a stated wait that one replica meets: no other one calls.

use serde_json::json;

use super::*;

/// Refusals, the gate that they close, and settings under which they are not waited for.
fn refusals() -> [(&'static str, Reply, GateKind); 3] {
    let of = |status: u16, code: &str, headers: &[(&str, &str)]| {
        let body = json!({"error": {"message": "no", "code": code, "type": code}});
        Reply::refusal(status, headers, &body)
    };
    [
        (
            "a refused key",
            of(401, "invalid_api_key", &[]),
            GateKind::Credential,
        ),
        (
            "a used-up quota",
            of(429, "insufficient_quota", &[]),
            GateKind::Credential,
        ),
        (
            "a stated wait",
            of(429, "rate_limit_exceeded", &[("retry-after", "60")]),
            GateKind::Rate,
        ),
    ]
}

/// Probes that one replica alone would have sent by then: one at once, then each time after half as
/// long as the gate has been closed, at least a second.
fn probes_of_one(closed_for: Duration) -> usize {
    let mut sent = 1;
    let mut at = Duration::ZERO;
    loop {
        at += (at / 2).max(Duration::from_secs(1));
        if at > closed_for {
            return sent;
        }
        sent += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_account_is_refused_for_costs_all_replicas_the_probes_of_one() {
    let _room = room().await;
    for (what, reply, kind) in refusals() {
        let Some(replicas) = Replicas::three("").await else {
            return;
        };
        replicas.upstream.otherwise(reply);
        let first = &replicas.all[0];
        for _ in 0..20 {
            if is_closed_gate(&target(first).await, kind) {
                break;
            }
            failure(first).await;
        }
        let closed = Instant::now();
        let before = replicas.called();
        let is_closed = |target: &Target| is_closed_gate(target, kind);
        replicas.until_all(0, what, is_closed).await;
        // The first one has no more calls, so that the others probe in its place.
        for replica in &replicas.all[1..] {
            let refused = failure(replica).await;
            assert_ne!(refused.failure_class, 0, "{what}: {refused:?}");
        }
        let called = replicas.called() - before;
        let of_one = probes_of_one(closed.elapsed());
        assert!(
            called <= of_one,
            "{what}: {called} calls; one probes {of_one} times"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_good_again_is_used_by_all_as_soon_as_one_replica_knows() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let (_, refused, kind) = refusals()[0].clone();
    replicas.upstream.otherwise(refused);
    for _ in 0..6 {
        failure(&replicas.all[0]).await;
    }
    let is_closed = |target: &Target| is_closed_gate(target, kind);
    replicas.until_all(0, "closed", is_closed).await;
    replicas.upstream.otherwise(Reply::text("Welcome back."));
    // Only the last one has calls.
    until("a probe of the last one", async || {
        is_answered(&replicas.all[2]).await
    })
    .await;
    let is_open = |target: &Target| !is_closed_gate(target, kind);
    replicas.until_all(0, "opened", is_open).await;
    for replica in &replicas.all {
        assert!(is_answered(replica).await);
    }
}

/// Keys of a pool, and what the provider replies to the first ones.
const POOL: [&str; 5] = [
    "sk-fleet-0123456789-bad1",
    "sk-fleet-0123456789-bad2",
    "sk-fleet-0123456789-bad3",
    "sk-fleet-0123456789-ok04",
    "sk-fleet-0123456789-ok05",
];

fn key_of(request: &Request) -> String {
    let header = request.header("authorization").unwrap();
    header.strip_prefix("Bearer ").unwrap().to_owned()
}

/// Returns how many of the requests had a key that is not good.
fn with_bad_keys(upstream: &Upstream) -> usize {
    let requests = upstream.requests();
    let keys = requests.iter().map(key_of);
    keys.filter(|key| key.contains("-bad")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_any_replica_fails_while_keys_of_a_pool_are_bad() {
    let _room = room().await;
    let Some(server) = FleetServer::postgres() else {
        return;
    };
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        let key = key_of(request);
        let bad = POOL[..3].iter().position(|one| *one == key);
        bad.map_or(Reply::text("Hello."), |index| refusals()[index].1.clone())
    });
    let pool = format!("api_keys: {}", json!(POOL));
    let targets = one_target(&upstream).replace("api_key: k", &pool);
    let url = server.url();
    let replicas = Replicas::of(server, &url, upstream, &targets).await;
    let began = Instant::now();
    for _ in 0..30 {
        for replica in &replicas.all {
            assert!(is_answered(replica).await);
        }
    }
    for replica in &replicas.all {
        let reasons = status(replica).await.reasons;
        let named: Vec<_> = reasons.iter().map(|reason| reason.key.as_str()).collect();
        assert_eq!(named, ["…bad1", "…bad2", "…bad3"]);
    }
    // One refusal closes no gate for others, so that each replica may meet each key by itself.
    let sent = with_bad_keys(&replicas.upstream);
    let most = 3 * 3 * probes_of_one(began.elapsed());
    assert!((3..=most).contains(&sent), "{sent} calls of at most {most}");
}
