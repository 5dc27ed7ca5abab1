//! The engine: a running configuration that resolves requests into plans and runs them.
//!
//! The configuration can be replaced at any time: calls in flight keep the plan they started
//! with, and the state of targets that stay (circuits, budgets, latencies) is kept. The engine
//! does not know gRPC or HTTP listeners.

mod chain;
mod in_force;
mod listed_tools;
mod misspelt;
mod parts;
mod plans;
mod request;
mod resolve;
mod size;
mod tool_lookup;
mod tool_names;
mod tool_progress;
mod tool_settings;
pub mod tool_specs;
mod tools;
#[cfg(test)]
mod toy_layer;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use futures_util::{TryStreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

pub use self::{
    chain::TARGETS_HEADER,
    in_force::{ChangedSettings, Configuration, Rejection},
    listed_tools::{ListedTools, UnavailableServer},
    parts::PartsError,
    request::{Arrival, ConversationNames, InvocationRequest, RequestedLifetime},
    tool_progress::FollowedProgress,
};
use crate::{
    call_error::CallError,
    config::Config,
    domain::{
        adaptation::DialectOverrides,
        completion::{Delta, FinishReason},
        failure::{Failure, ProviderError},
        ids::{InvocationId, Operation, RouteName, TargetId, TenantId, ThreadId},
        invocation::{Call, TraceContext},
        tool::{ToolList, ToolRequest},
        upstream::{BackgroundResponses, UpstreamHandle},
        wire::{CompletionForm, DeltaStream, ProviderRequest, SentTo},
    },
    events::EventBus,
    layers::{
        BoxFuture, StepStream,
        invocation::{InvocationContext, Plan},
        spans::Spans,
        targets::Targets,
        tools::ToolKnowledge,
    },
    policy::{
        admission::Admission,
        release::{ReleaseRouting, ReleaseVersion},
        secrets::Secrets,
        tenant_limits::{LimitKind, LimitUse, TenantMeters},
    },
    provider::Providers,
    stack::{Shared, Stack, stack},
    tool::{ListFreshness, OnProgress},
};

use self::{in_force::InForce, tools::Tools};

/// A running configuration; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    stack: Stack,
    events: EventBus,
    targets: Targets,
    tools: Tools,
    in_force: InForce,
    admission: Arc<Mutex<Admission>>,
    meters: Arc<Mutex<TenantMeters>>,
    releases: Arc<ArcSwap<ReleaseRouting>>,
}

/// Bottom service of the stack: calls the providers and tool servers in force when an attempt
/// starts, and redacts configured secrets from every failure.
#[derive(Clone)]
struct Wire {
    providers: Arc<ArcSwap<Providers>>,
    tools: Tools,
    secrets: Arc<ArcSwap<Secrets>>,
}

// === impl Wire ===

impl Wire {
    /// Calls what is in force when an attempt starts.
    fn new(in_force: &InForce, tools: &Tools) -> Self {
        Self {
            providers: Arc::clone(&in_force.providers),
            tools: tools.clone(),
            secrets: Arc::clone(&in_force.secrets),
        }
    }
}

/// Builds what a configuration names, and drops it; nothing is connected or started.
///
/// # Errors
/// When no engine can have it.
pub fn buildable(config: &Config) -> Result<(), PartsError> {
    parts::build(config).map(drop)
}

// === impl Engine ===

impl Engine {
    /// Builds everything that the configuration names; nothing is connected yet.
    ///
    /// # Errors
    /// Returns an error if a part cannot be built, such as a provider whose base URL is not
    /// valid.
    pub fn new(config: Config, spans: Spans, events: EventBus) -> Result<Self, PartsError> {
        let parts = parts::build(&config)?;
        let targets = Targets::new(events.clone(), &parts.targets, &parts.shared);
        let resolver = resolve::Resolver::new(&config, &parts.targets);
        let admission = Arc::new(Mutex::new(Admission::new(config.admission.clone())));
        let meters = TenantMeters::new(config.server.tenant_limits());
        let meters = Arc::new(Mutex::new(meters));
        let in_force = InForce::new(config, resolver, parts.providers, parts.classifier);
        let shared = Shared {
            events: events.clone(),
            spans,
            targets: targets.clone(),
            meters: Arc::clone(&meters),
            admission: Arc::clone(&admission),
            classifier: Arc::clone(&in_force.classifier),
        };
        let tools = Tools::new(parts.tools, Arc::clone(&in_force.secrets));
        let stack = stack(shared, Wire::new(&in_force, &tools));
        Ok(Self {
            stack,
            events,
            targets,
            tools,
            in_force,
            admission,
            meters,
            releases: Arc::default(),
        })
    }

