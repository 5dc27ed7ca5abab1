//! What a verdict rests on, since words prove less than a status: a refusal may quote the request
//! of one caller.

use serde::{Deserialize, Serialize};

/// Kind of fact that a verdict rests on; if several lead to the same class, the first of these.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum VerdictBasis {
    /// Observation or decision of this service itself: a fault of its own client, or a rule of the
    /// configuration.
    Own,
    /// The HTTP or gRPC status of the response.
    Status,
    /// A code of the response (`"code": "insufficient_quota"`), as a whole.
    Code,
    /// The words of a text.
    #[default]
    Words,
}

impl VerdictBasis {
    /// Returns the kind's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
