//! The tools of one server, kept from fetch to fetch.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Duration, Instant},
};

use super::{errors, session::ListChanges};
use crate::domain::{
    clock,
    failure::{ProviderError, TransportFault},
    tool::{LeftOutTool, ToolList, ToolSpec},
    units,
};

/// Time that a server may take for its list before those who have none no longer wait for it. It is
/// shorter than that for which a list of all tools waits, so that this names the server.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// The first and longest wait before a list that could not be fetched is fetched again.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Time for which a list is fresh whose server says that it is not.
const MIN_FRESH: Duration = Duration::from_secs(5);

/// Requirement for a list from memory: whether it will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFreshness {
    /// The list that was fetched last, at once; one that is too old, or was reported to have
    /// changed, is fetched meanwhile for those who come later.
    Cached,
    /// The list that was fetched last, unless it is too old or was reported to have changed since
    /// then; one that is only old does if the server is in trouble.
    Current,
    /// A list that is fetched now.
    Fresh,
}

/// Reason for which the list of a server cannot be had.
#[derive(Debug, Clone, PartialEq)]
pub struct ListTrouble {
    /// Error of the last request for it.
    pub error: ProviderError,
    /// Since when that is so.
    pub since: Timestamp,
}

/// Tools as they were fetched, and how often a change had been reported when they were requested.
#[derive(Debug)]
pub(super) struct FetchedTools {
    pub(super) tools: Vec<ToolSpec>,
    pub(super) left_out: Vec<LeftOutTool>,
    pub(super) fresh_for: Option<Duration>,
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
    /// Time of the fetch, and number of times that a change had been reported by then.
    fetched: Option<(Instant, u64)>,
    trouble: Option<ListTrouble>,
    /// Time for which its server calls it fresh.
    fresh_for: Option<Duration>,
    /// Time of the last failed fetch, and number of failures in a row.
    failed: Option<(Instant, u32)>,
}

#[derive(Debug, Default)]
struct Fetch {
    result: Option<watch::Receiver<Option<Fetched>>>,
    started: Option<(Instant, Timestamp)>,
    task: JoinSet<()>,
}

