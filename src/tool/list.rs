//! The tools of one server, kept from fetch to fetch.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Duration, Instant},
};

use super::{errors, session::ListChanges};
use crate::domain::{
    failure::{ProviderError, TransportFault},
    tool::{ToolList, ToolSpec},
};

/// Whether a list from memory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFreshness {
    /// A list that is neither too old nor reported to have changed.
    Cached,
    /// A list that is fetched now.
    Fresh,
}

/// Tools as they were fetched, and how often a change had been reported when they were requested.
#[derive(Debug)]
pub(super) struct FetchedTools {
    pub(super) tools: Vec<ToolSpec>,
    pub(super) changes: u64,
}

type Fetched = Result<Arc<ToolList>, ProviderError>;

/// The list of one server.
#[derive(Debug)]
pub(super) struct ListCache {
    kept: Arc<Mutex<KeptList>>,
    fetching: Mutex<Fetch>,
    changes: ListChanges,
    refresh: Duration,
}

#[derive(Debug, Default)]
struct KeptList {
    list: Option<Arc<ToolList>>,
    /// When it was fetched, and how often a change had been reported by then.
    fetched: Option<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Fetch {
    result: Option<watch::Receiver<Option<Fetched>>>,
    task: JoinSet<()>,
}

// === impl ListCache ===

impl ListCache {
    pub(super) fn new(changes: ListChanges, refresh: Duration) -> Self {
        Self {
            kept: Arc::default(),
            fetching: Mutex::default(),
            changes,
            refresh,
        }
    }

    /// The list as it was fetched last.
    pub(super) fn known(&self) -> Option<Arc<ToolList>> {
        self.kept().list.clone()
    }

    /// The list, fetched by `fetch` where it has to be; those who wait at once share one fetch.
    pub(super) async fn get(
        &self,
        freshness: ListFreshness,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<FetchedTools, ProviderError>>,
    ) -> Fetched {
        if freshness == ListFreshness::Cached
            && let Some(list) = self.usable()
        {
            return Ok(list);
        }
        let mut result = self.join_or_start(fetch);
        let fetched = match result.wait_for(Option::is_some).await {
            Ok(fetched) => fetched.clone(),
            Err(_) => None,
        };
        fetched.unwrap_or_else(|| {
            Err(errors::fault(
                TransportFault::NotReady,
                "the tool servers are being closed",
            ))
        })
    }

    fn usable(&self) -> Option<Arc<ToolList>> {
        let kept = self.kept();
        let (at, changes) = kept.fetched?;
        (at.elapsed() < self.refresh && changes == self.changes.count())
            .then(|| kept.list.clone())
            .flatten()
    }

    fn join_or_start(
        &self,
        fetch: impl FnOnce() -> BoxFuture<'static, Result<FetchedTools, ProviderError>>,
    ) -> watch::Receiver<Option<Fetched>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = fetching.result.as_ref().filter(|result| is_running(result)) {
            return running.clone();
        }
        let (sender, receiver) = watch::channel(None);
        let (kept, fetch) = (Arc::clone(&self.kept), fetch());
        fetching.task = JoinSet::new();
        fetching.task.spawn(async move {
            let fetched = fetch.await;
            let fetched = fetched.map(|fetched| {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .keep(fetched)
            });
            let _ = sender.send(Some(fetched));
        });
        fetching.result = Some(receiver.clone());
        receiver
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, KeptList> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl KeptList ===

impl KeptList {
    /// A change that is reported while a list is on its way may be in it or not: the next one is
    /// fetched.
    fn keep(&mut self, FetchedTools { tools, changes }: FetchedTools) -> Arc<ToolList> {
        self.fetched = Some((Instant::now(), changes));
        match &self.list {
            Some(list) if list.tools == tools => Arc::clone(list),
            before => {
                let generation = before.as_ref().map_or(1, |list| list.generation + 1);
                Arc::clone(self.list.insert(Arc::new(ToolList { tools, generation })))
            }
        }
    }
}

/// Whether a fetch neither ended nor was aborted.
fn is_running(result: &watch::Receiver<Option<Fetched>>) -> bool {
    result.borrow().is_none() && result.has_changed().is_ok()
}
