//! Executions of tools: recorded with the end of their invocation, found by what they are of, gone
//! with it.

use std::{sync::Arc, time::Duration};

use relight::internals::{
    domain::{
        failure::{Failure, FailureClass},
        invocation::{AttemptCause, AttemptRecord, Outcome},
        tool::ExecutedTool,
    },
    journal::{ExecutionListing, ExecutionState, Finish, Journal, goal_key},
};

use super::{Engine, at, begin, id, invocation, on_every_engine, on_thread, outcome, thread};

on_every_engine!(
    executions_are_listed_newest_first_and_by_what_they_are_of,
    executions_for_a_goal_are_found_on_their_thread_alone,
    what_is_kept_under_a_name_is_exchanged_only_where_it_is_still_what_was_read,
);

fn record(number: u32, target: &str, class: Option<FailureClass>, goal: &str) -> AttemptRecord {
    AttemptRecord {
        duration: Duration::from_millis(7),
        sent: true,
        failure: class.map(|class| Failure {
            at: at(1),
            ..Failure::local(class, "it failed")
        }),
        winner: class.is_none(),
        tool: Some(Box::new(ExecutedTool {
            arguments: r#"{"id":7}"#.to_owned(),
            goal: goal.to_owned(),
            release: "r1".to_owned(),
        })),
        ..AttemptRecord::begun(
            number,
            AttemptCause::Initial,
            target.into(),
            String::new(),
            at(u64::from(number)),
        )
    }
}

async fn end(journal: &Arc<dyn Journal>, name: &str, attempts: Vec<AttemptRecord>) {
    let outcome = Outcome {
        attempts,
        ..outcome(name, Ok("done"))
    };
    let finish = Finish {
        id: id(name),
        epoch: 1,
        entries: Vec::new(),
        outcome: outcome.into(),
        snapshot: Vec::new(),
        thread: None,
        ended_before: Duration::ZERO,
    };
    journal.finish(finish, at(9)).await.unwrap();
}

async fn listed(journal: &Arc<dyn Journal>, wanted: ExecutionListing) -> Vec<(String, u32)> {
    let found = journal.executions(&wanted, 100).await.unwrap();
    found
        .into_iter()
        .map(|one| (one.invocation.to_string(), one.attempt))
        .collect()
}

async fn executions_are_listed_newest_first_and_by_what_they_are_of(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("i-1")).await;
    begin(&journal, invocation("i-2")).await;
    assert_eq!(
        listed(&journal, ExecutionListing::default()).await,
        [],
        "an invocation that runs has none yet"
    );
    let failed = record(1, "s/a", Some(FailureClass::OutcomeUnknown), "");
    end(&journal, "i-1", vec![failed]).await;
    end(
        &journal,
        "i-2",
        vec![
            record(1, "s/a", Some(FailureClass::Timeout), ""),
            record(2, "s/b", None, ""),
        ],
    )
    .await;
    let all = [
        ("i-2".to_owned(), 2),
        ("i-2".to_owned(), 1),
        ("i-1".to_owned(), 1),
    ];
    assert_eq!(listed(&journal, ExecutionListing::default()).await, all);
    let before = Some(("i-2".into(), 2));
    assert_eq!(
        listed(
            &journal,
            ExecutionListing {
                before,
                ..ExecutionListing::default()
            }
        )
        .await,
        all[1..]
    );
    let of_tool = ExecutionListing {
        target: Some("s/b".into()),
        ..ExecutionListing::default()
    };
    assert_eq!(listed(&journal, of_tool).await, all[..1]);
    let unknown = ExecutionListing {
        state: Some(ExecutionState::Unknown),
        ..ExecutionListing::default()
    };
    let found = journal.executions(&unknown, 100).await.unwrap();
    let [one] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (one.class, one.duration),
        (Some(FailureClass::OutcomeUnknown), Duration::from_millis(7))
    );
    assert_eq!(
        (one.cause.as_str(), one.release.as_str()),
        ("initial", "r1")
    );
    let detail = one.detail.as_ref().unwrap();
    assert_eq!(
        (detail.arguments.as_str(), detail.error.as_str()),
        (r#"{"id":7}"#, "it failed")
    );
    let other = ExecutionListing {
        tenant: Some("other".into()),
        ..ExecutionListing::default()
    };
    assert_eq!(listed(&journal, other).await, []);
}

async fn executions_for_a_goal_are_found_on_their_thread_alone(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, invocation("i-1")).await;
    begin(&journal, on_thread("i-2", &key)).await;
    journal.lock_thread(&key, &id("i-2"), at(0)).await.unwrap();
    for name in ["i-1", "i-2"] {
        end(&journal, name, vec![record(1, "s/a", None, "My  goal")]).await;
    }
    for (on, expected) in [(None, "i-1"), (Some(&key.id), "i-2")] {
        let wanted = ExecutionListing {
            goal_key: Some(goal_key(&"acme".into(), on, "my goal")),
            ..ExecutionListing::default()
        };
        assert_eq!(listed(&journal, wanted).await, [(expected.to_owned(), 1)]);
    }
}

async fn what_is_kept_under_a_name_is_exchanged_only_where_it_is_still_what_was_read(
    engine: Engine,
) {
    let journal = engine.open().await;
    if !journal.keeps_properties() {
        return;
    }
    assert_eq!(
        journal.property("learnt", "a".to_owned()).await.unwrap(),
        "a"
    );
    assert!(
        journal
            .swap_property("learnt", "a", "b".to_owned())
            .await
            .unwrap()
    );
    assert!(
        !journal
            .swap_property("learnt", "a", "c".to_owned())
            .await
            .unwrap(),
        "another replica was faster"
    );
    assert_eq!(
        journal.property("learnt", String::new()).await.unwrap(),
        "b"
    );
}
