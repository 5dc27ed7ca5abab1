//! The layers: thin tower services that carry out what a policy decides.
//!
//! Each file is one layer. `stack.rs` lists them in order, each with its reason. Those of the
//! invocation plane are tower services, which refuse in `call` and never in `poll_ready`; those of
//! the attempt plane are built on [`guarded`]. What must happen on cancellation sits in a guard's
//! `Drop`. State that outlives a call (circuits, gates, budgets) lives in [`targets`] and is looked
//! up, never owned by a layer.

pub mod admit;
pub mod affinity;
pub mod append_only;
pub mod assembler;
pub mod attempt;
pub mod cancel;
pub mod circuit;
pub mod classify;
pub mod concurrency;
pub mod deadline;
pub mod event;
pub mod gates;
pub mod guarded;
pub mod hedge;
mod held;
pub mod inject;
pub mod invocation;
pub mod observe;
pub mod observe_attempt;
mod refusals;
mod resume_text;
pub mod retry;
pub mod select;
pub mod spans;
pub mod targets;
pub mod tenant_limits;
pub mod timers;
pub mod tools;
pub mod trace_wire;

use std::pin::Pin;

use futures_util::Stream;

use crate::domain::{completion::Delta, failure::Failure, fold::StreamStep};

/// A running invocation: steps that end in exactly one `StreamStep::Terminal`. Dropping it cancels
/// everything below.
pub type StepStream = Pin<Box<dyn Stream<Item = StreamStep> + Send>>;

/// A running attempt: deltas that end with a `Delta::Finish` or with one judged failure.
pub type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, Box<Failure>>> + Send>>;

/// Future that a layer's `call` returns.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
