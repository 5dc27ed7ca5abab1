//! A call that must be recorded and cannot be is refused, and counts as what it is: a failure of
//! the store.

use std::time::Duration;

use relight::internals::grpc::v1::RewindMode;
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::Code;

use crate::support::{
    folding::start,
    http::metrics,
    process::Process,
    relight::{resumable, streaming},
    targets::one_target,
    upstream::Upstream,
};

/// Longest time until the call is counted.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_call_refused_because_its_file_takes_no_writes_is_a_failure_of_the_store_in_log_and_metrics()
 {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("journal.db");
    let config = format!(
        "{}journal: {{ store: \"sqlite:{}\" }}\n",
        one_target(&upstream),
        file.display()
    );
    let process = Process::start(&config).await;
    let mut other = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file))
        .await
        .unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let refused = start(
        process.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unavailable);
    let ended = |log: &[serde_json::Value]| {
        log.iter()
            .find(|line| line["event"] == "invocation_failed")
            .map(|line| line["message"].to_string())
    };
    let log = process.log_until(|log| ended(log).is_some()).await;
    let line = ended(&log).unwrap();
    assert!(
        line.contains("executor failed before any attempt: state: the call could not be recorded"),
        "{line}"
    );
    let counting = async {
        loop {
            let page = metrics(&process.admin_address).await;
            let is_of_calls = |line: &&str| {
                line.starts_with("relight_invocations_total{") && !line.ends_with(" 0")
            };
            let counted: Vec<String> = page
                .lines()
                .filter(is_of_calls)
                .map(str::to_owned)
                .collect();
            if !counted.is_empty() {
                return counted;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counting)
        .await
        .expect("it is counted");
    let is_right = |line: &String| line.contains("class=\"state\"") && line.ends_with(" 1");
    assert!(
        counted.len() == 1 && counted.iter().all(is_right),
        "{counted:?}"
    );
    assert!(upstream.requests().is_empty(), "no target was called");
}
