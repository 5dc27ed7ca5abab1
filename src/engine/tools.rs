//! From the tool that a call names to the plan of its targets: the tool, then those that its
//! operator declares as good.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::time::timeout;

use super::{tool_names::ToolNames, tool_progress::ProgressBoard, tool_settings::ToolSettings};
use crate::{
    call_error::CallError,
    domain::{
        failure::{ProviderError, Surface},
        invocation::{SideEffects, ToolInvocation},
        target::Target,
        tool::{ToolList, ToolReply, ToolRequest, ToolSpec},
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
            history,
        },
    },
    tool::{ListFreshness, OnProgress, ToolServers},
};

/// Time that a call waits for the list of a server, which has its release; the list is still
/// fetched after that.
const RELEASE_LIST_WITHIN: Duration = Duration::from_millis(500);

/// The tool servers in force, and what is set for their tools; cheap to clone.
#[derive(Clone)]
pub(super) struct Tools {
    shared: Arc<ArcSwap<ToolsInForce>>,
    secrets: Arc<ArcSwap<Secrets>>,
    knowledge: ToolKnowledge,
    names: Arc<ToolNames>,
    progress: ProgressBoard,
}

/// Tool servers and their settings, which always change together.
pub(super) struct ToolsInForce {
    pub(super) servers: ToolServers,
    pub(super) settings: ToolSettings,
}

/// Error returned if a call names no tool that is known.
pub(super) struct NoSuchTool {
    pub(super) error: CallError,
    /// The servers that may have it and did not list theirs.
    pub(super) unlisted: Vec<Arc<str>>,
}

// === impl NoSuchTool ===

impl From<CallError> for NoSuchTool {
    fn from(error: CallError) -> Self {
        let unlisted = Vec::new();
        Self { error, unlisted }
    }
}

// === impl Tools ===

