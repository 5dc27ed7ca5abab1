//! A model server that fails on demand, as tests use it: what cannot happen in a test fails it.
//!
//! ```ignore
//! let upstream = Upstream::start().await;
//! upstream.push(Reply::status(503)).push(Reply::text("Hello there").cut_after(120));
//! let base_url = upstream.base_url();
//! // … calls …
//! assert_eq!(upstream.requests().len(), 2);
//! ```

use std::time::Duration;

use relight::internals::wire_server::WireServer;
pub(crate) use relight::internals::wire_server::{
    Reply, Request,
    answers::openai::{chunk, usage_chunk},
};
use serde_json::json;
use tokio::time::Instant;

/// Longest time that an `await_…` waits before the test fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A text in words, each with time to be delivered; cut behind the last where it has no finish
/// reason.
pub(crate) fn pieces(text: &str, finish: Option<&str>) -> Reply {
    let mut events: Vec<String> = text
        .split_inclusive(' ')
        .map(|word| chunk(&json!({"content": word}), None))
        .collect();
    events.extend(finish.map(|reason| chunk(&json!({}), Some(reason))));
    let whole = Reply::events(&events);
    let bytes = whole.body_bytes().len();
    let paced = whole.paced(Duration::from_millis(1));
    if finish.is_some() {
        paced
    } else {
        paced.cut_after(bytes)
    }
}

/// A running server; stops when it is dropped.
pub(crate) struct Upstream {
    server: WireServer,
}

// === impl Upstream ===

impl Upstream {
    /// Starts a server that answers every request with a short text by default.
    pub(crate) async fn start() -> Self {
        let server = WireServer::start().await.unwrap();
        server.otherwise(|_| Reply::text("Hello from upstream."));
        Self { server }
    }

    /// What a provider is configured with.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.server.address())
    }

    /// Queues a reply for the next request that has none yet.
    pub(crate) fn push(&self, reply: Reply) -> &Self {
        self.server.push(reply);
        self
    }

    /// How many queued replies were not played yet.
    pub(crate) fn unplayed(&self) -> usize {
        self.server.unplayed()
    }

    /// What is replied when nothing is queued.
    pub(crate) fn otherwise(&self, reply: Reply) -> &Self {
        self.answering(move |_| reply.clone())
    }

    /// Chooses what is replied when nothing is queued.
    pub(crate) fn answering(
        &self,
        choose: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> &Self {
        self.server.otherwise(choose);
        self
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.server.requests()
    }

    /// How many connections were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.server.connections()
    }

    /// Waits for the `n`th request (from 1).
    pub(crate) async fn await_request(&self, n: usize) -> Request {
        self.await_where(|requests| requests.get(n - 1).cloned())
            .await
    }

    /// Waits until the client of the `n`th request (from 1) disconnected early, and returns when
    /// that was.
    pub(crate) async fn await_cancel(&self, n: usize) -> Instant {
        self.await_where(|requests| requests.get(n - 1).and_then(|request| request.cancelled_at))
            .await
    }

    async fn await_where<T>(&self, find: impl Fn(&[Request]) -> Option<T>) -> T {
        let mut changes = self.server.changes();
        let waiting = async {
            loop {
                if let Some(found) = find(&self.requests()) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        let requests = || self.requests();
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .unwrap_or_else(|_| panic!("not seen; seen: {:#?}", requests()))
    }
}
