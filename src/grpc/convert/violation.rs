//! The faults of a request, field by field, all of them at once.
//!
//! Reporting one fault at a time would cost a caller as many rounds as there are faults. The number
//! kept is bounded all the same, since a request of a few megabytes can hold a million faults. A
//! reason quotes no content.

use std::fmt;

/// Most violations that are kept; more are only counted.
pub const MAX_KEPT: usize = 100;

/// Longest map key shown in a path, in bytes.
const MAX_KEY_BYTES: usize = 64;

/// One fault of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field from the request's root, such as `invocation.model.messages[2].parts[0]`.
    pub field: String,
    /// What is wrong with it, as the rest of a sentence that begins with the field (`is empty`).
    pub reason: String,
}

/// Every fault of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    kept: Vec<FieldViolation>,
    total: usize,
}

/// The path of a field; costs nothing until it is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path<'a> {
    Root(&'static str),
    Field(&'a Path<'a>, &'static str),
    Item(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

// === impl Violations ===

impl Violations {
    /// A single fault.
    pub fn of(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            kept: vec![FieldViolation {
                field: field.into(),
                reason: reason.into(),
            }],
            total: 1,
        }
    }

    /// Adds a fault that was found outside this module, for instance against the operator's bounds.
    pub fn add(&mut self, field: impl fmt::Display, reason: impl Into<String>) {
        self.total += 1;
        if self.kept.len() < MAX_KEPT {
            self.kept.push(FieldViolation {
                field: field.to_string(),
                reason: reason.into(),
            });
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The faults kept, in the order found; at most [`MAX_KEPT`].
    #[must_use]
    pub fn kept(&self) -> &[FieldViolation] {
        &self.kept
    }

    /// How many were found, kept or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The value, if nothing is wrong.
    ///
    /// # Errors
    /// With every fault that was found.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// The value, if one could be made and nothing is wrong.
    pub(super) fn or_some<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kept.first() {
            None => f.write_str("nothing is wrong"),
            Some(first) if self.total == 1 => write!(f, "`{}` {}", first.field, first.reason),
            Some(first) => write!(
                f,
                "`{}` {}, and {} more",
                first.field,
                first.reason,
                self.total - 1
            ),
        }
    }
}

impl std::error::Error for Violations {}

// === impl Path ===

impl<'a> Path<'a> {
    pub(super) const fn field(&'a self, name: &'static str) -> Self {
        Self::Field(self, name)
    }

    pub(super) const fn item(&'a self, index: usize) -> Self {
        Self::Item(self, index)
    }

    pub(super) const fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(name) | Self::Field(Path::Root(""), name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => write!(
                f,
                "{parent}[{:?}]",
                &key[..key.floor_char_boundary(MAX_KEY_BYTES)]
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_the_caller_wrote_the_request() {
        let root = Path::Root("invocation");
        let messages = root.field("model").field("messages").to_string();
        assert_eq!(messages, "invocation.model.messages");
        assert_eq!(
            root.field("labels").key("a b").to_string(),
            r#"invocation.labels["a b"]"#
        );
        assert_eq!(
            Path::Root("")
                .field("headers")
                .item(3)
                .field("name")
                .to_string(),
            "headers[3].name"
        );
    }

    #[test]
    fn a_flood_of_faults_is_counted_but_not_kept() {
        let mut faults = Violations::default();
        for index in 0..1000 {
            faults.add(Path::Root("stop").item(index), "is empty");
        }
        assert_eq!((faults.kept().len(), faults.total()), (MAX_KEPT, 1000));
        assert_eq!(faults.to_string(), "`stop[0]` is empty, and 999 more");
        assert!(faults.or(()).is_err());
    }
}
