//! The releases of all subjects: fed with what events say of attempts, judged by `policy::release`,
//! kept in the journal.
//!
//! The journal holds one book for all replicas. Each replica collects the outcomes that it saw, and
//! puts them into the book by compare-and-swap, so that a decision is made once, whichever replica
//! saw what led to it. Without the journal a replica uses its own book.

mod seen;
mod tool_servers;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use self::{
    seen::{MAX_WAITING, Seen, read},
    tool_servers::ToolServerReleases,
};
use crate::{
    call_error::{
        CallError, ErrorRow,
        table::{RELEASE_NOT_CHANGED, RELEASE_NOT_FOUND, SUBJECT_NOT_FOUND},
    },
    config::{Config, fault::nearest},
    domain::{
        clock,
        event::EventBody,
        ids::TargetId,
        release::{ReleaseAction, ReleaseDecision},
    },
    engine::Engine,
    journal::{Journal, JournalError},
    layers::targets::TargetState,
    policy::release::{
        ReleaseMonitor, ReleasePolicy, ReleaseRefusal, ReleaseRouting, ReleaseVersion,
    },
};

/// Under which name the journal keeps the book.
const BOOK: &str = "releases";

/// Interval at which events are read; a failure is judged no later than this after it happened.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Interval at which the book is read anew if nothing happens here: the delay after which a
/// decision of another replica is followed.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Largest number of outcomes that are kept for a journal that is away; the oldest go first.
const MAX_UNWRITTEN: usize = MAX_WAITING / 2;

/// Number of times a swap is tried that other replicas came before.
const MAX_SWAPS: u32 = 8;

/// The releases of all subjects, as this replica knows them.
#[derive(Debug)]
pub struct Releases {
    engine: Engine,
    journal: Arc<dyn Journal>,
    book: Mutex<Book>,
    servers: ToolServerReleases,
}

type Book = BTreeMap<String, ReleaseMonitor>;

// === impl Releases ===

impl Releases {
    pub(super) fn new(engine: Engine, journal: Arc<dyn Journal>) -> Self {
        Self {
            servers: ToolServerReleases::new(engine.clone()),
            engine,
            journal,
            book: Mutex::default(),
        }
    }

    /// Returns all subjects with their releases, as this replica knows them.
    pub fn all(&self) -> Vec<ReleaseMonitor> {
        self.book().values().cloned().collect()
    }

    /// Takes the traffic from a release as an operator wishes.
    ///
    /// # Errors
    /// Returns an error if it is not carried out; then nothing was changed.
    pub async fn roll_back(
        &self,
        release: &str,
        reason: &str,
        pin: bool,
    ) -> Result<ReleaseMonitor, CallError> {
        self.decide(release, |monitor, policy, is_healthy| {
            monitor.roll_back(policy, release, reason, pin, is_healthy, clock::wall_now())
        })
        .await
    }

    /// Makes a release the stable one as an operator wishes.
    ///
    /// # Errors
    /// Returns an error if it is not carried out; then nothing was changed.
    pub async fn promote(
        &self,
        release: &str,
        reason: &str,
        pin: bool,
    ) -> Result<ReleaseMonitor, CallError> {
        self.decide(release, |monitor, policy, _| {
            monitor.promote(policy, release, reason, pin, clock::wall_now())
        })
        .await
    }

    /// Pins a subject, so that the monitor reports and does not act, or ends that.
    ///
    /// # Errors
    /// Returns an error if it is not carried out; then nothing was changed.
    pub async fn pin(&self, subject: &str, pinned: bool) -> Result<ReleaseMonitor, CallError> {
        let mut others: Option<Vec<String>> = None;
        self.swap(&[], |book| {
            match book.get_mut(subject) {
                Some(monitor) => monitor.pinned = pinned,
                None => others = Some(book.keys().cloned().collect()),
            }
            Vec::new()
        })
        .await?;
        match (others, self.book().get(subject)) {
            (None, Some(monitor)) => Ok(monitor.clone()),
            (others, _) => Err(unknown(
                SUBJECT_NOT_FOUND,
                subject,
                &others.unwrap_or_default(),
            )),
        }
    }

    /// Follows events, the journal's book and the lists of tool servers, until it is dropped.
    pub(super) async fn keep(&self) {
        // A tool server that is slow to list its tools holds up no judgement.
        tokio::join!(self.judge_events(), self.read_tool_servers());
    }

    async fn read_tool_servers(&self) {
        loop {
            let config = self.engine.config();
            self.servers
                .read(&config.releases, |server| {
                    known_version(&self.book(), server)
                })
                .await;
            tokio::time::sleep(SYNC_EVERY).await;
        }
    }

