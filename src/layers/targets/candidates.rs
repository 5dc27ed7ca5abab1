//! The targets of an invocation's route as its planner sees them: who is free, who failed, what
//! ends it where none is.

use std::sync::Arc;

use tokio::time::Instant;

use super::Targets;
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        ids::TargetId,
        target::Target,
    },
    layers::invocation::InvocationScope,
    policy::{
        latency::GUESSED_P50,
        retry::{Availability, Candidate, has_larger_window, recovery_options},
    },
};

impl Targets {
    /// The targets of an invocation's route as a planner sees them now, in the route's order.
    pub fn candidates(&self, scope: &InvocationScope, now: Instant) -> Vec<Candidate> {
        let attempts = scope.attempts();
        let states = self.shared.states.load();
        let candidate = |target: &Arc<Target>| {
            let state = states.get(&target.id);
            let own = attempts
                .iter()
                .filter(|record| record.target.as_ref() == Some(&target.id));
            let failed_silent = own.clone().any(|record| {
                record.first_token.is_none()
                    && record
                        .failure
                        .as_ref()
                        .is_some_and(|failure| failure.class == FailureClass::Timeout)
            });
            // First, because it settles what is overdue.
            let availability = state.map_or(Availability::Never, |state| {
                state.availability(now, scope.has_turn(&target.id) || scope.goes_ahead())
            });
            let (degraded, open) = state.map_or((true, false), |state| {
                let circuit = state.circuit();
                (circuit.degraded(), !circuit.state().is_closed())
            });
            let health = state
                .map(|state| state.health().verdict(now))
                .unwrap_or_default();
            let mut candidate = Candidate {
                target: target.id.clone(),
                availability,
                first_token_p50: state
                    .and_then(|state| state.latency().p50(now))
                    .unwrap_or(GUESSED_P50),
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
                answers: health.answers,
                in_line: state.is_some_and(|state| state.has_line(now)),
                larger_window: false,
                other_credential: false,
                ruled_out: false,
            };
            let failed = attempts.iter().filter(|record| !record.refused_locally());
            for record in failed {
                let (Some(failure), Some(by)) = (
                    &record.failure,
                    record.target.as_ref().and_then(|id| states.get(id)),
                ) else {
                    continue;
                };
                let by = &by.target;
                candidate.larger_window = has_larger_window(target, by);
                candidate.other_credential =
                    (&by.provider, &by.credential) != (&target.provider, &target.credential);
                let noted =
                    (record.note_refused || record.adaptation.is_some()) && by.id == target.id;
                let admitted = recovery_options(&scope.plan.retry, failure)
                    .admits(&candidate, by.id == target.id);
                candidate.ruled_out |= !admitted && !noted;
            }
            candidate
        };
        scope.plan.targets.iter().map(candidate).collect()
    }

    /// What an invocation ends with that no target can serve: the failure that closed the gate of
    /// the first one which is closed so.
    pub fn refusal(&self, scope: &InvocationScope) -> Option<Failure> {
        let now = Instant::now();
        scope
            .plan
            .targets
            .iter()
            .find_map(|target| self.state(&target.id)?.refusal(now))
    }

    /// What an invocation ends with that may not wait for a target whose rate limit is reached.
    pub fn rate_limit(&self, scope: &InvocationScope) -> Option<Failure> {
        let now = Instant::now();
        scope
            .plan
            .targets
            .iter()
            .find_map(|target| self.state(&target.id)?.rate_limit(now))
    }

    /// Whether a target other than this one of the same route could take over now.
    pub fn alternative_healthy(
        &self,
        scope: &InvocationScope,
        but: &TargetId,
        now: Instant,
    ) -> bool {
        let states = self.shared.states.load();
        scope
            .plan
            .targets
            .iter()
            .filter(|target| target.id != *but)
            .any(|target| {
                states.get(&target.id).is_some_and(|state| {
                    state.is_healthy()
                        && matches!(state.availability(now, false), Availability::Now)
                })
            })
    }

    /// Whether a target other than this one of the same route is well and can take over now, or
    /// once a gate opens.
    pub fn alternative_returns(
        &self,
        scope: &InvocationScope,
        but: &TargetId,
        now: Instant,
    ) -> bool {
        let states = self.shared.states.load();
        let mut others = scope.plan.targets.iter().filter(|target| target.id != *but);
        others.any(|target| {
            let state = states.get(&target.id);
            state.is_some_and(|state| {
                state.is_healthy() && state.availability(now, false) != Availability::Never
            })
        })
    }
}
