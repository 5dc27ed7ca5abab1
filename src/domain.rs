//! The domain types of Relight: plain data that every other module uses, without I/O and without
//! policy.

pub mod adaptation;
pub mod circuit;
pub mod clock;
pub mod completion;
pub mod event;
pub mod failure;
pub mod fold;
pub mod ids;
pub mod invocation;
pub mod message;
pub mod release;
pub mod semconv;
pub mod target;
pub mod tool;
pub mod units;
pub mod upstream;
pub mod wire;
