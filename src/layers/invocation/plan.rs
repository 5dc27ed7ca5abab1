//! How an invocation is served.

use std::sync::Arc;

use crate::{
    domain::{ids::RouteName, invocation::InjectionMode, target::Target},
    layers::tools::ToolPlan,
    policy::{
        hedge::HedgePolicy, inject::InjectionPolicy, retry::RetryPolicy, select::SelectPolicy,
        texts::Texts, timers::TimersPolicy,
    },
};

/// How an invocation is served: the route's targets and policies, with the caller's overrides
/// applied.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The route.
    pub route: RouteName,
    /// Its targets in order of preference, already narrowed to those that the caller allows.
    pub targets: Vec<Arc<Target>>,
    /// How often, and after which waits, it is tried again.
    pub retry: RetryPolicy,
    /// How a note about a failure is injected.
    pub injection: InjectionPolicy,
    /// When a note about a failure is injected.
    pub injection_mode: InjectionMode,
    /// In which order targets are tried.
    pub select: SelectPolicy,
    /// How long an attempt may be silent.
    pub timers: TimersPolicy,
    /// Whether a second attempt starts beside a slow first.
    pub hedge: HedgePolicy,
    /// What is known of the tools that are its targets; `None` where models are.
    pub tool: Option<Arc<ToolPlan>>,
    /// What people read of a failure.
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
            injection,
            select: SelectPolicy::default(),
            timers: TimersPolicy::default(),
            hedge: HedgePolicy::default(),
            tool: None,
            texts: Arc::default(),
            seed: 0,
        }
    }
}
