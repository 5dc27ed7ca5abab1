//! The planner: whether there is another attempt, after which wait, and why not.
//!
//! One planner decides over all targets of an invocation, so that three retries on three targets do
//! not become nine calls. It checks in a fixed order: would another attempt help, is nothing
//! irrevocable relayed, are attempts left, would it start and still have time before the deadline;
//! the caller then reserves the budget that the decision names, waits, and chooses the target
//! afresh with `select`. The planner reads no clock, does not sleep, and plans no wait that ends
//! too late to be of use.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    backoff::{Backoff, Jitter},
    rng::SeededRng,
};
use crate::domain::{
    failure::{Failure, FailureClass, Wait},
    ids::TargetId,
    invocation::RecoveryStrategy,
};

mod load;
mod options;
mod recovery_options;
mod settings;
mod stop;

pub use self::{
    load::Load,
    recovery_options::{
        BackoffKind, RecoveryOptions, has_larger_window, larger_window_first, recovery_options,
    },
    settings::{
        HARD_CAP_ATTEMPTS, MAX_LIMITED, MAX_PARKED, MAX_RETRIES, MIN_ATTEMPT_TIME, ParkPolicy,
        RetryPolicy, WAIT_CAP,
    },
    stop::StopReason,
};
pub use super::retry_budget::Cost;

/// Time at which a target can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// At once.
    Now,
    /// Not before this: its circuit probes then, or a gate opens.
    At(Instant),
    /// Not within this invocation.
    Never,
}

/// A target as the planner and `select` see it; the first of a list is the primary one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact about the target"
)]
pub struct Candidate {
    /// Its name.
    pub target: TargetId,
    /// Time at which it can be called.
    pub availability: Availability,
    /// Median time to its first token; `latency::GUESSED_P50` if unknown.
    pub first_token_p50: Duration,
    /// Load of the target.
    pub load: Load,
    /// `true` if it was called in this invocation and fell silent, at the start or in the midst.
    pub failed_silent: bool,
    /// Number of times that it was really called in this invocation.
    pub attempts: u32,
    /// `true` if calls pass its rate gate one after the other, so that a waiting call is queued.
    pub in_line: bool,
    /// `true` if its last failures are more than chance, so that a short wait will hardly help.
    pub failing: bool,
    /// `true` if it fails now and then, and succeeds in between.
    pub erratic: bool,
    /// `true` if it is as good as others; `false` while it is degraded, and if it is gone.
    pub healthy: bool,
    /// `true` if the prompt surely does not fit its context window.
    pub outgrown: bool,
    /// `true` if it takes longer prompts than the target that failed.
    pub larger_window: bool,
    /// `true` if it uses another credential than the target that failed.
    pub other_credential: bool,
    /// `true` if calling it is no use for the rest of this invocation: an earlier failure rules it
    /// out (`RecoveryOptions::admits`), or its budget is empty.
    pub ruled_out: bool,
}

/// Part of a failed attempt that the caller has already seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Relayed {
    /// Nothing.
    #[default]
    Nothing,
    /// Something that can be revoked.
    Rewindable,
    /// Text that cannot be revoked and was cut: another attempt helps only if it repeats that text,
    /// which the target that wrote it is the likeliest to do.
    AppendOnly,
    /// Something that cannot be revoked: there is no other attempt.
    Irrevocable,
}

