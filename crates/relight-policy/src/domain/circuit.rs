//! The states of a circuit and the kinds of gates, under the names that events, operators and
//! metrics share.
//!
//! The breaker itself is in `policy`; its states are plain data, so that an event can hold the
//! state before and after.

use serde::{Deserialize, Serialize};

/// A circuit's state as people and metrics see it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CircuitState {
    /// Everything is admitted.
    #[default]
    Closed,
    /// Nothing is admitted until a time.
    Open,
    /// A few probes are admitted.
    HalfOpen,
    /// A share is admitted, in stages.
    Recovering,
    /// Held open by an operator.
    ForcedOpen,
    /// Held closed by an operator; evidence is counted and changes nothing.
    ForcedClosed,
}

// === impl CircuitState ===

impl CircuitState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Closed,
        Self::Open,
        Self::HalfOpen,
        Self::Recovering,
        Self::ForcedOpen,
        Self::ForcedClosed,
    ];

    /// Returns the state's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether every call passes, either on evidence or because an operator forced it.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed | Self::ForcedClosed)
    }

    /// Returns whether no call passes, either on evidence or because an operator forced it.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::ForcedOpen)
    }
}

/// Scope that a gate of a target guards.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum GateKind {
    /// The provider's rate limit for a credential and model.
    Rate,
    /// The credential, which the provider rejected.
    Credential,
    /// The model, which does not exist at the provider.
    Configuration,
}

impl GateKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Rate, Self::Credential, Self::Configuration];

    /// Returns the gate's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
