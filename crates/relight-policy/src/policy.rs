//! Policies: decisions as pure functions and small state machines over time, random numbers and
//! history passed in.
//!
//! No async, no clock, no I/O: a layer calls the policy and applies its decision.

pub mod adapt;
pub mod admission;
pub mod answer;
pub mod backoff;
pub mod circuit;
pub mod classify;
pub mod concurrency;
pub mod continuation;
pub mod corpus;
mod duration_text;
pub mod fence;
pub mod gates;
pub mod health;
pub mod hedge;
pub mod inject;
pub mod latency;
mod markup;
pub mod overflow;
mod phrase;
mod provider_message;
pub mod quoted;
pub mod redact;
pub mod release;
pub mod retry;
pub mod retry_budget;
pub mod rng;
pub mod schema;
pub mod secrets;
pub mod select;
pub mod shown_url;
mod sliding;
pub mod tenant_limits;
pub mod texts;
pub mod timers;
pub mod tool_recovery;
mod traceback;
pub mod window;
