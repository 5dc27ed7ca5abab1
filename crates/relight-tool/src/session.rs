//! One session with an MCP server: initialized once, then one request of the protocol for each
//! request of a caller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientConfig,
        ClientRequest, ClientResult, ConstString as _, ErrorCode, ErrorData, Implementation,
        ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion, RequestId,
        ServerNotification, ServerRequest, ServerResult, SubscriptionFilter,
    },
    service::{
        NotificationContext, Peer, PeerRequestOptions, RequestContext, RunningService, Service,
        serve_client_with_lifecycle,
    },
    transport::Transport,
};
use tokio::task::JoinSet;

use super::{
    era::{self, Era},
    errors,
    facts::{RequestFacts, WireHealth},
    listing::ToolListing,
    progress::{OnProgress, ProgressListeners},
    reply,
    session_doubt::SessionDoubt,
    spec::{ToolLimits, ToolServerSpec},
};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::ToolReply,
};

/// Time that a server may take to say that it still has a session.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before a subscription that ended is renewed.
const SUBSCRIBE_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Number of times that a server reported that its tools changed.
#[derive(Debug, Clone, Default)]
pub(super) struct ListChanges(Arc<AtomicU64>);

/// A request that failed.
#[derive(Debug)]
pub(super) struct FailedRequest {
    pub(super) error: ProviderError,
    /// If set, the server may have got it.
    pub(super) was_sent: bool,
    /// Doubt that its response casts on the session.
    pub(super) doubt: Option<SessionDoubt>,
}

/// An initialized session; dropping it closes the connection or ends the child.
pub(super) struct Session {
    peer: Peer<RoleClient>,
    running: tokio::sync::Mutex<RunningService<RoleClient, OwnSide>>,
    health: WireHealth,
    progress: ProgressListeners,
    /// If set, it executed a tool.
    has_served: AtomicBool,
    /// Reads the changes of a server that sends them on a subscription alone.
    _subscribed: JoinSet<()>,
}

/// Responds to what a server requests of its client: a ping is returned, and everything else is not
/// supported.
struct OwnSide;

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

// === impl FailedRequest ===

