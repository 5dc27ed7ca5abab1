//! A text to be read, and where its words end: one bit a byte, found for sixteen bytes at once.
//!
//! A word is a run of letters; inside a run a new one begins where the case says so (`RateLimit`, `LLMError`). Both are
//! asked of sixteen bytes at once, so that a reader need not look at every letter. The bytes stand in a room of one size, with
//! nothing behind them, so that a reader need not ask whether there is another.
//!
//! Never looks at anything but letters of ASCII.

use super::letters::{KINDS, Kind};
use crate::policy::{
    blocks::{BLOCK, Block},
    classify::room::Room,
};

/// So many there is room for (a power of two, so that no place is outside).
const BLOCKS: usize = 512;
/// Bytes that there is room for.
const PLACES: usize = BLOCK * BLOCKS;
/// Bytes of the longest text.
const LONGEST: usize = PLACES - 2 * BLOCK;
/// Behind the text: every place begins a word and ends it, so that a walk never goes on.
const NOTHING: Bounds = Bounds { begins: u64::MAX, ends: u64::MAX };

/// A text to be read; the room is kept from text to text.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The bytes, and zeros behind them.
    bytes: Room<u8, { PLACES + 8 }>,
    /// Where words begin and end, of every 64 bytes, and of nothing at last.
    blocks: Room<Bounds, BLOCKS>,
}

/// Where words begin in 64 bytes, and behind which bytes they end: one bit a byte.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    begins: u64,
    ends: u64,
}

/// The words of a source from one on, one after the other.
#[derive(Debug)]
pub(super) struct Walk {
    /// Which 64 bytes it is in.
    block: usize,
    /// What words begin and end there that it has not met.
    left: Bounds,
}

// === impl Source ===

impl Source {
    /// Takes a text of no more than [`LONGEST`] bytes, and finds where its words end.
    pub(super) fn take(&mut self, text: &[u8]) {
        debug_assert!(text.len() <= LONGEST, "{} bytes", text.len());
        let length = text.len().min(LONGEST);
        let whole = length / BLOCK + 1;
        self.bytes[..length].copy_from_slice(&text[..length]);
        self.bytes[length..whole * BLOCK + 8].fill(0);
        // Whether the byte before is a letter, whether it is a capital, and whether it is none.
        let (mut letter, mut capital, mut lower) = (0, 0, 0);
        for at in 0..whole {
            let (bytes, next) = (&self.bytes[at * BLOCK..], self.bytes[(at + 1) * BLOCK].is_ascii_lowercase());
            let Some(bytes) = bytes.first_chunk() else { break };
            let block = Block::of(bytes);
            let capitals = block.letters & !block.lower;
            let after_lower = capitals & (block.lower << 1 | lower);
            let before_lower = block.lower >> 1 | u64::from(next) << (BLOCK - 1);
            let mut last_capitals = capitals & (capitals << 1 | capital) & before_lower;
            let mut inside = after_lower | last_capitals;
            while last_capitals != 0 {
                let bit = last_capitals & last_capitals.wrapping_neg();
                if is_plural(&self.bytes[at * BLOCK + bit.trailing_zeros() as usize..]) {
                    inside &= !bit;
                }
                last_capitals ^= bit;
            }
            let before = block.letters << 1 | letter;
            let (begins, ends) = (block.letters & !before | inside, before & !block.letters | inside);
            self.blocks[at % BLOCKS] = Bounds { begins, ends };
            let last = |bits: u64| bits >> (BLOCK - 1);
            (letter, capital, lower) = (last(block.letters), last(capitals), last(block.lower));
        }
        self.blocks[whole % BLOCKS] = NOTHING;
    }

    /// The kind of a byte; behind the last [`Kind::End`].
    #[inline]
    pub(super) fn kind(&self, at: usize) -> Kind {
        KINDS[usize::from(self.bytes[at % PLACES])]
    }

    /// Eight bytes from a place on.
    #[inline]
    pub(super) fn eight(&self, at: usize) -> u64 {
        let at = at % PLACES;
        self.bytes[at..at + 8].first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight))
    }

    /// Some bytes.
    pub(super) fn slice(&self, from: usize, to: usize) -> &[u8] {
        &self.bytes[from..to]
    }

    /// The first place, no further than another, of a byte that is more than this kind of gap.
    #[inline]
    pub(super) fn gap(&self, from: usize, to: usize, within: Kind) -> usize {
        let mut at = from;
        while at < to && self.kind(at) <= within {
            at += 1;
        }
        at
    }

    /// The words from the letter at a place on.
    #[inline]
    pub(super) fn walk(&self, from: usize) -> Walk {
        let (block, later) = (from / BLOCK, !1 << (from % BLOCK));
        let Bounds { begins, ends } = self.blocks[block % BLOCKS];
        Walk { block, left: Bounds { begins: begins & later, ends: ends & later } }
    }
}

// === impl Walk ===

impl Walk {
    /// Where the word ends that it is at.
    #[inline]
    pub(super) fn end(&mut self, source: &Source) -> usize {
        self.pass(source, |left| &mut left.ends)
    }

    /// Where the next word begins.
    #[inline]
    pub(super) fn next(&mut self, source: &Source) -> usize {
        self.pass(source, |left| &mut left.begins)
    }

    /// Passes the first of some bits that are left. Begins and ends are met in turn: where none of one kind is left, there is
    /// none of the other.
    #[inline]
    fn pass(&mut self, source: &Source, bits: impl Fn(&mut Bounds) -> &mut u64) -> usize {
        while *bits(&mut self.left) == 0 {
            self.block += 1;
            self.left = source.blocks[self.block % BLOCKS];
        }
        let left = bits(&mut self.left);
        let first = left.trailing_zeros();
        *left &= *left - 1;
        self.block * BLOCK + first as usize
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
        let mut found = Source::default();
        found.take(source.as_bytes());
        let (mut words, mut at) = (Vec::new(), 0);
        while at < source.len() {
            if source.as_bytes()[at].is_ascii_alphabetic() {
                let end = found.walk(at).end(&found);
                words.push(&source[at..end]);
                at = end;
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
            let mut found = Source::default();
            found.take(bytes);
            for from in (0..bytes.len()).filter(|at| bytes[*at].is_ascii_alphabetic()) {
                let end = (from + 1..bytes.len()).find(|at| ends(bytes, *at)).unwrap_or(bytes.len());
                let mut walk = found.walk(from);
                prop_assert_eq!(walk.end(&found), end, "from {} in {}", from, source);
                if let Some(next) = (end..bytes.len()).find(|at| bytes[*at].is_ascii_alphabetic()) {
                    prop_assert_eq!(walk.next(&found), next, "from {} in {}", from, source);
                }
            }
        }
    }
}
