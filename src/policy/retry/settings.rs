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

/// Attempts of one invocation that no setting exceeds: over all targets, the first, hedges and
/// semantic ones included.
pub const HARD_CAP_ATTEMPTS: u32 = MAX_RETRIES + 1;

/// The most retries that a policy or a caller may set, as in the contract.
pub const MAX_RETRIES: u32 = 5;

/// Whether, how often and after which waits an invocation is retried, over all its targets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own in the configuration"
)]
pub struct RetryPolicy {
    /// Whether there is anything after the first attempt; default true.
    pub enabled: bool,
    /// Attempts after the first, over all targets together. A number from 0 to 5 (six attempts are
    /// the hard cap); default 2. `0`: one upstream call and no other, whatever its result. Attempts
    /// that certainly reached no provider (no connection could be made) use up an allowance of
    /// their own, of the same size.
    pub max_retries: u32,
    /// Attempts after an unusable answer, counted apart from `max_retries` but within the hard cap.
    /// A number from 0 to 5; default 4. They touch neither budget nor circuit. One that was longer
    /// than the size limit is paid for, and is requested again once, within `max_retries`.
    pub semantic_retries: u32,
    /// Whether the same target is called again when the process behind it died; default false,
    /// because a process that died of the request would die of it again. Another target is called
    /// in any case.
    pub retry_crash: bool,
    /// Whether another target is called when this one refused by its content policy; default false.
    pub fallback_on_content_filter: bool,
    /// Whether another target is called when the caller lacks permission at one; default false.
    pub fallback_on_permission_denied: bool,
    /// Whether every failure of a call is followed by the wait of `backoff` before its target is
    /// called again, whatever its class, and even if the request was not sent; default false. Then
    /// `throttle_backoff` is not used, a rate limit without a stated wait does not delay other
    /// calls, and a stated wait that is longer still counts.
    pub uniform_waits: bool,
    /// The wait before a target that failed is called again. After a failure that may be chance it
    /// is a tenth of that; in an outage, before the last attempt, five times `base` at least, or
    /// what the deadline leaves, but at most `cap`: so a short outage is outlasted. A target that
    /// was silent until its timer ended gets no further wait.
    pub backoff: Backoff,
    /// The wait after a rate limit or overload without a stated wait; default base `1s`, cap `20s`,
    /// `equal` jitter. Fields that are left out are those of `backoff`'s defaults.
    pub throttle_backoff: Backoff,
    /// The longest wait before another target that is free is called. A duration from `0ms` to
    /// `10s`; default `50ms`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub fallback_wait_max: Duration,
    /// How much later the target that failed may be ready than another one and still be called
    /// first: once, after its first failure, where time mends such a failure (a limit with a stated
    /// wait, a server error), the target did not fail other calls just before, and retries are left
    /// for every other target. A duration from `0ms` to `1m`; default `3s`: a brief failure then
    /// costs a short wait, and not the preferred model and its prompt cache. `0ms`: the target that
    /// is ready first.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub prefer_same_target: Duration,
    /// What a wait stated by the provider is cut to. A duration from `1s` to `1h`; default `5m`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub wait_cap: Duration,
    /// The least time that an attempt must have before the deadline to be started at all; the
    /// target's median first token counts where that is longer. A duration from `1ms` to `1m`;
    /// default `300ms`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub min_attempt_time: Duration,
    /// What all attempts may be billed, as a multiple of the estimate for the first. A number from
    /// 1 to 100; default 3. An attempt that would exceed it, if it cost the estimate again, is not
    /// made.
    pub max_token_multiple: f64,
    /// What is done with an answer of text alone that the model's own output limit cut: `continue`
    /// has it continued, at most 3 times, where the target supports it or the caller allows it,
    /// else it is passed on as it is; `shorten` requests the answer again, with a note to be
    /// shorter; `accept` passes it on. Default `continue`. A limit that the caller sets itself is
    /// always accepted.
    pub on_length: OnLength,
    /// Waiting while no target may be called.
    pub park: ParkPolicy,
}

