//! The fingerprint of a request: equal for equal requests, whatever their time and labels.
//!
//! It decides whether a repeated `request_id` means the same request. Time, trace, labels and ids
//! are excluded, since a legitimate repetition differs in them.
//!
//! Two versions of Relight serve one journal while replicas are exchanged, so that a request must have one
//! fingerprint in both: a field that is added to a call or to its overrides is left out of the JSON while it is
//! not set (`skip_serializing_if`). The tests of upgrades compare with the fingerprints of earlier versions.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::domain::{
    ids::{Operation, RouteName, ThreadId},
    invocation::{Call, Invocation, Overrides},
};

/// SHA-256 of the canonical request, hex; empty for a request without a request id.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

#[derive(Serialize)]
struct Canonical<'a> {
    route: &'a RouteName,
    operation: &'a Operation,
    thread: &'a Option<ThreadId>,
    call: &'a Call,
    overrides: &'a Overrides,
}

// === impl Fingerprint ===

impl Fingerprint {
    /// Of an invocation.
    #[must_use]
    pub fn of(invocation: &Invocation) -> Self {
        let Invocation {
            route,
            operation,
            thread,
            call,
            overrides,
            ..
        } = invocation;
        let canonical = Canonical {
            route,
            operation,
            thread,
            call,
            overrides,
        };
        // These types are plain data with text keys, which JSON can always express.
        let value = serde_json::to_value(canonical).unwrap_or(Value::Null);
        let mut hasher = Sha256::new();
        hasher.update(sorted(value).to_string());
        Self(format!("{:x}", hasher.finalize()))
    }

    /// A fingerprint that was stored or computed elsewhere.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the value with the keys of every object in order, so that maps that were built
/// differently are equal.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(fields) => {
            let mut fields: Vec<(String, Value)> = fields
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
