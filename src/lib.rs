//! Relight relights failed model calls in flight.
//!
//! The map, from the bottom up; a module imports only from those above it in this list:
//!
//! - [`domain`]: the domain types. Plain data. It and [`policy`] are the crate `relight-policy`.
//! - [`call_error`]: the errors with which calls end, as one table.
//! - [`events`]: the bus on which all events are published.
//! - [`policy`]: decisions as pure functions and small state machines.
//! - [`outbound`]: HTTP requests that leave this process; [`provider`]: clients of the model
//!   providers; [`tool`]: those of tool servers; [`journal`]: the durable record. Each is a crate.
//! - [`config`]: the operator's settings, as plain data.
//! - [`layers`]: thin services that apply the policies; [`telemetry`]: traces, metrics and logs.
//!   These do not import each other.
//! - [`stack`]: the order of the layers.
//! - [`engine`]: a running configuration: resolves requests and runs them.
//! - [`execution`]: running invocations: numbered, recorded, followed, taken over; [`scenarios`]:
//!   measures the recovery policy by running the real stack over scripted providers, in virtual
//!   time; [`fleet`]: what this replica shares with others. These do not import each other.
//! - [`grpc`]: the services, and conversion between the contract and the domain; [`front`]: the
//!   OpenAI-compatible HTTP front. These do not import each other.
//! - [`server`]: starts a configuration's listeners and returns a running Relight.
//! - [`cli`]: the command line.
//! - [`internals`]: what tests, benches and fuzz targets use directly.

use relight_journal as journal;
use relight_outbound as outbound;
use relight_policy::{domain, policy};
use relight_provider as provider;
use relight_tool as tool;

mod call_error;
pub mod cli;
mod config;
mod engine;
mod events;
mod execution;
mod fleet;
mod front;
mod grpc;
#[doc(hidden)]
pub mod internals;
mod layers;
#[cfg(feature = "lab")]
mod scenarios;
mod server;
mod stack;
mod telemetry;
