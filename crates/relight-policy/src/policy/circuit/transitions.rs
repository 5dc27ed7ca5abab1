//! State changes of a circuit: overdue attempts are settled, decided ones are committed, and
//! committed ones are judged.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Circuit, FailKind, Permit, Signal, State, TransitionKind,
    admission_queue::AttemptOutcome,
    outcome_window::{OutcomeCounts, Trip},
    recovery::HalfOpenProbes,
    setting::{
        CircuitMode, DEGRADED_RUN, MIN_OUTCOMES, OPEN_JITTER, RECOVERING_MIN_OUTCOMES,
        RETRY_AFTER_MAX, SHARE_WITH_ALTERNATIVE, SLOW_SHARE,
    },
    transition_log::Trigger,
};
use crate::domain::event::Evidence;

/// Margin by which a share must fall below its threshold before a circuit is no longer called
/// degraded; otherwise a target at the threshold would change its name several times a second.
const RELIEF: f64 = 0.1;

impl Circuit {
    /// Applies what time alone causes, and returns the time, which does not run backwards.
    pub(super) fn settle(&mut self, now: Instant) -> Instant {
        let now = self.context.advance(now);
        match &mut self.state {
            State::Open { .. } | State::ForcedOpen => {}
            State::HalfOpen(probes) => {
                if probes.expire(now) {
                    self.reopen(
                        now,
                        Trip {
                            reason: "a probe was not answered in time",
                            kind: FailKind::Slow,
                        },
                        0,
                    );
                }
            }
            State::Closed | State::Recovering(_) | State::ForcedClosed => {
                self.commit_decided(now);
                self.advance_recovery(now);
            }
        }
        now
    }

    /// Returns a permit for a call like any other.
    pub(super) fn permit(&mut self, now: Instant) -> Permit {
        let seq = match self.policy.mode {
            CircuitMode::Evidence => self.calls.admit(now),
            CircuitMode::Consecutive | CircuitMode::Off => self.calls.queue.skip(),
        };
        Permit::new(self.generation, seq, false)
    }

    /// Handles the first report of a permit of this generation.
    pub(super) fn take(
        &mut self,
        permit: &Permit,
        signal: Signal,
        was_answered: bool,
        now: Instant,
    ) {
        match (&self.state, self.policy.mode) {
            (_, CircuitMode::Off) | (State::Open { .. } | State::ForcedOpen, _) => {}
            (State::HalfOpen(_), _) => self.take_probe(permit, signal, was_answered, now),
            (State::Closed | State::Recovering(_) | State::ForcedClosed, CircuitMode::Evidence) => {
                self.take_evidence(permit, signal, was_answered, now);
            }
            (
                State::Closed | State::Recovering(_) | State::ForcedClosed,
                CircuitMode::Consecutive,
            ) => {
                self.take_consecutive(signal, now);
            }
        }
    }

    /// Returns the time at which a caller should retry while all probes are out: they usually end
    /// long before their leases do.
    pub(super) fn half_open_retry(&self, probes: &HalfOpenProbes, now: Instant) -> Instant {
        probes
            .next_at(now, self.patience(), &self.policy)
            .min(now + self.policy.open_base)
    }

    /// How long a silent probe keeps others from being sent: no longer than the circuit would be
    /// open after it, unless callers are served elsewhere meanwhile.
    fn patience(&self) -> Duration {
        if self.context.alternative_healthy || self.policy.mode != CircuitMode::Evidence {
            return self.policy.lease();
        }
        self.policy
            .longest_open(FailKind::Slow, self.openings.usual_rate, false)
    }

