//! One request id, one execution.

use relight::internals::{
    domain::{ids::TenantId, invocation::Outcome},
    journal::Fingerprint,
    journal::Payloads,
};

use super::*;

async fn of_50_concurrent_begins_with_one_request_id_exactly_one_is_new(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    let begins = (0..50).map(|number| {
        let journal = Arc::clone(&journal);
        async move {
            journal
                .begin(requested(&format!("invocation {number}"), "key"), at(0))
                .await
                .unwrap()
        }
    });
    let begun = futures_util::future::join_all(begins).await;
    let new = begun
        .iter()
        .filter(|begun| matches!(begun, BeginResult::New { epoch: 1 }))
        .count();
    let winner = journal
        .get_by_request(&"acme".into(), &"key".into())
        .await
        .unwrap()
        .unwrap();
    let attached = begun
        .iter()
        .filter(|begun| matches!(begun, BeginResult::Attached(record) if record.id == winner.id))
        .count();
    assert_eq!((new, attached), (1, 49));
}

async fn a_running_request_is_attached_to_with_everything_that_is_known_of_it(engine: Engine) {
    let journal = engine.open().await;
    let new = requested("first", "key");
    begin(&journal, new.clone()).await;
    journal
        .append(&id("first"), &deltas(1, 1..=3))
        .await
        .unwrap();
    let Ok(BeginResult::Attached(record)) = journal.begin(requested("second", "key"), at(5)).await
    else {
        panic!("attached");
    };
    assert_eq!(
        (record.id.clone(), record.last_seq, record.epoch),
        (id("first"), 3, 1)
    );
    assert_eq!(
        (record.labels.clone(), record.request.clone()),
        (new.labels, Some(new.request))
    );
    assert_eq!((record.created_at, record.deadline_at), (at(0), at(60)));
    assert!(!record.is_orphaned(at(9)) && record.is_orphaned(at(10)));
}

async fn a_finished_request_is_replayed(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("first", "key")).await;
    let (steps, _) = answer("first", 1, "hello");
    journal
        .finish(end("first", 1, "hello", steps), at(1))
        .await
        .unwrap();
    let again = journal
        .begin(requested("second", "key"), at(2))
        .await
        .unwrap();
    assert_eq!(
        again,
        BeginResult::Replay(Arc::new(outcome("first", Ok("hello"))))
    );
}

async fn a_failed_request_is_replayed_too(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("first", "key")).await;
    journal
        .finish(failed_end("first", None), at(1))
        .await
        .unwrap();
    let again = journal
        .begin(requested("second", "key"), at(2))
        .await
        .unwrap();
    let BeginResult::Replay(replayed) = again else {
        panic!("replayed, not {again:?}")
    };
    let Outcome { result, .. } = Arc::unwrap_or_clone(replayed);
    assert_eq!(result.unwrap_err().class, FailureClass::ServerError);
}

async fn another_request_with_the_same_request_id_is_a_conflict(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("first", "key")).await;
    let other = NewInvocation {
        fingerprint: Fingerprint::new("other"),
        ..requested("second", "key")
    };
    let conflict = BeginResult::Conflict {
        invocation: id("first"),
    };
    assert_eq!(
        journal.begin(other.clone(), at(1)).await,
        Ok(conflict.clone())
    );
    journal
        .finish(end("first", 1, "hello", Vec::new()), at(2))
        .await
        .unwrap();
    assert_eq!(journal.begin(other, at(3)).await, Ok(conflict));
}

async fn request_ids_of_different_tenants_never_meet(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("first", "key")).await;
    begin(
        &journal,
        NewInvocation {
            tenant: TenantId::from("other"),
            ..requested("second", "key")
        },
    )
    .await;
    let found = journal
        .get_by_request(&"other".into(), &"key".into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.id, id("second"));
}

async fn without_a_request_id_nothing_is_deduplicated(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("first")).await;
    begin(&journal, invocation("second")).await;
    assert_eq!(journal.stats().await.unwrap().invocations, 2);
}

async fn a_request_id_is_forgotten_24_hours_after_its_end(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, requested("first", "key")).await;
    journal
        .finish(end("first", 1, "hello", Vec::new()), at(10))
        .await
        .unwrap();
    journal.compact(at(10 + 24 * 3600 - 1)).await.unwrap();
    assert!(matches!(
        journal.begin(requested("second", "key"), at(0)).await,
        Ok(BeginResult::Replay(_))
    ));
    journal.compact(at(10 + 24 * 3600)).await.unwrap();
    assert_eq!(
        journal.begin(requested("third", "key"), at(0)).await,
        Ok(BeginResult::New { epoch: 1 })
    );
}

async fn without_payloads_no_content_is_kept_and_a_finished_request_is_spent(engine: Engine) {
    let journal = engine
        .open_with(Limits {
            payloads: Payloads::None,
            ..Limits::default()
        })
        .await;
    begin(&journal, requested("first", "key")).await;
    journal
        .append(&id("first"), &deltas(1, 1..=3))
        .await
        .unwrap();
    assert!(matches!(
        journal.begin(requested("second", "key"), at(1)).await,
        Ok(BeginResult::Attached(_))
    ));
    journal
        .finish(end("first", 1, "hello", vec![delta(1, 4)]), at(2))
        .await
        .unwrap();
    let record = journal.get(&id("first")).await.unwrap().unwrap();
    assert_eq!(
        (
            record.request,
            record.outcome,
            record.snapshot,
            record.last_seq
        ),
        (None, None, None, 4)
    );
    let page = journal.read(&id("first"), 0, 10).await.unwrap().unwrap();
    assert!(page.entries.is_empty() && page.gone && page.finished);
    let again = journal.begin(requested("third", "key"), at(3)).await;
    assert_eq!(
        again,
        Ok(BeginResult::ResultNotRetained {
            invocation: id("first")
        })
    );
}

on_every_engine!(
    of_50_concurrent_begins_with_one_request_id_exactly_one_is_new,
    a_running_request_is_attached_to_with_everything_that_is_known_of_it,
    a_finished_request_is_replayed,
    a_failed_request_is_replayed_too,
    another_request_with_the_same_request_id_is_a_conflict,
    request_ids_of_different_tenants_never_meet,
    without_a_request_id_nothing_is_deduplicated,
    a_request_id_is_forgotten_24_hours_after_its_end,
    without_payloads_no_content_is_kept_and_a_finished_request_is_spent,
);
