//! One tool server: what it lists and what it executes, whatever it speaks.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use rmcp::model::{CallToolRequestParams, JsonObject, RequestMetaObject};
use serde_json::{Map, Value};

use super::{
    ToolServersError,
    connector::Connector,
    errors,
    list::{self, FetchedTools, ListCache, ListFreshness, ListTrouble},
    listing::ToolListing,
    mcp_http::McpHttpClient,
    plain::PlainHttp,
    progress::OnProgress,
    session::{FailedRequest, ListChanges, Session},
    session_doubt::SessionDoubt,
    spec::{ToolLimits, ToolServerPlace, ToolServerSpec},
};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::{LeftOutTool, ToolList, ToolReply, ToolRequest},
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
    /// Returns a server; nothing is connected or started yet.
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

    /// Returns its tools; see `ToolServers::list`.
    pub(super) async fn list(
        &self,
        freshness: ListFreshness,
    ) -> Result<Arc<ToolList>, ProviderError> {
        match &self.wire {
            ToolWire::Plain(plain) => Ok(plain.list()),
            ToolWire::Mcp(connector) => self.list.get(freshness, || self.fetching(connector)).await,
        }
    }

    /// Waits for its first list, if that is on its way; `None` if it is not, or fails.
    pub(super) async fn first_list(&self) -> Option<Arc<ToolList>> {
        match &self.wire {
            ToolWire::Plain(plain) => Some(plain.list()),
            ToolWire::Mcp(_) => self.list.first().await,
        }
    }

    /// Waits for the first list of a process that is being started, for as long as its start may
    /// take; `None` if it is not, or fails.
    pub(super) async fn first_start(&self) -> Option<Arc<ToolList>> {
        if !matches!(self.spec.place, ToolServerPlace::McpChild(_)) {
            return None;
        }
        let first = tokio::time::timeout(self.spec.start_timeout, self.list.first());
        first.await.ok().flatten()
    }

    /// Returns the reason for which its tools cannot be listed; it is then tried again.
    pub(super) fn trouble(&self) -> Option<ListTrouble> {
        let ToolWire::Mcp(connector) = &self.wire else {
            return None;
        };
        let trouble = self.list.trouble()?;
        self.list.refresh(|| self.fetching(connector));
        Some(trouble)
    }

    fn fetching(
        &self,
        connector: &Arc<Connector>,
    ) -> BoxFuture<'static, Result<FetchedTools, ProviderError>> {
        let connector = Arc::clone(connector);
        let changes = self.changes.clone();
        let spec = Arc::clone(&self.spec);
        let within = spec.start_timeout.saturating_mul(2);
        async move {
            let fetched = tokio::time::timeout(within, fetch(connector, changes, spec)).await;
            fetched.unwrap_or_else(|_| Err(list::silent(within)))
        }
        .boxed()
    }

    /// Its tools as they were fetched last.
    pub(super) fn known(&self) -> Option<Arc<ToolList>> {
        match &self.wire {
            ToolWire::Plain(plain) => Some(plain.list()),
            ToolWire::Mcp(_) => self.list.known(),
        }
    }

    /// Executes a tool once.
    pub(super) async fn call(
        &self,
        request: ToolRequest,
        on_progress: Option<OnProgress>,
    ) -> Result<ToolReply, ProviderError> {
        let arguments = arguments_of(&request, &self.spec.limits)?;
        match &self.wire {
            ToolWire::Plain(plain) => plain.call(&request.tool, arguments).await,
            ToolWire::Mcp(connector) => call(connector, &request, arguments, on_progress).await,
        }
    }

    /// Closes its connection or ends its child.
    pub(super) async fn close(&self) {
        if let ToolWire::Mcp(connector) = &self.wire {
            connector.close().await;
        }
    }
}

async fn call(
    connector: &Connector,
    request: &ToolRequest,
    arguments: JsonObject,
    on_progress: Option<OnProgress>,
) -> Result<ToolReply, ProviderError> {
    // They may be long: a request that is made a second time, which is rare, reads them again.
    let read = Mutex::new(Some(arguments));
    let called = in_session(connector, |session| {
        let arguments = read.lock().take();
        let arguments = arguments.or_else(|| serde_json::from_str(&request.arguments).ok());
        let mut params = CallToolRequestParams::new(request.tool.clone())
            .with_arguments(arguments.unwrap_or_default());
        let meta = request.meta.as_deref().map(serde_json::from_str);
        let meta: Option<JsonObject> = meta.and_then(Result::ok);
        params.meta = meta.map(RequestMetaObject::from);
        let on_progress = on_progress.clone();
        async move { session.call(params, on_progress).await }.boxed()
    });
    called.await.map_err(|error| match connector.restarts_in() {
        Some(wait) if error.fault == Some(TransportFault::ProcessExited) => {
            errors::with_wait(error, wait)
        }
        _ => error,
    })
}

/// Makes a request in the open session, and once more in a new one if the server has surely not
/// executed the first: it was not sent, or refused because the session is over.
async fn in_session<T>(
    connector: &Connector,
    request: impl Fn(Arc<Session>) -> BoxFuture<'static, Result<T, FailedRequest>> + Send + Sync,
) -> Result<T, ProviderError> {
    let session = connector.session().await?;
    let failed = match request(Arc::clone(&session)).await {
        Ok(made) => return Ok(made),
        Err(failed) => failed,
    };
    let may_repeat = match failed.doubt {
        Some(SessionDoubt::Lost) => {
            session.retire();
            true
        }
        Some(SessionDoubt::Possible { was_refused }) => match session.lost().await {
            Some(lost) => {
                session.retire();
                was_refused && lost != SessionDoubt::Possible { was_refused: false }
            }
            None => false,
        },
        None => !failed.was_sent,
    };
    if !may_repeat {
        return Err(failed.error);
    }
    match connector.session().await {
        Ok(session) => request(session).await.map_err(|failed| failed.error),
        // The server's own words say more.
        Err(_) if failed.was_sent => Err(failed.error),
        Err(error) => Err(error),
    }
}

async fn fetch(
    connector: Arc<Connector>,
    changes: ListChanges,
    spec: Arc<ToolServerSpec>,
) -> Result<FetchedTools, ProviderError> {
    let limits = spec.limits;
    let fetched = in_session(&connector, move |session| {
        let changes = changes.clone();
        async move {
            let changes = changes.count();
            let ToolListing {
                tools,
                left_out,
                fresh_for,
                ..
            } = session.list(&limits).await?;
            Ok(FetchedTools {
                tools,
                left_out,
                fresh_for,
                changes,
            })
        }
        .boxed()
    });
    let fetched = fetched.await?;
    for LeftOutTool { name, why } in &fetched.left_out {
        tracing::warn!(server = %spec.name, tool = name, "a tool is left out of the list: {why}");
    }
    Ok(fetched)
}

/// Returns the arguments of a call, if they can be sent.
fn arguments_of(
    request: &ToolRequest,
    limits: &ToolLimits,
) -> Result<Map<String, Value>, ProviderError> {
    let bytes = request.arguments.len();
    if bytes > limits.max_arguments_bytes {
        let most = units::format_bytes(limits.max_arguments_bytes as u64);
        let why = format!("they are {bytes} bytes, and at most {most} are sent");
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
                    meta: None,
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
