//! Remembers how arguments were adapted, so that the next call is adapted before it fails.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::arguments::{Arguments, short_hash},
    AdaptedArguments, ArgumentChange, applied,
    shape::Shape,
    validate, with_filled,
};
use crate::domain::{
    ids::{TargetId, TenantId},
    tool::ToolSpec,
};

/// Adaptations that worked, per tenant and pair of schemas; the one that was remembered longest ago
/// goes first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AdaptationMemory {
    max_entries: usize,
    known: Vec<Remembered>,
}

/// Schemas that tools had since this process began; the one that was noted longest ago goes first.
#[derive(Debug, Clone, Default)]
pub struct SchemaHistory {
    max_entries: usize,
    known: Vec<(TargetId, SchemaVersions)>,
}

#[derive(Debug, Clone)]
struct SchemaVersions {
    now: Arc<Value>,
    before: Option<Arc<Value>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Remembered {
    tenant: TenantId,
    /// Hash of the schema that arguments were written for; empty if it was not known.
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
    pub fn remember(
        &mut self,
        tenant: &TenantId,
        old: Option<&Value>,
        new: &Value,
        changes: &[ArgumentChange],
    ) {
        let old = old.map(schema_hash).unwrap_or_default();
        let new = schema_hash(new);
        let changes = changes.to_vec();
        self.known.retain(|it| {
            it.tenant != *tenant
                || it.new != new
                || it.old != old
                || (old.is_empty() && it.changes != changes)
        });
        let tenant = tenant.clone();
        self.known.push(Remembered {
            tenant,
            old,
            new,
            changes,
        });
        let surplus = self.known.len().saturating_sub(self.max_entries);
        self.known.drain(..surplus);
    }

    /// Adapts the arguments of a new call as those of an earlier one, if they do not fit as they
    /// are and then do.
    #[must_use]
    pub fn recall(
        &self,
        tenant: &TenantId,
        new: &Value,
        arguments: &Arguments,
        filled: Option<&str>,
    ) -> Option<AdaptedArguments> {
        if let Some((name, given)) = with_filled(new, arguments, filled) {
            let mut adapted = self.recall(tenant, new, &given, None)?;
            adapted.arguments.shift_remove(name);
            return Some(adapted);
        }
        if self.known.is_empty() {
            return None;
        }
        let hash = schema_hash(new);
        let shape = Shape::of(new);
        let may_apply = |it: &&Remembered| it.tenant == *tenant && it.new == hash;
        let mut known = self.known.iter().rev().filter(may_apply).peekable();
        known.peek()?;
        if shape.unlisted(arguments).is_empty() && validate(new, arguments) == Ok(None) {
            return None;
        }
        known.find_map(|it| applied(&it.changes, new, &shape, arguments))
    }

    /// Forgets what was adapted to this schema, such as when it did not help.
    pub fn forget(&mut self, tenant: &TenantId, new: &Value) {
        let new = schema_hash(new);
        self.known
            .retain(|it| it.tenant != *tenant || it.new != new);
    }

    /// Returns the number of remembered ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

// === impl SchemaHistory ===

impl SchemaHistory {
    /// Nothing known yet; keeps at most `max_entries` tools.
    #[must_use]
    pub const fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            known: Vec::new(),
        }
    }

    /// Takes note of the schema that a tool has now; returns the one that it had before.
    pub fn before(&mut self, tool: &TargetId, now: &Arc<Value>) -> Option<Arc<Value>> {
        if let Some((_, known)) = self.known.iter_mut().find(|(known, _)| known == tool) {
            if !Arc::ptr_eq(&known.now, now) && known.now != *now {
                known.before = Some(std::mem::replace(&mut known.now, Arc::clone(now)));
            }
            return known.before.clone();
        }
        let versions = SchemaVersions {
            now: Arc::clone(now),
            before: None,
        };
        self.known.push((tool.clone(), versions));
        let surplus = self.known.len().saturating_sub(self.max_entries);
        self.known.drain(..surplus);
        None
    }
}

/// Returns a hash of a schema that does not depend on the order of its keywords.
#[must_use]
pub fn schema_hash(schema: &Value) -> String {
    let mut text = String::new();
    write_sorted(schema, &mut text);
    short_hash([text.as_str()])
}

/// Returns a hash of all tools that a server lists, which does not depend on their order.
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
