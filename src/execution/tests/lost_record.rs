//! A journal whose file is removed under it: it goes on with an empty one, which knows nothing of
//! the calls in flight.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::harness::{Ask, Client, engine};
use crate::{
    call_error::{CallError, table::STORE_UNAVAILABLE},
    domain::failure::FailureCode,
    execution::{ExecutionLevels, Executions, Settings},
    journal::{self, JournalConfig, JournalMode, JournalStore, Owner},
};

/// Words of an answer, ten in a second: so long that the leases are renewed, and the store is
/// probed, after the file is gone.
const WORDS: usize = 60;

fn text() -> String {
    vec!["word"; WORDS].join(" ")
}

/// Calls of each kind: one that nobody can come back to, two that somebody can, and one on a
/// thread.
fn asks() -> [Ask; 4] {
    let named = Ask {
        request_id: Some("r".into()),
        ..Ask::new("Hello")
    };
    [
        Ask::new("Hello"),
        named,
        Ask::new("Hello").resumable(),
        Ask::new("Hello").on("t-1"),
    ]
}

async fn called(ask: Ask, executions: Executions) -> Result<Client, CallError> {
    let mut started = ask.start(&executions).await?;
    let mut client = Client::default();
    let read = client.read(&mut started.follower, usize::MAX).await;
    read.map_err(|lost| lost.of_resumable(&started.id))?;
    Ok(client)
}

fn remove(folder: &Path) {
    for file in fs::read_dir(folder).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
}

/// Returns the results of calls whose journal is removed while they run, and what the executions
/// count then. A new call is answered in any case.
async fn without_their_file(
    mode: JournalMode,
) -> (Vec<Result<Client, CallError>>, ExecutionLevels) {
    let folder = tempfile::tempdir().unwrap();
    let config = JournalConfig {
        store: JournalStore::Sqlite(folder.path().join("journal.db")),
        mode,
        ..JournalConfig::default()
    };
    let settings = Settings {
        mode,
        ..Settings::new(Owner::new("a"))
    };
    let script = format!(
        "{{ otherwise: {{ answer: {{ text: {}, tokens_per_second: 10 }} }} }}",
        text()
    );
    let journal = journal::open(&config).await.unwrap();
    let executions = Executions::new(engine(&script), Arc::clone(&journal), settings);
    let mut keeping = JoinSet::new();
    keeping.spawn(executions.clone().keep());
    let mut calls = JoinSet::new();
    for (at, ask) in asks().into_iter().enumerate() {
        let called = called(ask, executions.clone());
        calls.spawn(async move { (at, called.await) });
    }
    while journal.stats().await.unwrap().invocations < asks().len() as u64 {
        sleep(Duration::from_millis(20)).await;
    }
    remove(folder.path());
    let mut ended = calls.join_all().await;
    ended.sort_by_key(|(at, _)| *at);
    let [_, named, ..] = asks();
    let again = called(named, executions.clone()).await.unwrap();
    assert_eq!(again.answer(), text());
    let kept = journal.stats().await.unwrap().invocations;
    assert_eq!(
        kept, 1,
        "the new call alone is recorded, and none is run again"
    );
    let ended = ended.into_iter().map(|(_, called)| called).collect();
    (ended, executions.levels())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_record_is_lost_is_answered_all_the_same_and_counted() {
    let (mut ended, levels) = without_their_file(JournalMode::Fast).await;
    let on_thread = ended.pop().unwrap().unwrap();
    for client in ended {
        assert_eq!(client.unwrap().answer(), text());
    }
    let failure = on_thread.outcome.unwrap().result.unwrap_err();
    let code = failure.class.code();
    assert_eq!(code, FailureCode::StateError, "its turn is not saved");
    assert_eq!(levels.unrecorded, asks().len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_recorded_first_is_told_that_the_journal_fails_if_its_record_is_lost() {
    let (ended, _) = without_their_file(JournalMode::Strict).await;
    for called in ended {
        let error = called.unwrap_err();
        assert!(error.is(STORE_UNAVAILABLE), "{error:?}");
    }
}