    fn take_evidence(&mut self, permit: &Permit, signal: Signal, was_answered: bool, now: Instant) {
        let (outcome, floor) = match signal {
            Signal::FirstToken => {
                let Some(admitted) = self.calls.queue.pending_since(permit.seq) else {
                    return;
                };
                let slow = now.saturating_duration_since(admitted) >= self.policy.slow_threshold;
                self.calls.last_answered = Some(now);
                self.calls.succeeded = self.calls.succeeded.max(Some(admitted));
                if let State::Recovering(ramp) = &mut self.state {
                    ramp.answered();
                }
                (AttemptOutcome::Answered { slow }, None)
            }
            Signal::Failed {
                local_origin: true, ..
            } => (AttemptOutcome::Local, None),
            Signal::Failed {
                kind,
                retry_after,
                local_origin: false,
            } => (AttemptOutcome::Failed(kind), retry_after),
            Signal::Neutral | Signal::RateLimited => (AttemptOutcome::Removed, None),
            Signal::Cancelled {
                after_slow_threshold: true,
            } => (AttemptOutcome::Silent, None),
            Signal::Cancelled {
                after_slow_threshold: false,
            }
            | Signal::Abandoned => {
                let Some(admitted) = self.calls.queue.pending_since(permit.seq) else {
                    return;
                };
                let age = now.saturating_duration_since(admitted);
                (
                    if age >= self.policy.slow_threshold {
                        AttemptOutcome::Silent
                    } else {
                        AttemptOutcome::Removed
                    },
                    None,
                )
            }
        };
        let floor_ms = floor_ms(floor.unwrap_or_default(), RETRY_AFTER_MAX);
        let seq = if was_answered {
            // The success was counted at its first token; the cut of the completion is an outcome of
            // its own.
            self.calls.queue.push(now, outcome, floor_ms)
        } else {
            if outcome == AttemptOutcome::Removed
                && let Some(admitted) = self.calls.queue.pending_since(permit.seq)
            {
                self.calls.arrivals.take_back(admitted, 1);
            }
            self.calls.queue.decide(permit.seq, outcome, floor_ms);
            permit.seq
        };
        if self.certain_run(seq, outcome, floor_ms, now) {
            return;
        }
        self.commit_decided(now);
        self.advance_recovery(now);
    }

    /// Opens on a run of failures that no pending call can interrupt any more, without waiting for
    /// a slow head.
    fn certain_run(
        &mut self,
        seq: u64,
        outcome: AttemptOutcome,
        floor_ms: u32,
        now: Instant,
    ) -> bool {
        if matches!(self.state, State::ForcedClosed) {
            return false;
        }
        let run = self.calls.queue.run_around(seq);
        // An outcome that is not a failure opens nothing, unless failures that came after it waited
        // to be joined with those before it.
        let joins = match outcome {
            AttemptOutcome::Failed(_) => true,
            AttemptOutcome::Silent | AttemptOutcome::Local | AttemptOutcome::Removed => {
                run.after > 0
            }
            AttemptOutcome::Answered { .. } | AttemptOutcome::Pending => false,
        };
        if !joins {
            return false;
        }
        if run.failures < self.policy.run_at_low_rate || run.failures < self.run_length(now) {
            return false;
        }
        let mut evidence = self.evidence();
        evidence.committed += run.failures;
        evidence.failures += run.failures;
        evidence.slow += run.slow;
        evidence.consecutive = run.failures;
        self.open(
            now,
            Trip::of_run(run.slow, run.failures),
            floor_ms,
            evidence,
        );
        true
    }

    fn take_consecutive(&mut self, signal: Signal, now: Instant) {
        let outcome = match signal {
            Signal::FirstToken => {
                self.calls.succeeded = Some(now);
                AttemptOutcome::Answered { slow: false }
            }
            Signal::Failed { kind, .. } => AttemptOutcome::Failed(kind),
            Signal::Neutral
            | Signal::RateLimited
            | Signal::Cancelled { .. }
            | Signal::Abandoned => return,
        };
        self.calls.window.commit(now, now, outcome);
        let trips = self.calls.window.run_failures >= self.policy.consecutive_failures;
        if trips && matches!(self.state, State::Closed) {
            let evidence = self.evidence();
            self.open(
                now,
                Trip {
                    reason: "failures in a row",
                    kind: FailKind::Fast,
                },
                0,
                evidence,
            );
        }
    }

