//! A scripted MCP server: lists its tools and executes them as its script says, over streamable
//! HTTP.
//!
//! It speaks as much of the protocol as tool calls need, without sessions and without events of its
//! own.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Reply, Request, WireServer, locked};

/// The newest version of the protocol that it speaks.
const PROTOCOL: &str = "2025-06-18";

/// A scripted MCP server; clones share it.
#[derive(Clone, Default)]
pub struct McpScript {
    tools: Arc<Mutex<Vec<ScriptedTool>>>,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
    metas: Arc<Mutex<Vec<Value>>>,
}

/// A tool, and what becomes of each call of it.
#[derive(Clone)]
pub struct ScriptedTool {
    /// Its name, description, `inputSchema` and whatever else its server lists.
    listed: Value,
    execute: Arc<dyn Fn(&Value) -> Executed + Send + Sync>,
}

/// Outcome of a call.
#[derive(Debug, Clone)]
pub enum Executed {
    /// A result: a text as it is, anything else as structured data and as text.
    Result(Value),
    /// A result of any form, raw JSON text.
    Whole(String),
    /// A result that is marked as an error.
    Error(String),
    /// An error of the protocol.
    Refused(i64, String),
    /// Whatever the wire does.
    Wire(Box<Reply>),
}

// === impl ScriptedTool ===

impl ScriptedTool {
    /// Returns a tool of this name and with arguments of this schema.
    pub fn new(
        name: &str,
        schema: &Value,
        execute: impl Fn(&Value) -> Executed + Send + Sync + 'static,
    ) -> Self {
        let listed = json!({"name": name, "description": "", "inputSchema": schema});
        Self {
            listed,
            execute: Arc::new(execute),
        }
    }

    /// The same tool with something else that its server states of it.
    #[must_use]
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.listed[field] = value;
        self
    }
}

// === impl McpScript ===

impl McpScript {
    /// A server of these tools.
    #[must_use]
    pub fn new(tools: Vec<ScriptedTool>) -> Self {
        let script = Self::default();
        script.replace(tools);
        script
    }

    /// Has other tools from now on.
    pub fn replace(&self, tools: Vec<ScriptedTool>) {
        *locked(&self.tools) = tools;
    }

    /// Returns every call so far: the tool and its arguments.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, Value)> {
        locked(&self.calls).clone()
    }

    /// Returns the `_meta` of every call so far.
    #[must_use]
    pub fn metas(&self) -> Vec<Value> {
        locked(&self.metas).clone()
    }

    /// Plays this script on a wire server.
    pub fn play_on(&self, server: &WireServer) {
        let script = self.clone();
        server.otherwise(move |request| script.reply(request));
    }

    fn reply(&self, request: &Request) -> Reply {
        if request.method != "POST" {
            return Reply::body(405, &[], b"");
        }
        let Some(id) = request.body.get("id").cloned() else {
            return Reply::body(202, &[], b"");
        };
        let parameters = &request.body["params"];
        let result = match request.body["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": PROTOCOL,
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "script", "version": "1"},
            }),
            "tools/list" => {
                let tools: Vec<Value> = locked(&self.tools)
                    .iter()
                    .map(|tool| tool.listed.clone())
                    .collect();
                json!({ "tools": tools })
            }
            "tools/call" => match self.execute(parameters) {
                Executed::Result(Value::String(text)) => {
                    json!({"content": [{"type": "text", "text": text}]})
                }
                Executed::Result(value) => {
                    let text = value.to_string();
                    json!({"content": [{"type": "text", "text": text}], "structuredContent": value})
                }
                Executed::Whole(result) => {
                    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
                    let json = [("content-type", "application/json")];
                    return Reply::body(200, &json, text.as_bytes());
                }
                Executed::Error(text) => {
                    json!({"content": [{"type": "text", "text": text}], "isError": true})
                }
                Executed::Refused(code, message) => return error(&id, code, &message),
                Executed::Wire(reply) => return *reply,
            },
            "ping" => json!({}),
            method => return error(&id, -32601, &format!("no method {method}")),
        };
        Reply::document(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    fn execute(&self, parameters: &Value) -> Executed {
        let name = parameters["name"].as_str().unwrap_or_default().to_owned();
        let arguments = parameters
            .get("arguments")
            .cloned()
            .unwrap_or_else(|| json!({}));
        locked(&self.calls).push((name.clone(), arguments.clone()));
        locked(&self.metas).push(parameters["_meta"].clone());
        let found = locked(&self.tools)
            .iter()
            .find(|tool| tool.listed["name"] == name.as_str())
            .cloned();
        match found {
            Some(tool) => (tool.execute)(&arguments),
            None => Executed::Refused(-32602, format!("Unknown tool: {name}")),
        }
    }
}

fn error(id: &Value, code: i64, message: &str) -> Reply {
    Reply::document(
        &json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}),
    )
}
