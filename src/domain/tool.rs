//! Tools: what a tool server lists, one call of one tool, and what it returned.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::Media;

/// The declared side effects of a tool; an unset field is unknown and treated as the worst case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SideEffects {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// Repeating it with the same arguments has no further effect.
    pub idempotent: Option<bool>,
    /// It may destroy or overwrite.
    pub destructive: Option<bool>,
    /// It acts on the world outside its own data.
    pub open_world: Option<bool>,
}

/// A tool as its server lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name at its server.
    pub name: String,
    /// What it does, in the words of its server; empty where it gives none.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Arc<Value>,
    /// JSON Schema of its structured result, where it declares one.
    pub output_schema: Option<Arc<Value>>,
    /// What its server states about its side effects: a hint, which counts only where the operator
    /// trusts the server.
    pub annotations: SideEffects,
}

/// The tools of one server at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolList {
    /// The tools, in the order of the server.
    pub tools: Vec<ToolSpec>,
    /// Grows with each list that differs from the one before; 1 for the first.
    pub generation: u64,
}

impl ToolList {
    /// The tool of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// One execution of one tool on the wire: exactly one request to exactly one tool server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolRequest {
    /// The tool's name at its server.
    pub tool: String,
    /// Raw JSON text of the arguments, an object.
    pub arguments: String,
}

/// What one execution of a tool returned; a result that the tool itself marked as an error is a
/// `ProviderError` instead.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolReply {
    /// What it returned, in order.
    pub content: Vec<ToolContent>,
    /// The result as structured data, raw JSON text; `None` where the tool gave none.
    pub structured: Option<String>,
}

// === impl ToolReply ===

impl ToolReply {
    /// All its texts, joined by line feeds; where it has none, its structured data.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            ToolContent::Text(text) => Some(text.as_str()),
            ToolContent::Image(_) | ToolContent::File(_) => None,
        });
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() {
            self.structured.clone().unwrap_or_default()
        } else {
            texts.join("\n")
        }
    }
}

/// A piece of a tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    /// Text.
    Text(String),
    /// A picture.
    Image(Media),
    /// A document, recording or other file.
    File(Media),
}

/// What the record of an attempt says of the tool that it executed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExecutedTool {
    /// The arguments that were sent, redacted and cut.
    pub arguments: String,
    /// What the call was for, redacted; empty where its caller did not say.
    pub goal: String,
    /// The version of the tool: a hash of its schema, unless its operator names one.
    pub release: String,
}

/// The result of a tool call with all that was done to get it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The tool that returned it; differs from the call's after a failover.
    pub tool: String,
    /// What it returned.
    pub reply: ToolReply,
    /// The arguments that were sent, raw JSON text; `None` where they are those of the call. After
    /// chunking, an array with one element for each chunk.
    pub arguments: Option<String>,
    /// How much of a chunked call was done; `None` where it was not chunked.
    pub coverage: Option<Coverage>,
    /// Why the call was adapted, chunked or given to another tool, in plain words; empty where it
    /// was not.
    pub reasoning: String,
}

/// How much of a chunked call was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Chunks whose result is in the output.
    pub done: u32,
    /// Chunks that the call was split into.
    pub total: u32,
    /// What is missing, one text for each chunk.
    pub missing: Vec<String>,
}
