//! From the tool that a call names to the plan of its targets: the tool, then those that its
//! operator declares as good.
//!
//! Names are looked up in the lists of all tool servers, or at one server where the call names it
//! (`server/tool`).

use std::{cmp::Reverse, fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Refusal, tool_settings::ToolSettings};
use crate::{
    domain::{
        failure::{ProviderError, TransportFault},
        ids::{Operation, TargetId},
        invocation::{SideEffects, ToolInvocation},
        target::Target,
        tool::{ToolList, ToolSpec},
    },
    layers::{
        BoxFuture,
        targets::TargetSpec,
        tools::{ToolCatalogue, ToolKnowledge, ToolOffer, ToolPlan},
    },
    policy::{
        release::{ReleaseRouting, ReleaseVersion},
        secrets::Secrets,
        tool_recovery::{
            adapt::{schema_hash, tools_hash},
            effects::Effects,
            history, similarity,
        },
    },
    tool::{ListFreshness, ToolServers},
};

/// How long the list of a server is waited for when a call names a tool.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// How long a call waits for the list of a server, which has its release; the list is still fetched
/// after that.
const RELEASE_LIST_WITHIN: Duration = Duration::from_millis(500);

/// Names that are proposed where one is unknown.
const MAX_PROPOSED: usize = 3;

/// Likeness from which a name is proposed, from 0 to 1.
const MIN_LIKENESS: f64 = 0.4;

/// The tool servers in force, and what is set for their tools; cheap to clone.
#[derive(Clone)]
pub(super) struct Tools {
    shared: Arc<ArcSwap<ToolsInForce>>,
    secrets: Arc<ArcSwap<Secrets>>,
    knowledge: ToolKnowledge,
}

/// Tool servers and their settings, which always change together.
pub(super) struct ToolsInForce {
    pub(super) servers: ToolServers,
    pub(super) settings: ToolSettings,
}

/// A tool at a server.
struct FoundTool {
    server: Arc<str>,
    spec: ToolSpec,
}

// === impl Tools ===

impl Tools {
    pub(super) fn new(in_force: ToolsInForce, secrets: Arc<ArcSwap<Secrets>>) -> Self {
        let knowledge = in_force.settings.fresh_knowledge();
        Self {
            shared: Arc::new(ArcSwap::from_pointee(in_force)),
            secrets,
            knowledge,
        }
    }

    /// Puts other servers and settings in force; returns what was in force before, which ends with
    /// the calls on it.
    pub(super) fn replace(&self, in_force: ToolsInForce) -> Arc<ToolsInForce> {
        in_force.settings.bound(&self.knowledge);
        self.shared.swap(Arc::new(in_force))
    }

    pub(super) fn in_force(&self) -> Arc<ToolsInForce> {
        self.shared.load_full()
    }

    pub(super) fn knowledge(&self) -> &ToolKnowledge {
        &self.knowledge
    }

    /// The plan of a call, with the targets that it may use. The releases of its server serve it as
    /// the routing says for `key`.
    ///
    /// # Errors
    /// When no server lists such a tool, or several do.
    pub(super) async fn plan(
        &self,
        call: &ToolInvocation,
        operation: &Operation,
        (releases, key): (&ReleaseRouting, &str),
    ) -> Result<ToolPlan, Refusal> {
        let in_force = self.in_force();
        let found = in_force.find(&call.name).await?;
        let catalogue = Catalogue {
            in_force: Arc::clone(&in_force),
            secrets: Arc::clone(&self.secrets),
        };
        let stated = call.side_effects;
        let named = in_force.offer(&found.server, Arc::new(found.spec), stated);
        let (spec, named_target) = (Arc::clone(&named.spec), named.target.id.clone());
        let name = &spec.name;
        let mut offers = Vec::new();
        for server in releases
            .serving(&found.server, key)
            .into_iter()
            .filter(|server| **server != *found.server)
        {
            in_force.list_known(server).await;
            offers.extend(catalogue.offer(server, name, stated));
        }
        let superseded = (!offers.is_empty()).then(|| named_target.clone());
        offers.push(named);
        for (server, tool) in in_force.settings.group_of(&found.server, name) {
            in_force.list_known(&server).await;
            offers.extend(catalogue.offer(&server, &tool, stated));
        }
        let declared = offers.len();
        let now = crate::domain::clock::wall_now();
        let preferred = self
            .knowledge
            .learnt()
            .tools
            .prefer(operation, named_target.as_str(), now);
        if let Some((server, tool)) = preferred
            .as_ref()
            .and_then(|preferred| preferred.tool.split_once('/'))
        {
            let is_known = |meant: &ToolOffer| {
                offers
                    .iter()
                    .any(|known| known.target.id == meant.target.id)
            };
            if let Some(meant) = catalogue
                .offer(server, tool, None)
                .filter(|meant| !is_known(meant))
            {
                offers.push(meant);
            }
        }
        let (catalogue, knowledge) = (
            Arc::new(catalogue) as Arc<dyn ToolCatalogue>,
            self.knowledge.clone(),
        );
        Ok(ToolPlan {
            offers,
            declared,
            named: superseded,
            catalogue,
            knowledge,
            past: Vec::new(),
        })
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tools")
            .field(&self.in_force().servers)
            .finish()
    }
}

