//! The circuit breaker's pure core: it stops calls to a target that fails, probes it, and lets calls back in stages.
//!
//! Three things make it differ from a counter of errors. Evidence is taken in the order in which calls were *admitted*, since
//! errors are fast and answers slow. Every change of state begins a new *generation*, and what a call of an earlier one
//! reports changes nothing. And a target that says nothing at all is seen: silence beyond the first-token timeout is
//! a failure, and callers who give up one after the other without anybody being answered open it too. Slow answers never
//! do: they are called *degraded*, which prefers other targets but rejects nobody.
//!
//! It has no clock, no dice and no lock, and never waits: all three are the layer's. It counts nothing that says nothing
//! about the target: a caller's mistakes, limits, early cancels and Relight's own refusals leave no trace.

mod course;
mod ledger;
mod recovery;
mod setting;
mod signal;
mod tally;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::{
    ledger::Ledger,
    recovery::{Probes, Ramp},
    tally::{Sliding, Tally},
};
pub use self::{
    setting::{CircuitMode, CircuitPolicy},
    signal::{FailKind, Signal, signal_for},
};
use crate::domain::event::Evidence;

/// A circuit's state as people and metrics see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// Everything is admitted.
    Closed,
    /// Nothing is admitted until a time.
    Open,
    /// A few probes are admitted.
    HalfOpen,
    /// A share is admitted, in stages.
    Recovering,
    /// Held open by an operator.
    ForcedOpen,
    /// Held closed by an operator; evidence is counted and changes nothing.
    ForcedClosed,
}

/// What an operator demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forced {
    /// Admit nothing.
    Open,
    /// Admit everything.
    Closed,
    /// Judge by evidence again: after `Open` by probing first.
    Auto,
}

/// Whether a call would be admitted now, without taking anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// Worth trying; the answer of [`Circuit::admit`] decides.
    Ready,
    /// Not now.
    Wait {
        /// When to ask again at the earliest; `None` while an operator holds it open.
        retry_in: Option<Duration>,
    },
}

/// A call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// When to ask again at the earliest; a guess while an operator holds the circuit open.
    pub retry_in: Duration,
}

/// Leave for one attempt. It must be reported; a guard that drops it reports [`Signal::Abandoned`].
#[derive(Debug)]
pub struct Permit {
    generation: u64,
    seq: u64,
    kind: PermitKind,
    /// What was reported already: one verdict before the first token, one after it.
    phase: AtomicU8,
}

/// What a permit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitKind {
    /// A call like any other.
    Normal,
    /// A probe of a half-open circuit; the number of its lease.
    Probe(u64),
}

/// The world at the time of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportContext {
    /// The time.
    pub now: Instant,
    /// A random number, 0 to 1.
    pub dice: f64,
    /// Whether another target could take the calls.
    pub alternative_healthy: bool,
}

/// A change that others want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The circuit opened; it is no longer called degraded.
    Opened {
        /// On what.
        evidence: Evidence,
        /// How long nothing is admitted.
        retry_in: Duration,
        /// Why, in words; begins with `local` when the cause lies on this host, so that it is no vote for others.
        reason: &'static str,
    },
    /// The first probe goes out.
    HalfOpen,
    /// A stage of recovery began.
    Recovering {
        /// The share admitted, in percent.
        admitted_percent: u32,
    },
    /// The circuit closed.
    Closed,
    /// A closed or recovering circuit is, or is no longer, degraded: prefer other targets, hedge, halve concurrency.
    Degraded(bool),
}

/// What a circuit looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitSnapshot {
    /// The state.
    pub state: CircuitState,
    /// How often the state changed.
    pub generation: u64,
    /// How long until calls may come through; `None` when they may now, or while an operator holds it open.
    pub retry_in: Option<Duration>,
    /// Whether other targets are preferable.
    pub degraded: bool,
    /// Outcomes in the window.
    pub evidence: Evidence,
    /// Recoveries that failed since the circuit was last closed.
    pub streak: u32,
    /// Reports that came too late to change anything.
    pub stale_reports: u64,
    /// Probes that are out.
    pub probes_outstanding: u32,
}

/// The breaker of one target.
///
/// Memory: at most `max_pending` attempts of 40 bytes, and a few hundred counters.
#[derive(Debug)]
pub struct Circuit {
    policy: Arc<CircuitPolicy>,
    state: State,
    generation: u64,
    streak: u32,
    ledger: Ledger,
    tally: Tally,
    arrivals: Sliding<u32>,
    degraded: bool,
    stale_reports: u64,
    /// Time never runs backwards here, even when callers read their clocks before they got the lock.
    latest: Option<Instant>,
    dice: f64,
    alternative_healthy: bool,
    /// Changes that nobody has heard of yet.
    outbox: Vec<Transition>,
}

#[derive(Debug)]
enum State {
    Closed,
    Open { until: Instant },
    HalfOpen(Probes),
    Recovering(Ramp),
    ForcedOpen,
    ForcedClosed,
}

const UNREPORTED: u8 = 0;
const ANSWERED: u8 = 1;
const ENDED: u8 = 2;

// === impl Circuit ===

