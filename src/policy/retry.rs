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

mod options;
mod recovery_options;
mod settings;
mod stop;

pub use self::{
    recovery_options::{
        BackoffKind, Counter, RecoveryOptions, has_larger_window, larger_window_first,
        recovery_options,
    },
    settings::{HARD_CAP_ATTEMPTS, MAX_RETRIES, ParkPolicy, RetryPolicy},
    stop::StopReason,
};
pub use super::retry_budget::Cost;

/// When a target can be called.
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
    /// When it can be called.
    pub availability: Availability,
    /// The median time to its first token; `latency::GUESSED_P50` where unknown.
    pub first_token_p50: Duration,
    /// Whether it was called in this invocation and stayed silent.
    pub failed_silent: bool,
    /// How often it was really called in this invocation.
    pub attempts: u32,
    /// Whether calls pass its rate gate one after the other, so that a waiting call is queued.
    pub in_line: bool,
    /// Whether its last failures are more than chance, so that a short wait will hardly help.
    pub failing: bool,
    /// Whether it fails now and then, and succeeds in between.
    pub erratic: bool,
    /// Whether a call that began just before succeeded.
    pub answers: bool,
    /// Whether it is as good as others; false while it is degraded, and where it is gone.
    pub healthy: bool,
    /// Whether it takes longer prompts than the target that failed.
    pub larger_window: bool,
    /// Whether it uses another credential than the target that failed.
    pub other_credential: bool,
    /// Whether calling it is no use for the rest of this invocation: an earlier failure rules it
    /// out (`RecoveryOptions::admits`), or its budget is empty.
    pub ruled_out: bool,
}

/// What of a failed attempt the caller has already seen.
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
    /// When everything must be over.
    pub deadline: Instant,
    /// What just happened: a failure, or a local refusal (`FailureClass::is_local_refusal`).
    pub failure: &'a Failure,
    /// Where `failure` is a local refusal: the last upstream failure of this invocation, `None`
    /// before any call was made.
    pub decisive: Option<&'a Failure>,
    /// The target that just failed or refused; where `None`, `failure.target` counts.
    pub failed_target: Option<&'a TargetId>,
    /// Attempts after the first that were sent, hedges included, semantic ones not.
    pub retries_made: u32,
    /// Attempts that certainly reached no provider: they have an allowance of their own.
    pub unsent_made: u32,
    /// Attempts after the first that returned unusable content.
    pub semantic_made: u32,
    /// Local refusals since the last real attempt, this one included.
    pub refusals: u32,
    /// The wait before the attempt that just failed.
    pub previous_wait: Option<Duration>,
    /// What the caller has already seen.
    pub relayed: Relayed,
    /// Whether the request was changed so that the same target may take it now.
    pub adapted: bool,
    /// What may help, where the ladder of tools has decided that; `None`: by the class of the
    /// failure.
    pub given: Option<RecoveryOptions>,
    /// The route's targets as they are now, in its order.
    pub candidates: &'a [Candidate],
    /// The estimate for the first attempt, prompt and answer, in tokens; 0 where unknown.
    pub first_attempt_tokens: u64,
    /// What all attempts were billed up to now, in tokens.
    pub spent_tokens: u64,
}

/// What the planner decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Another attempt: reserve `cost`, wait, choose the target afresh (`target_hint` unless that
    /// changed), call it.
    Again {
        /// How long, and where that time comes from.
        wait: Wait,
        /// `Retry`, `Fallback` or `Adapt`.
        strategy: RecoveryStrategy,
        /// The target that this was planned for.
        target_hint: Option<TargetId>,
        /// What it costs the budget of the target that will be called.
        cost: Cost,
    },
    /// No target may be called now: wait until then, or until woken, and choose afresh. Costs
    /// nothing.
    Park {
        /// When `target` will be available.
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
    /// When it can be called, `now` at the earliest; `None` for not at all.
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
            failed_silent: false,
            attempts: 0,
            failing: false,
            erratic: false,
            answers: false,
            in_line: false,
            healthy: true,
            larger_window: false,
            other_credential: false,
            ruled_out: false,
        }
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
            semantic_made: 0,
            refusals: 0,
            previous_wait: None,
            relayed: Relayed::Nothing,
            adapted: false,
            given: None,
            candidates,
            first_attempt_tokens: 0,
            spent_tokens: 0,
        }
    }

    /// The last real failure; `None` while every target has only refused locally.
    fn cause(&self) -> Option<&'a Failure> {
        if self.failure.class.is_local_refusal() {
            self.decisive
        } else {
            Some(self.failure)
        }
    }

    /// Whether the last real failure was one to reach the target at all.
    fn is_unsent(&self) -> bool {
        self.cause().is_some_and(|failure| failure.never_sent)
    }

    /// Whether the next attempt is the last one that the policy allows after such a failure.
    fn is_last(&self, policy: &RetryPolicy) -> bool {
        let made = if self.is_unsent() {
            self.unsent_made
        } else {
            self.retries_made + 1
        };
        made >= policy.max_retries
    }

    /// The target that just failed or refused.
    fn last_target(&self) -> Option<&'a TargetId> {
        self.failed_target.or(self.failure.target.as_ref())
    }

    /// The target that really failed last.
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

/// The same decision with its wait before any random spread.
#[must_use]
pub fn plan_without_spread(policy: &RetryPolicy, situation: &Situation<'_>) -> Decision {
    let exact = |backoff: &Backoff| Backoff {
        jitter: Jitter::None,
        ..backoff.clone()
    };
    let (backoff, throttle_backoff) = (exact(&policy.backoff), exact(&policy.throttle_backoff));
    let policy = RetryPolicy {
        backoff,
        throttle_backoff,
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

/// The questions that need neither a target nor a wait, in their order.
fn allowed(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
) -> Result<(), StopReason> {
    if situation.failure.class == FailureClass::Deadline {
        return Err(StopReason::DeadlineTooClose {
            needed: policy.min_attempt_time,
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
    let semantic = recovery_options.counter == Counter::Semantic;
    if policy.max_retries == 0 {
        return Err(StopReason::AttemptsUsedUp);
    }
    if semantic && situation.semantic_made >= policy.semantic_retries {
        return Err(StopReason::SemanticUsedUp);
    }
    let at_most = recovery_options
        .at_most
        .unwrap_or(u32::MAX)
        .min(policy.max_retries);
    let made = situation
        .retries_made
        .saturating_add(situation.semantic_made)
        .saturating_add(1);
    let used = if situation.is_unsent() {
        situation.unsent_made.saturating_sub(1)
    } else {
        situation.retries_made
    };
    if made >= HARD_CAP_ATTEMPTS || (!semantic && used >= at_most) {
        return Err(StopReason::AttemptsUsedUp);
    }
    if policy.tokens_used_up(situation.first_attempt_tokens, situation.spent_tokens) {
        return Err(StopReason::TokensUsedUp);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
