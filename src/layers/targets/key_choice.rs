//! Choice of a target's key for an attempt, and what its keys leave open.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{
    keys::{KeyHistory, KeyState, PlaceInLine},
    state::TargetState,
};
use crate::{
    domain::{ids::TenantId, invocation::AttemptRecord},
    layers::invocation::InvocationScope,
    policy::{
        retry::Availability,
        select::{KeyCandidate, choose_key},
    },
};

// === impl TargetState ===

impl TargetState {
    /// Returns the keys.
    pub fn keys(&self) -> Arc<Vec<Arc<KeyState>>> {
        self.keys.all.load_full()
    }

    /// Returns the time at which a tenant may call the target with one of the keys that its earlier
    /// attempts left, as far as gates decide.
    pub(super) fn keys_available(
        &self,
        now: Instant,
        tenant: &TenantId,
        place: PlaceInLine,
        history: KeyHistory<'_>,
    ) -> Availability {
        let keys = self.keys.all.load();
        let left = keys.iter().filter(|key| !history.is_refused(key));
        let ready = left.filter_map(|key| {
            let availability = key.availability(now, tenant, place, keys.len());
            Some((availability.ready_at(now)?, availability))
        });
        ready
            .min_by_key(|(ready, _)| *ready)
            .map_or(Availability::Never, |(_, availability)| availability)
    }

    /// Returns whether the target has a key left that no attempt of an invocation was refused with.
    pub(super) fn has_key_left(&self, history: KeyHistory<'_>) -> bool {
        let keys = self.keys.all.load();
        keys.len() > 1 && keys.iter().any(|key| !history.is_refused(key))
    }

    /// Returns whether the target can be called now with a key that was not used before in this
    /// invocation.
    pub fn has_fresh_key(&self, now: Instant, tenant: &TenantId, history: KeyHistory<'_>) -> bool {
        let keys = self.keys.all.load();
        let is_fresh = |key: &Arc<KeyState>| {
            history.refusals(key).next().is_none()
                && key.closed_for().is_none()
                && key.availability(now, tenant, PlaceInLine::Behind, keys.len())
                    == Availability::Now
        };
        keys.len() > 1 && keys.iter().any(is_fresh)
    }

    /// Returns the key of an invocation's next attempt; `attaches`: it reads a response that an
    /// earlier attempt requested, which no other account has.
    pub fn key_for(
        &self,
        scope: &InvocationScope,
        now: Instant,
        attaches: bool,
    ) -> Option<Arc<KeyState>> {
        let keys = self.keys.all.load();
        if let [only] = keys.as_slice() {
            return Some(Arc::clone(only));
        }
        let attempts = scope.attempts();
        let requested = || {
            let of_target =
                |record: &&AttemptRecord| record.target.as_ref() == Some(&self.target.id);
            let last = attempts.iter().rev().find(of_target)?;
            keys.iter()
                .find(|key| attaches && key.label.as_deref() == last.key.as_deref())
        };
        let in_turn = keys.iter().find(|key| scope.has_turn_with(key));
        if let Some(only) = in_turn.or_else(requested) {
            return Some(Arc::clone(only));
        }
        let history = KeyHistory::new(&attempts);
        let tenant = &scope.invocation.tenant;
        let place = PlaceInLine::of(scope, &self.target.id);
        let candidates: Vec<KeyCandidate<'_>> = keys
            .iter()
            .map(|key| KeyCandidate {
                label: key.label.as_deref().unwrap_or_default(),
                availability: key.availability(now, tenant, place, keys.len()),
                closed: key.closed_for().is_some(),
                rests: key.rests_until.lock().is_some_and(|until| until > now),
                refused: history.is_refused(key),
                limited: u32::try_from(history.refusals(key).count()).unwrap_or(u32::MAX),
            })
            .collect();
        let turn = self.keys.turns.fetch_add(1, Ordering::Relaxed);
        let chosen = choose_key(&candidates, scope.plan.selection.key_stays, turn, now)?;
        keys.get(chosen).map(Arc::clone)
    }
}
