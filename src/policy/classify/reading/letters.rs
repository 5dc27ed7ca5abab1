//! What each byte is to the reader of failures: a table, so that its one loop asks once.
//!
//! Never looks at more than eight bytes.

/// What a byte is, for the reader's one loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Kind {
    /// Only a gap, even inside a code.
    Joint,
    /// Only a gap.
    Gap,
    /// A double quote.
    Quote,
    /// What stands between a key and its value.
    Assign,
    Lower,
    Upper,
    Digit,
    Apostrophe,
    Backslash,
    Wide,
}

/// The kind of every byte.
pub(super) const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Gap; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "counts to 255")]
        let letter = byte as u8;
        kinds[byte] = match letter {
            b'a'..=b'z' => Kind::Lower,
            b'A'..=b'Z' => Kind::Upper,
            b'0'..=b'9' => Kind::Digit,
            b'\'' => Kind::Apostrophe,
            b'\\' => Kind::Backslash,
            b'_' | b'-' | b'.' | b'/' => Kind::Joint,
            b'"' => Kind::Quote,
            b':' | b'=' => Kind::Assign,
            128.. => Kind::Wide,
            _ => Kind::Gap,
        };
        byte += 1;
    }
    kinds
};

/// What stands between a key and its value.
pub(super) const BETWEEN: [bool; 256] = {
    let mut between = [false; 256];
    let bytes = b":= \"'\\\t";
    let mut at = 0;
    while at < bytes.len() {
        between[bytes[at] as usize] = true;
        at += 1;
    }
    between
};

/// Up to eight letters as a number.
pub(super) const fn packed(word: &[u8]) -> u64 {
    let mut packed = 0;
    let mut at = 0;
    while at < word.len() && at < 8 {
        packed |= (word[at] as u64) << (8 * at);
        at += 1;
    }
    packed
}

/// How many of eight bytes are lower-case letters before the first that is none.
#[inline]
pub(super) fn lower(bytes: [u8; 8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let eight = u64::from_le_bytes(bytes);
    let ascii = eight & !HIGH;
    // The high bit of each byte: at least `a`, and beyond `z`.
    let from_a = ascii + LOW * (0x80 - u64::from(b'a'));
    let beyond_z = ascii + LOW * (0x80 - u64::from(b'z' + 1));
    let others = !(from_a & !beyond_z & !eight) & HIGH;
    others.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_told_from_lower_case_letters_at_every_place() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut bytes = *b"abmnopyz";
                bytes[at] = byte;
                assert_eq!(lower(bytes), if byte.is_ascii_lowercase() { 8 } else { at }, "{byte} at {at}");
            }
        }
    }
}
