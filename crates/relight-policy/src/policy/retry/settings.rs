//! The settings of the planner: how often, how long, and the presets.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::units,
    policy::{
        backoff::{Backoff, Jitter},
        continuation::OnLength,
    },
};

/// Attempts of one invocation that no setting exceeds: over all targets, the first and hedges
/// included.
pub const HARD_CAP_ATTEMPTS: u32 = MAX_RETRIES + 1;

/// The most retries that a policy or a caller may set, as in the contract.
pub const MAX_RETRIES: u32 = 5;

/// Attempts of one invocation that rate limits may refuse and that use up no retry.
pub const MAX_LIMITED: u32 = 10;

/// The longest wait before another target that is free is called: enough to spread those that
/// failed together (scenario 04).
pub(super) const FALLBACK_WAIT_MAX: Duration = Duration::from_millis(50);
/// Time that a wait stated by the provider is cut to (scenario 16a).
pub const WAIT_CAP: Duration = Duration::from_mins(5);
/// Least time that an attempt must have before the deadline to be started at all; the target's
/// median first token counts if that is longer.
pub const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(300);
/// Calls that may wait for a target at once, of all policies together, per process. Further ones
/// fail with the time to come back.
pub const MAX_PARKED: usize = 10_000;
/// The longest single wait for a target.
pub(super) const MAX_PARK: Duration = Duration::from_mins(5);
/// Time over which callers that wait for the same moment are spread (scenario 03).
pub(super) const PARK_SPREAD: Duration = Duration::from_millis(50);
/// Longest base and cap of the wait after a rate limit or overload that states none (scenarios 20a
/// to 20c).
const THROTTLE_BASE: Duration = Duration::from_secs(1);
const THROTTLE_CAP: Duration = Duration::from_secs(20);

/// Conditions, number and waits of an invocation's retries, over all its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own in the configuration"
)]
pub struct RetryPolicy {
    /// If set, attempts after the first are made; default true.
    pub enabled: bool,
    /// Calls after the first, over all targets together and for whatever reason: a failure, an
    /// unusable completion, a request that was changed for its target, a completion that is continued, a
    /// hedge. A number from 0 to 5 (six calls are the hard cap); default 2. `0`: one upstream call
    /// and no other, whatever its result. Attempts that certainly reached no provider (no
    /// connection could be made) use up an allowance of their own, of the same size. So do those
    /// that a rate limit refused, unless `uniform_waits`: a call that was told to come later does
    /// so up to 10 times, as the deadline allows. An attempt that was lost in a crash of Relight is
    /// made again and does not count.
    pub max_retries: u32,
    /// If set, the same target is called again when the process behind it died; default false,
    /// because a process that died of the request would die of it again. Another target is called
    /// in any case.
    pub retry_crash: bool,
    /// If set, another target is called when this one refused by its content policy; default false.
    pub fallback_on_content_filter: bool,
    /// If set, every failure of a call is followed by the wait of `backoff` before its target is
    /// called again, whatever its class, and even if the request was not sent; default false. Then
    /// a rate limit without a stated wait does not delay other calls, and a stated wait that is
    /// longer still counts.
    pub uniform_waits: bool,
    /// The wait before a target that failed is called again. After a failure that may be chance it
    /// is a tenth of that; in an outage, the last attempt is made five times `base` at the earliest
    /// after the first failure, or when the deadline leaves just time for it, and not while other
    /// calls fail at the target: so a short outage is outlasted. A target that was silent until its
    /// timer ended gets no further wait. After a rate limit or overload
    /// without a stated wait, `base` is 1 s and `cap` 20 s at most, and half of the wait is left to
    /// chance.
    pub backoff: Backoff,
    /// Time by which the target that failed may be ready later than another one and still be called
    /// first: once, after its first failure, if time mends such a failure (a limit with a stated
    /// wait, a server error), the target did not fail other calls just before, and retries are left
    /// for every other target. A duration from `0ms` to `1m`; default `3s`: a brief failure then
    /// costs a short wait, and not the preferred model and its prompt cache. `0ms`: the target that
    /// is ready first.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub prefer_same_target: Duration,
    /// Tokens that all attempts may be billed, as a multiple of the estimate for the first. A
    /// number from 1 to 100; default 3. An attempt that would exceed it, if it cost the estimate
    /// again, is not made.
    pub max_token_multiple: f64,
    /// Treatment of a completion of text alone that the model's own output limit cut: `continue` has
    /// it continued, at most 3 times, if the target supports it or the caller allows it, else it is
    /// passed on as it is; `shorten` requests the completion again, with a note to be shorter; `accept`
    /// passes it on. Default `continue`. A limit that the caller sets itself is always accepted.
    pub on_length: OnLength,
    /// Waiting while no target may be called.
    pub park: ParkPolicy,
}

