//! Targets that a caller chooses for a call: some of the route's in its order, or a chain of the
//! caller's own.

use std::sync::Arc;

use super::request::InvocationRequest;
use crate::{
    call_error::Violations,
    config::{RouteConfig, fault::nearest},
    domain::{ids::TargetId, invocation::Overrides},
    layers::spans::EntryPoint,
    policy::select::SelectPolicy,
};

/// The header of a chain on the HTTP fronts.
pub const TARGETS_HEADER: &str = "x-relight-targets";

/// Targets that a caller leaves of those it could have.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeptTargets<'a> {
    /// All of them.
    All,
    /// These, in the order in which they are.
    Some(&'a [TargetId]),
    /// These, in the caller's order.
    Chain(&'a [TargetId]),
}

/// Adds the faults of a caller's chain; `known`: the targets of which the caller may choose.
pub(super) fn check<'a>(
    request: &InvocationRequest,
    route: &RouteConfig,
    known: impl FnOnce() -> Vec<&'a TargetId>,
    faults: &mut Violations,
) {
    let overrides = &request.overrides;
    let chain = &overrides.targets;
    if chain.is_empty() {
        return;
    }
    let is_grpc = matches!(request.arrival.entry, EntryPoint::Grpc(_));
    let field = if is_grpc {
        "invocation.overrides.targets"
    } else {
        TARGETS_HEADER
    };
    if !route.allow_overrides.targets {
        faults.add(field, "this route does not let callers choose its targets");
        return;
    }
    if !overrides.allowed_targets.is_empty() {
        let other = if is_grpc {
            "allowed_targets"
        } else {
            "a model that is a target"
        };
        faults.add(field, format!("is given beside {other}; keep one of them"));
    }
    let known = known();
    let names: Vec<&str> = known.iter().map(|target| target.as_str()).collect();
    for (index, target) in chain.iter().enumerate() {
        let at = format!("{field}[{index}]");
        if !known.contains(&target) {
            let near = nearest(target.as_str(), &names);
            let hint = near.map(|near| format!("; did you mean `{near}`?"));
            let hint = hint.unwrap_or_default();
            faults.add(
                at,
                format!("`{target}` is no target that you may choose{hint}"),
            );
        } else if chain[..index].contains(target) {
            faults.add(at, format!("`{target}` is named twice"));
        }
    }
}

// === impl KeptTargets ===

impl<'a> KeptTargets<'a> {
    /// Those that a caller's overrides leave.
    pub(super) fn of(overrides: &'a Overrides) -> Self {
        match (
            overrides.targets.as_slice(),
            overrides.allowed_targets.as_slice(),
        ) {
            ([], []) => Self::All,
            ([], some) => Self::Some(some),
            (chain, _) => Self::Chain(chain),
        }
    }

    /// Returns the names of the targets to call on a route of these.
    pub(super) fn of_route(self, route: &'a [TargetId]) -> impl Iterator<Item = &'a TargetId> {
        let (names, some) = match self {
            Self::All => (route, None),
            Self::Some(some) => (route, Some(some)),
            Self::Chain(chain) => (chain, None),
        };
        names
            .iter()
            .filter(move |target| some.is_none_or(|some| some.contains(target)))
    }

    /// Keeps of `offers`, each of a target, what is left, in its order.
    pub(super) fn keep<T>(self, offers: &mut Vec<T>, target: impl Fn(&T) -> &TargetId) {
        match self {
            Self::All => {}
            Self::Some(some) => offers.retain(|offer| some.contains(target(offer))),
            Self::Chain(chain) => {
                let place = |offer: &T| chain.iter().position(|named| named == target(offer));
                offers.retain(|offer| place(offer).is_some());
                offers.sort_by_key(place);
            }
        }
    }

    /// Returns how targets are chosen: a chain is called in its order, whatever the route's.
    pub(super) fn in_order(self, route: Arc<SelectPolicy>) -> Arc<SelectPolicy> {
        match self {
            Self::All | Self::Some(_) => route,
            Self::Chain(_) => Arc::default(),
        }
    }
}
