//! Keeps at most one session with an MCP server: opens it when it is needed, once for all who wait
//! for it, and opens a new one when it broke; a child that keeps ending is started again after
//! growing waits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::transport::StreamableHttpClientTransport;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{
    errors,
    facts::WireHealth,
    mcp_http::McpHttpClient,
    session::{ListChanges, Session},
    spec::{ChildSpec, ToolServerPlace, ToolServerSpec},
    stdio::ChildTransport,
};
use crate::domain::failure::{ProviderError, TransportFault};

/// A child that ran for so long before it ended is started again as if it were the first time.
const STEADY: Duration = Duration::from_mins(1);
/// The longest time for ending a session with a remote server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Opened = Result<Arc<Session>, ProviderError>;

/// How sessions with one MCP server are opened and kept.
pub(super) struct Connector {
    spec: Arc<ToolServerSpec>,
    http: Option<McpHttpClient>,
    changes: ListChanges,
    slot: Mutex<SessionSlot>,
}

#[derive(Default)]
struct SessionSlot {
    /// The last session, open, opening or broken.
    session: Option<watch::Receiver<Option<Opened>>>,
    /// Opens it; ends with the connector, not with the call that waits for it.
    task: JoinSet<()>,
    started: Option<Instant>,
    /// Starts that failed in a row, and ends soon after a start.
    failures: u32,
}

// === impl Connector ===

impl Connector {
    /// A connector; nothing is connected or started yet. `http` is for servers behind a URL.
    pub(super) fn new(
        spec: Arc<ToolServerSpec>,
        http: Option<McpHttpClient>,
        changes: ListChanges,
    ) -> Self {
        Self {
            spec,
            http,
            changes,
            slot: Mutex::default(),
        }
    }

    /// The open session, or a new one. Cancel safe: opening continues for the next call that needs
    /// it.
    ///
    /// # Errors
    /// When it cannot be opened, or may not be yet.
    pub(super) async fn session(&self) -> Opened {
        let mut opening = self.current_or_new()?;
        match opening.wait_for(Option::is_some).await {
            Ok(opened) => opened.clone().unwrap_or_else(|| Err(aborted())),
            Err(_) => Err(aborted()),
        }
    }

    /// How long until the server may be started again; `None` where that is now.
    pub(super) fn restarts_in(&self) -> Option<Duration> {
        let slot = self.slot();
        let broken = slot.session.as_ref().is_some_and(is_broken);
        if broken { self.wait_of(&slot) } else { None }
    }

    /// Ends the session, if there is one.
    pub(super) async fn close(&self) {
        let session = {
            let mut slot = self.slot();
            slot.task.abort_all();
            slot.session.take()
        };
        let Some(Ok(session)) = session.and_then(|session| session.borrow().clone()) else {
            return;
        };
        let grace = self
            .child()
            .map_or(CLOSE_TIMEOUT, |child| child.stop_grace * 2 + CLOSE_TIMEOUT);
        session.close(grace).await;
    }

    fn current_or_new(&self) -> Result<watch::Receiver<Option<Opened>>, ProviderError> {
        let mut slot = self.slot();
        if let Some(session) = &slot.session {
            if !is_broken(session) {
                return Ok(session.clone());
            }
            if let Some(wait) = self.wait_of(&slot) {
                return Err(self.not_yet(session, wait));
            }
            let was_steady = slot
                .started
                .is_some_and(|started| started.elapsed() >= STEADY);
            slot.failures = if was_steady {
                0
            } else {
                slot.failures.saturating_add(1)
            };
        }
        let (sender, receiver) = watch::channel(None);
        slot.started = Some(Instant::now());
        slot.session = Some(receiver.clone());
        let (spec, http, changes) = (
            Arc::clone(&self.spec),
            self.http.clone(),
            self.changes.clone(),
        );
        slot.task = JoinSet::new();
        slot.task.spawn(async move {
            // A session starts with a list that was not read yet.
            changes.note();
            let opened = open(&spec, http, changes).await;
            if let Err(error) = &opened {
                tracing::warn!(server = %spec.name, "the tool server cannot be used: {error}");
            }
            let _ = sender.send(Some(opened.map(Arc::new)));
        });
        Ok(receiver)
    }

    /// How long a child that is broken is not started again yet.
    fn wait_of(&self, slot: &SessionSlot) -> Option<Duration> {
        let child = self.child()?;
        let wait = child
            .restart_initial
            .saturating_mul(2_u32.saturating_pow(slot.failures))
            .min(child.restart_max);
        let elapsed = slot.started?.elapsed();
        wait.checked_sub(elapsed).filter(|left| !left.is_zero())
    }

    /// What is said to those who come before the child may be started again.
    #[expect(clippy::unused_self, reason = "it reads as what the connector says")]
    fn not_yet(&self, session: &watch::Receiver<Option<Opened>>, wait: Duration) -> ProviderError {
        let reason = match &*session.borrow() {
            Some(Err(error)) => error.clone(),
            Some(Ok(_)) | None => errors::fault(
                TransportFault::NotReady,
                "the tool server ended and is started again",
            ),
        };
        errors::with_wait(errors::not_ready(reason), wait)
    }

    fn child(&self) -> Option<&ChildSpec> {
        match &self.spec.place {
            ToolServerPlace::McpChild(child) => Some(child),
            ToolServerPlace::McpHttp(_) | ToolServerPlace::PlainHttp { .. } => None,
        }
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, SessionSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn open(
    spec: &Arc<ToolServerSpec>,
    http: Option<McpHttpClient>,
    changes: ListChanges,
) -> Result<Session, ProviderError> {
    let health = WireHealth::default();
    match (&spec.place, http) {
        (ToolServerPlace::McpChild(child), _) => {
            let transport = ChildTransport::start(spec, child, health.clone())?;
            Session::open(spec, transport, health, changes).await
        }
        (ToolServerPlace::McpHttp(_), Some(client)) => {
            let (client, config) = client.for_session(health.clone());
            let transport = StreamableHttpClientTransport::with_client(client, config);
            Session::open(spec, transport, health, changes).await
        }
        (ToolServerPlace::McpHttp(_) | ToolServerPlace::PlainHttp { .. }, _) => Err(errors::fault(
            TransportFault::NotStarted,
            "the server does not speak MCP",
        )),
    }
}

/// Whether another session has to be opened.
fn is_broken(session: &watch::Receiver<Option<Opened>>) -> bool {
    match &*session.borrow() {
        Some(Ok(session)) => !session.is_open(),
        Some(Err(_)) => true,
        // Nothing will come of an opening that was aborted.
        None => session.has_changed().is_err(),
    }
}

fn aborted() -> ProviderError {
    errors::fault(
        TransportFault::NotReady,
        "the tool servers are being closed",
    )
}
