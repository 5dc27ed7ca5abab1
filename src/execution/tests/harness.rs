//! A world for executions: scripted models, replicas on one journal, and a client that folds and
//! checks every step.

use std::{sync::Arc, time::Duration};

use unicode_segmentation::UnicodeSegmentation as _;

use crate::{
    call_error::CallError,
    config::{GivenEnvironment, load_text},
    domain::{
        completion::BlockKind,
        fold::{AnswerState, StreamStep},
        ids::{InvocationId, RequestId, TenantId, ThreadId},
        invocation::{Call, Outcome, Overrides, RewindMode},
        message::{Message, ModelCall, Role},
    },
    engine::{Arrival, Engine, InvocationRequest},
    events::EventBus,
    execution::{Executions, Follower, Lost, Settings, Started, StreamItem},
    journal::{Journal, Limits, MemoryJournal, Owner},
    layers::{invocation::InvocationContext, spans::EntryPoint, spans::Spans},
};

/// A journal as it is configured by default.
pub(super) fn usual() -> Arc<dyn Journal> {
    Arc::new(MemoryJournal::new(Limits::default()))
}

/// Returns an engine whose one model plays this script (YAML, flow style).
pub(super) fn engine(script: &str) -> Engine {
    engine_able(script, "")
}

/// Returns the same, with more said of the target (YAML, flow style, begins with a comma).
pub(super) fn engine_able(script: &str, more: &str) -> Engine {
    engine_with(script, more, "on_length: continue")
}

/// Returns the same, with more said of the retries (YAML, flow style).
pub(super) fn engine_with(script: &str, more: &str, retry: &str) -> Engine {
    let yaml = format!(
        "providers: {{ model: {{ dialect: scripted, script: {script} }} }}\n\
         targets: {{ main: {{ provider: model, model: m-1{more} }} }}\n\
         routes: {{ default: {{ targets: [main], deadline: 120s }} }}\n\
         timers: {{ first_token: 400ms, first_token_alone: 400ms, soft_first_token: 0ms, idle: 400ms }}\n\
         policies: {{ standard: {{ retry: {{ max_retries: 4, {retry}, backoff: {{ base: 10ms, cap: 40ms }} }} }} }}\n"
    );
    let loaded = load_text(&yaml, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}\n{yaml}"));
    Engine::new(loaded.config, Spans::disabled(), EventBus::new(1024)).unwrap()
}

/// Returns a replica on a journal.
pub(super) fn replica(name: &str, engine: &Engine, journal: &Arc<dyn Journal>) -> Executions {
    Executions::new(
        engine.clone(),
        Arc::clone(journal),
        Settings::new(Owner::new(name)),
    )
}

/// What a caller asks.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) text: String,
    pub(super) mode: Option<RewindMode>,
    pub(super) grace: Option<Duration>,
    pub(super) request_id: Option<RequestId>,
    pub(super) thread: Option<ThreadId>,
}

impl Ask {
    pub(super) fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            mode: Some(RewindMode::Rewind),
            grace: None,
            request_id: None,
            thread: None,
        }
    }

    pub(super) fn resumable(mut self) -> Self {
        self.grace = Some(Duration::from_mins(4));
        self
    }

    pub(super) fn on(mut self, thread: &str) -> Self {
        self.thread = Some(thread.into());
        self
    }

    pub(super) fn resolved(self, engine: &Engine) -> InvocationContext {
        let call = ModelCall {
            messages: vec![Message::text(Role::User, self.text)],
            ..ModelCall::default()
        };
        let overrides = Overrides {
            rewind_mode: self.mode,
            resumable_grace: self.grace,
            ..Overrides::default()
        };
        let arrival = Arrival::new(tenant(), EntryPoint::Grpc("test"));
        let request = InvocationRequest {
            request_id: self.request_id,
            thread: self.thread,
            overrides,
            ..InvocationRequest::new(arrival, Call::Model(Arc::new(call)))
        };
        engine.resolve(request).unwrap()
    }

    pub(super) async fn start(self, executions: &Executions) -> Result<Started, CallError> {
        let incoming = self.resolved(&executions.shared.engine);
        executions.start(incoming).await
    }
}

pub(super) fn tenant() -> TenantId {
    "acme".into()
}

impl Executions {
    /// Ends this replica as a crash would, and lets the time pass until its leases are over.
    pub(super) async fn crash(&self) {
        let held = self.shared.held();
        let mut tasks = self.shared.tasks.take();
        self.shared.tasks.close();
        tasks.shutdown().await;
        self.shared
            .journal
            .release(&self.shared.settings.owner, &held)
            .await
            .unwrap();
    }

