//! The steps of an execution: in order, without gaps, whole batches or nothing.

use relight::internals::journal::AppendError;
use tokio::time::timeout;

use super::*;

async fn what_is_read_is_what_was_appended(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let (steps, fold) = answer(
        "a",
        1,
        "NUL \u{0}, quote \", snow \u{2603}, flag \u{1F1E9}\u{1F1EA}",
    );
    journal.append(&id("a"), &steps[..2]).await.unwrap();
    journal.append(&id("a"), &steps[2..]).await.unwrap();
    let page = journal.read(&id("a"), 0, 100).await.unwrap().unwrap();
    assert_eq!(page.entries, steps);
    assert_eq!(
        (page.last_seq, page.epoch, page.finished, page.gone),
        (4, 1, false, false)
    );
    let mut folded = AnswerState::default();
    for entry in &page.entries {
        folded.apply(&entry.step).unwrap();
    }
    assert_eq!(folded.hash(), fold.hash());
}

async fn a_reader_continues_from_its_cursor_page_by_page(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=150)).await.unwrap();
    let mut got = Vec::new();
    while got.len() < 150 {
        let page = journal
            .read(&id("a"), got.len() as u64, 40)
            .await
            .unwrap()
            .unwrap();
        assert!(page.entries.len() <= 40 && page.last_seq == 150 && !page.gone);
        got.extend(page.entries);
    }
    assert_eq!(got, deltas(1, 1..=150));
    let page = journal.read(&id("a"), 150, 40).await.unwrap().unwrap();
    assert!(page.entries.is_empty() && !page.gone);
    assert_eq!(journal.read(&id("none"), 0, 40).await, Ok(None));
}

async fn a_batch_with_a_gap_is_refused_whole(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let gap = AppendError::Gap {
        expected: 1,
        got: 2,
    };
    assert_eq!(journal.append(&id("a"), &deltas(1, 2..=3)).await, Err(gap));
    let inside = [delta(1, 1), delta(1, 2), delta(1, 4)];
    assert_eq!(
        journal.append(&id("a"), &inside).await,
        Err(AppendError::Gap {
            expected: 3,
            got: 4
        })
    );
    let mixed = [delta(1, 1), delta(2, 2)];
    assert_eq!(
        journal.append(&id("a"), &mixed).await,
        Err(AppendError::Fenced { current_epoch: 1 })
    );
    assert_eq!(
        journal.append(&id("none"), &deltas(1, 1..=1)).await,
        Err(AppendError::Unknown)
    );
    assert!(seqs(&journal, "a").await.is_empty());
}

async fn a_batch_whose_answer_was_lost_is_sent_again_without_effect(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    journal.append(&id("a"), &deltas(1, 1..=3)).await.unwrap();
    journal.append(&id("a"), &deltas(1, 1..=3)).await.unwrap();
    journal.append(&id("a"), &deltas(1, 2..=5)).await.unwrap();
    assert_eq!(seqs(&journal, "a").await, [1, 2, 3, 4, 5]);
    let finish = end("a", 1, "done", deltas(1, 4..=6));
    journal.finish(finish.clone(), at(9)).await.unwrap();
    journal.finish(finish, at(10)).await.unwrap();
    assert_eq!(seqs(&journal, "a").await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        journal.append(&id("a"), &deltas(1, 7..=7)).await,
        Err(AppendError::Finished)
    );
}

async fn concurrent_readers_see_a_prefix_without_gaps(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let writer = async {
        for seq in (1..=200).step_by(4) {
            journal
                .append(&id("a"), &deltas(1, seq..seq + 4))
                .await
                .unwrap();
        }
    };
    let reader = |journal: Arc<dyn Journal>| async move {
        let mut changes = journal.changes(&id("a"));
        let mut got = 0;
        while got < 200 {
            let page = journal.read(&id("a"), got, 50).await.unwrap().unwrap();
            assert!(!page.gone);
            for entry in page.entries {
                got += 1;
                assert_eq!(entry.seq, got);
            }
            if got == page.last_seq && got < 200 {
                changes.wait().await;
            }
        }
    };
    let all = futures_util::future::join3(
        writer,
        reader(Arc::clone(&journal)),
        reader(Arc::clone(&journal)),
    );
    timeout(Duration::from_mins(1), all)
        .await
        .expect("readers are woken");
}

async fn an_append_that_is_abandoned_midway_leaves_whole_batches_only(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    for round in 0..40_u32 {
        let next = journal.get(&id("a")).await.unwrap().unwrap().last_seq + 1;
        let batch = deltas(1, next..next + 10);
        let _ = timeout(
            Duration::from_micros(u64::from(round) * 100),
            journal.append(&id("a"), &batch),
        )
        .await;
    }
    // Whatever was under way is over when the next one is answered.
    let next = loop {
        let next = journal.get(&id("a")).await.unwrap().unwrap().last_seq + 1;
        if journal
            .append(&id("a"), &deltas(1, next..next + 10))
            .await
            .is_ok()
        {
            break next + 10;
        }
    };
    assert_eq!((next - 1) % 10, 0, "a batch is recorded whole");
    assert_eq!(seqs(&journal, "a").await, (1..next).collect::<Vec<u64>>());
}

async fn beyond_the_cap_of_an_invocation_nothing_but_its_end_is_recorded(engine: Engine) {
    let journal = engine
        .open_with(Limits {
            invocation_bytes: 1000,
            ..Limits::default()
        })
        .await;
    begin(&journal, invocation("a")).await;
    begin(&journal, invocation("b")).await;
    let mut last = 0;
    let refused = loop {
        match journal.append(&id("a"), &[delta(1, last + 1)]).await {
            Ok(()) => last += 1,
            Err(refused) => break refused,
        }
    };
    let AppendError::Full { held, cap: 1000 } = refused else {
        panic!("full, not {refused}")
    };
    assert!(held > 900 && held <= 1000 && last > 5);
    journal.append(&id("b"), &[delta(1, 1)]).await.unwrap();
    journal
        .finish(end("a", 1, "done", deltas(1, last + 1..=last + 5)), at(9))
        .await
        .unwrap();
    assert_eq!(
        seqs(&journal, "a").await,
        (1..=last + 5).collect::<Vec<u64>>()
    );
}

async fn an_outcome_and_its_snapshot_are_kept_with_the_invocation(engine: Engine) {
    let journal = engine.open().await;
    begin(&journal, invocation("a")).await;
    let (steps, fold) = answer("a", 1, "hello");
    let finish = Finish {
        snapshot: fold.blocks().to_vec(),
        ..end("a", 1, "hello", steps)
    };
    journal.finish(finish, at(5)).await.unwrap();
    let record = journal.get(&id("a")).await.unwrap().unwrap();
    assert_eq!(
        record.state,
        relight::internals::journal::RunState::Finished { at: at(5) }
    );
    assert_eq!(record.outcome.as_deref(), Some(&outcome("a", Ok("hello"))));
    assert_eq!(record.snapshot.as_deref(), Some(fold.blocks()));
}

on_every_engine!(
    what_is_read_is_what_was_appended,
    a_reader_continues_from_its_cursor_page_by_page,
    a_batch_with_a_gap_is_refused_whole,
    a_batch_whose_answer_was_lost_is_sent_again_without_effect,
    concurrent_readers_see_a_prefix_without_gaps,
    an_append_that_is_abandoned_midway_leaves_whole_batches_only,
    beyond_the_cap_of_an_invocation_nothing_but_its_end_is_recorded,
    an_outcome_and_its_snapshot_are_kept_with_the_invocation,
);
