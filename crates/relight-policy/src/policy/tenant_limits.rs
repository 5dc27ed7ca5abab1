//! Limits of a tenant: its calls and tokens a minute, and its calls in flight.
//!
//! A call is let in while its tenant has room under each of its limits, and at once takes what it
//! is expected to use. What it used in fact is settled when it ends: what was expected too much is
//! given back, what it used beyond is owed and comes before new calls. So each limit holds over
//! time whatever was expected, and a call that is larger than a whole minute's tokens is still
//! possible. Tenants share nothing: what one does never costs another.

mod minute;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use self::minute::Minute;
use crate::domain::ids::TenantId;

/// The most that a tenant may use. What is left out is not limited. Each replica counts on its own;
/// of those that act as one each has an equal part of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantLimits {
    /// Calls that begin within a minute, of models and tools (from 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// Prompt tokens a minute, of all attempts (from 1). Estimated when a call begins, settled by
    /// what the providers count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_minute: Option<u64>,
    /// Answer tokens a minute, of all attempts (from 1), settled in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_minute: Option<u64>,
    /// Calls in flight (from 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
}

/// Kind of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum LimitKind {
    /// Calls a minute.
    RequestsPerMinute,
    /// Prompt tokens a minute.
    InputTokensPerMinute,
    /// Answer tokens a minute.
    OutputTokensPerMinute,
    /// Calls in flight.
    InFlight,
}

/// Tokens that a call is expected to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpectedTokens {
    /// Prompt tokens.
    pub input: u64,
    /// Most answer tokens that the caller allows, if it names a number; else 1024 are expected
    /// until a call of its tenant has ended.
    pub most_output: Option<u64>,
}

/// Tokens that a call took of its tenant's limits, or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenAmount {
    /// Prompt tokens.
    pub input: u64,
    /// Answer tokens.
    pub output: u64,
}

/// A call of a tenant that is over one of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    /// The limit, of several the one with the longest wait.
    pub kind: LimitKind,
    /// The most that it allows.
    pub max: u64,
    /// Time after which there is room again.
    pub retry_in: Duration,
}

/// Use of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitUse {
    /// The limit.
    pub kind: LimitKind,
    /// The most that it allows.
    pub max: u64,
    /// Amount that is left of it.
    pub left: u64,
    /// Time after which all of it is there again; zero for calls in flight.
    pub full_in: Duration,
}

/// The meters of all tenants that have limits.
#[derive(Debug)]
pub struct TenantMeters {
    limits: LimitTable,
    /// Part of each limit that holds here, from 0 to 1.
    share: f64,
    meters: HashMap<TenantId, TenantMeter>,
    refused: BTreeMap<(TenantId, LimitKind), u64>,
}

/// The limits by tenant, and those of each tenant without an entry.
#[derive(Debug, Default)]
struct LimitTable {
    named: BTreeMap<TenantId, TenantLimits>,
    others: TenantLimits,
}

/// Amounts that one tenant has taken.
#[derive(Debug, Clone, Default)]
struct TenantMeter {
    requests: Minute,
    input: Minute,
    output: Minute,
    in_flight: u64,
    /// Answer tokens of a call, on average over those before.
    usual_output: Option<f64>,
}

/// Name that stands for each tenant without an entry of its own.
pub const EVERY_OTHER: &str = "*";

/// Wait for a place in flight, whose time nobody knows.
const PLACE_IN: Duration = Duration::from_secs(1);
/// Weight of the newest call in the usual answer: it follows a tenant's last ten calls or so.
const NEWEST: f64 = 0.1;
/// Answer tokens that are expected before any are known, as for budgets of retries.
const FIRST_OUTPUT: u64 = 1024;
/// Meters that are kept before the unused ones are swept out.
const SWEEP_AT: usize = 1024;

// === impl TenantLimits ===

impl TenantLimits {
    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        self.all()
            .into_iter()
            .filter(|(_, max)| *max == Some(0))
            .map(|(kind, _)| {
                let reason = "must be at least 1; leave it out for no limit".to_owned();
                (kind.as_str(), reason)
            })
            .collect()
    }

    const fn all(&self) -> [(LimitKind, Option<u64>); 4] {
        [
            (LimitKind::RequestsPerMinute, self.requests_per_minute),
            (
                LimitKind::InputTokensPerMinute,
                self.input_tokens_per_minute,
            ),
            (
                LimitKind::OutputTokensPerMinute,
                self.output_tokens_per_minute,
            ),
            (LimitKind::InFlight, self.in_flight),
        ]
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "limits are far below 2^53, and a share is at most 1"
    )]
    fn shared(self, share: f64) -> Self {
        if share >= 1.0 {
            return self;
        }
        let part = |max: Option<u64>| max.map(|max| ((max as f64 * share) as u64).max(1));
        Self {
            requests_per_minute: part(self.requests_per_minute),
            input_tokens_per_minute: part(self.input_tokens_per_minute),
            output_tokens_per_minute: part(self.output_tokens_per_minute),
            in_flight: part(self.in_flight),
        }
    }
}