/// Waiting while no target may be called because of circuits or gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParkPolicy {
    /// If set, calls wait for a target, for 5 minutes at most; default true. Without it they fail
    /// at once with the time to come back.
    pub enabled: bool,
}

// === impl RetryPolicy ===

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 2,
            retry_crash: false,
            fallback_on_content_filter: false,
            uniform_waits: false,
            backoff: Backoff::default(),
            prefer_same_target: Duration::from_secs(3),
            max_token_multiple: 3.0,
            on_length: OnLength::Continue,
            park: ParkPolicy::default(),
        }
    }
}

impl RetryPolicy {
    /// The names that `preset` knows.
    pub const PRESETS: [&'static str; 6] =
        ["standard", "agent", "patient", "steady", "literal", "none"];

    /// Returns the preset of that name:
    ///
    /// - `standard`: the defaults, 2 retries;
    /// - `agent`: 2 retries, and a target whose process died is called again (an agent's own model
    ///   server restarts);
    /// - `patient`: 3 retries after 1 s, 2 s, 4 s, … up to 32 s, each up to 25 % longer, whatever
    ///   failed, crashes too;
    /// - `steady`: as `patient`, but up to 30 s, each up to 20 % longer, and no process that died
    ///   is called again;
    /// - `literal`: 2 retries with the waits of `patient`; no process that died is called again,
    ///   and no call waits for a circuit;
    /// - `none`: one attempt.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "standard" => Some(Self::default()),
            "agent" => Some(Self {
                retry_crash: true,
                ..Self::default()
            }),
            "patient" => Some(Self {
                max_retries: 3,
                retry_crash: true,
                uniform_waits: true,
                ..Self::default()
            }),
            "steady" => Some(Self {
                max_retries: 3,
                uniform_waits: true,
                backoff: Backoff {
                    cap: Duration::from_secs(30),
                    jitter_share: 0.2,
                    ..Backoff::default()
                },
                ..Self::default()
            }),
            "literal" => Some(Self {
                uniform_waits: true,
                park: ParkPolicy { enabled: false },
                ..Self::default()
            }),
            "none" => Some(Self {
                enabled: false,
                max_retries: 0,
                ..Self::default()
            }),
            _ => None,
        }
    }

    /// The policy of an operation for which nothing is configured: `planner`, `evaluator` and
    /// `replanner` are tried again once, all others as `standard`.
    #[must_use]
    pub fn for_operation(operation: &str) -> Self {
        match operation {
            "planner" | "evaluator" | "replanner" => Self::default().with_max_retries(1),
            _ => Self::default(),
        }
    }

    /// The same policy with another number of retries, up to the hard cap.
    #[must_use]
    pub fn with_max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = max_retries.min(MAX_RETRIES);
        self
    }

    /// Returns the wait after a rate limit or overload without a stated wait.
    #[must_use]
    pub fn throttle_backoff(&self) -> Backoff {
        Backoff {
            base: self.backoff.base.min(THROTTLE_BASE),
            cap: self.backoff.cap.min(THROTTLE_CAP),
            jitter: match self.backoff.jitter {
                Jitter::None => Jitter::None,
                Jitter::Additive | Jitter::Full | Jitter::Equal | Jitter::Decorrelated => {
                    Jitter::Equal
                }
            },
            ..self.backoff
        }
    }

    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.max_retries > MAX_RETRIES {
            let words = format!("must be at most {MAX_RETRIES}, not {}", self.max_retries);
            faults.push(("max_retries", words));
        }
        faults.extend(self.backoff.validate_as([
            "backoff.base",
            "backoff.cap",
            "backoff.jitter_share",
        ]));
        if self.prefer_same_target > Duration::from_mins(1) {
            faults.push(("prefer_same_target", "must be from 0ms to 1m".to_owned()));
        }
        if !(1.0..=100.0).contains(&self.max_token_multiple) {
            faults.push((
                "max_token_multiple",
                format!("must be from 1 to 100, not {}", self.max_token_multiple),
            ));
        }
        faults
    }

    /// Returns whether an attempt that costs the estimate once more would exceed the tokens that
    /// may be billed.
    #[expect(
        clippy::cast_precision_loss,
        reason = "token counts are far below 2^53"
    )]
    pub(super) fn tokens_used_up(&self, first_attempt: u64, spent: u64) -> bool {
        first_attempt > 0
            && (spent.saturating_add(first_attempt)) as f64
                > first_attempt as f64 * self.max_token_multiple
    }
}

// === impl ParkPolicy ===

impl Default for ParkPolicy {
    fn default() -> Self {
        Self { enabled: true }
    }
}
