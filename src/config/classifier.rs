//! The operator's own classification rules, which precede the built-in ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::classify::UserRule;

/// Settings of how failures are classified.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifierConfig {
    /// Rules that are tried before the built-in ones; the first that matches decides.
    pub rules: Vec<UserRule>,
}