// === impl LimitTable ===

impl LimitTable {
    fn new(mut named: BTreeMap<TenantId, TenantLimits>) -> Self {
        let others = named.remove(&TenantId::from(EVERY_OTHER));
        Self {
            named,
            others: others.unwrap_or_default(),
        }
    }

    fn of(&self, tenant: &TenantId) -> TenantLimits {
        *self.named.get(tenant).unwrap_or(&self.others)
    }
}

// === impl LimitKind ===

impl LimitKind {
    /// Returns the limit's name, as its setting has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl TenantMeters ===

impl TenantMeters {
    /// Nothing was taken.
    #[must_use]
    pub fn new(limits: BTreeMap<TenantId, TenantLimits>) -> Self {
        Self {
            limits: LimitTable::new(limits),
            share: 1.0,
            meters: HashMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Applies other limits (a reload); what was taken stays taken.
    pub fn reconfigure(&mut self, limits: BTreeMap<TenantId, TenantLimits>) {
        self.limits = LimitTable::new(limits);
    }

    /// Holds this part of each limit here (0 to 1): if several replicas serve a tenant, each has its
    /// share.
    pub fn set_share(&mut self, share: f64) {
        self.share = share.clamp(0.0, 1.0);
    }

    /// Returns the limits of a tenant that hold here, if it has any.
    #[must_use]
    pub fn limits_of(&self, tenant: &TenantId) -> Option<TenantLimits> {
        let limits = self.limits.of(tenant);
        (limits != TenantLimits::default()).then(|| limits.shared(self.share))
    }

    /// Lets a call in that is expected to use so many tokens, or refuses it. Returns what it took,
    /// to be settled when it ends; `None` if the tenant has no limits.
    ///
    /// # Errors
    /// Returns the limit that has no room, and nothing is taken.
    pub fn enter(
        &mut self,
        tenant: &TenantId,
        expected: ExpectedTokens,
        now: Instant,
    ) -> Result<Option<TokenAmount>, OverLimit> {
        let Some(limits) = self.limits_of(tenant) else {
            return Ok(None);
        };
        let meter = self.meter(tenant, now);
        if let Some(over) = meter.over(limits, now) {
            // What tenants call themselves is not bounded; what has an entry is.
            let is_own = self.limits.named.contains_key(tenant);
            let name = if is_own {
                tenant.clone()
            } else {
                TenantId::from(EVERY_OTHER)
            };
            *self.refused.entry((name, over.kind)).or_default() += 1;
            return Err(over);
        }
        Ok(Some(meter.take(limits, expected, now)))
    }

    /// Lets a call in that was let in before, by another replica.
    pub fn enter_again(
        &mut self,
        tenant: &TenantId,
        expected: ExpectedTokens,
        now: Instant,
    ) -> Option<TokenAmount> {
        let limits = self.limits_of(tenant)?;
        Some(self.meter(tenant, now).take(limits, expected, now))
    }

    /// Settles a call that took `taken`; `used` is what it used, `None` if nobody counted.
    pub fn settle(
        &mut self,
        tenant: &TenantId,
        taken: TokenAmount,
        used: Option<TokenAmount>,
        now: Instant,
    ) {
        let limits = self.limits_of(tenant).unwrap_or_default();
        let meter = self.meters.entry(tenant.clone()).or_default();
        meter.in_flight = meter.in_flight.saturating_sub(1);
        if let Some(used) = used {
            meter.settle(limits, taken, used, now);
        }
    }

    /// Takes a call back that was let in and then refused by another bound.
    pub fn withdraw(&mut self, tenant: &TenantId, taken: TokenAmount, now: Instant) {
        self.settle(tenant, taken, None, now);
        let meter = self.meters.entry(tenant.clone()).or_default();
        meter.requests.give_back(1);
        meter.input.give_back(taken.input);
        meter.output.give_back(taken.output);
    }

    /// Returns the use of each limit of a tenant.
    pub fn usage(&mut self, tenant: &TenantId, now: Instant) -> Vec<LimitUse> {
        let Some(limits) = self.limits_of(tenant) else {
            return Vec::new();
        };
        let meter = self.meter(tenant, now);
        let uses = limits.all().into_iter();
        uses.filter_map(|(kind, max)| Some(meter.usage(kind, max?, now)))
            .collect()
    }

    /// Returns how many calls were refused by which limit, of each tenant with an entry of its own;
    /// those of all others are counted under [`EVERY_OTHER`].
    #[must_use]
    pub fn refusals(&self) -> Vec<(TenantId, LimitKind, u64)> {
        let counts = self.refused.iter();
        counts
            .map(|((tenant, kind), count)| (tenant.clone(), *kind, *count))
            .collect()
    }

    fn meter(&mut self, tenant: &TenantId, now: Instant) -> &mut TenantMeter {
        if self.meters.len() >= SWEEP_AT && !self.meters.contains_key(tenant) {
            let share = self.share;
            let limits = &self.limits;
            self.meters
                .retain(|tenant, meter| !meter.is_unused(limits.of(tenant).shared(share), now));
        }
        self.meters.entry(tenant.clone()).or_default()
    }
}

// === impl TenantMeter ===

impl TenantMeter {
    /// Returns the limit without room, of several the one with the longest wait.
    fn over(&mut self, limits: TenantLimits, now: Instant) -> Option<OverLimit> {
        let mut over: Option<OverLimit> = None;
        for (kind, max) in limits.all() {
            let Some(max) = max else { continue };
            let in_flight = self.in_flight;
            let retry_in = match self.minute(kind) {
                Some(minute) => minute.wait(max, now),
                None if in_flight >= max => PLACE_IN,
                None => Duration::ZERO,
            };
            if retry_in.is_zero() {
                continue;
            }
            if over.is_none_or(|over| over.retry_in < retry_in) {
                over = Some(OverLimit {
                    kind,
                    max,
                    retry_in,
                });
            }
        }
        over
    }

    fn take(
        &mut self,
        limits: TenantLimits,
        expected: ExpectedTokens,
        now: Instant,
    ) -> TokenAmount {
        let taken = TokenAmount {
            input: expected.input,
            output: self.usual(expected.most_output),
        };
        self.in_flight += 1;
        for (kind, amount) in [
            (LimitKind::RequestsPerMinute, 1),
            (LimitKind::InputTokensPerMinute, taken.input),
            (LimitKind::OutputTokensPerMinute, taken.output),
        ] {
            self.add(limits, kind, amount, now);
        }
        taken
    }

    fn settle(
        &mut self,
        limits: TenantLimits,
        taken: TokenAmount,
        used: TokenAmount,
        now: Instant,
    ) {
        self.learn(used.output);
        for (kind, taken, used) in [
            (LimitKind::InputTokensPerMinute, taken.input, used.input),
            (LimitKind::OutputTokensPerMinute, taken.output, used.output),
        ] {
            self.add(limits, kind, used.saturating_sub(taken), now);
            if let Some(minute) = self.minute(kind) {
                minute.give_back(taken.saturating_sub(used));
            }
        }
    }

    fn add(&mut self, limits: TenantLimits, kind: LimitKind, amount: u64, now: Instant) {
        let max = limits.all().into_iter().find(|(each, _)| *each == kind);
        if let (Some((_, Some(max))), Some(minute)) = (max, self.minute(kind)) {
            minute.take(amount, max, now);
        }
    }

    fn minute(&mut self, kind: LimitKind) -> Option<&mut Minute> {
        match kind {
            LimitKind::RequestsPerMinute => Some(&mut self.requests),
            LimitKind::InputTokensPerMinute => Some(&mut self.input),
            LimitKind::OutputTokensPerMinute => Some(&mut self.output),
            LimitKind::InFlight => None,
        }
    }

    fn usage(&mut self, kind: LimitKind, max: u64, now: Instant) -> LimitUse {
        let in_flight = self.in_flight;
        let (left, full_in) = match self.minute(kind) {
            Some(minute) => (minute.left(max, now), minute.full_again(max, now)),
            None => (max.saturating_sub(in_flight), Duration::ZERO),
        };
        LimitUse {
            kind,
            max,
            left,
            full_in,
        }
    }

    /// Returns the answer tokens that are expected of a call that allows at most `most`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an average of counts of tokens"
    )]
    fn usual(&self, most: Option<u64>) -> u64 {
        let usual = self.usual_output.map(|usual| usual as u64);
        match (usual, most) {
            (Some(usual), Some(most)) => usual.min(most),
            (one, other) => one.or(other).unwrap_or(FIRST_OUTPUT),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of tokens")]
    fn learn(&mut self, output: u64) {
        let newest = output as f64;
        let usual = self.usual_output.get_or_insert(newest);
        *usual += (newest - *usual) * NEWEST;
    }

    fn is_unused(&mut self, limits: TenantLimits, now: Instant) -> bool {
        let is_unused = |minute: &mut Minute, max: Option<u64>| {
            max.is_none_or(|max| minute.is_unused(max, now))
        };
        self.in_flight == 0
            && is_unused(&mut self.requests, limits.requests_per_minute)
            && is_unused(&mut self.input, limits.input_tokens_per_minute)
            && is_unused(&mut self.output, limits.output_tokens_per_minute)
    }
}
