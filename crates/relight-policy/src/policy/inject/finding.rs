//! Faults that Relight's own validators found in a completion, as a closed vocabulary.
//!
//! A note may hold facts, but no upstream text. So a validator states its fact as a `Finding`,
//! which is carried in `Failure::rule` and `Failure::fact`; only the classifier and the validators
//! write those two, and a finding is parsed back only if both agree. Names and limits inside a
//! finding are still checked against the caller's own tools and schemas before they enter a note
//! (see `note`), because a model may have written them.

use serde::{Deserialize, Serialize};

use crate::domain::failure::Failure;

/// Prefix of `Failure::rule` when its fact is a finding; no rule of the classifier may start with
/// it.
const RULE_PREFIX: &str = "finding:";

/// A fault of a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Finding {
    /// The completion was cut at the output limit.
    OutputLimit,
    /// The completion holds neither text nor a tool call.
    Empty,
    /// The completion was a tool call that its provider could not read.
    UnreadableToolCall,
    /// The completion repeats a tool call that was made before, byte for byte.
    RepeatedCall {
        /// The tool.
        tool: String,
    },
    /// The completion should be JSON and is not.
    NotJson {
        /// Line of the first fault, from 1.
        line: u32,
        /// Column of the first fault, from 1.
        column: u32,
    },
    /// The completion does not match the schema of the response format.
    Schema(Mismatch),
    /// The arguments of a tool call are not JSON.
    ToolArgumentsNotJson {
        /// The tool.
        tool: String,
        /// Line of the first fault, from 1.
        line: u32,
        /// Column of the first fault, from 1.
        column: u32,
    },
    /// The arguments of a tool call do not fit the tool's schema.
    ToolArguments {
        /// The tool.
        tool: String,
        /// Mismatch with the schema.
        mismatch: Mismatch,
    },
    /// A tool was called that does not exist or cannot be called now.
    UnknownTool {
        /// The tool.
        tool: String,
    },
}

/// A value that does not fit its schema, in the terms of JSON Schema.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mismatch {
    /// JSON pointer to the value (`/items/0/date`); for a missing one, to its expected place.
    pub path: String,
    /// The schema's keyword that is not satisfied (`type`, `required`, `pattern`, …).
    pub keyword: String,
    /// Keyword's value in the schema, as text without quotes; empty if it adds nothing.
    pub limit: String,
}

// === impl Finding ===

impl Finding {
    /// Returns the finding's name in snake case.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Returns whether the completion may be passed on when no attempt is left: a tool call that
    /// whoever runs the tools reads, refuses and has the model correct.
    #[must_use]
    pub const fn may_be_passed_on(&self) -> bool {
        matches!(self, Self::ToolArguments { .. } | Self::UnknownTool { .. })
    }

    /// Returns whether the text itself is wrong as a whole, so that no attempt that repeats it
    /// mends it.
    #[must_use]
    pub const fn is_of_the_text(&self) -> bool {
        matches!(
            self,
            Self::NotJson { .. } | Self::Schema(_) | Self::OutputLimit
        )
    }

    /// Writes the finding into a failure, as the rule and fact that decided it.
    pub fn mark(&self, failure: &mut Failure) {
        failure.rule = format!("{RULE_PREFIX}{}", self.as_str());
        failure.fact = serde_json::to_string(self).unwrap_or_default();
    }

    /// Returns the finding that a failure rests on, if it rests on one.
    #[must_use]
    pub fn of(failure: &Failure) -> Option<Self> {
        let name = failure.rule.strip_prefix(RULE_PREFIX)?;
        let finding: Self = serde_json::from_str(&failure.fact).ok()?;
        (finding.as_str() == name).then_some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::FailureClass;

    #[test]
    fn a_finding_is_read_back_from_the_failure_that_it_marked() {
        let mismatch = Mismatch {
            path: "/date".into(),
            keyword: "pattern".into(),
            limit: "^\\d{4}$".into(),
        };
        let findings = [
            Finding::OutputLimit,
            Finding::Empty,
            Finding::UnreadableToolCall,
            Finding::RepeatedCall {
                tool: "search".into(),
            },
            Finding::NotJson { line: 1, column: 2 },
            Finding::Schema(mismatch.clone()),
            Finding::ToolArgumentsNotJson {
                tool: "search".into(),
                line: 3,
                column: 4,
            },
            Finding::ToolArguments {
                tool: "search".into(),
                mismatch,
            },
            Finding::UnknownTool {
                tool: "find".into(),
            },
        ];
        for finding in findings {
            let mut failure = Failure::local(FailureClass::MalformedResponse, "unusable");
            finding.mark(&mut failure);
            assert_eq!(Finding::of(&failure), Some(finding));
        }
    }

    #[test]
    fn a_fact_without_the_rule_of_a_finding_is_not_a_finding() {
        let mut failure = Failure::local(FailureClass::MalformedResponse, "unusable");
        Finding::Empty.mark(&mut failure);
        failure.rule = "openai.body".to_owned();
        assert_eq!(Finding::of(&failure), None);
        failure.rule = "finding:output_limit".to_owned();
        assert_eq!(Finding::of(&failure), None);
    }
}
