//! A value that is used but not shown: keys, tokens, URLs with a password in them.
//!
//! Its `Debug` and its `Serialize` print a placeholder, so that a configuration can be shown,
//! logged and compared safely. The memory is wiped when the last owner drops it. It implements no
//! comparison, hash or display.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};

/// The placeholder for a secret.
pub const REDACTED: &str = "[redacted]";

/// A secret text.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(SecretString);

// === impl Secret ===

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(SecretString::from(secret.into()))
    }

    /// Returns the secret itself, for the one line that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::new(secret)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "writeOnly": true,
            "description": "A secret; write it as a reference to the environment, such as ${OPENAI_API_KEY}."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_by_nothing_but_expose() {
        let secret = Secret::new("sk-very-secret");
        assert!(!format!("{secret:?}").contains("very"));
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"[redacted]\"");
        assert_eq!(secret.expose(), "sk-very-secret");
    }
}
