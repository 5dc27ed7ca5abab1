//! What one invocation shares with all its layers: the request, the plan, the attempts so far.
//!
//! The scope is the invocation's only memory. Layers report to it what happens; the planner above
//! reads the records that come of it, so there is one account of what was tried.

mod allowance;
mod incoming;
mod plan;
mod unfit;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

pub use self::{
    allowance::sent_of,
    incoming::{InvocationContext, PreviousRun},
    plan::{ConversationChanges, Plan, PlannedSelection},
    unfit::UnfitAnswer,
};
use super::{
    append_only::AppendOnly,
    cancel::Cancel,
    event::Preparation,
    spans::{AttemptTrace, InvocationTrace},
    targets::KeyState,
};
use crate::{
    domain::{
        clock,
        completion::{Completion, Usage},
        event::{EventBody, EventScope},
        failure::{Failure, FailureClass},
        fold::StreamStep,
        ids::TargetId,
        invocation::{
            AttemptCause, AttemptIds, AttemptRecord, Call, HistoryPatch, InjectionRecord,
            Invocation, Outcome,
        },
        left_out::left_out,
        message::ModelCall,
        target::Target,
        tool::ExecutedTool,
        upstream::BackgroundResponses,
    },
    events::EventBus,
    policy::{gates::GatePass, texts::LANGUAGE_LABEL},
};

/// State that one invocation shares with all its layers.
#[derive(Debug)]
pub struct InvocationScope {
    /// The request.
    pub invocation: Arc<Invocation>,
    /// Plan by which it is served.
    pub plan: Arc<Plan>,
    /// Time at which it came in.
    pub started: Instant,
    /// Trace to which its spans belong.
    pub trace: InvocationTrace,
    /// A whole completion that does not fit.
    pub unfit: UnfitAnswer,
    reports: Reports,
    log: AttemptLog,
    turn: GateTurn,
    /// Beginning of the retry loop, which takes it once.
    beginning: Mutex<Option<Beginning>>,
    links: Links,
}

/// Beginning of the retry loop.
#[derive(Debug)]
pub struct Beginning {
    /// Results of an earlier owner.
    pub before: PreviousRun,
    /// Steps that are emitted from now on.
    pub steps: mpsc::UnboundedReceiver<StreamStep>,
}

/// Places to which events are reported: the bus, and the followers.
#[derive(Debug)]
struct Reports {
    events: EventBus,
    scope: Arc<EventScope>,
    steps: mpsc::UnboundedSender<StreamStep>,
}

/// The account of what was tried.
#[derive(Debug)]
struct AttemptLog {
    /// Shared with those who look, and copied only when one of them still does while it changes.
    records: Mutex<Arc<Vec<AttemptRecord>>>,
    /// The last failures of its attempts, by target and class.
    failures: Mutex<Vec<(TargetId, FailureClass, Instant)>>,
    /// Call that the newest attempt sent.
    sent: Mutex<Option<Arc<ModelCall>>>,
    /// Repairs of its history, in words.
    repaired: Mutex<Option<String>>,
    /// Bytes of its prompt; 0 if that is not compared with any window.
    prompt_bytes: AtomicU64,
}

/// The key of a target for whose gate an invocation was queued, and which it may pass.
#[derive(Debug, Default)]
struct GateTurn(Mutex<Option<(Arc<KeyState>, GatePass)>>);

