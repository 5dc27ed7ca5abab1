//! Another key of the same target, after one was refused, used up or limited.

use std::time::Duration;

use tokio::time::Instant;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        failure::{Failure, Wait, WaitSource},
        invocation::RecoveryStrategy,
    },
    layers::targets::{KeyHistory, is_of_the_key},
    policy::retry::Relayed,
};

impl<S> RetryLoop<S> {
    /// Calls the same target again at once, if the failure was of the key alone and its pool has
    /// another one that is good and not tried yet. That is part of the same try: it pays no budget and
    /// uses up no retry.
    pub(super) fn rotate(&mut self, failure: &Failure, now: Instant) -> Option<AfterFailure> {
        self.request.rotates = false;
        let may = self.scope.plan.retry.enabled
            && is_of_the_key(failure.class)
            && self.read.relayed == Relayed::Nothing;
        let target = failure.target.as_ref().filter(|_| may)?;
        let state = self.targets.state(target)?;
        let attempts = self.scope.attempts();
        let tenant = &self.scope.invocation.tenant;
        if !state.has_fresh_key(now, tenant, KeyHistory::new(&attempts)) {
            return None;
        }
        self.request.rotates = true;
        self.request.adapted = false;
        let at_once = Wait {
            duration: Duration::ZERO,
            source: WaitSource::Backoff,
        };
        let target = Some(target.clone());
        Some(self.again(failure, at_once, RecoveryStrategy::Retry, target))
    }
}
