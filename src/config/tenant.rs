//! Settings of a tenant, whichever of its keys, certificates or tokens calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::tenant_limits::TenantLimits;

/// Settings of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantConfig {
    /// The most that it may use; what is beyond is refused with the time to come back.
    pub limits: TenantLimits,
}
