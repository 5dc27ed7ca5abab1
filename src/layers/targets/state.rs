//! What is known of one target: its circuit, gates, budget, slots and latencies, each behind its own short lock.
//!
//! Every move of a circuit or gate is published once, here, and wakes whoever is parked for it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::{sync::Notify, time::Instant};

use crate::layers::{
    concurrency::Slots,
    observe::millis,
    spans::{AttemptTrace, Choice},
};
use crate::{
    domain::{
        event::{EventBody, GateKind},
        failure::{FailureClass, WaitSource},
        target::Target,
    },
    events::EventBus,
    policy::{
        circuit::{Circuit, Forced, Moved, Peek, Permit, Reject, Transition},
        gates::{Gate, GateChange},
        hedge::HedgeShare,
        latency::Latency,
        retry::Availability,
        retry_budget::RetryBudget,
    },
};

/// A gate that several targets share.
#[derive(Debug)]
pub(super) struct SharedGate {
    pub(super) gate: Mutex<Gate>,
    /// Whoever holds it is the next to pass; it is handed on in the order in which callers came.
    turn: tokio::sync::Mutex<()>,
    /// How many callers stand in line.
    waiting: AtomicU32,
}

/// A place in the line before a gate.
struct InLine<'a>(&'a SharedGate);

// === impl SharedGate ===

