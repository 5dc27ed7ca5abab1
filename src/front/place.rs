//! Places in a request, by which a fault is named, and what is looked up in the conversation around them.

use serde_json::Value;

use super::error::Refused;
use crate::domain::message::{Message, Part};

/// Where in the request something stands.
pub(super) struct FieldPath {
    path: String,
}

// === impl FieldPath ===

impl FieldPath {
    /// This place.
    pub(super) fn new(path: String) -> Self {
        Self { path }
    }

    /// A field of what is here.
    pub(super) fn below(&self, name: &str) -> Self {
        Self { path: format!("{}.{name}", self.path) }
    }

    /// An entry of the list that is here.
    pub(super) fn at(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path) }
    }

    /// What is here is refused; `why` goes on behind its path.
    pub(super) fn refused(&self, why: &str) -> Refused {
        Refused::invalid(self.path.clone(), format!("`{}` {why}", self.path))
    }

    /// A field that must be a text.
    pub(super) fn text<'v>(&self, value: &'v Value, name: &str) -> Result<&'v str, Refused> {
        value.get(name).and_then(Value::as_str).ok_or_else(|| self.below(name).refused("must be a string"))
    }
}

/// The name of the tool that this call called; empty where the call is not among the messages. Results name the call
/// alone; other dialects want the tool's name as well.
pub(super) fn called(before: &[Message], call_id: &str) -> String {
    let parts = before.iter().rev().flat_map(|message| &message.parts);
    let mut names = parts.filter_map(|part| match part {
        Part::ToolCall(call) if call.id == call_id => Some(call.name.clone()),
        _ => None,
    });
    names.next().unwrap_or_default()
}
