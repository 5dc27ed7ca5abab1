//! Between the contract (`relight.v1`) and the domain: every wire type is read or written here and nowhere else.
//!
//! Reading checks everything at once and tells every fault with the path of its field, so that a caller mends a
//! request in one go. Writing never fails: what the domain does not know goes out as the contract's "unknown".
//! Nothing here decides anything: no policy, no configuration, no clock.
//!
//! What the domain has no place for is refused with its path where losing it would change what a model sees or needs
//! back (opaque values outside reasoning and tool calls, ids of uploaded files, media in tool results). What is only a
//! hint is passed over (a speaker's name, an image's detail, `strict`, an opaque value's origin).

pub mod enums;
pub mod event;
pub mod facts;
pub mod filter;
pub mod invocation;
pub mod message;
pub mod metadata;
pub mod model;
pub mod outcome;
pub mod request;
pub mod stream;
pub mod time;
#[cfg(test)]
mod unset;
pub mod violation;

pub use violation::Violations;
