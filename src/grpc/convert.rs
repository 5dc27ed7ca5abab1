//! Converts between the contract (`relight.v1`) and the domain: every wire type is read or written
//! here and nowhere else.
//!
//! Reading checks everything at once and reports every fault with the path of its field, so that a
//! caller can correct a request in one go. Writing cannot fail: what the domain does not know is
//! sent as the contract's "unknown". Nothing is decided here: no policy, no configuration, no
//! clock.
//!
//! What the domain cannot represent is rejected with its path if losing it would change what a
//! model sees or needs back (opaque values outside reasoning and tool calls, ids of uploaded files,
//! media in tool results). A mere hint is ignored (an opaque value's origin).

pub mod answer_view;
pub mod enums;
pub mod event;
pub mod facts;
pub mod filter;
pub mod fleet_cursor;
pub mod invocation;
pub mod learning;
pub mod message;
pub mod metadata;
pub mod model;
pub mod outcome;
pub mod release;
pub mod request;
pub mod stream;
pub mod time;
#[cfg(test)]
mod unset;
pub mod violation;

pub use violation::Violations;
