//! Checks whether a complete completion is usable: not empty, tool calls that exist and parse, the
//! requested format.
//!
//! It observes a completion's deltas and judges once, at the end mark. It keeps only the text that it
//! reads then: that of tool calls, and of a completion whose format is checked. It repairs nothing:
//! partial or wrong JSON is a failure of which the model is informed. A check that would cost more
//! than its budget is skipped, and reported as skipped.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    inject::{Finding, Mismatch},
    schema::{self, MAX_SCHEMA_BYTES, SchemaFault},
};
use crate::domain::{
    completion::{BlockKind, Delta, FinishReason},
    message::{ModelCall, ResponseFormat},
    own_fields, stop_reason,
};

/// Longest answer whose format is checked, in bytes; a longer one is passed on unchecked.
const MAX_CHECKED_BYTES: usize = 4 << 20;
/// A schema and a value that are shorter than this together are checked in well under 10 ms.
const MAX_QUICK_BYTES: usize = 1 << 10;

const TOO_LONG: Checked = Checked::Unchecked("the response is longer than 4 MiB");
const TOO_COSTLY: Checked =
    Checked::Unchecked("checking it against its schema would cost too much");

/// Reason for which a complete completion is unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The fact, in Relight's own vocabulary.
    pub finding: Finding,
    /// Words for people.
    pub words: String,
}

/// Extent to which a usable answer was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// In all that was required of it.
    Complete,
    /// Not in its shape, for this reason.
    Unchecked(&'static str),
}

/// Observes a completion's deltas and judges the completion at its end.
#[derive(Debug)]
pub struct AnswerCheck {
    call: Arc<ModelCall>,
    blocks: BTreeMap<u32, ObservedBlock>,
    /// Whether it holds something to be shown that is no text.
    is_shown: bool,
    bytes: usize,
    finish: Option<FinishReason>,
    /// If set, it may have ended at a stop sequence before its first word.
    may_be_empty: bool,
}

/// State of a block of the completion.
#[derive(Debug)]
struct ObservedBlock {
    kind: BlockKind,
    /// Its text, if that is read; else empty.
    text: String,
    /// `true` if nothing but white space came.
    is_blank: bool,
}

// === impl AnswerCheck ===

impl AnswerCheck {
    /// Creates a check of the completion to this call.
    pub fn new(call: Arc<ModelCall>) -> Self {
        Self {
            call,
            blocks: BTreeMap::new(),
            is_shown: false,
            bytes: 0,
            finish: None,
            may_be_empty: false,
        }
    }

    /// Observes a delta.
    pub fn see(&mut self, delta: &Delta) {
        match delta {
            Delta::BlockStart { block, kind } => {
                let observed = ObservedBlock {
                    kind: kind.clone(),
                    text: String::new(),
                    is_blank: true,
                };
                self.blocks.insert(*block, observed);
            }
            Delta::BlockDelta { block, text } => {
                self.bytes = self.bytes.saturating_add(text.len());
                let Some(observed) = self.blocks.get_mut(block) else {
                    return;
                };
                observed.is_blank = observed.is_blank && text.trim().is_empty();
                let is_read = match observed.kind {
                    BlockKind::ToolCall { .. } => true,
                    BlockKind::Text => self.call.response_format != ResponseFormat::Text,
                    BlockKind::Reasoning | BlockKind::Refusal => false,
                };
                if is_read && self.bytes <= MAX_CHECKED_BYTES {
                    observed.text.push_str(text);
                }
            }
            Delta::Finish { reason, raw } => {
                self.finish = Some(*reason);
                self.may_be_empty = *reason == FinishReason::Stop
                    && !self.call.stop.is_empty()
                    && stop_reason::may_be_a_sequence(raw);
            }
            Delta::BlockStop {
                opaque: Some(opaque),
                ..
            } => self.is_shown = self.is_shown || own_fields::is_shown(opaque),
            Delta::Start { .. }
            | Delta::BlockStop { opaque: None, .. }
            | Delta::Usage(_)
            | Delta::Around(_)
            | Delta::ReadOn(_)
            | Delta::ToolReply(_) => {}
        }
    }