    async fn judge_events(&self) {
        let mut reader = self.engine.events().live();
        let mut waiting: Vec<Seen> = Vec::new();
        // How many of those this replica judged by its own book while the journal was away.
        let mut judged_alone = 0;
        let mut synced_at: Option<Instant> = None;
        let mut ticks = tokio::time::interval(READ_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let config = self.engine.config();
            if config.releases.subjects.is_empty() && self.book().is_empty() {
                // No caller waits for the result.
                reader = self.engine.events().live();
                tokio::time::sleep(SYNC_EVERY).await;
                continue;
            }
            let failed = read(&mut reader, &config, &mut waiting);
            let is_due = synced_at.is_none_or(|at| at.elapsed() >= SYNC_EVERY);
            if !failed && !is_due {
                continue;
            }
            synced_at = Some(Instant::now());
            match self.swap(&waiting, |_| Vec::new()).await {
                Ok(()) => {
                    waiting.clear();
                    judged_alone = 0;
                }
                // The outcomes stay: the book of all replicas gets them once the journal is back.
                Err(error) => {
                    tracing::debug!(%error, "releases are judged without the journal");
                    self.alone(&mut waiting[judged_alone..]);
                    let surplus = waiting.len().saturating_sub(MAX_UNWRITTEN);
                    waiting.drain(..surplus);
                    judged_alone = waiting.len();
                }
            }
        }
    }

    /// Carries out an operator's wish about a release, wherever it is.
    async fn decide(
        &self,
        release: &str,
        act: impl Fn(
            &mut ReleaseMonitor,
            &ReleasePolicy,
            bool,
        ) -> Result<ReleaseDecision, ReleaseRefusal>,
    ) -> Result<ReleaseMonitor, CallError> {
        let mut result = Err(unknown(RELEASE_NOT_FOUND, release, &[]));
        self.swap(&[], |book| {
            let config = self.engine.config();
            let Some(monitor) = book
                .values_mut()
                .find(|it| it.releases().any(|one| one.id == release))
            else {
                let known: Vec<String> = book
                    .values()
                    .flat_map(|it| it.releases().map(|one| one.id.clone()))
                    .collect();
                result = Err(unknown(RELEASE_NOT_FOUND, release, &known));
                return Vec::new();
            };
            let is_healthy = self.is_healthy(&monitor.stable.version.target);
            match act(monitor, &config.releases, is_healthy) {
                Ok(decision) => {
                    result = Ok(monitor.clone());
                    vec![(monitor.subject.clone(), release.to_owned(), decision)]
                }
                Err(refusal) => {
                    result = Err(CallError::new(RELEASE_NOT_CHANGED).word("why", refusal));
                    Vec::new()
                }
            }
        })
        .await?;
        result
    }

    /// Changes the book of all replicas: the observations are entered, then `change`. The decision
    /// is published once it is written.
    async fn swap(
        &self,
        seen: &[Seen],
        mut change: impl FnMut(&mut Book) -> Vec<(String, String, ReleaseDecision)>,
    ) -> Result<(), JournalError> {
        for _ in 0..MAX_SWAPS {
            let own = written(&self.book());
            let before = self.journal.property(BOOK, own).await?;
            let mut book: Book = serde_json::from_str(&before).map_err(|error| {
                JournalError::Corrupt(format!("the book of releases cannot be read: {error}"))
            })?;
            let mut decisions = self.judge(&mut book, seen);
            decisions.extend(change(&mut book));
            let after = written(&book);
            if after == before || self.journal.swap_property(BOOK, &before, after).await? {
                self.put_in_force(book, decisions);
                return Ok(());
            }
        }
        Err(JournalError::Unavailable(
            "other replicas changed the book of releases each time".to_owned(),
        ))
    }

    /// Judges by this replica's own book, and notes the release of each outcome: by the time the
    /// journal is back, its target may have another one.
    fn alone(&self, seen: &mut [Seen]) {
        let mut book = self.book().clone();
        let decisions = self.judge(&mut book, seen);
        for one in seen {
            let monitor = book.get(&one.subject);
            one.release = monitor.and_then(|monitor| release_of(monitor, &one.target));
        }
        self.put_in_force(book, decisions);
    }

