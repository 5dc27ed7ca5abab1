//! Tools: what a tool server lists, one call of one tool, and what it returned.

mod reply;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::reply::{RawMembers, ToolContent, ToolReply, UNNAMED_TYPE};

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
    /// Description of its effect, in the words of its server; empty if it gives none.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Arc<Value>,
    /// JSON Schema of its structured result, if it declares one.
    pub output_schema: Option<Arc<Value>>,
    /// Statement of its server about its side effects: a hint, which counts only if the operator
    /// trusts the server.
    pub annotations: SideEffects,
    /// The tool as an MCP server lists it, with what has no field here (its title, icons, `_meta`);
    /// `None` for a plain HTTP tool.
    pub sent: Option<Arc<Value>>,
}

/// The tools of one server at one time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolList {
    /// The tools, in the order of the server.
    pub tools: Vec<ToolSpec>,
    /// Tools that the server lists, too, and that cannot be offered.
    pub left_out: Vec<LeftOutTool>,
    /// Grows with each list that differs from the one before; 1 for the first.
    pub generation: u64,
}

/// A tool that its server lists and that cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutTool {
    /// Name, cut if it is too long.
    pub name: String,
    /// Reason why it is left out, in plain words.
    pub why: String,
}

impl ToolList {
    /// Returns the tool of this name.
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
    /// Data passed to an MCP server as `_meta` of the request, raw JSON text of an object.
    pub meta: Option<String>,
}

/// Progress that an executed tool reports.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// Grows while the tool runs; in units of its own.
    pub progress: f64,
    /// Value of `progress` at the end, if that is known.
    pub total: Option<f64>,
    /// Current step, in words.
    pub message: Option<String>,
}

/// Returns the part of a request's `_meta` that is passed on to the tool's server, raw JSON text of
/// an object: everything but the part that belongs to the connection with the caller, or to
/// Relight. `None` if nothing is left or the text is not an object.
#[must_use]
pub fn passed_on_meta(meta: &str) -> Option<String> {
    let mut members: RawMembers = serde_json::from_str(meta).ok()?;
    members.retain(|name, _| {
        name != "progressToken"
            && !name.starts_with("relight/")
            && !name.starts_with("io.modelcontextprotocol/")
    });
    let is_left = !members.is_empty();
    is_left
        .then(|| serde_json::to_string(&members).ok())
        .flatten()
}

/// Part of an attempt's record about the tool that it executed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExecutedTool {
    /// The arguments that were sent, redacted and cut.
    pub arguments: String,
    /// Purpose of the call, redacted; empty if its caller did not state it.
    pub goal: String,
    /// The version of the tool: a hash of its schema, unless its operator names one.
    pub release: String,
}

/// The result of a tool call with all that was done to get it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The tool that returned it; differs from the call's after a failover.
    pub tool: String,
    /// Reply of the tool.
    pub reply: ToolReply,
    /// Arguments that were sent, raw JSON text; `None` if they are those of the call. After
    /// chunking, an array with one element for each chunk.
    pub arguments: Option<String>,
    /// Part of a chunked call that was done; `None` if it was not chunked.
    pub coverage: Option<Coverage>,
    /// Reason why the call was adapted, chunked or given to another tool, in plain words; empty if
    /// it was not.
    pub reasoning: String,
}

/// Part of a chunked call that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Chunks whose result is in the output.
    pub done: u32,
    /// Chunks that the call was split into.
    pub total: u32,
    /// Missing parts, one text for each chunk.
    pub missing: Vec<String>,
}
