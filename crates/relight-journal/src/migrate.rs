//! Brings a database's tables to this version, one process at a time.
//!
//! The statements are in `migrations/`, compiled in; a file that was released is never changed, a
//! new one is added.

use std::borrow::Cow;

use sqlx::{
    SqlStr,
    migrate::{Migration, MigrationType, Migrator},
};

use super::JournalError;

/// Table in which the database notes which migrations it has.
const TABLE: &str = "relight_migrations";

/// The migrations of a database, oldest first: version, description, statements.
pub(super) type Statements = [(i64, &'static str, &'static str)];

/// For `SQLite`.
pub(super) const SQLITE: &Statements = &[
    (
        1,
        "journal",
        include_str!("migrations/sqlite/0001_journal.sql"),
    ),
    (
        2,
        "upstream",
        include_str!("migrations/sqlite/0002_upstream.sql"),
    ),
    (
        3,
        "properties",
        include_str!("migrations/sqlite/0003_properties.sql"),
    ),
    (
        4,
        "thread_route",
        include_str!("migrations/sqlite/0004_thread_route.sql"),
    ),
    (
        5,
        "tool_executions",
        include_str!("migrations/sqlite/0005_tool_executions.sql"),
    ),
];
/// For `PostgreSQL`.
pub(super) const POSTGRES: &Statements = &[
    (
        1,
        "journal",
        include_str!("migrations/postgres/0001_journal.sql"),
    ),
    (
        2,
        "upstream",
        include_str!("migrations/postgres/0002_upstream.sql"),
    ),
    (
        3,
        "properties",
        include_str!("migrations/postgres/0003_properties.sql"),
    ),
    (
        4,
        "thread_route",
        include_str!("migrations/postgres/0004_thread_route.sql"),
    ),
    (
        5,
        "tool_executions",
        include_str!("migrations/postgres/0005_tool_executions.sql"),
    ),
];

/// Returns the migrator that applies them. It refuses a database that has a migration this version
/// does not know, or knows otherwise.
pub(super) fn migrator(statements: &'static Statements) -> Migrator {
    let one = |(version, description, sql): &(i64, &'static str, &'static str)| {
        let description = Cow::Borrowed(*description);
        Migration::new(
            *version,
            description,
            MigrationType::Simple,
            SqlStr::from_static(sql),
            false,
        )
    };
    let mut migrator = Migrator::with_migrations(statements.iter().map(one).collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

// === impl conversions ===

impl From<sqlx::migrate::MigrateError> for JournalError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        match error {
            sqlx::migrate::MigrateError::Execute(error) => error.into(),
            // The rest is about versions that do not fit, and the enum is not exhaustive.
            error => Self::Corrupt(error.to_string()),
        }
    }
}
