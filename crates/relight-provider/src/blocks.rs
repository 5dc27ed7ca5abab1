//! The blocks of a response by the provider's own number for them, and its finish.
//!
//! Text and reasoning start with their first byte, so that an empty block leaves no trace; tool
//! calls start at once. Arguments are not repaired: a call whose arguments are not JSON is
//! reported, or, if the completion was cut short on purpose, left without its stop, so that no
//! caller executes it.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::reading::ParseError;
use crate::domain::{
    completion::{BlockKind, Delta, FinishReason},
    message::Opaque,
    own_fields,
    target::Dialect,
};

/// Maximum number of tool calls in one completion.
const MAX_CALLS: usize = 128;
/// Most blocks open at once.
const MAX_OPEN: usize = 1024;

/// The blocks of one response so far.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: BTreeMap<u64, OpenBlock>,
    next_block: u32,
    calls: usize,
    refused: bool,
    /// Description of the first call whose arguments are not JSON; may be sent to the model.
    broken: Option<String>,
}

#[derive(Debug)]
struct OpenBlock {
    kind: BlockKind,
    /// Its block number, once it has begun.
    block: Option<u32>,
    /// A tool call's arguments.
    arguments: String,
}

// === impl Blocks ===

impl Blocks {
    /// Opens a block under the provider's number for it.
    ///
    /// # Errors
    /// When that number is open already, or there are too many.
    pub(super) fn open(
        &mut self,
        key: u64,
        kind: BlockKind,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if self.open.contains_key(&key) {
            return Err(ParseError::Cut(format!("block {key} begins twice")));
        }
        if self.open.len() >= MAX_OPEN {
            let words = format!("more than {MAX_OPEN} blocks are open at once");
            return Err(ParseError::Unusable(words));
        }
        let is_call = matches!(kind, BlockKind::ToolCall { .. });
        if is_call {
            self.calls += 1;
            if self.calls > MAX_CALLS {
                return Err(ParseError::Unusable(format!(
                    "the answer holds more than {MAX_CALLS} tool calls"
                )));
            }
        }
        let mut open = OpenBlock {
            kind,
            block: None,
            arguments: String::new(),
        };
        if is_call {
            open.begin(&mut self.next_block, out);
        }
        self.open.insert(key, open);
        Ok(())
    }

    /// Returns whether a block is open under that number.
    pub(super) fn is_open(&self, key: u64) -> bool {
        self.open.contains_key(&key)
    }

    /// Returns what the open block of that number holds.
    pub(super) fn kind(&self, key: u64) -> Option<&BlockKind> {
        self.open.get(&key).map(|open| &open.kind)
    }

    /// Adds text to a block.
    ///
    /// # Errors
    /// When no such block is open: a piece of the response is missing.
    pub(super) fn add(
        &mut self,
        key: u64,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let open = self.open.get_mut(&key).ok_or_else(|| never_began(key))?;
        if text.is_empty() {
            return Ok(());
        }
        match open.kind {
            BlockKind::ToolCall { .. } => open.arguments.push_str(text),
            BlockKind::Refusal => self.refused = true,
            BlockKind::Text | BlockKind::Reasoning => {}
        }
        let block = open.begin(&mut self.next_block, out);
        out.push(Delta::BlockDelta {
            block,
            text: text.to_owned(),
        });
        Ok(())
    }

    /// Returns the arguments of an open tool call so far; empty for other blocks.
    pub(super) fn arguments(&self, key: u64) -> &str {
        self.open
            .get(&key)
            .map_or("", |open| open.arguments.as_str())
    }

    /// Takes the whole arguments of an open tool call, once more or for the first time; what of
    /// them was not delivered is added.
    ///
    /// # Errors
    /// When they are others than those that came before: a piece was lost or repeated.
    pub(super) fn arguments_again(
        &mut self,
        key: u64,
        whole: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let held = self.arguments(key);
        if let Some(rest) = whole.strip_prefix(held) {
            return self.add(key, rest, out);
        }
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        // The same arguments in other blanks, or in another order.
        if json(held).is_some_and(|held| Some(held) == json(whole)) {
            return Ok(());
        }
        Err(differs())
    }

