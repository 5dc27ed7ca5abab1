//! Converts rows to values and back. A value that cannot be read is reported as corruption, not
//! replaced by a default.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Row as _, any::AnyRow};

use super::super::{
    Entry, Fingerprint, JournalError, Owner, Record, RunState,
    payload_cipher::{Drawer, PayloadCipher},
    record::OWNER_DEAD,
    write_guard::WriteGuard,
};
use crate::domain::{clock, fold::StreamStep};

/// The columns that [`record`] and [`write_guard`] read.
pub(super) const RECORD: &str = "invocation_id, tenant, request_id, fingerprint, route, operation, thread_id, labels, \
     created_at, deadline_at, state, owner, epoch, epoch_first_seq, lease_expires_at, last_seq, event_bytes, \
     cancel_requested, takeovers, request, upstream, outcome, snapshot, finished_at";

/// Column with the server's time, if that counts.
pub(super) const SERVER_TIME: &str = "server_time";

/// Converts a row of `invocations`. Times by the server's clock are converted to this process's
/// clock, so that both can be compared.
pub(super) fn record(row: &AnyRow, cipher: &PayloadCipher) -> Result<Record, JournalError> {
    let mut record = as_stored(row, cipher)?;
    let Ok(server) = row.try_get::<i64, _>(SERVER_TIME) else {
        return Ok(record);
    };
    let ahead = SignedDuration::from_micros(micros(clock::wall_now()) - server);
    let here = |at: Timestamp| at.checked_add(ahead).unwrap_or(at);
    record.created_at = here(record.created_at);
    record.deadline_at = here(record.deadline_at);
    record.state = match record.state {
        RunState::Running { lease_expires_at } if lease_expires_at > OWNER_DEAD => {
            RunState::Running {
                lease_expires_at: here(lease_expires_at),
            }
        }
        RunState::Finished { at } => RunState::Finished { at: here(at) },
        given_up @ RunState::Running { .. } => given_up,
    };
    Ok(record)
}

fn as_stored(row: &AnyRow, cipher: &PayloadCipher) -> Result<Record, JournalError> {
    let id = text(row, "invocation_id")?;
    let drawer = cipher.of_invocation(&id);
    Ok(Record {
        tenant: text(row, "tenant")?.into(),
        request_id: maybe_text(row, "request_id")?.map(Into::into),
        fingerprint: Fingerprint::new(drawer.open("fingerprint", 0, text(row, "fingerprint")?)?),
        route: text(row, "route")?.into(),
        operation: text(row, "operation")?.into(),
        thread: maybe_text(row, "thread_id")?.map(Into::into),
        labels: parse(&text(row, "labels")?, "labels")?,
        created_at: time(row, "created_at")?,
        deadline_at: time(row, "deadline_at")?,
        state: state(row)?,
        owner: Owner::new(text(row, "owner")?),
        epoch: count(row, "epoch")?,
        takeovers: count(row, "takeovers")?,
        last_seq: count(row, "last_seq")?,
        cancel_requested: count(row, "cancel_requested")? != 0,
        request: maybe_json(row, "request", &drawer)?,
        upstream: maybe_json(row, "upstream", &drawer)?,
        outcome: maybe_json(row, "outcome", &drawer)?,
        snapshot: maybe_json(row, "snapshot", &drawer)?,
        id: id.into(),
    })
}

/// Returns the part of a row of `invocations` that a writer is checked against.
pub(super) fn write_guard(row: &AnyRow) -> Result<WriteGuard, JournalError> {
    Ok(WriteGuard {
        epoch: count(row, "epoch")?,
        epoch_first_seq: count(row, "epoch_first_seq")?,
        last_seq: count(row, "last_seq")?,
        finished: is_finished(row)?,
    })
}

/// Up to here a batch may have any length; a longer one has a power of two.
const SHORT_BATCH: usize = 8;

/// Value that is stored for the step with the invocation's outcome: that is in a column of the
/// invocation already.
pub(super) const OUTCOME_STEP: &str = "\"outcome\"";

