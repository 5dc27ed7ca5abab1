//! What a database with encryption keys shows to one who reads it directly, and what it does not
//! accept from one who writes to it.

use relight::internals::journal::{
    JournalError, PayloadCipher, ThreadCommit, postgres as postgres_engine, sqlite as sqlite_engine,
};
use sqlx::{Column as _, Executor as _, Row as _};

use super::*;

const KEY: &str = "a key of thirty-two characters or more";
const CONTENT: &str = "nobody but its owner reads this";

async fn sealed(engine: &Engine, keys: &[&str]) -> Arc<dyn Journal> {
    let vault = PayloadCipher::new(keys.iter().copied());
    match engine {
        Engine::Memory => panic!("nothing is kept of it"),
        Engine::Sqlite(directory) => {
            let path = directory.path().join("a journal's #1 50% file.db");
            Arc::new(
                sqlite_engine::open(&path, JournalMode::Fast, Limits::default())
                    .await
                    .unwrap()
                    .with_encryption(vault),
            )
        }
        Engine::Postgres(database) => Arc::new(
            postgres_engine::open(&database.url(), Limits::default())
                .await
                .unwrap()
                .with_encryption(vault),
        ),
    }
}

/// Everything that every table holds, as text.
async fn everything(engine: &Engine) -> String {
    let mut database = engine.raw().await;
    let mut all = String::new();
    for table in [
        "invocations",
        "events",
        "threads",
        "thread_messages",
        "thread_errors",
    ] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT * FROM {table}"));
        for row in database.fetch_all(sqlx::raw_sql(sql)).await.unwrap() {
            for column in row.columns() {
                all.push_str(
                    &row.try_get::<Option<String>, _>(column.ordinal())
                        .ok()
                        .flatten()
                        .unwrap_or_default(),
                );
                all.push('\n');
            }
        }
    }
    all
}

/// An invocation on a thread whose request, answer and failure have this content.
async fn filled(journal: &Arc<dyn Journal>) -> Vec<Entry> {
    let key = thread("t");
    let call = ModelCall {
        messages: vec![said(Role::User, CONTENT)],
        ..ModelCall::default()
    };
    let request = RecordedRequest {
        call: Some(Call::Model(std::sync::Arc::new(call))),
        ..RecordedRequest::default()
    };
    let new = NewInvocation {
        thread: Some(key.id.clone()),
        request,
        ..requested("a", "key")
    };
    begin(journal, new).await;
    journal.lock_thread(&key, &id("a"), at(1)).await.unwrap();
    let (steps, fold) = answer("a", 1, CONTENT);
    let patch = HistoryPatch {
        replace_tail: 0,
        messages: vec![said(Role::Assistant, CONTENT)],
    };
    let commit = ThreadCommit {
        expected_version: 1,
        turn: vec![said(Role::User, CONTENT)],
        patch,
    };
    journal.append(&id("a"), &steps[..2]).await.unwrap();
    let (rest, snapshot) = (steps[2..].to_vec(), fold.blocks().to_vec());
    let finish = Finish {
        thread: Some(ThreadEnd::Commit(commit)),
        snapshot,
        ..end("a", 1, CONTENT, rest)
    };
    journal.finish(finish, at(2)).await.unwrap();
    begin(journal, invocation("r")).await;
    journal
        .remember(
            &relight::internals::journal::Held {
                id: id("r"),
                epoch: 1,
            },
            &made_at(CONTENT),
        )
        .await
        .unwrap();
    begin(journal, on_thread("b", &key)).await;
    journal.lock_thread(&key, &id("b"), at(3)).await.unwrap();
    journal
        .finish(failed_end("b", Some(ThreadEnd::Fail)), at(4))
        .await
        .unwrap();
    steps
}

async fn with_a_key_no_content_is_in_the_open_and_everything_reads_as_before(engine: Engine) {
    let journal = sealed(&engine, &[KEY]).await;
    let steps = filled(&journal).await;
    let shown = everything(&engine).await;
    assert!(
        !shown.contains(CONTENT) && !shown.contains("it failed"),
        "{shown}"
    );
    assert_eq!(
        journal
            .read(&id("a"), 0, 10)
            .await
            .unwrap()
            .unwrap()
            .entries,
        steps
    );
    let record = journal.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(record.outcome.as_deref(), Some(&outcome("a", Ok(CONTENT))));
    assert_eq!(record.snapshot.unwrap()[0].text, CONTENT);
    let again = NewInvocation {
        thread: Some("t".into()),
        request: record.request.unwrap(),
        ..requested("c", "key")
    };
    assert!(
        matches!(
            journal.begin(again, at(5)).await,
            Ok(BeginResult::Replay(_))
        ),
        "fingerprints are compared as before"
    );
    assert_eq!(
        journal.get(&id("r")).await.unwrap().unwrap().upstream,
        Some(made_at(CONTENT))
    );
    let kept = journal.load_thread(&thread("t")).await.unwrap().unwrap();
    assert_eq!((kept.messages.len(), kept.errors.len()), (2, 1));
    assert_eq!(kept.messages[1], said(Role::Assistant, CONTENT));
}

async fn another_key_reads_nothing_and_both_keys_read_both(engine: Engine) {
    let other = "another key of thirty-two characters or more";
    filled(&sealed(&engine, &[KEY]).await).await;
    let stranger = sealed(&engine, &[other]).await;
    for failed in [
        stranger.get(&id("a")).await.err(),
        stranger.read(&id("a"), 0, 9).await.err(),
    ] {
        assert!(
            matches!(failed, Some(JournalError::Corrupt(_))),
            "{failed:?}"
        );
    }
    assert!(stranger.load_thread(&thread("t")).await.is_err());
    let both = sealed(&engine, &[other, KEY]).await;
    assert!(both.get(&id("a")).await.unwrap().unwrap().outcome.is_some());
    begin(&both, invocation("z")).await;
    assert!(
        stranger.get(&id("z")).await.unwrap().is_some(),
        "the first key encrypts"
    );
}

async fn a_text_that_was_moved_to_another_row_is_corruption(engine: Engine) {
    let journal = sealed(&engine, &[KEY]).await;
    filled(&journal).await;
    let sql = "UPDATE events SET step = (SELECT step FROM events WHERE seq = 3) WHERE seq = 2";
    engine.raw().await.execute(sql).await.unwrap();
    assert!(matches!(
        journal.read(&id("a"), 0, 10).await,
        Err(JournalError::Corrupt(_))
    ));
}

async fn what_was_kept_in_the_open_stays_readable(engine: Engine) {
    let steps = filled(&engine.open().await).await;
    assert!(everything(&engine).await.contains(CONTENT));
    let journal = sealed(&engine, &[KEY]).await;
    assert_eq!(
        journal
            .read(&id("a"), 0, 10)
            .await
            .unwrap()
            .unwrap()
            .entries,
        steps
    );
    assert_eq!(
        journal
            .load_thread(&thread("t"))
            .await
            .unwrap()
            .unwrap()
            .messages
            .len(),
        2
    );
}

on_durable_engines!(
    with_a_key_no_content_is_in_the_open_and_everything_reads_as_before,
    another_key_reads_nothing_and_both_keys_read_both,
    a_text_that_was_moved_to_another_row_is_corruption,
    what_was_kept_in_the_open_stays_readable,
);
