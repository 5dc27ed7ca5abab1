//! Invocations whose clients were lost: a lost connection is not an outcome.
//!
//! The same request id and body run again after a client that was gone, as if the id had never been
//! used.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{ExecutionShared, Executions, follower::Follower};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        ids::{RequestId, TenantId},
        invocation::Outcome,
    },
    journal::{Fingerprint, JournalError, Record},
};

/// Reason for the cancellation of an invocation that no client follows any more.
pub(super) const CLIENT_GONE: &str = "client gone";

/// Time that a repeated request waits for the end of the abandoned one.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Number of times a request id is looked up whose invocation is being abandoned.
const ROUNDS: usize = 3;

impl Executions {
    /// Returns the number of invocations that run here.
    pub fn running(&self) -> usize {
        self.shared.running().len()
    }
}

impl ExecutionShared {
    /// Returns the invocation that a request id names. One that ended because its clients were gone
    /// does not count: its request id is free again for the same request.
    pub(super) async fn earlier(
        self: &Arc<Self>,
        tenant: &TenantId,
        request: &RequestId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Record>, JournalError> {
        for _ in 0..ROUNDS {
            let Some(record) = self.journal.get_by_request(tenant, request).await? else {
                return Ok(None);
            };
            if record.fingerprint != *fingerprint {
                return Ok(Some(record));
            }
            if record.outcome.as_deref().is_some_and(is_abandoned) {
                self.journal.free_request(&record.id).await?;
                return Ok(None);
            }
            let ending = self
                .execution(&record.id)
                .filter(|running| running.links.cancel.reason() == Some(CLIENT_GONE));
            let Some(ending) = ending.filter(|_| !record.is_finished()) else {
                return Ok(Some(record));
            };
            let mut follower = Follower::of(Arc::clone(self), &ending);
            // A time-out is a reason to look again, too.
            let _ = timeout(ENDS_WITHIN, follower.outcome()).await;
        }
        self.journal.get_by_request(tenant, request).await
    }
}

/// Returns whether an invocation ended only because its clients were gone.
pub(super) fn is_abandoned(outcome: &Outcome) -> bool {
    let cancelled = |failure: &Failure| {
        failure.class == FailureClass::Cancelled && failure.message == CLIENT_GONE
    };
    outcome.result.as_ref().is_err_and(cancelled)
}