    /// Brings the book to the configuration and puts in what was seen.
    fn judge(&self, book: &mut Book, seen: &[Seen]) -> Vec<(String, String, ReleaseDecision)> {
        let config = self.engine.config();
        let now = clock::wall_now();
        let policy = &config.releases;
        book.retain(|subject, _| policy.subjects.contains_key(subject));
        let mut decisions = Vec::new();
        for (subject, trial) in &policy.subjects {
            let (Some(stable), Some(candidate)) = (
                self.version(&config, book, subject),
                self.version(&config, book, trial.candidate.as_str()),
            ) else {
                continue;
            };
            let new = || ReleaseMonitor::new(subject.clone(), stable.clone(), now);
            let monitor = book.entry(subject.clone()).or_insert_with(new);
            monitor.configure(&stable, Some((&candidate, trial.share)), now);
            if let Some(words) = self.servers.broken_contract(&stable, &candidate) {
                let id = candidate.id();
                let is_healthy = self.is_healthy(&stable.target);
                let decided = monitor.contract_broken(policy, &id, &words, is_healthy, now);
                decisions.extend(decided.map(|decision| (subject.clone(), id, decision)));
            }
        }
        for Seen {
            subject,
            target,
            release,
            outcome,
        } in seen
        {
            let Some(monitor) = book.get_mut(subject) else {
                continue;
            };
            let known = release.clone();
            let Some(id) = known.or_else(|| release_of(monitor, target)) else {
                continue;
            };
            let is_healthy = self.is_healthy(&monitor.stable.version.target);
            // Whichever release the outcome is of, what is decided is about the candidate.
            let decided = monitor.observe(policy, &id, outcome, is_healthy);
            let candidate = monitor.candidate.as_ref().map(|it| it.id.clone());
            decisions.extend(
                decided
                    .zip(candidate)
                    .map(|(decision, id)| (subject.clone(), id, decision)),
            );
        }
        for monitor in book.values_mut() {
            let Some(id) = monitor
                .candidate
                .as_ref()
                .map(|candidate| candidate.id.clone())
            else {
                continue;
            };
            let unused = monitor.unused(policy, now);
            decisions.extend(unused.map(|decision| (monitor.subject.clone(), id, decision)));
        }
        decisions
    }

    fn put_in_force(&self, book: Book, decisions: Vec<(String, String, ReleaseDecision)>) {
        self.engine
            .route_releases(ReleaseRouting::new(book.values()));
        for (subject, release, decision) in decisions {
            let to = book.get(&subject).map(|monitor| monitor.stable.id.clone());
            let to = to
                .filter(|_| decision.action == ReleaseAction::RolledBack)
                .unwrap_or_default();
            let target = Some(TargetId::from(subject.as_str()));
            self.engine.events().publish(
                None,
                0,
                target,
                EventBody::ReleaseDecided {
                    subject,
                    release,
                    to,
                    decision,
                },
            );
        }
        *self.book() = book;
    }

    /// Returns the version that a target or tool server has now; `None` if it is gone, or its tools
    /// are not listed yet.
    fn version(&self, config: &Config, book: &Book, target: &str) -> Option<ReleaseVersion> {
        if config.tools.servers.contains_key(target) {
            return self.servers.version(target, known_version(book, target));
        }
        let state = self.engine.targets().state(&TargetId::from(target))?;
        let prompt = config
            .targets
            .get(&state.target.id)
            .and_then(|target| target.system_prompt.as_deref());
        Some(ReleaseVersion {
            target: target.to_owned(),
            model: state.target.model.to_string(),
            endpoint: state.target.endpoint.to_string(),
            prompt_hash: prompt
                .map(crate::domain::fold::hash_text)
                .unwrap_or_default(),
            schema_hash: String::new(),
        })
    }

    /// Returns whether a target could take traffic now; a tool server, unless none of its tools
    /// that were called could.
    fn is_healthy(&self, target: &str) -> bool {
        let is_open = |state: &TargetState| {
            state.circuit().state().is_closed() && state.closed_for().is_none()
        };
        if self.engine.config().tools.servers.contains_key(target) {
            let all = self.engine.targets().all();
            let mut tools = all
                .iter()
                .filter(|it| it.target.tool().is_some() && *it.target.provider == *target)
                .peekable();
            return tools.peek().is_none() || tools.any(|state| is_open(state));
        }
        self.engine
            .targets()
            .state(&TargetId::from(target))
            .is_some_and(|state| is_open(&state))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }
}

/// Returns the error for a name that is not one of the known ones.
fn unknown(row: &'static ErrorRow, name: &str, known: &[String]) -> CallError {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    CallError::not_found(row, name, nearest(name, &known))
}

/// Returns the release of a subject that a target serves, if it is one that is watched.
fn release_of(monitor: &ReleaseMonitor, target: &str) -> Option<String> {
    let mut watched = monitor.candidate.iter().chain([&monitor.stable]);
    watched
        .find(|release| release.version.target == target)
        .map(|release| release.id.clone())
}

/// Returns the version of a target or tool server that the book has as a release.
fn known_version(book: &Book, target: &str) -> Option<ReleaseVersion> {
    let watched = book
        .values()
        .flat_map(|monitor| monitor.candidate.iter().chain([&monitor.stable]));
    watched
        .map(|release| &release.version)
        .find(|version| version.target == target)
        .cloned()
}

fn written(book: &Book) -> String {
    // Plain data always serialises; an empty book would only lose what is known.
    serde_json::to_string(book).unwrap_or_else(|_| "{}".to_owned())
}