    fn take_probe(&mut self, permit: &Permit, signal: Signal, was_answered: bool, now: Instant) {
        let served_elsewhere = self.context.alternative_healthy;
        let State::HalfOpen(probes) = &mut self.state else {
            return;
        };
        probes.take_back(permit.seq);
        match signal {
            Signal::FirstToken => {
                probes.succeeded();
                self.calls.succeeded = Some(now);
                if probes.successes < self.policy.successes_needed() {
                    return;
                }
                match self.policy.mode {
                    CircuitMode::Evidence => self.recover(now),
                    CircuitMode::Consecutive | CircuitMode::Off => self.close(Trigger::Itself),
                }
            }
            Signal::Failed {
                kind,
                retry_after,
                local_origin,
            } => {
                let reason = if local_origin {
                    "local failure of a probe"
                } else {
                    "a probe failed"
                };
                // Others were sent later, and may find it well.
                if kind == FailKind::Slow && probes.outstanding() > 0 {
                    return;
                }
                if !probes.failed(was_answered) && !served_elsewhere {
                    return;
                }
                let floor = floor_ms(retry_after.unwrap_or_default(), RETRY_AFTER_MAX);
                self.reopen(now, Trip { reason, kind }, floor);
            }
            Signal::Neutral
            | Signal::RateLimited
            | Signal::Cancelled { .. }
            | Signal::Abandoned => {
                probes.probe_was_neutral();
            }
        }
    }

    /// Hands on what is decided at the head, and opens when that is enough.
    fn commit_decided(&mut self, now: Instant) {
        while let Some(entry) = self.calls.queue.pop(now, &self.policy) {
            self.calls.window.commit(now, entry.admitted, entry.outcome);
            let answered = matches!(entry.outcome, AttemptOutcome::Answered { .. });
            let min_outcomes = match &mut self.state {
                State::Closed => MIN_OUTCOMES,
                State::Recovering(ramp) => {
                    ramp.committed();
                    RECOVERING_MIN_OUTCOMES
                }
                State::ForcedClosed
                | State::Open { .. }
                | State::HalfOpen(_)
                | State::ForcedOpen => continue,
            };
            // A success does not open the circuit, whatever came before it.
            if answered {
                continue;
            }
            let length = self.run_length(now);
            let trip = if entry.outcome == AttemptOutcome::Local {
                self.calls.window.judge_local(length)
            } else {
                self.calls
                    .window
                    .judge_run(length, &self.policy)
                    .or_else(|| {
                        self.calls.window.judge_share(
                            now,
                            min_outcomes,
                            self.context.alternative_healthy,
                        )
                    })
            };
            if let Some(trip) = trip {
                let evidence = self.evidence();
                self.open(now, trip, entry.floor_ms, evidence);
                return;
            }
        }
    }

    /// Advances to the next stage of recovery when this one is over.
    fn advance_recovery(&mut self, now: Instant) {
        let State::Recovering(ramp) = &mut self.state else {
            return;
        };
        if !ramp.stage_is_over(now) {
            return;
        }
        if ramp.next_stage(now) {
            let admitted_percent = ramp.percent();
            self.record(TransitionKind::Recovering { admitted_percent });
        } else {
            self.close(Trigger::Itself);
        }
    }

    /// Updates whether the target is degraded.
    pub(super) fn update_degraded(&mut self, now: Instant) {
        if !matches!(
            self.state,
            State::Closed | State::Recovering(_) | State::ForcedClosed
        ) {
            return;
        }
        // Other targets are preferred to it, so that it may get no calls at all: then only a new
        // probe shows that it is healthy.
        let past = |at: Option<Instant>, time| {
            at.is_some_and(|at| now.saturating_duration_since(at) >= time)
        };
        let no_call_waits = self.calls.queue.pending() == 0;
        if self.degraded && no_call_waits && past(self.calls.last_admitted, super::FORGET_UNASKED) {
            self.calls.window.forget_shares();
        }
        // The run is kept: the one call that probes has just been admitted, and the others continue
        // to prefer other targets.
        let by_run = self.calls.window.unanswered() >= DEGRADED_RUN
            && past(self.calls.last_answered, self.policy.degraded_after())
            && !(no_call_waits
                && past(
                    self.calls.last_admitted,
                    self.policy.look_after(self.calls.window.run_time()),
                ));
        let relief = if self.degraded { RELIEF } else { 0.0 };
        let by_share = |counts: OutcomeCounts| {
            counts.failure_share() >= SHARE_WITH_ALTERNATIVE - relief
                || counts.slow_share() >= SLOW_SHARE - relief
        };
        let degraded = self.policy.mode == CircuitMode::Evidence
            && (by_run
                || self
                    .calls
                    .window
                    .basis(now, MIN_OUTCOMES)
                    .is_some_and(by_share)
                || self.is_slow_of_late(now, relief));
        if degraded != self.degraded {
            self.degraded = degraded;
            self.record(TransitionKind::Degraded(degraded));
        }
    }

