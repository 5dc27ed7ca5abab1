//! The pages of a server's list of tools, read tool by tool: one that cannot be offered is left out
//! with its reason, and takes no other with it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rmcp::model::{ServerResult, Tool};
use serde_json::{Map, Value, json};

use super::{errors, reply, spec::ToolLimits};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::{LeftOutTool, ToolSpec},
};

/// Most pages of a list.
const MAX_PAGES: usize = 1000;
/// Most pages in a row that bring nothing new.
const MAX_IDLE_PAGES: usize = 3;
/// Longest name of a tool, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Fields that a tool may lack: they are left out if they cannot be read.
const OPTIONAL: [&str; 6] = [
    "title",
    "description",
    "outputSchema",
    "annotations",
    "icons",
    "_meta",
];

/// A list as far as it was read.
#[derive(Debug, Default)]
pub(super) struct ToolListing {
    pub(super) tools: Vec<ToolSpec>,
    pub(super) left_out: Vec<LeftOutTool>,
    /// Time for which the server calls it fresh, if it says so.
    pub(super) fresh_for: Option<Duration>,
    names: HashSet<String>,
    cursors: HashSet<String>,
    idle_pages: usize,
}

// === impl ToolListing ===

impl ToolListing {
    /// Reads one page, and the same as it was sent where that was kept; returns the cursor of the
    /// next one, where there is one worth asking for.
    pub(super) fn read(
        &mut self,
        page: ServerResult,
        sent: Option<&str>,
        limits: &ToolLimits,
    ) -> Result<Option<String>, ProviderError> {
        let (tools, next) = match page {
            ServerResult::ListToolsResult(page) => {
                let fresh_for = page.ttl_ms.map(Duration::from_millis);
                self.fresh_for = self.fresh_for.into_iter().chain(fresh_for).min();
                let tools: Vec<_> = page.tools.into_iter().map(Ok).collect();
                (tools, page.next_cursor)
            }
            ServerResult::CustomResult(result) => lenient(result.0)?,
            _ => {
                return Err(protocol(
                    "the tool server's list of tools breaks the protocol",
                ));
            }
        };
        let before = self.names.len();
        let mut sent = sent.map(as_sent).unwrap_or_default();
        for tool in tools {
            self.take(tool, &mut sent, limits);
        }
        if self.names.len() > limits.max_tools {
            let words = format!("the tool server lists more than {} tools", limits.max_tools);
            return Err(errors::fault(TransportFault::TooLarge, words));
        }
        self.idle_pages = if self.names.len() > before {
            0
        } else {
            self.idle_pages + 1
        };
        let Some(next) = next.filter(|next| !next.is_empty()) else {
            return Ok(None);
        };
        let goes_on = self.cursors.len() < MAX_PAGES
            && self.idle_pages < MAX_IDLE_PAGES
            && self.cursors.insert(next.clone());
        if goes_on {
            Ok(Some(next))
        } else if self.tools.is_empty() {
            Err(protocol("the pages of the tool server's list do not end"))
        } else {
            Ok(None)
        }
    }

    fn take(
        &mut self,
        tool: Result<Tool, LeftOutTool>,
        sent: &mut HashMap<String, Value>,
        limits: &ToolLimits,
    ) {
        let tool = match tool {
            Ok(tool) => tool,
            Err(left_out) => return self.leave_out(left_out),
        };
        if !is_name(&tool.name) {
            let why = "its name is not 1 to 128 letters, digits and `_-./:`".to_owned();
            return self.leave_out(LeftOutTool {
                name: tool.name.into_owned(),
                why,
            });
        }
        // The first one of a name counts.
        if !self.names.insert(tool.name.to_string()) {
            return;
        }
        let mut spec = reply::of_tool(&tool);
        let sent = sent.remove(&spec.name);
        spec.sent = spec.sent.map(|read| match sent {
            Some(sent) => Arc::new(readable(sent, &read)),
            None => read,
        });
        let max = limits.max_schema_depth;
        let schemas = [Some(&spec.input_schema), spec.output_schema.as_ref()];
        let is_shallow = schemas
            .into_iter()
            .flatten()
            .all(|schema| is_within(schema, max));
        if is_shallow {
            self.tools.push(spec);
            return;
        }
        let why = format!("its schema is nested deeper than {max} levels");
        self.leave_out(LeftOutTool {
            name: spec.name,
            why,
        });
    }

