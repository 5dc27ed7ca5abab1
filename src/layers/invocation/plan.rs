//! How an invocation is served.

use std::sync::Arc;

use crate::{
    domain::{
        ids::{RouteName, TargetId, TenantId},
        invocation::InjectionMode,
        message::ModelCall,
        target::Target,
    },
    layers::tools::ToolPlan,
    policy::{
        hedge::HedgePolicy,
        inject::InjectionPolicy,
        overflow::Overflow,
        retry::RetryPolicy,
        select::{AffinityKey, SelectPolicy},
        texts::Texts,
        timers::TimersPolicy,
    },
};

/// Plan of an invocation: the route's targets and policies, with the caller's overrides applied.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The route.
    pub route: RouteName,
    /// Its targets in order of preference, already narrowed to those that the caller allows.
    pub targets: Vec<Arc<Target>>,
    /// Number of retries, and the waits before them.
    pub retry: RetryPolicy,
    /// Changes of the conversation that are allowed.
    pub changes: ConversationChanges,
    /// Choice among the targets.
    pub selection: PlannedSelection,
    /// Time that an attempt may be silent.
    pub timers: TimersPolicy,
    /// Policy of a second attempt beside a slow first.
    pub hedge: HedgePolicy,
    /// Known facts of the tools that are its targets; `None` if they are models.
    pub tool: Option<Arc<ToolPlan>>,
    /// Texts that people read of a failure.
    pub texts: Arc<Texts>,
    /// Seed of the dice.
    pub seed: u64,
}

/// Changes that an invocation allows of its conversation.
#[derive(Debug, Clone)]
pub struct ConversationChanges {
    /// Form of a note about a failure.
    pub injection: Arc<InjectionPolicy>,
    /// Condition under which a note about a failure is injected.
    pub injection_mode: InjectionMode,
    /// Action on a conversation that outgrew all targets.
    pub overflow: Overflow,
}

/// Choice of an invocation among its targets and their keys.
#[derive(Debug, Clone, Default)]
pub struct PlannedSelection {
    /// In which order targets are tried.
    pub policy: Arc<SelectPolicy>,
    /// The conversation that stays at one of them, if it does.
    pub conversation: Option<AffinityKey>,
    /// The conversation that stays with one key of a pool, if it does.
    pub key_stays: Option<AffinityKey>,
}

// === impl Plan ===

impl Plan {
    /// These targets, in this order, with the default policies.
    #[must_use]
    pub fn new(route: RouteName, targets: Vec<Arc<Target>>) -> Self {
        Self {
            route,
            targets,
            retry: RetryPolicy::default(),
            changes: ConversationChanges::new(InjectionPolicy::default(), Overflow::default()),
            selection: PlannedSelection::default(),
            timers: TimersPolicy::default(),
            hedge: HedgePolicy::default(),
            tool: None,
            texts: Arc::default(),
            seed: 0,
        }
    }

    /// Returns the target that is the conversation's own, if it stays at one.
    pub fn own_target(&self) -> Option<&TargetId> {
        let targets = self.targets.iter().map(|target| &target.id);
        let selection = &self.selection;
        selection
            .policy
            .own_target(selection.conversation?, targets)
    }
}

// === impl ConversationChanges ===

impl ConversationChanges {
    /// Notes of this form, under its own condition, and this action on what is too long.
    #[must_use]
    pub fn new(injection: InjectionPolicy, overflow: Overflow) -> Self {
        Self {
            injection_mode: injection.mode,
            injection: Arc::new(injection),
            overflow,
        }
    }
}

// === impl PlannedSelection ===

impl PlannedSelection {
    /// A choice by this policy that keeps no conversation at its place.
    #[must_use]
    pub fn by(policy: SelectPolicy) -> Self {
        Self {
            policy: Arc::new(policy),
            ..Self::default()
        }
    }

    /// Keeps the conversation of a call at one target and one key, if the policy does; `given`: its
    /// name, if the caller gave one.
    pub fn keep(&mut self, tenant: &TenantId, given: Option<&str>, call: &ModelCall) {
        self.conversation = self.policy.affinity_key(tenant, given, call);
        self.key_stays = self.policy.pool_key(tenant, given, call);
    }
}
