//! Limits of which each of the live replicas holds its part: of tenants, and of slots.

use std::sync::atomic::{AtomicU32, Ordering};

use tonic::Code;

use super::*;
use crate::support::process::{key, with_key};

/// Requests that a tenant may make in a minute.
const LIMIT: usize = 30;

fn request() -> InvokeWithRecoveryRequest {
    InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    }
}

/// Calls by a tenant that is limited; returns how many passed.
async fn passed(replica: &Process, calls: usize) -> usize {
    let mut passed = 0;
    for _ in 0..calls {
        let mut client = replica.recovery();
        let called = client.invoke_with_recovery(with_key("a", request()));
        match called.await {
            Ok(_) => passed += 1,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
    }
    passed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_at_all_replicas_together_what_its_limits_say() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let settings = format!(
            "server: {{ keys: [{}], tenants: {{ acme: {{ limits: {{ requests_per_minute: {LIMIT} }} }} }} }}",
            key("acme", "a", ", admin: true")
        );
        let mut replicas = Replicas::on(server, &settings).await;
        let mut all = 0;
        for replica in &replicas.all {
            all += passed(replica, LIMIT).await;
        }
        assert_eq!(all, LIMIT, "{engine}");
        // Whoever is left has all of it.
        replicas.all.truncate(1);
        known_to_live(&replicas.all[0], 1).await;
        let more = passed(&replicas.all[0], LIMIT).await;
        assert_eq!(more, LIMIT - LIMIT / 3, "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn together_the_replicas_have_no_more_attempts_at_once_than_a_target_may_have() {
    let _room = room().await;
    let Some(server) = FleetServer::all().pop() else {
        return;
    };
    let replicas = Replicas::on(server, "concurrency: { max: 6, max_queue_wait: 20s }").await;
    let most = AtomicU32::new(0);
    let slow = Reply::text("Slowly.").slow_head(Duration::from_millis(200));
    replicas.upstream.otherwise(slow);
    let calls = replicas.all.iter().cycle().take(36).map(async |replica| {
        assert!(is_answered(replica).await);
    });
    let watching = async {
        loop {
            let targets = replicas.all.iter().map(target);
            let targets = futures_util::future::join_all(targets).await;
            let in_flight = targets.iter().map(|it| it.concurrency.unwrap().in_flight);
            most.fetch_max(in_flight.sum(), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = watching => {}
        _ = futures_util::future::join_all(calls) => {}
    }
    let most = most.load(Ordering::Relaxed);
    assert!((1..=6).contains(&most), "{most} at once");
    for replica in &replicas.all {
        assert_eq!(target(replica).await.concurrency.unwrap().limit, 2);
    }
}