    fn leave_out(&mut self, mut tool: LeftOutTool) {
        tool.name
            .truncate(tool.name.floor_char_boundary(MAX_NAME_BYTES));
        if !self.left_out.contains(&tool) {
            self.left_out.push(tool);
        }
    }
}

/// The tools of a page as they were sent, by name.
fn as_sent(page: &str) -> HashMap<String, Value> {
    let mut tools = HashMap::new();
    let Ok(Value::Object(mut page)) = serde_json::from_str(page) else {
        return tools;
    };
    let Some(Value::Array(sent)) = page.remove("tools") else {
        return tools;
    };
    for tool in sent {
        if let Some(name) = tool["name"].as_str().map(str::to_owned) {
            tools.entry(name).or_insert(tool);
        }
    }
    tools
}

/// A tool as it was sent, without what of it could not be read: a client may refuse a whole list for
/// that.
fn readable(mut sent: Value, read: &Value) -> Value {
    let Some(members) = sent.as_object_mut() else {
        return sent;
    };
    members.retain(|name, value| {
        let is_read = !OPTIONAL.contains(&name.as_str()) || read.get(name).is_some();
        is_read && !value.is_null() && (name != "execution" || is_execution(value))
    });
    members
        .entry("inputSchema")
        .or_insert_with(|| read["inputSchema"].clone());
    if let Some(Value::Object(hints)) = members.get_mut("annotations") {
        hints.retain(|_, value| !value.is_null());
    }
    sent
}

/// Whether this is how a tool is executed, which revision 2025-11-25 has and the SDK does not.
fn is_execution(value: &Value) -> bool {
    let is_known = |tasks: &Value| {
        let known = ["forbidden", "optional", "required"];
        tasks.as_str().is_some_and(|tasks| known.contains(&tasks))
    };
    value.is_object() && value.get("taskSupport").is_none_or(is_known)
}

type ToolPage = (Vec<Result<Tool, LeftOutTool>>, Option<String>);

/// Returns a page of which something is not as the protocol has it.
fn lenient(mut page: Value) -> Result<ToolPage, ProviderError> {
    let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
        return Err(protocol(
            "the tool server's list of tools breaks the protocol",
        ));
    };
    let next = page["nextCursor"].as_str().map(str::to_owned);
    Ok((tools.into_iter().map(lenient_tool).collect(), next))
}

/// Returns a tool, without what of it cannot be read; one without a schema takes any object.
fn lenient_tool(tool: Value) -> Result<Tool, LeftOutTool> {
    let Value::Object(mut tool) = tool else {
        let why = "it is no object".to_owned();
        return Err(LeftOutTool {
            name: String::new(),
            why,
        });
    };
    let name = tool
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !tool.get("inputSchema").is_some_and(Value::is_object) {
        tool.insert("inputSchema".to_owned(), json!({ "type": "object" }));
    }
    let of = |tool: &Map<String, Value>| serde_json::from_value(Value::Object(tool.clone()));
    for optional in OPTIONAL {
        if let Ok(tool) = of(&tool) {
            return Ok(tool);
        }
        tool.remove(optional);
    }
    of(&tool).map_err(|error| LeftOutTool {
        name,
        why: error.to_string(),
    })
}

/// Returns whether a tool may be called so: what the protocol allows, and the two signs that many
/// use.
fn is_name(name: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(is_sign)
}

