//! The circuit breaker's pure core: it stops calls to a failing target, probes it, and readmits
//! calls in stages.
//!
//! It differs from an error counter in three ways. Outcomes are judged in the order in which their
//! calls were *admitted*, since errors are fast and answers slow. Every state change starts a new
//! *generation*, and reports from earlier generations change nothing. And a silent target is
//! detected: silence beyond the first-token timeout is a failure, and callers who give up one after
//! the other without any success in between open the circuit too. Slow answers alone do not open
//! it: they make the target *degraded*, so that other targets are preferred while none of its calls
//! is rejected.
//!
//! It has no clock, no random numbers, no lock, and does not wait: the layer provides all of these.
//! Outcomes that show nothing about the target (a caller's mistakes, limits, early cancels,
//! Relight's own refusals) leave no trace.

mod admission_queue;
mod observed;
mod outcome_window;
mod permit;
mod recovery;
mod setting;
mod shared;
mod signal;
mod suspect;
mod transition_log;
mod transitions;
mod view;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use self::{
    observed::{ObservedCalls, Openings, StatedContext},
    permit::ANSWERED,
    recovery::{HalfOpenProbes, RecoveryRamp},
    setting::WINDOW,
    suspect::Suspects,
    transition_log::{TransitionLog, Trigger},
};
pub use self::{
    permit::{Peek, Permit, Reject},
    setting::{CircuitMode, CircuitPolicy},
    shared::{SharedPhase, SharedWindow, Together, judge_together},
    signal::{FailKind, Signal},
    suspect::CallerMarks,
    view::{CircuitSnapshot, CircuitState, Forced, Transition, TransitionKind, opened_words},
};
use crate::policy::sliding::Sliding;

/// The circumstances of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportContext {
    /// The time.
    pub now: Instant,
    /// A random number, 0 to 1.
    pub rng: f64,
    /// `true` if another target could take the calls.
    pub alternative_healthy: bool,
}

/// The circuit breaker of one target.
///
/// Memory: at most 16,384 undecided attempts of 24 bytes, and a few hundred counters.
#[derive(Debug)]
pub struct Circuit {
    policy: Arc<CircuitPolicy>,
    state: State,
    generation: u64,
    degraded: bool,
    stale_reports: u64,
    calls: ObservedCalls,
    suspects: Suspects,
    openings: Openings,
    context: StatedContext,
    moves: TransitionLog,
}

#[derive(Debug)]
enum State {
    Closed,
    Open {
        until: Instant,
        /// The same if no other target serves its callers; never later.
        until_alone: Instant,
    },
    HalfOpen(HalfOpenProbes),
    Recovering(RecoveryRamp),
    ForcedOpen,
    ForcedClosed,
}

// === impl Circuit ===

impl Circuit {
    /// A closed circuit without evidence.
    #[must_use]
    pub fn new(policy: Arc<CircuitPolicy>) -> Self {
        Self {
            state: State::Closed,
            generation: 0,
            degraded: false,
            stale_reports: 0,
            calls: ObservedCalls::new(),
            suspects: Suspects::new(),
            openings: Openings::default(),
            context: StatedContext::default(),
            moves: TransitionLog::default(),
            policy,
        }
    }

    /// Applies new settings; state, open time, leases and streak stay. Evidence is reset if it was
    /// counted differently.
    pub fn set_policy(&mut self, policy: Arc<CircuitPolicy>) {
        let old = std::mem::replace(&mut self.policy, policy);
        if old.mode != self.policy.mode {
            self.calls.arrivals = Sliding::new(WINDOW);
            self.calls.forget();
        }
        // Only evidence climbs the stages of recovery, and nothing at all closes a circuit that is
        // off.
        let stuck = match self.policy.mode {
            CircuitMode::Evidence => false,
            CircuitMode::Consecutive => matches!(self.state, State::Recovering(_)),
            CircuitMode::Off => !matches!(self.state, State::Closed),
        };
        if stuck {
            self.close(Trigger::Itself);
        }
    }