    /// Ends a block; one that is not open is not one of ours.
    pub(super) fn stop(&mut self, key: u64, opaque: Option<Opaque>, out: &mut Vec<Delta>) {
        let Some(mut open) = self.open.remove(&key) else {
            return;
        };
        if let BlockKind::ToolCall { name, .. } = &open.kind {
            let name = name.clone();
            let block = open.begin(&mut self.next_block, out);
            if open.arguments.trim().is_empty() {
                out.push(Delta::BlockDelta {
                    block,
                    text: "{}".to_owned(),
                });
            } else if let Err(error) = serde_json::from_str::<IgnoredAny>(&open.arguments) {
                self.broken.get_or_insert(format!(
                    "tool call `{name}`: arguments are not JSON: {error}"
                ));
                return;
            }
            out.push(Delta::BlockStop { block, opaque });
        } else if open.block.is_some() || opaque.is_some() {
            let block = open.begin(&mut self.next_block, out);
            out.push(Delta::BlockStop { block, opaque });
        }
    }

    /// Ends a text. The fields of it that only its dialect knows follow it, in a block of reasoning
    /// that holds nothing else; a text that is empty has none.
    pub(super) fn stop_text(
        &mut self,
        key: u64,
        (dialect, fields): (Dialect, Map<String, Value>),
        out: &mut Vec<Delta>,
    ) {
        let is_begun = self.open.get(&key).is_some_and(|open| open.block.is_some());
        self.stop(key, None, out);
        if let Some(opaque) = own_fields::kept(dialect, fields).filter(|_| is_begun) {
            let block = self.next_block;
            self.next_block += 1;
            let kind = BlockKind::Reasoning;
            out.push(Delta::BlockStart { block, kind });
            let opaque = Some(opaque);
            out.push(Delta::BlockStop { block, opaque });
        }
    }

    /// Ends the response: closes what is still open, then adds its finish.
    ///
    /// # Errors
    /// When the reason does not fit the blocks: something is missing or broken.
    pub(super) fn seal(
        &mut self,
        reason: FinishReason,
        raw: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let reason = shown_reason(reason, self.calls > 0, self.refused).ok_or_else(|| {
            ParseError::Unusable(format!(
                "the answer stopped for {raw}, but holds no tool call"
            ))
        })?;
        if !reason.is_short() {
            if let Some(words) = &self.broken {
                return Err(ParseError::Unusable(words.clone()));
            }
            if !self.open.is_empty() {
                return Err(ParseError::Cut(
                    "the answer ended within a block".to_owned(),
                ));
            }
        }
        for (_, open) in std::mem::take(&mut self.open) {
            if let (BlockKind::Text | BlockKind::Reasoning | BlockKind::Refusal, Some(block)) =
                (&open.kind, open.block)
            {
                out.push(Delta::BlockStop {
                    block,
                    opaque: None,
                });
            }
        }
        out.push(Delta::Finish {
            reason,
            raw: raw.to_owned(),
        });
        Ok(())
    }
}

// === impl OpenBlock ===

impl OpenBlock {
    /// Returns its number; starts it if it has none.
    fn begin(&mut self, next_block: &mut u32, out: &mut Vec<Delta>) -> u32 {
        *self.block.get_or_insert_with(|| {
            let block = *next_block;
            *next_block += 1;
            out.push(Delta::BlockStart {
                block,
                kind: self.kind.clone(),
            });
            block
        })
    }
}

/// Returns the error for a completion that is said twice and not in the same words.
pub(super) fn differs() -> ParseError {
    let words = "the whole of the answer differs from its pieces";
    ParseError::Cut(words.to_owned())
}

/// Returns a piece of a block whose beginning, or whole, was lost.
pub(super) fn never_began(key: u64) -> ParseError {
    ParseError::Cut(format!("block {key} never began"))
}

