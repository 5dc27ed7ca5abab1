//! What the durable engines promise beyond the process, and `PostgreSQL` beyond the replica.

use relight::internals::journal::{AppendError, Held, JournalError, Takeover, ThreadCommit};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection,
    sqlite::SqliteConnectOptions,
};
use tokio::time::{sleep, timeout};

use super::*;

async fn what_was_acknowledged_is_there_after_a_restart(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(
        &journal,
        NewInvocation {
            thread: Some(key.id.clone()),
            ..requested("a", "key")
        },
    )
    .await;
    begin(&journal, requested("b", "other key")).await;
    journal.lock_thread(&key, &id("a"), at(1)).await.unwrap();
    let (steps, _) = answer("a", 1, "hello");
    let patch = HistoryPatch {
        replace_tail: 0,
        messages: vec![said(Role::Assistant, "hello")],
    };
    let commit = ThreadCommit {
        expected_version: 1,
        turn: vec![said(Role::User, "hi")],
        patch,
    };
    let finish = Finish {
        thread: Some(ThreadEnd::Commit(commit)),
        ..end("a", 1, "hello", steps.clone())
    };
    journal.finish(finish, at(2)).await.unwrap();
    journal.append(&id("b"), &deltas(1, 1..=3)).await.unwrap();
    drop(journal);

    let journal = engine.open().await;
    assert_eq!(
        journal
            .read(&id("a"), 0, 10)
            .await
            .unwrap()
            .unwrap()
            .entries,
        steps
    );
    assert!(matches!(
        journal.begin(requested("c", "key"), at(3)).await,
        Ok(BeginResult::Replay(_))
    ));
    assert_eq!(
        journal
            .load_thread(&key)
            .await
            .unwrap()
            .unwrap()
            .messages
            .len(),
        2
    );
    assert_eq!(
        journal.expired(at(10), 10).await.unwrap(),
        [Held {
            id: id("b"),
            epoch: 1
        }]
    );
    let taken = journal
        .take_over(
            &Held {
                id: id("b"),
                epoch: 1,
            },
            &owner("after"),
            at(10),
        )
        .await;
    assert!(matches!(taken, Ok(Takeover::Taken(record)) if record.last_seq == 3));
}

async fn concurrent_starts_migrate_once(engine: Engine) {
    let journals = futures_util::future::join_all((0..8).map(|_| engine.open())).await;
    begin(&journals[0], invocation("a")).await;
    for journal in &journals {
        assert!(journal.get(&id("a")).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_that_another_process_writes_to_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let releasing = async {
        sleep(Duration::from_millis(200)).await;
        other.execute("COMMIT").await.unwrap();
    };
    let opening =
        relight::internals::journal::sqlite::open(&path, JournalMode::Fast, Limits::default());
    let (opened, ()) = futures_util::future::join(opening, releasing).await;
    assert!(opened.is_ok(), "{:?}", opened.err());
}

async fn what_cannot_be_read_back_is_corruption_and_no_default(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=1)).await.unwrap();
    let sql = "UPDATE events SET step = '{\"type\":\"block_delta\",\"secret\":' WHERE seq = 1";
    match &engine {
        Engine::Memory => panic!("nothing to spoil"),
        Engine::Sqlite(directory) => {
            let path = directory.path().join("a journal's #1 50% file.db");
            let options = SqliteConnectOptions::new().filename(path);
            let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
        Engine::Postgres(database) => {
            let mut connection = PgConnection::connect(&database.url()).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
    }
    let Err(JournalError::Corrupt(what)) = journal.read(&id("a"), 0, 10).await else {
        panic!("corrupt")
    };
    assert!(!what.contains("secret"), "content is not told: {what}");
}

/// The tables as the first version made them.
async fn as_the_first_version_left_it(engine: &Engine) {
    let mut database = engine.raw().await;
    for table in [
        "invocations DROP COLUMN upstream",
        "invocations DROP COLUMN content_bytes",
        "invocations DROP COLUMN takeovers",
        "threads DROP COLUMN bytes",
        "threads DROP COLUMN route",
    ] {
        database
            .execute(AssertSqlSafe(format!("ALTER TABLE {table}")))
            .await
            .unwrap();
    }
    database
        .execute("DROP INDEX threads_by_change")
        .await
        .unwrap();
    database.execute("DROP TABLE properties").await.unwrap();
    database
        .execute("DROP TABLE tool_executions")
        .await
        .unwrap();
    database
        .execute("DELETE FROM relight_migrations WHERE version > 1")
        .await
        .unwrap();
}

async fn records_of_an_earlier_version_are_read_and_continued(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=3)).await.unwrap();
    drop(journal);
    as_the_first_version_left_it(&engine).await;
    let journal = engine.open().await;
    assert_eq!(journal.get(&id("a")).await.unwrap().unwrap().upstream, None);
    assert_eq!(seqs(&journal, "a").await, [1, 2, 3]);
    let held = Held {
        id: id("a"),
        epoch: 1,
    };
    assert_eq!(journal.remember(&held, &made_at("resp_1")).await, Ok(true));
    assert_eq!(
        journal.get(&id("a")).await.unwrap().unwrap().upstream,
        Some(made_at("resp_1"))
    );
}