impl Circuit {
    /// A closed circuit without evidence.
    #[must_use]
    pub fn new(policy: Arc<CircuitPolicy>) -> Self {
        Self {
            state: State::Closed,
            generation: 0,
            streak: 0,
            ledger: Ledger::default(),
            tally: Tally::new(&policy),
            arrivals: Sliding::new(policy.window),
            degraded: false,
            stale_reports: 0,
            latest: None,
            dice: 0.5,
            alternative_healthy: false,
            outbox: Vec::new(),
            policy,
        }
    }

    /// Takes new settings; state, open time, leases and streak stay. Evidence starts anew where it was counted differently.
    pub fn set_policy(&mut self, policy: Arc<CircuitPolicy>) {
        let old = std::mem::replace(&mut self.policy, policy);
        if old.window != self.policy.window || old.mode != self.policy.mode {
            self.arrivals = Sliding::new(self.policy.window);
            self.forget();
        }
        if self.policy.mode == CircuitMode::Off && !matches!(self.state, State::Closed) {
            self.close();
        }
    }

    /// Whether a call would be admitted. Takes no permit; what is overdue is settled first.
    pub fn peek(&mut self, now: Instant, alternative_healthy: bool) -> Peek {
        self.alternative_healthy = alternative_healthy;
        let now = self.settle(now);
        match &self.state {
            State::Closed | State::ForcedClosed | State::Recovering(_) => Peek::Ready,
            State::ForcedOpen => Peek::Wait { retry_in: None },
            State::Open { until } => wait_until(now, *until),
            State::HalfOpen(probes) => wait_until(now, self.half_open_retry(probes, now)),
        }
    }

    /// Admits a call, or says when to come back. A circuit whose open time is over sends the call as a probe.
    ///
    /// What changed is kept for [`Circuit::drain`] and the next report.
    ///
    /// # Errors
    /// [`Reject`] when the circuit is open, its probes are out, or the call is beyond the share of a recovery's stage.
    pub fn admit(&mut self, now: Instant, dice: f64) -> Result<Permit, Reject> {
        self.dice = dice;
        let now = self.settle(now);
        if let State::Open { until } = self.state
            && now >= until
        {
            self.enter(State::HalfOpen(Probes::default()));
            self.outbox.push(Transition::HalfOpen);
        }
        let half_open_retry = match &self.state {
            State::HalfOpen(probes) => self.half_open_retry(probes, now),
            State::Closed | State::Open { .. } | State::Recovering(_) | State::ForcedOpen | State::ForcedClosed => now,
        };
        match &mut self.state {
            State::Closed | State::ForcedClosed => Ok(self.permit(now)),
            State::ForcedOpen => Err(Reject { retry_in: self.policy.open_max_slow }),
            State::Open { until } => Err(Reject { retry_in: until.saturating_duration_since(now) }),
            State::HalfOpen(probes) => {
                if half_open_retry > now {
                    return Err(Reject { retry_in: half_open_retry - now });
                }
                let seq = self.ledger.skip();
                probes.grant(now, seq, &self.policy);
                Ok(Permit::new(self.generation, seq, PermitKind::Probe(seq)))
            }
            State::Recovering(ramp) => {
                if ramp.admits(&self.policy) {
                    return Ok(self.permit(now));
                }
                let soon = ramp.ends_at(&self.policy).saturating_duration_since(now);
                Err(Reject { retry_in: soon.max(SOON) })
            }
        }
    }

    /// Takes what an attempt tells. The first verdict of a permit wins, and after a first token one failure more (the
    /// answer was cut); everything else about it is ignored, and so is every report of an earlier generation.
    pub fn report(&mut self, permit: &Permit, signal: Signal, context: ReportContext) -> Vec<Transition> {
        self.dice = context.dice;
        self.alternative_healthy = context.alternative_healthy;
        // What is overdue is overdue, even when its report is just coming in.
        let now = self.settle(context.now);
        match permit.first_of_its_phase(signal) {
            None => {}
            Some(_) if permit.generation != self.generation => self.stale_reports += 1,
            Some(was) => self.take(permit, signal, was == ANSWERED, now),
        }
        self.drain()
    }

    /// Settles what is overdue: silent attempts, expired leases, a stage whose time is over.
    pub fn tick(&mut self, now: Instant, dice: f64, alternative_healthy: bool) -> Vec<Transition> {
        self.dice = dice;
        self.alternative_healthy = alternative_healthy;
        self.settle(now);
        self.drain()
    }

