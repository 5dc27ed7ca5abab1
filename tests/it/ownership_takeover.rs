//! A crash of Relight costs its callers nothing: no attempt, no other model, no wait for a lease
//! that only the dead had.

use std::{path::Path, time::Duration};

use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, RewindMode, invoke_with_recovery_response::Outcome,
};
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    folding::{Folding, start},
    process::Process,
    relight::{asking, resumable, streaming},
    targets::two_targets,
    upstream::{Reply, Upstream},
};

/// Two targets, the second of which is not to be needed, on a file.
async fn configured(folder: &Path) -> (String, Upstream, Upstream) {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let store = format!("sqlite:{}", folder.join("journal.db").display());
    let yaml = format!(
        "{}journal: {{ store: {store:?} }}\n",
        two_targets(&first, &second)
    );
    (
        yaml.replace("400ms", "5s")
            .replace("300ms", "0ms")
            .replace("deadline: 20s", "deadline: 2m"),
        first,
        second,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_on_its_own_file_continues_at_once_with_the_same_model_however_often() {
    let folder = tempfile::tempdir().unwrap();
    let (config, first, second) = configured(folder.path()).await;
    let text = "One process after the other dies, and the answer is whole all the same.";
    first.otherwise(
        Reply::text(text)
            .in_pieces_of(120)
            .paced(Duration::from_millis(60)),
    );
    let mut process = Process::start(&config).await;
    let mut folding = Folding::default();
    let mut stream = start(
        process.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    for crash in 1..=6 {
        folding.follow(&mut stream, 5).await;
        process.kill().await;
        process = Process::start(&config).await;
        let began = Instant::now();
        let resumed = timeout(Duration::from_secs(5), async {
            loop {
                if let Ok(stream) = process
                    .recovery()
                    .stream_with_recovery(folding.resume())
                    .await
                {
                    return stream.into_inner();
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        stream = resumed.await.expect("it is resumed");
        first.await_request(crash + 1).await;
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?} until it was sent again",
            began.elapsed()
        );
    }
    folding.follow(&mut stream, usize::MAX).await;
    folding.insist(&process.recovery()).await;
    assert!(folding.is_completed(), "{:?}", folding.terminal);
    assert_eq!(folding.text(), text);
    assert_eq!(
        second.requests().len(),
        0,
        "no other model is asked because of a crash"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_crash_is_logged_as_going_on_and_not_as_a_retry_of_number_0() {
    let folder = tempfile::tempdir().unwrap();
    let (config, first, _second) = configured(folder.path()).await;
    first.otherwise(
        Reply::text("One process dies.")
            .in_pieces_of(17)
            .paced(Duration::from_millis(60)),
    );
    let mut process = Process::start(&config).await;
    let mut folding = Folding::default();
    let mut stream = start(
        process.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    folding.follow(&mut stream, 5).await;
    process.kill().await;
    let process = Process::start(&config).await;
    timeout(Duration::from_secs(30), folding.insist(&process.recovery()))
        .await
        .expect("it is taken over");
    let recovery = |log: &[serde_json::Value]| {
        log.iter()
            .find(|line| line["event"] == "recovery_attempted")
            .cloned()
    };
    let line = recovery(&process.log_until(|log| recovery(log).is_some()).await).unwrap();
    let message = line["message"].as_str().unwrap();
    assert!(message.starts_with("Going on with executor: "), "{line}");
    assert!(message.ends_with("; the request is sent again"), "{line}");
    assert_eq!(
        (line["detail"]["retry"].as_u64(), line["remaining"].as_u64()),
        (Some(0), Some(2)),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_process_dies_nine_times_fails_with_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (config, first, second) = configured(folder.path()).await;
    first.otherwise(Reply::text("Never.").slow_head(Duration::from_mins(1)));
    let mut process = Process::start(&config).await;
    let mut folding = Folding::default();
    let mut stream = start(
        process.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await
    .unwrap();
    folding.follow(&mut stream, 1).await;
    for death in 1..=9 {
        first.await_request(death).await;
        // Its attempt is recorded a moment after it began.
        sleep(Duration::from_millis(300)).await;
        process.kill().await;
        process = Process::start(&config).await;
    }
    timeout(Duration::from_secs(30), folding.insist(&process.recovery()))
        .await
        .expect("it ends");
    let terminal = format!("{:?}", folding.terminal);
    assert!(
        terminal.contains("died 9 times") && terminal.contains("read their last log lines"),
        "{terminal}"
    );
    let attempts = &folding.terminal.as_ref().unwrap().attempts;
    assert!(
        (1..=9).contains(&attempts.len()) && attempts.iter().all(|attempt| attempt.sent),
        "what was done for it is told: {attempts:?}"
    );
    assert_eq!(
        (first.requests().len(), second.requests().len()),
        (9, 0),
        "it is not run again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_takes_the_next_message_right_after_a_crash_and_the_lost_call_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (config, first, second) = configured(folder.path()).await;
    first.otherwise(Reply::text("Fine.").slow_head(Duration::from_mins(1)));
    let mut process = Process::start(&config).await;
    let on_thread = |text: &str| Invocation {
        thread_id: "t-1".to_owned(),
        ..asking(text)
    };
    let mut client = process.recovery();
    let waiting = Some(Invocation {
        request_id: "r-1".to_owned(),
        ..on_thread("First?")
    });
    let mut dying = tokio::task::JoinSet::new();
    dying.spawn(async move {
        client
            .invoke_with_recovery(InvokeWithRecoveryRequest {
                invocation: waiting,
            })
            .await
    });
    first.await_request(1).await;
    process.kill().await;
    assert!(
        dying.join_next().await.unwrap().unwrap().is_err(),
        "its caller lost it"
    );
    let process = Process::start(&config).await;
    first.otherwise(Reply::text("Fine."));
    let invocation = Some(on_thread("Second?"));
    let mut client = process.recovery();
    let response = client.invoke_with_recovery(InvokeWithRecoveryRequest { invocation });
    let response = timeout(Duration::from_secs(4), response)
        .await
        .expect("at once")
        .unwrap()
        .into_inner();
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    sleep(Duration::from_secs(4)).await;
    assert_eq!(
        (first.requests().len(), second.requests().len()),
        (2, 0),
        "the first call is not made again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resume_token_is_good_as_long_as_its_key_is_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (config, first, _second) = configured(folder.path()).await;
    first.otherwise(Reply::text("Fine."));
    let mut process = Process::start(&config).await;
    let (folding, _) = Folding::all(
        process.recovery(),
        resumable(streaming("Hello", RewindMode::Rewind)),
    )
    .await;
    let resumes = async |process: &Process| {
        let resume = Folding {
            token: folding.token.clone(),
            ..Folding::default()
        }
        .resume();
        timeout(
            Duration::from_secs(10),
            process.recovery().stream_with_recovery(resume),
        )
        .await
        .unwrap()
    };
    assert!(resumes(&process).await.is_ok());
    process.kill().await;
    let mut process = Process::start(&config).await;
    assert!(resumes(&process).await.is_ok(), "after a restart, too");
    process.kill().await;
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("journal.db"));
    let mut file = SqliteConnection::connect_with(&options).await.unwrap();
    file.execute("DELETE FROM properties WHERE name = 'resume_token_key'")
        .await
        .unwrap();
    drop(file);
    let process = Process::start(&config).await;
    assert!(
        resumes(&process).await.is_err(),
        "the key is gone, and the path of the file is none"
    );
}
