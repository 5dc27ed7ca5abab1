//! Keeps at most one session with an MCP server: opens it when it is needed, once for all who wait
//! for it, and opens a new one when it broke; a child that keeps ending is started again after
//! growing waits.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rmcp::transport::StreamableHttpClientTransport;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{
    era::{Era, KnownEra},
    errors,
    facts::WireHealth,
    mcp_http::McpHttpClient,
    progress::ProgressListeners,
    session::{ListChanges, Session},
    spec::{ChildSpec, ToolServerPlace, ToolServerSpec},
    stdio::ChildTransport,
    unsolicited::Unsolicited,
};
use crate::{
    domain::failure::{ProviderError, TransportFault},
    policy::redact::redact,
};

/// A child that ran for so long before it ended is started again as if it were the first time, and so
/// is one that executed a tool.
const STEADY: Duration = Duration::from_mins(1);
/// The longest time for ending a session with a remote server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest reason why a server cannot be used that is logged, in bytes.
const MAX_REASON_BYTES: usize = 240;

type Opened = Result<Arc<Session>, ProviderError>;

/// Settings for opening and keeping sessions with one MCP server.
pub(super) struct Connector {
    spec: Arc<ToolServerSpec>,
    http: Option<McpHttpClient>,
    changes: ListChanges,
    era: KnownEra,
    slot: Mutex<SessionSlot>,
}

#[derive(Default)]
struct SessionSlot {
    /// The last session, open, opening or broken.
    session: Option<watch::Receiver<Option<Opened>>>,
    /// Opens it; ends with the connector, not with the call that waits for it.
    task: JoinSet<()>,
    started: Option<Instant>,
    /// Starts that failed in a row, and ends soon after a start, before a tool was executed.
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
            era: KnownEra::default(),
            slot: Mutex::default(),
        }
    }

    /// Returns the open session, or a new one. Cancel safe: opening continues for the next call
    /// that needs it.
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

    /// Returns the time until the server may be started again; `None` if that is now.
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
            let was_steady = has_served(session)
                || slot
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
        let spec = Arc::clone(&self.spec);
        let http = self.http.clone();
        let changes = self.changes.clone();
        let era = self.era.clone();
        slot.task = JoinSet::new();
        slot.task.spawn(async move {
            // A session starts with a list that was not read yet.
            changes.note();
            let opened = open(&spec, http, changes, &era).await;
            if let Err(error) = &opened {
                let reason = redact(&error.to_string(), MAX_REASON_BYTES);
                tracing::warn!(server = %spec.name, "the tool server cannot be used: {reason}");
            }
            let _ = sender.send(Some(opened.map(Arc::new)));
        });
        Ok(receiver)
    }

    /// Returns the time for which a child that is broken is not started again yet.
    fn wait_of(&self, slot: &SessionSlot) -> Option<Duration> {
        let child = self.child()?;
        let wait = child
            .restart_initial
            .saturating_mul(2_u32.saturating_pow(slot.failures))
            .min(child.restart_max);
        let elapsed = slot.started?.elapsed();
        wait.checked_sub(elapsed).filter(|left| !left.is_zero())
    }

    /// Returns the message to those who come before the child may be started again.
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

    fn slot(&self) -> parking_lot::MutexGuard<'_, SessionSlot> {
        self.slot.lock()
    }
}

/// Opens a session. A server that shows too late how it speaks is spoken to once more, in that way:
/// a child that took longer to say that it knows the newer one than it was waited for, or a server
/// that answers a discovery and knows the older one alone.
async fn open(
    spec: &Arc<ToolServerSpec>,
    http: Option<McpHttpClient>,
    changes: ListChanges,
    era: &KnownEra,
) -> Result<Session, ProviderError> {
    let mut known = era.get();
    loop {
        let health = WireHealth::default();
        let opened = open_as(spec, http.clone(), changes.clone(), &health, known).await;
        let shown = health.shown_era().filter(|_| opened.is_err());
        if let Some(shown) = shown
            && known == Era::Unknown
        {
            known = shown;
            continue;
        }
        era.set(match &opened {
            Ok(session) => session.era(),
            Err(_) => shown.unwrap_or_default(),
        });
        return opened;
    }
}

/// Opens a session with a server of this era.
async fn open_as(
    spec: &Arc<ToolServerSpec>,
    http: Option<McpHttpClient>,
    changes: ListChanges,
    health: &WireHealth,
    known: Era,
) -> Result<Session, ProviderError> {
    let progress = ProgressListeners::default();
    let unsolicited = Unsolicited::new(changes.clone(), progress.clone());
    match (&spec.place, http) {
        (ToolServerPlace::McpChild(child), _) => {
            let transport = ChildTransport::start(spec, child, health.clone(), unsolicited, known)?;
            Session::open(spec, transport, health.clone(), changes, progress, known).await
        }
        (ToolServerPlace::McpHttp(_), Some(client)) => {
            let (client, config) = client.for_session(unsolicited);
            let transport = StreamableHttpClientTransport::with_client(client, config);
            Session::open(spec, transport, health.clone(), changes, progress, known).await
        }
        (ToolServerPlace::McpHttp(_) | ToolServerPlace::PlainHttp { .. }, _) => Err(errors::fault(
            TransportFault::NotStarted,
            "the server does not speak MCP",
        )),
    }
}

/// Returns whether a tool was executed in a session.
fn has_served(session: &watch::Receiver<Option<Opened>>) -> bool {
    matches!(&*session.borrow(), Some(Ok(session)) if session.has_served())
}

/// Returns whether another session has to be opened.
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
