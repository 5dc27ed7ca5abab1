//! A store that is stopped, frozen or slow costs no call (F1, F2, F6).

use serde_json::Value;

use super::*;
use crate::support::{http::metrics, slow_link::SlowLink};

/// Longest time that a call takes which waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_while_the_store_is_stopped_or_frozen_and_status_tells() {
    let _room = room().await;
    for is_frozen in [false, true] {
        for server in FleetServer::all() {
            lose_and_find(Replicas::on(server, "").await, is_frozen).await;
        }
    }
}

/// Waits until one of the lines after the first `from` has these words: a line may be read after the
/// status that says the same.
async fn is_logged(process: &Process, from: usize, words: &str) {
    let says = |log: &[Value]| {
        log[from..]
            .iter()
            .any(|line| line.to_string().contains(words))
    };
    process.log_until(says).await;
}

/// Takes the store away and gives it back.
async fn lose_and_find(replicas: Replicas, is_frozen: bool) {
    let engine = replicas.cluster.engine();
    let first = &replicas.all[0];
    let mut watch = first.log().len();
    if is_frozen {
        replicas.cluster.freeze();
    } else {
        replicas.cluster.stop();
    }
    for _ in 0..5 {
        let answered = tokio::time::timeout(AT_ONCE, is_answered(first)).await;
        assert_eq!(answered, Ok(true), "{engine}, frozen: {is_frozen}");
    }
    until("the loss", async || {
        let status = status(first).await;
        let store = status
            .stores
            .iter()
            .find(|it| it.kind() == StoreKind::Fleet);
        !store.unwrap().reachable
            && status
                .reasons
                .iter()
                .any(|it| it.component == "store:fleet" && it.message.contains("alone"))
    })
    .await;
    is_logged(first, watch, "this replica decides alone").await;
    assert!(is_answered(first).await);
    watch = first.log().len();
    if is_frozen {
        replicas.cluster.thaw();
    } else {
        replicas.cluster.start_again();
    }
    until("the return", async || {
        status(first).await.stores.iter().all(|it| it.reachable)
    })
    .await;
    is_logged(first, watch, "the store of the fleet is back").await;
    // What is said now holds everywhere.
    force(first, CircuitForce::Open).await;
    let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
    replicas.until_all(0, "forced", is_forced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_while_the_store_is_away_is_known_to_all_when_it_is_back() {
    let _room = room().await;
    let settings = "circuit: { open_base: 60s }";
    for server in FleetServer::all() {
        meet_outage_alone(Replicas::on(server, settings).await).await;
    }
}

/// One replica meets an outage while the store is away; then the store comes back, Valkey without
/// what it knew.
async fn meet_outage_alone(replicas: Replicas) {
    replicas.cluster.stop();
    replicas.upstream.otherwise(Reply::status(500));
    let first = &replicas.all[0];
    while state_of(&target(first).await) == CircuitState::Closed {
        failure(first).await;
    }
    let others = &replicas.all[1..];
    for replica in others {
        assert_eq!(state_of(&target(replica).await), CircuitState::Closed);
    }
    replicas.cluster.start_again();
    let is_open = |target: &Target| state_of(target) == CircuitState::Open;
    replicas.until_all(0, "open", is_open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_starts_and_answers_without_its_store() {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else {
        return;
    };
    cluster.stop();
    let upstream = Upstream::start().await;
    let config = format!(
        "{}fleet: {{ store: \"{}\" }}\njournal: {{ store: memory }}\n",
        one_target(&upstream),
        cluster.url()
    );
    let replica = Process::start(&config).await;
    assert!(is_answered(&replica).await);
    cluster.start_again();
    until("the store", async || {
        status(&replica).await.stores.iter().all(|it| it.reachable)
    })
    .await;
}

/// Each direction takes so long on the way to a slow store: more than a probe waits in all, and far
/// from what would be away.
const SLOW: Duration = Duration::from_millis(40);

/// Time in which several operations in a row show it; an operation shows nothing while this host is
/// late itself.
const SHOWN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_too_slow_for_probes_is_named_until_it_is_quick_and_words_hold_by_it() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let link = SlowLink::to(server.port()).await;
        let url = server.url_through(link.port);
        let replicas = Replicas::at(server, &url, "concurrency: { max: 6 }").await;
        let first = &replicas.all[0];
        let is_named = async || {
            let reasons = status(first).await.reasons;
            reasons
                .iter()
                .any(|it| it.component == "store:fleet" && it.message.contains("probes alone"))
        };
        let is_up = async |up: &str| {
            let line = format!("relight_store_up{{store=\"fleet\"}} {up}");
            metrics(&first.admin_address).await.contains(&line)
        };
        assert!(!is_named().await && is_up("1").await, "{engine}");
        link.set_delay(SLOW);
        until_in(SHOWN, engine, async || is_named().await && is_up("0").await).await;
        let log = format!("{:?}", first.log());
        assert!(log.contains("this replica probes alone"), "{engine}");
        // All know each other and what was demanded, though later.
        assert!(status(first).await.stores[1].reachable, "{engine}");
        assert_eq!(target(first).await.concurrency.unwrap().limit, 2);
        force(first, CircuitForce::Open).await;
        let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
        replicas.until_all(0, "forced", is_forced).await;
        link.set_delay(Duration::ZERO);
        until_in(SHOWN, engine, async || {
            !is_named().await && is_up("1").await
        })
        .await;
    }
}