impl SharedGate {
    pub(super) fn new(gate: Gate) -> Self {
        Self { gate: Mutex::new(gate), turn: tokio::sync::Mutex::new(()), waiting: AtomicU32::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands in line until this caller may pass, and passes. Cancel safe: whoever goes away leaves his place.
    pub(super) async fn pass_in_turn(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _in_line = InLine(self);
        let _turn = self.turn.lock().await;
        loop {
            let passed = self.lock().admit(Instant::now());
            match passed {
                Ok(_) => return,
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What went wrong at a target.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// The failure that counted last against its circuit.
    told: Option<FailureClass>,
    /// The failure that opened its circuit last.
    opened: Option<FailureClass>,
}

/// What is known of one target.
#[derive(Debug)]
pub struct TargetState {
    /// The target.
    pub target: Arc<Target>,
    /// Its slots.
    pub slots: Slots,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) rate: Arc<SharedGate>,
    pub(super) credential: Arc<SharedGate>,
    pub(super) configuration: Arc<SharedGate>,
    pub(super) budget: Mutex<RetryBudget>,
    pub(super) latency: Mutex<Latency>,
    pub(super) whole: Mutex<Latency>,
    pub(super) hedges: Mutex<HedgeShare>,
    pub(super) note_refused: AtomicBool,
    /// When it became known, on both clocks.
    pub(super) known_since: (Instant, Timestamp),
    pub(super) causes: Mutex<Causes>,
    pub(super) changed: Notify,
    pub(super) events: EventBus,
}

// === impl TargetState ===

impl TargetState {
    /// The circuit. Held shortly, never across an await.
    pub fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latency samples. Held shortly.
    pub fn latency(&self) -> MutexGuard<'_, Latency> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long whole answers take, for whoever has little time left. Held shortly.
    pub fn whole(&self) -> MutexGuard<'_, Latency> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and asks whether a hedge is within the share of calls that may have one.
    pub fn may_hedge(&self, now: Instant, max_share: f64) -> bool {
        self.hedges.lock().unwrap_or_else(PoisonError::into_inner).try_hedge(now, max_share)
    }

    /// Counts a call, as the base of the share of hedges.
    pub fn called(&self, now: Instant) {
        self.hedges.lock().unwrap_or_else(PoisonError::into_inner).call_started(now);
    }

    /// Tells an attempt's span why this target was chosen, and in which state.
    pub fn say_chosen(&self, trace: &AttemptTrace, now: Instant, reason: &str) {
        let circuit = self.circuit().snapshot(now).state;
        let budget_left = Some(self.budget().level(now));
        trace.chose(Choice { target: &self.target.id, circuit: circuit.as_str(), budget_left, reason });
    }

    /// What is left in the budget, in tokens.
    pub fn budget_left(&self, now: Instant) -> f64 {
        self.budget().level(now)
    }

    /// What the full budget holds, in tokens.
    pub fn budget_capacity(&self) -> f64 {
        self.budget().capacity()
    }

    /// The gates with their kinds.
    pub(super) fn gates(&self) -> [(GateKind, &Arc<SharedGate>); 3] {
        [
            (GateKind::Rate, &self.rate),
            (GateKind::Credential, &self.credential),
            (GateKind::Configuration, &self.configuration),
        ]
    }

    /// Looks through a gate: how long it stays closed, if it is.
    pub fn gate_closed_for(&self, kind: GateKind, now: Instant) -> Option<Duration> {
        self.gate(kind).peek(now).err()
    }

    /// What closed the gate that is closed, if one is.
    pub fn closed_for(&self, now: Instant) -> Option<FailureClass> {
        let closed = self.gates().into_iter().find(|(kind, _)| self.gate_closed_for(*kind, now).is_some())?;
        closed.1.lock().class()
    }

    /// A gate. Held shortly, never across an await.
    pub fn gate(&self, kind: GateKind) -> MutexGuard<'_, Gate> {
        let gate = match kind {
            GateKind::Rate => &self.rate,
            GateKind::Credential => &self.credential,
            GateKind::Configuration => &self.configuration,
        };
        gate.lock()
    }

    /// Whether callers pass the rate gate one at a time, and stand in line before it.
    pub(super) fn has_line(&self, now: Instant) -> bool {
        self.rate.lock().is_paced(now)
    }

    /// Whether, and how long, somebody who comes now has to wait before the rate gate.
    fn line_for(&self, now: Instant) -> Option<Duration> {
        let waiting = self.rate.waiting.load(Ordering::Relaxed);
        self.rate.lock().peek_after(now, waiting).err()
    }

    /// When the target may be asked, as far as gates and circuit go; `in_turn`: by somebody who stood in line.
    pub fn availability(&self, now: Instant, in_turn: bool) -> Availability {
        let gates = [GateKind::Rate, GateKind::Credential, GateKind::Configuration];
        let closed = gates.into_iter().filter_map(|kind| self.gate_closed_for(kind, now)).max();
        let closed = if in_turn { closed } else { closed.max(self.line_for(now)) };
        let circuit = match self.peek(now) {
            Peek::Ready => None,
            Peek::Wait { retry_in: Some(retry_in) } => Some(retry_in),
            Peek::Wait { retry_in: None } => return Availability::Never,
        };
        match closed.max(circuit) {
            None => Availability::Now,
            Some(wait) => Availability::At(now + wait),
        }
    }

    /// Whether its circuit is closed and not degraded.
    pub fn is_healthy(&self) -> bool {
        let circuit = self.circuit();
        circuit.state().is_closed() && !circuit.degraded()
    }

    /// Looks at the circuit without taking a permit; what is overdue is settled and published.
    pub fn peek(&self, now: Instant) -> Peek {
        let (peek, transitions) = {
            let mut circuit = self.circuit();
            (circuit.peek(now, false), circuit.drain())
        };
        self.moved(transitions, None);
        peek
    }

    /// Asks the circuit for a permit.
    pub fn admit(&self, now: Instant, dice: f64) -> Result<Permit, Reject> {
        let (admitted, transitions) = {
            let mut circuit = self.circuit();
            (circuit.admit(now, dice), circuit.drain())
        };
        self.moved(transitions, None);
        admitted
    }

    /// Publishes how the circuit moved, and wakes whoever waits for it; `cause`: the class of the failure that was just
    /// reported, where one was.
    pub fn moved(&self, moves: Vec<Moved>, cause: Option<FailureClass>) {
        for moved in moves {
            let Some(body) = self.body_of(&moved, cause) else { continue };
            self.events.publish(None, 0, Some(self.target.id.clone()), body);
            self.changed.notify_waiters();
        }
    }

    fn body_of(&self, moved: &Moved, cause: Option<FailureClass>) -> Option<EventBody> {
        let Moved { generation, from, evidence, streak, forced, .. } = *moved;
        Some(match moved.transition {
            Transition::Opened { evidence, retry_in, reason } => {
                let silence = evidence.slow * 2 > evidence.failures;
                // A probe that is silent says nothing of slots, and neither does an operator.
                if !forced && (!silence || evidence.failures > 1) {
                    self.slots.outage(silence);
                }
                let class = self.opened_by(moved, cause);
                let (retry_in_ms, reason) = (retry_in.map(millis), reason.to_owned());
                EventBody::CircuitOpened { generation, from, evidence, retry_in_ms, reason, class, streak, forced }
            }
            Transition::HalfOpen => {
                let probes = self.circuit().policy().probes_at_once();
                EventBody::CircuitHalfOpen { generation, open_ms: millis(moved.lasted.unwrap_or_default()), probes }
            }
            Transition::Recovering { admitted_percent } => {
                EventBody::CircuitRecovering { generation, admitted_percent, evidence }
            }
            Transition::Closed => {
                let disturbed_ms = millis(moved.disturbed);
                EventBody::CircuitClosed { generation, from, evidence, disturbed_ms, forced }
            }
            // Other targets are preferred then (`Candidate::healthy`); nobody is refused, and no slot is taken away:
            // where there is no other target, a slow answer is better than none.
            Transition::Degraded(_) => return None,
        })
    }

    /// What tripped the circuit: the failure that was just reported; where calls were silent, that; else the failure that
    /// was told last, since evidence may have waited for the call before it. An operator is no failure.
    fn opened_by(&self, moved: &Moved, cause: Option<FailureClass>) -> Option<FailureClass> {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.opened = match cause {
            _ if moved.forced => None,
            Some(class) => Some(class),
            None if moved.silent => Some(FailureClass::Timeout),
            None => causes.told,
        };
        causes.opened
    }

    /// Remembers how the target failed last.
    pub fn failed_by(&self, class: FailureClass) {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).told = Some(class);
    }

    /// Class of the failure that opened its circuit last; `None` where none did, or an operator did.
    pub fn circuit_cause(&self) -> Option<FailureClass> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).opened
    }

