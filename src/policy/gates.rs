//! Gates: the time until which a target must not be called, by rate limit, credential and
//! configuration.
//!
//! A circuit judges whether a target is healthy; a gate only knows that a call is pointless before
//! a certain time, because the provider stated so: a limit is used up, a key is rejected, a model
//! does not exist. A stated wait is kept: a later, shorter one does not shorten it. A gate that
//! closed without a stated end sends one call a minute as a probe.
//!
//! It has no clock and no lock, and counts nothing: a closed gate shows nothing about the target's
//! health.

mod limits;
mod pacer;
mod refusals;

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::{pacer::Pacer, refusals::RefusalPattern};
use crate::domain::{
    circuit::GateKind,
    failure::{Failure, FailureClass, WaitSource},
};

/// What a request names beside its model; where one of these is not found, the target is well.
const PARTS_OF_A_REQUEST: [&str; 8] = [
    "file",
    "files",
    "image",
    "attachment",
    "container",
    "cachedcontent",
    "cachedcontents",
    "document",
];

/// What a target is made of; all of its calls fail where one of these is not found.
const PARTS_OF_A_TARGET: [&str; 8] = [
    "model",
    "models",
    "deployment",
    "engine",
    "endpoint",
    "endpoints",
    "profile",
    "url",
];

/// The settings of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatePolicy {
    /// How long the rate gate closes when a limit was reached and no wait was stated. 10 ms to 5
    /// min; shorter runs into the limit again. Where a provider refuses some calls at random,
    /// however slowly they come, the gate stays open, and only the refused call waits.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub rate_wait: Duration,
    /// Longest stated wait that the rate gate keeps. 1 s to 1 h; a provider that lies about an hour
    /// costs this much.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub rate_wait_max: Duration,
    /// How long the credential and configuration gates stay closed between two probes. 1 s to 1 h;
    /// longer finds out later that a quota is back, shorter sends more calls that are refused. A
    /// new key or a reset opens them at once.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub probe_interval: Duration,
    /// Share of a wait that is added at most, by dice, so that callers do not come back together;
    /// nothing is added while they pass one at a time anyway. 0 to 1.
    pub jitter: f64,
    /// Whether the rate gate reads the remaining and reset headers of successful responses, and
    /// closes before the limit is hit.
    pub pace: bool,
}

/// Permission to pass a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatePass {
    /// The gate is open.
    Open,
    /// The gate was closed, and this call finds out whether it still must be. The next one may do
    /// so a `probe_interval` later, whatever becomes of this one.
    Probe,
}

/// A change of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateChange {
    /// The gate closed, or stays closed for longer.
    Closed {
        /// How long from now.
        reopens_in: Duration,
    },
    /// The gate opened.
    Opened {
        /// How long it was closed.
        closed_for: Duration,
    },
}

/// A gate of one target.
#[derive(Debug)]
pub struct Gate {
    kind: GateKind,
    policy: Arc<GatePolicy>,
    closed_until: Option<Instant>,
    /// When it closed; probes and longer waits are no new closing.
    closed_at: Option<Instant>,
    /// Whether a probe went out since it closed last.
    probing: bool,
    class: Option<FailureClass>,
    /// The failure that closed it last, while it is closed or waits for its probe to succeed.
    cause: Option<Arc<Failure>>,
    /// Grows whenever it is opened from outside; what a call that passed before reports then is out
    /// of date.
    epoch: u64,
    /// Of a rate gate after a limit was reached.
    pacer: Option<Pacer>,
    refusals: RefusalPattern,
}

// === impl GatePolicy ===

impl Default for GatePolicy {
    fn default() -> Self {
        Self {
            rate_wait: Duration::from_secs(1),
            rate_wait_max: Duration::from_mins(5),
            probe_interval: Duration::from_mins(1),
            jitter: 0.2,
            pace: true,
        }
    }
}

