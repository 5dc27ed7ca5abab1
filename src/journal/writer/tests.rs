//! The writer over the memory engine, which can be asked what is recorded, and over stores that are away.

use std::collections::BTreeMap;

use super::*;
use crate::{
    domain::ids::{RouteName, TenantId},
    journal::{Fingerprint, Limits, MemoryJournal, NewInvocation, Owner, Request},
};

const AT: Timestamp = Timestamp::UNIX_EPOCH;

fn new_invocation(id: &InvocationId) -> NewInvocation {
    NewInvocation {
        id: id.clone(),
        tenant: TenantId::from("tenant"),
        request_id: None,
        fingerprint: Fingerprint::new("fingerprint"),
        route: RouteName::from("default"),
        operation: "executor".into(),
        thread: None,
        labels: BTreeMap::new(),
        deadline_at: AT,
        request: Request::default(),
        owner: Owner::new("replica"),
    }
}

async fn begun(limits: Limits) -> (Arc<dyn Journal>, InvocationId) {
    let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(limits));
    let id = InvocationId::from("invocation");
    journal.begin(new_invocation(&id), AT).await.unwrap();
    (journal, id)
}

/// A journal whose first appends fail.
async fn away(appends: u32) -> (Arc<dyn Journal>, InvocationId) {
    let journal = MemoryJournal::default();
    journal.go_away(appends);
    let id = InvocationId::from("invocation");
    journal.begin(new_invocation(&id), AT).await.unwrap();
    (Arc::new(journal), id)
}

fn writer(journal: &Arc<dyn Journal>, id: &InvocationId, mode: JournalMode, queue: usize) -> JournalWriter {
    JournalWriter::new(Arc::clone(journal), id.clone(), 1, 0, WriterSettings { mode, queue })
}

async fn recorded(journal: &Arc<dyn Journal>, id: &InvocationId) -> u64 {
    journal.get(id).await.unwrap().unwrap().last_seq
}

fn delta(text: &str) -> Progress {
    Progress::BlockDelta { block: 1, offset: 0, text: text.to_owned() }
}

fn ending(id: &InvocationId, rest: Vec<(u32, Progress)>) -> Ending {
    let failure = crate::domain::failure::Failure::local(crate::domain::failure::FailureClass::Cancelled, "done");
    let outcome = Outcome {
        invocation: id.clone(),
        result: Err(failure),
        attempts: Vec::new(),
        recovery_applied: Vec::new(),
        reasoning: String::new(),
        alternatives: Vec::new(),
        usage: crate::domain::completion::Usage::default(),
        history_patch: crate::domain::invocation::HistoryPatch::default(),
        target: None,
    };
    Ending { rest, outcome, snapshot: Vec::new(), thread: None }
}

#[tokio::test(start_paused = true)]
async fn fast_records_within_100_ms_and_not_at_once() {
    let (journal, id) = begun(Limits::default()).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 64);
    writer.push(1, AT, delta("a")).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    assert_eq!(recorded(&journal, &id).await, 0);
    writer.push(1, AT, delta("b")).await.unwrap();
    sleep(Duration::from_millis(51)).await;
    assert_eq!(recorded(&journal, &id).await, 2, "the delay counts from the oldest");
}

