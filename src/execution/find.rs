//! Finding what the journal knows of an invocation.

use super::{Executions, InvocationName};
use crate::{
    domain::ids::{InvocationId, TenantId},
    journal::{Entry, ExecutionListing, JournalError, Listing, Record, ToolExecution},
};

impl Executions {
    /// Returns the invocation of a tenant, by name.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn find(
        &self,
        tenant: &TenantId,
        name: &InvocationName,
    ) -> Result<Option<Record>, JournalError> {
        let found = match name {
            InvocationName::Id(id) => self.shared.journal.get(id).await?,
            InvocationName::Request(request) => {
                self.shared.journal.get_by_request(tenant, request).await?
            }
        };
        Ok(found.filter(|record| record.tenant == *tenant))
    }

    /// At most `limit` of the wanted invocations, newest first.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn list(&self, wanted: &Listing, limit: usize) -> Result<Vec<Record>, JournalError> {
        self.shared.journal.list(wanted, limit).await
    }

    /// At most `limit` of the wanted executions of tools, newest first.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn executions(
        &self,
        wanted: &ExecutionListing,
        limit: usize,
    ) -> Result<Vec<ToolExecution>, JournalError> {
        self.shared.journal.executions(wanted, limit).await
    }

    /// Returns the recorded steps of an invocation, at most `limit`.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn steps(&self, id: &InvocationId, limit: usize) -> Result<Vec<Entry>, JournalError> {
        Ok(self
            .shared
            .journal
            .read(id, 0, limit)
            .await?
            .map(|page| page.entries)
            .unwrap_or_default())
    }

    /// Returns an invocation of any tenant by its id, for administrators.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn find_of_any(&self, id: &InvocationId) -> Result<Option<Record>, JournalError> {
        self.shared.journal.get(id).await
    }
}
