//! Small numbers by keys of 48 bits, and anything by small numbers, in a fixed number of places, of which a text touches few.
//!
//! Never holds more than half as many keys as there are places.

use std::{
    collections::BTreeMap,
    ops::{Index, IndexMut},
};

use crate::policy::classify::room::Room;

/// From keys to small numbers, none of which is zero, and what belongs to each: open addressing with at most every second of
/// `SIZE` places taken (a power of two).
#[derive(Debug)]
pub(in crate::policy::classify) struct Table<const SIZE: usize, V = ()>(Room<Place<V>, SIZE>);

/// A place of a table: the upper 48 bits of the key's hash, which tell keys apart, and the number; and what belongs to that,
/// so that a look at it costs no other.
#[derive(Debug, Clone, Copy, Default)]
struct Place<V> {
    key: u64,
    value: V,
}

/// Anything by small numbers, with room for each of them, so that none is outside.
#[derive(Debug)]
pub(super) struct All<T>(Room<T, { 1 << 16 }>);

// === impl Table ===

impl<const SIZE: usize, V: Copy + Default> Default for Table<SIZE, V> {
    fn default() -> Self {
        Self(Room::default())
    }
}

impl<const SIZE: usize, V: Copy + Default> Table<SIZE, V> {
    pub(in crate::policy::classify) fn new(entries: impl Iterator<Item = (u64, u16)>) -> Self {
        // In one order, so that the table is the same in every process.
        let entries: BTreeMap<u64, u16> = entries.collect();
        debug_assert!(SIZE.is_power_of_two() && entries.len() <= SIZE / 2, "{} in {SIZE} places", entries.len());
        let mut table = Self::default();
        for (key, number) in entries {
            let hash = hash(key);
            let mut at = Self::place(hash);
            while table.0[at].key != 0 {
                at = (at + 1) % SIZE;
            }
            table.0[at].key = hash & !NUMBER | u64::from(number);
        }
        table
    }

    /// Lets every number have what belongs to it.
    pub(super) fn give(&mut self, value: impl Fn(u16) -> V) {
        for place in self.0.iter_mut().filter(|place| place.key != 0) {
            place.value = value(number_of(place.key));
        }
    }

    /// The number of a key, zero where it has none.
    #[inline]
    pub(in crate::policy::classify) fn get(&self, key: u64) -> u16 {
        self.find(key).map_or(0, |(number, _)| number)
    }

    /// The number of a key and what belongs to it, if it has one.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<(u16, &V)> {
        let hash = hash(key);
        let mut at = Self::place(hash);
        loop {
            let place = &self.0[at];
            if (place.key ^ hash) <= NUMBER {
                return Some((number_of(place.key), &place.value));
            }
            if place.key == 0 {
                return None;
            }
            at = (at + 1) % SIZE;
        }
    }

    /// Where to look first.
    #[inline]
    fn place(hash: u64) -> usize {
        usize::try_from(hash >> (u64::BITS - SIZE.trailing_zeros())).unwrap_or_default() % SIZE
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        size_of_val(&self.0[..])
    }
}

// === impl All ===

impl<T: Copy + Default> Default for All<T> {
    fn default() -> Self {
        Self(Room::default())
    }
}

impl<T> Index<u16> for All<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u16) -> &T {
        &self.0[usize::from(number)]
    }
}

impl<T> IndexMut<u16> for All<T> {
    fn index_mut(&mut self, number: u16) -> &mut T {
        &mut self.0[usize::from(number)]
    }
}

/// The key of two small numbers.
#[inline]
pub(in crate::policy::classify) fn key_of_two(one: u16, two: u16) -> u64 {
    u64::from(one) << 32 | u64::from(two) << 16
}

fn number_of(key: u64) -> u16 {
    u16::try_from(key & NUMBER).unwrap_or_default()
}

/// The bits of a place that hold the number.
const NUMBER: u64 = 0xFFFF;

/// Spreads the bits of a key; a key of 48 bits that stands in the upper ones keeps them apart from any other.
#[inline]
fn hash(key: u64) -> u64 {
    key.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}
