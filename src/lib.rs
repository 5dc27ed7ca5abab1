//! Relight relights failed model calls in flight.
//!
//! The map, from the bottom up; a module imports only from those above it in this list:
//!
//! - [`domain`]: the words as types. Plain data.
//! - [`events`]: the bus on which everything that happens is published.
//! - [`policy`]: decisions as pure functions and small state machines.
//! - [`config`]: what the operator wants, as plain data.
//! - [`layers`]: the thin services that obey the policies; [`provider`]: the wires to models; [`telemetry`]: what
//!   people see of it; [`journal`]: the durable record. These do not know each other.
//! - [`stack`]: the order of the layers.
//! - [`engine`]: a configuration made alive: resolves what is asked and runs it.
//! - [`execution`]: running invocations: numbered, recorded, followed, taken over; [`scenarios`]: the measure of the
//!   recovery policy: the real stack over scripted upstreams, in virtual time.
//! - [`grpc`]: the services, and conversion between the contract and the domain; [`front`]: the OpenAI-compatible
//!   HTTP front. These do not know each other.
//! - [`wire_server`]: providers that fail on demand, over real sockets, for the demo and the tests.
//! - [`server`]: a configuration and its listeners in, a running Relight out.
//! - [`cli`]: the command line, all that the program consists of.
//! - [`internals`]: what the tests, benches and fuzz targets use directly.

pub mod cli;
mod config;
mod domain;
mod engine;
mod events;
mod execution;
mod front;
mod grpc;
#[doc(hidden)]
pub mod internals;
mod journal;
mod layers;
mod policy;
mod provider;
mod scenarios;
mod server;
mod stack;
mod telemetry;
mod wire_server;