/// Returns the reason for which a completion ended, as its blocks show it; `None` if they lack the
/// tool call that it states.
pub(super) const fn shown_reason(
    stated: FinishReason,
    has_calls: bool,
    refused: bool,
) -> Option<FinishReason> {
    match stated {
        // Some servers report `stop` although the model calls tools.
        FinishReason::Stop if has_calls => Some(FinishReason::ToolCalls),
        FinishReason::Stop if refused => Some(FinishReason::Refusal),
        FinishReason::ToolCalls if !has_calls => None,
        reason => Some(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> BlockKind {
        BlockKind::ToolCall {
            id: "a".to_owned(),
            name: "search".to_owned(),
        }
    }

    #[test]
    fn an_empty_block_leaves_no_trace_and_one_with_only_a_signature_does() {
        let mut blocks = Blocks::default();
        let mut out = Vec::new();
        blocks.open(0, BlockKind::Text, &mut out).unwrap();
        blocks.stop(0, None, &mut out);
        assert_eq!(out, []);
        let opaque = Some(Opaque {
            kind: "k".to_owned(),
            bytes: vec![1],
        });
        blocks.open(1, BlockKind::Reasoning, &mut out).unwrap();
        blocks.stop(1, opaque.clone(), &mut out);
        let expected = [
            Delta::BlockStart {
                block: 0,
                kind: BlockKind::Reasoning,
            },
            Delta::BlockStop { block: 0, opaque },
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_broken_call_fails_a_finished_answer_and_goes_without_stop_in_a_short_one() {
        for (reason, is_error) in [
            (FinishReason::ToolCalls, true),
            (FinishReason::Stop, true),
            (FinishReason::Other, true),
            (FinishReason::Length, false),
            (FinishReason::ContextFull, false),
            (FinishReason::ContentFilter, false),
            (FinishReason::Refusal, false),
            (FinishReason::Paused, false),
            (FinishReason::MalformedToolCall, false),
        ] {
            let mut blocks = Blocks::default();
            let mut out = Vec::new();
            blocks.open(0, call(), &mut out).unwrap();
            blocks.add(0, "{\"a\":", &mut out).unwrap();
            blocks.stop(0, None, &mut out);
            let sealed = blocks.seal(reason, "raw", &mut out);
            assert_eq!(sealed.is_err(), is_error, "{reason:?}");
            assert!(
                !out.iter()
                    .any(|delta| matches!(delta, Delta::BlockStop { .. })),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn the_finish_matches_the_blocks() {
        let mut blocks = Blocks::default();
        let mut out = Vec::new();
        blocks.open(7, call(), &mut out).unwrap();
        blocks.stop(7, None, &mut out);
        blocks.seal(FinishReason::Stop, "STOP", &mut out).unwrap();
        assert!(out.contains(&Delta::BlockDelta {
            block: 0,
            text: "{}".to_owned()
        }));
        assert_eq!(
            out.last(),
            Some(&Delta::Finish {
                reason: FinishReason::ToolCalls,
                raw: "STOP".to_owned()
            })
        );
        assert!(
            Blocks::default()
                .seal(FinishReason::ToolCalls, "tool_use", &mut out)
                .is_err()
        );
    }

    #[test]
    fn the_reason_follows_from_what_is_stated_and_from_the_blocks() {
        use FinishReason::{Length, Other, Refusal, Stop, ToolCalls};
        for (stated, has_calls, refused, expected) in [
            (Stop, false, false, Some(Stop)),
            (Stop, true, true, Some(ToolCalls)),
            (Stop, false, true, Some(Refusal)),
            (ToolCalls, true, true, Some(ToolCalls)),
            (ToolCalls, false, true, None),
            (Length, true, true, Some(Length)),
            (Other, true, true, Some(Other)),
        ] {
            assert_eq!(
                shown_reason(stated, has_calls, refused),
                expected,
                "{stated:?}, {has_calls}, {refused}"
            );
        }
    }

    #[test]
    fn a_block_open_at_the_end_is_a_cut() {
        let mut blocks = Blocks::default();
        let mut out = Vec::new();
        blocks.open(0, BlockKind::Text, &mut out).unwrap();
        blocks.add(0, "Hel", &mut out).unwrap();
        assert!(matches!(
            blocks.seal(FinishReason::Stop, "end_turn", &mut out),
            Err(ParseError::Cut(_))
        ));
        assert!(matches!(
            blocks.add(9, "x", &mut out),
            Err(ParseError::Cut(_))
        ));
    }
}
