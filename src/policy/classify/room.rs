//! A fixed number of places on the heap: an index below that number, known to be so, costs no check.
//!
//! Never grows.

use std::ops::{Deref, DerefMut};

/// So many places.
#[derive(Debug)]
pub(super) struct Room<T, const PLACES: usize>(Box<[T; PLACES]>);

// === impl Room ===

impl<T: Copy + Default, const PLACES: usize> Default for Room<T, PLACES> {
    fn default() -> Self {
        Self(vec![T::default(); PLACES].try_into().unwrap_or_else(|_| unreachable!("so many places")))
    }
}

impl<T, const PLACES: usize> Deref for Room<T, PLACES> {
    type Target = [T; PLACES];

    #[inline]
    fn deref(&self) -> &[T; PLACES] {
        &self.0
    }
}

impl<T, const PLACES: usize> DerefMut for Room<T, PLACES> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T; PLACES] {
        &mut self.0
    }
}
