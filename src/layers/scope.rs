//! What one invocation shares with all its layers: what was asked, the plan, the attempts so far.
//!
//! The scope is the invocation's only memory. Layers below write what they learn of an attempt into its record;
//! the planner above reads the records, so there is one account of what was tried.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{cancel::Cancel, spans::InvocationTrace};
use crate::{
    domain::{
        clock,
        completion::{Completion, Usage},
        event::{EventBody, EventScope},
        failure::{Failure, Wait},
        fold::{Block, Progress},
        ids::{RouteName, TargetId},
        invocation::{AttemptCause, AttemptRecord, HistoryPatch, InjectionMode, Invocation, Outcome},
        message::ModelCall,
        target::Target,
        upstream::{Tether, UpstreamHandle},
    },
    events::EventBus,
    policy::{
        hedge::HedgePolicy, inject::InjectionPolicy, retry::RetryPolicy, select::SelectPolicy, timers::TimersPolicy,
    },
};

/// How an invocation is served: the route's targets and policies, with the caller's overrides applied.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The route.
    pub route: RouteName,
    /// Its targets in order of preference, already narrowed to those that the caller allows.
    pub targets: Vec<Arc<Target>>,
    /// How often, and after which waits, it is tried again.
    pub retry: RetryPolicy,
    /// How the model is told.
    pub injection: InjectionPolicy,
    /// When the model is told.
    pub injection_mode: InjectionMode,
    /// In which order targets are asked.
    pub select: SelectPolicy,
    /// How long an attempt may be silent.
    pub timers: TimersPolicy,
    /// Whether a second attempt starts beside a slow first.
    pub hedge: HedgePolicy,
    /// Seed of the dice.
    pub seed: u64,
}

impl Plan {
    /// These targets, in this order, with the default policies.
    #[must_use]
    pub fn new(route: RouteName, targets: Vec<Arc<Target>>) -> Self {
        let injection = InjectionPolicy::default();
        Self {
            route,
            targets,
            retry: RetryPolicy::default(),
            injection_mode: injection.mode,
            injection,
            select: SelectPolicy::default(),
            timers: TimersPolicy::default(),
            hedge: HedgePolicy::default(),
            seed: 0,
        }
    }
}

/// What an earlier owner made of an invocation, for the one that goes on with it.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// The attempts that were made. Where the last one failed, what follows is decided as after any failure.
    pub attempts: Vec<AttemptRecord>,
    /// What followers of the invocation hold.
    pub blocks: Vec<Block>,
    /// The highest number that a block had; 0 where there was none.
    pub last_block: u32,
    /// The answer that was being made in the background for what followers hold, and that may be read on.
    pub upstream: Option<UpstreamHandle>,
}

/// What one invocation shares with all its layers.
#[derive(Debug)]
pub struct Scope {
    /// What was asked.
    pub invocation: Arc<Invocation>,
    /// How it is served.
    pub plan: Arc<Plan>,
    /// When it came in.
    pub started: Instant,
    /// Where its spans hang.
    pub trace: InvocationTrace,
    events: EventBus,
    told_of: Arc<EventScope>,
    attempts: Mutex<Vec<AttemptRecord>>,
    sent: Mutex<Option<Arc<ModelCall>>>,
    steps: mpsc::UnboundedSender<Progress>,
    steps_out: Mutex<Option<mpsc::UnboundedReceiver<Progress>>>,
    /// The target whose gate this invocation has stood in line for, and may pass.
    turn: Mutex<Option<TargetId>>,
    before: Mutex<Before>,
    cancel: Cancel,
    tether: Tether,
}

// === impl Scope ===

impl Scope {
    /// The scope of a new invocation.
    pub fn new(invocation: Arc<Invocation>, plan: Arc<Plan>, trace: InvocationTrace, events: EventBus) -> Self {
        let told_of = Arc::new(EventScope {
            invocation: invocation.id.clone(),
            thread: invocation.thread.clone(),
            tenant: invocation.tenant.clone(),
            route: plan.route.clone(),
            operation: invocation.operation.clone(),
            labels: invocation.labels.clone(),
            trace_id: trace.trace_id(),
        });
        // Unbounded is bounded here: every attempt says at most a handful of things, and attempts are few.
        let (steps, steps_out) = mpsc::unbounded_channel();
        Self {
            invocation,
            plan,
            started: Instant::now(),
            trace,
            events,
            told_of,
            attempts: Mutex::new(Vec::new()),
            sent: Mutex::new(None),
            steps,
            steps_out: Mutex::new(Some(steps_out)),
            turn: Mutex::new(None),
            before: Mutex::default(),
            cancel: Cancel::default(),
            tether: Tether::default(),
        }
    }

