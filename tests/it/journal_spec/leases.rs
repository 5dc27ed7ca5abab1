//! One owner at a time, and none that was taken for dead writes again.

use relight::internals::journal::{AppendError, CancelWish, FinishError, Held, Renewed, Takeover};

use super::*;

fn held(name: &str, epoch: u64) -> Held {
    Held {
        id: id(name),
        epoch,
    }
}

async fn a_lease_is_good_for_10_seconds_and_a_renewal_for_10_more(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    assert_eq!(journal.expired(at(9), 10).await.unwrap(), []);
    assert_eq!(journal.expired(at(10), 10).await.unwrap(), [held("a", 1)]);
    assert_eq!(
        journal.renew(&owner("one"), &[held("a", 1)], at(3)).await,
        Ok(Renewed::default())
    );
    assert_eq!(journal.expired(at(12), 10).await.unwrap(), []);
    assert_eq!(journal.expired(at(13), 10).await.unwrap(), [held("a", 1)]);
}

async fn the_execution_of_a_living_owner_is_not_taken_over(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let takeover = journal.take_over(&held("a", 1), &owner("two"), at(9)).await;
    assert_eq!(takeover, Ok(Takeover::Alive { until: at(10) }));
    assert_eq!(
        journal
            .take_over(&held("none", 1), &owner("two"), at(9))
            .await,
        Ok(Takeover::Unknown)
    );
}

async fn of_concurrent_takeovers_exactly_one_wins(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    for round in 0..10 {
        let name = format!("invocation {round}");
        begin(&journal, invocation(&name)).await;
        let takeovers = (0..16).map(|number| {
            let (journal, held) = (Arc::clone(&journal), held(&name, 1));
            async move {
                journal
                    .take_over(&held, &owner(&format!("owner {number}")), at(20))
                    .await
                    .unwrap()
            }
        });
        let takeovers = futures_util::future::join_all(takeovers).await;
        let mut taken = Vec::new();
        for takeover in takeovers {
            match takeover {
                Takeover::Taken(record) => taken.push((record.owner.clone(), record.epoch)),
                Takeover::Lost { current_epoch } => assert_eq!(current_epoch, 2),
                other => panic!("{other:?}"),
            }
        }
        let record = journal.get(&id(&name)).await.unwrap().unwrap();
        assert_eq!(taken, [(record.owner, 2)]);
    }
}

async fn nothing_slips_in_while_an_execution_is_taken_over(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    for round in 0..30 {
        let name = format!("invocation {round}");
        begin(&journal, invocation(&name)).await;
        let (held, new) = (held(&name, 1), owner("two"));
        let (which, first, second) = (id(&name), deltas(1, 1..=1), deltas(1, 1..=2));
        let appends = futures_util::future::join(
            journal.append(&which, &first),
            journal.append(&which, &second),
        );
        let (takeover, (_, second)) =
            futures_util::future::join(journal.take_over(&held, &new, at(20)), appends).await;
        let Ok(Takeover::Taken(taken)) = takeover else {
            panic!("taken, not {takeover:?}")
        };
        let recorded = seqs(&journal, &name).await;
        assert_eq!(
            recorded,
            (1..=taken.last_seq).collect::<Vec<u64>>(),
            "as the new owner saw it"
        );
        assert_eq!(
            second.is_ok(),
            taken.last_seq == 2,
            "refused or recorded, nothing between: {second:?}"
        );
    }
}

async fn a_paused_owner_cannot_write_after_a_takeover(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=2)).await.unwrap();
    journal
        .take_over(&held("a", 1), &owner("two"), at(20))
        .await
        .unwrap();
    let fenced = AppendError::Fenced { current_epoch: 2 };
    assert_eq!(
        journal.append(&id("a"), &deltas(1, 3..=4)).await,
        Err(fenced.clone())
    );
    let finish = journal
        .finish(end("a", 1, "late", vec![delta(1, 3)]), at(21))
        .await;
    assert_eq!(finish, Err(FinishError::Append(fenced)));
    let renewed = journal
        .renew(&owner("one"), &[held("a", 1)], at(21))
        .await
        .unwrap();
    assert_eq!(renewed.lost, [id("a")]);
    assert_eq!(seqs(&journal, "a").await, [1, 2]);
    assert!(!journal.get(&id("a")).await.unwrap().unwrap().is_finished());
}

async fn the_new_owner_continues_right_after_the_last_durable_step(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=2)).await.unwrap();
    let Ok(Takeover::Taken(record)) = journal
        .take_over(&held("a", 1), &owner("two"), at(20))
        .await
    else {
        panic!("taken");
    };
    assert_eq!(
        (record.last_seq, record.epoch, record.request.is_some()),
        (2, 2, true)
    );
    let over_the_old = journal.append(&id("a"), &deltas(2, 2..=3)).await;
    assert_eq!(
        over_the_old,
        Err(AppendError::Gap {
            expected: 3,
            got: 2
        }),
        "what is durable is never rewritten"
    );
    journal.append(&id("a"), &deltas(2, 3..=4)).await.unwrap();
    journal
        .finish(end("a", 2, "done", vec![delta(2, 5)]), at(22))
        .await
        .unwrap();
    let page = journal.read(&id("a"), 0, 10).await.unwrap().unwrap();
    let places: Vec<(u64, u64)> = page
        .entries
        .iter()
        .map(|entry| (entry.epoch, entry.seq))
        .collect();
    assert_eq!(places, [(1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]);
}

