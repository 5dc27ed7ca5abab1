//! What is kept, for how long, and how much of it.

use relight::internals::journal::{Compacted, Stats};

use super::*;

/// 15 minutes, in seconds.
const EVENTS: u64 = 15 * 60;
/// 24 hours, in seconds.
const OUTCOMES: u64 = 24 * 3600;

async fn events_go_15_minutes_after_the_end_and_the_snapshot_stays(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let (steps, fold) = answer("a", 1, "hello");
    let finish = Finish {
        snapshot: fold.blocks().to_vec(),
        ..end("a", 1, "hello", steps)
    };
    journal.finish(finish, at(5)).await.unwrap();
    assert_eq!(
        journal.compact(at(5 + EVENTS - 1)).await,
        Ok(Compacted::default())
    );
    assert_eq!(seqs(&journal, "a").await, [1, 2, 3, 4]);
    assert_eq!(
        journal.compact(at(5 + EVENTS)).await,
        Ok(Compacted {
            stripped: 1,
            deleted: 0,
            threads: 0
        })
    );
    let page = journal.read(&id("a"), 0, 10).await.unwrap().unwrap();
    assert!(page.entries.is_empty() && page.gone && page.finished);
    let at_the_end = journal.read(&id("a"), 4, 10).await.unwrap().unwrap();
    assert!(!at_the_end.gone, "who has everything misses nothing");
    let record = journal.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        (record.last_seq, record.snapshot.as_deref()),
        (4, Some(fold.blocks()))
    );
    assert_eq!(journal.stats().await.unwrap().event_bytes, 0);
}

async fn outcomes_go_24_hours_after_the_end(engine: Engine) {
    let journal = engine.open().await;
    for number in 0..250 {
        let name = format!("{number}");
        begin(&journal, invocation(&name)).await;
        journal
            .finish(end(&name, 1, "hello", vec![delta(1, 1)]), at(number))
            .await
            .unwrap();
    }
    assert_eq!(
        journal.compact(at(119 + OUTCOMES)).await,
        Ok(Compacted {
            stripped: 130,
            deleted: 120,
            threads: 0
        })
    );
    assert_eq!(journal.get(&id("119")).await, Ok(None));
    assert!(journal.get(&id("120")).await.unwrap().is_some());
    assert_eq!(
        journal.compact(at(249 + OUTCOMES)).await,
        Ok(Compacted {
            stripped: 0,
            deleted: 130,
            threads: 0
        })
    );
    assert_eq!(journal.stats().await, Ok(Stats::default()));
}

async fn what_runs_is_kept_however_long_it_takes(engine: Engine) {
    let journal = engine.open().await;
    begin(
        &journal,
        NewInvocation {
            deadline_at: at(10 * OUTCOMES),
            ..invocation("a")
        },
    )
    .await;
    journal.append(&id("a"), &deltas(1, 1..=3)).await.unwrap();
    assert_eq!(
        journal.compact(at(5 * OUTCOMES)).await,
        Ok(Compacted::default())
    );
    assert_eq!(seqs(&journal, "a").await, [1, 2, 3]);
}

async fn an_abandoned_invocation_goes_24_hours_after_its_deadline(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("a", "key")).await;
    assert_eq!(
        journal.compact(at(59 + OUTCOMES)).await,
        Ok(Compacted::default())
    );
    assert_eq!(
        journal.compact(at(60 + OUTCOMES)).await,
        Ok(Compacted {
            stripped: 0,
            deleted: 1,
            threads: 0
        })
    );
    assert_eq!(
        journal.get_by_request(&"acme".into(), &"key".into()).await,
        Ok(None)
    );
}

async fn beyond_the_configured_number_the_oldest_finished_go_first(engine: Engine) {
    let journal = engine
        .open_with(Limits {
            max_invocations: 4,
            ..Limits::default()
        })
        .await;
    for (number, name) in ["running", "b", "c", "d"].into_iter().enumerate() {
        begin(&journal, invocation(name)).await;
        if name != "running" {
            journal
                .finish(end(name, 1, "hello", Vec::new()), at(number as u64))
                .await
                .unwrap();
        }
    }
    begin(&journal, invocation("e")).await;
    begin(&journal, invocation("f")).await;
    journal.compact(at(10)).await.unwrap();
    let mut kept = Vec::new();
    for name in ["running", "b", "c", "d", "e", "f"] {
        if journal.get(&id(name)).await.unwrap().is_some() {
            kept.push(name);
        }
    }
    assert_eq!(kept, ["running", "d", "e", "f"]);
}

async fn the_statistics_count_what_is_kept(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    begin(&journal, invocation("b")).await;
    journal.lock_thread(&key, &id("a"), at(1)).await.unwrap();
    journal.append(&id("a"), &deltas(1, 1..=3)).await.unwrap();
    journal
        .finish(end("b", 1, "hello", Vec::new()), at(2))
        .await
        .unwrap();
    let bytes: usize = deltas(1, 1..=3)
        .iter()
        .map(|entry| serde_json::to_string(&entry.step).unwrap().len())
        .sum();
    let stats = journal.stats().await.unwrap();
    assert!(
        stats.bytes > bytes as u64,
        "what was asked and what came of it counts, too: {stats:?}"
    );
    let expected = Stats {
        invocations: 2,
        running: 1,
        events: 3,
        event_bytes: bytes as u64,
        bytes: stats.bytes,
        threads: 1,
    };
    assert_eq!(stats, expected);
}

on_every_engine!(
    events_go_15_minutes_after_the_end_and_the_snapshot_stays,
    outcomes_go_24_hours_after_the_end,
    what_runs_is_kept_however_long_it_takes,
    an_abandoned_invocation_goes_24_hours_after_its_deadline,
    beyond_the_configured_number_the_oldest_finished_go_first,
    the_statistics_count_what_is_kept,
);
