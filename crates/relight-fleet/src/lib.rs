//! Lets replicas act as one: what one of them learns of an outage, a used-up quota or a refused
//! key, the others know, too.
//!
//! Replicas share evidence and leases and not state: a store that is away or wrong costs what one
//! replica alone would lose, and nothing of it is on the way of a call whose circuit is closed. The
//! page for users is `docs/fleet.md`.
//!
//! - [`fact`]: what replicas tell each other.
//! - [`store`]: the few operations that a store has; [`memory`] for tests, [`postgres`], [`valkey`].
//! - [`core`]: decides, without I/O, what is to be published and what follows from the facts of
//!   others.
//! - [`exchange`]: connects a core, a store, and a running Relight.

pub mod core;
pub mod exchange;
pub mod fact;
pub mod memory;
pub mod postgres;
mod speed;
pub mod store;
pub mod valkey;

pub use crate::{
    core::{FleetCore, FleetEffect, LocalFact},
    exchange::{Exchange, Fleet, FleetStatus, LocalReplica},
    fact::{
        CircuitFact, FactSubject, FleetMember, GateFact, OperatorOrder, OperatorWord, ReplicaFact,
    },
    memory::MemoryStore,
    postgres::PostgresStore,
    store::{FleetStore, FleetStoreError, ProbeLease, RecordWrite, StoredRecord},
    valkey::{ValkeyAddress, ValkeyStore},
};

#[cfg(test)]
mod tests;
