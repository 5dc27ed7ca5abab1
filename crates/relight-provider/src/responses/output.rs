//! The output of a response as it grows: its items, their contents, and whether what is said of
//! them again is the same.
//!
//! Each text comes up to five times: in its deltas, at the end of its content, of the part, and of
//! the item, and in the whole response. What comes again must be what was delivered. An end that is
//! missing is appended; anything else is a broken stream, for a piece was lost, repeated or changed
//! on the way. Of the whole response only what a caller reads or acts upon is compared, and only if
//! it is there: servers leave out items of built-in tools, or all of them.
//!
//! Pieces are distinguished by the item's index in the output and the content's index in the item.

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::{Map, Value, json};

use super::{
    ANNOTATIONS, ITEM, MESSAGE_FIELDS, NAMESPACE, REASONING, custom_arguments, is_action,
    item_fields::{Content, call_id, call_kind, essence, is_compared, list, text_of},
};
use crate::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        fold::WrittenText,
        message::Opaque,
        own_fields,
        target::Dialect,
    },
    {
        blocks::{Blocks, differs},
        reading::ParseError,
        turns::opaque,
    },
};

/// Contents per item that can be distinguished.
const CONTENTS: u64 = 1 << 20;

/// One text of a reasoning item: of its summary or not, and its place.
type ThoughtPart = (bool, u64);

/// The output of one response so far.
#[derive(Debug, Default)]
pub(super) struct ResponseOutput {
    blocks: Blocks,
    /// Text that was delivered of the contents and items that started, by key.
    texts: BTreeMap<u64, WrittenText>,
    /// Text that was delivered of each part of the reasoning items.
    thoughts: BTreeMap<(u64, ThoughtPart), WrittenText>,
    /// The part of a reasoning item that is being streamed.
    thought: Option<(u64, ThoughtPart)>,
    /// Text that came of the inputs of custom tools, which are delivered whole.
    inputs: BTreeMap<u64, WrittenText>,
    /// The items that a caller reads or acts upon, by index, with what they hold once they are
    /// done.
    items: BTreeMap<u64, Option<String>>,
    /// Id and type with which items started, by index, if both are stated.
    begun: BTreeMap<u64, (String, String)>,
    /// Annotations that came of the contents, by key.
    annotations: BTreeMap<u64, Vec<Value>>,
}

// === impl ResponseOutput ===

impl ResponseOutput {
    /// Returns whether nothing of it was delivered.
    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Takes a piece of a text of a message.
    pub(super) fn text(
        &mut self,
        place: (u64, u64),
        kind: BlockKind,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.items.entry(place.0).or_default();
        if let Some(before) = place.1.checked_sub(1) {
            self.end_text((place.0, before), Map::new(), out);
        }
        self.piece(content_key(place), kind, text, out)
    }

    /// Takes the end of a content of a message, which holds all of it.
    pub(super) fn content_done(
        &mut self,
        place: (u64, u64),
        part: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let Some(content) = Content::of(part) else {
            return Ok(());
        };
        self.text_again(place, content, out)?;
        let whole = list(part, ANNOTATIONS);
        if !whole.is_empty() {
            self.annotations.insert(content_key(place), whole.to_vec());
        }
        Ok(())
    }

    /// Takes the whole text of a content of a message, once more or for the first time.
    pub(super) fn text_again(
        &mut self,
        place: (u64, u64),
        content: Content<'_>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let Content { kind, text } = content;
        let held = self.texts.get(&content_key(place));
        match held.map_or(Some(text), |held| held.rest_of(text)) {
            Some("") if held.is_some() => Ok(()),
            Some(rest) => self.text(place, kind, rest, out),
            None => Err(differs()),
        }
    }

    /// An annotation of a text.
    pub(super) fn annotation(&mut self, place: (u64, u64), annotation: &Value) {
        let held = self.annotations.entry(content_key(place)).or_default();
        held.push(annotation.clone());
    }

    /// Takes a piece of reasoning; the parts of one item are paragraphs of one block.
    pub(super) fn thought(
        &mut self,
        index: u64,
        part: ThoughtPart,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let before = self.thought.replace((index, part));
        let gap = if before.is_some_and(|(item, other)| item == index && other != part) {
            "\n\n"
        } else {
            ""
        };
        self.thoughts.entry((index, part)).or_default().grow(text);
        let text = format!("{gap}{text}");
        self.piece(item_key(index), BlockKind::Reasoning, &text, out)
    }

    /// Takes a whole part of reasoning, once more or for the first time.
    pub(super) fn thought_again(
        &mut self,
        index: u64,
        part: ThoughtPart,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let held = self.thoughts.get(&(index, part));
        match held.map_or(Some(text), |held| held.rest_of(text)) {
            Some("") => Ok(()),
            // It can only be continued while no other one follows it.
            Some(rest) if held.is_none() || self.thought == Some((index, part)) => {
                self.thought(index, part, rest, out)
            }
            Some(_) | None => Err(differs()),
        }
    }

