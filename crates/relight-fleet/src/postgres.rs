//! A store in `PostgreSQL`: two small tables beside those of the journal.
//!
//! Hints go through `NOTIFY`, each in a statement of its own, because a `NOTIFY` in a writing
//! transaction makes all commits of the database queue behind one lock. All times are the server's.

use std::{
    str::FromStr as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use sqlx::{
    PgPool, Row as _,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};

use crate::store::{FleetStore, FleetStoreError, ProbeLease, RecordWrite, StoredRecord};

/// Connections of one replica at most, one more for listening.
const CONNECTIONS: u32 = 3;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Channel of the hints.
const CHANNEL: &str = "relight_fleet";
/// `SQLSTATE` of a table that is not there.
const UNDEFINED_TABLE: &str = "42P01";
/// No statement or lock may hold others up for longer, whatever becomes of its client.
const SESSION: &str = "SET statement_timeout = '2s'; SET lock_timeout = '1s'";

/// Makes the tables, if they are not there. Only one replica at a time does: two would race.
const TABLES: &str = "
DO $$ BEGIN
PERFORM pg_advisory_xact_lock(7234501199);
CREATE TABLE IF NOT EXISTS relight_fleet (
    subject TEXT NOT NULL, owner TEXT NOT NULL, epoch BIGINT NOT NULL, value TEXT NOT NULL,
    written TIMESTAMPTZ NOT NULL, expires TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (subject, owner)) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS relight_fleet_lease (
    name TEXT NOT NULL, place INT NOT NULL, holder TEXT NOT NULL, expires TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name, place));
END $$";

const PUBLISH: &str = "
INSERT INTO relight_fleet (subject, owner, epoch, value, written, expires)
SELECT subject, owner, epoch, value, clock_timestamp(),
       CASE WHEN lifetime IS NULL THEN 'infinity' ELSE clock_timestamp() + make_interval(secs => lifetime) END
FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[], $4::TEXT[], $5::FLOAT8[]) AS new (subject, owner, epoch, value, lifetime)
ON CONFLICT (subject, owner) DO UPDATE
SET epoch = EXCLUDED.epoch, value = EXCLUDED.value, written = EXCLUDED.written, expires = EXCLUDED.expires
WHERE relight_fleet.epoch < EXCLUDED.epoch OR relight_fleet.expires <= clock_timestamp()
   OR (relight_fleet.expires < 'infinity' AND relight_fleet.written > clock_timestamp() + INTERVAL '1 minute')";

const REMOVE: &str = "
DELETE FROM relight_fleet
WHERE expires <= clock_timestamp()
   OR (expires < 'infinity' AND written > clock_timestamp() + INTERVAL '1 minute')
   OR (subject, owner) IN (SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[]))";

const SNAPSHOT: &str = "
SELECT subject, owner, epoch, value,
       GREATEST(EXTRACT(EPOCH FROM clock_timestamp() - written), 0)::FLOAT8 AS age
FROM relight_fleet
WHERE expires > clock_timestamp()
  AND (expires = 'infinity' OR written <= clock_timestamp() + INTERVAL '1 minute')";

const LEASE: &str = "
INSERT INTO relight_fleet_lease (name, place, holder, expires)
VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
ON CONFLICT (name, place) DO UPDATE SET holder = EXCLUDED.holder, expires = EXCLUDED.expires
WHERE relight_fleet_lease.expires <= clock_timestamp()
   OR relight_fleet_lease.expires > EXCLUDED.expires + INTERVAL '1 minute'";

const FREE_IN: &str = "
SELECT COALESCE(GREATEST(EXTRACT(EPOCH FROM MIN(expires) - clock_timestamp()), 0), 0)::FLOAT8
FROM relight_fleet_lease WHERE name = $1 AND place < $2";

const RELEASE: &str = "
DELETE FROM relight_fleet_lease WHERE (name = $1 AND holder = $2) OR expires < clock_timestamp() - INTERVAL '1 hour'";

/// A store in `PostgreSQL`; connects when it is first used, and again after it was away.
#[derive(Debug)]
pub struct PostgresStore {
    pool: PgPool,
    /// Whether the tables were there when they were last needed.
    has_tables: AtomicBool,
}

// === impl PostgresStore ===