impl FailedRequest {
    /// One whose response says so.
    fn answered(error: ProviderError) -> Self {
        Self {
            error,
            was_sent: true,
            doubt: None,
        }
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
        progress: ProgressListeners,
        era: Era,
    ) -> Result<Self, ProviderError>
    where
        T: Transport<RoleClient> + 'static,
    {
        let starting = serve_client_with_lifecycle(OwnSide, transport, era.lifecycle());
        let running = match tokio::time::timeout(spec.start_timeout, starting).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => {
                if era::is_older(&error) {
                    health.note_era(Era::Legacy);
                }
                return Err(errors::of_start(&error, &health));
            }
            Err(_) => {
                let within = crate::domain::units::duration_text(spec.start_timeout);
                let words =
                    format!("the tool server did not finish its initialization within {within}");
                return Err(errors::fault(TransportFault::ConnectTimeout, words));
            }
        };
        let peer = running.peer().clone();
        let mut subscribed = JoinSet::new();
        if is_modern(&peer) {
            subscribed.spawn(follow_changes(peer.clone(), changes));
        }
        Ok(Self {
            peer,
            running: tokio::sync::Mutex::new(running),
            health,
            progress,
            has_served: AtomicBool::new(false),
            _subscribed: subscribed,
        })
    }

    /// Returns whether requests can be made.
    pub(super) fn is_open(&self) -> bool {
        self.health.is_usable() && !self.peer.is_transport_closed()
    }

    /// Returns whether it executed a tool.
    pub(super) fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Acquire)
    }

    /// Returns the way in which the server speaks.
    pub(super) fn era(&self) -> Era {
        if is_modern(&self.peer) {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Begins no more requests in it, and lets those under way end.
    pub(super) fn retire(&self) {
        self.health.retire();
    }

    /// Asks the server, which executes nothing for that, if it still has the session; returns what
    /// its response says if it does not.
    pub(super) async fn lost(&self) -> Option<SessionDoubt> {
        let facts = RequestFacts::default();
        let mut ping = PingRequest::default();
        ping.extensions.insert(facts.clone());
        let asking = self.request(ClientRequest::PingRequest(ping), &facts, None);
        let refused = tokio::time::timeout(PING_TIMEOUT, asking)
            .await
            .ok()?
            .err()?;
        refused.doubt
    }

    /// Executes a tool once; its progress is reported.
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
        on_progress: Option<OnProgress>,
    ) -> Result<ToolReply, FailedRequest> {
        let facts = RequestFacts::of_call();
        let mut call = CallToolRequest::new(params);
        call.extensions.insert(facts.clone());
        let result = self
            .request(ClientRequest::CallToolRequest(call), &facts, on_progress)
            .await?;
        self.has_served.store(true, Ordering::Release);
        let reply = match facts.take_result() {
            Some(sent) => reply::of_sent(sent),
            // The SDK reads on a cut stream by itself, and gives the result as it read it.
            None => match &result {
                ServerResult::CallToolResult(read) => serde_json::to_string(read)
                    .map_or_else(|_| Err(reply::of_result(&result)), reply::of_sent),
                _ => Err(reply::of_result(&result)),
            },
        };
        reply.map_err(FailedRequest::answered)
    }

    /// Fetches all pages of the list of tools.
    pub(super) async fn list(&self, limits: &ToolLimits) -> Result<ToolListing, FailedRequest> {
        let mut listing = ToolListing::default();
        let mut cursor: Option<String> = None;
        loop {
            let facts = RequestFacts::of_list();
            let params = cursor
                .take()
                .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let mut list = ListToolsRequest {
                params,
                ..ListToolsRequest::default()
            };
            list.extensions.insert(facts.clone());
            let page = self
                .request(ClientRequest::ListToolsRequest(list), &facts, None)
                .await?;
            let sent = facts.take_result();
            cursor = listing
                .read(page, sent.as_deref(), limits)
                .map_err(FailedRequest::answered)?;
            if cursor.is_none() {
                return Ok(listing);
            }
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
        on_progress: Option<OnProgress>,
    ) -> Result<ServerResult, FailedRequest> {
        let failed = |error| {
            let error = errors::of_request(&error, facts, &self.health);
            FailedRequest {
                error,
                was_sent: facts.was_sent(),
                doubt: facts.doubt(),
            }
        };
        let sending = self
            .peer
            .send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = sending.await.map_err(failed)?;
        let _listening = on_progress.map(|on_progress| {
            self.progress
                .listen(handle.progress_token.clone(), on_progress)
        });
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

// === impl OwnSide ===

impl Service<RoleClient> for OwnSide {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let method = match &request {
            ServerRequest::PingRequest(_) => return Ok(ClientResult::empty(())),
            ServerRequest::CreateMessageRequest(request) => request.method.as_str(),
            ServerRequest::ListRootsRequest(request) => request.method.as_str(),
            ServerRequest::ElicitRequest(request) => request.method.as_str(),
            ServerRequest::CustomRequest(request) => &request.method,
            _ => "this request",
        };
        // Servers repeat these words in the error of their tool, where the rules look for them.
        let words = format!("this client does not support {method}");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, words, None))
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("relight", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(rmcp::model::ClientCapabilities::default(), own)
            // `initialize` names this one; a discovery names its own.
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// Returns whether the server takes each request by itself, without a session.
fn is_modern(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info()
        .is_some_and(|info| !info.protocol_version.has_initialize())
}

/// Notes the changes that a server reports on a subscription, and subscribes again if that ended. A
/// server without subscriptions is asked once.
async fn follow_changes(peer: Peer<RoleClient>, changes: ListChanges) {
    let announces = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    if !announces {
        return;
    }
    loop {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let Ok(mut subscription) = peer.listen(filter).await else {
            return;
        };
        // The changes themselves are noted where they are read.
        while let Ok(Some(_)) = subscription.next().await {}
        // What changed meanwhile was not reported.
        tokio::time::sleep(SUBSCRIBE_AGAIN_AFTER).await;
        changes.note();
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