    /// The same, of an invocation that an earlier owner began.
    #[must_use]
    pub fn after(mut self, before: Before) -> Self {
        self.attempts = Mutex::new(before.attempts.clone());
        self.before = Mutex::new(before);
        self
    }

    /// The same, listening to this wish that it be ended.
    #[must_use]
    pub fn until(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// The same, tied by this to answers that are made in the background.
    #[must_use]
    pub fn tied_by(mut self, tether: Tether) -> Self {
        self.tether = tether;
        self
    }

    /// What an earlier owner made of it; the planner takes it once.
    pub fn take_before(&self) -> Before {
        std::mem::take(&mut self.before.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What ties it to answers that are made in the background.
    pub fn tether(&self) -> &Tether {
        &self.tether
    }

    /// Whether somebody wants it ended.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Publishes what happened to this invocation.
    pub fn publish(&self, attempt: u32, target: Option<&TargetId>, body: EventBody) {
        self.events.publish(Some(Arc::clone(&self.told_of)), attempt, target.cloned(), body);
    }

    /// Says something to whoever follows this invocation.
    pub fn tell(&self, step: Progress) {
        // Nobody listens once the invocation is over; then nothing needs to be said.
        let _ = self.steps.send(step);
    }

    /// Where what layers below say comes out; the planner takes it once.
    pub fn take_steps(&self) -> Option<mpsc::UnboundedReceiver<Progress>> {
        self.steps_out.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// It stood in line for a target, and its turn came.
    pub fn let_pass(&self, target: &TargetId) {
        *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.clone());
    }

    /// Whether it is its turn at a target.
    pub fn may_pass(&self, target: &TargetId) -> bool {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(target)
    }

    /// Takes its turn at a target, once.
    pub fn takes_turn(&self, target: &TargetId) -> bool {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).take().as_ref() == Some(target)
    }

    /// Begins an attempt and returns its number, from 1.
    pub fn begin(&self, cause: AttemptCause, target: &Target, wait: Option<Wait>) -> u32 {
        let mut attempts = self.lock();
        let number = u32::try_from(attempts.len()).unwrap_or(u32::MAX).saturating_add(1);
        attempts.push(AttemptRecord {
            number,
            cause,
            target: Some(target.id.clone()),
            model: target.model.to_string(),
            started_at: clock::wall_now(),
            wait,
            duration: Duration::ZERO,
            first_token: None,
            sent: false,
            failure: None,
            note: None,
            injection_skipped: None,
            note_refused: false,
            adaptation: None,
            usage: Usage::default(),
            trace_id: self.told_of.trace_id.clone(),
            span_id: String::new(),
            upstream_request_id: String::new(),
            winner: false,
        });
        drop(attempts);
        let model = target.model.to_string();
        self.tell(Progress::AttemptStarted { attempt: number, target: target.id.clone(), cause, model });
        number
    }

    /// The number that the next attempt will have.
    pub fn next_number(&self) -> u32 {
        u32::try_from(self.lock().len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Writes down what was learnt of an attempt.
    pub fn learn(&self, number: u32, write: impl FnOnce(&mut AttemptRecord)) {
        if let Some(record) = self.lock().iter_mut().find(|record| record.number == number) {
            write(record);
        }
    }

    /// Remembers what the newest attempt sends.
    pub fn sends(&self, call: &Arc<ModelCall>) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(call));
    }

    /// What the newest attempt sent.
    pub fn sent(&self) -> Option<Arc<ModelCall>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known of an attempt.
    pub fn record(&self, number: u32) -> Option<AttemptRecord> {
        self.lock().iter().find(|record| record.number == number).cloned()
    }

    /// Every attempt so far.
    pub fn attempts(&self) -> Vec<AttemptRecord> {
        self.lock().clone()
    }

    /// Attempts that were sent, or that failed for a real reason: what the allowance counts. One that reads on what an
    /// earlier owner had asked for asks for nothing, and is not counted.
    pub fn counted_attempts(&self) -> u32 {
        let counts = |record: &&AttemptRecord| !record.refused_locally() && !record.cause.asks_for_nothing();
        let counted = self.lock().iter().filter(counts).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// The real failures so far, oldest first; local refusals are not among them.
    pub fn failures(&self) -> Vec<Failure> {
        let attempts = self.lock();
        let failures = attempts.iter().filter(|record| !record.refused_locally());
        failures.filter_map(|record| record.failure.clone()).collect()
    }

    /// What all attempts cost together.
    pub fn usage(&self) -> Usage {
        self.lock().iter().fold(Usage::default(), |sum, record| sum.plus(record.usage))
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
            result,
            attempts,
            recovery_applied,
            reasoning: reasoning.into(),
            alternatives: Vec::new(),
            usage: self.usage(),
            history_patch: HistoryPatch::default(),
            target,
            stopped_by: None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AttemptRecord>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
