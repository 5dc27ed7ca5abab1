//! Replicas that share a journal share their releases.

use std::time::Duration;

use relight::internals::grpc::v1::{ListReleasesRequest, Release, ReleaseAction, ReleaseState};
use serde_json::json;
use tokio::task::block_in_place;

use super::{PATIENCE, Trial, candidate, is_rolled_back, until};
use crate::support::{
    cluster::Cluster,
    postgres::Database,
    relight::Relight,
    reloaded::Reloaded,
    upstream::{Reply, Upstream},
};

/// What fails is called elsewhere at once, so that each call is one request to the candidate.
const ELSEWHERE: &str = "policies: { standard: { retry: { prefer_same_target: \"0ms\" } } }\n";

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_on_one_database_make_one_decision() {
    let Some(database) = Database::create().await else {
        return;
    };
    let journal = format!("{ELSEWHERE}journal: {{ store: \"{}\" }}\n", database.url());
    let trial = Trial::start("", &journal).await;
    let other = Relight::start(&trial.config).await;
    trial.candidate.otherwise(Reply::status(500));
    // One failure at each replica by turns: neither sees three by itself at first.
    for _ in 0..3 {
        trial.relight.ask("Why?").await;
        other.ask("Why?").await;
    }
    for replica in [&trial.relight, &other] {
        let seen = until(replica, "it is rolled back", is_rolled_back).await;
        let decided = candidate(&seen)
            .decisions
            .iter()
            .filter(|it| it.action() == ReleaseAction::RolledBack)
            .count();
        assert_eq!(decided, 1);
    }
    let sent = trial.candidate.requests().len();
    assert!(sent <= 6);
    trial.relight.ask("Why?").await;
    other.ask("Why?").await;
    assert_eq!(trial.candidate.requests().len(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_during_an_outage_of_the_journal_is_kept_after_it_for_all_replicas() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let journal = format!("journal: {{ store: \"{}\" }}\n", cluster.url());
    let trial = Trial::start("", &journal).await;
    let other = Relight::start(&trial.config).await;
    until(&other, "it knows both", |releases| releases.len() == 2).await;
    trial.candidate.otherwise(Reply::status(500));
    block_in_place(|| cluster.stop());
    for _ in 0..3 {
        trial.relight.ask("Why?").await;
    }
    trial.until("it is rolled back", is_rolled_back).await;
    block_in_place(|| cluster.start_again());
    until(&other, "the other follows", is_rolled_back).await;
    assert!(is_rolled_back(&trial.releases().await));
    let sent = trial.candidate.requests().len();
    trial.relight.ask("Why?").await;
    other.ask("Why?").await;
    assert_eq!(trial.candidate.requests().len(), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_of_an_outage_of_the_journal_are_those_of_the_release_that_was_called() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let upstream = Upstream::start().await;
    let mut server = Reloaded::start(json!({
        "providers": { "q": { "dialect": "openai_chat", "base_url": upstream.base_url(), "api_key": "k" } },
        "targets": { "next": { "provider": "q", "model": "m-2" } },
        "circuit": { "mode": "off" },
        // Each call is one request to the candidate, so that no outcome is left once it is rolled back.
        "policies": { "standard": { "retry": { "prefer_same_target": "0ms" } } },
        "releases": { "subjects": { "main": { "candidate": "next", "share": 1.0 } } },
        "journal": { "store": cluster.url() },
    }))
    .await;
    until_candidate(&server, "m-2", ReleaseState::Active).await;
    upstream.otherwise(Reply::status(500));
    block_in_place(|| cluster.stop());
    for _ in 0..3 {
        server.invoke().await;
    }
    until_candidate(&server, "m-2", ReleaseState::RolledBack).await;
    server
        .change(json!({ "targets": { "next": { "model": "m-3" } } }))
        .await;
    until_candidate(&server, "m-3", ReleaseState::Active).await;
    upstream.otherwise(Reply::text("Fine."));
    block_in_place(|| cluster.start_again());
    server.invoke().await;
    let other = Relight::start_whole(&server.config.to_string()).await;
    let seen = until(&other, "its call is in the journal", |releases| {
        let used = |one: &Release| one.evidence.as_ref().unwrap().executions > 0;
        releases.iter().any(|one| one.model == "m-3" && used(one))
    })
    .await;
    let evidence = candidate(&seen).evidence.as_ref().unwrap();
    assert_eq!((evidence.executions, evidence.failures), (1, 0));
    assert_eq!(candidate(&seen).state(), ReleaseState::Active);
}

/// Ends when the candidate of this server is of that model and in that state.
async fn until_candidate(server: &Reloaded, model: &str, state: ReleaseState) {
    let listed = async {
        loop {
            let mut admin = server.admin();
            let listed = admin.list_releases(ListReleasesRequest::default()).await;
            let releases = listed.unwrap().into_inner().releases;
            let is_it = |one: &Release| one.model == model && one.state() == state;
            if releases.iter().any(is_it) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, listed).await.unwrap();
}