    /// Takes a piece of the arguments of a function.
    pub(super) fn arguments(
        &mut self,
        index: u64,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.blocks.add(item_key(index), text, out)
    }

    /// Takes the whole arguments of a function, once more or for the first time.
    pub(super) fn arguments_again(
        &mut self,
        index: u64,
        whole: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.blocks.arguments_again(item_key(index), whole, out)
    }

    /// A piece of the input of a custom tool.
    pub(super) fn input(&mut self, index: u64, text: &str) {
        self.inputs.entry(index).or_default().grow(text);
    }

    /// Takes the whole input of a custom tool so far.
    pub(super) fn input_again(&self, index: u64, whole: &str) -> Result<(), ParseError> {
        let held = self.inputs.get(&index);
        held.map_or(Some(whole), |held| held.rest_of(whole))
            .map(|_| ())
            .ok_or_else(differs)
    }

    /// Takes the beginning of an item.
    pub(super) fn added(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let kind = text_of(item, "type");
        let id = text_of(item, "id");
        if !id.is_empty() && !kind.is_empty() {
            self.begun.insert(index, (id.to_owned(), kind.to_owned()));
        }
        if is_compared(item) {
            self.items.entry(index).or_default();
        }
        let key = item_key(index);
        if kind == "function_call" && !self.texts.contains_key(&key) {
            self.open(key, call_kind(item)?, out)?;
            self.blocks.add(key, text_of(item, "arguments"), out)?;
        }
        Ok(())
    }

    /// Takes the end of an item, which holds all of it.
    pub(super) fn done(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.same_kind(index, item)?;
        if is_compared(item) {
            let held = Some(essence(item));
            let before = self.items.insert(index, held.clone()).flatten();
            if let Some(before) = before {
                let is_same = Some(before) == held;
                return if is_same { Ok(()) } else { Err(differs()) };
            }
        }
        let key = item_key(index);
        match text_of(item, "type") {
            "message" => self.message_done(index, item, out)?,
            "function_call" => {
                self.same_call(key, item)?;
                if self.open(key, call_kind(item)?, out)?
                    && let Some(whole) = item.get("arguments").and_then(Value::as_str)
                {
                    self.blocks.arguments_again(key, whole, out)?;
                }
                let namespace = text_of(item, "namespace");
                let namespace = (!namespace.is_empty()).then(|| opaque(NAMESPACE, namespace));
                self.call_done(key, item, namespace, out);
            }
            "custom_tool_call" => {
                let input = text_of(item, "input");
                self.input_again(index, input)?;
                if self.open(key, call_kind(item)?, out)? {
                    self.blocks.add(key, &custom_arguments(input), out)?;
                }
                self.call_done(key, item, None, out);
            }
            _ if is_action(item) => {
                let kind = BlockKind::ToolCall {
                    id: call_id(item),
                    name: text_of(item, "type").to_owned(),
                };
                if self.open(key, kind, out)? {
                    let arguments = ["arguments", "action", "operation"]
                        .iter()
                        .find_map(|name| item.get(*name));
                    let arguments = arguments
                        .filter(|arguments| arguments.is_object())
                        .map(Value::to_string);
                    self.blocks.add(key, &arguments.unwrap_or_default(), out)?;
                }
                self.call_done(key, item, Some(opaque(ITEM, &item.to_string())), out);
            }
            "reasoning" => self.reasoning_done(index, item, out)?,
            "" => {}
            _ => {
                self.open(key, BlockKind::Reasoning, out)?;
                self.blocks
                    .stop(key, Some(opaque(ITEM, &item.to_string())), out);
            }
        }
        Ok(())
    }

    /// The output as the whole response has it: what was delivered is compared with it, and what
    /// was not is delivered.
    ///
    /// # Errors
    /// When the two differ.
    pub(super) fn confirm(
        &mut self,
        output: &[Value],
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if self.is_empty() && self.items.values().all(Option::is_none) {
            self.items.clear();
            return (0..)
                .zip(output)
                .try_for_each(|(index, item)| self.done(index, item, out));
        }
        if output.is_empty() {
            return Ok(());
        }
        let held: Vec<(u64, Option<String>)> = self
            .items
            .iter()
            .map(|(index, held)| (*index, held.clone()))
            .collect();
        let mut held = held.into_iter();
        for item in output.iter().filter(|item| is_compared(item)) {
            match held.next() {
                Some((_, Some(before))) if before == essence(item) => {}
                Some((_, Some(_))) => return Err(differs()),
                Some((index, None)) => self.done(index, item, out)?,
                None => {
                    let next = self
                        .texts
                        .keys()
                        .next_back()
                        .map_or(0, |key| key / CONTENTS + 1);
                    self.done(next, item, out)?;
                }
            }
        }
        held.next().map_or(Ok(()), |_| Err(differs()))
    }

