//! Resolves a request into a plan: the route, its targets and policies, and the caller's overrides
//! if allowed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    chain::{self, KeptTargets},
    plans::{PlanParts, RoutePlans},
    request::{Arrival, InvocationRequest},
};
use crate::{
    call_error::{
        CallError, Violations,
        table::{ROUTE_NOT_FOUND, ROUTE_NOT_NAMED},
    },
    config::{Config, RouteConfig, fault::nearest},
    domain::{
        ids::{InvocationId, Operation, RouteName, TargetId, ThreadId},
        invocation::{Call, InjectionMode, Invocation, Overrides},
        message::{Endpoint, ModelCall},
        target::{Dialect, Target},
    },
    layers::{
        invocation::{InvocationContext, Plan},
        targets::TargetSpec,
        tools::ToolPlan,
    },
    policy::{hedge::HedgePolicy, release::ReleaseRouting},
};

/// Time that the report of a failure may take to reach its caller.
const REPORT_MARGIN: Duration = Duration::from_millis(50);

/// The share of a stated timeout that may not be there: the gRPC core of Python, C++, Ruby and PHP
/// states three digits at most and rounds up, so that 10.001 s are stated as 10.1 s.
const STATED_TOO_LONG: u32 = 100;

/// Route of tool calls if none is named and there is no default route: nothing but a name.
const TOOLS_ROUTE: &str = "tools";

/// Of a short timeout, the share that is kept back at most.
const MAX_MARGIN_SHARE: u32 = 4;

/// Resolves requests by one configuration.
pub(super) struct Resolver {
    parts: PlanParts,
    plans: BTreeMap<RouteName, RoutePlans>,
}

// === impl Resolver ===

impl Resolver {
    pub(super) fn new(config: &Config, targets: &[TargetSpec]) -> Self {
        let parts = PlanParts::new(config, targets);
        let routes = config.routes.iter();
        Self {
            plans: routes
                .map(|(name, route)| (name.clone(), RoutePlans::new(&parts, name, route)))
                .collect(),
            parts,
        }
    }

    pub(super) fn resolve(
        &self,
        request: InvocationRequest,
        releases: &ReleaseRouting,
    ) -> Result<InvocationContext, CallError> {
        let (name, route) = self.route(request.route.as_ref())?;
        let targets: Vec<&TargetId> = route.targets.iter().collect();
        let mut faults = self.faults(route, &targets, &request.overrides);
        let known = || self.chosen_by(route, &request.arrival);
        chain::check(&request, route, known, &mut faults);
        if let Call::Model(call) = &request.call {
            for (field, reason) in super::size::faults(call) {
                faults.add(field, reason);
            }
        }
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let mut plan = self.plan(name, route, &request.operation, &request.overrides);
        let id = InvocationId::mint();
        let key = request
            .thread
            .as_ref()
            .map_or(id.as_str(), ThreadId::as_str);
        plan.targets = self.released(plan.targets, releases, key);
        if let Call::Model(call) = &request.call {
            let tenant = &request.arrival.tenant;
            let given = request.conversation();
            plan.selection.keep(tenant, given, call);
            prefer_able(&mut plan.targets, call);
            if call.endpoint != Endpoint::Answer {
                keep_servers_of(call.endpoint, &mut plan);
                if plan.targets.is_empty() {
                    let reason = format!("is the route `{name}`, of which no target can do this");
                    return Err(CallError::invalid_field("model", reason));
                }
            }
        }
        Ok(context(request, route, plan, id))
    }

    /// Resolves a tool call. Its targets are those of `tool`; the policy, deadline and permissions
    /// are those of the route that is named, else of the default route, and else those that a route
    /// has by itself.
    pub(super) fn resolve_tool(
        &self,
        request: InvocationRequest,
        tool: ToolPlan,
        id: InvocationId,
    ) -> Result<InvocationContext, CallError> {
        let own = (RouteName::from(TOOLS_ROUTE), RouteConfig::default());
        let unnamed = request
            .route
            .as_ref()
            .is_none_or(|name| name.as_str() == TOOLS_ROUTE);
        let (name, route) = match self.route(request.route.as_ref()) {
            Ok(found) => found,
            Err(_) if unnamed => (&own.0, &own.1),
            Err(refusal) => return Err(refusal),
        };
        let targets: Vec<&TargetId> = tool.offers.iter().map(|offer| &offer.target.id).collect();
        let mut faults = self.faults(route, &targets, &request.overrides);
        chain::check(&request, route, || targets, &mut faults);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let mut plan = self.plan(name, route, &request.operation, &request.overrides);
        let mut offers = tool.offers;
        KeptTargets::of(&request.overrides).keep(&mut offers, |offer| &offer.target.id);
        plan.targets = offers
            .iter()
            .map(|offer| Arc::clone(&offer.target))
            .collect();
        plan.hedge = HedgePolicy::default();
        plan.tool = Some(Arc::new(ToolPlan { offers, ..tool }));
        Ok(context(request, route, plan, id))
    }

