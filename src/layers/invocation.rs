//! What one invocation shares with all its layers: the request, the plan, the attempts so far.
//!
//! The scope is the invocation's only memory. Layers report to it what happens; the planner above
//! reads the records that come of it, so there is one account of what was tried.

mod plan;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::{sync::mpsc, time::Instant};

pub use self::plan::Plan;
use super::{
    append_only::AppendOnly,
    cancel::Cancel,
    event::{InvocationEvent, Preparation},
    spans::{AttemptTrace, EntryPoint, InvocationTrace},
};
use crate::{
    domain::{
        clock,
        completion::{Completion, Usage},
        event::{EventBody, EventScope},
        failure::{Failure, FailureClass},
        fold::{Block, StreamStep},
        ids::{RouteName, TargetId},
        invocation::{AttemptCause, AttemptRecord, Call, HistoryPatch, Invocation, Outcome},
        message::ModelCall,
        target::Target,
        tool::ExecutedTool,
        upstream::{BackgroundResponses, UpstreamHandle},
    },
    events::EventBus,
    policy::texts::LANGUAGE_LABEL,
};

/// An invocation as it comes in.
#[derive(Debug, Clone)]
pub struct InvocationContext {
    /// The request.
    pub invocation: Arc<Invocation>,
    /// How it is served.
    pub plan: Arc<Plan>,
    /// How it came in, as its span is called.
    pub entry: EntryPoint,
    /// What an earlier owner made of it; empty for a new one.
    pub before: PreviousRun,
    /// Whether it is to end.
    pub cancel: Cancel,
    /// What ties it to answers that are made in the background.
    pub background: BackgroundResponses,
    /// The word of a front that cannot take back.
    pub append_only: AppendOnly,
    /// The routes that its caller is limited to; empty for no limit.
    pub caller_routes: Vec<RouteName>,
}

impl InvocationContext {
    /// A new invocation, which is not cancelled.
    #[must_use]
    pub fn new(invocation: Invocation, plan: Arc<Plan>, entry: EntryPoint) -> Self {
        let invocation = Arc::new(invocation);
        Self {
            invocation,
            plan,
            entry,
            before: PreviousRun::default(),
            cancel: Cancel::default(),
            background: BackgroundResponses::default(),
            append_only: AppendOnly::default(),
            caller_routes: Vec::new(),
        }
    }
}

/// What an earlier owner made of an invocation, for the one that continues it.
#[derive(Debug, Clone, Default)]
pub struct PreviousRun {
    /// Whether there was an earlier owner.
    pub was_owned: bool,
    /// The attempts that were made. Where the last one failed, what follows is decided as after any
    /// failure.
    pub attempts: Vec<AttemptRecord>,
    /// What followers of the invocation hold.
    pub blocks: Vec<Block>,
    /// The highest number that a block had; 0 where there was none.
    pub last_block: u32,
    /// The answer that was being made in the background for what followers hold, and that may be
    /// read on.
    pub upstream: Option<UpstreamHandle>,
}

/// What one invocation shares with all its layers.
#[derive(Debug)]
pub struct InvocationScope {
    /// The request.
    pub invocation: Arc<Invocation>,
    /// How it is served.
    pub plan: Arc<Plan>,
    /// When it came in.
    pub started: Instant,
    /// Where its spans hang.
    pub trace: InvocationTrace,
    events: EventBus,
    event_scope: Arc<EventScope>,
    /// Shared with those who look, and copied only when one of them still does while it changes.
    attempts: Mutex<Arc<Vec<AttemptRecord>>>,
    sent: Mutex<Option<Arc<ModelCall>>>,
    /// What of its history was repaired, in words.
    repaired: OnceLock<String>,
    steps: mpsc::UnboundedSender<StreamStep>,
    steps_out: Mutex<Option<mpsc::UnboundedReceiver<StreamStep>>>,
    /// The target for whose gate this invocation was queued, and which it may pass.
    turn: Mutex<Option<TargetId>>,
    before: Mutex<PreviousRun>,
    cancel: Cancel,
    background: BackgroundResponses,
    append_only: AppendOnly,
}

// === impl InvocationScope ===

impl InvocationScope {
    /// An invocation that starts now, with its spans and events.
    pub fn new(incoming: InvocationContext, trace: InvocationTrace, events: EventBus) -> Self {
        let InvocationContext {
            invocation,
            plan,
            before,
            cancel,
            background,
            append_only,
            ..
        } = incoming;
        let event_scope = Arc::new(EventScope {
            invocation: invocation.id.clone(),
            thread: invocation.thread.clone(),
            tenant: invocation.tenant.clone(),
            request_id: invocation.request_id.clone(),
            route: plan.route.clone(),
            operation: invocation.operation.clone(),
            labels: invocation.labels.clone(),
            trace_id: trace.trace_id(),
        });
        // Unbounded is bounded here: every attempt emits at most a handful of steps, and attempts
        // are few.
        let (steps, steps_out) = mpsc::unbounded_channel();
        Self {
            invocation,
            plan,
            started: Instant::now(),
            trace,
            events,
            event_scope,
            attempts: Mutex::new(Arc::new(before.attempts.clone())),
            sent: Mutex::new(None),
            repaired: OnceLock::new(),
            steps,
            steps_out: Mutex::new(Some(steps_out)),
            turn: Mutex::new(None),
            before: Mutex::new(before),
            cancel,
            background,
            append_only,
        }
    }