    /// Returns whether most of the last calls that are old enough to judge are slow. A call that is
    /// silent for longer than the slow threshold is slow already: waiting for its response, and for
    /// those before it, would detect a brown-out only when its first callers run out of time.
    fn is_slow_of_late(&self, now: Instant, relief: f64) -> bool {
        let wanted = MIN_OUTCOMES;
        let (mut counted, mut slow) =
            self.calls
                .queue
                .aged(now, self.policy.slow_threshold, wanted);
        let (older, older_slow) = self.calls.window.last_slow(now, wanted - counted);
        counted += older;
        slow += older_slow;
        counted >= wanted && f64::from(slow) >= f64::from(counted) * (SLOW_SHARE - relief)
    }

    /// Failures in a row that open at the present rate of calls, and share of failures.
    fn run_length(&mut self, now: Instant) -> u32 {
        let rate = self.calls.per_second(now);
        let at_least = self.policy.run_at(rate);
        at_least.max(self.calls.window.run_beyond_chance(now))
    }

    fn reopen(&mut self, now: Instant, trip: Trip, floor_ms: u32) {
        let evidence = Evidence {
            committed: 1,
            failures: 1,
            consecutive: 1,
            threshold: 1,
            ..Evidence::default()
        };
        self.open(now, trip, floor_ms, evidence);
    }

    /// Opens, for longer each time since the circuit was last closed.
    pub(super) fn open(&mut self, now: Instant, trip: Trip, floor_ms: u32, evidence: Evidence) {
        // A probe that fails shows less than what opened the circuit.
        if !matches!(self.state, State::HalfOpen(_)) {
            self.openings.rested_on = Some((now, self.calls.seen(now)));
        }
        match &self.state {
            // It answers some, and is not left to itself for longer.
            State::HalfOpen(probes) if probes.successes > 0 => {}
            State::HalfOpen(_) | State::Recovering(_) => {
                self.openings.streak = self.openings.streak.saturating_add(1);
            }
            State::Closed | State::Open { .. } | State::ForcedOpen | State::ForcedClosed => {
                self.openings.usual_rate = self.calls.per_second(now);
                self.openings.failing_since = self.calls.window.run_began().or(Some(now));
            }
        }
        let floor = Duration::from_millis(floor_ms.into());
        let [wait, wait_alone] = [self.context.alternative_healthy, false]
            .map(|served| self.open_time(trip.kind, floor, served, now));
        let by = if trip.kind == FailKind::Slow {
            Trigger::Silence
        } else {
            Trigger::Itself
        };
        let opened = TransitionKind::Opened {
            evidence,
            retry_in: Some(wait),
            reason: trip.reason,
        };
        let open = State::Open {
            until: now + wait,
            until_alone: now + wait.min(wait_alone),
        };
        self.go(open, by, opened);
    }

    /// Returns the time for which a circuit that opens now is open, `floor` at least; `served`: if
    /// other targets serve its callers.
    fn open_time(&self, kind: FailKind, floor: Duration, served: bool, now: Instant) -> Duration {
        if self.policy.mode != CircuitMode::Evidence {
            return self.policy.consecutive_open;
        }
        // Callers that are served elsewhere lose little by a late probe, and a probe of a silent
        // target delays one of them.
        let longest = self
            .policy
            .longest_open(kind, self.openings.usual_rate, served);
        let wait = match kind {
            FailKind::Slow if served => longest,
            FailKind::Fast if served => {
                let since = self.openings.failing_since.unwrap_or(now);
                self.policy.look_after(now.saturating_duration_since(since))
            }
            FailKind::Fast | FailKind::Slow => self
                .policy
                .open_base
                .saturating_mul(1 << self.openings.streak.min(20)),
        };
        let less = OPEN_JITTER * (2.0 * self.context.rng.clamp(0.0, 1.0) - 1.0).abs();
        wait.min(longest).mul_f64(1.0 - less).max(floor)
    }
}

fn floor_ms(wait: Duration, max: Duration) -> u32 {
    u32::try_from(wait.min(max).as_millis()).unwrap_or(u32::MAX)
}
