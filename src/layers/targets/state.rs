//! The state of one target: its circuit, gates, budget, slots and measures, each behind its own
//! short lock.
//!
//! Every move of a circuit or gate is published once, here, and wakes the invocations that are
//! parked for it.

use std::sync::{Arc, atomic::AtomicU32};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{
    ReplicaPart,
    causes::Causes,
    extra_attempts::ExtraAttempts,
    keys::{KeyHistory, Keys, PlaceInLine},
    notices::TargetNotices,
    observations::Observations,
    slots::Slots,
};
use crate::layers::spans::{AttemptTrace, TargetChoice};
use crate::{
    domain::{
        circuit::GateKind,
        event::{EventBody, millis},
        failure::FailureClass,
        ids::TenantId,
        target::Target,
    },
    policy::{
        circuit::{Circuit, Forced, Peek, Permit, Reject, Transition, TransitionKind},
        retry::Availability,
    },
};

/// The state of one target, shared by all invocations.
#[derive(Debug)]
pub struct TargetState {
    /// The target.
    pub target: Arc<Target>,
    /// Its slots.
    pub slots: Slots,
    /// Measures of its attempts.
    pub observed: Observations,
    /// Amount of attempts beyond the first ones that it may have.
    pub extra: ExtraAttempts,
    /// Those who hear of its moves.
    pub notices: TargetNotices,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) causes: Mutex<Causes>,
    pub(super) keys: Keys,
    /// Time at which it became known, on both clocks.
    pub(super) known_since: (Instant, Timestamp),
    /// Calls that have a place among the probes of all replicas, or ask for one.
    pub(super) probing: AtomicU32,
}

// === impl TargetState ===

impl TargetState {
    /// Returns the circuit. The lock is held briefly and not across an await.
    pub fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock()
    }

    /// Shares its budget, slots and the return of its rate limit with other replicas.
    pub(super) fn share_with(&self, part: ReplicaPart, now: Instant) {
        let ReplicaPart {
            place,
            probes_alone,
        } = part;
        self.extra
            .budget()
            .share_with(if probes_alone { 1 } else { place.live }, now);
        self.slots.share_with(place.live);
        for key in self.keys().iter() {
            key.gate(GateKind::Rate).share_with(place);
        }
    }

    /// Writes into an attempt's span why this target was chosen, and in which state; nothing else
    /// has that.
    pub fn trace_choice(&self, trace: &AttemptTrace, now: Instant, reason: &str) {
        let circuit = self.circuit().snapshot(now).state;
        let budget_left = Some(self.extra.budget_left(now));
        trace.chose(TargetChoice {
            target: &self.target.id,
            circuit: circuit.as_str(),
            budget_left,
            reason,
        });
    }

    /// Returns the context window of its model, in tokens, if it is known.
    pub fn window(&self) -> Option<u64> {
        self.target.capabilities.context_window_tokens
    }

    /// Returns whether a prompt of so many bytes surely does not fit its window.
    pub fn is_outgrown_by(&self, bytes: u64) -> bool {
        let exceeds = |window| self.observed.token_ratio().surely_exceeds(bytes, window);
        bytes > 0 && self.window().is_some_and(exceeds)
    }

    /// Returns the time at which a tenant may call the target, as far as gates and circuit decide,
    /// by a call at this place before the rate gate, after these attempts.
    pub fn availability(
        &self,
        now: Instant,
        tenant: &TenantId,
        place: PlaceInLine,
        history: KeyHistory<'_>,
    ) -> Availability {
        let gates = self.keys_available(now, tenant, place, history);
        let Some(open) = gates.ready_at(now) else {
            return Availability::Never;
        };
        match self.peek(now) {
            Peek::Ready => gates,
            Peek::Wait {
                retry_in: Some(retry_in),
            } => Availability::At(open.max(now + retry_in)),
            Peek::Wait { retry_in: None } => Availability::Never,
        }
    }

    /// Returns whether its circuit is closed and not degraded.
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

    /// Publishes the changes of the circuit, and wakes the invocations that wait for it; `cause`:
    /// the class of the failure that was just reported, if one was.
    pub fn moved(&self, moves: Vec<Transition>, cause: Option<FailureClass>) {
        for moved in moves {
            let Some(body) = self.body_of(&moved, cause) else {
                continue;
            };
            self.notices.publish(self.target.id.clone(), body);
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
                    // Silence of a target that answered as usual until then is no queue.
                    self.slots.outage(silence && moved.slowed);
                }
                let class = self.causes.lock().opened_by(moved, cause);
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
            // slot is taken away: if there is no other target, a slow answer is better than none.
            TransitionKind::Degraded(_) => return None,
        })
    }

    /// Remembers how the target failed last.
    pub fn failed_by(&self, class: FailureClass) {
        self.causes.lock().report(class);
        self.notices.to_replicas();
    }

    /// Returns the class of the failure that opened its circuit last; `None` if none did, or an
    /// operator did.
    pub fn circuit_cause(&self) -> Option<FailureClass> {
        self.causes.lock().opened()
    }

    /// Returns the time at which its circuit entered its state; for the first state: the time at
    /// which the target became known.
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
        self.causes.lock().forced_words()
    }

    /// That an operator forced the circuit, who it was, and why.
    pub fn forced_by_words(&self) -> String {
        self.causes.lock().forced_by_words()
    }

    /// Forces the circuit for an operator: the operator's name, if known, and reason are kept.
    pub fn force(&self, forced: Forced, operator: Option<&str>, reason: &str) {
        self.causes.lock().force(operator, reason);
        let transitions = self.circuit().force(forced, Instant::now());
        self.moved(transitions, None);
    }

    /// Forgets all evidence, closes the circuit and opens the gates.
    pub fn reset(self: &Arc<Self>) {
        for key in self.keys().iter() {
            self.open_gates(key, &GateKind::ALL);
        }
        let transitions = self.circuit().reset(Instant::now());
        *self.causes.lock() = Causes::default();
        self.moved(transitions, None);
    }
}
