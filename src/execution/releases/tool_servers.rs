//! The releases of tool servers: which version each is by what it lists now, and whether a candidate still takes the calls
//! that were written for its stable release.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    domain::tool::ToolList,
    engine::Engine,
    policy::{
        release::{ReleasePolicy, ReleaseVersion},
        tool_recovery::adapt::broken_contract,
    },
};

/// How often the list of a server is fetched anew at most because another replica knows it otherwise. Until then what that
/// replica saw counts, so that two of them do not undo each other's releases.
const REFETCH_EVERY: Duration = Duration::from_secs(30);

/// The tool servers that have releases, as this replica knows them.
#[derive(Debug)]
pub(super) struct ToolServerReleases {
    engine: Engine,
    known: Mutex<ServersRead>,
}

#[derive(Debug, Default)]
struct ServersRead {
    versions: BTreeMap<String, ReleaseVersion>,
    /// What is broken between two versions of a subject, by the hashes of what they list.
    contracts: BTreeMap<(String, String), Option<String>>,
    refetched: BTreeMap<String, Instant>,
}

// === impl ToolServerReleases ===

impl ToolServerReleases {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, known: Mutex::default() }
    }

    /// Reads what the servers of all subjects list now, and compares candidates with stable releases. `in_book`: which
    /// version of a server all replicas know.
    pub(super) async fn read(&self, policy: &ReleasePolicy, in_book: impl Fn(&str) -> Option<ReleaseVersion>) {
        let mut contracts = BTreeMap::new();
        for (subject, trial) in &policy.subjects {
            let stable = self.read_one(subject, in_book(subject)).await;
            let candidate = self.read_one(trial.candidate.as_str(), in_book(trial.candidate.as_str())).await;
            let (Some((stable, listed)), Some((candidate, lists))) = (stable, candidate) else { continue };
            let hashes = (stable.schema_hash, candidate.schema_hash);
            let compared = self.known().contracts.get(&hashes).cloned();
            let broken = match compared {
                Some(broken) => broken,
                // Hundreds of tools take their time.
                None => tokio::task::spawn_blocking(move || broken_contract(&listed.tools, &lists.tools))
                    .await
                    .unwrap_or_default(),
            };
            contracts.insert(hashes, broken);
        }
        self.known().contracts = contracts;
    }

    /// The version of a server; `None` where what it lists is not known yet.
    pub(super) fn version(&self, server: &str) -> Option<ReleaseVersion> {
        self.known().versions.get(server).cloned()
    }

    /// What a candidate breaks for the callers of the stable release, in words; `None` where nothing, or where that is not
    /// known here.
    pub(super) fn broken_contract(&self, stable: &ReleaseVersion, candidate: &ReleaseVersion) -> Option<String> {
        let hashes = (stable.schema_hash.clone(), candidate.schema_hash.clone());
        self.known().contracts.get(&hashes).cloned().flatten()
    }

    /// The version of a server, and what it lists where that is what makes it this version.
    async fn read_one(&self, server: &str, in_book: Option<ReleaseVersion>) -> Option<(ReleaseVersion, Arc<ToolList>)> {
        let mut release = self.engine.tool_release(server, false).await?;
        let agreed = in_book.filter(|known| known.endpoint == release.0.endpoint);
        if let Some(agreed) = agreed.filter(|known| known.schema_hash != release.0.schema_hash) {
            let last = self.known().refetched.get(server).copied();
            if last.is_some_and(|at| at.elapsed() < REFETCH_EVERY) {
                self.known().versions.insert(server.to_owned(), agreed);
                return None;
            }
            self.known().refetched.insert(server.to_owned(), Instant::now());
            release = self.engine.tool_release(server, true).await?;
        }
        self.known().versions.insert(server.to_owned(), release.0.clone());
        Some(release)
    }

    fn known(&self) -> MutexGuard<'_, ServersRead> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