    /// Ends the response.
    pub(super) fn seal(
        &mut self,
        reason: FinishReason,
        raw: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.blocks.seal(reason, raw, out)
    }

    fn message_done(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        for (place, part) in (0..).zip(list(item, "content")) {
            self.content_done((index, place), part, out)?;
            match Content::of(part).map(|content| content.kind) {
                Some(BlockKind::Text) => self.end_text((index, place), fields_around(item), out),
                Some(_) => self.blocks.stop(content_key((index, place)), None, out),
                None => {}
            }
        }
        Ok(())
    }

    /// Ends a text, with its fields that only this dialect knows, and these of the message around
    /// it.
    fn end_text(
        &mut self,
        place: (u64, u64),
        mut fields: Map<String, Value>,
        out: &mut Vec<Delta>,
    ) {
        let key = content_key(place);
        if let Some(annotations) = self.annotations.remove(&key) {
            fields.insert(ANNOTATIONS.to_owned(), json!(annotations));
        }
        let fields = (Dialect::OpenaiResponses, fields);
        self.blocks.stop_text(key, fields, out);
    }

    fn reasoning_done(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let key = item_key(index);
        let is_begun = self.texts.contains_key(&key);
        for (name, is_summary) in [("summary", true), ("content", false)] {
            let first = (index, (is_summary, 0));
            let is_streamed = self.thoughts.contains_key(&first);
            // Both may say the same: what was begun is continued with its own kind alone.
            let parts = list(item, name).iter().filter(|_| is_streamed || !is_begun);
            for (place, part) in (0..).zip(parts) {
                self.thought_again(index, (is_summary, place), text_of(part, "text"), out)?;
            }
        }
        let is_encrypted = !text_of(item, "encrypted_content").is_empty();
        let signed = is_encrypted.then(|| opaque(REASONING, &item.to_string()));
        self.open(key, BlockKind::Reasoning, out)?;
        self.blocks.stop(key, signed, out);
        Ok(())
    }

    /// Refuses an item that has another type at its end than at its beginning. Servers that number
    /// their items alike are told by the ids.
    fn same_kind(&self, index: u64, item: &Value) -> Result<(), ParseError> {
        let id = text_of(item, "id");
        let kind = text_of(item, "type");
        match self.begun.get(&index) {
            Some((same, begun)) if same == id && begun != kind && !kind.is_empty() => {
                Err(differs())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a call that is named otherwise at its end than at its beginning.
    fn same_call(&self, key: u64, item: &Value) -> Result<(), ParseError> {
        match self.blocks.kind(key) {
            Some(BlockKind::ToolCall { id, name })
                if *id != call_id(item) || name != text_of(item, "name") =>
            {
                Err(differs())
            }
            _ => Ok(()),
        }
    }

    /// Opens a block the first time; `false` if it is over already.
    fn open(
        &mut self,
        key: u64,
        kind: BlockKind,
        out: &mut Vec<Delta>,
    ) -> Result<bool, ParseError> {
        if let Entry::Vacant(text) = self.texts.entry(key) {
            text.insert(WrittenText::default());
            self.blocks.open(key, kind, out)?;
        }
        Ok(self.blocks.is_open(key))
    }

    fn piece(
        &mut self,
        key: u64,
        kind: BlockKind,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if self.open(key, kind, out)? {
            self.texts.entry(key).or_default().grow(text);
            self.blocks.add(key, text, out)
        } else if text.is_empty() {
            Ok(())
        } else {
            // A piece behind the end of its block.
            Err(differs())
        }
    }

    /// The end of a tool call; one that the server marked incomplete is left without it.
    fn call_done(&mut self, key: u64, item: &Value, own: Option<Opaque>, out: &mut Vec<Delta>) {
        if text_of(item, "status") != "incomplete" {
            self.blocks.stop(key, own, out);
        }
    }
}

/// Returns the fields of a message that only this dialect knows.
fn fields_around(item: &Value) -> Map<String, Value> {
    item.as_object()
        .and_then(|item| own_fields::beside(&MESSAGE_FIELDS, item))
        .unwrap_or_default()
}

const fn content_key((index, place): (u64, u64)) -> u64 {
    index.wrapping_mul(CONTENTS).wrapping_add(place)
}

/// Items are keyed behind all contents that they can have.
const fn item_key(index: u64) -> u64 {
    content_key((index, CONTENTS - 1))
}

#[cfg(test)]
mod tests;