impl GatePolicy {
    /// What cannot work, as the field's name and the reason; empty when all is well.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let hour = Duration::from_hours(1);
        for (field, value, min, max) in [
            (
                "rate_wait",
                self.rate_wait,
                Duration::from_millis(10),
                Duration::from_mins(5),
            ),
            (
                "rate_wait_max",
                self.rate_wait_max,
                Duration::from_secs(1),
                hour,
            ),
            (
                "probe_interval",
                self.probe_interval,
                Duration::from_secs(1),
                hour,
            ),
        ] {
            if value < min || value > max {
                faults.push((field, format!("is {value:?}; must be {min:?} to {max:?}")));
            }
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            faults.push(("jitter", format!("is {}; must be 0 to 1", self.jitter)));
        }
        faults
    }
}

// === impl Gate ===

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn new(kind: GateKind, policy: Arc<GatePolicy>) -> Self {
        Self {
            kind,
            policy,
            closed_until: None,
            closed_at: None,
            probing: false,
            class: None,
            cause: None,
            epoch: 0,
            pacer: None,
            refusals: RefusalPattern::none(),
        }
    }

    /// Applies new settings; a closed gate stays closed for its stated time.
    pub fn set_policy(&mut self, policy: Arc<GatePolicy>) {
        self.policy = policy;
    }

    /// Which gate it is.
    #[must_use]
    pub fn kind(&self) -> GateKind {
        self.kind
    }

    /// Why it closed last, while it is closed or waits for its probe to succeed.
    #[must_use]
    pub fn class(&self) -> Option<FailureClass> {
        self.class
    }

    /// The failure that a refused caller gets: the one that closed the gate, with the time until
    /// the next probe. `None` while calls may pass, and for a rate gate, which is worth waiting
    /// for. It has no words of the provider, which may quote the request of another caller.
    #[must_use]
    pub fn refusal(&self, now: Instant) -> Option<Failure> {
        let (cause, retry_in) = (self.cause.as_ref()?, self.peek(now).err()?);
        let message = format!(
            "{}, as an earlier call found; this one was not sent",
            cause.own_words()
        );
        let fact = cause.class.as_str().to_owned();
        let refused = Failure {
            never_sent: true,
            message,
            fact,
            ..Failure::clone(cause)
        };
        (self.kind != GateKind::Rate).then(|| refused.with_retry_after(retry_in, WaitSource::Gate))
    }

    /// Since when a credential or configuration gate is closed; its probe may be due.
    #[must_use]
    pub fn closed_since(&self) -> Option<Instant> {
        self.closed_at.filter(|_| self.kind != GateKind::Rate)
    }

    /// How often it was opened from outside. See [`Gate::open`].
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a call may pass.
    ///
    /// # Errors
    /// How long it stays closed.
    pub fn peek(&self, now: Instant) -> Result<(), Duration> {
        match self.closed_until {
            Some(until) if until > now => Err(until - now),
            Some(_) | None => Ok(()),
        }
    }

    /// Passes a call, or returns when to retry; `ahead`: before those who wait for their turn at a
    /// rate gate. Of a credential or configuration gate whose time is over, only one call in
    /// `probe_interval` passes until [`Gate::succeed`].
    ///
    /// # Errors
    /// How long it stays closed.
    pub fn admit(&mut self, now: Instant, ahead: bool) -> Result<GatePass, Duration> {
        self.peek(now)?;
        match (self.kind, self.closed_until) {
            (GateKind::Rate, _) => {
                self.pacer.take_if(|pacer| pacer.is_over(now));
                match &mut self.pacer {
                    Some(pacer) if ahead => pacer.pass(now),
                    Some(pacer) => pacer.take(now)?,
                    None => {}
                }
                self.refusals.passed(now);
                Ok(GatePass::Open)
            }
            (_, None) => Ok(GatePass::Open),
            (GateKind::Credential | GateKind::Configuration, Some(_)) => {
                self.closed_until = Some(now + self.policy.probe_interval);
                self.probing = true;
                Ok(GatePass::Probe)
            }
        }
    }

    /// When a call may pass that comes after so many others: of a rate gate at which a limit was
    /// reached, calls pass one at a time.
    ///
    /// # Errors
    /// How long it has to wait.
    pub fn peek_after(&self, now: Instant, before: u32) -> Result<(), Duration> {
        self.peek(now)?;
        match self.pacer.as_ref().filter(|pacer| !pacer.is_over(now)) {
            Some(pacer) if pacer.ready_at(now, before) > now => {
                Err(pacer.ready_at(now, before) - now)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether calls pass one at a time.
    #[must_use]
    pub fn is_paced(&self, now: Instant) -> bool {
        self.pacer.as_ref().is_some_and(|pacer| !pacer.is_over(now))
    }

    /// Closes for the wait that a failure states, or for the default when it states none; an
    /// earlier, longer closing stays. Where a rate gate's refusals hit calls at random, one that
    /// states no wait closes nothing. `took`: how long the refusal took to arrive.
    ///
    /// Returns the change, or `None` when the gate was closed for longer already, or stays open.
    pub fn close(
        &mut self,
        now: Instant,
        failure: &Failure,
        took: Duration,
        rng: f64,
    ) -> Option<GateChange> {
        // A wait of zero right after a limit was reached cannot be right: it would cause a hot
        // loop.
        let stated = failure
            .retry_after
            .map(|wait| wait.duration)
            .filter(|wait| !wait.is_zero());
        let wait = match self.kind {
            GateKind::Rate => stated
                .unwrap_or(self.policy.rate_wait)
                .min(self.policy.rate_wait_max),
            GateKind::Credential | GateKind::Configuration => self.policy.probe_interval,
        };
        let is_random = self.kind == GateKind::Rate && self.is_refused_at_random(now, took);
        if is_random && stated.is_none() {
            return None;
        }
        // Queued callers do not return together anyway.
        let jitter = if self.is_paced(now) {
            0.0
        } else {
            self.policy.jitter.clamp(0.0, 1.0)
        };
        let until = now + wait.mul_f64(1.0 + jitter * rng.clamp(0.0, 1.0));
        if self.kind == GateKind::Rate && !is_random {
            self.pace(now, took, until);
        }
        self.cause = Some(Arc::new(failure.clone()));
        self.close_until(now, until, failure.class)
    }

    /// Opens, whatever was stated: an operator, or new settings, removed the cause. Reports of
    /// calls that passed before change nothing any more.
    pub fn open(&mut self, now: Instant) -> Option<GateChange> {
        self.epoch += 1;
        self.pacer = None;
        self.refusals = RefusalPattern::none();
        self.closed_until?;
        Some(self.opened(now))
    }

    /// Opens a rate gate whose time is over.
    pub fn expire(&mut self, now: Instant) -> Option<GateChange> {
        let over =
            self.kind == GateKind::Rate && self.closed_until.is_some() && self.peek(now).is_ok();
        over.then(|| self.opened(now))
    }

    fn opened(&mut self, now: Instant) -> GateChange {
        self.closed_until = None;
        self.probing = false;
        self.class = None;
        self.cause = None;
        let closed_at = self.closed_at.take().unwrap_or(now);
        GateChange::Opened {
            closed_for: now.saturating_duration_since(closed_at),
        }
    }

    /// A call that passed succeeded: the gate opens. A success that arrives while no probe is out
    /// belongs to a call from before the gate closed, and shows nothing.
    pub fn succeed(&mut self, now: Instant) -> Option<GateChange> {
        match (self.kind, self.closed_until) {
            (_, None) => None,
            // A call that was sent before the limit was reached shows nothing about the limit.
            (GateKind::Rate, Some(until)) if until > now => None,
            (GateKind::Credential | GateKind::Configuration, Some(_)) if !self.probing => None,
            (GateKind::Rate | GateKind::Credential | GateKind::Configuration, Some(_)) => {
                Some(self.opened(now))
            }
        }
    }

    /// The provider took a call that passed: a rate gate's limit is not reached now.
    pub fn accepted(&mut self, now: Instant) {
        if let Some(pacer) = &mut self.pacer {
            pacer.accepted(now);
        }
    }

    /// Reads the headers of a response: when a limit has nothing left, the rate gate closes until
    /// it is reset.
    pub fn observe_limits(
        &mut self,
        now: Instant,
        headers: &[(String, String)],
    ) -> Option<GateChange> {
        if self.kind != GateKind::Rate || !self.policy.pace {
            return None;
        }
        let wait = limits::wait_for_reset(headers)?.min(self.policy.rate_wait_max);
        self.close_until(now, now + wait, FailureClass::RateLimited)
    }

    /// Counts a refusal, and returns whether refusals hit calls at random; then all calls pass as
    /// they come.
    fn is_refused_at_random(&mut self, now: Instant, took: Duration) -> bool {
        // Calls that were in flight when the gate closed reached the same limit.
        let explained = self.peek(now).is_err()
            || self.pacer.as_ref().is_none_or(|pacer| {
                pacer.is_over(now) || pacer.explains_refusal(now.checked_sub(took).unwrap_or(now))
            });
        let is_random = self.refusals.refused(now, explained);
        if is_random {
            self.pacer = None;
        }
        is_random
    }

    /// Slows down. Calls that were in flight when the gate closed reach the same limit, and add no
    /// information.
    fn pace(&mut self, now: Instant, took: Duration, until: Instant) {
        let closed = self.peek(now).is_err();
        match &mut self.pacer {
            Some(pacer) if closed => pacer.limited_too(now, until),
            Some(pacer) if !pacer.is_over(now) => pacer.limited(now, took, until),
            Some(_) | None => self.pacer = Some(Pacer::new(now, took, until)),
        }
    }

    fn close_until(
        &mut self,
        now: Instant,
        until: Instant,
        class: FailureClass,
    ) -> Option<GateChange> {
        self.probing = false;
        if until <= now || self.closed_until.is_some_and(|already| already >= until) {
            return None;
        }
        // The end of a rate gate's time is not reported: it is simply open again.
        let over = self.kind == GateKind::Rate && self.peek(now).is_ok();
        if over || self.closed_at.is_none() {
            self.closed_at = Some(now);
        }
        self.closed_until = Some(until);
        self.class = Some(class);
        Some(GateChange::Closed {
            reopens_in: until - now,
        })
    }
}

/// The gate that a failure closes; `by_tool`: whether it is that of a tool, `uniform_waits`: as the
/// retry policy states.
#[must_use]
pub fn closed_by(failure: &Failure, by_tool: bool, uniform_waits: bool) -> Option<GateKind> {
    let closes = |kind: &GateKind| match kind {
        // The policy alone says how long to wait where the provider does not.
        GateKind::Rate => !uniform_waits || failure.retry_after.is_some(),
        // Of a tool server's credential only its own HTTP status speaks.
        GateKind::Credential => {
            (!by_tool || failure.status.is_some()) && !concerns_one_request(failure)
        }
        // What a tool did not find was not the tool itself.
        GateKind::Configuration => !by_tool && !concerns_one_request(failure),
    };
    failure.class.row().gate.filter(closes)
}

/// Whether a failure shows something about one request, and nothing about the target: a file that
/// is not found, an answer so long that the credit does not cover it. Other callers, with other
/// requests, are not to be refused for it.
fn concerns_one_request(failure: &Failure) -> bool {
    let words = format!("{} {}", failure.message, failure.fact).to_lowercase();
    let has = |known: &[&str]| {
        words
            .split(|char: char| !char.is_alphanumeric())
            .any(|word| known.contains(&word))
    };
    match failure.class {
        FailureClass::NotFound => {
            has(&PARTS_OF_A_REQUEST) || !(has(&PARTS_OF_A_TARGET) || words.contains("模型"))
        }
        FailureClass::QuotaExceeded => {
            words.contains("max_tokens") || words.contains("can only afford")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