/// Waiting while no target may be called because of circuits or gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParkPolicy {
    /// Whether calls wait for a target at all; default true. Without it they fail at once with the
    /// time to come back.
    pub enabled: bool,
    /// How many calls may wait at once, of all policies together, per process, for one more of this
    /// policy to wait. A number from 0 to 1 000 000; default 10 000. Further ones fail with the
    /// time to come back.
    pub max_parked: u32,
    /// The longest single wait. A duration from `0ms` to `1h`; default `5m`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_wait: Duration,
    /// Over how long the callers that wait for the same moment are spread. A duration from `0ms` to
    /// `10s`; default `50ms`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub spread: Duration,
}

// === impl RetryPolicy ===

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 2,
            semantic_retries: 4,
            retry_crash: false,
            fallback_on_content_filter: false,
            fallback_on_permission_denied: false,
            uniform_waits: false,
            backoff: Backoff::default(),
            throttle_backoff: Backoff {
                cap: Duration::from_secs(20),
                jitter: Jitter::Equal,
                ..Backoff::default()
            },
            fallback_wait_max: Duration::from_millis(50),
            prefer_same_target: Duration::from_secs(3),
            wait_cap: Duration::from_mins(5),
            min_attempt_time: Duration::from_millis(300),
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

    /// The preset of that name:
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
                park: ParkPolicy {
                    enabled: false,
                    ..ParkPolicy::default()
                },
                ..Self::default()
            }),
            "none" => Some(Self {
                enabled: false,
                max_retries: 0,
                semantic_retries: 0,
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

    /// What is wrong with it: the field and why.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (field, count) in [
            ("max_retries", self.max_retries),
            ("semantic_retries", self.semantic_retries),
        ] {
            if count > MAX_RETRIES {
                faults.push((field, format!("must be at most {MAX_RETRIES}, not {count}")));
            }
        }
        faults.extend(self.backoff.validate_as([
            "backoff.base",
            "backoff.factor",
            "backoff.cap",
            "backoff.jitter_share",
        ]));
        faults.extend(self.throttle_backoff.validate_as([
            "throttle_backoff.base",
            "throttle_backoff.factor",
            "throttle_backoff.cap",
            "throttle_backoff.jitter_share",
        ]));
        let hour = Duration::from_hours(1);
        for (field, duration, min, max) in [
            (
                "fallback_wait_max",
                self.fallback_wait_max,
                Duration::ZERO,
                Duration::from_secs(10),
            ),
            (
                "prefer_same_target",
                self.prefer_same_target,
                Duration::ZERO,
                Duration::from_mins(1),
            ),
            ("wait_cap", self.wait_cap, Duration::from_secs(1), hour),
            (
                "min_attempt_time",
                self.min_attempt_time,
                Duration::from_millis(1),
                Duration::from_mins(1),
            ),
            ("park.max_wait", self.park.max_wait, Duration::ZERO, hour),
            (
                "park.spread",
                self.park.spread,
                Duration::ZERO,
                Duration::from_secs(10),
            ),
        ] {
            if duration < min || duration > max {
                let (min, max) = (units::format_duration(min), units::format_duration(max));
                faults.push((field, format!("must be from {min} to {max}")));
            }
        }
        if !(1.0..=100.0).contains(&self.max_token_multiple) {
            faults.push((
                "max_token_multiple",
                format!("must be from 1 to 100, not {}", self.max_token_multiple),
            ));
        }
        if self.park.max_parked > 1_000_000 {
            faults.push(("park.max_parked", "must be at most 1000000".to_owned()));
        }
        faults
    }

    /// Whether an attempt that costs the estimate once more would exceed what may be billed.
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
        Self {
            enabled: true,
            max_parked: 10_000,
            max_wait: Duration::from_mins(5),
            spread: Duration::from_millis(50),
        }
    }
}
