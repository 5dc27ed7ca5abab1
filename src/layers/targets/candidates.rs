//! Targets of an invocation's route as its planner sees them: those that are free, those that
//! failed, and the failure that ends it if none is.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Targets,
    keys::{KeyHistory, PlaceInLine, is_of_the_key},
};
use crate::{
    domain::{
        failure::{Failure, FailureClass, TransportFault},
        ids::TargetId,
        target::Target,
    },
    layers::invocation::InvocationScope,
    policy::{
        latency::GUESSED_P50,
        retry::{Availability, Candidate, Load, has_larger_window, recovery_options},
        select::Order,
    },
};

impl Targets {
    /// Returns the targets of an invocation's route as a planner sees them now, in the route's
    /// order.
    pub fn candidates(&self, scope: &InvocationScope, now: Instant) -> Vec<Candidate> {
        let attempts = scope.attempts();
        let states = self.shared.states.load();
        let history = KeyHistory::new(&attempts);
        let tenant = &scope.invocation.tenant;
        let is_load_compared = scope.plan.selection.policy.order == Order::LeastBusy;
        let candidate = |target: &Arc<Target>| {
            let state = states.get(&target.id);
            let own = attempts
                .iter()
                .filter(|record| record.target.as_ref() == Some(&target.id));
            let fell_silent = |failure: &Failure| {
                failure.class == FailureClass::Timeout
                    || failure.fault == Some(TransportFault::IdleTimeout)
            };
            let failed_silent = own
                .clone()
                .any(|record| record.failure.as_ref().is_some_and(fell_silent));
            // First, because it settles what is overdue.
            let availability = state.map_or(Availability::Never, |state| {
                let place = PlaceInLine::of(scope, &target.id);
                state.availability(now, tenant, place, history)
            });
            let (degraded, open) = state.map_or((true, false), |state| {
                let circuit = state.circuit();
                (circuit.degraded(), !circuit.state().is_closed())
            });
            let health = state
                .map(|state| state.observed.health().verdict(now))
                .unwrap_or_default();
            let first_token = state.and_then(|state| state.observed.latency().p50(now));
            let load = state
                .filter(|_| is_load_compared)
                .map(|state| state.slots.in_use());
            let load = load.map_or(Load::default(), |(in_flight, limit)| Load {
                in_flight,
                limit,
                first_token,
            });
            let prompt = scope.prompt_bytes();
            let outgrown = state.is_some_and(|state| state.is_outgrown_by(prompt));
            let mut candidate = Candidate {
                target: target.id.clone(),
                availability,
                first_token_p50: first_token.unwrap_or(GUESSED_P50),
                load,
                failed_silent,
                attempts: u32::try_from(
                    own.filter(|record| !record.refused_locally() && !record.lost_with_replica)
                        .count(),
                )
                .unwrap_or(u32::MAX),
                // An open circuit whose time is over must be preferred again, or it would never be
                // probed.
                healthy: !degraded,
                failing: health.failing || degraded || open,
                erratic: health.erratic,
                in_line: state.is_some_and(|state| state.has_line(now, tenant)),
                outgrown,
                larger_window: false,
                other_credential: false,
                ruled_out: outgrown,
            };
            let failed = attempts.iter().filter(|record| !record.refused_locally());
            let has_key_left = state.is_some_and(|state| state.has_key_left(history));
            for record in failed {
                let (Some(failure), Some(by)) = (
                    &record.failure,
                    record.target.as_ref().and_then(|id| states.get(id)),
                ) else {
                    continue;
                };
                let by = &by.target;
                candidate.larger_window = has_larger_window(target, by);
                candidate.other_credential = has_key_left
                    || (&by.provider, &by.credential) != (&target.provider, &target.credential);
                // What was refused was the key, and the target has another one.
                if has_key_left && by.id == target.id && is_of_the_key(failure.class) {
                    continue;
                }
                let noted =
                    (record.injection.refused || record.adaptation.is_some()) && by.id == target.id;
                let admitted = recovery_options(&scope.plan.retry, failure)
                    .admits(&candidate, by.id == target.id);
                candidate.ruled_out |= !admitted && !noted;
            }
            candidate
        };
        let mut candidates: Vec<Candidate> = scope.plan.targets.iter().map(candidate).collect();
        let is_served = candidates
            .iter()
            .any(|one| one.availability == Availability::Now);
        if !is_served && candidates.len() > 1 {
            for one in &mut candidates {
                if let Some(state) = states.get(&one.target)
                    && state.circuit().bring_probe_forward()
                {
                    let place = PlaceInLine::of(scope, &one.target);
                    one.availability = state.availability(now, tenant, place, history);
                }
            }
        }
        candidates
    }

    /// Returns the failure that ends an invocation that no target can serve: the failure that
    /// closed the gate of the first one which is closed this way.
    pub fn refusal(&self, scope: &InvocationScope) -> Option<Failure> {
        let now = Instant::now();
        scope.plan.targets.iter().find_map(|target| {
            self.state(&target.id)?
                .refusal(now, &scope.invocation.tenant)
        })
    }

    /// Returns the failure that ends an invocation that may not wait for a target whose rate limit
    /// is reached.
    pub fn rate_limit(&self, scope: &InvocationScope) -> Option<Failure> {
        let now = Instant::now();
        scope
            .plan
            .targets
            .iter()
            .find_map(|target| self.state(&target.id)?.rate_limit(now))
    }

    /// Returns whether a target other than this one of the same route could take over now.
    pub fn alternative_healthy(
        &self,
        scope: &InvocationScope,
        but: &TargetId,
        now: Instant,
    ) -> bool {
        self.alternatives(scope, but, now)
            .any(|availability| availability == Availability::Now)
    }

    /// Returns whether a target other than this one of the same route is well and can take over
    /// now, or once a gate opens.
    pub fn alternative_returns(
        &self,
        scope: &InvocationScope,
        but: &TargetId,
        now: Instant,
    ) -> bool {
        self.alternatives(scope, but, now)
            .any(|availability| availability != Availability::Never)
    }

    /// Returns when the targets of the same route other than this one that are well can be called.
    fn alternatives(
        &self,
        scope: &InvocationScope,
        but: &TargetId,
        now: Instant,
    ) -> impl Iterator<Item = Availability> {
        let states = self.shared.states.load();
        let others = scope.plan.targets.iter().filter(move |it| it.id != *but);
        others.filter_map(move |target| {
            let state = states.get(&target.id).filter(|state| state.is_healthy())?;
            let tenant = &scope.invocation.tenant;
            let history = KeyHistory::new(&[]);
            Some(state.availability(now, tenant, PlaceInLine::Behind, history))
        })
    }
}
