//! The identity that a cloud gives to what runs in it, in the place of a provider's keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::provider::{Cloud, IdentitySpec, Variables};

/// An identity of a cloud. Its tokens are exchanged as the cloud's own tools do, by the environment
/// (`AWS_PROFILE`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_CLIENT_ID`, …) and the machine, and
/// renewed before they end.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// The cloud: `aws` for Bedrock, `google` for Vertex, `azure` for Azure `OpenAI` and Foundry.
    pub cloud: Cloud,
    /// Scope of the tokens; unset: `https://www.googleapis.com/auth/cloud-platform` for Google and
    /// `https://cognitiveservices.azure.com/.default` for Azure. AWS has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Variables of the environment when the configuration was loaded.
    #[serde(skip)]
    pub loaded: Variables,
}

// === impl IdentityConfig ===

impl IdentityConfig {
    /// Returns what a provider's client needs.
    #[must_use]
    pub fn spec(&self) -> IdentitySpec {
        IdentitySpec {
            cloud: self.cloud,
            scope: self.scope.clone(),
            variables: self.loaded.clone(),
        }
    }
}