#[tokio::test(start_paused = true)]
async fn fast_records_at_once_when_4_kib_wait() {
    let (journal, id) = begun(Limits::default()).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 64);
    writer.push(1, AT, delta(&"x".repeat(5000))).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(recorded(&journal, &id).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_flush_makes_everything_durable_without_waiting_for_the_batch() {
    let (journal, id) = begun(Limits::default()).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 2000);
    let began = Instant::now();
    for _ in 0..1200 {
        writer.push(1, AT, delta("a")).await.unwrap();
    }
    writer.flush().await.unwrap();
    assert_eq!(recorded(&journal, &id).await, 1200);
    assert_eq!(began.elapsed(), Duration::ZERO);
    writer.flush().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn strict_acknowledges_only_what_is_recorded_and_groups_what_comes_meanwhile() {
    let (journal, id) = begun(Limits::default()).await;
    let writer = writer(&journal, &id, JournalMode::Strict, 64);
    let pushes = (0..50).map(|_| async {
        let seq = writer.push(1, AT, delta("a")).await.unwrap();
        assert!(recorded(&journal, &id).await >= seq);
        seq
    });
    let mut seqs = futures_util::future::join_all(pushes).await;
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=50).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn a_fenced_writer_is_told_to_stop() {
    let (journal, id) = begun(Limits::default()).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 64);
    let later = AT + Duration::from_mins(1);
    let held = crate::journal::Held { id: id.clone(), epoch: 1 };
    journal.take_over(&held, &Owner::new("other"), later).await.unwrap();
    writer.push(1, AT, delta("a")).await.unwrap();
    assert_eq!(writer.flush().await, Err(AppendError::Fenced { current_epoch: 2 }));
    assert_eq!(writer.push(1, AT, delta("b")).await, Err(AppendError::Fenced { current_epoch: 2 }));
    assert_eq!(recorded(&journal, &id).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_cap_refused_is_recorded_with_the_end() {
    let (journal, id) = begun(Limits { invocation_bytes: 1000, ..Limits::default() }).await;
    let mut writer = writer(&journal, &id, JournalMode::Fast, 64);
    writer.push(1, AT, delta(&"x".repeat(900))).await.unwrap();
    writer.flush().await.unwrap();
    writer.push(1, AT, delta(&"y".repeat(900))).await.unwrap();
    assert!(matches!(writer.flush().await, Err(AppendError::Full { .. })));
    assert!(matches!(writer.push(1, AT, delta("z")).await, Err(AppendError::Full { .. })));
    writer.finish(ending(&id, vec![(1, delta("end"))]), AT).await.unwrap();
    let page = journal.read(&id, 0, 10).await.unwrap().unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(page.finished);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_never_delays_a_fast_stream_and_the_loss_is_counted() {
    let (journal, id) = away(u32::MAX).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 4);
    let began = Instant::now();
    for seq in 1..=10 {
        assert_eq!(writer.push(1, AT, delta("a")).await, Ok(seq));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(writer.lost());
    assert_eq!(writer.dropped(), 10);
    assert!(matches!(writer.flush().await, Err(AppendError::Store(JournalError::Unavailable(_)))));
    assert_eq!(recorded(&journal, &id).await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_flush_is_told_when_the_record_is_given_up() {
    let (journal, id) = away(1).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 2);
    writer.push(1, AT, delta("a")).await.unwrap();
    assert!(writer.flush().await.is_err());
    let overflow = async {
        for _ in 0..3 {
            writer.push(1, AT, delta("b")).await.unwrap();
        }
    };
    let (flushed, ()) = futures_util::future::join(writer.flush(), overflow).await;
    assert!(flushed.is_err() && writer.lost());
}

#[tokio::test(start_paused = true)]
async fn after_the_end_nothing_is_taken() {
    let (journal, id) = begun(Limits::default()).await;
    let mut writer = writer(&journal, &id, JournalMode::Strict, 64);
    writer.finish(ending(&id, vec![(1, delta("end"))]), AT).await.unwrap();
    assert_eq!(writer.push(1, AT, delta("late")).await, Err(AppendError::Finished));
    assert_eq!(writer.finish(ending(&id, Vec::new()), AT).await, Ok(()), "told twice, done once");
    assert_eq!(recorded(&journal, &id).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_gets_everything_in_order() {
    let (journal, id) = away(3).await;
    let writer = writer(&journal, &id, JournalMode::Fast, 64);
    writer.push(1, AT, delta("a")).await.unwrap();
    assert!(writer.flush().await.is_err(), "who waits is told of the failure");
    writer.push(1, AT, delta("b")).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!((recorded(&journal, &id).await, writer.durable_seq()), (2, 2));
}
