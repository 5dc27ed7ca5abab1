//! The version of a target or tool server, by which its releases are distinguished.

use serde::{Deserialize, Serialize};

/// Identity of one version of a target or tool server: another value of any of these is another
/// release.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReleaseVersion {
    /// The target or tool server that serves it.
    pub target: String,
    /// The model as its provider names it; empty for a tool server.
    pub model: String,
    /// Address at which it is reached, without credentials.
    pub endpoint: String,
    /// SHA-256 of its prompt in hex; empty if it has none.
    pub prompt_hash: String,
    /// SHA-256 of its tool schemas in hex; empty if it has none.
    pub schema_hash: String,
}

// === impl ReleaseVersion ===

impl ReleaseVersion {
    /// Returns the id of the release: its target, and eight hex digits of what else makes it this
    /// version.
    #[must_use]
    pub fn id(&self) -> String {
        // FNV-1a: small, and the same on every replica and after every restart.
        let parts = [
            &self.model,
            &self.endpoint,
            &self.prompt_hash,
            &self.schema_hash,
        ];
        let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0]));
        let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        format!("{}@{hash:08x}", self.target)
    }
}
