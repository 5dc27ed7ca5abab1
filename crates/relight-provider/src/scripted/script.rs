//! The script of the embedded provider, as people write it: plain data, readable from YAML.
//!
//! ```yaml
//! outage: { for: 30s }
//! steps:
//!   - status: { code: 429, headers: { retry-after: "1" } }
//!   - when_told: { then: { answer: { text: fixed } }, otherwise: { malformed: tool_arguments } }
//! otherwise: { answer: { text: "You said: {user}", tokens_per_second: 50 } }
//! ```
//!
//! It depends on nothing but units, so that the configuration can hold it unchanged.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{completion::FinishReason, units};

/// Script of a scripted provider, call by call. An empty script answers every call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Seed of the dice of `probabilities`; the same seed gives the same failures in the same
    /// order.
    pub seed: u64,
    /// A time in which every call fails, before anything else is played.
    pub outage: Option<Outage>,
    /// Played once each, in order, for every target on its own.
    pub steps: Vec<Step>,
    /// Drawn from once `steps` are played; what is left to 1 is `otherwise`.
    pub probabilities: Vec<Chance>,
    /// Played for ever after.
    pub otherwise: Step,
    /// Plays that replace all this for a model, by its name.
    pub models: BTreeMap<String, Play>,
}

/// The script of one model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Play {
    /// A time in which every call fails, before anything else is played.
    pub outage: Option<Outage>,
    /// Played once each, in order, for every target on its own.
    pub steps: Vec<Step>,
    /// Drawn from once `steps` are played; what is left to 1 is `otherwise`.
    pub probabilities: Vec<Chance>,
    /// Played for ever after.
    pub otherwise: Step,
}

/// A time during which every call of a target fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Outage {
    /// Duration, from the outage's first call; `0ms` if `attempts` counts.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub r#for: Duration,
    /// Number of calls that fail; 0 if `for` counts. With both, it lasts until both are over.
    pub attempts: u32,
    /// Number of calls that are played before it starts.
    pub after_attempts: u32,
    /// Step with which the calls fail.
    pub step: Box<Step>,
}

/// A step and its probability.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// 0 to 1.
    pub probability: f64,
    /// Step that is played.
    pub step: Step,
}

/// Course of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The model answers.
    Answer(AnswerStep),
    /// Nothing ever comes, not even the response head.
    Timeout,
    /// It is refused with an HTTP status.
    Status(StatusStep),
    /// The connection is reset before the response head.
    Reset,
    /// Some text comes, then nothing ever.
    Stall(BreakStep),
    /// Some text comes, then the stream ends without its end mark.
    Cut(BreakStep),
    /// The completion cannot be used.
    Malformed(Malformed),
    /// The completion comes late.
    SlowFirstToken(SlowStep),
    /// The process behind the model exits.
    Crash,
    /// It depends on whether the conversation holds a note about a failed call.
    WhenTold(WhenToldStep),
}

/// Answer of the model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerStep {
    /// The text; `{user}` is replaced by the last user text, `{model}` by the model's name. Unset
    /// echoes the last user text, unless tools are called.
    pub text: Option<String>,
    /// Reasoning before the text.
    pub reasoning: String,
    /// Tools that the model wants called, after the text.
    pub tool_calls: Vec<ToolCallStep>,
    /// Words per second; 0 sends all at once.
    pub tokens_per_second: f64,
    /// The wait before the first one.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub first_token_after: Duration,
    /// Reason for which the model stopped, if it is not what the content implies (`length`,
    /// `content_filter`, …).
    #[schemars(with = "Option<String>")]
    pub finish: Option<FinishReason>,
    /// The reported usage; by default, words are counted.
    pub usage: UsageStep,
}

/// Usage that a scripted answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageStep {
    /// They are counted.
    #[default]
    Exact,
    /// They are estimated.
    Estimated,
    /// Nothing.
    None,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCallStep {
    /// The tool's name.
    pub name: String,
    /// Its arguments; a text is sent unchanged, valid or not.
    #[serde(default)]
    pub arguments: Value,
}

/// An error response with an HTTP status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusStep {
    /// 400 to 599.
    pub code: u16,
    /// Headers, lower case.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body; a text is sent unchanged.
    #[serde(default)]
    pub body: Value,
}

/// Position at which a response is cut.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BreakStep {
    /// Text that comes before.
    pub after_text: String,
}

/// Fault of a completion that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Malformed {
    /// A tool call's arguments are not JSON.
    ToolArguments,
    /// The body is not JSON.
    NotJson,
    /// There is nothing in it.
    Empty,
}

/// Answer that comes late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowStep {
    /// The wait before the first token.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub after: Duration,
    /// Step that comes then.
    #[serde(default)]
    pub answer: AnswerStep,
}

/// Steps that depend on whether the model was informed of a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhenToldStep {
    /// Played when the conversation holds a note about a failed call.
    pub then: Box<Step>,
    /// Played when it does not.
    pub otherwise: Box<Step>,
}

// === impl Script ===

impl Script {
    /// Returns what is played for a model.
    #[must_use]
    pub fn play_for(&self, model: &str) -> Play {
        self.models.get(model).cloned().unwrap_or_else(|| Play {
            outage: self.outage.clone(),
            steps: self.steps.clone(),
            probabilities: self.probabilities.clone(),
            otherwise: self.otherwise.clone(),
        })
    }

    /// Returns a script that plays these steps and then answers every call.
    #[must_use]
    pub fn of(steps: Vec<Step>) -> Self {
        Self {
            steps,
            ..Self::default()
        }
    }
}

impl Default for Outage {
    fn default() -> Self {
        let step = StatusStep {
            code: 503,
            headers: BTreeMap::new(),
            body: Value::Null,
        };
        Self {
            r#for: Duration::ZERO,
            attempts: 0,
            after_attempts: 0,
            step: Box::new(Step::Status(step)),
        }
    }
}

impl Default for Step {
    fn default() -> Self {
        Self::Answer(AnswerStep::default())
    }
}

impl AnswerStep {
    /// Returns a completion of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }
}

impl Step {
    /// Returns a completion of one text.
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer(AnswerStep::text(text))
    }

    /// A refusal with an HTTP status and nothing else.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Status(StatusStep {
            code,
            headers: BTreeMap::new(),
            body: Value::Null,
        })
    }
}