    /// Returns the configured secrets, which belong into no log.
    pub fn secrets(&self) -> Arc<ArcSwap<Secrets>> {
        Arc::clone(&self.in_force.secrets)
    }

    /// Applies another configuration, as a whole or not at all.
    ///
    /// # Errors
    /// When a part cannot be built; the old configuration then stays in force.
    pub fn reload(&self, config: Config) -> Result<(), PartsError> {
        let parts = parts::rebuild(&config, &self.tools.in_force().servers)?;
        self.in_force
            .secrets
            .store(Arc::new(Secrets::new(config.secret_values())));
        // First, so that the first call which passes a gate that new settings opened is made with
        // them.
        self.in_force.providers.store(Arc::new(parts.providers));
        let tools = self
            .targets
            .all()
            .into_iter()
            .filter_map(|state| parts.tools.kept(&state.target));
        let targets: Vec<_> = parts.targets.iter().cloned().chain(tools).collect();
        self.tools.replace(parts.tools);
        self.targets.update(&targets, &parts.shared);
        self.in_force.classifier.store(Arc::new(parts.classifier));
        self.admission.lock().reconfigure(config.admission.clone());
        let limits = config.server.tenant_limits();
        self.meters.lock().reconfigure(limits);
        self.in_force
            .resolver
            .store(Arc::new(resolve::Resolver::new(&config, &parts.targets)));
        self.in_force.config.store(Arc::new(config));
        Ok(())
    }

    /// Resolves a request into a plan.
    ///
    /// # Errors
    /// When the route does not exist, or an override is not allowed.
    pub fn resolve(&self, request: InvocationRequest) -> Result<InvocationContext, CallError> {
        self.in_force
            .resolver
            .load()
            .resolve(request, &self.releases.load())
    }

    /// Has the releases of targets serve new invocations as this says.
    pub fn route_releases(&self, routing: ReleaseRouting) {
        self.releases.store(Arc::new(routing));
    }

    /// Finds the plan for a request, including tool calls: the tool is looked up first.
    ///
    /// # Errors
    /// Returns an error if there is no such route or tool, or an override is not allowed.
    pub async fn prepare(
        &self,
        request: InvocationRequest,
    ) -> Result<InvocationContext, CallError> {
        let Call::Tool(call) = &request.call else {
            return self.resolve(request);
        };
        let id = InvocationId::mint();
        let releases = self.releases.load_full();
        let key = request
            .thread
            .as_ref()
            .map_or(id.as_str(), ThreadId::as_str);
        let plan = self.tools.plan(call, (&releases, key)).await?;
        let in_force = self.tools.in_force();
        let incoming = self
            .in_force
            .resolver
            .load()
            .resolve_tool(request, plan, id)?;
        if let Some(tool) = &incoming.plan.tool {
            self.targets.ensure(
                &in_force.specs(&tool.offers),
                &parts::shared(&self.config()),
            );
        }
        Ok(incoming)
    }

    /// Returns the plan of an operation on a route, without overrides.
    ///
    /// # Errors
    /// When the route does not exist.
    pub fn plan(
        &self,
        route: Option<&RouteName>,
        operation: &Operation,
    ) -> Result<Plan, CallError> {
        self.in_force.resolver.load().bare_plan(route, operation)
    }

    /// Runs an invocation. Dropping what is returned cancels it, upstream included.
    ///
    /// # Errors
    /// When it is refused before any attempt: too much work.
    pub async fn run(&self, incoming: InvocationContext) -> Result<StepStream, Failure> {
        self.stack.clone().oneshot(incoming).await
    }