/// Returns whether a value is nested at most so deep.
#[must_use]
pub fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_within(item, depth - 1)),
        Value::Object(members) => {
            depth > 0 && members.values().all(|member| is_within(member, depth - 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

fn protocol(words: &str) -> ProviderError {
    errors::fault(TransportFault::Protocol, words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(tools: &Value, next: Option<&str>) -> ServerResult {
        serde_json::from_value(json!({ "tools": tools, "nextCursor": next })).unwrap()
    }

    fn names(listing: &ToolListing) -> Vec<&str> {
        listing
            .tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect()
    }

    #[test]
    fn a_value_is_as_deep_as_its_lists_and_maps() {
        let value = json!({"a": [{"b": 1}]});
        assert!(is_within(&value, 3));
        assert!(!is_within(&value, 2));
        assert!(is_within(&Value::from(1), 0));
    }

    #[test]
    fn a_tool_without_a_schema_takes_any_object_and_an_odd_one_takes_no_other_with_it() {
        let tools = json!([
            { "name": "search", "inputSchema": { "type": "object" } },
            { "name": "noschema", "description": "d" },
            { "name": "null", "inputSchema": null, "annotations": "none" },
            { "name": "two words", "inputSchema": {} },
            { "inputSchema": {} },
            7,
        ]);
        let mut listing = ToolListing::default();
        let next = listing
            .read(page(&tools, None), None, &ToolLimits::default())
            .unwrap();
        assert_eq!(next, None);
        assert_eq!(names(&listing), ["search", "noschema", "null"]);
        assert_eq!(*listing.tools[1].input_schema, json!({ "type": "object" }));
        assert_eq!(listing.left_out.len(), 3, "{:?}", listing.left_out);
    }

    #[test]
    fn a_tool_is_listed_as_it_was_sent() {
        let schema = json!({ "type": "object" });
        let whole = json!({
            "name": "search", "inputSchema": schema, "execution": { "taskSupport": "forbidden" },
            "annotations": { "readOnlyHint": true, "later": 1.5 }, "later": [{ "n": 1 }],
        });
        let odd = json!({
            "name": "odd", "title": null, "inputSchema": schema, "execution": 7,
            "annotations": { "readOnlyHint": null },
        });
        let odder = json!({ "name": "odder", "inputSchema": null, "title": 7, "later": 1 });
        let tools = json!([whole, odd, odder]);
        let sent = json!({ "tools": tools }).to_string();
        let mut listing = ToolListing::default();
        let limits = ToolLimits::default();
        listing
            .read(page(&tools, None), Some(&sent), &limits)
            .unwrap();
        let listed: Vec<Value> = listing
            .tools
            .iter()
            .map(|tool| Value::clone(tool.sent.as_ref().unwrap()))
            .collect();
        let readable = json!({ "name": "odd", "inputSchema": schema, "annotations": {} });
        let rest = json!({ "name": "odder", "inputSchema": schema, "later": 1 });
        assert_eq!(listed, [whole, readable, rest]);
    }

    #[test]
    fn pages_that_never_end_give_the_tools_that_they_brought() {
        let tool = json!([{ "name": "search", "inputSchema": {} }]);
        let read = |cursors: &mut dyn Iterator<Item = String>| {
            let mut listing = ToolListing::default();
            let mut pages = 0;
            loop {
                let cursor = cursors.next();
                pages += 1;
                let limits = ToolLimits::default();
                if listing
                    .read(page(&tool, cursor.as_deref()), None, &limits)
                    .unwrap()
                    .is_none()
                {
                    return (names(&listing).len(), pages);
                }
            }
        };
        assert_eq!(read(&mut std::iter::repeat("same".to_owned())), (1, 2));
        assert_eq!(read(&mut (0..).map(|n: u32| n.to_string())), (1, 4));
    }

    proptest! {
        #[test]
        fn a_good_tool_is_listed_whatever_stands_beside_it(
            odd in prop::collection::vec(value(), 0..6),
            at in 0..6_usize,
        ) {
            let mut tools = odd;
            let good = json!({ "name": "good", "inputSchema": { "type": "object" } });
            tools.insert(at.min(tools.len()), good);
            let mut listing = ToolListing::default();
            let sent = json!({ "tools": tools }).to_string();
            let limits = ToolLimits::default();
            listing.read(page(&Value::from(tools), None), Some(&sent), &limits).unwrap();
            prop_assert_eq!(names(&listing).iter().filter(|name| **name == "good").count(), 1);
        }
    }

    /// Anything, often with the members of a tool.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            let key = prop_oneof![
                Just("name".to_owned()),
                Just("inputSchema".to_owned()),
                Just("description".to_owned()),
                Just("annotations".to_owned()),
                "[a-z]{1,3}",
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }
}