impl Tools {
    pub(super) fn new(in_force: ToolsInForce, secrets: Arc<ArcSwap<Secrets>>) -> Self {
        let knowledge = in_force.settings.fresh_knowledge();
        Self {
            shared: Arc::new(ArcSwap::from_pointee(in_force)),
            secrets,
            knowledge,
            names: Arc::default(),
            progress: ProgressBoard::default(),
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

    pub(super) fn progress(&self) -> &ProgressBoard {
        &self.progress
    }

    pub(super) fn names(&self) -> &ToolNames {
        &self.names
    }

    pub(super) fn knowledge(&self) -> &ToolKnowledge {
        &self.knowledge
    }

    /// Returns the plan of a call, with the targets that it may use. The releases of its server
    /// serve it as the routing says for `key`.
    ///
    /// # Errors
    /// Returns an error if no server lists such a tool, or several do. A process that is being started is waited
    /// for, unless a tool that is declared equal can be executed meanwhile.
    pub(super) async fn plan(
        &self,
        call: &ToolInvocation,
        (releases, key): (&ReleaseRouting, &str),
    ) -> Result<ToolPlan, CallError> {
        let in_force = self.in_force();
        let catalogue = Catalogue {
            in_force: Arc::clone(&in_force),
            secrets: Arc::clone(&self.secrets),
        };
        let secrets = self.secrets.load_full();
        let find = || in_force.find(&self.names, &call.name, &secrets);
        let found = match find().await {
            Ok(found) => found,
            Err(unknown) => {
                if let Some(plan) = self.plan_of_equals(call, catalogue.clone(), &unknown).await {
                    return Ok(plan);
                }
                if !in_force.first_start(&unknown.unlisted).await {
                    return Err(unknown.error);
                }
                find().await.map_err(|unknown| unknown.error)?
            }
        };
        let stated = call.side_effects;
        let named = in_force.offer(&found.server, Arc::new(found.spec), stated);
        let spec = Arc::clone(&named.spec);
        let named_target = named.target.id.clone();
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
        let equals = catalogue.equals(&found.server, name, stated).await;
        offers.extend(equals);
        let schema = &spec.input_schema;
        let before = self.knowledge.learnt().schema_before(&named_target, schema);
        Ok(ToolPlan {
            named: superseded,
            before,
            ..self.plan_with(offers, catalogue)
        })
    }

    /// Returns the plan of a call whose tool is not known because its server does not list its
    /// tools: of those that are declared equal to it and do no more than it may; `None` if there are
    /// none.
    async fn plan_of_equals(
        &self,
        call: &ToolInvocation,
        catalogue: Catalogue,
        unknown: &NoSuchTool,
    ) -> Option<ToolPlan> {
        for server in &unknown.unlisted {
            let server = &**server;
            let own = call.name.strip_prefix(server);
            let tool = own
                .and_then(|name| name.strip_prefix('/'))
                .unwrap_or(&call.name);
            let settings = &catalogue.in_force.settings;
            let effects = Effects::of(&settings.effects(server, tool), None, call.side_effects);
            let named = settings.target(server, tool).id;
            let mut offers = catalogue.equals(server, tool, call.side_effects).await;
            offers.retain(|offer| offer.effects.not_worse_than(&effects));
            if !offers.is_empty() {
                return Some(ToolPlan {
                    unlisted: Some(named),
                    ..self.plan_with(offers, catalogue)
                });
            }
        }
        None
    }

    fn plan_with(&self, offers: Vec<ToolOffer>, catalogue: Catalogue) -> ToolPlan {
        ToolPlan {
            offers,
            named: None,
            unlisted: None,
            before: None,
            catalogue: Arc::new(catalogue),
            knowledge: self.knowledge.clone(),
            past: Vec::new(),
        }
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
    /// Returns the specs with which the targets of these offers are created.
    pub(super) fn specs(&self, offers: &[ToolOffer]) -> Vec<TargetSpec> {
        offers
            .iter()
            .map(|offer| self.settings.target_spec(&offer.target))
            .collect()
    }

    /// Returns the spec with which a known target of a tool is kept; `None` if its server is no
    /// longer there.
    pub(super) fn kept(&self, target: &Target) -> Option<TargetSpec> {
        let tool = target.tool()?;
        let is_there = self.servers.names().any(|name| name == &*target.provider);
        is_there.then(|| {
            self.settings
                .target_spec(&Arc::new(self.settings.target(&target.provider, tool)))
        })
    }

    /// Fetches the list of a server, if it is available.
    async fn list_known(&self, server: &str) {
        // If it is not available, its tools are not offers.
        let _ = self.list_within(server, ListFreshness::Cached).await;
    }

    /// Returns the names of all servers but those on trial, whose tools are called by the name of
    /// the server that they replace.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.servers
            .names()
            .filter(|server| !self.settings.is_on_trial(server))
    }

    /// Executes a tool once. A result in which the tool says that it failed is a failure.
    pub(super) fn call(
        self: Arc<Self>,
        server: &Arc<str>,
        request: ToolRequest,
        on_progress: OnProgress,
    ) -> BoxFuture<Result<ToolReply, ProviderError>> {
        let server = Arc::clone(server);
        let tool = request.tool.clone();
        let calling = self
            .servers
            .call_with_progress(&server, request, Some(on_progress));
        Box::pin(async move {
            let reply = calling.await?;
            let list = self.servers.known(&server);
            let spec = list.as_ref().and_then(|list| list.find(&tool));
            let schema = spec.and_then(|spec| spec.output_schema.as_deref());
            let reading = self.settings.failures(&server, &tool);
            match reading.read(&reply, schema) {
                Some(failure) => Err(ProviderError {
                    provider: "mcp".into(),
                    surface: Surface::Tool,
                    message: Some(failure.words),
                    fault: failure.fault,
                    returned: true,
                    reply: Some(Arc::new(reply)),
                    ..ProviderError::default()
                }),
                None => Ok(reply),
            }
        })
    }

    /// Returns the version of a server and its list, fetched if that is wanted or not known; `None`
    /// if the server does not exist, or its list is not known yet.
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

/// Known facts of the tools in force, for one call.
#[derive(Clone)]
struct Catalogue {
    in_force: Arc<ToolsInForce>,
    secrets: Arc<ArcSwap<Secrets>>,
}

// === impl Catalogue ===

impl Catalogue {
    /// Returns the tools that are declared equal to this one, as far as their servers list them.
    async fn equals(
        &self,
        server: &str,
        tool: &str,
        stated: Option<SideEffects>,
    ) -> Vec<ToolOffer> {
        let mut offers = Vec::new();
        for (server, tool) in self.in_force.settings.group_of(server, tool) {
            self.in_force.list_known(&server).await;
            offers.extend(self.offer(&server, &tool, stated));
        }
        offers
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalogue")
            .field(&self.in_force.servers)
            .finish()
    }
}

impl ToolCatalogue for Catalogue {
    fn refetch(&self, server: &str) -> BoxFuture<Result<(), ProviderError>> {
        let in_force = Arc::clone(&self.in_force);
        let server = server.to_owned();
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
