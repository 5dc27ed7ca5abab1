//! Named policies: how calls are retried and whether the model is told, as one word that routes refer to.
//!
//! Four are built in; a policy of the same name in the file is laid over it, any other over `standard`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{domain::invocation::InjectionMode, policy::inject::InjectionPolicy};

/// The policy of routes that name none.
pub const STANDARD: &str = "standard";

/// One policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Whether and how the model is told of its failure.
    pub injection: InjectionPolicy,
}

/// The policies that are always there.
pub(super) fn built_in() -> BTreeMap<String, PolicyConfig> {
    let standard = PolicyConfig::default();
    let silent = InjectionPolicy { mode: InjectionMode::Never, ..InjectionPolicy::default() };
    BTreeMap::from([
        (STANDARD.to_owned(), standard.clone()),
        ("agent".to_owned(), standard.clone()),
        ("patient".to_owned(), standard),
        ("none".to_owned(), PolicyConfig { injection: silent }),
    ])
}

/// What a policy of that name is laid over.
pub(super) fn built_in_or_standard(name: &str) -> PolicyConfig {
    built_in().remove(name).unwrap_or_default()
}