    /// Judges the completion, after its end mark.
    ///
    /// # Errors
    /// Returns the first fault that makes it unusable.
    pub fn verdict(&self) -> Result<Checked, Unusable> {
        if self.bytes > MAX_CHECKED_BYTES {
            return Ok(TOO_LONG);
        }
        let Some(finish) = self.finish else {
            return Ok(Checked::Complete);
        };
        if matches!(
            finish,
            FinishReason::ContentFilter | FinishReason::Refusal | FinishReason::Paused
        ) {
            return Ok(Checked::Complete);
        }
        if self.reached_own_limit(finish) {
            // Tool calls that are whole were judged when they stopped; one that is cut never stops.
            return Ok(Checked::Complete);
        }
        let mut checked = Checked::Complete;
        for ObservedBlock { kind, text, .. } in self.blocks.values() {
            if let BlockKind::ToolCall { name, .. } = kind {
                checked = checked.and(self.tool_call(name, text, finish)?);
            }
        }
        if self.calls_tools() {
            return Ok(checked);
        }
        let refused = self
            .blocks
            .values()
            .any(|block| matches!(block.kind, BlockKind::Refusal));
        if finish == FinishReason::MalformedToolCall {
            let words = "the model made a tool call that its provider could not read".to_owned();
            return Err(Unusable {
                finding: Finding::UnreadableToolCall,
                words,
            });
        }
        let is_empty = self.texts().all(|block| block.is_blank) && !refused && !self.is_shown;
        if is_empty && !self.may_be_empty {
            let finding = if finish == FinishReason::Length {
                Finding::OutputLimit
            } else {
                Finding::Empty
            };
            let words = match finding {
                Finding::OutputLimit => "the output limit was reached before any text",
                _ => "the answer is empty",
            };
            return Err(Unusable {
                finding,
                words: words.to_owned(),
            });
        }
        if refused {
            Ok(Checked::Complete)
        } else {
            self.shape(finish)
        }
    }

    /// Judges a block that is whole: a tool call must name a tool and fit its schema.
    ///
    /// # Errors
    /// What makes it unusable.
    pub fn block(&self, block: u32) -> Result<Checked, Unusable> {
        match self.blocks.get(&block) {
            Some(ObservedBlock {
                kind: BlockKind::ToolCall { .. },
                ..
            }) if self.bytes > MAX_CHECKED_BYTES => Ok(TOO_LONG),
            Some(ObservedBlock {
                kind: BlockKind::ToolCall { name, .. },
                text,
                ..
            }) => self.tool_call(name, text, FinishReason::ToolCalls),
            Some(_) | None => Ok(Checked::Complete),
        }
    }

    /// Returns whether a verdict may take so long that it must not be made on a thread that others
    /// wait for.
    pub fn is_costly(&self) -> bool {
        let calls = self.calls_tools();
        let schema = match &self.call.response_format {
            ResponseFormat::JsonSchema { schema, .. } if !calls => schema.len(),
            ResponseFormat::Text
            | ResponseFormat::JsonObject
            | ResponseFormat::JsonSchema { .. } => 0,
        };
        let tools: usize = if calls {
            self.call
                .tools
                .iter()
                .map(|tool| tool.parameters.len())
                .max()
                .unwrap_or_default()
        } else {
            0
        };
        let reads_json = calls || self.call.response_format != ResponseFormat::Text;
        reads_json && self.bytes.saturating_add(schema.max(tools)) > MAX_QUICK_BYTES
    }

    /// Returns the first tool call so far that cannot be used, whether it is whole or not.
    pub fn broken_call(&self) -> Option<Unusable> {
        self.blocks
            .keys()
            .find_map(|block| self.block(*block).err())
    }

    /// Returns whether the completion is as long as the caller allowed: the missing rest was not
    /// wanted.
    fn reached_own_limit(&self, finish: FinishReason) -> bool {
        finish == FinishReason::Length && self.call.max_output_tokens.is_some()
    }

    fn calls_tools(&self) -> bool {
        self.blocks
            .values()
            .any(|block| matches!(block.kind, BlockKind::ToolCall { .. }))
    }

