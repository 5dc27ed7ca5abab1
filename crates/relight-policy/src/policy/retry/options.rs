//! Which target can be called after which wait, and which of these is best.

use std::{cmp::Reverse, time::Duration};

use tokio::time::Instant;

use super::{
    Availability, BackoffKind, Candidate, Cost, Decision, MIN_ATTEMPT_TIME, RecoveryOptions,
    Relayed, RetryPolicy, Situation, StopReason, WAIT_CAP,
    settings::{FALLBACK_WAIT_MAX, MAX_PARK, PARK_SPREAD},
};
use crate::domain::{
    failure::{Failure, FailureClass, TransportFault, Wait, WaitSource},
    invocation::RecoveryStrategy,
};
use crate::policy::backoff::{Backoff, Jitter};

/// The least spread that is added to a stated wait.
const STATED_SPREAD_MIN: Duration = Duration::from_secs(1);
/// Share of a stated wait that is its spread, if that is more.
const STATED_SPREAD_SHARE: f64 = 0.2;
/// Part of a wait that is enough after a failure that may have been chance.
const HICCUP_SHARE: f64 = 0.1;
/// The least time from the first failure to the last attempt in an outage, in multiples of the
/// backoff's first wait.
const LAST_WAIT: f64 = 5.0;
/// Time that each further refusal in a row adds to the wait, so that a refusing target is not
/// called in a hot loop.
const REFUSAL_STEP: Duration = Duration::from_millis(25);
/// The most that refusals add.
const REFUSAL_CAP: Duration = Duration::from_secs(1);

/// The random numbers of one decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct JitterSamples {
    /// For the wait on the same target.
    pub(super) wait: f64,
    /// For the spread before another one.
    pub(super) spread: f64,
}

/// One target that can be called.
#[derive(Debug)]
struct RecoveryOption<'a> {
    candidate: &'a Candidate,
    same: bool,
    /// Its own wait, spread included, whether or not it is available before.
    wait: Wait,
    /// Time at which it can be called, for ranking: without the spread that only separates callers.
    ready: Instant,
    /// Time at which it will be called.
    at: Instant,
    /// `true` if its circuit or gate decides that time, and not the wait.
    parked: bool,
}

/// Returns the best target and wait that the deadline allows; of equals the route's first.
pub(super) fn decide(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
    samples: JitterSamples,
) -> Decision {
    let options: Vec<_> = situation
        .candidates
        .iter()
        .filter_map(|candidate| option(policy, situation, recovery_options, candidate, samples))
        .collect();
    let prefer_same_target = if stays(policy, situation, recovery_options) {
        policy.prefer_same_target
    } else {
        Duration::ZERO
    };
    let fitting = || {
        options
            .iter()
            .filter(|option| fits(policy, situation, option))
    };
    // One that is closed may refuse once it is not: only flawed answers are a reason to wait for it.
    let is_flawed =
        recovery_options.is_some_and(|options| options.backoff_kind == BackoffKind::AtOnce);
    let spares_worn =
        fitting().any(|option| !option.candidate.is_worn() && (is_flawed || !option.parked));
    let best = fitting().min_by_key(|option| {
        rank(
            situation,
            recovery_options,
            option,
            spares_worn,
            prefer_same_target,
        )
    });
    match best {
        Some(option) if option.parked => Decision::Park {
            until: option.at,
            target: option.candidate.target.clone(),
            strategy: strategy(situation, option),
        },
        Some(option) => Decision::Again {
            wait: option.wait,
            strategy: strategy(situation, option),
            target_hint: Some(option.candidate.target.clone()),
            cost: cost(policy, situation, recovery_options),
        },
        None => Decision::Stop(why_none(situation, &options)),
    }
}

