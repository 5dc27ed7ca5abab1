//! The state of one target: its circuit, gates, budget, slots and latencies, each behind its own
//! short lock.
//!
//! Every move of a circuit or gate is published once, here, and wakes the invocations that are
//! parked for it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use tokio::{sync::Notify, time::Instant};

use super::{shared_gate::SharedGate, slots::Slots};
use crate::layers::spans::{AttemptTrace, TargetChoice};
use crate::{
    domain::{
        circuit::GateKind,
        event::{EventBody, millis},
        failure::FailureClass,
        target::Target,
    },
    events::EventBus,
    policy::{
        circuit::{Circuit, Forced, Peek, Permit, Reject, Transition, TransitionKind},
        health::Health,
        hedge::HedgeShare,
        latency::Latency,
        retry::Availability,
        retry_budget::RetryBudget,
    },
};

/// Longest reason of an operator that is kept, in characters.
const MAX_REASON_CHARS: usize = 200;

/// The last failures of a target.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// The failure that counted last against its circuit.
    reported: Option<FailureClass>,
    /// The failure that opened its circuit last.
    opened: Option<FailureClass>,
    /// Why an operator forced its circuit, in the operator's words.
    forced_for: String,
    /// The operator's name, where operators are authenticated.
    forced_by: Option<String>,
}