    /// Lets the leases pass, as if this replica slept for long: it still runs.
    pub(super) async fn oversleep(&self) {
        let held = self.shared.held();
        self.shared
            .journal
            .release(&self.shared.settings.owner, &held)
            .await
            .unwrap();
    }

    /// How many invocations run here.
    pub(super) fn count(&self) -> usize {
        self.shared.running().len()
    }
}

/// A client that outlives its connections.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) fold: AnswerState,
    pub(super) cursor: Option<(u64, u64)>,
    pub(super) outcome: Option<Outcome>,
    pub(super) rewinds: usize,
    pub(super) snapshots: usize,
    /// What the service believes that this client holds, while it says so.
    pub(super) believed: AnswerState,
}

impl Client {
    /// Reads at most `max` items; returns whether the stream may have more.
    pub(super) async fn read(&mut self, follower: &mut Follower, max: usize) -> Result<bool, Lost> {
        self.believed = AnswerState::default();
        let mut known = false;
        for _ in 0..max {
            let Some(item) = follower.next().await? else {
                assert!(self.outcome.is_some(), "an end without a Terminal");
                return Ok(false);
            };
            match item {
                StreamItem::Known(entry) => {
                    known = true;
                    self.believed.apply(&entry.step).unwrap();
                }
                StreamItem::Snapshot {
                    epoch, seq, blocks, ..
                } => {
                    known = false;
                    self.snapshots += 1;
                    self.fold.restore(blocks);
                    self.cursor = Some((epoch, seq));
                }
                StreamItem::Step(entry) => {
                    if std::mem::take(&mut known) && self.outcome.is_none() {
                        assert_eq!(
                            self.believed.hash(),
                            self.fold.hash(),
                            "what the client is believed to hold"
                        );
                    }
                    self.take(&entry);
                }
            }
        }
        Ok(true)
    }

    fn take(&mut self, entry: &crate::journal::Entry) {
        if let Some((epoch, seq)) = self.cursor {
            if self.outcome.is_some() && entry.seq <= seq {
                return;
            }
            assert_eq!(entry.seq, seq + 1, "no gap and nothing twice: {entry:?}");
            assert!(entry.epoch >= epoch, "an old owner speaks");
        } else {
            assert_eq!(entry.seq, 1);
        }
        self.cursor = Some((entry.epoch, entry.seq));
        match &entry.step {
            StreamStep::Rewind { keep, .. } => {
                self.rewinds += 1;
                let touched = self.fold.blocks().iter().any(|block| {
                    let call = matches!(block.kind, BlockKind::ToolCall { .. });
                    call && block.committed && !keep.contains(&(block.id, block.text.len() as u64))
                });
                assert!(!touched, "a rewind touches a committed call");
            }
            StreamStep::BlockDelta { text, .. } => {
                assert!(!text.is_empty());
                let first = text.graphemes(true).next().unwrap();
                assert!(
                    !first.starts_with(['\u{301}', '\u{200d}']),
                    "a delta begins inside a grapheme: {text:?}"
                );
            }
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::BlockStart { .. }
            | StreamStep::BlockStop { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. }
            | StreamStep::Terminal(_) => {}
        }
        self.fold
            .apply(&entry.step)
            .unwrap_or_else(|error| panic!("{error} at {entry:?}"));
        if let Some(outcome) = self.fold.outcome() {
            self.outcome = Some(outcome.clone());
        }
    }

    /// Resumes on `executions` and reads to the end.
    pub(super) async fn finish(&mut self, executions: &Executions, id: &InvocationId) {
        let name = super::super::InvocationName::Id(id.clone());
        while self.outcome.is_none() {
            let record = executions
                .find(&tenant(), &name)
                .await
                .unwrap()
                .expect("it is kept");
            let mut follower = executions.follow(&record, self.cursor).follower;
            self.read(&mut follower, usize::MAX).await.unwrap();
        }
    }

    /// Returns the completion, as the outcome has it; checks that it is what was folded.
    pub(super) fn answer(&self) -> &str {
        let outcome = self.outcome.as_ref().expect("it ended");
        let completion = outcome
            .result
            .as_ref()
            .unwrap_or_else(|failure| panic!("{failure:?}"));
        let folded = self.fold.message();
        assert_eq!(
            folded, completion.message,
            "the folded answer is the answer"
        );
        let block = self
            .fold
            .blocks()
            .iter()
            .find(|block| block.kind == BlockKind::Text);
        block.map_or("", |block| &block.text)
    }
}

/// Deterministic dice.
pub(super) struct TestRng(u64);

impl TestRng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
