//! Rules of the configuration, which take precedence over the built-in rules.
//!
//! Conditions of one rule must all hold; a rule without conditions is rejected, because it would
//! match every failure.
//!
//! Everything that can be wrong is found when the rules are compiled, all of it at once, so that
//! judging cannot fail.

use std::{borrow::Cow, fmt, time::Duration};

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Judgement, evidence::NumericEvidence, reading::NormalizedText};
use crate::domain::{
    failure::{
        FailureClass, InvalidRequestDetail, ProviderError, Surface, VerdictBasis, Wait, WaitSource,
    },
    units,
};

/// One rule of the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserRule {
    /// Name that failures give as their reason; unique, not empty.
    pub name: String,
    /// Conditions under which the rule holds: all of the given ones, at least one.
    pub when: UserMatch,
    /// The class it assigns, in snake case (`rate_limited`, `overloaded`, …).
    #[schemars(with = "String")]
    pub class: FailureClass,
    /// If `true`, retries at the same target; by class if not given.
    pub retryable: Option<bool>,
    /// If `true`, fails over to another target; by class if not given.
    pub fallback_helps: Option<bool>,
    /// A wait to assume, such as `30s`, in place of one that the failure states.
    #[serde(
        with = "units::optional_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<String>")]
    pub retry_after: Option<Duration>,
}

/// The conditions of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserMatch {
    /// The provider's name or family, exactly, in any case.
    pub provider: Option<String>,
    /// Place where it was seen: `http`, `transport`, `stream`, `grpc` or `tool`.
    #[schemars(with = "Option<String>")]
    pub surface: Option<Surface>,
    /// The HTTP status, 100 to 599: the response's own, or the innermost that the text states.
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<u16>,
    /// The value of a `code` (or `status`, `reason`) in the body, in any case; a number is compared
    /// as a number.
    pub code: Option<String>,
    /// The value of a `type` in the body, in any case.
    pub r#type: Option<String>,
    /// A response header.
    pub header: Option<HeaderMatch>,
    /// A regular expression (of the `regex` crate, ignoring case) that the body or message must
    /// hold somewhere.
    pub message: Option<String>,
}

/// A condition on a response header.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderMatch {
    /// The header's name, in any case.
    pub name: String,
    /// Regular expression for its value; any value if not given.
    pub value: Option<String>,
}

/// Fault of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFault {
    /// The rule's index, from 0.
    pub index: usize,
    /// The field, such as `when.message`.
    pub field: &'static str,
    /// Description of the fault and of the right form.
    pub reason: String,
}

/// The compiled user rules.
#[derive(Debug, Default)]
pub(super) struct UserRules {
    rules: Vec<Compiled>,
}

/// A user rule that holds.
#[derive(Debug)]
pub(super) struct UserFound {
    pub judgement: Judgement,
    pub retry_after: Option<Wait>,
}

#[derive(Debug)]
struct Compiled {
    rule: UserRule,
    code: Option<String>,
    kind: Option<String>,
    header: Option<(String, Option<Regex>)>,
    message: Option<Regex>,
}

// === impl RuleFault ===

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}: {}", self.index, self.field, self.reason)
    }
}

impl std::error::Error for RuleFault {}

// === impl UserRules ===

