//! The bounds of a database, and the background task that holds it to them.

use relight::internals::{
    config::{GivenEnvironment, load_text},
    engine::{Arrival, Engine as Running, InvocationRequest},
    events::EventBus,
    execution::{Executions, Settings},
    layers::spans::{EntryPoint, Spans},
};

use super::*;

async fn beyond_the_bytes_the_oldest_finished_give_up_their_steps_and_stay_answered(
    engine: Engine,
) {
    let journal = engine
        .open_with(Limits {
            total_bytes: 200_000,
            ..Limits::default()
        })
        .await;
    for number in 0..100 {
        let name = format!("{number}");
        begin(&journal, invocation(&name)).await;
        let (steps, _) = answer(&name, 1, &"x".repeat(2000));
        journal
            .finish(end(&name, 1, "hello", steps), at(number))
            .await
            .unwrap();
    }
    begin(&journal, invocation("running")).await;
    journal
        .append(&id("running"), &deltas(1, 1..=3))
        .await
        .unwrap();
    assert!(journal.stats().await.unwrap().event_bytes > 100_000);
    let done = journal.compact(at(100)).await.unwrap();
    assert!(done.stripped > 0 && done.deleted == 0, "{done:?}");
    let stats = journal.stats().await.unwrap();
    assert!(
        stats.bytes <= 200_000 && stats.invocations == 101,
        "{stats:?}"
    );
    assert!(
        seqs(&journal, "0").await.is_empty(),
        "the oldest went first"
    );
    assert_eq!(seqs(&journal, "running").await, [1, 2, 3]);
    assert!(
        journal
            .get(&id("0"))
            .await
            .unwrap()
            .unwrap()
            .outcome
            .is_some()
    );
}

/// An engine whose model answers at once.
fn answering() -> Running {
    let yaml = "providers: { model: { dialect: scripted, script: { otherwise: { answer: { text: Fine. } } } } }\n\
                targets: { main: { provider: model, model: m-1 } }\nroutes: { default: { targets: [main] } }\n";
    let loaded = load_text(yaml, None, &GivenEnvironment::new()).unwrap();
    Running::new(loaded.config, Spans::disabled(), EventBus::new(64)).unwrap()
}

async fn a_background_task_applies_the_retention_and_counts_what_it_removed(engine: Engine) {
    let zero = Duration::ZERO;
    let limits = Limits {
        events_kept: zero,
        outcomes_kept: Duration::from_millis(1500),
        ..Limits::default()
    };
    let settings = Settings {
        compact_every: Duration::from_millis(50),
        ..Settings::new(owner("replica"))
    };
    let running = answering();
    let executions = Executions::new(running.clone(), engine.open_with(limits).await, settings);
    let mut keeping = tokio::task::JoinSet::new();
    keeping.spawn(executions.clone().keep());
    for _ in 0..5 {
        let call = ModelCall {
            messages: vec![said(Role::User, "Hello?")],
            ..ModelCall::default()
        };
        let request = InvocationRequest::new(
            Arrival::new("acme".into(), EntryPoint::Grpc("test")),
            Call::Model(std::sync::Arc::new(call)),
        );
        let mut started = executions
            .start(running.resolve(request).unwrap())
            .await
            .unwrap();
        assert!(started.follower.outcome().await.unwrap().result.is_ok());
    }
    let gone = async {
        loop {
            let levels = executions.levels();
            if levels.removed.deleted == 5 && levels.kept.invocations == 0 {
                return levels;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let levels = tokio::time::timeout(Duration::from_secs(30), gone)
        .await
        .expect("all of them go");
    assert_eq!(
        (
            levels.removed.stripped,
            levels.kept.events,
            levels.kept.event_bytes
        ),
        (5, 0, 0),
        "steps go first"
    );
}

async fn an_outcome_is_stored_once_in_a_file_and_read_in_the_last_step_too(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let outcome = Arc::new(outcome("a", Ok("hello")));
    let last = step(1, 2, StreamStep::Terminal(Arc::clone(&outcome)));
    let finish = Finish {
        outcome,
        ..end("a", 1, "hello", vec![delta(1, 1), last.clone()])
    };
    journal.finish(finish, at(5)).await.unwrap();
    let page = journal.read(&id("a"), 1, 10).await.unwrap().unwrap();
    assert_eq!(page.entries, [last]);
    let mut raw = engine.raw().await;
    let sql = "SELECT step FROM events WHERE invocation_id = 'a' AND seq = 2";
    let stored: String = sqlx::query_scalar(sql).fetch_one(&mut raw).await.unwrap();
    // A server may have readers of an earlier version.
    let is_file = matches!(engine, Engine::Sqlite(_));
    assert_eq!(stored == "\"outcome\"", is_file, "{stored}");
}

on_durable_engines!(
    an_outcome_is_stored_once_in_a_file_and_read_in_the_last_step_too,
    beyond_the_bytes_the_oldest_finished_give_up_their_steps_and_stay_answered,
    a_background_task_applies_the_retention_and_counts_what_it_removed,
);