fn option<'a>(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
    candidate: &'a Candidate,
    samples: JitterSamples,
) -> Option<RecoveryOption<'a>> {
    let same = situation.cause_target() == Some(&candidate.target);
    let refused = situation.failure.class.is_local_refusal()
        && situation.last_target() == Some(&candidate.target);
    if candidate.ruled_out
        || recovery_options
            .is_some_and(|recovery_options| !recovery_options.admits(candidate, same))
    {
        return None;
    }
    if refused && situation.failure.class == FailureClass::BudgetEmpty {
        return None;
    }
    let available = candidate.availability.ready_at(situation.now)?;
    let (mut wait, spread) = match (situation.cause(), recovery_options) {
        (Some(failure), Some(recovery_options)) if same => {
            let sample = samples.wait;
            let wait = wait_on_same(
                policy,
                situation,
                failure,
                recovery_options,
                candidate,
                sample,
            );
            (wait, Duration::ZERO)
        }
        // It failed before in this invocation: it gets the wait that it would have got then.
        (Some(_), Some(_)) if candidate.attempts > 0 => {
            let wait = backoff(policy, situation, candidate, &policy.backoff, samples.wait);
            (own(wait), Duration::ZERO)
        }
        _ => {
            let wait = last_wait(policy, situation, candidate, samples.wait).unwrap_or_default();
            (own(wait), FALLBACK_WAIT_MAX.mul_f64(samples.spread))
        }
    };
    // With others to go to, a target that refuses is better left for longer.
    if !policy.uniform_waits && situation.candidates.len() == 1 {
        let waited = situation.now.saturating_duration_since(situation.failed_at);
        wait.duration = wait.duration.saturating_sub(waited);
    }
    wait.duration += refusal_wait(situation, refused);
    let ready = available.max(situation.now + wait.duration);
    wait.duration += spread;
    let mut at = situation.now + wait.duration;
    // A wait that was stated to it is its own: others may pass before that, it may not.
    let stated = same && wait.source != WaitSource::Backoff;
    let parked = available > at && !stated;
    if parked {
        at = available + PARK_SPREAD.mul_f64(samples.spread);
        wait.duration = at.saturating_duration_since(situation.now);
    }
    Some(RecoveryOption {
        candidate,
        same,
        wait,
        ready,
        at,
        parked,
    })
}

/// Returns the time that refusals in a row add to a wait: at once for the target that refused, for
/// all once each has had its turn.
fn refusal_wait(situation: &Situation<'_>, refused: bool) -> Duration {
    let others = if refused {
        0
    } else {
        u32::try_from(situation.candidates.len()).unwrap_or(u32::MAX)
    };
    REFUSAL_STEP
        .saturating_mul(situation.refusals.saturating_sub(others))
        .min(REFUSAL_CAP)
}

/// Returns the wait before the target that just failed is called again.
fn wait_on_same(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    failure: &Failure,
    recovery_options: &RecoveryOptions,
    candidate: &Candidate,
    sample: f64,
) -> Wait {
    let stated = failure.retry_after.filter(|wait| !wait.duration.is_zero());
    let retry = candidate.attempts.max(1);
    let stated = stated.map(|stated| {
        let min = stated.duration.min(WAIT_CAP);
        // The queue itself spreads its callers.
        let spread = min.mul_f64(STATED_SPREAD_SHARE).max(STATED_SPREAD_MIN);
        let spread = if candidate.in_line {
            Duration::ZERO
        } else {
            spread
        };
        Wait {
            duration: min + spread.mul_f64(sample),
            source: stated.source,
        }
    });
    if policy.uniform_waits && recovery_options.backoff_kind != BackoffKind::AtOnce {
        let wait = own(policy.backoff.wait(retry, situation.previous_wait, sample));
        return stated
            .filter(|stated| stated.duration > wait.duration)
            .unwrap_or(wait);
    }
    match (recovery_options.backoff_kind, stated) {
        (BackoffKind::AtOnce, _) => own(Duration::ZERO),
        // Its silence was wait enough.
        (BackoffKind::Backoff, None) if is_silence(failure) => {
            own(FALLBACK_WAIT_MAX.mul_f64(sample))
        }
        (BackoffKind::Backoff | BackoffKind::Throttle, Some(stated)) => {
            match last_wait(policy, situation, candidate, sample)
                .filter(|_| situation.candidates.len() > 1)
            {
                Some(last) => own(last.max(stated.duration)),
                None => stated,
            }
        }
        (BackoffKind::Backoff | BackoffKind::Throttle, None)
            if free_of_charge(situation, failure) =>
        {
            own(Duration::ZERO)
        }
        (BackoffKind::Backoff, None) => own(backoff(
            policy,
            situation,
            candidate,
            &policy.backoff,
            sample,
        )),
        (BackoffKind::Throttle, None) => own(backoff(
            policy,
            situation,
            candidate,
            &policy.throttle_backoff(),
            sample,
        )),
    }
}

