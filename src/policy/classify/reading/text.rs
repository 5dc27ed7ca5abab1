//! The text of a reading while it is written: one buffer, sized once, so that a byte costs a store and no growth.
//!
//! Never grows: what does not fit any more is left out, which the bounded source makes impossible for any real text.

use std::ops::Deref;

use super::{
    keys::{Value, value_of},
    letters::{self, Kind, Mark, Word},
    source::Source,
};
use crate::policy::classify::room::Room;

/// Words between single spaces, beginning with a space.
#[derive(Debug, Default)]
pub(in crate::policy::classify) struct Text {
    /// What is written, and room behind it.
    bytes: Room<u8, { PLACES + SPARE }>,
    /// How much of it is written.
    len: usize,
    /// The words that a space ends, and room behind them.
    words: Room<Word, WORDS>,
    /// How many of them there are.
    count: usize,
    /// Where the word begins that is being written.
    next: usize,
    /// The mark of that word, as long as it ends here.
    written: (usize, u64),
}

/// Words that there is room for (a power of two, so that no place is outside).
pub(in crate::policy::classify) const WORDS: usize = 1 << 14;
/// Bytes that there is room for, twice as many as bounded sources can have (a power of two, so that no place is outside).
const PLACES: usize = 1 << 17;
/// Room behind them, so that sixteen bytes can always be stored at once.
const SPARE: usize = 16;