    /// Cancels a background response of an invocation that will have no reader. Does nothing if its
    /// target is no longer in the plan. Must be called within a runtime.
    pub fn abandon(&self, incoming: &InvocationContext, handle: UpstreamHandle) {
        let mut targets = incoming.plan.targets.iter();
        let Some(target) = targets.find(|it| it.id == handle.target && it.capabilities.background)
        else {
            return;
        };
        let call = ProviderRequest {
            invocation: incoming.invocation.id.clone(),
            attempt: handle.attempt,
            target: Arc::clone(target),
            call: Arc::default(),
            tool: None,
            wording: DialectOverrides::default(),
            form: CompletionForm::Whole,
            deadline: incoming.invocation.deadline,
            idle: None,
            trace: TraceContext::default(),
            sent_to: SentTo::default(),
            background: BackgroundResponses::default(),
            attach: Some(handle),
        };
        // Attaching to a response and dropping the future cancels it.
        drop(Wire::new(&self.in_force, &self.tools).call(call));
    }

    /// Judges bare facts as an attempt's would be.
    pub fn classify(&self, facts: &ProviderError) -> Failure {
        self.in_force.classify(facts)
    }

    /// Judges bare facts of a target.
    pub fn failure(&self, facts: &ProviderError, target: Option<TargetId>) -> Failure {
        Failure {
            target,
            ..self.classify(facts)
        }
    }

    /// Returns the bus on which everything that happens is published.
    pub fn events(&self) -> &EventBus {
        &self.events
    }

    /// Returns the version of a tool server and what it lists: fetched anew if requested, else as
    /// last fetched, which has it fetched for the next time once it is too old. `None` if there is
    /// no such server, or its list is not known yet.
    pub async fn tool_release(
        &self,
        server: &str,
        fresh: bool,
    ) -> Option<(ReleaseVersion, Arc<ToolList>)> {
        let freshness = if fresh {
            ListFreshness::Fresh
        } else {
            ListFreshness::Cached
        };
        self.tools.in_force().release(server, freshness).await
    }

    /// Closes the connections to tool servers, and ends those that are children.
    pub async fn close_tools(&self) {
        self.tools.in_force().servers.close().await;
    }

    /// Returns what was learnt from the outcomes of tool calls.
    pub fn tool_knowledge(&self) -> &ToolKnowledge {
        self.tools.knowledge()
    }

    /// Returns what is known of every target.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.in_force.config.load_full()
    }

    /// Records the result of the last configuration change and emits its event.
    pub fn configuration_changed(&self, changed: Result<ChangedSettings, Rejection>) {
        let body = self.in_force.changed(changed);
        self.events.publish(None, 0, None, body);
    }

    /// Returns the configuration in force.
    pub fn configuration(&self) -> Arc<Configuration> {
        self.in_force.status()
    }

    /// Invocations in flight.
    pub fn in_flight(&self) -> u32 {
        self.admission.lock().in_flight()
    }

    /// Returns the use of each limit of a tenant.
    pub fn limit_uses(&self, tenant: &TenantId) -> Vec<LimitUse> {
        self.meters.lock().usage(tenant, Instant::now())
    }

    /// Returns how many calls of each tenant were refused by which of its limits.
    pub fn limited(&self) -> Vec<(TenantId, LimitKind, u64)> {
        self.meters.lock().refusals()
    }

    /// Holds this part of every limit of a tenant on this replica (0 to 1).
    pub fn share_limits(&self, share: f64) {
        self.meters.lock().set_share(share);
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

impl Service<ProviderRequest> for Wire {
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = BoxFuture<Result<DeltaStream, ProviderError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: ProviderRequest) -> Self::Future {
        let secrets = self.secrets.load_full();
        if let Some(request) = &call.tool {
            let board = self.tools.progress().clone();
            let invocation = call.invocation.clone();
            let on_progress: OnProgress =
                Arc::new(move |progress| board.report(&invocation, progress));
            let in_force = self.tools.in_force();
            let request = ToolRequest::clone(request);
            let calling = in_force.call(&call.target.provider, request, on_progress);
            return Box::pin(async move {
                let reply = calling.await.map_err(|facts| secrets.take_out_of(facts))?;
                let end = Delta::Finish {
                    reason: FinishReason::Stop,
                    raw: String::new(),
                };
                let deltas = [Delta::ToolReply(Arc::new(reply)), end];
                Ok(Box::pin(stream::iter(deltas.map(Ok))) as DeltaStream)
            });
        }
        let calling = Providers::clone(&self.providers.load()).call(call);
        Box::pin(async move {
            let deltas = calling.await.map_err(|facts| secrets.take_out_of(facts))?;
            let deltas = deltas.map_err(move |facts| Box::new(secrets.take_out_of(*facts)));
            Ok(Box::pin(deltas) as DeltaStream)
        })
    }
}
