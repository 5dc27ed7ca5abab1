//! Executions as their followers see them, in virtual time: cut, stalled, left, resumed, crashed
//! and taken over.

mod endless;
mod extending;
mod failing;
mod harness;
mod lease_model;
mod lost_record;
mod ownership;
mod properties;
mod readers;
pub(super) mod steps;
mod threads;
