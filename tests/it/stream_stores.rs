//! Stores that fail: calls that need them get exactly that error, all others succeed, and nothing
//! is half-written.

use std::{path::Path, time::Duration};

use relight::internals::grpc::v1::{
    FailureCode, GetThreadRequest, GetThreadResponse, Invocation, InvokeWithRecoveryRequest,
    invoke_with_recovery_response::Outcome,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqliteConnection};
use tonic::Code;

use crate::support::{
    postgres::Database,
    relight::{Relight, asking},
    room::room,
    targets::one_target,
    upstream::{Reply, Upstream},
};

const TABLES: [&str; 5] = [
    "invocations",
    "events",
    "threads",
    "thread_messages",
    "thread_errors",
];

/// A real database that can be broken from behind.
enum Store {
    Sqlite(tempfile::TempDir),
    Postgres(Database),
}

impl Store {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    fn file(folder: &Path) -> std::path::PathBuf {
        folder.join("journal.db")
    }

    fn setting(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", Self::file(folder.path()).display()),
            Self::Postgres(database) => database.url(),
        }
    }

    async fn execute(&self, sql: String) {
        match self {
            Self::Sqlite(folder) => {
                let options =
                    sqlx::sqlite::SqliteConnectOptions::new().filename(Self::file(folder.path()));
                let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
                // A rename is not to follow the references of other tables.
                connection
                    .execute("PRAGMA legacy_alter_table = ON; PRAGMA busy_timeout = 5000")
                    .await
                    .unwrap();
                connection.execute(AssertSqlSafe(sql)).await.unwrap();
            }
            Self::Postgres(database) => {
                let mut connection = PgConnection::connect(&database.url()).await.unwrap();
                connection.execute(AssertSqlSafe(sql)).await.unwrap();
            }
        }
    }

    /// Renames tables, so that they are missing.
    async fn take(&self, tables: &[&str]) {
        for table in tables {
            self.execute(format!("ALTER TABLE {table} RENAME TO {table}_away"))
                .await;
        }
    }

    /// Restores them.
    async fn give_back(&self, tables: &[&str]) {
        for table in tables {
            self.execute(format!("ALTER TABLE {table}_away RENAME TO {table}"))
                .await;
        }
    }
}

async fn served(upstream: &Upstream, store: &Store) -> Relight {
    Relight::start(&format!(
        "{}journal: {{ store: {:?} }}\n",
        one_target(upstream),
        store.setting()
    ))
    .await
}

fn on_thread(text: &str) -> Invocation {
    Invocation {
        thread_id: "t-1".to_owned(),
        ..asking(text)
    }
}

fn failure_code(outcome: Option<Outcome>) -> FailureCode {
    match outcome {
        Some(Outcome::Failure(failure)) => failure.code(),
        other => panic!("no failure but {other:?}"),
    }
}

async fn thread(relight: &Relight) -> GetThreadResponse {
    let request = GetThreadRequest {
        thread_id: "t-1".to_owned(),
    };
    relight
        .recovery()
        .get_thread(request)
        .await
        .unwrap()
        .into_inner()
}

/// A thread that cannot be loaded.
async fn loading_fails(store: &Store) {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Fine."));
    let relight = served(&upstream, store).await;
    assert!(matches!(
        relight.invoke(on_thread("First?")).await.outcome,
        Some(Outcome::Completion(_))
    ));
    for lost in [&["thread_messages"][..], &["threads"], &TABLES] {
        store.take(lost).await;
        let asked = upstream.requests().len();
        let failed = relight.invoke(on_thread("Second?")).await;
        assert_eq!(
            failure_code(failed.outcome),
            FailureCode::ContextError,
            "without {lost:?}"
        );
        assert_eq!(upstream.requests().len(), asked, "nobody was asked");
        store.give_back(lost).await;
    }
    let kept = thread(&relight).await.thread.unwrap();
    assert_eq!(
        (kept.messages.len(), kept.running_invocation_id.as_str()),
        (2, ""),
        "as it was"
    );
    assert!(
        matches!(
            relight.invoke(on_thread("Third?")).await.outcome,
            Some(Outcome::Completion(_))
        ),
        "it goes on"
    );
}

