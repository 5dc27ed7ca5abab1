//! Writes of many invocations that come at once: a database with one writer makes them in few
//! transactions.

use futures_util::future::join_all;
use relight::internals::journal::{AppendError, FinishError};

use super::{on_durable_engines, *};

/// Invocations that write at once: more than one transaction takes.
const MANY: u64 = 100;

fn named(number: u64) -> String {
    format!("of many {number}")
}

async fn begin_many(journal: &Arc<dyn Journal>) {
    let beginning = (0..MANY).map(|number| {
        begin(
            journal,
            requested(&named(number), &format!("request {number}")),
        )
    });
    join_all(beginning).await;
}

async fn each_of_many_writes_at_once_has_its_own_result(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    begin_many(&journal).await;
    journal
        .finish(end(&named(7), 1, "done", Vec::new()), at(1))
        .await
        .unwrap();
    // Every tenth is refused: its epoch is another's, its steps have a gap, it is finished, or it
    // never began.
    let appending = (0..MANY).map(|number| {
        let (journal, name) = (Arc::clone(&journal), named(number));
        async move {
            match number {
                5 => journal.append(&id(&name), &deltas(2, 1..=3)).await,
                6 => journal.append(&id(&name), &deltas(1, 2..=3)).await,
                8 => journal.append(&id("none"), &deltas(1, 1..=3)).await,
                _ => journal.append(&id(&name), &deltas(1, 1..=3)).await,
            }
        }
    });
    for (number, result) in (0..).zip(join_all(appending).await) {
        let expected = match number {
            5 => Err(AppendError::Fenced { current_epoch: 1 }),
            6 => Err(AppendError::Gap {
                expected: 1,
                got: 2,
            }),
            7 => Err(AppendError::Finished),
            8 => Err(AppendError::Unknown),
            _ => Ok(()),
        };
        assert_eq!(result, expected, "append {number}");
        let recorded: &[u64] = if expected.is_ok() { &[1, 2, 3] } else { &[] };
        assert_eq!(
            seqs(&journal, &named(number)).await,
            recorded,
            "steps of {number}"
        );
    }
    // Ends, some of them twice at once, beside begins with request ids that are used.
    let finishing = (10..MANY).flat_map(|number| [number; 2]).map(|number| {
        let (journal, name) = (Arc::clone(&journal), named(number));
        async move {
            journal
                .finish(end(&name, 1, "done", deltas(1, 4..=5)), at(9))
                .await
        }
    });
    let again = (10..MANY).map(|number| {
        let (journal, new) = (
            Arc::clone(&journal),
            requested(&format!("again {number}"), &format!("request {number}")),
        );
        async move { journal.begin(new, at(0)).await }
    });
    let (finished, begun) = futures_util::future::join(join_all(finishing), join_all(again)).await;
    assert!(finished.iter().all(Result::is_ok), "{finished:?}");
    for (number, begun) in (10..).zip(begun) {
        let is_known = matches!(begun, Ok(BeginResult::Attached(_) | BeginResult::Replay(_)));
        assert!(is_known, "{number}: {begun:?}");
        assert_eq!(seqs(&journal, &named(number)).await, [1, 2, 3, 4, 5]);
        let record = journal.get(&id(&named(number))).await.unwrap().unwrap();
        assert_eq!(
            record.outcome.as_deref(),
            Some(&outcome(&named(number), Ok("done")))
        );
    }
}

async fn a_write_that_the_database_refuses_fails_alone(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    begin_many(&journal).await;
    let mut raw = engine.raw().await;
    let sql = "INSERT INTO events (invocation_id, seq, epoch, attempt, at, step) VALUES ($1, 2, 1, 1, 0, 'not ours')";
    sqlx::query(sql)
        .bind(named(50))
        .execute(&mut raw)
        .await
        .unwrap();
    let finishing = (0..MANY).map(|number| {
        let (journal, name) = (Arc::clone(&journal), named(number));
        async move {
            journal
                .finish(end(&name, 1, "done", deltas(1, 1..=3)), at(9))
                .await
        }
    });
    for (number, result) in (0..).zip(join_all(finishing).await) {
        let record = journal.get(&id(&named(number))).await.unwrap().unwrap();
        assert_eq!(record.is_finished(), number != 50, "{number}");
        match result {
            Err(FinishError::Append(AppendError::Store(_))) if number == 50 => {}
            result => assert_eq!(result, Ok(()), "{number}"),
        }
    }
}

on_durable_engines!(
    each_of_many_writes_at_once_has_its_own_result,
    a_write_that_the_database_refuses_fails_alone
);
