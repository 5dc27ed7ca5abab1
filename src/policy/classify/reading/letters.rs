//! What each byte is to the reader of failures: a table, so that its one loop asks once.
//!
//! Never looks at more than one byte.

/// What a byte is, for the reader's one loop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gap,
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
            128.. => Kind::Wide,
            _ => Kind::Gap,
        };
        byte += 1;
    }
    kinds
};
