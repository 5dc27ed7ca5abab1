//! Checks a value against a JSON Schema that others wrote, at a cost that is bounded before it is
//! spent.
//!
//! Schemas come from callers and from tool servers. One that is endless, huge, refers outside of
//! itself or holds a catastrophic pattern is reported as such; it never holds up a worker and is
//! never fetched from anywhere.

mod budget;
mod nullable;

use std::fmt;

use jsonschema::{PatternOptions, error::ValidationErrorKind};
use serde_json::Value;

use super::inject::Mismatch;

/// Longest schema that a value is checked against, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Most steps back that one pattern of a schema may take on one text.
const MAX_BACKTRACKS: usize = 20_000;
/// Largest compiled pattern of a schema, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Longest limit of a schema that is repeated, in bytes.
const MAX_LIMIT_BYTES: usize = 200;

/// Reason for which a value does not pass a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaFault {
    /// The value does not fit: the first place where it does not.
    Misfit(Mismatch),
    /// The schema cannot be compiled.
    Unreadable,
    /// The check would cost too much, or needs what lies outside of the schema.
    TooCostly,
}

impl fmt::Display for SchemaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misfit(mismatch) => f.write_str(&misfit(mismatch)),
            Self::Unreadable => f.write_str("the schema does not compile"),
            Self::TooCostly => f.write_str(
                "checking the schema would cost too much, or it refers to what lies outside of it",
            ),
        }
    }
}

/// Says what a value misses: `type integer at /limit`, `required at /from`.
#[must_use]
pub fn misfit(mismatch: &Mismatch) -> String {
    let Mismatch {
        path,
        keyword,
        limit,
    } = mismatch;
    let place = if path.is_empty() { "the root" } else { path };
    // The names of all that is required say less than the place of the one that is missing.
    if limit.is_empty() || limit.len() > MAX_LIMIT_BYTES || keyword == "required" {
        format!("{keyword} at {place}")
    } else {
        format!("{keyword} {limit} at {place}")
    }
}

/// Checks a value against a schema.
///
/// # Errors
/// The first thing that keeps it from passing.
pub fn check(schema: &Value, value: &Value) -> Result<(), SchemaFault> {
    let schema = &*nullable::understood(schema);
    if !budget::affords(schema, value) {
        return Err(SchemaFault::TooCostly);
    }
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(MAX_BACKTRACKS)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    let Ok(validator) = jsonschema::options()
        .with_pattern_options(patterns)
        .build(schema)
    else {
        return Err(SchemaFault::Unreadable);
    };
    let Err(error) = validator.validate(value) else {
        return Ok(());
    };
    if matches!(
        error.kind(),
        ValidationErrorKind::BacktrackLimitExceeded { .. }
    ) {
        return Err(SchemaFault::TooCostly);
    }
    let place = error.schema_path().to_string();
    let keyword = place.rsplit('/').next().unwrap_or_default().to_owned();
    let limit = schema.pointer(&place).map(|limit| match limit {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let mut path = error.instance_path().to_string();
    // A field that is missing has no place of its own: it is named where it should be.
    if let ValidationErrorKind::Required {
        property: Value::String(missing),
    } = error.kind()
    {
        path = format!("{path}/{}", missing.replace('~', "~0").replace('/', "~1"));
    }
    Err(SchemaFault::Misfit(Mismatch {
        path,
        keyword,
        limit: limit.unwrap_or_default(),
    }))
}