impl UserRules {
    /// Compiles the rules, or names every fault of every rule.
    pub(super) fn compile(rules: &[UserRule]) -> Result<Self, Vec<RuleFault>> {
        let mut faults = Vec::new();
        let mut compiled = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut fault = |field, reason: String| {
                faults.push(RuleFault {
                    index,
                    field,
                    reason,
                });
            };
            if rule.name.trim().is_empty() {
                fault(
                    "name",
                    "is empty; give the rule a name to be found by".to_owned(),
                );
            } else if rules[..index].iter().any(|other| other.name == rule.name) {
                fault("name", format!("`{}` occurs twice", rule.name));
            }
            if rule.when == UserMatch::default() {
                fault(
                    "when",
                    "holds no condition; the rule would swallow every failure".to_owned(),
                );
            }
            if rule.class.is_local_refusal() {
                let class = rule.class;
                let reason =
                    format!("`{class}` is Relight's own refusal, never an upstream's failure");
                fault("class", reason);
            }
            let status = rule.when.status.unwrap_or(100);
            if !(100..600).contains(&status) {
                fault(
                    "when.status",
                    "is no HTTP status; use 100 to 599".to_owned(),
                );
            }
            let mut expression = |field, text: &Option<String>| {
                text.as_deref().and_then(|text| {
                    RegexBuilder::new(text)
                        .case_insensitive(true)
                        .size_limit(1 << 20)
                        .build()
                        .map_err(|error| fault(field, error.to_string()))
                        .ok()
                })
            };
            let message = expression("when.message", &rule.when.message);
            let header = rule.when.header.as_ref().map(|header| {
                let value = expression("when.header.value", &header.value);
                (header.name.to_ascii_lowercase(), value)
            });
            if header.as_ref().is_some_and(|(name, _)| name.is_empty()) {
                fault("when.header.name", "is empty".to_owned());
            }
            compiled.push(Compiled {
                code: rule.when.code.as_deref().map(spelling),
                kind: rule.when.r#type.as_deref().map(spelling),
                header,
                message,
                rule: rule.clone(),
            });
        }
        if faults.is_empty() {
            Ok(Self { rules: compiled })
        } else {
            Err(faults)
        }
    }

    /// Returns the first rule that holds.
    pub(super) fn find(
        &self,
        error: &ProviderError,
        reading: &NormalizedText,
        evidence: &NumericEvidence,
    ) -> Option<UserFound> {
        let compiled = self
            .rules
            .iter()
            .find(|rule| rule.holds(error, reading, evidence))?;
        let rule = &compiled.rule;
        Some(UserFound {
            judgement: Judgement {
                class: rule.class,
                detail: (rule.class == FailureClass::InvalidRequest)
                    .then_some(InvalidRequestDetail::Other),
                retry: rule.retryable,
                fallback: rule.fallback_helps,
                rule: Cow::Owned(format!("user:{}", rule.name)),
                fact: "a rule of the configuration".to_owned(),
                // The words may be a caller's.
                evidence: if rule.when.message.is_some() {
                    VerdictBasis::Words
                } else {
                    VerdictBasis::Own
                },
            },
            retry_after: rule.retry_after.map(|duration| Wait {
                duration,
                source: WaitSource::Backoff,
            }),
        })
    }
}

// === impl Compiled ===

impl Compiled {
    fn holds(
        &self,
        error: &ProviderError,
        reading: &NormalizedText,
        evidence: &NumericEvidence,
    ) -> bool {
        let when = &self.rule.when;
        let value = |spelling: &String| {
            let mut values = reading.values.iter();
            values.any(|(from, to)| reading.text[*from..*to] == spelling[..])
        };
        let number = |code: &str| {
            code.parse::<u32>()
                .is_ok_and(|code| evidence.codes.contains(&code))
        };
        when.provider
            .as_ref()
            .is_none_or(|provider| provider.eq_ignore_ascii_case(&error.provider))
            && when.surface.is_none_or(|surface| surface == error.surface)
            && when.status.is_none_or(|s| {
                evidence.outer_status == Some(s) || evidence.inner_status == Some(s)
            })
            && self
                .code
                .as_ref()
                .is_none_or(|code| value(code) || when.code.as_deref().is_some_and(number))
            && self.kind.as_ref().is_none_or(value)
            && self.header.as_ref().is_none_or(|(name, expression)| {
                error
                    .header(name)
                    .is_some_and(|value| expression.as_ref().is_none_or(|e| e.is_match(value)))
            })
            && self.message.as_ref().is_none_or(|expression| {
                let texts = [error.body.as_deref(), error.message.as_deref()];
                // A response without a word is an empty text.
                let empty = texts == [None, None];
                let mut texts = texts.into_iter().flatten().chain(empty.then_some(""));
                texts.any(|text| expression.is_match(text))
            })
    }
}

/// Returns a code in the spelling of readings.
fn spelling(code: &str) -> String {
    let mut reading = NormalizedText::default();
    reading.add(code);
    reading.text.trim().to_owned()
}
