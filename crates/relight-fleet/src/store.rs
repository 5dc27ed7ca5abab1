//! The few operations that a store has.
//!
//! A store keeps records by subject and owner until their time is over, by its own clock, and hints
//! when something changed. A lost hint costs a reader one polling interval.

use std::time::Duration;

use futures_util::future::BoxFuture;

/// Time from now on within which a record may have been written, and a place may end later than a new
/// one would: more, and the clock of the store was set back since, or the store was copied to
/// another host. Its time is over then, since nobody knows when it will be. The statements of the
/// servers have it as numbers.
pub(crate) const SET_BACK: Duration = Duration::from_mins(1);

/// A record to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordWrite {
    /// The subject that it is about.
    pub subject: String,
    /// The replica whose record it is; empty for a record that belongs to all.
    pub owner: String,
    /// Grows with each record of this subject and owner; one that is not larger changes nothing.
    pub epoch: u64,
    /// The record; `None` removes it.
    pub value: Option<String>,
    /// Time for which it is kept; `None` for good.
    pub lifetime: Option<Duration>,
}

/// A record that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// The subject that it is about.
    pub subject: String,
    /// The replica whose record it is; empty for a record that belongs to all.
    pub owner: String,
    /// Number of the record.
    pub epoch: u64,
    /// The record.
    pub value: String,
    /// Time since it was written, by the store's clock.
    pub age: Duration,
}

/// A demand for one of a few places that all replicas share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeLease {
    /// Name of the lease.
    pub name: String,
    /// Name of the demand: no two have the same.
    pub holder: String,
    /// Number of places.
    pub places: u32,
    /// Time after which a place is free again, unless it is given back before.
    pub lifetime: Duration,
}

/// Error of a store: it cannot be reached, or refuses.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct FleetStoreError(pub String);

/// Store that replicas share; every operation either ends or is abandoned by its caller.
pub trait FleetStore: Send + Sync + 'static {
    /// Returns the name of the engine, as `status` shows it.
    fn engine(&self) -> &'static str;

    /// Keeps or removes these records; `hint`: whether others are told to look.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is not known that all were kept.
    fn publish<'a>(
        &'a self,
        writes: &'a [RecordWrite],
        hint: bool,
    ) -> BoxFuture<'a, Result<(), FleetStoreError>>;

    /// Returns every record whose time is not over.
    ///
    /// # Errors
    /// [`FleetStoreError`] if they cannot be read.
    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<StoredRecord>, FleetStoreError>>;

    /// Listens for hints, and calls `changed` at each one and once at the beginning. Returns when
    /// it cannot listen any longer.
    fn listen<'a>(
        &'a self,
        changed: &'a (dyn Fn() + Send + Sync),
    ) -> BoxFuture<'a, FleetStoreError>;

    /// Takes a place; returns the time until one may be free if there is none now.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is not known.
    fn lease<'a>(
        &'a self,
        lease: &'a ProbeLease,
    ) -> BoxFuture<'a, Result<Result<(), Duration>, FleetStoreError>>;

    /// Gives a place back.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is not known; the place is then free when its time is over.
    fn release<'a>(&'a self, lease: &'a ProbeLease) -> BoxFuture<'a, Result<(), FleetStoreError>>;
}