// === impl ToolsInForce ===

impl ToolsInForce {
    /// What the targets of these offers are created with.
    pub(super) fn specs(&self, offers: &[ToolOffer]) -> Vec<TargetSpec> {
        offers
            .iter()
            .map(|offer| self.settings.target_spec(&offer.target))
            .collect()
    }

    /// What a known target of a tool is kept with; `None` where its server is no longer there.
    pub(super) fn kept(&self, target: &Target) -> Option<TargetSpec> {
        let tool = target.tool()?;
        let is_there = self.servers.names().any(|name| name == &*target.provider);
        is_there.then(|| {
            self.settings
                .target_spec(&Arc::new(self.settings.target(&target.provider, tool)))
        })
    }

    /// The tools of all servers but those on trial, as they are listed within a bound of time, and
    /// the servers that did not list theirs.
    pub(super) async fn list_all(
        &self,
    ) -> (
        Vec<(Arc<str>, Arc<ToolList>)>,
        Vec<(Arc<str>, ProviderError)>,
    ) {
        let names: Vec<Arc<str>> = self.names().map(Arc::from).collect();
        let listing = names.into_iter().map(|name| async move {
            let list = self.list_within(&name, ListFreshness::Cached).await;
            (name, list)
        });
        let (mut listed, mut unlisted) = (Vec::new(), Vec::new());
        for (name, list) in join_all(listing).await {
            match list {
                Ok(list) => listed.push((name, list)),
                Err(error) => unlisted.push((name, error)),
            }
        }
        (listed, unlisted)
    }

    async fn list_within(
        &self,
        server: &str,
        freshness: ListFreshness,
    ) -> Result<Arc<ToolList>, ProviderError> {
        timeout(LIST_WITHIN, self.servers.list(server, freshness))
            .await
            .unwrap_or_else(|_| {
                let words = "the list of tools did not come in time";
                self.servers.known(server).ok_or_else(|| {
                    ProviderError::transport("mcp", TransportFault::FirstTokenTimeout, words)
                })
            })
    }

    /// Has the list of a server, where it can be had.
    async fn list_known(&self, server: &str) {
        // Where it cannot, its tools are no offers.
        let _ = self.list_within(server, ListFreshness::Cached).await;
    }