    /// The changes that nobody has heard of yet; empty and free of cost when there are none. Ask after `peek` and `admit`.
    pub fn drain(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.outbox)
    }

    /// Does what an operator demands.
    pub fn force(&mut self, forced: Forced, now: Instant) -> Vec<Transition> {
        let now = self.settle(now);
        match forced {
            Forced::Open => {
                let opened = Transition::Opened {
                    evidence: self.evidence(),
                    retry_in: self.policy.open_max_slow,
                    reason: "forced by an operator",
                };
                self.enter(State::ForcedOpen);
                self.outbox.push(opened);
            }
            Forced::Closed => {
                self.enter(State::ForcedClosed);
                self.streak = 0;
                self.outbox.push(Transition::Closed);
            }
            Forced::Auto => match self.state {
                // The target may still be ill: the next call is a probe.
                State::ForcedOpen => self.enter(State::Open { until: now }),
                State::ForcedClosed => self.enter(State::Closed),
                State::Closed | State::Open { .. } | State::HalfOpen(_) | State::Recovering(_) => {}
            },
        }
        self.drain()
    }

    /// Closes the circuit, whatever held it open, and forgets its evidence.
    pub fn reset(&mut self, now: Instant) -> Vec<Transition> {
        self.settle(now);
        self.close();
        self.drain()
    }

    /// What the circuit looks like.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> CircuitSnapshot {
        let retry_at = match &self.state {
            State::Open { until } => Some(*until),
            State::HalfOpen(probes) => Some(self.half_open_retry(probes, now)),
            State::Closed | State::Recovering(_) | State::ForcedOpen | State::ForcedClosed => None,
        };
        let probes_outstanding = match &self.state {
            State::HalfOpen(probes) => probes.outstanding(),
            State::Closed | State::Open { .. } | State::Recovering(_) | State::ForcedOpen | State::ForcedClosed => 0,
        };
        CircuitSnapshot {
            state: self.state(),
            generation: self.generation,
            retry_in: retry_at.map(|at| at.saturating_duration_since(now)).filter(|wait| !wait.is_zero()),
            degraded: self.degraded,
            evidence: self.evidence(),
            streak: self.streak,
            stale_reports: self.stale_reports,
            probes_outstanding,
        }
    }

    /// When a parked caller may be released to ask again; `None` while an operator holds the circuit open.
    #[must_use]
    pub fn next_probe_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Closed | State::Recovering(_) | State::ForcedClosed => Some(now),
            State::Open { until } => Some(now.max(*until)),
            State::HalfOpen(probes) => Some(probes.next_at(now, &self.policy)),
            State::ForcedOpen => None,
        }
    }

    /// When [`Circuit::tick`] has something to settle even if nobody calls; `None` when it has nothing.
    #[must_use]
    pub fn next_tick_at(&self) -> Option<Instant> {
        match &self.state {
            State::Closed | State::ForcedClosed => self.ledger.next_overdue(self.policy.first_token_timeout),
            State::Recovering(ramp) => {
                let overdue = self.ledger.next_overdue(self.policy.first_token_timeout);
                let ends = ramp.ends_at(&self.policy);
                Some(overdue.map_or(ends, |overdue| overdue.min(ends)))
            }
            State::HalfOpen(probes) => probes.next_expiry(),
            State::Open { .. } | State::ForcedOpen => None,
        }
    }

    /// State and generation in one word, for an atomic that can be read without the lock.
    #[must_use]
    pub fn mirror(&self) -> u64 {
        (self.generation << 3) | self.state() as u64
    }

    /// Whether a [`Circuit::mirror`] says that everything is admitted.
    #[must_use]
    pub const fn mirror_is_closed(mirror: u64) -> bool {
        let state = mirror & 0b111;
        state == CircuitState::Closed as u64 || state == CircuitState::ForcedClosed as u64
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> CircuitState {
        match self.state {
            State::Closed => CircuitState::Closed,
            State::Open { .. } => CircuitState::Open,
            State::HalfOpen(_) => CircuitState::HalfOpen,
            State::Recovering(_) => CircuitState::Recovering,
            State::ForcedOpen => CircuitState::ForcedOpen,
            State::ForcedClosed => CircuitState::ForcedClosed,
        }
    }

    /// Whether other targets are preferable.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// The settings in force.
    #[must_use]
    pub fn policy(&self) -> &CircuitPolicy {
        &self.policy
    }
}

// === impl CircuitState ===

impl CircuitState {
    /// The state's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Recovering => "recovering",
            Self::ForcedOpen => "forced_open",
            Self::ForcedClosed => "forced_closed",
        }
    }
}

// === impl Permit ===

impl Permit {
    fn new(generation: u64, seq: u64, kind: PermitKind) -> Self {
        Self { generation, seq, kind, phase: AtomicU8::new(UNREPORTED) }
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> PermitKind {
        self.kind
    }

    /// Whether the attempt probes a half-open circuit.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        matches!(self.kind, PermitKind::Probe(_))
    }

    /// The generation in which it was given.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The phase before this report, if the report is the first that counts in it.
    fn first_of_its_phase(&self, signal: Signal) -> Option<u8> {
        let next = if signal == Signal::FirstToken { ANSWERED } else { ENDED };
        let was = self.phase.fetch_max(next, Ordering::Relaxed);
        match (was, signal) {
            (UNREPORTED, _) | (ANSWERED, Signal::Failed { local_origin: false, .. }) => Some(was),
            _ => None,
        }
    }
}

/// How soon a call that is beyond the share of a stage may come back at the earliest.
const SOON: Duration = Duration::from_millis(50);

fn wait_until(now: Instant, at: Instant) -> Peek {
    if at <= now { Peek::Ready } else { Peek::Wait { retry_in: Some(at - now) } }
}