    /// The word of a front that cannot take back.
    pub fn append_only(&self) -> &AppendOnly {
        &self.append_only
    }

    /// What an earlier owner made of it; the planner takes it once.
    pub fn take_before(&self) -> PreviousRun {
        std::mem::take(&mut self.before.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What ties it to answers that are made in the background.
    pub fn background(&self) -> &BackgroundResponses {
        &self.background
    }

    /// Whether it is to end.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Reports what happened to this invocation or to one of its attempts: what the record, the bus
    /// and followers get of it is derived in `event.rs`. The step for followers is returned: the
    /// planner yields it in its place, and a layer below it reports by `Attempt::report`, which
    /// sends it.
    pub fn report(
        &self,
        attempt: u32,
        target: Option<&TargetId>,
        event: &InvocationEvent<'_>,
    ) -> Option<StreamStep> {
        let mut attempts = self.lock();
        if let Some(index) = attempts.iter().position(|record| record.number == attempt) {
            event.write_record(&mut Arc::make_mut(&mut attempts)[index]);
        }
        drop(attempts);
        self.publish(attempt, target, event.body());
        event.step(attempt, target)
    }

    fn publish(&self, attempt: u32, target: Option<&TargetId>, body: Option<EventBody>) {
        if let Some(body) = body {
            self.events.publish(
                Some(Arc::clone(&self.event_scope)),
                attempt,
                target.cloned(),
                body,
            );
        }
    }

    /// Emits a step, where there is one, to the followers of this invocation.
    pub fn emit(&self, step: Option<StreamStep>) {
        if let Some(step) = step {
            // No receiver is left once the invocation is over; then nothing needs to be sent.
            let _ = self.steps.send(step);
        }
    }

    /// Where the steps of the layers below come out; the planner takes it once.
    pub fn take_steps(&self) -> Option<mpsc::UnboundedReceiver<StreamStep>> {
        self.steps_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// It was queued for a target, and its turn came.
    pub fn grant_turn(&self, target: &TargetId) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// Whether it is its turn at a target.
    pub fn has_turn(&self, target: &TargetId) -> bool {
        self.turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            == Some(target)
    }

    /// Takes its turn at a target, once.
    pub fn take_turn(&self, target: &TargetId) -> bool {
        self.turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .as_ref()
            == Some(target)
    }

    /// Whether its last attempt failed, and not by a limit: then it has had its turn, and need not
    /// wait in line again.
    pub fn goes_ahead(&self) -> bool {
        let attempts = self.lock();
        let last = attempts
            .iter()
            .rev()
            .find(|record| !record.refused_locally());
        let failure = last.and_then(|record| record.failure.as_ref());
        failure.is_some_and(|failure| failure.class != FailureClass::RateLimited)
    }

    /// Its history was repaired so that a provider takes it; the first attempt reports that.
    pub fn repairs(&self, words: Option<String>) {
        if let Some(words) = words {
            // Set once, before the first attempt.
            let _ = self.repaired.set(words);
        }
    }

    /// Begins an attempt and returns its number, from 1. Its start and what led to it are reported
    /// together: followers read first that it started, readers of the bus what led to it.
    pub fn begin(
        &self,
        cause: AttemptCause,
        target: &Target,
        tool: Option<&ExecutedTool>,
        prepared: &Preparation,
        trace: &AttemptTrace,
    ) -> u32 {
        let mut attempts = self.lock();
        let number = number_after(&attempts);
        let repaired = self.unreported_changes(target, &attempts);
        let started = InvocationEvent::AttemptStarted {
            cause,
            target,
            wait: prepared.wait,
            repaired,
            tool,
        };
        started.write_span(number, trace);
        let model = target.model.to_string();
        let mut record = AttemptRecord {
            trace_id: self.event_scope.trace_id.clone(),
            span_id: trace.span_id(),
            ..AttemptRecord::begun(number, cause, target.id.clone(), model, clock::wall_now())
        };
        started.write_record(&mut record);
        Arc::make_mut(&mut attempts).push(record);
        drop(attempts);
        let target = Some(&target.id);
        self.emit(started.step(number, target));
        for event in &prepared.events {
            event.write_span(number, trace);
            self.emit(self.report(number, target, event));
        }
        self.publish(number, target, started.body());
        number
    }

    /// What of the request is changed for this target, in words, unless an earlier attempt reported
    /// it.
    fn unreported_changes(&self, target: &Target, earlier: &[AttemptRecord]) -> Option<String> {
        let repaired = self.repaired.get().filter(|_| earlier.is_empty()).cloned();
        let left_out = match &self.invocation.call {
            Call::Model(call) => call.tools_left_out(target.dialect.as_str()),
            Call::Tool(_) => None,
        };
        let is_new = |words: &String| {
            earlier
                .iter()
                .filter_map(|record| record.repaired.as_ref())
                .all(|reported| !reported.contains(words.as_str()))
        };
        match (repaired, left_out.filter(is_new)) {
            (Some(repaired), Some(left_out)) => Some(format!("{repaired}; {left_out}")),
            (repaired, left_out) => repaired.or(left_out),
        }
    }

    /// The number that the next attempt will have.
    pub fn next_number(&self) -> u32 {
        number_after(&self.lock())
    }

    /// The attempt whose answer is read; of a race, the one that was kept.
    pub fn running(&self) -> Option<AttemptRecord> {
        self.lock()
            .iter()
            .rev()
            .find(|record| record.is_running())
            .cloned()
    }

    /// Has the attempt whose answer is read end with this failure, whatever its target answered.
    /// That is reported when the answer is dropped. Returns the failure with its target.
    pub fn reject(&self, mut failure: Failure) -> Failure {
        let mut attempts = self.lock();
        if let Some(record) = Arc::make_mut(&mut attempts)
            .iter_mut()
            .rev()
            .find(|record| record.is_running())
        {
            failure.target.clone_from(&record.target);
            record.failure = Some(failure.clone());
        }
        failure
    }

    /// Remembers what the newest attempt sends.
    pub fn sends(&self, call: &Arc<ModelCall>) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(call));
    }

    /// What the newest attempt sent.
    pub fn sent(&self) -> Option<Arc<ModelCall>> {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is known of an attempt.
    pub fn record(&self, number: u32) -> Option<AttemptRecord> {
        self.lock()
            .iter()
            .find(|record| record.number == number)
            .cloned()
    }

    /// Every attempt so far.
    pub fn attempts(&self) -> Arc<Vec<AttemptRecord>> {
        Arc::clone(&self.lock())
    }

    /// Attempts that were sent, or that failed for a real reason: what the allowance counts. One
    /// that reads on what an earlier owner had asked for asks for nothing, and is not counted; nor
    /// is one that was lost with its replica.
    pub fn counted_attempts(&self) -> u32 {
        let counted = self.lock().iter().filter(|record| counts(record)).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// Those of them that surely reached no target.
    pub fn unsent_attempts(&self) -> u32 {
        let unsent = |record: &&AttemptRecord| {
            let never_sent = record
                .failure
                .as_ref()
                .is_some_and(|failure| failure.never_sent);
            never_sent && !record.sent && counts(record)
        };
        let unsent = self.lock().iter().filter(unsent).count();
        u32::try_from(unsent).unwrap_or(u32::MAX)
    }

    /// Whether the policy allows another attempt after the one that runs.
    pub fn may_try_again(&self) -> bool {
        let retry = &self.plan.retry;
        retry.enabled
            && self
                .counted_attempts()
                .saturating_sub(self.unsent_attempts())
                <= retry.max_retries
    }

    /// The real failures so far, oldest first; local refusals are not among them.
    pub fn failures(&self) -> Vec<Failure> {
        let attempts = self.lock();
        let failures = attempts.iter().filter(|record| !record.refused_locally());
        failures
            .filter_map(|record| record.failure.clone())
            .collect()
    }

    /// What all attempts cost together.
    pub fn usage(&self) -> Usage {
        self.lock()
            .iter()
            .fold(Usage::default(), |sum, record| sum.plus(record.usage))
    }

    /// The end of the invocation, with everything that is known of it.
    pub fn outcome(
        &self,
        result: Result<Completion, Failure>,
        reasoning: impl Into<String>,
        target: Option<TargetId>,
    ) -> Outcome {
        let attempts = self.attempts();
        let mut recovery_applied = Vec::new();
        for strategy in attempts.iter().filter_map(|record| record.cause.strategy()) {
            if !recovery_applied.contains(&strategy) {
                recovery_applied.push(strategy);
            }
        }
        Outcome {
            invocation: self.invocation.id.clone(),
            operation: Some(self.invocation.operation.clone()),
            result,
            attempts: Arc::unwrap_or_clone(attempts),
            recovery_applied,
            reasoning: reasoning.into(),
            alternatives: Vec::new(),
            usage: self.usage(),
            history_patch: HistoryPatch::default(),
            target,
            stopped_by: None,
        }
    }

    /// Puts the operator's own words into a failure that people read.
    pub fn word(&self, failure: &mut Failure) {
        let language = self
            .invocation
            .labels
            .get(LANGUAGE_LABEL)
            .map(String::as_str);
        self.plan.texts.apply(failure, language);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Vec<AttemptRecord>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the attempt that follows these.
fn number_after(attempts: &[AttemptRecord]) -> u32 {
    u32::try_from(attempts.len())
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}

/// Whether an attempt uses up the allowance.
fn counts(record: &AttemptRecord) -> bool {
    !record.refused_locally()
        && !record.cause.reads_existing_response()
        && !record.lost_with_replica
}