/// Returns a row of `events`, with the outcome of its invocation if it is the last one.
pub(super) fn entry(row: &AnyRow, drawer: &Drawer<'_>) -> Result<Entry, JournalError> {
    let attempt = u32::try_from(count(row, "attempt")?).map_err(|_| unreadable("attempt"))?;
    let seq = count(row, "seq")?;
    let step = drawer.open("step", seq, text(row, "step")?)?;
    let step = if step == OUTCOME_STEP {
        StreamStep::Terminal(
            maybe_json(row, "outcome", drawer)?.ok_or_else(|| unreadable("outcome"))?,
        )
    } else {
        parse(&step, "a step")?
    };
    Ok(Entry {
        epoch: count(row, "epoch")?,
        seq,
        attempt,
        at: time(row, "at")?,
        step,
    })
}

/// Returns whether the row's invocation has its outcome.
pub(super) fn is_finished(row: &AnyRow) -> Result<bool, JournalError> {
    match text(row, "state")?.as_str() {
        "finished" => Ok(true),
        "running" => Ok(false),
        _ => Err(unreadable("state")),
    }
}

pub(super) fn text(row: &AnyRow, column: &str) -> Result<String, JournalError> {
    Ok(row.try_get(column)?)
}

pub(super) fn maybe_text(row: &AnyRow, column: &str) -> Result<Option<String>, JournalError> {
    Ok(row.try_get(column)?)
}

pub(super) fn count(row: &AnyRow, column: &str) -> Result<u64, JournalError> {
    u64::try_from(row.try_get::<i64, _>(column)?).map_err(|_| unreadable(column))
}

pub(super) fn time(row: &AnyRow, column: &str) -> Result<Timestamp, JournalError> {
    Timestamp::from_microsecond(row.try_get(column)?).map_err(|_| unreadable(column))
}

/// Returns a count as databases have it; beyond their range there is none.
pub(super) fn int(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A time as the tables have it.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Returns a value as JSON.
pub(super) fn json<T: Serialize>(value: &T, what: &str) -> Result<String, JournalError> {
    serde_json::to_string(value)
        .map_err(|error| JournalError::Corrupt(format!("{what} cannot be written: {error}")))
}

/// Parses a value from JSON. The parser's message may quote content, so only the position is
/// reported.
pub(super) fn parse<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, JournalError> {
    serde_json::from_str(text).map_err(|error| {
        JournalError::Corrupt(format!(
            "{what}, line {} column {}",
            error.line(),
            error.column()
        ))
    })
}

/// Returns the placeholders of an insert: `($1, $2), ($3, $4)`.
pub(super) fn placeholders(rows: usize, columns: usize) -> String {
    let mut places = String::new();
    for row in 0..rows {
        places.push_str(if row == 0 { "(" } else { ", (" });
        for column in 1..=columns {
            let separator = if column == 1 { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(places, "{separator}${}", row * columns + column);
        }
        places.push(')');
    }
    places
}

/// Rows in the batches of single statements, of at most so many and of few different lengths: for
/// each length that occurs, each connection keeps a prepared statement, which takes some kilobytes
/// a row.
pub(super) fn batches<T>(mut rows: &[T], most: usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let length = match rows.len().min(most) {
            0 => return None,
            short @ ..=SHORT_BATCH => short,
            long => 1 << long.ilog2(),
        };
        rows.split_off(..length)
    })
}

fn state(row: &AnyRow) -> Result<RunState, JournalError> {
    if is_finished(row)? {
        Ok(RunState::Finished {
            at: time(row, "finished_at")?,
        })
    } else {
        Ok(RunState::Running {
            lease_expires_at: time(row, "lease_expires_at")?,
        })
    }
}

fn maybe_json<T: DeserializeOwned>(
    row: &AnyRow,
    column: &'static str,
    drawer: &Drawer<'_>,
) -> Result<Option<T>, JournalError> {
    maybe_text(row, column)?
        .map(|text| parse(&drawer.open(column, 0, text)?, column))
        .transpose()
}

fn unreadable(what: &str) -> JournalError {
    JournalError::Corrupt(format!("{what} is out of range"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn batches_hold_all_rows_in_order_and_have_few_lengths() {
        let mut lengths = BTreeSet::new();
        for count in 0..=300 {
            let rows: Vec<usize> = (0..count).collect();
            assert_eq!(
                batches(&rows, 64).flatten().copied().collect::<Vec<_>>(),
                rows
            );
            lengths.extend(batches(&rows, 64).map(<[usize]>::len));
        }
        assert_eq!(
            Vec::from_iter(lengths),
            [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64]
        );
    }
}
