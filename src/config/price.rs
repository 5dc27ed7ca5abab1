//! What tokens of a target cost, so that what was spent and delivered can be shown as money.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;
use crate::domain::{completion::Usage, ids::TargetId, invocation::Outcome};

/// The prices of a target's tokens, each for a million of them, in `currency`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_field_names,
    reason = "each is a price for a million, as its setting says"
)]
pub struct PriceConfig {
    /// Tokens of prompts, beside those that are read from or written to a cache.
    pub input_per_million: f64,
    /// Tokens of responses, reasoning included.
    pub output_per_million: f64,
    /// Tokens of prompts that the provider reads from its cache; unset: as `input_per_million`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_input_per_million: Option<f64>,
    /// Tokens of prompts that the provider writes to its cache; unset: as `input_per_million`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_per_million: Option<f64>,
}

/// Cost of an invocation, in millionths of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvocationCost {
    /// All attempts.
    pub spent_micros: u64,
    /// The attempt alone whose response was delivered; spent less delivered is the price of
    /// recovery.
    pub delivered_micros: u64,
}

// === impl PriceConfig ===

impl PriceConfig {
    /// Returns the cost of so many tokens, in millionths of the currency.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "prices are not negative, and nobody pays 2^53 millionths"
    )]
    pub fn micros(&self, usage: Usage) -> u64 {
        let cached = usage.cached_input_tokens.unwrap_or(0);
        let written = usage.cache_write_tokens.unwrap_or(0);
        let fresh = usage.input_tokens.saturating_sub(cached + written);
        let priced = [
            (fresh, self.input_per_million),
            (usage.output_tokens, self.output_per_million),
            (
                cached,
                self.cached_input_per_million
                    .unwrap_or(self.input_per_million),
            ),
            (
                written,
                self.cache_write_per_million
                    .unwrap_or(self.input_per_million),
            ),
        ];
        // A price for a million tokens is the price of one token in millionths.
        priced
            .iter()
            .map(|(tokens, price)| *tokens as f64 * price)
            .sum::<f64>()
            .round() as u64
    }

    /// Each price by its name.
    pub(super) fn named(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("input_per_million", Some(self.input_per_million)),
            ("output_per_million", Some(self.output_per_million)),
            ("cached_input_per_million", self.cached_input_per_million),
            ("cache_write_per_million", self.cache_write_per_million),
        ]
    }
}

// === impl Config ===

impl Config {
    /// Returns the cost of an invocation by these prices; `None` if an attempt that took tokens
    /// went to a target without prices, or none took any.
    #[must_use]
    pub fn cost_of(&self, outcome: &Outcome) -> Option<InvocationCost> {
        let price = |target: Option<&TargetId>| self.targets.get(target?)?.price;
        let has_tokens = |usage: Usage| usage.input_tokens + usage.output_tokens > 0;
        let mut charged = outcome
            .attempts
            .iter()
            .filter(|attempt| has_tokens(attempt.usage))
            .peekable();
        charged.peek()?;
        let spent: Option<u64> = charged
            .map(|attempt| Some(price(attempt.target.as_ref())?.micros(attempt.usage)))
            .sum();
        let delivered = outcome.result.as_ref().ok().and_then(|completion| {
            let answered = outcome
                .attempts
                .iter()
                .rfind(|attempt| attempt.failure.is_none())?;
            Some(price(answered.target.as_ref())?.micros(completion.usage))
        });
        Some(InvocationCost {
            spent_micros: spent?,
            delivered_micros: delivered.unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_have_prices_of_their_own_where_they_are_written() {
        let usage = Usage {
            input_tokens: 1_000_000,
            cached_input_tokens: Some(600_000),
            cache_write_tokens: Some(100_000),
            output_tokens: 10_000,
            ..Usage::default()
        };
        let plain = PriceConfig {
            input_per_million: 3.0,
            output_per_million: 15.0,
            ..PriceConfig::default()
        };
        assert_eq!(plain.micros(usage), 3_150_000);
        let cached = PriceConfig {
            cached_input_per_million: Some(0.3),
            cache_write_per_million: Some(3.75),
            ..plain
        };
        assert_eq!(cached.micros(usage), 900_000 + 180_000 + 375_000 + 150_000);
        assert_eq!(plain.micros(Usage::default()), 0);
    }
}
