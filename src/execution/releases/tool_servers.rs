//! The releases of tool servers: which version each is by what it lists now, and whether a
//! candidate still takes the calls that were written for its stable release.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    domain::tool::ToolList,
    engine::Engine,
    policy::{
        release::{ReleasePolicy, ReleaseVersion},
        tool_recovery::adapt::broken_contract,
    },
};

/// Shortest interval at which the list of a server is fetched anew because another replica knows it
/// otherwise. Until then the observation of that replica counts, so that two of them do not undo
/// each other's releases.
const REFETCH_EVERY: Duration = Duration::from_secs(30);

/// The tool servers that have releases, as this replica knows them.
#[derive(Debug)]
pub(super) struct ToolServerReleases {
    engine: Engine,
    known: Mutex<ServersRead>,
}

#[derive(Debug, Default)]
struct ServersRead {
    versions: BTreeMap<String, ReadVersion>,
    /// Breaks between two versions of a subject, by the hashes of what they list.
    contracts: BTreeMap<(String, String), Option<String>>,
    refetched: BTreeMap<String, Refetched>,
}

/// A version of a server as it was read, and the one that all replicas knew then.
#[derive(Debug, Clone)]
struct ReadVersion {
    version: ReleaseVersion,
    in_book: Option<ReleaseVersion>,
}

/// A list that was fetched anew because another replica knew it otherwise.
#[derive(Debug, Clone)]
struct Refetched {
    at: Instant,
    /// The hash of what it had, until all replicas know it.
    proposed: Option<String>,
}

/// A server's name, and the version of it that all replicas know.
type Server<'a> = (&'a str, Option<ReleaseVersion>);

/// Data read of the servers of one subject.
struct SubjectRead {
    servers: Vec<ReadVersion>,
    contract: Option<((String, String), Option<String>)>,
}

// === impl ToolServerReleases ===

impl ToolServerReleases {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            known: Mutex::default(),
        }
    }

    /// Reads what the servers of all subjects list now, and compares candidates with stable
    /// releases. `in_book`: which version of a server all replicas know. What was read is known
    /// once all of it is: no candidate is known without its comparison.
    pub(super) async fn read(
        &self,
        policy: &ReleasePolicy,
        in_book: impl Fn(&str) -> Option<ReleaseVersion>,
    ) {
        let reading = policy.subjects.iter().map(|(subject, trial)| {
            let candidate = trial.candidate.as_str();
            self.read_subject((subject, in_book(subject)), (candidate, in_book(candidate)))
        });
        let mut versions = BTreeMap::new();
        let mut contracts = BTreeMap::new();
        for SubjectRead { servers, contract } in join_all(reading).await {
            versions.extend(
                servers
                    .into_iter()
                    .map(|read| (read.version.target.clone(), read)),
            );
            contracts.extend(contract);
        }
        let mut known = self.known();
        (known.versions, known.contracts) = (versions, contracts);
    }

    /// Returns the version of a server, given that `in_book` is the one that all replicas know now;
    /// `None` if what it lists is not known yet.
    pub(super) fn version(
        &self,
        server: &str,
        in_book: Option<ReleaseVersion>,
    ) -> Option<ReleaseVersion> {
        self.known()
            .versions
            .get(server)
            .cloned()
            .map(|read| read.now(in_book))
    }

    /// Returns the breaks of a candidate for the callers of the stable release, in words; `None` if
    /// there are none, or if that is not known here.
    pub(super) fn broken_contract(
        &self,
        stable: &ReleaseVersion,
        candidate: &ReleaseVersion,
    ) -> Option<String> {
        let hashes = (stable.schema_hash.clone(), candidate.schema_hash.clone());
        self.known().contracts.get(&hashes).cloned().flatten()
    }

    async fn read_subject(&self, stable: Server<'_>, candidate: Server<'_>) -> SubjectRead {
        let in_book = [stable.1.clone(), candidate.1.clone()];
        let (stable, candidate) = tokio::join!(self.read_one(stable), self.read_one(candidate));
        let read = [&stable, &candidate]
            .into_iter()
            .zip(in_book)
            .filter_map(|(read, in_book)| {
                let (version, _) = read.as_ref()?;
                Some(ReadVersion {
                    version: version.clone(),
                    in_book,
                })
            });
        let servers = read.collect();
        let lists = stable
            .zip(candidate)
            .and_then(|((stable, listed), (candidate, lists))| {
                Some((
                    (stable.schema_hash, candidate.schema_hash),
                    (listed?, lists?),
                ))
            });
        let Some((hashes, (listed, lists))) = lists else {
            return SubjectRead {
                servers,
                contract: None,
            };
        };
        let compared = self.known().contracts.get(&hashes).cloned();
        let broken = match compared {
            Some(broken) => broken,
            // Hundreds of tools take their time.
            None => {
                tokio::task::spawn_blocking(move || broken_contract(&listed.tools, &lists.tools))
                    .await
                    .unwrap_or_default()
            }
        };
        SubjectRead {
            servers,
            contract: Some((hashes, broken)),
        }
    }

    /// Returns the version of a server, and its list if that is what makes it this version.
    async fn read_one(
        &self,
        (server, in_book): Server<'_>,
    ) -> Option<(ReleaseVersion, Option<Arc<ToolList>>)> {
        let (mut version, mut list) = self.engine.tool_release(server, false).await?;
        let Some(agreed) = in_book.filter(|known| known.endpoint == version.endpoint) else {
            return Some((version, Some(list)));
        };
        let last = self.known().refetched.get(server).cloned();
        if agreed.schema_hash == version.schema_hash {
            if let Some(last) = self.known().refetched.get_mut(server) {
                last.proposed = None;
            }
        } else if last
            .as_ref()
            .is_none_or(|last| last.at.elapsed() >= REFETCH_EVERY)
        {
            (version, list) = self.engine.tool_release(server, true).await?;
            let refetched = Refetched {
                at: Instant::now(),
                proposed: Some(version.schema_hash.clone()),
            };
            self.known().refetched.insert(server.to_owned(), refetched);
        } else if last.is_some_and(|last| last.proposed.as_ref() != Some(&version.schema_hash)) {
            return Some((agreed, None));
        }
        Some((version, Some(list)))
    }

    fn known(&self) -> MutexGuard<'_, ServersRead> {
        self.known.lock()
    }
}

// === impl ReadVersion ===

impl ReadVersion {
    /// Returns the version that counts if all replicas know `in_book` now. If another replica
    /// changed that since the server was read here, it may have seen a newer list, so that its
    /// version counts until the server is read again.
    fn now(self, in_book: Option<ReleaseVersion>) -> ReleaseVersion {
        if in_book == self.in_book {
            return self.version;
        }
        in_book.unwrap_or(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(schema_hash: &str) -> ReleaseVersion {
        ReleaseVersion {
            target: "routes".to_owned(),
            model: String::new(),
            endpoint: "http://127.0.0.1:1/mcp".to_owned(),
            prompt_hash: String::new(),
            schema_hash: schema_hash.to_owned(),
        }
    }

    #[test]
    fn a_version_that_another_replica_saw_since_is_not_undone() {
        let read = ReadVersion {
            version: listing("old"),
            in_book: Some(listing("old")),
        };
        assert_eq!(read.now(Some(listing("new"))), listing("new"));
        let read = ReadVersion {
            version: listing("new"),
            in_book: Some(listing("old")),
        };
        assert_eq!(read.clone().now(Some(listing("old"))), listing("new"));
        assert_eq!(read.now(None), listing("new"));
    }
}
