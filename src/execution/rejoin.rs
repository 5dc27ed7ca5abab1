//! Coming back to an invocation with the request that began it.

use std::sync::Arc;

use super::{Executions, InvocationName, Started};
use crate::{
    call_error::{CallError, table::INVOCATION_NOT_FOUND},
    domain::ids::InvocationId,
    journal::Fingerprint,
    layers::invocation::InvocationContext,
};

impl Executions {
    /// Returns the invocation `id` behind the step that its client has; `None` if another request
    /// began it, or one that was not to be resumed. Nothing is begun.
    ///
    /// # Errors
    /// When the tenant has no such invocation, or the journal fails.
    pub async fn rejoin(
        &self,
        mut incoming: InvocationContext,
        id: &InvocationId,
        after: (u64, u64),
    ) -> Result<Option<Started>, CallError> {
        let name = InvocationName::Id(id.clone());
        let record = self.find(&incoming.invocation.tenant, &name).await?;
        let record =
            record.ok_or_else(|| CallError::new(INVOCATION_NOT_FOUND).fact("invocation", id))?;
        let invocation = Arc::make_mut(&mut incoming.invocation);
        // A thread may be named after the invocation that it began with.
        invocation.thread.clone_from(&record.thread);
        let is_same = record.request_id == invocation.request_id
            && record.fingerprint == Fingerprint::of(invocation);
        Ok(is_same.then(|| self.follow(&record, Some(after))))
    }
}
