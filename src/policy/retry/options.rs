//! Which target can be called after which wait, and which of these is best.

use std::{cmp::Reverse, time::Duration};

use tokio::time::Instant;

use super::{
    Availability, BackoffKind, Candidate, Cost, Counter, Decision, RecoveryOptions, Relayed,
    RetryPolicy, Situation, StopReason,
};
use crate::domain::{
    failure::{Failure, FailureClass, TransportFault, Wait, WaitSource},
    invocation::RecoveryStrategy,
};
use crate::policy::backoff::{Backoff, Jitter};

/// The least spread that is added to a stated wait.
const STATED_SPREAD_MIN: Duration = Duration::from_secs(1);
/// The share of a stated wait that is its spread, where that is more.
const STATED_SPREAD_SHARE: f64 = 0.2;
/// What part of a wait is enough after a failure that may have been chance.
const HICCUP_SHARE: f64 = 0.1;
/// The least wait before the last attempt in an outage, in multiples of the backoff's first wait.
const LAST_WAIT: f64 = 5.0;
/// What each further refusal in a row adds to the wait, so that a refusing target is not called in
/// a hot loop.
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
    /// When it can be called, for ranking: without the spread that only separates callers.
    ready: Instant,
    /// When it will be called.
    at: Instant,
    /// Whether its circuit or gate decides that time, and not the wait.
    parked: bool,
}

/// The best target and wait that the deadline allows.
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
    let best = options
        .iter()
        .enumerate()
        .filter(|(_, option)| fits(policy, situation, option))
        .min_by_key(|(index, option)| {
            rank(
                situation,
                recovery_options,
                option,
                prefer_same_target,
                *index,
            )
        });
    match best {
        Some((_, option)) if option.parked => Decision::Park {
            until: option.at,
            target: option.candidate.target.clone(),
            strategy: strategy(situation, option),
        },
        Some((_, option)) => Decision::Again {
            wait: option.wait,
            strategy: strategy(situation, option),
            target_hint: Some(option.candidate.target.clone()),
            cost: cost(situation, recovery_options),
        },
        None => Decision::Stop(why_none(policy, situation, &options)),
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
    let (mut wait, spread, longest) = match (situation.cause(), recovery_options) {
        (Some(failure), Some(recovery_options)) if same => {
            let wait = |sample| {
                wait_on_same(
                    policy,
                    situation,
                    failure,
                    recovery_options,
                    candidate,
                    sample,
                )
            };
            (wait(samples.wait), Duration::ZERO, wait(1.0).duration)
        }
        // It failed before in this invocation: it gets the wait that it would have got then.
        (Some(_), Some(_)) if candidate.attempts > 0 => {
            let wait = backoff(policy, situation, candidate, &policy.backoff, samples.wait);
            (own(wait), Duration::ZERO, wait)
        }
        _ => {
            let wait = last_wait(policy, situation, candidate, samples.wait).unwrap_or_default();
            (
                own(wait),
                policy.fallback_wait_max.mul_f64(samples.spread),
                wait,
            )
        }
    };
    wait.duration += refusal_wait(situation, refused);
    let ready = available.max(situation.now + wait.duration);
    wait.duration += spread;
    let mut at = situation.now + wait.duration;
    let mut parked = false;
    if available > at {
        // A gate that closed for a stated wait adds its own spread to it; both state the same wait.
        let agrees =
            same && wait.source != WaitSource::Backoff && available <= situation.now + longest;
        parked = !agrees || candidate.in_line;
        at = if agrees {
            available
        } else {
            available + policy.park.spread.mul_f64(samples.spread)
        };
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

/// What refusals in a row add to a wait: at once for the target that refused, for all once each has
/// had its turn.
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

/// The wait before the target that just failed is called again.
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
        let min = stated.duration.min(policy.wait_cap);
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
            own(policy.fallback_wait_max.mul_f64(sample))
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
            &policy.throttle_backoff,
            sample,
        )),
    }
}

/// The wait before a target that failed in this invocation is called again: short while that may
/// have been chance, as configured while the target fails, and long enough to outlast a short
/// outage where it is the last attempt.
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

