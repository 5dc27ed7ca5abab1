//! The plans of calls that choose nothing themselves, each made once: by route and operation, when a
//! configuration is put in force.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    config::{Config, RouteConfig},
    domain::{
        ids::{Operation, RouteName, TargetId},
        target::Target,
    },
    layers::{
        invocation::{ConversationChanges, Plan, PlannedSelection},
        targets::TargetSpec,
    },
    policy::texts::Texts,
};

/// Parts of which plans are made.
pub(super) struct PlanParts {
    pub(super) config: Config,
    targets: BTreeMap<TargetId, Arc<Target>>,
    texts: Arc<Texts>,
}

/// The plans of one route.
pub(super) struct RoutePlans {
    /// Those of operations that have settings.
    configured: BTreeMap<Operation, Plan>,
    /// That of all others, which callers name freely.
    other: Plan,
}

// === impl PlanParts ===

impl PlanParts {
    pub(super) fn new(config: &Config, targets: &[TargetSpec]) -> Self {
        let targets = targets
            .iter()
            .map(|spec| (spec.target.id.clone(), Arc::clone(&spec.target)));
        Self {
            config: config.clone(),
            targets: targets.collect(),
            texts: Arc::new(config.texts.clone()),
        }
    }

    /// Returns a target that is configured.
    pub(super) fn target(&self, id: &TargetId) -> Option<Arc<Target>> {
        self.targets.get(id).map(Arc::clone)
    }

    /// Returns those of these targets that are configured.
    pub(super) fn targets<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a TargetId>,
    ) -> Vec<Arc<Target>> {
        ids.into_iter().filter_map(|id| self.target(id)).collect()
    }

    /// Makes the plan of an operation on a route (`None` for one without settings), with the caller's
    /// preset if it names one.
    pub(super) fn plan(
        &self,
        name: &RouteName,
        route: &RouteConfig,
        operation: Option<&Operation>,
        preset: Option<&str>,
    ) -> Plan {
        let policy = self.config.policy_for(route, operation, preset);
        Plan {
            route: name.clone(),
            targets: self.targets(&route.targets),
            retry: policy.retry,
            changes: ConversationChanges::new(policy.injection, route.overflow),
            selection: PlannedSelection::by(route.select.clone()),
            timers: self.config.timers_for(route).clone(),
            hedge: route.hedge.clone(),
            tool: None,
            texts: Arc::clone(&self.texts),
            seed: 0,
        }
    }
}

// === impl RoutePlans ===

impl RoutePlans {
    pub(super) fn new(parts: &PlanParts, name: &RouteName, route: &RouteConfig) -> Self {
        let plan = |operation| parts.plan(name, route, operation, None);
        let configured = parts
            .config
            .operations
            .keys()
            .chain(route.operations.keys());
        let configured: BTreeSet<&Operation> = configured.collect();
        Self {
            configured: configured
                .into_iter()
                .map(|operation| (operation.clone(), plan(Some(operation))))
                .collect(),
            other: plan(None),
        }
    }

    /// Returns the plan of an operation.
    pub(super) fn of(&self, operation: &Operation) -> &Plan {
        self.configured.get(operation).unwrap_or(&self.other)
    }
}
