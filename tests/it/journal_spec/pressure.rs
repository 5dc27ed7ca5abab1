//! Everything that is kept counts, threads end, files shrink, and on a server its clock decides.

use relight::internals::{
    domain::clock,
    journal::{Held, JournalError, Notices, Takeover, ThreadCommit, postgres::open_shared},
};

use super::*;

/// 30 days, in seconds.
const THREADS: u64 = 30 * 24 * 3600;

fn large(name: &str, bytes: usize) -> NewInvocation {
    let call = ModelCall {
        messages: vec![said(Role::User, &"p".repeat(bytes))],
        ..ModelCall::default()
    };
    NewInvocation {
        request: RecordedRequest {
            call: Some(Call::Model(std::sync::Arc::new(call))),
            ..RecordedRequest::default()
        },
        ..invocation(name)
    }
}

async fn committed(journal: &Arc<dyn Journal>, name: &str, bytes: usize, when: u64) {
    let key = thread(name);
    begin(
        journal,
        NewInvocation {
            thread: Some(key.id.clone()),
            ..invocation(name)
        },
    )
    .await;
    journal
        .lock_thread(&key, &id(name), at(when))
        .await
        .unwrap();
    let commit = ThreadCommit {
        expected_version: 1,
        turn: vec![said(Role::User, &"t".repeat(bytes))],
        patch: HistoryPatch::default(),
    };
    let finish = Finish {
        thread: Some(ThreadEnd::Commit(commit)),
        ..end(name, 1, "hello", Vec::new())
    };
    journal.finish(finish, at(when)).await.unwrap();
}

async fn prompts_answers_and_threads_count_and_the_bound_holds(engine: Engine) {
    let bound = 1 << 20;
    let journal = engine
        .open_with(Limits {
            total_bytes: bound,
            ..Limits::default()
        })
        .await;
    for number in 0..250_u64 {
        let name = format!("prompt {number}");
        begin(&journal, large(&name, 20_000)).await;
        journal
            .finish(end(&name, 1, &"a".repeat(20_000), Vec::new()), at(number))
            .await
            .unwrap();
    }
    journal.compact(at(250)).await.unwrap();
    let stats = journal.stats().await.unwrap();
    // In memory a prompt is dropped with its end, and in a database it counts until it is deleted:
    // 60 kB at most.
    assert!(
        stats.bytes <= bound && stats.bytes > bound - 60_000,
        "{stats:?}"
    );
}

async fn an_unused_thread_is_deleted_after_30_days(engine: Engine) {
    let journal = engine.open().await;
    committed(&journal, "old", 100, 0).await;
    committed(&journal, "used", 100, 60).await;
    journal.compact(at(THREADS - 1)).await.unwrap();
    assert!(journal.load_thread(&thread("old")).await.unwrap().is_some());
    assert_eq!(journal.compact(at(THREADS)).await.unwrap().threads, 1);
    assert!(journal.load_thread(&thread("old")).await.unwrap().is_none());
    assert!(
        journal
            .load_thread(&thread("used"))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn memory_forgets_a_prompt_with_its_end_and_refuses_what_does_not_fit() {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(Limits {
        total_bytes: 1 << 20,
        ..Limits::default()
    }));
    begin(&journal, large("a", 500_000)).await;
    let running = journal.stats().await.unwrap().bytes;
    assert!(running > 500_000, "{running}");
    let refused = journal.begin(large("b", 900_000), at(1)).await;
    assert!(matches!(refused, Err(JournalError::Full(_))), "{refused:?}");
    journal
        .finish(end("a", 1, "hello", Vec::new()), at(1))
        .await
        .unwrap();
    assert!(journal.stats().await.unwrap().bytes < 10_000);
    begin(&journal, large("b", 900_000)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_shrinks_with_what_it_holds_and_threads_give_way_last() {
    let engine = Engine::sqlite();
    let Engine::Sqlite(directory) = &engine else {
        unreachable!("it is a file")
    };
    let size = || {
        std::fs::metadata(directory.path().join("a journal's #1 50% file.db"))
            .unwrap()
            .len()
    };
    let journal = engine
        .open_with(Limits {
            total_bytes: 1 << 20,
            ..Limits::default()
        })
        .await;
    for number in 0..60_u64 {
        committed(&journal, &format!("thread {number}"), 100_000, number).await;
    }
    journal.compact(at(100)).await.unwrap();
    let stats = journal.stats().await.unwrap();
    assert!(
        stats.bytes <= 1 << 20 && stats.threads > 0 && stats.invocations == 0,
        "{stats:?}"
    );
    assert!(
        journal
            .load_thread(&thread("thread 59"))
            .await
            .unwrap()
            .is_some(),
        "the newest stay"
    );
    assert!(size() < 3 << 20, "{} bytes", size());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_whose_clocks_differ_by_an_hour_respect_each_other_s_leases() {
    on_postgres(|database| async move {
        let journal: Arc<dyn Journal> = Arc::new(
            open_shared(&database.url(), Limits::default(), Notices::default())
                .await
                .unwrap(),
        );
        let hour = Duration::from_hours(1);
        let now = clock::wall_now();
        let new = NewInvocation {
            deadline_at: now - hour + Duration::from_mins(1),
            ..invocation("a")
        };
        // The one who begins it is an hour behind, the others are an hour ahead.
        assert_eq!(
            journal.begin(new, now - hour).await,
            Ok(BeginResult::New { epoch: 1 })
        );
        let held = Held {
            id: id("a"),
            epoch: 1,
        };
        assert_eq!(journal.expired(now + hour, 10).await.unwrap(), []);
        let record = journal.get(&id("a")).await.unwrap().unwrap();
        assert!(!record.is_orphaned(clock::wall_now()), "{:?}", record.state);
        let left = record
            .deadline_at
            .duration_since(clock::wall_now())
            .as_secs();
        assert!((50..=60).contains(&left), "{left} s of 60 are left");
        assert_eq!(
            journal
                .renew(&owner("one"), std::slice::from_ref(&held), now - hour)
                .await
                .unwrap()
                .lost,
            []
        );
        assert_eq!(journal.expired(now + hour, 10).await.unwrap(), []);
        let taken = journal
            .take_over(&held, &owner("two"), clock::wall_now())
            .await
            .unwrap();
        assert!(matches!(taken, Takeover::Alive { .. }), "{taken:?}");
    })
    .await;
}

async fn a_death_of_the_owner_is_counted_and_a_release_is_not(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal
        .release(
            &owner("one"),
            &[Held {
                id: id("a"),
                epoch: 1,
            }],
        )
        .await
        .unwrap();
    for (epoch, when, counted) in [(1, 1, 0), (2, 20, 1), (3, 40, 2)] {
        let held = Held { id: id("a"), epoch };
        let taken = journal
            .take_over(&held, &owner(&format!("owner {epoch}")), at(when))
            .await
            .unwrap();
        let Takeover::Taken(record) = taken else {
            panic!("{taken:?}")
        };
        assert_eq!(record.takeovers, counted);
    }
    assert_eq!(journal.get(&id("a")).await.unwrap().unwrap().takeovers, 2);
}

on_every_engine!(
    prompts_answers_and_threads_count_and_the_bound_holds,
    an_unused_thread_is_deleted_after_30_days,
    a_death_of_the_owner_is_counted_and_a_release_is_not,
);
