//! One tool server: what it lists and what it executes, whatever it speaks.

use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};

use super::{
    ToolServersError,
    connector::Connector,
    errors,
    list::{FetchedTools, ListCache, ListFreshness},
    mcp_http::McpHttpClient,
    plain::PlainHttp,
    session::ListChanges,
    spec::{ToolLimits, ToolServerPlace, ToolServerSpec},
};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::{ToolList, ToolReply, ToolRequest, ToolSpec},
    units,
};

/// One tool server.
pub(super) struct ToolServer {
    spec: Arc<ToolServerSpec>,
    wire: ToolWire,
    list: ListCache,
    changes: ListChanges,
}

enum ToolWire {
    Mcp(Arc<Connector>),
    Plain(PlainHttp),
}

// === impl ToolServer ===

impl ToolServer {
    /// A server; nothing is connected or started yet.
    pub(super) fn build(spec: &ToolServerSpec) -> Result<Self, ToolServersError> {
        let spec = Arc::new(spec.clone());
        let changes = ListChanges::default();
        let mcp = |http| {
            ToolWire::Mcp(Arc::new(Connector::new(
                Arc::clone(&spec),
                http,
                changes.clone(),
            )))
        };
        let wire = match &spec.place {
            ToolServerPlace::McpHttp(place) => mcp(Some(McpHttpClient::build(&spec, place)?)),
            ToolServerPlace::McpChild(_) => mcp(None),
            ToolServerPlace::PlainHttp { at, tools } => {
                ToolWire::Plain(PlainHttp::build(&spec, at, tools)?)
            }
        };
        Ok(Self {
            list: ListCache::new(changes.clone(), spec.refresh),
            wire,
            changes,
            spec,
        })
    }

    pub(super) fn spec(&self) -> &ToolServerSpec {
        &self.spec
    }

    /// Its tools; see `ToolServers::list`.
    pub(super) async fn list(
        &self,
        freshness: ListFreshness,
    ) -> Result<Arc<ToolList>, ProviderError> {
        match &self.wire {
            ToolWire::Plain(plain) => Ok(plain.list()),
            ToolWire::Mcp(connector) => {
                let (connector, changes, spec) = (
                    Arc::clone(connector),
                    self.changes.clone(),
                    Arc::clone(&self.spec),
                );
                self.list
                    .get(freshness, || fetch(connector, changes, spec).boxed())
                    .await
            }
        }
    }

    /// Its tools as they were fetched last.
    pub(super) fn known(&self) -> Option<Arc<ToolList>> {
        match &self.wire {
            ToolWire::Plain(plain) => Some(plain.list()),
            ToolWire::Mcp(_) => self.list.known(),
        }
    }

    /// Executes a tool once.
    pub(super) async fn call(&self, request: ToolRequest) -> Result<ToolReply, ProviderError> {
        let arguments = arguments_of(&request, &self.spec.limits)?;
        match &self.wire {
            ToolWire::Plain(plain) => plain.call(&request.tool, arguments).await,
            ToolWire::Mcp(connector) => call(connector, request.tool, arguments).await,
        }
    }

    /// Closes its connection or ends its child.
    pub(super) async fn close(&self) {
        if let ToolWire::Mcp(connector) = &self.wire {
            connector.close().await;
        }
    }
}

/// A session that turns out to be over before the request was sent is replaced once: the request
/// reached no server.
async fn call(
    connector: &Connector,
    tool: String,
    arguments: Map<String, Value>,
) -> Result<ToolReply, ProviderError> {
    let first = match connector
        .session()
        .await?
        .call(tool.clone(), arguments.clone())
        .await
    {
        Ok(reply) => return Ok(reply),
        Err(failed) => failed,
    };
    let failed = if first.was_sent {
        first
    } else {
        match connector.session().await?.call(tool, arguments).await {
            Ok(reply) => return Ok(reply),
            Err(failed) => failed,
        }
    };
    Err(match connector.restarts_in() {
        Some(wait) if failed.error.fault == Some(TransportFault::ProcessExited) => {
            errors::with_wait(failed.error, wait)
        }
        _ => failed.error,
    })
}

async fn fetch(
    connector: Arc<Connector>,
    changes: ListChanges,
    spec: Arc<ToolServerSpec>,
) -> Result<FetchedTools, ProviderError> {
    let session = connector.session().await?;
    let changes = changes.count();
    let mut tools = session
        .list(&spec.limits)
        .await
        .map_err(|failed| failed.error)?;
    tools.retain(|tool| is_usable(&spec, tool));
    Ok(FetchedTools { tools, changes })
}

/// Whether a listed tool is kept.
fn is_usable(spec: &ToolServerSpec, tool: &ToolSpec) -> bool {
    let max = spec.limits.max_schema_depth;
    let schemas = [Some(&tool.input_schema), tool.output_schema.as_ref()];
    let usable = schemas
        .into_iter()
        .flatten()
        .all(|schema| is_within(schema, max));
    if !usable {
        tracing::warn!(
            server = %spec.name,
            tool = tool.name,
            "a tool is left out of the list: its schema is nested deeper than {max} levels (tools.limits.max_schema_depth)"
        );
    }
    usable
}

/// Whether a value is nested at most so deep.
fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_within(item, depth - 1)),
        Value::Object(members) => {
            depth > 0 && members.values().all(|member| is_within(member, depth - 1))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// The arguments of a call, where they can be sent.
fn arguments_of(
    request: &ToolRequest,
    limits: &ToolLimits,
) -> Result<Map<String, Value>, ProviderError> {
    let bytes = request.arguments.len();
    if bytes > limits.max_arguments_bytes {
        let most = units::format_bytes(limits.max_arguments_bytes as u64);
        let why = format!(
            "they are {bytes} bytes, and at most {most} are sent (tools.limits.max_arguments_bytes)"
        );
        return Err(errors::arguments(&request.tool, &why));
    }
    let text = if request.arguments.trim().is_empty() {
        "{}"
    } else {
        &request.arguments
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(errors::arguments(
            &request.tool,
            "expected an object with an entry for each parameter",
        )),
        Err(error) => Err(errors::arguments(
            &request.tool,
            &format!("not valid JSON: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_deep_as_its_lists_and_maps() {
        let value: Value = serde_json::json!({"a": [{"b": 1}]});
        assert!(is_within(&value, 3));
        assert!(!is_within(&value, 2));
        assert!(is_within(&Value::from(1), 0));
    }

    #[test]
    fn arguments_are_an_object_within_their_bound() {
        let limits = ToolLimits {
            max_arguments_bytes: 12,
            ..ToolLimits::default()
        };
        let with = |arguments: &str| {
            arguments_of(
                &ToolRequest {
                    tool: "t".to_owned(),
                    arguments: arguments.to_owned(),
                },
                &limits,
            )
        };
        assert_eq!(with("{\"a\": 1}").unwrap().len(), 1);
        assert!(with("").unwrap().is_empty());
        for wrong in ["[1]", "{", "{\"a\": \"longer\"}"] {
            assert!(
                with(wrong)
                    .unwrap_err()
                    .text()
                    .unwrap()
                    .starts_with("Invalid arguments for tool `t`"),
                "{wrong}"
            );
        }
    }
}
