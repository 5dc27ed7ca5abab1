//! Maps a database's errors to the journal's.
//!
//! Only the database's code and its own phrase are passed on; neither holds values, which
//! `PostgreSQL` puts into details.

use super::super::{AppendError, FinishError, JournalError, ThreadError};

/// An operation that went wrong in the database.
impl From<sqlx::Error> for JournalError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(fault) => {
                let code = fault.code().unwrap_or_default();
                let text = format!("{} ({code})", fault.message());
                if is_corruption(&code) {
                    Self::Corrupt(text)
                } else {
                    Self::Unavailable(text)
                }
            }
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::TypeNotFound { .. } => Self::Corrupt(error.to_string()),
            // The rest is about connections, and the enum is not exhaustive.
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<sqlx::Error> for ThreadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<sqlx::Error> for FinishError {
    fn from(error: sqlx::Error) -> Self {
        JournalError::from(error).into()
    }
}

/// `SQLITE_CORRUPT` and `SQLITE_NOTADB`, `PostgreSQL`'s class of corruption.
fn is_corruption(code: &str) -> bool {
    matches!(of_sqlite(code), Some(11 | 26))
        || code.starts_with("XX001")
        || code.starts_with("XX002")
}

/// Returns the primary code of an `SQLite` error: the low byte of its number. `PostgreSQL` codes
/// have five digits.
pub(crate) fn of_sqlite(code: &str) -> Option<u32> {
    code.parse()
        .ok()
        .filter(|code| *code < 10_000)
        .map(|code: u32| code & 0xff)
}