/// A turn that cannot be saved.
async fn saving_fails(store: &Store) {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Fine."));
    let relight = served(&upstream, store).await;
    assert!(matches!(
        relight.invoke(on_thread("First?")).await.outcome,
        Some(Outcome::Completion(_))
    ));
    upstream
        .push(Reply::text("Never to be seen in the thread.").slow_head(Duration::from_millis(300)));
    let (failed, ()) = tokio::join!(relight.invoke(on_thread("Second?")), async {
        upstream.await_request(2).await;
        store.take(&["thread_messages"]).await;
    });
    assert_eq!(failure_code(failed.outcome), FailureCode::StateError);
    store.give_back(&["thread_messages"]).await;
    let kept = thread(&relight).await.thread.unwrap();
    assert_eq!(
        (kept.version, kept.messages.len()),
        (2, 2),
        "nothing is half-written: {kept:?}"
    );
    // What was delivered without a record is recorded when the store is back; then the thread is
    // free.
    let again = async {
        loop {
            let request = InvokeWithRecoveryRequest {
                invocation: Some(on_thread("Third?")),
            };
            match relight.recovery().invoke_with_recovery(request).await {
                Ok(response) => return response.into_inner(),
                Err(status) => assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(30), again)
        .await
        .expect("the thread is free again");
    assert!(matches!(again.outcome, Some(Outcome::Completion(_))));
    let kept = thread(&relight).await.thread.unwrap();
    assert_eq!(
        (kept.version, kept.messages.len(), kept.errors.len()),
        (3, 4, 1),
        "{kept:?}"
    );
}

/// A store that is gone altogether, and comes back.
async fn all_is_gone(store: &Store) {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Fine."));
    let relight = served(&upstream, store).await;
    store.take(&TABLES).await;
    assert!(
        matches!(
            relight.ask("Hello?").await.outcome,
            Some(Outcome::Completion(_))
        ),
        "who needs none is served"
    );
    let invocation = Some(Invocation {
        request_id: "r-1".to_owned(),
        ..asking("Once?")
    });
    let promised = relight
        .recovery()
        .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
        .await;
    assert_eq!(
        promised.unwrap_err().code(),
        Code::Unavailable,
        "a promise is not made in vain"
    );
    store.give_back(&TABLES).await;
    let invocation = Some(Invocation {
        request_id: "r-1".to_owned(),
        ..asking("Once?")
    });
    let kept = relight
        .recovery()
        .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
        .await;
    assert!(matches!(
        kept.unwrap().into_inner().outcome,
        Some(Outcome::Completion(_))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_cannot_be_loaded_from_a_file_is_a_context_error() {
    loading_fails(&Store::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_cannot_be_saved_to_a_file_is_a_state_error() {
    saving_fails(&Store::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_its_tables_costs_only_those_who_need_them() {
    all_is_gone(&Store::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_in_a_postgres_that_fails_are_context_and_state_errors() {
    let _room = room().await;
    for claim in 0..3 {
        let Some(database) = Database::create().await else {
            return;
        };
        let store = Store::Postgres(database);
        match claim {
            0 => loading_fails(&store).await,
            1 => saving_fails(&store).await,
            _ => all_is_gone(&store).await,
        }
        if let Store::Postgres(database) = store {
            database.drop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_stops_is_reported_and_found_again() {
    let Some(database) = Database::create().await else {
        return;
    };
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Fine."));
    let relight = served(&upstream, &Store::Postgres(database.clone())).await;
    let start = relight::internals::grpc::v1::watch_recovery_request::Start::Live(true);
    let mut watch = relight.watch(start).await;
    database.close().await;
    let failed = relight.invoke(on_thread("Second?")).await;
    assert_eq!(failure_code(failed.outcome), FailureCode::ContextError);
    assert!(matches!(
        relight.ask("Hello?").await.outcome,
        Some(Outcome::Completion(_))
    ));
    watch.until_journal("store_lost").await;
    database.open().await;
    watch.until_journal("store_found").await;
    let third = relight.invoke(on_thread("Third?")).await;
    assert!(
        matches!(third.outcome, Some(Outcome::Completion(_))),
        "{third:?}"
    );
    drop(relight);
    database.drop().await;
}