/// Returns the wait before a target that failed in this invocation is called again: short while
/// that may have been chance, as configured while the target fails, and long enough to outlast a
/// short outage if it is the last attempt.
fn backoff(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    candidate: &Candidate,
    backoff: &Backoff,
    sample: f64,
) -> Duration {
    let wait = backoff.wait(candidate.attempts.max(1), situation.previous_wait, sample);
    if policy.uniform_waits {
        return wait;
    }
    // Its limit is not mended by trying sooner.
    let limited = situation
        .cause()
        .is_some_and(|failure| failure.class == FailureClass::RateLimited);
    match last_wait(policy, situation, candidate, sample) {
        _ if limited && situation.candidates.len() == 1 => wait,
        Some(last) => last.min(backoff.cap).max(wait),
        None if limited => wait,
        None if candidate.failing => wait,
        None if candidate.erratic || !situation.is_last(policy) => wait.mul_f64(HICCUP_SHARE),
        None => wait,
    }
}

/// Returns the wait before the last attempt, if every target failed by more than chance: until a short
/// outage that began with the first failure is over, or the rest that the deadline leaves.
fn last_wait(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    candidate: &Candidate,
    sample: f64,
) -> Option<Duration> {
    // One that is closed failed others just before.
    let failed =
        |one: &Candidate| one.attempts > 0 || one.failing || one.availability != Availability::Now;
    let mut usable = situation
        .candidates
        .iter()
        .filter(|one| !one.ruled_out && one.availability != Availability::Never);
    let all_failed = situation.cause().is_some() && usable.all(failed);
    let no_chance = candidate.failing
        || (situation.retries_made + situation.unsent_made > 0 && !candidate.erratic);
    let waited =
        situation.failure.class.is_local_refusal() || situation.cause().is_some_and(is_silence);
    if policy.uniform_waits || waited || !situation.is_last(policy) || !all_failed || !no_chance {
        return None;
    }
    let share = if policy.backoff.jitter == Jitter::None {
        0.0
    } else {
        policy.backoff.jitter_share
    };
    let long = policy
        .backoff
        .base
        .mul_f64(LAST_WAIT * (1.0 + share * sample))
        .saturating_sub(
            situation
                .now
                .saturating_duration_since(situation.failing_since),
        );
    let left = situation
        .deadline
        .saturating_duration_since(situation.now)
        .saturating_sub(room(candidate));
    Some(long.min(policy.backoff.cap).min(left))
}

/// Returns whether the target was silent for as long as any target is waited for.
fn is_silence(failure: &Failure) -> bool {
    matches!(
        failure.fault,
        Some(TransportFault::FirstTokenTimeout | TransportFault::IdleTimeout)
    )
}

/// Returns whether the request certainly reached no provider, for the first time: a retry does no
/// harm.
fn free_of_charge(situation: &Situation<'_>, failure: &Failure) -> bool {
    failure.never_sent && situation.unsent_made <= 1
}

fn own(duration: Duration) -> Wait {
    Wait {
        duration,
        source: WaitSource::Backoff,
    }
}

/// Returns whether the attempt would start, and its first token could come, before the deadline.
fn fits(policy: &RetryPolicy, situation: &Situation<'_>, option: &RecoveryOption<'_>) -> bool {
    // After a refusal, to wait for a target that is closed is to park for it, however short the
    // wait.
    let closed = option.candidate.availability != Availability::Now
        && situation.failure.class.is_local_refusal();
    let parks = !(option.parked || closed)
        || (policy.park.enabled && option.at.saturating_duration_since(situation.now) <= MAX_PARK);
    parks && option.at.max(option.ready) + room(option.candidate) <= situation.deadline
}

fn room(candidate: &Candidate) -> Duration {
    MIN_ATTEMPT_TIME.max(candidate.first_token_p50)
}

