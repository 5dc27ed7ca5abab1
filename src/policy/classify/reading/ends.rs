//! Where the words of a source end: one bit a byte, found for sixteen bytes at once.
//!
//! A word is a run of letters; inside a run a new one begins where the case says so (`RateLimit`, `LLMError`). Both are
//! asked of sixteen bytes at once, so that a reader need not look at every letter.
//!
//! Never looks at anything but letters of ASCII.

use wide::u8x16;

use super::letters::CASE;

/// Bytes that one number of bits stands for.
const BLOCK: usize = 64;
/// So many there is room for, and one behind them (a power of two, so that no place is outside).
const BLOCKS: usize = 512;
/// Bytes of the longest source.
const LONGEST: usize = BLOCK * (BLOCKS - 2);
/// Every place ends a word.
const NO_LETTERS: u64 = u64::MAX;

/// The ends of words in a source; the room is kept from source to source.
#[derive(Debug)]
pub(super) struct Ends {
    /// A bit is set where a byte is no letter, or the first letter of another word than the letter before; of every 64
    /// bytes, and of nothing at last.
    blocks: Box<[u64; BLOCKS]>,
}

/// What is known of 64 bytes.
struct Block {
    letters: u64,
    lower: u64,
}

// === impl Ends ===

impl Default for Ends {
    fn default() -> Self {
        Self { blocks: Box::new([NO_LETTERS; BLOCKS]) }
    }
}

impl Ends {
    /// Finds the ends in a source of no more than [`LONGEST`] bytes.
    pub(super) fn find(&mut self, source: &[u8]) {
        debug_assert!(source.len() <= LONGEST, "{} bytes", source.len());
        let (whole, rest) = source.as_chunks::<BLOCK>();
        let mut last = [b' '; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        // Whether the byte before is a capital, and whether it is another letter.
        let (mut capital, mut lower) = (0, 0);
        for (at, bytes) in whole.iter().chain([&last]).enumerate() {
            let next = source.get((at + 1) * BLOCK).is_some_and(u8::is_ascii_lowercase);
            let block = Block::of(bytes);
            let capitals = block.letters & !block.lower;
            let after_lower = capitals & (block.lower << 1 | lower);
            let before_lower = block.lower >> 1 | u64::from(next) << (BLOCK - 1);
            let mut last_capitals = capitals & (capitals << 1 | capital) & before_lower;
            let mut inside = after_lower | last_capitals;
            while last_capitals != 0 {
                let bit = last_capitals & last_capitals.wrapping_neg();
                if is_plural(&source[at * BLOCK + bit.trailing_zeros() as usize..]) {
                    inside &= !bit;
                }
                last_capitals ^= bit;
            }
            self.blocks[at % BLOCKS] = !block.letters | inside;
            (capital, lower) = (capitals >> (BLOCK - 1), block.lower >> (BLOCK - 1));
        }
        self.blocks[(whole.len() + 1) % BLOCKS] = NO_LETTERS;
    }

    /// How many letters the word has that begins with the letter at a place.
    #[inline]
    pub(super) fn letters(&self, from: usize) -> usize {
        let mut end = from + 1;
        loop {
            let ends = self.blocks[end / BLOCK % BLOCKS] >> (end % BLOCK);
            if ends != 0 {
                return end + ends.trailing_zeros() as usize - from;
            }
            end = (end / BLOCK + 1) * BLOCK;
        }
    }
}

// === impl Block ===

impl Block {
    #[inline]
    fn of(bytes: &[u8; BLOCK]) -> Self {
        let (mut letters, mut lower) = (0, 0);
        let case = u8x16::splat(CASE.to_le_bytes()[0]);
        for (at, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let bytes = u8x16::new(*bytes);
            let from_a = (bytes | case) - u8x16::splat(b'a');
            let is_letter = from_a.min(u8x16::splat(b'z' - b'a')).simd_eq(from_a);
            letters |= u64::from(is_letter.to_bitmask()) << (16 * at);
            lower |= u64::from((bytes & case).simd_eq(case).to_bitmask()) << (16 * at);
        }
        Self { letters, lower: lower & letters }
    }
}

/// `URLs`, `IDs`: the last capital of a plural begins no word.
fn is_plural(from_capital: &[u8]) -> bool {
    from_capital.get(1) == Some(&b's') && !from_capital.get(2).is_some_and(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether a word ends before a byte, one byte looked at after the other.
    fn ends(source: &[u8], at: usize) -> bool {
        let lower = |at: usize| source.get(at).is_some_and(u8::is_ascii_lowercase);
        let capital = |at: usize| source.get(at).is_some_and(u8::is_ascii_uppercase);
        let last_capital = capital(at - 1) && lower(at + 1) && !is_plural(&source[at..]);
        !source[at].is_ascii_alphabetic() || capital(at) && (lower(at - 1) || last_capital)
    }

    fn words(source: &str) -> Vec<&str> {
        let mut ends = Ends::default();
        ends.find(source.as_bytes());
        let (mut words, mut at) = (Vec::new(), 0);
        while at < source.len() {
            if source.as_bytes()[at].is_ascii_alphabetic() {
                let letters = ends.letters(at);
                words.push(&source[at..at + letters]);
                at += letters;
            } else {
                at += 1;
            }
        }
        words
    }

    #[test]
    fn a_word_ends_where_the_case_says_so() {
        assert_eq!(
            words("RateLimit LLMError URLs are RESOURCE_EXHAUSTED"),
            ["Rate", "Limit", "LLM", "Error", "URLs", "are", "RESOURCE", "EXHAUSTED"]
        );
        assert_eq!(words(&"a".repeat(200)), ["a".repeat(200)]);
    }

    proptest! {
        #[test]
        fn every_word_ends_where_one_byte_after_the_other_says_so(source in "[a-cxyzA-CXYZs@`\\[{ é1]{0,200}") {
            let bytes = source.as_bytes();
            let mut found = Ends::default();
            found.find(bytes);
            for from in (0..bytes.len()).filter(|at| bytes[*at].is_ascii_alphabetic()) {
                let letters = (from + 1..bytes.len()).find(|at| ends(bytes, *at)).unwrap_or(bytes.len()) - from;
                prop_assert_eq!(found.letters(from), letters, "from {} in {}", from, source);
            }
        }
    }
}
