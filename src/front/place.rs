//! Places in a request, by which a fault is named, and what is looked up in the conversation around
//! them.

use std::fmt;

use serde_json::Value;

use super::error::CallError;
use crate::domain::message::{Message, Part};

/// Place in the request. It is written out only if something is refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldPath<'a> {
    above: Option<&'a FieldPath<'a>>,
    last: PathPart<'a>,
}

/// One part of a path.
#[derive(Debug, Clone, Copy)]
enum PathPart<'a> {
    Field(&'a str),
    Entry(usize),
}

// === impl FieldPath ===

impl<'a> FieldPath<'a> {
    /// A field of the request.
    pub(super) const fn new(name: &'a str) -> Self {
        Self {
            above: None,
            last: PathPart::Field(name),
        }
    }

    /// A field of what is here.
    pub(super) const fn below<'b>(&'b self, name: &'b str) -> FieldPath<'b> {
        FieldPath {
            above: Some(self),
            last: PathPart::Field(name),
        }
    }

    /// Returns an entry of the list that is here.
    pub(super) const fn at(&self, index: usize) -> FieldPath<'_> {
        FieldPath {
            above: Some(self),
            last: PathPart::Entry(index),
        }
    }

    /// Refuses what is here; `why` continues behind its path.
    pub(super) fn refused(&self, why: &str) -> CallError {
        CallError::invalid(self.to_string(), format!("`{self}` {why}"))
    }

    /// Returns what is here, which must be a text.
    pub(super) fn text_here<'v>(&self, value: &'v Value) -> Result<&'v str, CallError> {
        value
            .as_str()
            .ok_or_else(|| self.refused("must be a string"))
    }

    /// Returns a field that must be a text.
    pub(super) fn text<'v>(&self, value: &'v Value, name: &str) -> Result<&'v str, CallError> {
        self.below(name)
            .text_here(value.get(name).unwrap_or(&Value::Null))
    }

    /// Returns a field that must be a boolean, if it is there.
    pub(super) fn boolean(&self, value: &Value, name: &str) -> Result<Option<bool>, CallError> {
        let given = value.get(name).filter(|given| !given.is_null());
        let refused = || self.below(name).refused("must be a boolean");
        given
            .map(|given| given.as_bool().ok_or_else(refused))
            .transpose()
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}")?;
        }
        match self.last {
            PathPart::Field(name) if self.above.is_some() => write!(f, ".{name}"),
            PathPart::Field(name) => f.write_str(name),
            PathPart::Entry(index) => write!(f, "[{index}]"),
        }
    }
}

/// Returns the description of a tool; empty if it has none.
pub(super) fn description(tool: &Value) -> String {
    tool.get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Returns the name of the tool that this call called; empty if the call is not among the messages.
/// Results name the call alone; other dialects want the tool's name as well.
pub(super) fn called(before: &[Message], call_id: &str) -> String {
    let parts = before.iter().rev().flat_map(|message| &message.parts);
    let mut names = parts.filter_map(|part| match part {
        Part::ToolCall(call) if call.id == call_id => Some(call.name.clone()),
        _ => None,
    });
    names.next().unwrap_or_default()
}