impl PostgresStore {
    /// The store at this URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is not a URL of a `PostgreSQL` server. The text does not repeat the URL,
    /// which holds a password.
    pub fn at(url: &str) -> Result<Self, FleetStoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| FleetStoreError("is not a URL of a PostgreSQL server".to_owned()))?;
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .after_connect(|connection, _| {
                Box::pin(async move { sqlx::raw_sql(SESSION).execute(connection).await.map(drop) })
            })
            .connect_lazy_with(options);
        Ok(Self {
            pool,
            has_tables: AtomicBool::new(false),
        })
    }

    /// Returns the pool, once the tables are there.
    async fn pool(&self) -> Result<&PgPool, sqlx::Error> {
        if !self.has_tables.load(Ordering::Relaxed) {
            sqlx::raw_sql(TABLES).execute(&self.pool).await?;
            self.has_tables.store(true, Ordering::Relaxed);
        }
        Ok(&self.pool)
    }

    /// Has the tables made again that somebody dropped, or that a backup did not have. The words of
    /// the driver name no password.
    fn failed(&self, error: &sqlx::Error) -> FleetStoreError {
        let code = error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        if code.is_some_and(|code| code == UNDEFINED_TABLE) {
            self.has_tables.store(false, Ordering::Relaxed);
        }
        FleetStoreError(error.to_string())
    }

    async fn write(&self, writes: &[RecordWrite], hint: bool) -> Result<(), sqlx::Error> {
        let pool = self.pool().await?;
        let (kept, removed): (Vec<&RecordWrite>, Vec<&RecordWrite>) =
            writes.iter().partition(|write| write.value.is_some());
        if !kept.is_empty() {
            let texts = |of: fn(&RecordWrite) -> &String| {
                kept.iter().map(|one| of(one).clone()).collect::<Vec<_>>()
            };
            let epochs: Vec<i64> = kept.iter().map(|one| one.epoch.cast_signed()).collect();
            let values: Vec<String> = kept.iter().filter_map(|one| one.value.clone()).collect();
            let lifetimes: Vec<Option<f64>> = kept
                .iter()
                .map(|one| one.lifetime.map(|lifetime| lifetime.as_secs_f64()))
                .collect();
            sqlx::query(PUBLISH)
                .bind(texts(|one| &one.subject))
                .bind(texts(|one| &one.owner))
                .bind(epochs)
                .bind(values)
                .bind(lifetimes)
                .execute(pool)
                .await?;
        }
        let texts = |of: fn(&RecordWrite) -> &String| {
            removed
                .iter()
                .map(|one| of(one).clone())
                .collect::<Vec<_>>()
        };
        if !removed.is_empty() || !hint {
            sqlx::query(REMOVE)
                .bind(texts(|one| &one.subject))
                .bind(texts(|one| &one.owner))
                .execute(pool)
                .await?;
        }
        if hint {
            sqlx::query("SELECT pg_notify($1, '')")
                .bind(CHANNEL)
                .execute(pool)
                .await?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<Vec<StoredRecord>, sqlx::Error> {
        let rows = sqlx::query(SNAPSHOT).fetch_all(self.pool().await?).await?;
        let records = rows.iter().map(|row| {
            Ok(StoredRecord {
                subject: row.try_get("subject")?,
                owner: row.try_get("owner")?,
                epoch: row.try_get::<i64, _>("epoch")?.cast_unsigned(),
                value: row.try_get("value")?,
                age: seconds(row.try_get("age")?),
            })
        });
        records.collect()
    }

    async fn take(&self, lease: &ProbeLease) -> Result<Result<(), Duration>, sqlx::Error> {
        let pool = self.pool().await?;
        let places = i32::try_from(lease.places).unwrap_or(i32::MAX);
        for place in 0..places {
            let taken = sqlx::query(LEASE)
                .bind(&lease.name)
                .bind(place)
                .bind(&lease.holder)
                .bind(lease.lifetime.as_secs_f64())
                .execute(pool)
                .await?;
            if taken.rows_affected() > 0 {
                return Ok(Ok(()));
            }
        }
        let free_in: f64 = sqlx::query_scalar(FREE_IN)
            .bind(&lease.name)
            .bind(places)
            .fetch_one(pool)
            .await?;
        Ok(Err(seconds(free_in)))
    }

    async fn hear(&self, changed: &(dyn Fn() + Send + Sync)) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(CHANNEL).await?;
        loop {
            // What changed before was not heard, and neither was what changed while the connection
            // was made again.
            changed();
            listener.try_recv().await?;
        }
    }
}

impl FleetStore for PostgresStore {
    fn engine(&self) -> &'static str {
        "postgres"
    }

    fn publish<'a>(
        &'a self,
        writes: &'a [RecordWrite],
        hint: bool,
    ) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(async move {
            self.write(writes, hint)
                .await
                .map_err(|error| self.failed(&error))
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<StoredRecord>, FleetStoreError>> {
        Box::pin(async move { self.read().await.map_err(|error| self.failed(&error)) })
    }

    fn listen<'a>(
        &'a self,
        changed: &'a (dyn Fn() + Send + Sync),
    ) -> BoxFuture<'a, FleetStoreError> {
        Box::pin(async move {
            match self.hear(changed).await {
                Ok(()) => FleetStoreError("the connection ended".to_owned()),
                Err(error) => self.failed(&error),
            }
        })
    }

    fn lease<'a>(
        &'a self,
        lease: &'a ProbeLease,
    ) -> BoxFuture<'a, Result<Result<(), Duration>, FleetStoreError>> {
        Box::pin(async move { self.take(lease).await.map_err(|error| self.failed(&error)) })
    }

    fn release<'a>(&'a self, lease: &'a ProbeLease) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(async move {
            let give_back = async {
                let query = sqlx::query(RELEASE).bind(&lease.name).bind(&lease.holder);
                query.execute(self.pool().await?).await.map(drop)
            };
            give_back.await.map_err(|error| self.failed(&error))
        })
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
