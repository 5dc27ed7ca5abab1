//! The database as the journal uses it: a pool, its dialect, and one writer at a time where it takes no more.

use sqlx::{Any, AnyConnection, AnyPool, Transaction};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::{JournalError, Limits, changes::Notices, vault::Vault};
use crate::domain::ids::InvocationId;

/// What differs between the databases.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Dialect {
    /// How a writing transaction begins.
    pub(in super::super) begin: &'static str,
    /// Ends a select whose rows will be written in the same transaction.
    pub(in super::super) for_update: &'static str,
    /// The same, but passing over rows that somebody else writes.
    pub(in super::super) for_update_free: &'static str,
    /// Whether the database takes one writer at a time: they then queue fairly here, instead of polling there.
    pub(in super::super) one_writer: bool,
}

/// A database with the journal's tables.
pub(in super::super) struct Store {
    pub(super) pool: AnyPool,
    pub(super) limits: Limits,
    pub(super) dialect: Dialect,
    pub(super) notices: Notices,
    pub(super) vault: Vault,
    outward: Option<Outward>,
    turn: Option<Semaphore>,
}

/// Tells other replicas of changes; a hint, so it is never waited for.
pub(in super::super) type Outward = Box<dyn Fn(&InvocationId) + Send + Sync>;

/// A writing transaction; dropped without a commit, nothing of it happened.
pub(super) struct Writing<'a> {
    transaction: Transaction<'static, Any>,
    // Dropped after the transaction.
    _turn: Option<SemaphorePermit<'a>>,
}

// === impl Store ===

impl Store {
    /// A store over a pool whose database is migrated.
    pub(in super::super) fn new(pool: AnyPool, limits: Limits, dialect: Dialect) -> Self {
        let turn = dialect.one_writer.then(|| Semaphore::new(1));
        Self { pool, limits, dialect, notices: Notices::default(), vault: Vault::default(), outward: None, turn }
    }

    /// The same store, which also tells others of changes.
    pub(in super::super) fn telling(self, outward: impl Fn(&InvocationId) + Send + Sync + 'static) -> Self {
        Self { outward: Some(Box::new(outward)), ..self }
    }

    /// The same store, which encrypts content.
    pub(super) fn sealed_by(self, vault: Vault) -> Self {
        Self { vault, ..self }
    }

    /// Where readers of this replica listen.
    pub(in super::super) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Begins to write.
    pub(super) async fn write(&self) -> Result<Writing<'_>, JournalError> {
        let turn = match &self.turn {
            Some(turn) => Some(turn.acquire().await.map_err(|error| JournalError::Unavailable(error.to_string()))?),
            None => None,
        };
        Ok(Writing { transaction: self.pool.begin_with(self.dialect.begin).await?, _turn: turn })
    }

    /// Tells readers everywhere.
    pub(super) fn announce(&self, id: &InvocationId) {
        self.notices.announce(id);
        if let Some(outward) = &self.outward {
            outward(id);
        }
    }
}

// === impl Writing ===

impl Writing<'_> {
    /// The connection, within the transaction.
    pub(super) fn db(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }

    /// Makes it all durable.
    pub(super) async fn commit(self) -> Result<(), JournalError> {
        Ok(self.transaction.commit().await?)
    }
}
