//! What Relight's own validators found wrong with an answer, as a closed vocabulary.
//!
//! A note may hold facts, but no upstream text. So a validator states its fact as a `Finding`,
//! which is carried in `Failure::rule` and `Failure::fact`; only the classifier and the validators
//! write those two, and a finding is parsed back only when both agree. Names and limits inside a
//! finding are still checked against the caller's own tools and schemas before they enter a note
//! (see `note`), because a model may have written them.

use serde::{Deserialize, Serialize};

use crate::domain::failure::Failure;

/// What `Failure::rule` begins with when its fact is a finding; no rule of the classifier may begin
/// so.
const RULE_PREFIX: &str = "finding:";

/// A fault of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// The answer was cut at the output limit.
    OutputLimit,
    /// The answer holds neither text nor a tool call.
    Empty,
    /// The answer was a tool call that its provider could not read.
    UnreadableToolCall,
    /// The answer repeats a tool call that was made before, byte for byte.
    RepeatedCall {
        /// The tool.
        tool: String,
    },
    /// The answer should be JSON and is not.
    NotJson {
        /// Line of the first fault, from 1.
        line: u32,
        /// Column of the first fault, from 1.
        column: u32,
    },
    /// The answer does not fit the schema of the response format.
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
        /// What does not fit.
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
    /// JSON pointer to the value (`/items/0/date`); for a missing one, to where it should be.
    pub path: String,
    /// The schema's keyword that is not satisfied (`type`, `required`, `pattern`, …).
    pub keyword: String,
    /// The keyword's value in the schema, as text without quotes; empty where it adds nothing.
    pub limit: String,
}

// === impl Finding ===

impl Finding {
    /// The finding's name in snake case.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::OutputLimit => "output_limit",
            Self::Empty => "empty",
            Self::UnreadableToolCall => "unreadable_tool_call",
            Self::RepeatedCall { .. } => "repeated_call",
            Self::NotJson { .. } => "not_json",
            Self::Schema(_) => "schema",
            Self::ToolArgumentsNotJson { .. } => "tool_arguments_not_json",
            Self::ToolArguments { .. } => "tool_arguments",
            Self::UnknownTool { .. } => "unknown_tool",
        }
    }

    /// Writes the finding into a failure, as the rule and fact that decided it.
    pub fn mark(&self, failure: &mut Failure) {
        failure.rule = format!("{RULE_PREFIX}{}", self.as_str());
        failure.fact = serde_json::to_string(self).unwrap_or_default();
    }

    /// The finding that a failure rests on, if it rests on one.
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