type Fetching = BoxFuture<'static, Result<FetchedTools, ProviderError>>;

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

    /// Returns the list, fetched by `fetch` if it has to be; those who wait at once share one
    /// fetch.
    pub(super) async fn get(
        &self,
        freshness: ListFreshness,
        fetch: impl FnOnce() -> Fetching,
    ) -> Fetched {
        let known = self.known();
        match (freshness, known) {
            (ListFreshness::Cached, Some(list)) => {
                if !self.is_current(true) {
                    self.refresh(fetch);
                }
                return Ok(list);
            }
            (ListFreshness::Current, Some(list)) if self.is_current(true) => return Ok(list),
            (ListFreshness::Current, Some(list))
                if self.is_current(false) && self.trouble().is_some() =>
            {
                self.refresh(fetch);
                return Ok(list);
            }
            (ListFreshness::Fresh, _) | (_, Some(_)) => {}
            (ListFreshness::Cached | ListFreshness::Current, None) => {
                if let Some(trouble) = self.known_trouble() {
                    self.refresh(fetch);
                    return Err(trouble.error);
                }
            }
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

    /// Waits for the first list, if it is on its way and none failed yet.
    pub(super) async fn first(&self) -> Option<Arc<ToolList>> {
        if self.kept().trouble.is_some() {
            return self.known();
        }
        let running = self.fetching.lock().result.clone();
        let _ = running?.wait_for(Option::is_some).await;
        self.known()
    }

    /// Returns the reason for which the list cannot be had; `None` if it can, or nobody asked for
    /// it yet.
    pub(super) fn trouble(&self) -> Option<ListTrouble> {
        let failed = self.kept().trouble.clone();
        failed.or_else(|| self.silence())
    }

    /// Fetches the list without anybody waiting for that, unless it is under way or failed just
    /// now.
    pub(super) fn refresh(&self, fetch: impl FnOnce() -> Fetching) {
        if self.may_retry() && tokio::runtime::Handle::try_current().is_ok() {
            drop(self.join_or_start(fetch));
        }
    }

    /// Returns what is known of a list that nobody should wait for now.
    fn known_trouble(&self) -> Option<ListTrouble> {
        let failed = self.kept().trouble.clone();
        let was_silent = |trouble: &ListTrouble| {
            let silences = [
                TransportFault::FirstTokenTimeout,
                TransportFault::ConnectTimeout,
            ];
            trouble
                .error
                .fault
                .is_some_and(|fault| silences.contains(&fault))
        };
        failed
            .filter(|trouble| was_silent(trouble) || !self.may_retry())
            .or_else(|| self.silence())
    }

    /// Returns a fetch that takes too long.
    fn silence(&self) -> Option<ListTrouble> {
        let fetching = self.fetching.lock();
        fetching
            .result
            .as_ref()
            .filter(|result| is_running(result))?;
        let (at, since) = fetching.started?;
        (at.elapsed() >= SILENT_AFTER).then(|| ListTrouble {
            error: silent(at.elapsed()),
            since,
        })
    }

    fn may_retry(&self) -> bool {
        self.kept().failed.is_none_or(|(at, failures)| {
            let wait = RETRY_AFTER.0.saturating_mul(2_u32.saturating_pow(failures));
            at.elapsed() >= wait.min(RETRY_AFTER.1)
        })
    }

    /// Returns whether no change was reported since the list was fetched; and, if its age counts,
    /// whether it is young.
    fn is_current(&self, age_counts: bool) -> bool {
        let kept = self.kept();
        let fresh_for = kept.fresh_for.map_or(self.refresh, |fresh_for| {
            fresh_for.max(MIN_FRESH).min(self.refresh)
        });
        kept.fetched.is_some_and(|(at, changes)| {
            changes == self.changes.count() && (!age_counts || at.elapsed() < fresh_for)
        })
    }

    fn join_or_start(&self, fetch: impl FnOnce() -> Fetching) -> watch::Receiver<Option<Fetched>> {
        let mut fetching = self.fetching.lock();
        if let Some(running) = fetching.result.as_ref().filter(|result| is_running(result)) {
            return running.clone();
        }
        let (sender, receiver) = watch::channel(None);
        let kept = Arc::clone(&self.kept);
        let fetch = fetch();
        fetching.started = Some((Instant::now(), clock::wall_now()));
        fetching.task = JoinSet::new();
        fetching.task.spawn(async move {
            let fetched = fetch.await;
            let mut kept = kept.lock();
            let fetched = fetched
                .map(|fetched| kept.keep(fetched))
                .inspect_err(|error| kept.fail(error));
            drop(kept);
            let _ = sender.send(Some(fetched));
        });
        fetching.result = Some(receiver.clone());
        receiver
    }

    fn kept(&self) -> parking_lot::MutexGuard<'_, KeptList> {
        self.kept.lock()
    }
}

// === impl KeptList ===

impl KeptList {
    /// Keeps a list that was fetched. A change that is reported while it is on its way may be in it
    /// or not: the next one is fetched.
    fn keep(&mut self, fetched: FetchedTools) -> Arc<ToolList> {
        let FetchedTools {
            tools,
            left_out,
            fresh_for,
            changes,
        } = fetched;
        self.fresh_for = fresh_for;
        self.fetched = Some((Instant::now(), changes));
        (self.trouble, self.failed) = (None, None);
        match &self.list {
            Some(list) if list.tools == tools && list.left_out == left_out => Arc::clone(list),
            before => {
                let generation = before.as_ref().map_or(1, |list| list.generation + 1);
                let list = ToolList {
                    tools,
                    left_out,
                    generation,
                };
                Arc::clone(self.list.insert(Arc::new(list)))
            }
        }
    }

    fn fail(&mut self, error: &ProviderError) {
        let failures = self
            .failed
            .map_or(0, |(_, failures)| failures.saturating_add(1));
        self.failed = Some((Instant::now(), failures));
        let since = self
            .trouble
            .as_ref()
            .map_or_else(clock::wall_now, |trouble| trouble.since);
        let error = error.clone();
        self.trouble = Some(ListTrouble { error, since });
    }
}

/// Returns the facts of a list that did not come within this time.
pub(super) fn silent(after: Duration) -> ProviderError {
    let after = units::duration_text(Duration::from_secs(after.as_secs()));
    errors::fault(
        TransportFault::FirstTokenTimeout,
        format!("the tool server did not list its tools within {after}"),
    )
}

/// Returns whether a fetch neither ended nor was aborted.
fn is_running(result: &watch::Receiver<Option<Fetched>>) -> bool {
    result.borrow().is_none() && result.has_changed().is_ok()
}
