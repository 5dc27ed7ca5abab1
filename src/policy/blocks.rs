//! What 64 bytes are, asked of sixteen at once and answered with one bit a byte, so that a reader need not look at every byte.
//!
//! Never looks at anything but ASCII.

use wide::u8x16;

/// Bytes that one number of bits stands for.
pub(super) const BLOCK: usize = 64;

/// What is known of 64 bytes.
pub(super) struct Block {
    /// Letters of any case.
    pub(super) letters: u64,
    /// Small letters.
    pub(super) lower: u64,
}

/// The bit that tells a small letter from its capital.
const CASE: u8 = b' ';

// === impl Block ===

impl Block {
    #[inline]
    pub(super) fn of(bytes: &[u8; BLOCK]) -> Self {
        let (mut letters, mut lower) = (0, 0);
        let case = u8x16::splat(CASE);
        for (at, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let bytes = u8x16::new(*bytes);
            let from_a = (bytes | case) - u8x16::splat(b'a');
            let is_letter = from_a.min(u8x16::splat(b'z' - b'a')).simd_eq(from_a);
            letters |= u64::from(is_letter.to_bitmask()) << (16 * at);
            lower |= u64::from((bytes & case).simd_eq(case).to_bitmask()) << (16 * at);
        }
        Self { letters, lower: lower & letters }
    }

    /// Where a byte stands.
    #[inline]
    pub(super) fn places(bytes: &[u8; BLOCK], byte: u8) -> u64 {
        let chunks = bytes.as_chunks::<16>().0.iter().enumerate();
        let places = |bytes: &[u8; 16]| u8x16::new(*bytes).simd_eq(u8x16::splat(byte)).to_bitmask();
        chunks.fold(0, |all, (at, bytes)| all | u64::from(places(bytes)) << (16 * at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_bit_says_what_its_byte_says(bytes in proptest::collection::vec(any::<u8>(), BLOCK)) {
            let bytes: &[u8; BLOCK] = bytes.first_chunk().unwrap();
            let (block, spaces) = (Block::of(bytes), Block::places(bytes, b' '));
            for (at, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(block.letters >> at & 1 == 1, byte.is_ascii_alphabetic());
                prop_assert_eq!(block.lower >> at & 1 == 1, byte.is_ascii_lowercase());
                prop_assert_eq!(spaces >> at & 1 == 1, *byte == b' ');
            }
        }
    }
}
