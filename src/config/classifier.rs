//! Rules of the operator's own by which failures are judged, above the built-in tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::classify::UserRule;

/// How failures are judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifierConfig {
    /// Rules that are asked before the built-in ones; the first that holds decides.
    pub rules: Vec<UserRule>,
}