/// Everything that is known when an attempt has failed, or was refused locally.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The time.
    pub now: Instant,
    /// Time at which everything must be over.
    pub deadline: Instant,
    /// Failure that just happened: a failure, or a local refusal
    /// (`FailureClass::is_local_refusal`).
    pub failure: &'a Failure,
    /// If `failure` is a local refusal: the last upstream failure of this invocation, `None` before
    /// any call was made.
    pub decisive: Option<&'a Failure>,
    /// Target that just failed or refused; if `None`, `failure.target` counts.
    pub failed_target: Option<&'a TargetId>,
    /// Attempts after the first that were sent, whatever became of them, hedges included.
    pub retries_made: u32,
    /// Attempts that certainly reached no provider: they have an allowance of their own.
    pub unsent_made: u32,
    /// Attempts that a rate limit refused and that are not among `retries_made`: they were told to
    /// come later, and have an allowance of their own.
    pub limited_made: u32,
    /// Local refusals since the last real attempt, this one included.
    pub refusals: u32,
    /// Time at which the last real attempt failed: the wait that follows it is counted from there, and
    /// not from a local refusal.
    pub failed_at: Instant,
    /// Time at which the first real attempt failed.
    pub failing_since: Instant,
    /// The wait before the attempt that just failed.
    pub previous_wait: Option<Duration>,
    /// Part that the caller has already seen.
    pub relayed: Relayed,
    /// `true` if the request was changed so that the same target may take it now.
    pub adapted: bool,
    /// Options that may help, if the ladder of tools has decided that; `None`: by the class of the
    /// failure.
    pub given: Option<RecoveryOptions>,
    /// The route's targets as they are now, in its order.
    pub candidates: &'a [Candidate],
    /// Estimate for the first attempt, prompt and answer, in tokens; 0 if unknown.
    pub first_attempt_tokens: u64,
    /// Tokens that all attempts were billed up to now.
    pub spent_tokens: u64,
}

/// Decision of the planner.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Another attempt: reserve `cost`, wait, choose the target afresh (`target_hint` unless that
    /// changed), call it.
    Again {
        /// Length of the wait, and the source of that time.
        wait: Wait,
        /// `Retry`, `Fallback` or `Adapt`.
        strategy: RecoveryStrategy,
        /// The target that this was planned for.
        target_hint: Option<TargetId>,
        /// Cost to the budget of the target that will be called.
        cost: Cost,
    },
    /// No target may be called now: wait until then, or until woken, and choose afresh. Costs
    /// nothing.
    Park {
        /// Time at which `target` will be available.
        until: Instant,
        /// The target that will be available first.
        target: TargetId,
        /// `Retry`, `Fallback` or `Adapt`.
        strategy: RecoveryStrategy,
    },
    /// There is no other attempt.
    Stop(StopReason),
}

// === impl Availability ===

impl Availability {
    /// Returns the time at which it can be called, `now` at the earliest; `None` for not at all.
    #[must_use]
    pub fn ready_at(self, now: Instant) -> Option<Instant> {
        match self {
            Self::Now => Some(now),
            Self::At(instant) => Some(instant.max(now)),
            Self::Never => None,
        }
    }
}

// === impl Candidate ===

impl Candidate {
    /// A healthy target, available now and not yet called, of which nothing else is known.
    #[must_use]
    pub fn new(target: TargetId) -> Self {
        Self {
            target,
            availability: Availability::Now,
            first_token_p50: super::latency::GUESSED_P50,
            load: Load::default(),
            failed_silent: false,
            attempts: 0,
            failing: false,
            erratic: false,
            in_line: false,
            healthy: true,
            outgrown: false,
            larger_window: false,
            other_credential: false,
            ruled_out: false,
        }
    }

    /// Returns whether it failed more than once in this invocation.
    const fn is_worn(&self) -> bool {
        self.attempts > 1
    }
}

// === impl Situation ===

impl<'a> Situation<'a> {
    /// The situation after the first attempt, of which nothing was relayed.
    #[must_use]
    pub fn new(
        now: Instant,
        deadline: Instant,
        failure: &'a Failure,
        candidates: &'a [Candidate],
    ) -> Self {
        Self {
            now,
            deadline,
            failure,
            decisive: None,
            failed_target: failure.target.as_ref(),
            retries_made: 0,
            unsent_made: u32::from(failure.never_sent && !failure.class.is_local_refusal()),
            limited_made: u32::from(
                failure.class == FailureClass::RateLimited && !failure.never_sent,
            ),
            refusals: 0,
            failed_at: now,
            failing_since: now,
            previous_wait: None,
            relayed: Relayed::Nothing,
            adapted: false,
            given: None,
            candidates,
            first_attempt_tokens: 0,
            spent_tokens: 0,
        }
    }

