//! Exceptions: verdicts that a scenario is known not to pass, each with its reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{GateBounds, GateResult, rule};

/// The reasons of a scenario: by the verdict of the rule that it does not pass, or by its own gate.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct RuleExceptions(BTreeMap<String, ReasonInWords>);

#[derive(Debug, Clone)]
struct ReasonInWords(String);

// === impl RuleExceptions ===

impl RuleExceptions {
    /// Returns a name that is neither a verdict of the rule nor one of these gates.
    pub(super) fn unknown(&self, gates: &GateBounds) -> Option<&str> {
        let is_known = |name: &str| {
            gates.contains_key(name) || rule::ALL.iter().any(|verdict| key(verdict) == name)
        };
        let mut names = self.0.keys().map(String::as_str);
        names.find(|name| !is_known(name))
    }

    /// Gives the verdicts that have none yet their exceptions. One that is passed has one too if it
    /// is `usual` for it not to be; at other seeds and rates chance may pass it.
    pub(super) fn apply(&self, verdicts: &mut [GateResult], usual: bool) {
        for verdict in verdicts {
            let reason = self.0.get(&key(&verdict.measure));
            let reason = reason.filter(|_| usual || !verdict.passed);
            if let Some(reason) = reason {
                verdict.beyond = Some(reason.0.clone());
            }
        }
    }
}

/// Returns the name of a verdict in a file: `success_naive` for `success (naive)`.
fn key(verdict: &str) -> String {
    verdict.replace(" (", "_").replace(')', "")
}

// === impl ReasonInWords ===

impl<'de> Deserialize<'de> for ReasonInWords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = String::deserialize(deserializer)?;
        if words.trim().is_empty() {
            return Err(D::Error::custom("an exception needs its reason in words"));
        }
        Ok(Self(words))
    }
}
