//! Exceptions from the rule: verdicts that a scenario is known not to pass, each with its reason.

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{GateResult, rule};

/// The reasons of a scenario, by the verdict of the rule that it does not pass.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleExceptions {
    /// Fewer calls succeed than with the naive client.
    #[serde(deserialize_with = "reason")]
    success_naive: Option<String>,
    /// Far fewer calls succeed than at best.
    #[serde(deserialize_with = "reason")]
    success_ideal: Option<String>,
    /// More attempts are made than by the naive client.
    #[serde(deserialize_with = "reason")]
    amplification_naive: Option<String>,
    /// Callers wait longer than those of the naive client.
    #[serde(deserialize_with = "reason")]
    added_p99_naive: Option<String>,
}

// === impl RuleExceptions ===

impl RuleExceptions {
    /// Gives the verdicts their exceptions. At other seeds and rates than the `usual` ones chance may
    /// pass a verdict, and its exception is not judged.
    pub(super) fn apply(&self, verdicts: &mut [GateResult], usual: bool) {
        for verdict in verdicts {
            let reason = self.of(&verdict.measure);
            verdict.beyond = reason.filter(|_| usual || !verdict.passed).cloned();
        }
    }

    fn of(&self, measure: &str) -> Option<&String> {
        match measure {
            rule::SUCCESS_NAIVE => self.success_naive.as_ref(),
            rule::SUCCESS_IDEAL => self.success_ideal.as_ref(),
            rule::AMPLIFICATION_NAIVE => self.amplification_naive.as_ref(),
            rule::ADDED_P99_NAIVE => self.added_p99_naive.as_ref(),
            _ => None,
        }
    }
}

/// Returns a reason in words.
fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let words = String::deserialize(deserializer)?;
    if words.trim().is_empty() {
        return Err(D::Error::custom("an exception needs its reason in words"));
    }
    Ok(Some(words))
}
