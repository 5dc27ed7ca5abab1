//! The ends of calls.

use std::{fmt, mem};

use relight_proto::v1::{self, invoke_with_recovery_response, part};
use serde::de::DeserializeOwned;

/// The end of an invocation of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The model answered.
    Answer(Answer),
    /// It failed for good, or was cancelled.
    Failed(Failed),
}

/// The answer of a model.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Answer {
    /// All texts, joined by line feeds.
    pub text: String,
    /// Calls of tools that the model wants; each may be acted on.
    pub tool_calls: Vec<v1::ToolCallPart>,
    /// Messages by which the caller's history grows.
    pub history_patch: Vec<v1::Message>,
    /// Number of messages at the end of the history that the patch replaces.
    pub history_replace_tail: u32,
    /// Id of the invocation.
    pub invocation_id: String,
    /// Id of the target that answered.
    pub target: String,
    /// Attempts that were made.
    pub attempts: Vec<v1::Attempt>,
    /// Tokens of all attempts, as they were spent.
    pub usage: Option<v1::Usage>,
    /// What the provider says around its answer and no other field has (`service_tier`,
    /// `system_fingerprint`, …): a JSON object.
    pub around: Option<v1::Opaque>,
}

/// The failure of an invocation.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Failed {
    /// The failure, with its class, its texts and what was tried.
    pub failure: v1::Failure,
    /// Messages by which the caller's history grows; empty for a call of a model.
    pub history_patch: Vec<v1::Message>,
    /// Id of the invocation.
    pub invocation_id: String,
}

/// The end of a call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// The tool returned a result.
    Result(ToolResult),
    /// It failed for good, or was cancelled.
    Failed(Failed),
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ToolResult {
    /// All texts, joined by line feeds.
    pub text: String,
    /// The result word for word, and what was done to get it.
    pub output: Option<v1::ToolOutput>,
    /// Messages by which the caller's history grows.
    pub history_patch: Vec<v1::Message>,
    /// Id of the invocation.
    pub invocation_id: String,
    /// Id of the target that returned it, `server/tool`.
    pub target: String,
    /// Attempts that were made.
    pub attempts: Vec<v1::Attempt>,
}

impl Outcome {
    pub(crate) fn answer(self) -> Result<Answer, Failed> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Failed(failed) => Err(failed),
        }
    }
}

impl Answer {
    /// Adds what the model saw and answered to the history. Call it once.
    pub fn apply_to(&self, history: &mut Vec<v1::Message>) {
        let replaced = usize::try_from(self.history_replace_tail).unwrap_or(usize::MAX);
        history.truncate(history.len().saturating_sub(replaced));
        history.extend_from_slice(&self.history_patch);
    }
}

impl Failed {
    /// Adds the error of a tool to the history, so that its model reads it. Call it once. Nothing
    /// is added for a call of a model.
    pub fn apply_to(&self, history: &mut Vec<v1::Message>) {
        history.extend_from_slice(&self.history_patch);
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.failure.failure_class().as_str_name();
        let class = class.strip_prefix("FAILURE_CLASS_").unwrap_or(class);
        let message = if self.failure.message.is_empty() {
            &self.failure.user_message
        } else {
            &self.failure.message
        };
        write!(f, "{}: {message}", class.to_ascii_lowercase())
    }
}

impl ToolOutcome {
    /// Adds the result or the error to the history, for the model that called. Call it once.
    pub fn apply_to(&self, history: &mut Vec<v1::Message>) {
        match self {
            Self::Result(result) => result.apply_to(history),
            Self::Failed(failed) => failed.apply_to(history),
        }
    }

    pub(crate) fn result(self) -> Result<ToolResult, Failed> {
        match self {
            Self::Result(result) => Ok(result),
            Self::Failed(failed) => Err(failed),
        }
    }
}

impl ToolResult {
    /// Returns the result as data; `None` if the tool gave none.
    ///
    /// # Errors
    ///
    /// The data is not a `T`.
    pub fn structured<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.output
            .as_ref()
            .and_then(|output| output.structured_json.as_deref())
            .map(serde_json::from_str)
            .transpose()
    }

    /// Adds the result to the history, after its call if the caller named none. Call it once.
    pub fn apply_to(&self, history: &mut Vec<v1::Message>) {
        history.extend_from_slice(&self.history_patch);
    }
}

impl From<v1::InvokeWithRecoveryResponse> for Outcome {
    fn from(mut response: v1::InvokeWithRecoveryResponse) -> Self {
        let completion = match completion_of(&mut response) {
            Ok(completion) => completion,
            Err(failed) => return Self::Failed(failed),
        };
        let parts = completion
            .message
            .map_or_else(Vec::new, |message| message.parts);
        Self::Answer(Answer {
            text: completion.text,
            tool_calls: parts
                .into_iter()
                .filter_map(|part| match part.content {
                    Some(part::Content::ToolCall(call)) => Some(call),
                    _ => None,
                })
                .collect(),
            history_patch: response.history_patch,
            history_replace_tail: response.history_replace_tail,
            invocation_id: response.invocation_id,
            target: response.final_target,
            attempts: response.attempts,
            usage: response.usage,
            around: completion.around,
        })
    }
}

impl From<v1::InvokeWithRecoveryResponse> for ToolOutcome {
    fn from(mut response: v1::InvokeWithRecoveryResponse) -> Self {
        let completion = match completion_of(&mut response) {
            Ok(completion) => completion,
            Err(failed) => return Self::Failed(failed),
        };
        Self::Result(ToolResult {
            text: completion.text,
            output: completion.tool_output,
            history_patch: response.history_patch,
            invocation_id: response.invocation_id,
            target: response.final_target,
            attempts: response.attempts,
        })
    }
}

/// Takes the completion out of a response, or makes its failure.
fn completion_of(response: &mut v1::InvokeWithRecoveryResponse) -> Result<v1::Completion, Failed> {
    match response.outcome.take() {
        Some(invoke_with_recovery_response::Outcome::Failure(failure)) => Err(Failed {
            failure,
            history_patch: mem::take(&mut response.history_patch),
            invocation_id: mem::take(&mut response.invocation_id),
        }),
        Some(invoke_with_recovery_response::Outcome::Completion(completion)) => Ok(completion),
        None => Ok(v1::Completion::default()),
    }
}