    /// Puts the releases that serve `key` in the place of the targets that the route names.
    fn released(
        &self,
        named: Vec<Arc<Target>>,
        releases: &ReleaseRouting,
        key: &str,
    ) -> Vec<Arc<Target>> {
        let mut targets: Vec<Arc<Target>> = Vec::with_capacity(named.len());
        for target in named {
            let serving = releases.serving(target.id.as_str(), key);
            let serving = serving
                .into_iter()
                .filter_map(|id| self.parts.target(&TargetId::from(id)));
            for serving in serving.chain([Arc::clone(&target)]) {
                if !targets.iter().any(|known| known.id == serving.id) {
                    targets.push(serving);
                }
            }
        }
        targets
    }

    pub(super) fn bare_plan(
        &self,
        route: Option<&RouteName>,
        operation: &Operation,
    ) -> Result<Plan, CallError> {
        let (name, route) = self.route(route)?;
        Ok(self.plan(name, route, operation, &Overrides::default()))
    }

    fn route(
        &self,
        requested: Option<&RouteName>,
    ) -> Result<(&RouteName, &RouteConfig), CallError> {
        let only = self
            .parts
            .config
            .routes
            .keys()
            .next()
            .filter(|_| self.parts.config.routes.len() == 1);
        let name = requested
            .or(self.parts.config.default_route.as_ref())
            .or(only);
        let routes = &self.parts.config.routes;
        name.and_then(|name| routes.get_key_value(name))
            .ok_or_else(|| match name.map_or("", RouteName::as_str) {
                "" => CallError::new(ROUTE_NOT_NAMED).fact("route", ""),
                name => {
                    let names: Vec<&str> = routes.keys().map(RouteName::as_str).collect();
                    CallError::not_found(ROUTE_NOT_FOUND, name, nearest(name, &names))
                }
            })
    }

    /// Returns the targets of which a caller may choose on a route: its own, and those of other
    /// routes that the caller may use and that let callers choose.
    fn chosen_by<'a>(&'a self, route: &'a RouteConfig, arrival: &Arrival) -> Vec<&'a TargetId> {
        let others = self.parts.config.routes.iter().filter(|(name, other)| {
            other.allow_overrides.targets && name.is_allowed_by(&arrival.routes)
        });
        let others = others.flat_map(|(_, other)| &other.targets);
        route.targets.iter().chain(others).collect()
    }

    /// Returns the faults in a caller's overrides: everything at once.
    fn faults(
        &self,
        route: &RouteConfig,
        targets: &[&TargetId],
        overrides: &Overrides,
    ) -> Violations {
        let allowed = &route.allow_overrides;
        let mut faults = Violations::default();
        let mut fault = |field: &str, reason: String| {
            faults.add(format_args!("invocation.overrides.{field}"), reason);
        };
        if let Some(retries) = overrides
            .max_retries
            .filter(|retries| *retries > allowed.max_retries)
        {
            fault(
                "max_retries",
                format!(
                    "{retries} is more than the {} that this route allows",
                    allowed.max_retries
                ),
            );
        }
        if !overrides.allowed_targets.is_empty() && !allowed.targets {
            fault(
                "allowed_targets",
                "this route does not let callers choose its targets".to_owned(),
            );
        }
        let names: Vec<&str> = targets.iter().map(|target| target.as_str()).collect();
        for (index, target) in overrides.allowed_targets.iter().enumerate() {
            if !targets.contains(&target) {
                let near = nearest(target.as_str(), &names);
                let hint = near
                    .map(|near| format!("; did you mean `{near}`?"))
                    .unwrap_or_default();
                fault(
                    &format!("allowed_targets[{index}]"),
                    format!("`{target}` is no target of this route{hint}"),
                );
            }
        }
        if let Some(preset) = &overrides.preset {
            if !allowed.policy {
                fault(
                    "preset",
                    "this route does not let callers choose a policy".to_owned(),
                );
            } else if !self.parts.config.policies.contains_key(preset) {
                let known: Vec<&str> = self
                    .parts
                    .config
                    .policies
                    .keys()
                    .map(String::as_str)
                    .collect();
                fault(
                    "preset",
                    format!("`{preset}` does not exist; there are: {}", known.join(", ")),
                );
            }
        }
        if let Some(grace) = overrides
            .resumable_grace
            .filter(|grace| *grace > allowed.max_resumable_grace)
        {
            let max = allowed.max_resumable_grace.as_millis();
            fault(
                "resumable",
                format!(
                    "{} ms is more than the {max} ms that are allowed",
                    grace.as_millis()
                ),
            );
        }
        faults
    }

