//! The faults of a request, field by field, all of them at once.
//!
//! Reporting one fault at a time would cost a caller as many rounds as there are faults. The number
//! kept is bounded all the same, since a request of a few megabytes can hold a million faults. A
//! reason quotes no content.

use std::fmt;

/// Most violations that are kept; more are only counted.
const MAX_KEPT: usize = 100;

/// One fault of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field from the request's root, such as `invocation.model.messages[2].parts[0]`.
    pub field: String,
    /// Reason, as the rest of a sentence that starts with the field (`is empty`).
    pub reason: String,
}

/// Every fault of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    kept: Vec<FieldViolation>,
    total: usize,
}

// === impl Violations ===

impl Violations {
    /// A single fault.
    pub fn of(field: impl fmt::Display, reason: impl Into<String>) -> Self {
        let mut faults = Self::default();
        faults.add(field, reason);
        faults
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

    /// Returns whether there are no faults.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the faults kept, in the order found; at most 100.
    #[must_use]
    pub fn kept(&self) -> &[FieldViolation] {
        &self.kept
    }

    /// Returns the number of faults found, kept or not.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the value, if nothing is wrong.
    ///
    /// # Errors
    /// With every fault that was found.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        self.or_some(Some(value))
    }

    /// Returns the value, if one could be made and nothing is wrong.
    ///
    /// # Errors
    /// With every fault that was found.
    pub fn or_some<T>(self, value: Option<T>) -> Result<T, Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_faults_is_counted_but_not_kept() {
        let mut faults = Violations::default();
        for index in 0..1000 {
            faults.add(format!("stop[{index}]"), "is empty");
        }
        assert_eq!((faults.kept().len(), faults.total()), (MAX_KEPT, 1000));
        assert_eq!(faults.to_string(), "`stop[0]` is empty, and 999 more");
        assert!(faults.or(()).is_err());
    }
}
