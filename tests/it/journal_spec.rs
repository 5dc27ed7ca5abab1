//! The journal's promises, each of them kept by every engine: in memory, in a `SQLite` file, in
//! `PostgreSQL`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a claim ends where it is not true"
)]

mod bounds;
mod executions;
mod leases;
mod listing;
mod pressure;
mod requests;
mod retention;
mod sealed;
mod steps;
mod survival;
mod threads;
mod together;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use relight::internals::{
    domain::{
        completion::{BlockKind, Completion, FinishReason, Usage},
        failure::{Failure, FailureClass},
        fold::{AnswerState, StreamStep, hash_text},
        ids::{InvocationId, RequestId, TenantId, ThreadId},
        invocation::{Call, HistoryPatch, Outcome},
        message::{Message, ModelCall, Role},
        upstream::UpstreamHandle,
    },
    journal::{
        BeginResult, Entry, Fingerprint, Finish, Journal, JournalMode, Limits, MemoryJournal,
        NewInvocation, Owner, RecordedRequest, ThreadEnd, ThreadKey, postgres, sqlite,
    },
};

use crate::support::postgres::Database;

/// Runs claims on each engine; a claim is a function of an [`Engine`].
macro_rules! on_every_engine {
    ($($claim:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $claim() {
                super::$claim($crate::journal_spec::Engine::Memory).await;
            })+
        }
        $crate::journal_spec::on_durable_engines!($($claim),+);
    };
}
use on_every_engine;

