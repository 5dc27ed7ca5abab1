//! Assembles tool calls from fragments, as servers really send them.
//!
//! Fragments belong together by `index`, but a new id starts a new call whatever the index; indexes
//! and ids may be missing; a name may come in pieces, which end where the arguments start;
//! arguments may come complete, or as an object. Arguments are not repaired: a call whose arguments
//! are not JSON is reported.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::chunk::Fragment;
use crate::domain::{
    completion::{BlockKind, Delta},
    own_fields,
    target::Dialect,
};

/// Maximum number of tool calls in one completion.
const MAX_CALLS: usize = 128;

/// The tool calls of one response so far.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<OpenToolCall>,
}

#[derive(Debug)]
struct OpenToolCall {
    index: Option<u64>,
    /// Id as the server gave it; empty if it gave none.
    id: String,
    name: String,
    arguments: String,
    /// Its block, once its name is known as a whole; until then its arguments wait.
    block: Option<u32>,
    /// It was given with other ids of the same chunk, so nothing can follow it by position.
    whole: bool,
    /// Fields of the provider's own.
    own: Map<String, Value>,
}

/// Reason for which the calls cannot be used; the text may be sent to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadCall(pub(super) String);

// === impl ToolCalls ===

impl ToolCalls {
    /// Returns whether no call has started.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes one fragment and writes what it adds.
    ///
    /// # Errors
    /// When there are too many calls.
    pub(super) fn fragment(
        &mut self,
        fragment: Fragment<'_>,
        next_block: &mut u32,
        out: &mut Vec<Delta>,
    ) -> Result<(), BadCall> {
        let Fragment {
            index,
            id,
            name,
            arguments,
            is_whole: whole,
            own,
        } = fragment;
        let place = match self.find(index, &id, &name) {
            Some(place) => place,
            None if self.calls.len() >= MAX_CALLS => {
                return Err(BadCall(format!(
                    "the answer holds more than {MAX_CALLS} tool calls"
                )));
            }
            None => {
                self.name_is_whole(next_block, out);
                self.calls.push(OpenToolCall {
                    index,
                    id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    block: None,
                    whole,
                    own: Map::new(),
                });
                self.calls.len() - 1
            }
        };
        if let Some(call) = self.calls.get_mut(place) {
            if let Some(own) = &own {
                own_fields::add(&mut call.own, own);
            }
            call.add(id, &name, &arguments, next_block, out);
        }
        Ok(())
    }

    /// Ends the name of the last call: no more pieces of it come, because another call starts, or
    /// the response is over.
    fn name_is_whole(&mut self, next_block: &mut u32, out: &mut Vec<Delta>) {
        if let Some(call) = self.calls.last_mut() {
            call.begin(next_block, out);
        }
    }

    /// Ends all calls; those whose arguments are JSON get their stop.
    ///
    /// # Errors
    /// When a call has no name, or arguments that are not JSON, unless `cut` is set because the
    /// response ended early: a broken call, and a last one without arguments, are then left without
    /// their stop, so that no caller executes them.
    pub(super) fn seal(
        &mut self,
        cut: bool,
        next_block: &mut u32,
        out: &mut Vec<Delta>,
    ) -> Result<(), BadCall> {
        self.name_is_whole(next_block, out);
        let mut stops = Vec::new();
        for (number, call) in (1..).zip(&self.calls) {
            match call.check() {
                Ok(_) if cut && call.arguments.is_empty() && number == self.calls.len() => {}
                Ok(block) => {
                    if call.arguments.is_empty() {
                        stops.push(Delta::BlockDelta {
                            block,
                            text: "{}".to_owned(),
                        });
                    }
                    stops.push(Delta::BlockStop {
                        block,
                        opaque: own_fields::kept(Dialect::OpenaiChat, call.own.clone()),
                    });
                }
                Err(_) if cut => {}
                Err(bad) => return Err(bad),
            }
        }
        out.append(&mut stops);
        Ok(())
    }

    /// Returns the call that a fragment continues; `None` starts a new one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let (place, last) = match index {
            Some(index) => self
                .calls
                .iter()
                .enumerate()
                .rev()
                .find(|(_, call)| call.index == Some(index))?,
            None if id.is_empty() => self.calls.iter().enumerate().next_back()?,
            None => return self.calls.iter().position(|call| call.id == id),
        };
        let other_id = !id.is_empty() && !last.id.is_empty() && last.id != id;
        // Without ids, a name after whole arguments can only be the next call's.
        let next_by_name =
            !name.is_empty() && (id.is_empty() || last.id.is_empty()) && last.is_full();
        (!other_id && !next_by_name).then_some(place)
    }
}

// === impl OpenToolCall ===

impl OpenToolCall {
    fn add(
        &mut self,
        id: Cow<'_, str>,
        name: &str,
        arguments: &str,
        next_block: &mut u32,
        out: &mut Vec<Delta>,
    ) {
        if self.id.is_empty() {
            self.id = id.into_owned();
        }
        self.add_to_name(name);
        self.arguments.push_str(arguments);
        match self.block {
            Some(block) if !arguments.is_empty() => out.push(Delta::BlockDelta {
                block,
                text: arguments.to_owned(),
            }),
            None if !self.arguments.is_empty() => self.begin(next_block, out),
            Some(_) | None => {}
        }
    }

    /// Adds a piece of the name. Some servers write the whole name, or all of it so far, each time;
    /// without an index, it is not certain whose name it is.
    fn add_to_name(&mut self, piece: &str) {
        if self.block.is_some() || piece == self.name {
            return;
        }
        if self.name.is_empty() || piece.starts_with(&self.name) {
            piece.clone_into(&mut self.name);
        } else if self.index.is_some() {
            self.name.push_str(piece);
        }
    }

    /// Begins the block, with the arguments that came before the name was known.
    fn begin(&mut self, next_block: &mut u32, out: &mut Vec<Delta>) {
        if self.block.is_some() || self.name.is_empty() {
            return;
        }
        let block = *next_block;
        *next_block += 1;
        self.block = Some(block);
        let id = self.id.clone();
        let name = self.name.clone();
        out.push(Delta::BlockStart {
            block,
            kind: BlockKind::ToolCall { id, name },
        });
        if !self.arguments.is_empty() {
            let text = self.arguments.clone();
            out.push(Delta::BlockDelta { block, text });
        }
    }

    fn is_full(&self) -> bool {
        self.whole || serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn check(&self) -> Result<u32, BadCall> {
        let block = self
            .block
            .ok_or_else(|| BadCall("a tool call has no name".to_owned()))?;
        if self.arguments.is_empty() {
            return Ok(block);
        }
        match serde_json::from_str::<IgnoredAny>(&self.arguments) {
            Ok(_) => Ok(block),
            Err(error) => Err(BadCall(format!(
                "tool call `{}`: arguments are not JSON: {error}",
                self.name
            ))),
        }
    }
}