/// Links to those outside who take part in the invocation.
#[derive(Debug)]
struct Links {
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
            unfit: UnfitAnswer::default(),
            reports: Reports {
                events,
                scope: event_scope,
                steps,
            },
            log: AttemptLog {
                records: Mutex::new(Arc::new(before.attempts.clone())),
                failures: Mutex::default(),
                sent: Mutex::new(None),
                repaired: Mutex::default(),
                prompt_bytes: AtomicU64::new(0),
            },
            turn: GateTurn::default(),
            beginning: Mutex::new(Some(Beginning {
                before,
                steps: steps_out,
            })),
            links: Links {
                cancel,
                background,
                append_only,
            },
        }
    }

    /// Returns the word of a front that cannot take back.
    pub fn append_only(&self) -> &AppendOnly {
        &self.links.append_only
    }

    /// Returns what the retry loop begins with; `None` if it has begun.
    pub fn begin_loop(&self) -> Option<Beginning> {
        self.beginning.lock().take()
    }

    /// Returns whether an earlier owner ran it; asked before the retry loop begins.
    pub fn was_owned(&self) -> bool {
        let beginning = self.beginning.lock();
        beginning
            .as_ref()
            .is_some_and(|beginning| beginning.before.was_owned)
    }

    /// Returns the links to responses that are made in the background.
    pub fn background(&self) -> &BackgroundResponses {
        &self.links.background
    }

    /// Returns the request for it to end.
    pub fn cancel(&self) -> &Cancel {
        &self.links.cancel
    }

    /// Publishes what happened to this invocation or to one of its attempts (0 for none).
    pub fn publish(&self, attempt: u32, target: Option<&TargetId>, body: EventBody) {
        let scope = Some(Arc::clone(&self.reports.scope));
        self.reports
            .events
            .publish(scope, attempt, target.cloned(), body);
    }

    /// Writes to the record of an attempt, if it has started.
    pub fn amend(&self, attempt: u32, change: impl FnOnce(&mut AttemptRecord)) {
        let mut attempts = self.lock();
        if let Some(index) = attempts.iter().position(|record| record.number == attempt) {
            change(&mut Arc::make_mut(&mut attempts)[index]);
        }
    }

    /// Records that an attempt fails at a target; returns the time at which the last one failed there
    /// in the same way.
    pub fn fails(&self, target: &TargetId, class: FailureClass, now: Instant) -> Option<Instant> {
        let mut failures = self.log.failures.lock();
        let alike = failures
            .iter_mut()
            .find(|(at, of, _)| at == target && *of == class);
        if let Some((_, _, last)) = alike {
            return Some(std::mem::replace(last, now));
        }
        failures.push((target.clone(), class, now));
        None
    }

    /// Emits a step to the followers of this invocation.
    pub fn emit(&self, step: StreamStep) {
        // No receiver is left once the invocation is over; then nothing needs to be sent.
        let _ = self.reports.steps.send(step);
    }

    /// It was queued for a target, and its turn came: it passed the rate gate of this key.
    pub fn grant_turn(&self, key: &Arc<KeyState>, pass: GatePass) {
        *self.turn.0.lock() = Some((Arc::clone(key), pass));
    }

    /// Returns whether it is its turn at a target.
    pub fn has_turn(&self, target: &TargetId) -> bool {
        let turn = self.turn.0.lock();
        turn.as_ref().is_some_and(|(at, _)| at.target.id == *target)
    }

    /// Returns whether it is its turn with this key.
    pub fn has_turn_with(&self, key: &KeyState) -> bool {
        let turn = self.turn.0.lock();
        turn.as_ref().is_some_and(|(at, _)| at.is(key))
    }

    /// Takes its turn with a key, once.
    pub fn take_turn(&self, key: &KeyState) -> Option<GatePass> {
        let turn = self.turn.0.lock().take();
        turn.filter(|(at, _)| at.is(key)).map(|(_, pass)| pass)
    }

    /// Returns whether its last attempt failed, and not by a limit: then it has had its turn, and
    /// need not wait in line again.
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
        let mut repaired = self.log.repaired.lock();
        let all: Vec<String> = repaired.take().into_iter().chain(words).collect();
        *repaired = (!all.is_empty()).then(|| all.join("; "));
    }

    /// Notes how long the prompt is that is sent next.
    pub fn measures(&self, prompt_bytes: u64) {
        self.log.prompt_bytes.store(prompt_bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the prompt that is sent next; 0 if that is not compared with any window.
    pub fn prompt_bytes(&self) -> u64 {
        self.log.prompt_bytes.load(Ordering::Relaxed)
    }

    /// Begins an attempt and returns its number, from 1. Its start and what led to it are reported
    /// together: followers read first that it started, readers of the bus what led to it.
    pub fn begin(
        &self,
        cause: AttemptCause,
        key: &KeyState,
        tool: Option<&ExecutedTool>,
        prepared: &Preparation,
        trace: &AttemptTrace,
    ) -> u32 {
        let target = &key.target;
        let mut attempts = self.lock();
        let number = number_after(&attempts);
        let repaired = self.unreported_changes(target, &attempts);
        let tool = tool.map(|tool| Box::new(tool.clone()));
        let model = target.model.to_string();
        let id = target.id.clone();
        let wait = prepared.wait;
        trace.begin(number, cause);
        Arc::make_mut(&mut attempts).push(AttemptRecord {
            ids: AttemptIds {
                trace_id: self.reports.scope.trace_id.clone(),
                span_id: trace.span_id(),
                ..AttemptIds::default()
            },
            wait,
            repaired: repaired.clone(),
            tool: tool.clone(),
            key: key.label.as_deref().map(str::to_owned),
            injection: InjectionRecord {
                note: prepared.note.as_ref().map(|note| note.text.clone()),
                skipped: prepared.injection_skipped.clone(),
                refused: false,
            },
            ..AttemptRecord::begun(number, cause, id.clone(), model.clone(), clock::wall_now())
        });
        drop(attempts);
        self.emit(StreamStep::AttemptStarted {
            attempt: number,
            target: id,
            cause,
            model: model.clone(),
            repaired,
            tool,
        });
        if let Some(note) = &prepared.note {
            trace.injected(note.vehicle);
            self.emit(StreamStep::ContextInjected {
                attempt: number,
                note: note.text.clone(),
                vehicle: note.vehicle.to_owned(),
                message: note.message,
            });
        }
        for event in &prepared.events {
            self.publish(number, Some(&target.id), event.clone());
        }
        let started = EventBody::AttemptStarted { cause, model, wait };
        self.publish(number, Some(&target.id), started);
        number
    }

    /// Returns the changes of the request for this target, in words, unless an earlier attempt
    /// reported them.
    fn unreported_changes(&self, target: &Target, earlier: &[AttemptRecord]) -> Option<String> {
        let repaired = self
            .log
            .repaired
            .lock()
            .clone()
            .filter(|_| earlier.is_empty());
        let left_out = match &self.invocation.call {
            Call::Model(call) => [
                call.tools_left_out(target.dialect.as_str()),
                left_out(call, target),
            ],
            Call::Tool(_) => [None, None],
        };
        let is_new = |words: &String| {
            earlier
                .iter()
                .filter_map(|record| record.repaired.as_ref())
                .all(|reported| !reported.contains(words.as_str()))
        };
        let left_out = left_out.into_iter().flatten().filter(is_new);
        let changes: Vec<String> = repaired.into_iter().chain(left_out).collect();
        (!changes.is_empty()).then(|| changes.join("; "))
    }

    /// Returns the number that the next attempt will have.
    pub fn next_number(&self) -> u32 {
        number_after(&self.lock())
    }

    /// Returns the attempt whose completion is read; of a race, the one that was kept.
    pub fn running(&self) -> Option<AttemptRecord> {
        self.lock()
            .iter()
            .rev()
            .find(|record| record.is_running())
            .cloned()
    }

    /// Ends the attempt whose completion is read with this failure, whatever its target returned. That
    /// is reported when the completion is dropped. Returns the failure with its target.
    pub fn reject(&self, mut failure: Failure) -> Failure {
        let mut attempts = self.lock();
        if let Some(record) = Arc::make_mut(&mut attempts)
            .iter_mut()
            .rev()
            .find(|record| record.is_running())
        {
            failure.target.clone_from(&record.target);
            record.failure = Some(failure.without_reply());
        }
        failure
    }

    /// Remembers what the newest attempt sends.
    pub fn sends(&self, call: &Arc<ModelCall>) {
        *self.log.sent.lock() = Some(Arc::clone(call));
    }

    /// Returns the call that the newest attempt sent.
    pub fn sent(&self) -> Option<Arc<ModelCall>> {
        self.log.sent.lock().clone()
    }

    /// Returns the known data of an attempt.
    pub fn record(&self, number: u32) -> Option<AttemptRecord> {
        self.lock()
            .iter()
            .find(|record| record.number == number)
            .cloned()
    }

    /// Returns every attempt so far.
    pub fn attempts(&self) -> Arc<Vec<AttemptRecord>> {
        Arc::clone(&self.lock())
    }

    /// Returns the real failures so far, oldest first; local refusals are not among them.
    pub fn failures(&self) -> Vec<Failure> {
        let attempts = self.lock();
        let failures = attempts.iter().filter(|record| !record.refused_locally());
        failures
            .filter_map(|record| record.failure.clone())
            .collect()
    }

    /// Returns the cost of all attempts together.
    pub fn usage(&self) -> Usage {
        self.lock()
            .iter()
            .fold(Usage::default(), |sum, record| sum.plus(record.usage))
    }

    /// Returns the end of the invocation, with everything that is known of it.
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

    fn lock(&self) -> parking_lot::MutexGuard<'_, Arc<Vec<AttemptRecord>>> {
        self.log.records.lock()
    }
}

/// Returns the number of the attempt that follows these.
fn number_after(attempts: &[AttemptRecord]) -> u32 {
    u32::try_from(attempts.len())
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}
