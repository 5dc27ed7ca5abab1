//! Routes over targets, the operations that change their policy, and what callers may override.
//!
//! Plain data; the policy in force for a call is looked up in `policy.rs`.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::{
        ids::{Operation, TargetId},
        invocation::InjectionMode,
        units,
    },
    policy::{hedge::HedgePolicy, overflow::Overflow, select::SelectPolicy, timers::TimersPolicy},
};

/// One route: its targets in the order of preference, and how calls on it are recovered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteConfig {
    /// The targets, best first (at least one, none twice).
    #[schemars(with = "Vec<String>")]
    pub targets: Vec<TargetId>,
    /// Time that a call may take if its caller names no deadline (above 0s).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub deadline: Duration,
    /// The longest deadline that a caller may request; longer ones are shortened.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_deadline: Duration,
    /// The policy, by its name in `policies`; unset: `standard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Operations on this route that differ from the ones in `operations`.
    #[schemars(with = "BTreeMap<String, OperationConfig>")]
    pub operations: BTreeMap<Operation, OperationConfig>,
    /// What is done about a conversation that outgrew the context windows of all targets: `fail`;
    /// `drop_tool_results`: the contents of tool results are left out, the oldest first;
    /// `drop_middle`: messages between the first and the newest are. Default `fail`.
    pub overflow: Overflow,
    /// Policy by which its targets are chosen.
    pub select: SelectPolicy,
    /// Policy by which a second target is called beside a slow first one.
    pub hedge: HedgePolicy,
    /// Time for which its attempts may be silent, if it differs from `timers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timers: Option<TimersPolicy>,
    /// Settings that callers may change.
    pub allow_overrides: AllowedOverrides,
}

/// Recovery of one operation, if it differs from its route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OperationConfig {
    /// `false`: one attempt and no more. Unset: `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The policy, by its name in `policies`; unset: the route's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Attempts after the first, over all targets (0 to 5); unset: the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// Time at which the model is informed of its failure; unset: the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<InjectionMode>,
}

/// Settings that callers may change per call; an override that is not allowed is rejected, not
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AllowedOverrides {
    /// The most retries that a caller may request (0 to 5); fewer than the policy's are always
    /// allowed.
    pub max_retries: u32,
    /// If set, a caller may restrict the targets to some of the route's.
    pub targets: bool,
    /// If set, a caller may name another policy.
    pub policy: bool,
    /// The longest that an invocation may continue without its client; 0s: not at all.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_resumable_grace: Duration,
}

// === impl RouteConfig ===

impl Default for RouteConfig {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            deadline: Duration::from_mins(2),
            max_deadline: Duration::from_mins(10),
            policy: None,
            operations: BTreeMap::new(),
            overflow: Overflow::default(),
            select: SelectPolicy::default(),
            hedge: HedgePolicy::default(),
            timers: None,
            allow_overrides: AllowedOverrides::default(),
        }
    }
}

// === impl AllowedOverrides ===

impl Default for AllowedOverrides {
    fn default() -> Self {
        Self {
            max_retries: 5,
            targets: true,
            policy: true,
            max_resumable_grace: Duration::from_mins(5),
        }
    }
}
