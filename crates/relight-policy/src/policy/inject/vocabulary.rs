//! The words that a note may take from the caller: names of its tools, words of its schemas.
//!
//! A validator's finding may hold what a model wrote (a made-up tool, an unknown field). Such a
//! word enters a note only if the caller's own request contains it, so that upstream text cannot
//! reach the model with an operator's authority.

use std::collections::HashSet;

use serde_json::Value;

use crate::domain::message::{ModelCall, ResponseFormat};

use super::sanitize;

const MAX_WORD_BYTES: usize = 64;
const MAX_TOOLS_NAMED: usize = 5;

/// The words of the caller's request.
pub(super) struct Vocabulary<'a> {
    call: &'a ModelCall,
}

/// The words of one schema: its keys, strings and numbers.
#[derive(Default)]
pub(super) struct SchemaWords {
    words: HashSet<String>,
}

// === impl Vocabulary ===

impl<'a> Vocabulary<'a> {
    pub(super) const fn of(call: &'a ModelCall) -> Self {
        Self { call }
    }

    /// Returns the caller's tool of that name.
    pub(super) fn tool(&self, name: &str) -> Option<&'a str> {
        self.call
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .find(|known| *known == name)
    }

    /// Returns the first of the caller's tools but `refused`, quoted; `None` if there is none.
    pub(super) fn other_tools(&self, refused: Option<&str>) -> Option<String> {
        let others = self
            .call
            .tools
            .iter()
            .filter(|tool| Some(tool.name.as_str()) != refused);
        let names: Vec<String> = others.map(|tool| quoted(&tool.name)).collect();
        let mut listed = names
            .iter()
            .take(MAX_TOOLS_NAMED)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if names.len() > MAX_TOOLS_NAMED {
            listed.push_str(", …");
        }
        (!listed.is_empty()).then_some(listed)
    }

    pub(super) fn of_tool(&self, name: &str) -> SchemaWords {
        let tool = self.call.tools.iter().find(|tool| tool.name == name);
        tool.map(|tool| SchemaWords::of(&tool.parameters))
            .unwrap_or_default()
    }

    pub(super) fn of_response(&self) -> SchemaWords {
        match &self.call.response_format {
            ResponseFormat::JsonSchema { schema, .. } => SchemaWords::of(schema),
            ResponseFormat::Text | ResponseFormat::JsonObject => SchemaWords::default(),
        }
    }
}

// === impl SchemaWords ===

impl SchemaWords {
    fn of(schema: &str) -> Self {
        let mut words = Self::default();
        if let Ok(schema) = serde_json::from_str::<Value>(schema) {
            words.collect(&schema);
        }
        words
    }

    /// Recursion is bounded: `serde_json` refuses a text that nests deeper than 128.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.words.insert(key.clone());
                    self.collect(value);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.collect(value)),
            Value::String(text) => {
                self.words.insert(text.clone());
            }
            Value::Number(number) => {
                self.words.insert(number.to_string());
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Returns a JSON pointer as a dotted path, if the schema holds each of its names.
    pub(super) fn path(&self, pointer: &str) -> Option<String> {
        let names: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|name| name.replace("~1", "/").replace("~0", "~"))
            .collect();
        let is_index = |name: &str| {
            !name.is_empty() && name.len() <= 6 && name.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_known = !names.is_empty()
            && names
                .iter()
                .all(|name| is_index(name) || self.words.contains(name));
        is_known.then(|| names.join("."))
    }

    /// Returns the limit, if the schema holds it.
    pub(super) fn limit<'a>(&self, limit: &'a str) -> Option<&'a str> {
        (!limit.is_empty() && self.words.contains(limit)).then_some(limit)
    }
}

/// Returns a word of the caller in quotes, in one bounded line.
pub(super) fn quoted(word: &str) -> String {
    format!(
        "`{}`",
        sanitize::one_line(word, MAX_WORD_BYTES).replace('`', "'")
    )
}
