//! How an invocation is served.

use std::sync::Arc;

use crate::{
    domain::{
        ids::{RouteName, TargetId},
        invocation::InjectionMode,
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
    /// Form of a note about a failure.
    pub injection: Arc<InjectionPolicy>,
    /// Condition under which a note about a failure is injected.
    pub injection_mode: InjectionMode,
    /// What is done about a conversation that outgrew all targets.
    pub overflow: Overflow,
    /// In which order targets are tried.
    pub select: Arc<SelectPolicy>,
    /// The conversation that stays at one of them, if it does.
    pub conversation: Option<AffinityKey>,
    /// The conversation that stays with one key of a pool, if it does.
    pub key_stays: Option<AffinityKey>,
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

impl Plan {
    /// These targets, in this order, with the default policies.
    #[must_use]
    pub fn new(route: RouteName, targets: Vec<Arc<Target>>) -> Self {
        let injection = InjectionPolicy::default();
        Self {
            route,
            targets,
            retry: RetryPolicy::default(),
            injection_mode: injection.mode,
            injection: Arc::new(injection),
            overflow: Overflow::default(),
            select: Arc::default(),
            conversation: None,
            key_stays: None,
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
        self.select.own_target(self.conversation?, targets)
    }
}