    /// Returns whether a call would be admitted. Takes no permit; overdue changes are settled
    /// first.
    pub fn peek(&mut self, now: Instant, alternative_healthy: bool) -> Peek {
        self.context.alternative_healthy = alternative_healthy;
        let now = self.settle(now);
        self.update_degraded(now);
        match &self.state {
            State::Closed | State::ForcedClosed | State::Recovering(_) => Peek::Ready,
            State::ForcedOpen => Peek::Wait { retry_in: None },
            State::Open { until, .. } => wait_until(now, *until),
            State::HalfOpen(probes) => wait_until(now, self.half_open_retry(probes, now)),
        }
    }

    /// Admits a call, or returns when to retry. A circuit whose open time is over sends the call as
    /// a probe.
    ///
    /// Resulting changes are kept for [`Circuit::drain`] and the next report.
    ///
    /// # Errors
    /// [`Reject`] when the circuit is open, its probes are out, or the call exceeds the share of a
    /// recovery stage.
    pub fn admit(&mut self, now: Instant, rng: f64) -> Result<Permit, Reject> {
        self.context.rng = rng;
        let now = self.settle(now);
        if let State::Open { until, .. } = self.state
            && now >= until
        {
            self.go(
                State::HalfOpen(HalfOpenProbes::default()),
                Trigger::Itself,
                TransitionKind::HalfOpen,
            );
        }
        let half_open_retry = match &self.state {
            State::HalfOpen(probes) => self.half_open_retry(probes, now),
            State::Closed
            | State::Open { .. }
            | State::Recovering(_)
            | State::ForcedOpen
            | State::ForcedClosed => now,
        };
        match &mut self.state {
            State::Closed | State::ForcedClosed => Ok(self.permit(now)),
            State::ForcedOpen => Err(Reject {
                retry_in: self.policy.open_max_slow(),
            }),
            State::Open { until, .. } => Err(Reject {
                retry_in: until.saturating_duration_since(now),
            }),
            State::HalfOpen(probes) => {
                if half_open_retry > now {
                    return Err(Reject {
                        retry_in: half_open_retry - now,
                    });
                }
                let seq = self.calls.queue.skip();
                probes.grant(now, seq, &self.policy);
                Ok(Permit::new(self.generation, seq, true))
            }
            State::Recovering(ramp) => {
                if ramp.admits() {
                    return Ok(self.permit(now));
                }
                let soon = ramp.ends_at().saturating_duration_since(now);
                Err(Reject {
                    retry_in: soon.max(SOON),
                })
            }
        }
    }

    /// Brings the next probe forward to when it would be at a lone target: no other one serves the
    /// callers any more. Returns whether it was later.
    pub fn bring_probe_forward(&mut self) -> bool {
        match &mut self.state {
            State::Open { until, until_alone } if *until_alone < *until => {
                *until = *until_alone;
                true
            }
            State::Closed
            | State::Open { .. }
            | State::HalfOpen(_)
            | State::Recovering(_)
            | State::ForcedOpen
            | State::ForcedClosed => false,
        }
    }

    /// Returns what a signal shows about the target, whoever called: nothing if a failure is its
    /// caller's own. It is if an earlier attempt of the same call failed in the same way at
    /// `failed_before`, and a call that was admitted since succeeded, or if the caller's calls fail and
    /// those of others do not. Answers to calls that were admitted before an outage are no evidence
    /// in it. Call it once for each signal, before it is reported. Only evidence is weighed; failures
    /// in a row are counted as they are.
    pub fn weigh(
        &mut self,
        now: Instant,
        admitted: Instant,
        caller: CallerMarks,
        failed_before: Option<Instant>,
        signal: Signal,
    ) -> Signal {
        if self.policy.mode != CircuitMode::Evidence || self.policy.any_failure {
            return signal;
        }
        let outage = self.openings.failing_since;
        if signal == Signal::FirstToken
            && !self.state().is_closed()
            && outage.is_some_and(|since| admitted < since)
        {
            return signal;
        }
        let weighed = self.suspects.weigh(now, caller, signal);
        let succeeded_since = failed_before.is_some_and(|at| self.calls.succeeded > Some(at));
        match weighed {
            Signal::Failed { .. } if succeeded_since => Signal::Neutral,
            _ => weighed,
        }
    }