/// The wait before the last attempt, where every target failed by more than chance: as long as the
/// wait after one failure would have been, or what the deadline leaves.
fn last_wait(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    candidate: &Candidate,
    sample: f64,
) -> Option<Duration> {
    // Staying with a target spent the attempt that would have shown whether another one is healthy.
    let stayed = situation.candidates.iter().any(|one| one.attempts > 1);
    // One that is closed failed others just before.
    let failed = |one: &Candidate| {
        one.attempts > 0 || one.availability != Availability::Now || (stayed && !one.answers)
    };
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
        .mul_f64(LAST_WAIT * (1.0 + share * sample));
    let left = situation
        .deadline
        .saturating_duration_since(situation.now)
        .saturating_sub(room(policy, candidate));
    Some(long.min(policy.backoff.cap).min(left))
}

/// Whether the target was silent for as long as any target is waited for.
fn is_silence(failure: &Failure) -> bool {
    matches!(
        failure.fault,
        Some(TransportFault::FirstTokenTimeout | TransportFault::IdleTimeout)
    )
}

/// Whether the request certainly reached no provider, for the first time: a retry does no harm.
fn free_of_charge(situation: &Situation<'_>, failure: &Failure) -> bool {
    failure.never_sent && situation.unsent_made <= 1
}

fn own(duration: Duration) -> Wait {
    Wait {
        duration,
        source: WaitSource::Backoff,
    }
}

/// Whether the attempt would start, and its first token could come, before the deadline.
fn fits(policy: &RetryPolicy, situation: &Situation<'_>, option: &RecoveryOption<'_>) -> bool {
    // After a refusal, to wait for a target that is closed is to park for it, however short the
    // wait.
    let closed = option.candidate.availability != Availability::Now
        && situation.failure.class.is_local_refusal();
    let parks = !(option.parked || closed)
        || (policy.park.enabled
            && option.at.saturating_duration_since(situation.now) <= policy.park.max_wait);
    parks && option.at + room(policy, option.candidate) <= situation.deadline
}

fn room(policy: &RetryPolicy, candidate: &Candidate) -> Duration {
    policy.min_attempt_time.max(candidate.first_token_p50)
}

/// Smaller is better: where text was sent that cannot be revoked, the target that wrote it comes
/// first; one that stayed silent comes last, before it one with more than one unusable answer, then
/// the earliest available, then the healthy, then the same target (its caches are warm), then the
/// route's order.
fn rank(
    situation: &Situation<'_>,
    recovery_options: Option<&RecoveryOptions>,
    option: &RecoveryOption<'_>,
    prefer_same_target: Duration,
    index: usize,
) -> impl Ord + use<> {
    let repeats = situation.relayed == Relayed::AppendOnly && option.same && !option.parked;
    let other_first = recovery_options.is_some_and(|recovery_options| recovery_options.other_first);
    let free_other = !option.same && !option.parked;
    let worn = option.candidate.attempts > 1;
    let ready = if option.same {
        option.ready
    } else {
        option.ready + prefer_same_target
    };
    (
        !repeats,
        option.candidate.failed_silent,
        worn,
        other_first && !free_other,
        ready,
        Reverse(option.candidate.healthy),
        Reverse(option.same),
        index,
    )
}

/// Whether the target that failed gets a second attempt before another one is called: only once,
/// only where time mends the cause, where no other call met the same just before, and where retries
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
    mended && situation.retries_made == 0 && !situation.failure.class.is_local_refusal()
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

fn cost(situation: &Situation<'_>, recovery_options: Option<&RecoveryOptions>) -> Cost {
    let (Some(failure), Some(recovery_options)) = (situation.cause(), recovery_options) else {
        return Cost::Free;
    };
    match (recovery_options.counter, recovery_options.backoff_kind) {
        (Counter::Semantic, _) => Cost::Semantic,
        (Counter::Transport, _) if free_of_charge(situation, failure) => Cost::Free,
        (Counter::Transport, BackoffKind::Throttle) => Cost::Throttle,
        (Counter::Transport, BackoffKind::Backoff | BackoffKind::AtOnce) => Cost::Transient,
    }
}

/// Why no target fits; the earliest available one decides the reason.
fn why_none(
    policy: &RetryPolicy,
    situation: &Situation<'_>,
    options: &[RecoveryOption<'_>],
) -> StopReason {
    let Some(soonest) = options
        .iter()
        .min_by_key(|option| option.at + room(policy, option.candidate))
    else {
        return match situation.failure.class {
            FailureClass::BudgetEmpty => StopReason::BudgetEmpty,
            _ => StopReason::NoTarget { retry_in: None },
        };
    };
    let needed = soonest.at + room(policy, soonest.candidate);
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