/// Returns a rank; smaller is better: one that fell silent comes last; if text was sent that cannot
/// be revoked, the target that wrote it comes first; then, if `spares_worn`, one that failed more
/// than once comes late; an untried one comes first after a request that was sent nowhere; then the
/// earliest available, then the healthy, then the same target (its caches are warm).
fn rank(
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
    option: &RecoveryOption<'_>,
    spares_worn: bool,
    prefer_same_target: Duration,
) -> impl Ord + use<> {
    let repeats = situation.relayed == Relayed::AppendOnly && option.same && !option.parked;
    let other_first = recovery_options.is_some_and(|recovery_options| recovery_options.other_first);
    let free_other = !option.same && !option.parked;
    // What was sent nowhere may have its cause on this side: another target shows that, and leaves
    // an attempt for later.
    let shows_cause = free_other && option.candidate.attempts == 0 && option.candidate.healthy;
    let first = if other_first {
        free_other
    } else {
        situation.is_unsent() && shows_cause
    };
    let worn = spares_worn && option.candidate.is_worn();
    let ready = if option.same {
        option.ready
    } else {
        option.ready + prefer_same_target
    };
    (
        option.candidate.failed_silent,
        !repeats,
        worn,
        !first,
        ready,
        Reverse(option.candidate.healthy),
        Reverse(option.same),
    )
}

/// Returns whether the target that failed gets a second attempt before another one is called: only
/// once, only if time mends the cause, if no other call met the same just before, and if retries
/// are left for every other target.
fn stays(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
) -> bool {
    let Some(failure) = situation
        .cause()
        .filter(|_| recovery_options.is_some_and(|recovery_options| !recovery_options.other_first))
    else {
        return false;
    };
    let others = situation
        .candidates
        .iter()
        .filter(|one| one.attempts == 0 && !one.ruled_out)
        .count();
    if (policy.max_retries as usize) < others + 1 {
        return false;
    }
    if situation
        .candidates
        .iter()
        .any(|one| one.failing && situation.cause_target() == Some(&one.target))
    {
        return false;
    }
    let mended = match failure.class {
        FailureClass::RateLimited => failure
            .retry_after
            .is_some_and(|wait| !wait.duration.is_zero()),
        class => class == FailureClass::ServerError,
    };
    let is_first =
        situation.retries_made == 0 && situation.candidates.iter().all(|one| one.attempts < 2);
    mended && is_first && !situation.failure.class.is_local_refusal()
}

fn strategy(situation: &Situation<'_>, option: &RecoveryOption<'_>) -> RecoveryStrategy {
    let last = situation.cause_target().or(situation.last_target());
    if last != Some(&option.candidate.target) {
        RecoveryStrategy::Fallback
    } else if situation.adapted {
        RecoveryStrategy::Adapt
    } else {
        RecoveryStrategy::Retry
    }
}

fn cost(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
) -> Cost {
    let (Some(failure), Some(recovery_options)) = (situation.cause(), recovery_options) else {
        return Cost::Free;
    };
    match recovery_options.backoff_kind {
        _ if !recovery_options.costs_budget
            || free_of_charge(situation, failure)
            || situation.is_limited(policy) =>
        {
            Cost::Free
        }
        BackoffKind::Throttle => Cost::Throttle,
        BackoffKind::Backoff | BackoffKind::AtOnce => Cost::Transient,
    }
}

/// Returns the reason for which no target fits; the earliest available one decides the reason.
fn why_none(situation: &Situation<'_>, options: &[RecoveryOption<'_>]) -> StopReason {
    let Some(soonest) = options
        .iter()
        .min_by_key(|option| option.at + room(option.candidate))
    else {
        return match situation.failure.class {
            FailureClass::BudgetEmpty => StopReason::BudgetEmpty,
            _ => StopReason::NoTarget { retry_in: None },
        };
    };
    let needed = soonest.at + room(soonest.candidate);
    if soonest.wait.source == WaitSource::Backoff
        && soonest.candidate.availability == Availability::Now
    {
        StopReason::DeadlineTooClose {
            needed: needed.saturating_duration_since(situation.now),
        }
    } else {
        // Another source stated that time, so it may be passed on to the caller.
        StopReason::NoTarget {
            retry_in: Some(soonest.at.saturating_duration_since(situation.now)),
        }
    }
}
