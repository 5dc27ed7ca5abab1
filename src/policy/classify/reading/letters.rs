//! What each byte is to the reader of failures, and each word: tables and numbers, so that letters are asked for once.
//!
//! Never decides what a word means.

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
    Letter,
    Digit,
    Apostrophe,
    Backslash,
    Wide,
    /// What a tag begins with.
    Angle,
    /// Nothing, or what stands for it.
    End,
}

/// The kind of every byte.
pub(super) const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Gap; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "counts to 255")]
        let letter = byte as u8;
        kinds[byte] = match letter {
            b'a'..=b'z' | b'A'..=b'Z' => Kind::Letter,
            b'0'..=b'9' => Kind::Digit,
            b'\'' => Kind::Apostrophe,
            b'\\' => Kind::Backslash,
            b'_' | b'-' | b'.' | b'/' => Kind::Joint,
            b'"' => Kind::Quote,
            b':' | b'=' => Kind::Assign,
            128.. => Kind::Wide,
            b'<' => Kind::Angle,
            0 => Kind::End,
            _ => Kind::Gap,
        };
        byte += 1;
    }
    kinds
};

/// What stands between a key and its value.
#[derive(Clone, Copy)]
pub(super) enum Between {
    Assign,
    Backslash,
    Space,
}

/// What each byte is between a key and its value, if it may stand there.
pub(super) const BETWEEN: [Option<Between>; 256] = {
    let mut between = [None; 256];
    between[b':' as usize] = Some(Between::Assign);
    between[b'=' as usize] = Some(Between::Assign);
    between[b'\\' as usize] = Some(Between::Backslash);
    let spaces = b" \t\"'";
    let mut at = 0;
    while at < spaces.len() {
        between[spaces[at] as usize] = Some(Between::Space);
        at += 1;
    }
    between
};

/// The bits of a mark that hold a word's first letters, and how many letters these are.
const FIRST_LETTERS: u64 = 0xFF_FFFF;
pub(in crate::policy::classify) const LETTERS: usize = 3;

/// A word as a number, while the word is read eight letters by eight. The lowest bits of the number are the word's
/// [`FIRST_LETTERS`]. Up to seven letters the number is the word itself; of longer words the other 40 bits depend on every
/// letter, and no two words of a vocabulary share them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    first: u64,
    mixed: u64,
}

impl Mark {
    /// The mark of the word of this length that a text begins with.
    pub(super) const fn of(text: &[u8], length: usize) -> u64 {
        let (mut mark, mut rest, mut left) = (Self { first: 0, mixed: 0 }, text, length);
        while left >= 8
            && let Some((eight, more)) = rest.split_first_chunk()
        {
            mark = mark.and(u64::from_le_bytes(*eight));
            (rest, left) = (more, left - 8);
        }
        if let Some(eight) = rest.first_chunk() {
            return mark.end(u64::from_le_bytes(*eight), left);
        }
        let (mut last, mut at) = (0, 0);
        while at < rest.len() {
            last |= (rest[at] as u64) << (8 * at);
            at += 1;
        }
        mark.end(last, left)
    }

    /// The word goes on with eight letters.
    #[inline]
    pub(super) const fn and(self, eight: u64) -> Self {
        let first = if self.mixed == 0 { eight } else { self.first };
        Self { first, mixed: (self.mixed ^ eight).wrapping_mul(SPREAD).rotate_left(29) }
    }

    /// The word ends with some of these letters, less than eight.
    #[inline]
    pub(super) const fn end(self, eight: u64, letters: usize) -> u64 {
        let last = begin(eight, letters);
        if self.mixed == 0 {
            return last;
        }
        (self.mixed ^ last).wrapping_mul(SPREAD) & !FIRST_LETTERS | self.first & FIRST_LETTERS
    }
}

/// A word of a text.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::policy::classify) struct Word {
    /// Where it begins.
    pub begin: usize,
    /// Its [mark](mark), by which words are told apart.
    pub mark: u64,
}

/// The mark of a word.
pub(in crate::policy::classify) const fn mark(word: &str) -> u64 {
    Mark::of(word.as_bytes(), word.len())
}

/// The mark of the last of some words, behind which a space stands.
pub(in crate::policy::classify) const fn last_mark(words: &str) -> u64 {
    word_to(words.as_bytes(), words.len() - 1).1
}

/// The marks of the last of some words, around which spaces stand, and of the one before it: none, if that is the only one.
pub(in crate::policy::classify) const fn last_marks(words: &str) -> (u64, Option<u64>) {
    let words = words.as_bytes();
    let (begin, last) = word_to(words, words.len() - 1);
    (last, if begin > 1 { Some(word_to(words, begin - 1).1) } else { None })
}

/// Where the word begins that ends there, and its mark.
const fn word_to(words: &[u8], end: usize) -> (usize, u64) {
    let mut from = end;
    while from > 0 && words[from - 1] != b' ' {
        from -= 1;
    }
    (from, Mark::of(words.split_at(from).1, end - from))
}

/// Some words, which nearly all others are told from at once: each word has one of 256 places.
#[derive(Debug, Clone, Copy)]
pub(in crate::policy::classify) struct Sieve([u64; 4]);

impl Sieve {
    /// Of no words.
    pub(in crate::policy::classify) const NONE: Self = Self([0; 4]);

    /// Of one word more.
    pub(in crate::policy::classify) const fn and(mut self, mark: u64) -> Self {
        let (part, bit) = Self::place(mark);
        self.0[part] |= bit;
        self
    }

    /// Of more words.
    pub(in crate::policy::classify) const fn and_all(mut self, marks: &[u64]) -> Self {
        let mut at = 0;
        while at < marks.len() {
            self = self.and(marks[at]);
            at += 1;
        }
        self
    }

    /// Whether a word may be one of them.
    #[inline]
    pub(in crate::policy::classify) const fn may_have(&self, mark: u64) -> bool {
        let (part, bit) = Self::place(mark);
        self.0[part] & bit != 0
    }

    #[inline]
    const fn place(mark: u64) -> (usize, u64) {
        let place = mark.wrapping_mul(SPREAD) >> 56;
        ((place >> 6) as usize, 1 << (place & 63))
    }
}

/// Spreads bits upwards.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The bits that tell a lower-case letter from its capital, of eight letters.
pub(super) const CASE: u64 = 0x2020_2020_2020_2020;

/// The bits of the first of eight bytes, by how many.
const FIRST: [u64; 8] = {
    let (mut first, mut count) = ([0; 8], 1);
    while count < 8 {
        first[count] = first[count - 1] << 8 | 0xFF;
        count += 1;
    }
    first
};

/// The first of eight bytes, less than eight.
#[inline]
pub(super) const fn begin(eight: u64, count: usize) -> u64 {
    eight & FIRST[count % 8]
}

/// Whether one small letter ends the word, as in `don’t`.
pub(super) fn ends_with_one_letter(rest: &str) -> bool {
    let mut letters = rest.chars();
    letters.next().is_some_and(|letter| letter.is_ascii_lowercase()) && !letters.next().is_some_and(char::is_alphabetic)
}