/// The state of one target, shared by all invocations.
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
    pub(super) health: Mutex<Health>,
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
    /// The circuit. The lock is held briefly and not across an await.
    pub fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its last attempts succeeded. The lock is held briefly.
    pub fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latency samples. Held shortly.
    pub fn latency(&self) -> MutexGuard<'_, Latency> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long complete answers take, for invocations with little time left. The lock is held
    /// briefly.
    pub fn whole(&self) -> MutexGuard<'_, Latency> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a hedge where it is within the share of calls that may have one, and returns whether
    /// it is.
    pub fn may_hedge(&self, now: Instant, max_share: f64) -> bool {
        self.hedges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .try_hedge(now, max_share)
    }

    /// Counts a call, as the base of the share of hedges.
    pub fn called(&self, now: Instant) {
        self.hedges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .call_started(now);
    }

    /// Writes into an attempt's span why this target was chosen, and in which state; nothing else
    /// has that.
    pub fn trace_choice(&self, trace: &AttemptTrace, now: Instant, reason: &str) {
        let circuit = self.circuit().snapshot(now).state;
        let budget_left = Some(self.budget().level(now));
        trace.chose(TargetChoice {
            target: &self.target.id,
            circuit: circuit.as_str(),
            budget_left,
            reason,
        });
    }

    /// What is left in the budget, in tokens.
    pub fn budget_left(&self, now: Instant) -> f64 {
        self.budget().level(now)
    }

    /// What the full budget holds, in tokens.
    pub fn budget_capacity(&self) -> f64 {
        self.budget().capacity()
    }

    /// When the target may be called, as far as gates and circuit decide; `in_turn`: by a call that
    /// need not be queued.
    pub fn availability(&self, now: Instant, in_turn: bool) -> Availability {
        // Time does not mend a refused key, a used-up quota or a model that does not exist.
        if self.refusal(now).is_some() {
            return Availability::Never;
        }
        let closed = self.gate_closed_for(GateKind::Rate, now);
        let closed = if in_turn {
            closed
        } else {
            closed.max(self.line_for(now))
        };
        let circuit = match self.peek(now) {
            Peek::Ready => None,
            Peek::Wait {
                retry_in: Some(retry_in),
            } => Some(retry_in),
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

    /// Requests a permit of the circuit.
    pub fn admit(&self, now: Instant, rng: f64) -> Result<Permit, Reject> {
        let (admitted, transitions) = {
            let mut circuit = self.circuit();
            (circuit.admit(now, rng), circuit.drain())
        };
        self.moved(transitions, None);
        admitted
    }

    /// Publishes how the circuit moved, and wakes the invocations that wait for it; `cause`: the
    /// class of the failure that was just reported, where one was.
    pub fn moved(&self, moves: Vec<Transition>, cause: Option<FailureClass>) {
        for moved in moves {
            let Some(body) = self.body_of(&moved, cause) else {
                continue;
            };
            self.events
                .publish(None, 0, Some(self.target.id.clone()), body);
            self.changed.notify_waiters();
        }
    }

    fn body_of(&self, moved: &Transition, cause: Option<FailureClass>) -> Option<EventBody> {
        let Transition {
            generation,
            from,
            evidence,
            streak,
            forced,
            ..
        } = *moved;
        Some(match moved.kind {
            TransitionKind::Opened {
                evidence,
                retry_in,
                reason,
            } => {
                let silence = evidence.slow * 2 > evidence.failures;
                // A silent probe shows nothing about slots, and neither does an operator.
                if !forced && (!silence || evidence.failures > 1) {
                    self.slots.outage(silence);
                }
                let class = self.opened_by(moved, cause);
                let reason = if forced {
                    self.forced_by_words()
                } else {
                    reason.to_owned()
                };
                let retry_in_ms = retry_in.map(millis);
                EventBody::CircuitOpened {
                    generation,
                    from,
                    evidence,
                    retry_in_ms,
                    reason,
                    class,
                    streak,
                    forced,
                }
            }
            TransitionKind::HalfOpen => {
                let probes = self.circuit().policy().probes_at_once();
                EventBody::CircuitHalfOpen {
                    generation,
                    open_ms: millis(moved.lasted.unwrap_or_default()),
                    probes,
                }
            }
            TransitionKind::Recovering { admitted_percent } => EventBody::CircuitRecovering {
                generation,
                admitted_percent,
                evidence,
            },
            TransitionKind::Closed => {
                let disturbed_ms = millis(moved.disturbed);
                EventBody::CircuitClosed {
                    generation,
                    from,
                    evidence,
                    disturbed_ms,
                    forced,
                }
            }
            // Other targets are preferred then (`Candidate::healthy`); no call is refused, and no
            // slot is taken away: where there is no other target, a slow answer is better than
            // none.
            TransitionKind::Degraded(_) => return None,
        })
    }

    /// What tripped the circuit: the failure that was just reported; where calls were silent, that;
    /// else the failure that was reported last, since evidence may have waited for the call before
    /// it. An operator is no failure.
    fn opened_by(&self, moved: &Transition, cause: Option<FailureClass>) -> Option<FailureClass> {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        causes.opened = match cause {
            _ if moved.forced => None,
            Some(class) => Some(class),
            None if moved.silent => Some(FailureClass::Timeout),
            None => causes.reported,
        };
        causes.opened
    }

    /// Remembers how the target failed last.
    pub fn failed_by(&self, class: FailureClass) {
        self.causes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reported = Some(class);
    }

    /// Class of the failure that opened its circuit last; `None` where none did, or an operator
    /// did.
    pub fn circuit_cause(&self) -> Option<FailureClass> {
        self.causes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .opened
    }

    /// When its circuit came into its state; for the first state: when the target became known.
    pub fn circuit_since(&self) -> Timestamp {
        let since = self.circuit().since();
        since.map_or(self.known_since.1, |since| self.wall_time(since))
    }

    pub(super) fn wall_time(&self, instant: Instant) -> Timestamp {
        let (began, at) = self.known_since;
        at + instant.saturating_duration_since(began)
    }

    /// That an operator forced the circuit, and why; callers do not read who it was.
    pub fn forced_words(&self) -> String {
        forced_words(
            None,
            &self
                .causes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .forced_for,
        )
    }

    /// That an operator forced the circuit, who it was, and why.
    pub fn forced_by_words(&self) -> String {
        let causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        forced_words(causes.forced_by.as_deref(), &causes.forced_for)
    }

    /// Forces the circuit for an operator: the operator's name, where known, and reason are kept.
    pub fn force(&self, forced: Forced, operator: Option<&str>, reason: &str) {
        let reason = reason
            .chars()
            .filter(|c| !c.is_control())
            .take(MAX_REASON_CHARS)
            .collect();
        {
            let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
            (causes.forced_for, causes.forced_by) = (reason, operator.map(str::to_owned));
        }
        let transitions = self.circuit().force(forced, Instant::now());
        self.moved(transitions, None);
    }

    /// Forgets all evidence, closes the circuit and opens the gates.
    pub fn reset(self: &Arc<Self>) {
        self.open_gates(&[
            GateKind::Rate,
            GateKind::Credential,
            GateKind::Configuration,
        ]);
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

fn forced_words(operator: Option<&str>, reason: &str) -> String {
    let operator = operator
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    format!("forced open by an operator{operator}{reason}")
}