    /// When its circuit came into its state; for the first state: when the target became known.
    pub fn circuit_since(&self) -> Timestamp {
        let (began, at) = self.known_since;
        let since = self.circuit().since().unwrap_or(began);
        at + since.saturating_duration_since(began)
    }

    /// Publishes how a gate moved, because of what and by whose word, and wakes whoever waits for it.
    pub fn gate_moved(&self, gate: GateKind, change: Option<GateChange>, class: FailureClass, source: WaitSource) {
        let body = match change {
            None => return,
            Some(GateChange::Closed { reopens_in }) => {
                EventBody::GateClosed { gate, reopens_in_ms: millis(reopens_in), source, class }
            }
            Some(GateChange::Opened { closed_for }) => EventBody::GateOpened { gate, closed_ms: millis(closed_for) },
        };
        self.events.publish(None, 0, Some(self.target.id.clone()), body);
        self.changed.notify_waiters();
    }

    /// An operator's word on the circuit.
    pub fn force(&self, forced: Forced) {
        let transitions = self.circuit().force(forced, Instant::now());
        self.moved(transitions, None);
    }

    /// Forgets all evidence and closes the circuit.
    pub fn reset(&self) {
        let transitions = self.circuit().reset(Instant::now());
        *self.causes.lock().unwrap_or_else(PoisonError::into_inner) = Causes::default();
        self.moved(transitions, None);
    }

    /// Whether the target refused a request because of a note.
    pub fn note_refused(&self) -> bool {
        self.note_refused.load(Ordering::Relaxed)
    }

    /// Remembers that it did.
    pub fn remember_note_refused(&self) {
        self.note_refused.store(true, Ordering::Relaxed);
    }
}
