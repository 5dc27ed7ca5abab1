//! The position of a watcher at every replica of a fleet, in one text.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use sha2::{Digest as _, Sha256};

use crate::domain::ids::Cursor;

/// The first character, which no cursor of one replica has.
const MARK: char = 'f';

/// Most replicas: the text then has less than 2 KiB.
const MAX_REPLICAS: usize = 90;

/// A replica in a cursor: a part of the hash of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaKey(u64);

/// Positions by replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetCursor(BTreeMap<ReplicaKey, Cursor>);

// === impl ReplicaKey ===

impl ReplicaKey {
    /// The replica with this id.
    #[must_use]
    pub fn of(id: &str) -> Self {
        let digest = Sha256::digest(id.as_bytes());
        Self(
            digest
                .iter()
                .take(8)
                .fold(0, |key, byte| key << 8 | u64::from(*byte)),
        )
    }
}

// === impl FleetCursor ===

impl FleetCursor {
    /// Returns the position at a replica; `None` if it was not watched.
    #[must_use]
    pub fn at(&self, replica: ReplicaKey) -> Option<Cursor> {
        self.0.get(&replica).copied()
    }

    /// Returns all positions.
    pub fn positions(&self) -> impl Iterator<Item = (ReplicaKey, Cursor)> {
        self.0
            .iter()
            .map(|(replica, position)| (*replica, *position))
    }

    /// Moves the position at a replica.
    pub fn set(&mut self, replica: ReplicaKey, position: Cursor) {
        if self.0.len() < MAX_REPLICAS || self.0.contains_key(&replica) {
            self.0.insert(replica, position);
        }
    }

    /// Forgets a replica, and returns the position at it.
    pub fn take(&mut self, replica: ReplicaKey) -> Option<Cursor> {
        self.0.remove(&replica)
    }

    /// Returns the text, as a client gives it back.
    #[must_use]
    pub fn text(&self) -> String {
        let numbers = self.0.iter().flat_map(|(key, cursor)| [key.0, cursor.0]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_be_bytes).collect();
        format!("{MARK}{}", BASE64.encode(bytes))
    }

    /// Reads the text of a cursor; `None` if it is not one of several replicas.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64.decode(text.strip_prefix(MARK)?).ok()?;
        let (pairs, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() || pairs.len() > MAX_REPLICAS {
            return None;
        }
        let pairs = pairs.iter().map(|pair| {
            let both = u128::from_be_bytes(*pair);
            let low = u64::try_from(both & u128::from(u64::MAX)).unwrap_or_default();
            let high = u64::try_from(both >> 64).unwrap_or_default();
            (ReplicaKey(high), Cursor(low))
        });
        Some(Self(pairs.collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cursor_is_read_as_it_was_written_and_is_short(
            positions in prop::collection::btree_map("[a-z0-9-]{1,40}", any::<u64>(), 0..90)
        ) {
            let mut cursor = FleetCursor::default();
            for (id, position) in &positions {
                cursor.set(ReplicaKey::of(id), Cursor(*position));
            }
            let text = cursor.text();
            prop_assert!(text.len() < 2048);
            let read = FleetCursor::parse(&text).unwrap();
            for (id, position) in &positions {
                prop_assert_eq!(read.at(ReplicaKey::of(id)), Some(Cursor(*position)));
            }
            prop_assert_eq!(read, cursor);
        }

        #[test]
        fn no_text_makes_it_fail(text in "f?[-_A-Za-z0-9=+/]{0,60}") {
            if let Some(read) = FleetCursor::parse(&text) {
                prop_assert_eq!(FleetCursor::parse(&read.text()), Some(read));
            }
        }
    }

    #[test]
    fn a_position_of_one_replica_is_none() {
        for text in ["", "17", "soon", "fAAA", "f*"] {
            assert_eq!(FleetCursor::parse(text), None, "{text}");
        }
    }
}