    /// The names of all servers but those on trial, whose tools are called by the name of the
    /// server that they replace.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.servers
            .names()
            .filter(|server| !self.settings.is_on_trial(server))
    }

    /// The version of a server and what it lists, fetched where that is wanted or not known; `None`
    /// where there is no such server, or its list is not known yet.
    pub(super) async fn release(
        &self,
        server: &str,
        freshness: ListFreshness,
    ) -> Option<(ReleaseVersion, Arc<ToolList>)> {
        let endpoint = self.settings.endpoint(server)?;
        let listing = timeout(RELEASE_LIST_WITHIN, self.servers.list(server, freshness)).await;
        let list = listing
            .ok()
            .and_then(Result::ok)
            .or_else(|| self.servers.known(server))?;
        let version = ReleaseVersion {
            target: server.to_owned(),
            endpoint,
            schema_hash: tools_hash(&list.tools),
            ..ReleaseVersion::default()
        };
        Some((version, list))
    }

    /// The one tool of this name.
    async fn find(&self, name: &str) -> Result<FoundTool, Refusal> {
        if let Some((server, tool)) = name.split_once('/')
            && self.servers.names().any(|known| known == server)
        {
            let list = self.list_within(server, ListFreshness::Cached).await;
            let list = list.map_err(|error| unlisted(name, vec![(Arc::from(server), error)]))?;
            if let Some(spec) = list.find(tool) {
                return Ok(FoundTool {
                    server: Arc::from(server),
                    spec: spec.clone(),
                });
            }
            // It may have come since the list was fetched.
            let fresh = self
                .list_within(server, ListFreshness::Fresh)
                .await
                .unwrap_or(list);
            let spec = fresh.find(tool).cloned();
            let listed = [(Arc::from(server), fresh)];
            return spec
                .map(|spec| FoundTool {
                    server: Arc::clone(&listed[0].0),
                    spec,
                })
                .ok_or_else(|| not_found(name, &listed));
        }
        let (listed, failed) = self.list_all().await;
        let mut found: Vec<FoundTool> = Vec::new();
        for (server, list) in &listed {
            found.extend(list.find(name).map(|spec| FoundTool {
                server: Arc::clone(server),
                spec: spec.clone(),
            }));
        }
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            0 if failed.is_empty() => Err(not_found(name, &listed)),
            0 => Err(unlisted(name, failed)),
            _ => Err(Refusal::ToolAmbiguous {
                tool: name.to_owned(),
                candidates: found
                    .iter()
                    .map(|one| format!("{}/{name}", one.server))
                    .collect(),
            }),
        }
    }

    fn offer(&self, server: &str, spec: Arc<ToolSpec>, stated: Option<SideEffects>) -> ToolOffer {
        let settings = &self.settings;
        let target = Arc::new(settings.target(server, &spec.name));
        ToolOffer {
            effects: Effects::of(&settings.effects(server, &spec.name), Some(&spec), stated),
            timeout: settings.timeout(server, &spec.name),
            chunk_rules: settings.chunk_rules(server, &spec.name),
            recovery: settings.recovery(server, &spec.name),
            release: schema_hash(&spec.input_schema),
            target,
            spec,
        }
    }
}

/// What is known of the tools in force, for one call.
struct Catalogue {
    in_force: Arc<ToolsInForce>,
    secrets: Arc<ArcSwap<Secrets>>,
}

// === impl Catalogue ===

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalogue")
            .field(&self.in_force.servers)
            .finish()
    }
}

impl ToolCatalogue for Catalogue {
    fn refetch(&self, server: &str) -> BoxFuture<Result<(), ProviderError>> {
        let (in_force, server) = (Arc::clone(&self.in_force), server.to_owned());
        Box::pin(async move {
            in_force
                .servers
                .list(&server, ListFreshness::Fresh)
                .await
                .map(|_| ())
        })
    }

    fn offer(&self, server: &str, tool: &str, stated: Option<SideEffects>) -> Option<ToolOffer> {
        let list = self.in_force.servers.known(server)?;
        Some(
            self.in_force
                .offer(server, Arc::new(list.find(tool)?.clone()), stated),
        )
    }

    fn all(&self) -> Vec<ToolOffer> {
        let mut offers = Vec::new();
        for server in self.in_force.names() {
            let Some(list) = self.in_force.servers.known(server) else {
                continue;
            };
            offers.extend(
                list.tools
                    .iter()
                    .map(|spec| self.in_force.offer(server, Arc::new(spec.clone()), None)),
            );
        }
        offers
    }

    fn redacted(&self, offer: &ToolOffer, arguments: &str) -> String {
        let hidden = self
            .in_force
            .settings
            .hidden(&offer.target.provider, &offer.spec.name);
        history::redact_parameters(arguments, &hidden, &self.secrets.load())
    }
}

fn not_found(name: &str, listed: &[(Arc<str>, Arc<ToolList>)]) -> Refusal {
    let asked = name.split_once('/').map_or(name, |(_, tool)| tool);
    let mut near: Vec<(i64, String)> = Vec::new();
    for (server, list) in listed {
        for spec in &list.tools {
            let likeness = similarity::of_names(asked, &spec.name);
            if likeness >= MIN_LIKENESS {
                #[expect(clippy::cast_possible_truncation, reason = "from 0 to 1,000")]
                near.push((
                    (likeness * 1_000.0) as i64,
                    format!("{server}/{}", spec.name),
                ));
            }
        }
    }
    near.sort_by_key(|(likeness, _)| Reverse(*likeness));
    let nearest = near
        .into_iter()
        .take(MAX_PROPOSED)
        .map(|(_, name)| name)
        .collect();
    Refusal::ToolNotFound {
        tool: name.to_owned(),
        nearest,
    }
}

fn unlisted(name: &str, failed: Vec<(Arc<str>, ProviderError)>) -> Refusal {
    let servers = failed
        .into_iter()
        .map(|(server, error)| (TargetId::from(&*server), error))
        .collect();
    Refusal::ToolsUnlisted {
        tool: name.to_owned(),
        servers,
    }
}