/// Runs claims on the engines that outlive the process.
macro_rules! on_durable_engines {
    ($($claim:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $claim() {
                super::$claim($crate::journal_spec::Engine::sqlite()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $claim() {
                $crate::journal_spec::on_postgres(|database| async {
                    super::$claim($crate::journal_spec::Engine::Postgres(database)).await;
                })
                .await;
            })+
        }
    };
}
use on_durable_engines;

/// Runs a claim on a database of its own, where there is a server.
async fn on_postgres<F: Future<Output = ()>>(claim: impl FnOnce(Arc<Database>) -> F) {
    let Some(database) = Database::create().await else {
        return;
    };
    let database = Arc::new(database);
    claim(Arc::clone(&database)).await;
    Arc::into_inner(database)
        .expect("the claim is proven")
        .drop()
        .await;
}

/// An engine on which journals can be opened.
enum Engine {
    Memory,
    Sqlite(tempfile::TempDir),
    Postgres(Arc<Database>),
}

// === impl Engine ===

impl Engine {
    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// Opens the engine's journal; in memory it is a new one each time.
    async fn open_with(&self, limits: Limits) -> Arc<dyn Journal> {
        match self {
            Self::Memory => Arc::new(MemoryJournal::new(limits)),
            Self::Sqlite(directory) => {
                let path = directory.path().join("a journal's #1 50% file.db");
                Arc::new(
                    sqlite::open(&path, JournalMode::Fast, limits)
                        .await
                        .unwrap(),
                )
            }
            Self::Postgres(database) => {
                Arc::new(postgres::open(&database.url(), limits).await.unwrap())
            }
        }
    }

    async fn open(&self) -> Arc<dyn Journal> {
        self.open_with(Limits::default()).await
    }

    /// A connection to the database behind the journal's back.
    async fn raw(&self) -> sqlx::AnyConnection {
        use sqlx::Connection as _;
        sqlx::any::install_default_drivers();
        let url = match self {
            Self::Memory => panic!("there is nothing behind it"),
            Self::Sqlite(directory) => {
                format!(
                    "sqlite://{}/a%20journal's%20%231%2050%25%20file.db",
                    directory.path().display()
                )
            }
            Self::Postgres(database) => database.url(),
        };
        sqlx::AnyConnection::connect(&url).await.unwrap()
    }
}

/// The time `seconds` after the tests' beginning.
fn at(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap() + Duration::from_secs(seconds)
}

fn id(name: &str) -> InvocationId {
    InvocationId::from(name)
}

fn owner(name: &str) -> Owner {
    Owner::new(name)
}

fn thread(name: &str) -> ThreadKey {
    ThreadKey::new(TenantId::from("acme"), ThreadId::from(name))
}

fn said(role: Role, text: &str) -> Message {
    Message::text(role, text)
}

/// An invocation of tenant `acme`, executed by `one`, with its name as id.
fn invocation(name: &str) -> NewInvocation {
    let call = ModelCall {
        messages: vec![said(Role::User, "What is a NUL? \u{0}")],
        ..ModelCall::default()
    };
    NewInvocation {
        id: id(name),
        tenant: TenantId::from("acme"),
        request_id: None,
        fingerprint: Fingerprint::new("question"),
        route: "default".into(),
        operation: "executor".into(),
        thread: None,
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        deadline_at: at(60),
        request: RecordedRequest {
            call: Some(Call::Model(std::sync::Arc::new(call))),
            ..RecordedRequest::default()
        },
        owner: owner("one"),
    }
}

fn requested(name: &str, request: &str) -> NewInvocation {
    NewInvocation {
        request_id: Some(RequestId::from(request)),
        ..invocation(name)
    }
}

fn on_thread(name: &str, key: &ThreadKey) -> NewInvocation {
    NewInvocation {
        thread: Some(key.id.clone()),
        ..invocation(name)
    }
}

/// Opens as many connections as there may be, so that what runs at once afterwards really does.
async fn warm(journal: &Arc<dyn Journal>) {
    let nobody = id("nobody");
    futures_util::future::join_all((0..64).map(|_| journal.get(&nobody))).await;
}

async fn begin(journal: &Arc<dyn Journal>, new: NewInvocation) {
    let name = new.id.clone();
    assert_eq!(
        journal.begin(new, at(0)).await,
        Ok(BeginResult::New { epoch: 1 }),
        "{name}"
    );
}

fn step(epoch: u64, seq: u64, step: StreamStep) -> Entry {
    Entry {
        epoch,
        seq,
        attempt: 1,
        at: at(seq),
        step,
    }
}

/// Step `seq`: a delta with a text of its own.
fn delta(epoch: u64, seq: u64) -> Entry {
    step(
        epoch,
        seq,
        StreamStep::BlockDelta {
            block: 1,
            offset: seq,
            text: format!("text {seq} of epoch {epoch}"),
        },
    )
}

fn deltas(epoch: u64, seqs: impl Iterator<Item = u64>) -> Vec<Entry> {
    seqs.map(|seq| delta(epoch, seq)).collect()
}

fn outcome(name: &str, result: Result<&str, FailureClass>) -> Outcome {
    let completion = |text: &str| Completion {
        around: None,
        tool_output: None,
        message: said(Role::Assistant, text),
        finish: FinishReason::Stop,
        finish_raw: "stop".to_owned(),
        model: "model".to_owned(),
        response_id: None,
        usage: Usage::default(),
    };
    Outcome {
        invocation: id(name),
        operation: None,
        result: result.map(completion).map_err(|class| Failure {
            at: at(1),
            ..Failure::local(class, "it failed")
        }),
        attempts: Vec::new(),
        recovery_applied: Vec::new(),
        reasoning: String::new(),
        alternatives: Vec::new(),
        usage: Usage::default(),
        history_patch: HistoryPatch::default(),
        target: None,
        stopped_by: None,
    }
}

/// Where an answer of the first attempt is made.
fn made_at(name: &str) -> UpstreamHandle {
    UpstreamHandle {
        attempt: 1,
        target: "main".into(),
        id: name.to_owned(),
    }
}

/// The steps of a whole answer, and the fold of them.
fn answer(name: &str, epoch: u64, text: &str) -> (Vec<Entry>, AnswerState) {
    let (bytes, hash) = (text.len() as u64, hash_text(text));
    let steps = [
        StreamStep::BlockStart {
            block: 1,
            kind: BlockKind::Text,
        },
        StreamStep::BlockDelta {
            block: 1,
            offset: 0,
            text: text.to_owned(),
        },
        StreamStep::BlockStop {
            block: 1,
            bytes,
            hash,
            opaque: None,
            committed: false,
        },
        StreamStep::Terminal(Arc::new(outcome(name, Ok(text)))),
    ];
    let mut fold = AnswerState::default();
    for step in &steps {
        fold.apply(step).unwrap();
    }
    (
        steps
            .into_iter()
            .zip(1..)
            .map(|(progress, seq)| step(epoch, seq, progress))
            .collect(),
        fold,
    )
}

/// The end of an invocation that answered `text`, with these last steps.
fn end(name: &str, epoch: u64, text: &str, entries: Vec<Entry>) -> Finish {
    Finish {
        id: id(name),
        epoch,
        entries,
        outcome: Arc::new(outcome(name, Ok(text))),
        snapshot: Vec::new(),
        thread: None,
        ended_before: Duration::ZERO,
    }
}

/// The end of an invocation that failed.
fn failed_end(name: &str, thread: Option<ThreadEnd>) -> Finish {
    let outcome = outcome(name, Err(FailureClass::ServerError));
    Finish {
        outcome: Arc::new(outcome),
        thread,
        ..end(name, 1, "", Vec::new())
    }
}

async fn seqs(journal: &Arc<dyn Journal>, name: &str) -> Vec<u64> {
    let page = journal
        .read(&id(name), 0, usize::MAX)
        .await
        .unwrap()
        .unwrap();
    page.entries.iter().map(|entry| entry.seq).collect()
}
