//! Relight relights failed model calls in flight.
//!
//! The map, from the bottom up; a module imports only from those above it in this list:
//!
//! - [`domain`]: the words as types. Plain data.
//! - [`events`]: the bus on which everything that happens is published.
//! - [`policy`]: decisions as pure functions and small state machines.
//! - [`provider`]: the wire to the models, and the embedded model that needs none.

pub mod domain;
pub mod events;
pub mod policy;
pub mod provider;