async fn two_replicas(database: Arc<Database>) -> (Arc<dyn Journal>, Arc<dyn Journal>) {
    let engine = Engine::Postgres(database);
    (engine.open().await, engine.open().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_on_another_replica_tails_the_journal() {
    on_postgres(|database| async move {
        let (one, other) = two_replicas(database).await;
        begin(&one, invocation("a")).await;
        let reading = async {
            let mut changes = other.changes(&id("a"));
            let mut got = 0;
            loop {
                let page = other.read(&id("a"), got, 10).await.unwrap().unwrap();
                got += page.entries.len() as u64;
                if page.finished && got == page.last_seq {
                    return got;
                }
                if page.entries.is_empty() {
                    changes.wait().await;
                }
            }
        };
        let writing = async {
            for seq in 1..=20 {
                one.append(&id("a"), &deltas(1, seq..=seq)).await.unwrap();
                sleep(Duration::from_millis(5)).await;
            }
            one.finish(end("a", 1, "done", deltas(1, 21..=21)), at(1))
                .await
                .unwrap();
        };
        let (got, ()) = timeout(
            Duration::from_secs(30),
            futures_util::future::join(reading, writing),
        )
        .await
        .unwrap();
        assert_eq!(got, 21);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_100_begins_on_two_replicas_exactly_one_is_new() {
    on_postgres(|database| async move {
        let (one, other) = two_replicas(database).await;
        let begins = (0..100).map(|number| {
            let journal = Arc::clone(if number % 2 == 0 { &one } else { &other });
            async move {
                journal
                    .begin(requested(&format!("{number}"), "key"), at(0))
                    .await
                    .unwrap()
            }
        });
        let begun = futures_util::future::join_all(begins).await;
        assert_eq!(
            begun
                .iter()
                .filter(|begun| matches!(begun, BeginResult::New { .. }))
                .count(),
            1
        );
        assert_eq!(
            begun
                .iter()
                .filter(|begun| matches!(begun, BeginResult::Attached(_)))
                .count(),
            99
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_die_midway_leave_contiguous_steps_and_the_journal_continues() {
    on_postgres(|database| async move {
        let (one, other) = two_replicas(Arc::clone(&database)).await;
        begin(&one, invocation("a")).await;
        let writing = async {
            let mut failures = 0;
            let mut next = 1;
            while next < 1000 {
                match one.append(&id("a"), &deltas(1, next..next + 10)).await {
                    // A batch whose answer was lost is sent again.
                    Ok(()) => next += 10,
                    Err(AppendError::Store(JournalError::Unavailable(_))) => failures += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            failures
        };
        let cutting = async {
            for _ in 0..10 {
                sleep(Duration::from_millis(20)).await;
                database.cut().await;
            }
        };
        let (failures, ()) = futures_util::future::join(writing, cutting).await;
        assert!(failures > 0, "connections died");
        // A dead connection may still be in the other replica's pool.
        let got = loop {
            match other.read(&id("a"), 0, 2000).await {
                Ok(page) => break page.unwrap(),
                Err(JournalError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(
            got.entries
                .iter()
                .map(|entry| entry.seq)
                .collect::<Vec<_>>(),
            (1..=1000).collect::<Vec<u64>>()
        );
    })
    .await;
}

on_durable_engines!(
    what_was_acknowledged_is_there_after_a_restart,
    concurrent_starts_migrate_once,
    what_cannot_be_read_back_is_corruption_and_no_default,
    records_of_an_earlier_version_are_read_and_continued,
);
