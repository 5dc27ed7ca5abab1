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
pub mod item_source;
pub mod left_out;
pub mod message;
pub mod own_fields;
pub mod release;
pub mod secret;
pub mod semconv;
pub mod stop_reason;
pub mod stop_sequence;
pub mod target;
pub mod tool;
pub mod units;
pub mod upstream;
pub mod wire;