async fn what_is_finished_is_neither_expired_nor_taken_over(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal
        .finish(end("a", 1, "done", Vec::new()), at(1))
        .await
        .unwrap();
    assert_eq!(journal.expired(at(100), 10).await.unwrap(), []);
    assert_eq!(
        journal
            .take_over(&held("a", 1), &owner("two"), at(100))
            .await,
        Ok(Takeover::Finished)
    );
    let renewed = journal
        .renew(&owner("one"), &[held("a", 1)], at(2))
        .await
        .unwrap();
    assert_eq!(renewed.lost, [id("a")]);
}

async fn a_released_lease_is_taken_over_at_once(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal
        .release(&owner("somebody else"), &[held("a", 1)])
        .await
        .unwrap();
    assert_eq!(journal.expired(at(1), 10).await.unwrap(), []);
    journal
        .release(&owner("one"), &[held("a", 1)])
        .await
        .unwrap();
    assert_eq!(journal.expired(at(1), 10).await.unwrap(), [held("a", 1)]);
    assert!(matches!(
        journal.take_over(&held("a", 1), &owner("two"), at(1)).await,
        Ok(Takeover::Taken(_))
    ));
}

async fn a_thousand_leases_are_renewed_together_and_the_lost_are_named(engine: Engine) {
    let journal = engine.open().await;
    let names: Vec<String> = (0..1000)
        .map(|number| format!("invocation {number}"))
        .collect();
    for name in &names {
        begin(&journal, invocation(name)).await;
    }
    journal
        .take_over(&held("invocation 500", 1), &owner("two"), at(20))
        .await
        .unwrap();
    let all: Vec<Held> = names.iter().map(|name| held(name, 1)).collect();
    let renewed = journal.renew(&owner("one"), &all, at(20)).await.unwrap();
    assert_eq!(renewed.lost, [id("invocation 500")]);
    assert_eq!(journal.expired(at(29), 2000).await.unwrap(), []);
    assert_eq!(journal.expired(at(30), 2000).await.unwrap().len(), 1000);
    assert_eq!(journal.expired(at(30), 7).await.unwrap().len(), 7);
}

async fn a_request_to_cancel_reaches_the_owner_with_its_next_renewal(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    assert_eq!(
        journal.request_cancel(&id("a")).await,
        Ok(CancelWish::Recorded)
    );
    let renewed = journal
        .renew(&owner("one"), &[held("a", 1)], at(3))
        .await
        .unwrap();
    assert_eq!(
        renewed,
        Renewed {
            lost: Vec::new(),
            cancel_requested: vec![id("a")]
        }
    );
    assert!(
        journal
            .get(&id("a"))
            .await
            .unwrap()
            .unwrap()
            .cancel_requested
    );
    journal
        .finish(end("a", 1, "done", Vec::new()), at(4))
        .await
        .unwrap();
    assert_eq!(
        journal.request_cancel(&id("a")).await,
        Ok(CancelWish::Finished)
    );
    assert_eq!(
        journal.request_cancel(&id("none")).await,
        Ok(CancelWish::Unknown)
    );
}

async fn the_next_owner_finds_the_newest_background_response(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    for name in ["resp_1", "resp_2"] {
        let lasts = journal.remember(&held("a", 1), &made_at(name)).await;
        assert_eq!(
            lasts,
            Ok(!matches!(engine, Engine::Memory)),
            "whether another process can learn of it"
        );
    }
    let Takeover::Taken(record) = journal
        .take_over(&held("a", 1), &owner("two"), at(10))
        .await
        .unwrap()
    else {
        panic!("it is an orphan")
    };
    assert_eq!(record.upstream, Some(made_at("resp_2")));
    let late = journal.remember(&held("a", 1), &made_at("resp_3")).await;
    assert_eq!(late, Err(AppendError::Fenced { current_epoch: 2 }));
    assert_eq!(
        journal.get(&id("a")).await.unwrap().unwrap().upstream,
        Some(made_at("resp_2"))
    );
    assert_eq!(
        journal.remember(&held("none", 1), &made_at("resp_3")).await,
        Err(AppendError::Unknown)
    );
}

async fn where_an_answer_was_made_is_forgotten_with_the_end(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal
        .remember(&held("a", 1), &made_at("resp_1"))
        .await
        .unwrap();
    journal
        .finish(end("a", 1, "done", Vec::new()), at(1))
        .await
        .unwrap();
    assert_eq!(journal.get(&id("a")).await.unwrap().unwrap().upstream, None);
    assert_eq!(
        journal.remember(&held("a", 1), &made_at("resp_1")).await,
        Err(AppendError::Finished)
    );
}

async fn without_payloads_no_background_response_is_recorded(engine: Engine) {
    let limits = Limits {
        payloads: relight::internals::journal::Payloads::None,
        ..Limits::default()
    };
    let journal = engine.open_with(limits).await;
    begin(&journal, invocation("a")).await;
    assert_eq!(
        journal.remember(&held("a", 1), &made_at("resp_1")).await,
        Ok(false)
    );
    assert_eq!(journal.get(&id("a")).await.unwrap().unwrap().upstream, None);
}

on_every_engine!(
    a_lease_is_good_for_10_seconds_and_a_renewal_for_10_more,
    the_execution_of_a_living_owner_is_not_taken_over,
    of_concurrent_takeovers_exactly_one_wins,
    nothing_slips_in_while_an_execution_is_taken_over,
    a_paused_owner_cannot_write_after_a_takeover,
    the_new_owner_continues_right_after_the_last_durable_step,
    what_is_finished_is_neither_expired_nor_taken_over,
    a_released_lease_is_taken_over_at_once,
    a_thousand_leases_are_renewed_together_and_the_lost_are_named,
    a_request_to_cancel_reaches_the_owner_with_its_next_renewal,
    the_next_owner_finds_the_newest_background_response,
    where_an_answer_was_made_is_forgotten_with_the_end,
    without_payloads_no_background_response_is_recorded,
);
