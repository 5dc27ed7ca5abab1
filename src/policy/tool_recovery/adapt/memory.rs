//! Remembers how arguments were adapted, so that the next call is adapted before it fails.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    super::arguments::{Arguments, short_hash},
    AdaptedArguments, ArgumentChange, applied,
    shape::Shape,
    validate, with_filled,
};
use crate::domain::tool::ToolSpec;

/// Adaptations that worked, per pair of schemas; the one that was used longest ago goes first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AdaptationMemory {
    max_entries: usize,
    known: Vec<Remembered>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Remembered {
    /// Hash of the schema that arguments were written for; empty where it was not known.
    old: String,
    /// Hash of the schema that they were made to fit.
    new: String,
    changes: Vec<ArgumentChange>,
}

// === impl AdaptationMemory ===

impl AdaptationMemory {
    /// Nothing remembered yet; keeps at most `max_entries`.
    #[must_use]
    pub const fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            known: Vec::new(),
        }
    }

    /// Remembers an adaptation with which a call succeeded.
    pub fn remember(&mut self, old: Option<&Value>, new: &Value, changes: &[ArgumentChange]) {
        let (old, new) = (old.map(schema_hash).unwrap_or_default(), schema_hash(new));
        let changes = changes.to_vec();
        self.known.retain(|it| {
            it.new != new || it.old != old || (old.is_empty() && it.changes != changes)
        });
        self.known.push(Remembered { old, new, changes });
        let surplus = self.known.len().saturating_sub(self.max_entries);
        self.known.drain(..surplus);
    }

    /// Adapts the arguments of a new call as those of an earlier one, where they do not fit as they
    /// are and then do.
    #[must_use]
    pub fn recall(
        &self,
        old: Option<&Value>,
        new: &Value,
        arguments: &Arguments,
        filled: Option<&str>,
    ) -> Option<AdaptedArguments> {
        if let Some((name, given)) = with_filled(new, arguments, filled) {
            let mut adapted = self.recall(old, new, &given, None)?;
            adapted.arguments.shift_remove(name);
            return Some(adapted);
        }
        if self.known.is_empty() {
            return None;
        }
        let (old, hash, shape) = (old.map(schema_hash), schema_hash(new), Shape::of(new));
        let may_apply = |it: &&Remembered| {
            it.new == hash
                && old
                    .as_ref()
                    .is_none_or(|old| it.old == *old || it.old.is_empty())
        };
        let mut known = self.known.iter().rev().filter(may_apply).peekable();
        known.peek()?;
        if shape.unlisted(arguments).is_empty() && validate(new, arguments) == Ok(None) {
            return None;
        }
        known.find_map(|it| applied(&it.changes, new, &shape, arguments))
    }

    /// Forgets what was adapted to this schema, such as when it did not help.
    pub fn forget(&mut self, new: &Value) {
        let new = schema_hash(new);
        self.known.retain(|it| it.new != new);
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// A hash of a schema that does not depend on the order of its keywords.
#[must_use]
pub fn schema_hash(schema: &Value) -> String {
    let mut text = String::new();
    write_sorted(schema, &mut text);
    short_hash([text.as_str()])
}

/// A hash of all tools that a server lists, which does not depend on their order.
#[must_use]
pub fn tools_hash(tools: &[ToolSpec]) -> String {
    let mut parts: Vec<(&str, String)> = tools
        .iter()
        .map(|tool| (tool.name.as_str(), schema_hash(&tool.input_schema)))
        .collect();
    parts.sort();
    short_hash(parts.iter().flat_map(|(name, hash)| [*name, hash.as_str()]))
}

fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, member) in members {
                text.push_str(&Value::from(name.as_str()).to_string());
                write_sorted(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_sorted(item, text);
            }
            text.push(']');
        }
        scalar => {
            text.push_str(&scalar.to_string());
            text.push(',');
        }
    }
}
