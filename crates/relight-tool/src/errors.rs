//! The facts of failed executions: what a tool or its server said, and the faults of the way there.

use std::sync::Arc;

use rmcp::{
    model::ErrorData,
    service::{ClientInitializeError, ServiceError},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};

use super::facts::{RequestFacts, WireHealth};
use crate::domain::{
    failure::{ProviderError, Surface, TransportFault},
    tool::ToolReply,
};

/// The family of MCP servers, for the classifier.
pub(super) const MCP: &str = "mcp";

/// Longest text of a tool that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Facts that the SDK carries through as the error of its HTTP client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct WireError(pub(super) ProviderError);

/// Returns a fault of the way to an MCP server.
pub(super) fn fault(fault: TransportFault, words: impl Into<String>) -> ProviderError {
    ProviderError::transport(MCP, fault, words)
}

/// Returns the error for a server name that does not exist.
pub(super) fn no_server(server: &str) -> ProviderError {
    fault(
        TransportFault::NotStarted,
        format!("no tool server is configured under the name `{server}`"),
    )
}

/// Returns the error for what a tool itself called an error.
pub(super) fn of_tool(reply: ToolReply) -> ProviderError {
    let mut text = reply.text();
    if text.trim().is_empty() {
        "the tool reported an error without words".clone_into(&mut text);
    }
    ProviderError {
        provider: MCP.into(),
        surface: Surface::Tool,
        message: Some(bounded(text)),
        reply: Some(Arc::new(reply)),
        ..Default::default()
    }
}

/// Arguments that are not sent.
pub(super) fn arguments(tool: &str, why: &str) -> ProviderError {
    let words = format!("Invalid arguments for tool `{tool}`: {why}");
    of_tool(ToolReply::of_text(words))
}

/// Returns the facts of a request that the SDK reports as failed.
pub(super) fn of_request(
    error: &ServiceError,
    facts: &RequestFacts,
    health: &WireHealth,
) -> ProviderError {
    let noted = facts.take_error();
    let found = match error {
        ServiceError::McpError(error) => noted.or_else(|| Some(of_json_rpc(error))),
        ServiceError::TransportSend(error) => noted
            .or_else(|| of_transport(error))
            .or_else(|| health.error()),
        _ => noted.or_else(|| health.error()),
    }
    .unwrap_or_else(|| match error {
        ServiceError::TransportClosed => fault(
            TransportFault::Cut,
            "the stream of the response ended before it",
        ),
        ServiceError::Cancelled { .. } => {
            fault(TransportFault::Cancelled, "the request was cancelled")
        }
        other => fault(
            TransportFault::Protocol,
            format!("the response breaks the protocol: {other}"),
        ),
    });
    if facts.was_sent() {
        found
    } else {
        not_ready(found)
    }
}

/// Returns the facts of a server that could not be initialized: no request of a caller reached it.
pub(super) fn of_start(error: &ClientInitializeError, health: &WireHealth) -> ProviderError {
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return of_start(fallback, health);
    }
    let noted = match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(error),
        ClientInitializeError::JsonRpcError(error) => Some(of_json_rpc(error)),
        _ => None,
    };
    not_ready(
        health
            .error()
            .or(noted)
            .unwrap_or_else(|| fault(TransportFault::NotReady, error.to_string())),
    )
}

/// Returns the same facts of a request that surely did not reach the server. A status that names
/// its own cause stays as it is.
pub(super) fn not_ready(mut error: ProviderError) -> ProviderError {
    let names_cause = matches!(error.status, Some(300..=499));
    if names_cause || error.fault.is_some_and(TransportFault::never_sent) {
        return error;
    }
    let words = error
        .text()
        .map_or_else(|| error.to_string(), str::to_owned);
    error.fault = Some(TransportFault::NotReady);
    error.surface = Surface::Transport;
    error.body = None;
    error.message = Some(bounded(format!(
        "the tool server did not become ready: {words}"
    )));
    error
}

/// Returns the same facts, saying when to come back.
pub(super) fn with_wait(mut error: ProviderError, wait: std::time::Duration) -> ProviderError {
    error.headers.retain(|(name, _)| name != "retry-after-ms");
    error
        .headers
        .push(("retry-after-ms".to_owned(), wait.as_millis().to_string()));
    error
}

/// Returns the body of a JSON-RPC error, as it came over the wire.
fn of_json_rpc(error: &ErrorData) -> ProviderError {
    let body = serde_json::json!({ "error": error });
    ProviderError {
        provider: MCP.into(),
        surface: Surface::Tool,
        body: Some(bounded(body.to_string())),
        reply: of_error(&body["error"]).map(Arc::new),
        ..ProviderError::default()
    }
}

/// Returns the error of the protocol in a body, as what the tool returned.
pub(super) fn reply_in(body: &str) -> Option<ToolReply> {
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    of_error(&body["error"])
}

/// Returns an error of the protocol as a result that is marked as an error, with its words.
fn of_error(error: &serde_json::Value) -> Option<ToolReply> {
    let words = error["message"].as_str()?;
    let result = serde_json::json!({
        "content": [{ "type": "text", "text": words }],
        "isError": true,
        "_meta": { "relight/error": error },
    });
    ToolReply::of_mcp(result.to_string()).map(|(reply, _)| reply)
}

fn of_transport(error: &DynamicTransportError) -> Option<ProviderError> {
    match error
        .error
        .downcast_ref::<StreamableHttpError<WireError>>()?
    {
        StreamableHttpError::Client(WireError(facts)) => Some(facts.clone()),
        StreamableHttpError::TransportChannelClosed => None,
        other => Some(fault(TransportFault::Protocol, other.to_string())),
    }
}

fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}