// === impl Text ===

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Text {
    /// Words that need no reading.
    #[cfg(test)]
    pub(in crate::policy::classify) fn of(words: &str) -> Self {
        let mut text = Self::default();
        text.begin();
        for word in words.split(' ') {
            text.put_all(word.as_bytes());
            text.gap();
        }
        text
    }

    /// Forgets what is written and keeps the room.
    pub(super) fn clear(&mut self) {
        (self.len, self.next, self.written) = (0, 0, (0, 0));
        self.count = 0;
    }

    /// Begins with a space.
    pub(super) fn begin(&mut self) {
        if self.len == 0 {
            self.bytes[0] = b' ';
            (self.len, self.next) = (1, 1);
        }
    }

    /// Writes one byte of a word.
    #[inline]
    pub(super) fn put(&mut self, byte: u8) {
        if self.len < PLACES {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
    }

    /// Writes the words that begin with a letter at a place of a source, in lower case, and one space for all that stands
    /// between them; says up to where it read.
    #[expect(clippy::inline_always, reason = "it is the loop of its one caller, on whose state it works")]
    #[inline(always)]
    pub(super) fn put_words(&mut self, source: &Source, from: usize, within: Kind) -> usize {
        let (mut i, mut walk) = (from, source.walk(from));
        if !self.is_gap() {
            // The word was begun in another way.
            i = walk.end(source);
            source.slice(from, i).iter().for_each(|letter| self.put(letter.to_ascii_lowercase()));
            match source.kind(i) {
                kind if kind == Kind::Letter || kind <= within => self.end_word(),
                _ => return i,
            }
            let next = walk.next(source);
            i = source.gap(i, next, within);
            if i < next {
                return i;
            }
        }
        let mut begin = self.len;
        loop {
            let letters = walk.end(source) - i;
            let end = begin + letters;
            let mark = if letters < SPARE {
                // Eight letters at once: all are written, and those behind the word not counted.
                let at = begin % PLACES;
                let place = &mut self.bytes[at..at + SPARE];
                let eight = source.eight(i) | letters::CASE;
                place[..8].copy_from_slice(&eight.to_le_bytes());
                let mark = if letters < 8 {
                    letters::begin(eight, letters)
                } else {
                    let more = source.eight(i + 8) | letters::CASE;
                    place[8..].copy_from_slice(&more.to_le_bytes());
                    Mark::default().and(eight).end(more, letters - 8)
                };
                place[letters] = b' ';
                mark
            } else if let Some(room) = self.bytes.get_mut(begin..=end) {
                put_word(room, source.slice(i, i + letters))
            } else {
                // There is always room; if not, the rest is left out.
                break;
            };
            i += letters;
            let next = walk.next(source);
            let stop = source.gap(i, next, within);
            if stop == i && i < next {
                (self.next, self.len, self.written) = (begin, end, (end, mark));
                return i;
            }
            self.push(Word { begin, mark });
            begin = end + 1;
            i = next;
            if stop < next && (within != Kind::Quote || !self.is_plain_key(source, stop, next)) {
                i = stop;
                break;
            }
        }
        (self.next, self.len) = (begin, begin);
        i
    }

    /// Whether what stands here only parts a key of JSON from a value that is like any other words, or that holds others.
    #[inline(never)]
    fn is_plain_key(&self, source: &Source, from: usize, to: usize) -> bool {
        match source.slice(from, to) {
            b":\"" | b": \"" => value_of(self.words()) == Value::Other,
            [b':', b'{' | b'[', ..] | [b':', b' ', b'{' | b'[', ..] => {
                source.gap(from + 1, to, Kind::Quote) == to && value_of(self.words()) != Value::Echo
            }
            _ => false,
        }
    }

    /// Writes bytes of a word.
    pub(super) fn put_all(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.put(*byte);
        }
    }

    /// Ends a word with a space, if one is being written.
    #[inline]
    pub(super) fn gap(&mut self) {
        if !self.is_gap() {
            self.end_word();
        }
    }

    /// Ends a word that is surely being written.
    fn end_word(&mut self) {
        let mark = if self.written.0 == self.len { self.written.1 } else { self.mark(self.len) };
        self.push(Word { begin: self.next, mark });
        self.put(b' ');
        self.next = self.len;
    }

    /// Adds a word that a space ends.
    #[inline]
    fn push(&mut self, word: Word) {
        if self.count < WORDS {
            self.words[self.count] = word;
            self.count += 1;
        }
    }

    /// The mark of the word that is being written, if it ends there.
    fn mark(&self, end: usize) -> u64 {
        Mark::of(&self.bytes[self.next..], end - self.next)
    }

    /// Whether no word is being written.
    #[inline]
    pub(super) fn is_gap(&self) -> bool {
        self.len == self.next
    }

    /// Takes back the ASCII letters and digits at the end of the word that is being written.
    pub(super) fn take_back_word(&mut self) {
        while !self.is_gap() && self.bytes[self.len - 1].is_ascii_alphanumeric() {
            self.len -= 1;
        }
        self.written = (0, 0);
    }

    /// The words that a space ends.
    #[inline]
    pub(in crate::policy::classify) fn words(&self) -> &[Word] {
        &self.words[..self.count]
    }

    /// The byte at a place; behind the end of the text whatever it is.
    #[inline]
    pub(in crate::policy::classify) fn letter(&self, at: usize) -> u8 {
        self.bytes[at % PLACES]
    }

    /// Eight bytes from a place on; behind the end of the text whatever they are.
    #[inline]
    pub(in crate::policy::classify) fn eight(&self, at: usize) -> u64 {
        let at = at % PLACES;
        self.bytes[at..at + 8].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// Writes a word in lower case and a space behind it; says its mark.
#[inline(never)]
fn put_word(room: &mut [u8], word: &[u8]) -> u64 {
    let Some((space, room)) = room.split_last_mut() else { return 0 };
    *space = b' ';
    room.copy_from_slice(word);
    room.make_ascii_lowercase();
    Mark::of(room, word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are read of a source in which commas are gaps.
    fn read(source: &str) -> Text {
        let (mut text, mut taken) = (Text::default(), Source::default());
        text.begin();
        taken.take(source.as_bytes());
        let (bytes, mut i) = (source.as_bytes(), 0);
        while i < bytes.len() {
            if bytes[i].is_ascii_alphabetic() {
                i = text.put_words(&taken, i, Kind::Gap);
            } else {
                text.gap();
                i += 1;
            }
        }
        text.gap();
        text
    }

    #[test]
    fn a_word_has_one_mark_however_it_was_written() {
        let long = "abcdefghijklmnopqrstuvwxyz";
        for length in 1..long.len() {
            let word = &long[..length];
            let mark = Mark::of(word.as_bytes(), length);
            for source in [
                format!("{word} "),
                format!("{word},  {word}; "),
                format!("xyz {word} x"),
                format!("{word} rest of it"),
            ] {
                let text = read(&source);
                let found =
                    text.words().iter().find(|found| text[found.begin..].starts_with(format!("{word} ").as_bytes()));
                assert_eq!(found.map(|found| found.mark), Some(mark), "{source}");
            }
            let mut text = Text::default();
            text.begin();
            text.put_all(word.as_bytes());
            text.gap();
            assert_eq!(text.words()[0].mark, mark, "{word}");
        }
    }

    #[test]
    fn words_are_written_in_lower_case_with_one_space_between_them() {
        for (source, written) in [
            ("RATE limit", " rate limit "),
            ("Rate,  Limit", " rate limit "),
            ("RateLimit", " rate limit "),
            ("X", " x "),
            ("URLs are LLMErrors", " urls are llm errors "),
            ("RESOURCE EXHAUSTEDBYSOMETHINGVERYLONG", " resource exhaustedbysomethingverylong "),
        ] {
            assert_eq!(&*read(source), written.as_bytes(), "{source}");
        }
    }
}
