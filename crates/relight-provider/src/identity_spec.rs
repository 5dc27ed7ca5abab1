//! The specification of a cloud identity: plain values that the configuration maps to.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cloud that gives identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Cloud {
    /// AWS: environment, profile, web identity (IRSA), container (ECS, EKS Pod Identity), instance
    /// metadata (`IMDSv2`), in this order.
    Aws,
    /// Google: application default credentials (`GOOGLE_APPLICATION_CREDENTIALS`, the file of
    /// `gcloud`, the metadata server), also of federated workloads.
    Google,
    /// Azure: client secret, workload identity (federated token file), managed identity.
    Azure,
}

/// An identity that requests are made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentitySpec {
    /// The cloud.
    pub cloud: Cloud,
    /// Scope of the tokens; unset: the cloud's own for models. AWS has none.
    pub scope: Option<String>,
    /// Variables of the environment that the cloud's own tools read.
    pub variables: Variables,
}

/// Variables of the environment; their values are not printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

// === impl Variables ===

impl Variables {
    /// Names of all variables that are read.
    pub const NAMES: &[&str] = &[
        "HOME",
        "USERPROFILE",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_CONFIG_FILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ENDPOINT_URL_STS",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUDSDK_CONFIG",
        "GCE_METADATA_HOST",
        "AZURE_TENANT_ID",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_AUTHORITY_HOST",
        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
        "IDENTITY_ENDPOINT",
        "IDENTITY_HEADER",
    ];

    /// Takes those that are set from an environment.
    #[must_use]
    pub fn of(environment: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &&str| Some(((*name).to_owned(), environment(name)?));
        Self(Self::NAMES.iter().filter_map(set).collect())
    }

    /// Returns a variable that is set to some text.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns a file below the user's home.
    pub(super) fn below_home(&self, path: &str) -> Option<String> {
        let home = self.get("HOME").or_else(|| self.get("USERPROFILE"))?;
        Some(format!("{home}/{path}"))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
