//! One session with an MCP server: initialized once, then one request of the protocol for each
//! request of a caller.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientConfig,
        ClientRequest, Implementation, JsonObject, ListToolsRequest, PaginatedRequestParams,
        RequestId, ServerResult,
    },
    service::{NotificationContext, Peer, PeerRequestOptions, RunningService, serve_client},
    transport::Transport,
};

use super::{
    errors,
    facts::{RequestFacts, WireHealth},
    reply,
    spec::{ToolLimits, ToolServerSpec},
};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::{ToolReply, ToolSpec},
};

/// Most pages of a list of tools.
const MAX_PAGES: usize = 1000;

/// How often a server reported that its tools changed.
#[derive(Debug, Clone, Default)]
pub(super) struct ListChanges(Arc<AtomicU64>);

/// A request that failed.
#[derive(Debug)]
pub(super) struct FailedRequest {
    pub(super) error: ProviderError,
    /// Whether the server may have got it.
    pub(super) was_sent: bool,
}

/// An initialized session; dropping it closes the connection or ends the child.
pub(super) struct Session {
    peer: Peer<RoleClient>,
    running: tokio::sync::Mutex<RunningService<RoleClient, SessionEvents>>,
    health: WireHealth,
}

/// What a server sends by itself: that its tools changed. Everything else that it requests of a
/// client is declined.
#[derive(Debug)]
struct SessionEvents {
    changes: ListChanges,
}

/// Cancels a request when nothing waits for it any more.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

// === impl ListChanges ===

impl ListChanges {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

// === impl Session ===

impl Session {
    /// Initializes a session over a transport.
    pub(super) async fn open<T>(
        spec: &ToolServerSpec,
        transport: T,
        health: WireHealth,
        changes: ListChanges,
    ) -> Result<Self, ProviderError>
    where
        T: Transport<RoleClient> + 'static,
    {
        let starting = serve_client(SessionEvents { changes }, transport);
        let running = match tokio::time::timeout(spec.start_timeout, starting).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(errors::of_start(&error, &health)),
            Err(_) => {
                let within = crate::domain::units::duration_text(spec.start_timeout);
                let words =
                    format!("the tool server did not finish its initialization within {within}");
                return Err(errors::fault(TransportFault::ConnectTimeout, words));
            }
        };
        Ok(Self {
            peer: running.peer().clone(),
            running: tokio::sync::Mutex::new(running),
            health,
        })
    }

    /// Whether requests can be made.
    pub(super) fn is_open(&self) -> bool {
        !self.health.is_ended() && !self.peer.is_transport_closed()
    }

    /// Executes a tool once.
    pub(super) async fn call(
        &self,
        tool: String,
        arguments: JsonObject,
    ) -> Result<ToolReply, FailedRequest> {
        let facts = RequestFacts::default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let mut call = CallToolRequest::new(params);
        call.extensions.insert(facts.clone());
        let result = self
            .request(ClientRequest::CallToolRequest(call), &facts)
            .await?;
        reply::of_result(result).map_err(|error| FailedRequest {
            error,
            was_sent: true,
        })
    }

    /// Fetches all pages of the list of tools.
    pub(super) async fn list(&self, limits: &ToolLimits) -> Result<Vec<ToolSpec>, FailedRequest> {
        let refused = |fault: TransportFault, words: String| {
            Err(FailedRequest {
                error: errors::fault(fault, words),
                was_sent: true,
            })
        };
        let (mut tools, mut cursor): (Vec<ToolSpec>, Option<String>) = (Vec::new(), None);
        let mut cursors = HashSet::new();
        loop {
            let facts = RequestFacts::default();
            let params = cursor
                .take()
                .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let mut list = ListToolsRequest {
                params,
                ..ListToolsRequest::default()
            };
            list.extensions.insert(facts.clone());
            let listed = self
                .request(ClientRequest::ListToolsRequest(list), &facts)
                .await?;
            let ServerResult::ListToolsResult(page) = listed else {
                let words = "the tool server's list of tools breaks the protocol".to_owned();
                return refused(TransportFault::Protocol, words);
            };
            if tools.len() + page.tools.len() > limits.max_tools {
                let words = format!("the tool server lists more than {} tools", limits.max_tools);
                return refused(TransportFault::TooLarge, words);
            }
            tools.extend(page.tools.iter().map(reply::of_tool));
            let Some(next) = page.next_cursor.filter(|next| !next.is_empty()) else {
                return Ok(tools);
            };
            if cursors.len() == MAX_PAGES || !cursors.insert(next.clone()) {
                let words = "the pages of the tool server's list do not end".to_owned();
                return refused(TransportFault::Protocol, words);
            }
            cursor = Some(next);
        }
    }

    /// Closes the connection or ends the child, within the time.
    pub(super) async fn close(&self, within: Duration) {
        let closing = self.running.lock().await.close_with_timeout(within).await;
        if let Err(error) = closing {
            tracing::warn!("the session with a tool server did not end well: {error}");
        }
    }

    /// Makes one request and waits for its response; dropping the future cancels it upstream.
    async fn request(
        &self,
        request: ClientRequest,
        facts: &RequestFacts,
    ) -> Result<ServerResult, FailedRequest> {
        let failed = |error| {
            let error = errors::of_request(&error, facts, &self.health);
            FailedRequest {
                error,
                was_sent: facts.was_sent(),
            }
        };
        let sending = self
            .peer
            .send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = sending.await.map_err(failed)?;
        let mut guard = CancelOnDrop {
            peer: &self.peer,
            id: Some(handle.id.clone()),
        };
        let response = tokio::select! {
            biased;
            response = &mut handle.rx => response,
            // The SDK would let the request wait until the transport is closed, too.
            () = self.health.ended() => handle.rx.try_recv().map_or(Ok(Err(rmcp::ServiceError::TransportClosed)), Ok),
        };
        guard.id = None;
        response
            .unwrap_or(Err(rmcp::ServiceError::TransportClosed))
            .map_err(failed)
    }
}

// === impl SessionEvents ===

impl ClientHandler for SessionEvents {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("relight", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(rmcp::model::ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.note();
    }
}

// === impl CancelOnDrop ===

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let params = CancelledNotificationParam::new(
            Some(id),
            Some("the caller no longer waits".to_owned()),
        );
        // The first poll queues it; nothing is to be waited for.
        let _ = self.peer.notify_cancelled(params).now_or_never();
    }
}
