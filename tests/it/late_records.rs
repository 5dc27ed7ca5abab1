//! Calls that cannot be looked up by a name of their own are recorded late, which no reader can
//! notice.

use std::{path::Path, time::Duration};

use relight::internals::grpc::v1::{
    CancelInvocationRequest, GetInvocationRequest, Invocation, InvocationRecord, InvocationState,
    InvokeWithRecoveryRequest, ListInvocationsRequest,
    cancel_invocation_request::Invocation as Cancelled, get_invocation_request,
};
use sqlx::{Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::support::{
    postgres::Database,
    process::Process,
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

fn settings(upstream: &Upstream, folder: &Path, mode: &str) -> String {
    settings_on(
        upstream,
        &format!("sqlite:{}", folder.join("journal.db").display()),
        mode,
    )
}

fn settings_on(upstream: &Upstream, store: &str, mode: &str) -> String {
    format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m-1 }} }}\n\
         routes: {{ default: {{ targets: [main] }} }}\n\
         journal: {{ store: \"{store}\", mode: {mode} }}\n",
        upstream.base_url()
    )
}

async fn rows(folder: &Path, condition: &str) -> i64 {
    let options = SqliteConnectOptions::new()
        .filename(folder.join("journal.db"))
        .read_only(true);
    let mut journal = SqliteConnection::connect_with(&options).await.unwrap();
    let sql = format!("SELECT count(*) FROM invocations WHERE {condition}");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .fetch_one(&mut journal)
        .await
        .unwrap()
        .get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_can_be_looked_up_as_soon_as_it_is_answered_and_all_are_listed() {
    // In `strict` each call writes to the disk before it begins, and one that waits too long for
    // that has no record.
    for (mode, calls) in [("fast", 40), ("strict", 4)] {
        let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
        upstream.otherwise(Reply::text("Fine, thank you."));
        let server = Relight::start(&settings(&upstream, folder.path(), mode)).await;
        let calling = (0..calls).map(async |n| {
            let answered = server.ask(&format!("How are you, {n}?")).await;
            let mut record = server.get(&answered.invocation_id).await;
            // On a busy disk an answer does not wait for its end to be written.
            let until = tokio::time::Instant::now() + Duration::from_secs(30);
            while tokio::time::Instant::now() < until && record.state() == InvocationState::Running
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
                record = server.get(&answered.invocation_id).await;
            }
            assert_eq!(
                record.state(),
                InvocationState::Succeeded,
                "{mode}: {record:#?}"
            );
            assert_eq!(record.attempts.len(), 1, "{mode}");
            answered.invocation_id
        });
        let mut called = futures_util::future::join_all(calling).await;
        let listing = ListInvocationsRequest {
            page_size: 100,
            ..ListInvocationsRequest::default()
        };
        let listed = server
            .recovery()
            .list_invocations(listing)
            .await
            .unwrap()
            .into_inner();
        let mut listed: Vec<_> = listed
            .invocations
            .into_iter()
            .map(|one| one.invocation_id)
            .collect();
        called.sort();
        listed.sort();
        assert_eq!(listed, called, "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_records_all_that_it_answered() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream.otherwise(Reply::text("Fine, thank you."));
    let mut server = Process::start(&settings(&upstream, folder.path(), "fast")).await;
    let calling = (0..30).map(|n| {
        let invocation = Some(asking(&format!("How are you, {n}?")));
        let (mut client, request) = (server.recovery(), InvokeWithRecoveryRequest { invocation });
        async move { client.invoke_with_recovery(request).await.unwrap() }
    });
    futures_util::future::join_all(calling).await;
    server.terminate().await;
    assert_eq!(
        rows(
            folder.path(),
            "state = 'finished' AND outcome IS NOT NULL AND event_count > 0"
        )
        .await,
        30
    );
    assert_eq!(rows(folder.path(), "state = 'running'").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_continues_is_recorded_as_running_and_ends_when_it_is_cancelled() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream.otherwise(Reply::silence());
    let server = Relight::start(&settings(&upstream, folder.path(), "fast")).await;
    let mut client = server.recovery();
    let invocation = Some(Invocation {
        route: "default".to_owned(),
        ..asking("Are you there?")
    });
    let mut calling = tokio::task::JoinSet::new();
    calling.spawn(async move {
        client
            .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
            .await
    });
    upstream.await_request(1).await;
    while rows(folder.path(), "state = 'running'").await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let listed = server
        .recovery()
        .list_invocations(ListInvocationsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let [running] = listed.invocations.as_slice() else {
        panic!("{listed:#?}")
    };
    assert_eq!(running.state(), InvocationState::Running);
    let invocation = Some(Cancelled::InvocationId(running.invocation_id.clone()));
    let request = CancelInvocationRequest {
        invocation,
        reason: "enough".to_owned(),
    };
    server.recovery().cancel_invocation(request).await.unwrap();
    let ended = calling
        .join_next()
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .into_inner();
    assert_eq!(
        server.get(&ended.invocation_id).await.state(),
        InvocationState::Cancelled
    );
    assert_eq!(rows(folder.path(), "state = 'finished'").await, 1);
}

/// From an invocation's begin to its end, as the record has it.
fn took(record: &InvocationRecord) -> Duration {
    let (from, to) = (
        record.created_at.as_ref().unwrap(),
        record.finished_at.as_ref().unwrap(),
    );
    let nanos =
        i128::from(to.seconds - from.seconds) * 1_000_000_000 + i128::from(to.nanos - from.nanos);
    Duration::from_nanos(u64::try_from(nanos).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_ended_while_the_database_was_away_ended_then_and_not_when_it_was_back() {
    let Some(database) = Database::create().await else {
        return;
    };
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Fine.").slow_head(Duration::from_secs(1)));
    let server = Relight::start(&settings_on(&upstream, &database.url(), "fast")).await;
    let invocation = Invocation {
        request_id: "order-17".to_owned(),
        ..asking("How are you?")
    };
    let closing = async {
        upstream.await_request(1).await;
        database.close().await;
    };
    let (answered, ()) = tokio::join!(server.invoke(invocation), closing);
    let away = Duration::from_secs(8);
    tokio::time::sleep(away).await;
    database.open().await;
    let ended = async {
        loop {
            let invocation = Some(get_invocation_request::Invocation::InvocationId(
                answered.invocation_id.clone(),
            ));
            let found = server
                .recovery()
                .get_invocation(GetInvocationRequest { invocation })
                .await;
            let record = found.ok().and_then(|found| found.into_inner().invocation);
            if let Some(record) = record.filter(|record| record.finished_at.is_some()) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let record = tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .expect("the end is recorded");
    let (took, attempt) = (
        took(&record),
        Duration::from_millis(record.attempts[0].duration_ms),
    );
    assert!(
        attempt <= took + Duration::from_millis(5) && took < attempt + away / 2,
        "{took:?}: {record:#?}"
    );
}
