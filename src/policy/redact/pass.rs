//! Passes over what surely stays as it is, up to 64 bytes of a text at once: only what may hide something, or is to be written
//! otherwise, is looked at byte by byte.
//!
//! Never decides that anything is taken out.

use std::ops::Range;

use super::shapes::{LONG, SHORTEST, SHORTEST_IP, may_begin, names_secret};
use crate::policy::blocks::{BLOCK, Block, bits, is_any, is_within};

/// Passes from a place on over what stays as it is; says where it came to, and whether what stands there needs a look.
///
/// `spaced` says whether a space is shown last, `before` is the last token.
pub(super) fn pass(text: &[u8], from: usize, spaced: bool, before: &mut Range<usize>) -> (usize, bool) {
    let mut padded = [0; BLOCK];
    let window = text[from..].first_chunk().unwrap_or_else(|| {
        padded[..text.len() - from].copy_from_slice(&text[from..]);
        &padded
    });
    let Block { letters, .. } = Block::of(window);
    let tokens = letters | other_tokens(window);
    let marks = bits(window, |bytes| is_any(bytes, *b":@"));
    let spaces = bits(window, |bytes| is_any(bytes, *b" "));
    let shown = bits(window, |bytes| is_within(bytes, b' ', b'~'));
    let begins = tokens & !(tokens << 1);
    // In all other tokens, which are shorter, nothing can hide.
    let telling =
        begins & (rows::<SHORTEST>(tokens) | rows::<SHORTEST_IP>(tokens) & !letters) | tokens & (marks | marks >> 1);
    let stop = (!shown | spaces & (spaces << 1 | u64::from(spaced))).trailing_zeros();
    // A token that may go on behind the window is left to the next.
    let whole = u64::BITS - tokens.leading_ones();
    let (mut end, mut look) = (stop.min(whole), stop < whole || whole == 0);
    let mut left = telling & lowest(end);
    while left != 0 {
        let begin = highest(begins & lowest(left.trailing_zeros() + 1));
        let length = (tokens >> begin).trailing_ones();
        let of_token = lowest(length) << begin;
        let token = &text[from + begin as usize..from + (begin + length) as usize];
        let is_long = || token.len() >= LONG && of_token & rows::<LONG>(letters | digits(window)) != 0;
        let may_hide = of_token & marks != 0
            || may_hide(token)
            || is_long()
            || token.len() >= SHORTEST && names_secret(&text[token_before(tokens, begin, from, before)])
            || text[from + (begin + length) as usize..].starts_with(b"://");
        if may_hide {
            (end, look) = (begin, true);
            break;
        }
        left &= !of_token;
    }
    *before = token_before(tokens, end, from, before);
    (from + end as usize, look)
}

/// Whether a token begins like something that is taken out.
fn may_hide(token: &[u8]) -> bool {
    let [one, two, ..] = token else { return false };
    token.len() >= SHORTEST && may_begin(*one, *two) || token.len() >= SHORTEST_IP && one.is_ascii_digit()
}

/// Where the last token before a bit of a window stands, the one given if there is none.
fn token_before(tokens: u64, bit: u32, window: usize, before: &Range<usize>) -> Range<usize> {
    let tokens = tokens & lowest(bit);
    if tokens == 0 {
        return before.clone();
    }
    let end = highest(tokens) + 1;
    let begin = u64::BITS - (!tokens & lowest(end)).leading_zeros();
    window + begin as usize..window + end as usize
}

/// What belongs to a token and is no letter.
fn other_tokens(window: &[u8; BLOCK]) -> u64 {
    bits(window, |bytes| is_within(bytes, b'-', b'9') | is_any(bytes, *b"_@%~*+"))
}

fn digits(window: &[u8; BLOCK]) -> u64 {
    bits(window, |bytes| is_within(bytes, b'0', b'9'))
}

/// Where so many bits in a row begin.
fn rows<const COUNT: usize>(bits: u64) -> u64 {
    // Two rows that meet or overlap are a longer one.
    let (mut rows, mut known) = (bits, 1);
    while known < COUNT {
        let step = known.min(COUNT - known);
        (rows, known) = (rows & rows >> step, known + step);
    }
    rows
}

/// So many of the lowest bits.
fn lowest(count: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - count).unwrap_or_default()
}

/// The highest bit.
fn highest(bits: u64) -> u32 {
    u64::BITS - 1 - bits.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::{super::shapes::is_token, *};

    #[test]
    fn the_same_bytes_belong_to_a_token_at_once_and_one_by_one() {
        for first in [0, 64, 128, 192] {
            let window: [u8; BLOCK] = std::array::from_fn(|at| first + at.to_le_bytes()[0]);
            let tokens = Block::of(&window).letters | other_tokens(&window);
            for (at, byte) in window.iter().enumerate() {
                assert_eq!(tokens >> at & 1 == 1, is_token(*byte), "{byte}");
            }
        }
    }
}
