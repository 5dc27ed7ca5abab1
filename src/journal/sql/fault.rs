//! What a database's errors mean to the journal.
//!
//! Only the database's code and its own phrase are told on; neither holds values, which `PostgreSQL` puts into details.

use super::super::{AppendError, FinishError, JournalError, ThreadError};

/// An operation that went wrong in the database.
impl From<sqlx::Error> for JournalError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(fault) => {
                let code = fault.code().unwrap_or_default();
                let text = format!("{} ({code})", fault.message());
                if is_corruption(&code) { Self::Corrupt(text) } else { Self::Unavailable(text) }
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

/// `SQLITE_CORRUPT` and `SQLITE_NOTADB` (the primary code is the low byte), `PostgreSQL`'s class of corruption.
fn is_corruption(code: &str) -> bool {
    let sqlite = code.parse::<u32>().is_ok_and(|code| code < 10_000 && matches!(code & 0xff, 11 | 26));
    sqlite || code.starts_with("XX001") || code.starts_with("XX002")
}
