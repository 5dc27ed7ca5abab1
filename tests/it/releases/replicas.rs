//! Replicas that share a journal share their releases.

use relight::internals::grpc::v1::ReleaseAction;
use tokio::task::block_in_place;

use super::{Trial, candidate, is_rolled_back, until};
use crate::support::{cluster::Cluster, postgres::Database, relight::Relight, upstream::Reply};

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_on_one_database_make_one_decision() {
    let Some(database) = Database::create().await else {
        return;
    };
    let journal = format!("journal: {{ store: \"{}\" }}\n", database.url());
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