    /// Returns the blocks that are text for the reader.
    fn texts(&self) -> impl Iterator<Item = &ObservedBlock> {
        self.blocks
            .values()
            .filter(|block| block.kind == BlockKind::Text)
    }

    fn tool_call(
        &self,
        name: &str,
        arguments: &str,
        finish: FinishReason,
    ) -> Result<Checked, Unusable> {
        let tool = name.to_owned();
        let Some(definition) = self.call.tools.iter().find(|tool| tool.name == name) else {
            // Those of one provider are not known here by all the names that they bring.
            if self.call.tools.is_empty() || !self.call.own_tools().is_empty() {
                return Ok(Checked::Complete);
            }
            let words = format!("the tool `{name}` does not exist");
            return Err(Unusable {
                finding: Finding::UnknownTool { tool },
                words,
            });
        };
        let arguments = if arguments.trim().is_empty() {
            "{}"
        } else {
            arguments
        };
        let arguments: Value = serde_json::from_str(arguments).map_err(|error| {
            let (line, column) = position(&error);
            let finding = if finish == FinishReason::Length {
                Finding::OutputLimit
            } else {
                Finding::ToolArgumentsNotJson {
                    tool: tool.clone(),
                    line,
                    column,
                }
            };
            let words =
                format!("the arguments of `{name}` are not JSON: line {line}, column {column}");
            Unusable { finding, words }
        })?;
        match compare(&definition.parameters, &arguments) {
            Ok(checked) => Ok(checked),
            Err(mismatch) => {
                let words = format!(
                    "the arguments of `{name}` do not fit its schema: {} at {}",
                    mismatch.keyword,
                    shown(&mismatch.path)
                );
                Err(Unusable {
                    finding: Finding::ToolArguments { tool, mismatch },
                    words,
                })
            }
        }
    }

    fn shape(&self, finish: FinishReason) -> Result<Checked, Unusable> {
        let schema = match &self.call.response_format {
            ResponseFormat::Text => return Ok(Checked::Complete),
            ResponseFormat::JsonObject => None,
            ResponseFormat::JsonSchema { schema, .. } => Some(schema),
        };
        let text: String = self.texts().map(|block| block.text.as_str()).collect();
        let value: Value = serde_json::from_str(&text).map_err(|error| {
            let (line, column) = position(&error);
            let finding = if finish == FinishReason::Length {
                Finding::OutputLimit
            } else {
                Finding::NotJson { line, column }
            };
            Unusable {
                finding,
                words: format!("the answer is not JSON: line {line}, column {column}"),
            }
        })?;
        match schema.map_or(Ok(Checked::Complete), |schema| compare(schema, &value)) {
            Ok(checked) => Ok(checked),
            Err(mismatch) => {
                let words = format!(
                    "the answer does not fit the schema: {} at {}",
                    mismatch.keyword,
                    shown(&mismatch.path)
                );
                Err(Unusable {
                    finding: Finding::Schema(mismatch),
                    words,
                })
            }
        }
    }
}

// === impl Checked ===

impl Checked {
    /// Both together: what was left unchecked in either.
    fn and(self, other: Self) -> Self {
        if self == Self::Complete { other } else { self }
    }
}

/// Checks a value against a schema; an error names the first mismatch. An unreadable schema matches
/// everything: its validity is for the provider to judge.
fn compare(schema: &str, value: &Value) -> Result<Checked, Mismatch> {
    if schema.len() > MAX_SCHEMA_BYTES {
        return Ok(TOO_COSTLY);
    }
    let Ok(schema) = serde_json::from_str::<Value>(schema) else {
        return Ok(Checked::Complete);
    };
    match schema::check(&schema, value) {
        Ok(()) | Err(SchemaFault::Unreadable) => Ok(Checked::Complete),
        Err(SchemaFault::TooCostly) => Ok(TOO_COSTLY),
        Err(SchemaFault::Misfit(mismatch)) => Err(mismatch),
    }
}

fn position(error: &serde_json::Error) -> (u32, u32) {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    (number(error.line()), number(error.column()))
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "the root" } else { path }
}

#[cfg(test)]
mod tests;
