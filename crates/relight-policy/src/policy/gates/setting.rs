//! The settings of the gates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatePolicy {
    /// If set, the rate gate reads the remaining and reset headers of successful responses, and
    /// closes before the limit is hit.
    pub pace: bool,
}

// === impl GatePolicy ===

impl Default for GatePolicy {
    fn default() -> Self {
        Self { pace: true }
    }
}
