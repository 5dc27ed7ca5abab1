//! Relight relights failed model calls in flight.
//!
//! The map, from the bottom up; a module imports only from those above it in this list:
//!
//! - [`domain`]: the domain types. Plain data.
//! - [`events`]: the bus on which all events are published.
//! - [`policy`]: decisions as pure functions and small state machines.
//! - [`config`]: the operator's settings, as plain data.
//! - [`outbound`]: HTTP requests that leave this process.
//! - [`layers`]: thin services that apply the policies; [`provider`]: clients of the model
//!   providers; [`tool`]: those of tool servers; [`telemetry`]: traces, metrics and logs;
//!   [`journal`]: the durable record. These do not import each other.
//! - [`stack`]: the order of the layers.
//! - [`engine`]: a running configuration: resolves requests and runs them.
//! - [`execution`]: running invocations: numbered, recorded, followed, taken over; [`scenarios`]:
//!   measures the recovery policy by running the real stack over scripted providers, in virtual
//!   time.
//! - [`grpc`]: the services, and conversion between the contract and the domain; [`front`]: the
//!   OpenAI-compatible HTTP front. These do not import each other.
//! - [`wire_server`]: a server that fails on demand, over real sockets, for the demo and the tests.
//! - [`server`]: starts a configuration's listeners and returns a running Relight.
//! - [`cli`]: the command line.
//! - [`internals`]: what tests, benches and fuzz targets use directly.

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
mod outbound;
mod policy;
mod provider;
mod scenarios;
mod server;
mod stack;
mod telemetry;
mod tool;
mod wire_server;