    fn plan(
        &self,
        name: &RouteName,
        route: &RouteConfig,
        operation: &Operation,
        overrides: &Overrides,
    ) -> Plan {
        let usual = self
            .plans
            .get(name)
            .filter(|_| overrides.preset.is_none())
            .map(|plans| plans.of(operation).clone());
        let mut plan = usual.unwrap_or_else(|| {
            let preset = overrides.preset.as_deref();
            self.parts.plan(name, route, Some(operation), preset)
        });
        let kept = KeptTargets::of(overrides);
        if !matches!(kept, KeptTargets::All) {
            plan.targets = self.parts.targets(kept.of_route(&route.targets));
        }
        plan.selection.policy = kept.in_order(plan.selection.policy);
        if let Some(max_retries) = overrides.max_retries {
            plan.retry = plan.retry.with_max_retries(max_retries);
        }
        if let Some(mode) = overrides.injection {
            plan.changes.injection_mode = mode;
        }
        plan
    }
}

/// Returns the invocation that a request makes, under a plan on a route.
fn context(
    request: InvocationRequest,
    route: &RouteConfig,
    plan: Plan,
    id: InvocationId,
) -> InvocationContext {
    let allowed = request
        .time_allowed()
        .map_or(route.deadline, reportable)
        .min(route.max_deadline);
    let mut overrides = request.overrides;
    if request.lifetime.resumable && overrides.resumable_grace.is_none() {
        overrides.resumable_grace = Some(route.allow_overrides.max_resumable_grace);
    }
    let invocation = Invocation {
        id,
        request_id: request.request_id,
        thread: request.thread,
        tenant: request.arrival.tenant,
        route: plan.route.clone(),
        operation: request.operation,
        labels: request.labels,
        call: request.call,
        overrides,
        deadline: Instant::now() + allowed,
        trace: request.arrival.trace,
    };
    let mut incoming = InvocationContext::new(invocation, Arc::new(plan), request.arrival.entry);
    incoming.caller_routes = request.arrival.routes;
    incoming
}

/// Returns the part of a caller's timeout after which a failure can still be reported in time.
fn reportable(timeout: Duration) -> Duration {
    let margin = timeout / STATED_TOO_LONG + REPORT_MARGIN;
    timeout - margin.min(timeout / MAX_MARGIN_SHARE)
}

/// Keeps the targets whose dialect has this endpoint. No model reads what is requested of it, so
/// none gets a note.
fn keep_servers_of(endpoint: Endpoint, plan: &mut Plan) {
    plan.changes.injection_mode = InjectionMode::Never;
    plan.targets.retain(|target| match endpoint {
        Endpoint::Answer => true,
        Endpoint::Embeddings => matches!(
            target.dialect,
            Dialect::OpenaiChat | Dialect::OpenaiResponses
        ),
        Endpoint::CountTokens => target.dialect == Dialect::Anthropic,
    });
}

/// Leaves out the targets that do not take the contents of the call (tools, images), if others do.
fn prefer_able(targets: &mut Vec<Arc<Target>>, call: &ModelCall) {
    if targets.iter().any(|target| target.capabilities.take(call)) {
        targets.retain(|target| target.capabilities.take(call));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a timeout as the gRPC core states it: three significant digits, the last rounded up,
    /// and whole minutes at most.
    fn as_stated(timeout: Duration) -> Duration {
        let millis = u64::try_from(timeout.as_millis()).unwrap();
        let unit = match millis {
            0..1_000 => 1,
            1_000..10_000 => 10,
            10_000..100_000 => 100,
            100_000..1_000_000 => 1_000,
            1_000_000..10_000_000 => 10_000,
            10_000_000..100_000_000 => 100_000,
            100_000_000.. => 60_000,
        };
        Duration::from_millis(millis.div_ceil(unit) * unit)
    }

    proptest! {
        #[test]
        fn a_failure_is_reported_before_the_callers_own_deadline(millis in 1u64..1_000_000_000) {
            let timeout = Duration::from_millis(millis);
            let ends = reportable(as_stated(timeout));
            prop_assert!(ends < timeout, "{timeout:?} is stated as {:?} and ends after {ends:?}", as_stated(timeout));
            prop_assert!(timeout - ends >= (timeout / 6).min(Duration::from_millis(49)), "{timeout:?}: {ends:?}");
            prop_assert!(ends >= timeout.mul_f64(0.74), "{timeout:?}: {ends:?}");
        }
    }
}
