//! Answer that is being read, and the end of the earlier ones.

use super::{decide::StreamBreaks, extend::Extension};
use crate::{
    layers::{Deltas, assembler::DeltaAssembler},
    policy::retry::Relayed,
};

/// State of the phase that reads.
#[derive(Default)]
pub(super) struct Reading {
    /// Makes the steps of the call of what its attempts deliver.
    pub(super) assembler: DeltaAssembler,
    /// Answer that is read, until it is decided how its attempt ended; that is reported when it is
    /// dropped.
    pub(super) deltas: Option<Deltas>,
    /// State that followers hold of the last attempt.
    pub(super) relayed: Relayed,
    /// The last attempt was given up because it said something else than what was sent.
    pub(super) diverged: bool,
    pub(super) extension: Extension,
    pub(super) breaks: StreamBreaks,
}
