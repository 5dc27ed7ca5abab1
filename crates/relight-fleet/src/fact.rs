//! Facts that replicas tell each other, as JSON that later versions may add to.
//!
//! Nothing in it is a key, a prompt or an answer: targets and accounts are hashes, refusals are a
//! class and a status. A fact that this version does not know is passed over.

use std::{fmt, time::Duration};

use relight_policy::policy::{
    circuit::{Forced, SharedPhase, SharedWindow},
    gates::SharedClosing,
};
use serde::{Deserialize, Serialize};

/// Subject of a fact: the hash of a target's or an account's identity, with its kind before it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FactSubject(pub String);

/// One fact of one replica, or a word of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ReplicaFact {
    /// A replica lives.
    Member(FleetMember),
    /// A gate is closed, or was.
    Gate(GateFact),
    /// A circuit is not closed, or may not stay so; or what this replica saw of such a target.
    Circuit(CircuitFact),
    /// An operator holds a circuit, or lets it judge again.
    Word(OperatorWord),
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FleetMember {
    /// Id of this process and no other, also not the same one started again.
    pub id: String,
    /// Name that people know it by, such as the pod's.
    pub name: String,
    /// Version of Relight.
    pub version: String,
    /// URL at which other replicas reach its gRPC API; empty if there is none.
    pub address: String,
    /// Hash of the journal's location, the same at replicas that share it; empty if nobody else
    /// can have it.
    #[serde(default)]
    pub journal: String,
}

/// A gate at one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateFact {
    /// Number of the closing: the next one is larger at every replica that knows this one.
    pub episode: u64,
    /// The closing; `None` if it is over, which counts before a closing of the same number.
    pub closing: Option<SharedClosing>,
    /// `true` if calls of this replica were refused, rather than those of another one.
    #[serde(default)]
    pub own: bool,
}

/// A target at one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitFact {
    /// Number of the opening: the next one is larger at every replica that knows this one.
    pub episode: u64,
    /// State of its circuit in that opening.
    pub phase: SharedPhase,
    /// Milliseconds until calls may pass again.
    #[serde(default)]
    pub retry_ms: u64,
    /// `true` if calls of this replica failed, rather than those of another one.
    #[serde(default)]
    pub own: bool,
    /// Outcomes of its calls.
    pub window: SharedWindow,
}

/// An operator's word about a target, which belongs to all replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorWord {
    /// Distinguishes two words that were said at the same time.
    pub id: String,
    /// Number of the word: the next one about the same target is larger.
    pub epoch: u64,
    /// The demand.
    pub order: OperatorOrder,
    /// Name of the operator, if operators are authenticated.
    #[serde(default)]
    pub operator: Option<String>,
    /// The operator's reason.
    #[serde(default)]
    pub reason: String,
}

/// Demand of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorOrder {
    /// To hold a circuit in a state, or to let it judge again.
    Force(Forced),
    /// To forget the evidence, close the circuit and open the gates.
    Reset,
}

// === impl FactSubject ===

impl fmt::Display for FactSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl ReplicaFact ===

impl ReplicaFact {
    /// Returns the fact that a record holds; `None` if this version does not know it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns it as text.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the same fact as it is after this time.
    #[must_use]
    pub fn after(self, passed: Duration) -> Self {
        match self {
            Self::Member(_) | Self::Word(_) => self,
            Self::Gate(gate) => Self::Gate(GateFact {
                closing: gate.closing.map(|closing| closing.after(passed)),
                ..gate
            }),
            Self::Circuit(circuit) => {
                let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
                Self::Circuit(CircuitFact {
                    retry_ms: circuit.retry_ms.saturating_sub(passed_ms),
                    window: circuit.window.after(passed),
                    ..circuit
                })
            }
        }
    }
}
