//! What the front says of itself and of the tools that it has.

use serde_json::{Map, Value, json};

use super::revision::{self, LEGACY, MODERN, Revision};
use crate::{
    call_error::{CallError, table::NO_TOOLS_LISTED},
    domain::tool::ToolSpec,
    engine::{ListedTools, UnavailableServer},
};

/// Time for which a client may keep a list of tools, in milliseconds; a subscription tells it
/// earlier.
const LIST_TTL_MS: u64 = 60_000;
/// Time for which a client may keep the front's description of itself, in milliseconds.
const DISCOVERY_TTL_MS: u64 = 3_600_000;

/// The member of `_meta` in which a server names itself.
pub(super) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Returns the result of `initialize`.
pub(super) fn initialized(parameters: &Value) -> Value {
    json!({
        "protocolVersion": revision::negotiated(parameters),
        "capabilities": { "tools": { "listChanged": true } },
        "serverInfo": own_info(),
    })
}

/// Returns the result of `server/discover`.
pub(super) fn discovered() -> Value {
    let versions: Vec<&str> = [MODERN].into_iter().chain(LEGACY).collect();
    json!({
        "supportedVersions": versions,
        "capabilities": { "tools": { "listChanged": true } },
        "ttlMs": DISCOVERY_TTL_MS,
        "cacheScope": "public",
    })
}

/// Returns the result of `tools/list`: the tools that are known, and in `_meta` the servers whose tools
/// cannot be listed now and the tools that are left out.
///
/// # Errors
/// Returns an error if there is no tool because no server could list any.
pub(super) fn tools(listed: &ListedTools, revision: Revision) -> Result<Value, CallError> {
    if listed.tools.is_empty() && !listed.unavailable.is_empty() {
        let away: Vec<String> = listed
            .unavailable
            .iter()
            .map(|away| format!("{} ({})", away.server, away.reason))
            .collect();
        let data = json!({ "relight/unavailable": unavailable(&listed.unavailable) });
        let error = CallError::new(NO_TOOLS_LISTED).word("servers", away.join(", "));
        return Err(error.with_data(data));
    }
    let tools: Vec<Value> = listed
        .tools
        .iter()
        .map(|(name, _, tool)| described(name, tool))
        .collect();
    let mut result = json!({ "tools": tools });
    let mut about = Map::new();
    if !listed.unavailable.is_empty() {
        about.insert(
            "relight/unavailable".to_owned(),
            unavailable(&listed.unavailable),
        );
    }
    if !listed.left_out.is_empty() {
        let left_out = listed.left_out.iter().map(
            |(server, tool)| json!({ "server": &**server, "tool": tool.name, "reason": tool.why }),
        );
        about.insert("relight/left_out".to_owned(), left_out.collect());
    }
    if !about.is_empty() {
        result["_meta"] = Value::Object(about);
    }
    if revision == Revision::Modern {
        // What is missing may be back any time.
        let ttl = if listed.unavailable.is_empty() {
            LIST_TTL_MS
        } else {
            0
        };
        result["ttlMs"] = json!(ttl);
        result["cacheScope"] = json!("private");
    }
    Ok(result)
}

/// A result as a revision has it.
pub(super) fn as_of(revision: Revision, mut result: Value) -> Value {
    if revision == Revision::Modern {
        result["resultType"] = json!("complete");
        result["_meta"][SERVER_INFO] = own_info();
    }
    result
}

pub(super) fn own_info() -> Value {
    json!({ "name": "relight", "version": env!("CARGO_PKG_VERSION") })
}

fn unavailable(servers: &[UnavailableServer]) -> Value {
    let servers = servers.iter().map(|away| {
        json!({ "server": &*away.server, "reason": away.reason, "since": away.since.to_string() })
    });
    servers.collect()
}

/// Returns a tool as its server lists it, by the name that it has here.
fn described(name: &str, tool: &ToolSpec) -> Value {
    let mut listed = match &tool.sent {
        Some(sent) => Value::clone(sent),
        None => json!({ "description": tool.description, "inputSchema": *tool.input_schema }),
    };
    listed["name"] = Value::from(name);
    listed
}