    /// Returns the last real failure; `None` while every target has only refused locally.
    fn cause(&self) -> Option<&'a Failure> {
        if self.failure.class.is_local_refusal() {
            self.decisive
        } else {
            Some(self.failure)
        }
    }

    /// Returns whether the last real failure was one to reach the target at all.
    fn is_unsent(&self) -> bool {
        self.cause().is_some_and(|failure| failure.never_sent)
    }

    /// Returns whether the last real failure only said to come later.
    fn is_limited(&self, policy: &RetryPolicy) -> bool {
        let limited =
            |failure: &Failure| failure.class == FailureClass::RateLimited && !failure.never_sent;
        !policy.uniform_waits && self.cause().is_some_and(limited)
    }

    /// Returns whether the next attempt is the last one that the policy allows after such a
    /// failure.
    fn is_last(&self, policy: &RetryPolicy) -> bool {
        if self.is_limited(policy) {
            return self.limited_made >= MAX_LIMITED;
        }
        let made = if self.is_unsent() {
            self.unsent_made
        } else {
            self.retries_made + 1
        };
        made >= policy.max_retries
    }

    /// Returns the target that just failed or refused.
    fn last_target(&self) -> Option<&'a TargetId> {
        self.failed_target.or(self.failure.target.as_ref())
    }

    /// Returns the target that really failed last.
    fn cause_target(&self) -> Option<&'a TargetId> {
        if self.failure.class.is_local_refusal() {
            self.decisive.and_then(|failure| failure.target.as_ref())
        } else {
            self.last_target()
        }
    }
}

/// Decides what follows a failed attempt. The dice are thrown twice whatever is decided, so that a
/// replay agrees.
#[must_use]
pub fn plan(policy: &RetryPolicy, situation: &Situation<'_>, rng: &mut SeededRng) -> Decision {
    planned(
        policy,
        situation,
        options::JitterSamples {
            wait: rng.unit(),
            spread: rng.unit(),
        },
    )
}

/// Returns the same decision with its wait before any random spread.
#[must_use]
pub fn plan_without_spread(policy: &RetryPolicy, situation: &Situation<'_>) -> Decision {
    let backoff = Backoff {
        jitter: Jitter::None,
        ..policy.backoff.clone()
    };
    let policy = RetryPolicy {
        backoff,
        ..policy.clone()
    };
    planned(
        &policy,
        situation,
        options::JitterSamples {
            wait: 0.0,
            spread: 0.0,
        },
    )
}

fn planned(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    samples: options::JitterSamples,
) -> Decision {
    let recovery_options = situation.cause().map(|failure| {
        let recovery_options = situation
            .given
            .unwrap_or_else(|| recovery_options(policy, failure));
        if situation.adapted {
            recovery_options.adapted()
        } else {
            recovery_options
        }
    });
    match allowed(policy, situation, recovery_options.as_ref()) {
        Ok(()) => options::decide(policy, situation, recovery_options.as_ref(), samples),
        Err(reason) => Decision::Stop(reason),
    }
}

/// Checks what needs neither a target nor a wait, in order.
fn allowed(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
) -> Result<(), StopReason> {
    if situation.failure.class == FailureClass::Deadline {
        return Err(StopReason::DeadlineTooClose {
            needed: MIN_ATTEMPT_TIME,
        });
    }
    // No call was made yet: any target that is free now may still be the first, and a first attempt
    // needs no allowance.
    let Some(recovery_options) = recovery_options else {
        return Ok(());
    };
    if !recovery_options.same_target && !recovery_options.other_target {
        return Err(StopReason::NotRetryable);
    }
    if !policy.enabled {
        return Err(StopReason::Disabled);
    }
    if situation.relayed == Relayed::Irrevocable {
        return Err(StopReason::Irrevocable);
    }
    let allowance = recovery_options
        .at_most
        .unwrap_or(u32::MAX)
        .min(policy.max_retries)
        .min(MAX_RETRIES);
    let unsent = if situation.is_unsent() {
        situation.unsent_made.saturating_sub(1)
    } else {
        0
    };
    // A call that was only told to come later has used up nothing.
    let used_up = if situation.is_limited(policy) {
        policy.max_retries == 0 || situation.limited_made > MAX_LIMITED
    } else {
        situation.retries_made.max(unsent) >= allowance
    };
    if used_up {
        return Err(StopReason::AttemptsUsedUp);
    }
    if policy.tokens_used_up(situation.first_attempt_tokens, situation.spent_tokens) {
        return Err(StopReason::TokensUsedUp);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
