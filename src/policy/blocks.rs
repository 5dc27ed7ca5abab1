//! What 64 bytes are, asked of sixteen at once and answered with one bit a byte, so that a reader need not look at every byte.
//!
//! Never looks at anything but ASCII.

use wide::u8x16;

/// Bytes that one number of bits stands for.
pub(super) const BLOCK: usize = 64;

/// The bit that tells a small letter from its capital.
const CASE: u8 = b' ';

/// What is known of 64 bytes.
pub(super) struct Block {
    /// Letters of any case.
    pub(super) letters: u64,
    /// Small letters.
    pub(super) lower: u64,
}

// === impl Block ===

impl Block {
    #[inline]
    pub(super) fn of(bytes: &[u8; BLOCK]) -> Self {
        let letters = bits(bytes, is_letter);
        let case = u8x16::splat(CASE);
        Self { letters, lower: letters & bits(bytes, |bytes| (bytes & case).simd_eq(case)) }
    }
}

/// Of which of 64 bytes something is so.
#[inline]
pub(super) fn bits(bytes: &[u8; BLOCK], so: impl Fn(u8x16) -> u8x16) -> u64 {
    let chunks = bytes.as_chunks::<16>().0.iter().enumerate();
    chunks.fold(0, |all, (at, bytes)| all | u64::from(so(u8x16::new(*bytes)).to_bitmask()) << (16 * at))
}

/// Which bytes are letters of any case.
#[inline]
fn is_letter(bytes: u8x16) -> u8x16 {
    is_within(bytes | u8x16::splat(CASE), b'a', b'z')
}

/// Which bytes are no less than one and no more than another.
#[inline]
pub(super) fn is_within(bytes: u8x16, from: u8, to: u8) -> u8x16 {
    let above = bytes - u8x16::splat(from);
    above.min(u8x16::splat(to - from)).simd_eq(above)
}

/// Which bytes are one of some.
#[inline]
pub(super) fn is_any<const COUNT: usize>(bytes: u8x16, some: [u8; COUNT]) -> u8x16 {
    some.into_iter().fold(u8x16::ZERO, |any, one| any | bytes.simd_eq(u8x16::splat(one)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_bit_says_what_its_byte_says(bytes in proptest::collection::vec(any::<u8>(), BLOCK)) {
            let bytes: &[u8; BLOCK] = bytes.first_chunk().unwrap();
            let block = Block::of(bytes);
            let (some, digits) = (bits(bytes, |bytes| is_any(bytes, *b" @")), bits(bytes, |bytes| is_within(bytes, b'0', b'9')));
            for (at, byte) in bytes.iter().enumerate() {
                prop_assert_eq!(block.letters >> at & 1 == 1, byte.is_ascii_alphabetic());
                prop_assert_eq!(block.lower >> at & 1 == 1, byte.is_ascii_lowercase());
                prop_assert_eq!(some >> at & 1 == 1, b" @".contains(byte));
                prop_assert_eq!(digits >> at & 1 == 1, byte.is_ascii_digit());
            }
        }
    }
}