    /// Records an attempt's signal and returns the resulting changes. The first verdict of a permit
    /// counts, and after a first token one more failure (the completion was cut); any further report is
    /// ignored, and so is every report of an earlier generation.
    pub fn report(
        &mut self,
        permit: &Permit,
        signal: Signal,
        context: ReportContext,
    ) -> Vec<Transition> {
        self.context.rng = context.rng;
        self.context.alternative_healthy = context.alternative_healthy;
        // What is overdue is overdue, even when its report is just coming in.
        let now = self.settle(context.now);
        match permit.first_of_its_phase(signal) {
            None => {}
            Some(_) if permit.generation != self.generation => self.stale_reports += 1,
            Some(was) => self.take(permit, signal, was == ANSWERED, now),
        }
        self.update_degraded(now);
        self.drain()
    }

    /// Settles what is overdue: silent attempts, expired leases, a stage whose time is over.
    pub fn tick(&mut self, now: Instant, rng: f64, alternative_healthy: bool) -> Vec<Transition> {
        self.context.rng = rng;
        self.context.alternative_healthy = alternative_healthy;
        let now = self.settle(now);
        self.update_degraded(now);
        self.drain()
    }

    /// Returns the changes not yet returned; empty and cheap when there are none. Call it after
    /// `peek` and `admit`.
    pub fn drain(&mut self) -> Vec<Transition> {
        self.moves.take()
    }

    /// Does what an operator demands.
    pub fn force(&mut self, forced: Forced, now: Instant) -> Vec<Transition> {
        let now = self.settle(now);
        match forced {
            Forced::Open => {
                let opened = TransitionKind::Opened {
                    evidence: self.evidence(),
                    retry_in: None,
                    reason: "forced by an operator",
                };
                self.go(State::ForcedOpen, Trigger::Operator, opened);
            }
            Forced::Closed => {
                self.openings.streak = 0;
                self.go(
                    State::ForcedClosed,
                    Trigger::Operator,
                    TransitionKind::Closed,
                );
            }
            Forced::Auto => match self.state {
                // The target may still be ill: the next call is a probe.
                State::ForcedOpen => self.enter(State::Open {
                    until: now,
                    until_alone: now,
                }),
                State::ForcedClosed => {
                    self.go(State::Closed, Trigger::Operator, TransitionKind::Closed);
                }
                State::Closed | State::Open { .. } | State::HalfOpen(_) | State::Recovering(_) => {}
            },
        }
        self.drain()
    }

    /// Closes the circuit, whatever held it open, and forgets its evidence.
    pub fn reset(&mut self, now: Instant) -> Vec<Transition> {
        self.settle(now);
        self.close(Trigger::Operator);
        self.drain()
    }

    /// Returns a view of the circuit.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> CircuitSnapshot {
        let retry_at = match &self.state {
            State::Open { until, .. } => Some(*until),
            State::HalfOpen(probes) => Some(self.half_open_retry(probes, now)),
            State::Closed | State::Recovering(_) | State::ForcedOpen | State::ForcedClosed => None,
        };
        let probes_outstanding = match &self.state {
            State::HalfOpen(probes) => probes.outstanding(),
            State::Closed
            | State::Open { .. }
            | State::Recovering(_)
            | State::ForcedOpen
            | State::ForcedClosed => 0,
        };
        CircuitSnapshot {
            state: self.state(),
            generation: self.generation,
            retry_in: retry_at
                .map(|at| at.saturating_duration_since(now))
                .filter(|wait| !wait.is_zero()),
            degraded: self.degraded,
            evidence: self.evidence(),
            opened: self.openings.last,
            streak: self.openings.streak,
            stale_reports: self.stale_reports,
            probes_outstanding,
        }
    }

    /// Returns the state.
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

    /// Returns whether other targets are preferable.
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn policy(&self) -> &CircuitPolicy {
        &self.policy
    }
}

/// Time without calls after which a degraded target's shares of failures and slow completions are
/// forgotten.
const FORGET_UNASKED: Duration = Duration::from_mins(1);
/// Shortest time after which a call that is beyond the share of a stage may come back.
const SOON: Duration = Duration::from_millis(50);

fn wait_until(now: Instant, at: Instant) -> Peek {
    if at <= now {
        Peek::Ready
    } else {
        Peek::Wait {
            retry_in: Some(at - now),
        }
    }
}

#[cfg(test)]
mod tests;
