//! The text of a reading while it is written: one buffer, sized once, so that a byte costs a store and no growth.
//!
//! Never grows: what does not fit any more is left out, which the bounded source makes impossible for any real text.

use std::ops::Deref;

use super::letters::{self, Mark};

/// Words between single spaces, beginning with a space.
#[derive(Debug, Default)]
pub(in crate::policy::classify) struct Text {
    /// What is written, and room behind it.
    bytes: Vec<u8>,
    /// How much of it is written.
    len: usize,
    /// The words that a space ends.
    words: Vec<Word>,
    /// Where the word begins that is being written.
    next: usize,
    /// The mark of that word, as long as it ends here.
    written: (usize, u64),
}

/// A word of a text.
#[derive(Debug, Clone, Copy)]
pub(in crate::policy::classify) struct Word {
    /// Where it begins.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
    /// Its [mark](Mark), by which words are told apart.
    pub mark: u64,
}

/// Bytes that a word and its gap have at least, on an average.
const USUAL_WORD: usize = 5;
/// Room behind the end, so that eight bytes can always be stored at once.
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
    pub(in crate::policy::classify) fn of(words: &str) -> Self {
        let mut text = Self::default();
        text.make_room(words.len() + 1);
        for word in words.split(' ') {
            text.put_all(word.as_bytes());
            text.gap();
        }
        text
    }

    /// Forgets what is written and keeps the room.
    pub(super) fn clear(&mut self) {
        (self.len, self.next, self.written) = (0, 0, (0, 0));
        self.words.clear();
    }

    /// Makes room for the reading of a source of so many bytes; a reading is at most half as long again.
    pub(super) fn make_room(&mut self, source: usize) {
        let needed = self.len + source + source / 2 + SPARE;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, b' ');
        }
        self.words.reserve(source / USUAL_WORD);
        if self.len == 0 {
            (self.len, self.next) = (1, 1);
        }
    }

    /// Writes one byte of a word.
    #[inline]
    pub(super) fn put(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Writes the words of lower-case letters that begin at a place of a source, and one space for all that stands between
    /// them; says up to where it read.
    pub(super) fn put_words(&mut self, source: &[u8], from: usize, between: impl Fn(u8) -> bool) -> usize {
        let mut rest = &source[from..];
        if !self.is_gap() {
            // The word was begun in another way.
            rest = &rest[self.put_letters(rest)..];
            if !rest.first().is_some_and(|byte| between(*byte)) {
                return source.len() - rest.len();
            }
            self.end_word();
            rest = &rest[1..];
        }
        let (mut begin, mut len, mut mark) = (self.next, self.len, Mark::default());
        // Eight bytes at once: all are written, and those that are no lower-case letters not counted.
        while let Some(bytes) = rest.first_chunk::<8>()
            && let Some(place) = self.bytes.get_mut(len..).and_then(<[u8]>::first_chunk_mut::<8>)
        {
            *place = *bytes;
            let eight = u64::from_le_bytes(*bytes);
            let lower = letters::lower(eight);
            len += lower;
            rest = &rest[lower..];
            if lower == 8 {
                mark = mark.and(eight);
                continue;
            }
            if len == begin {
                break;
            }
            let word = Word { begin, end: len, mark: mark.end(eight, lower) };
            if !between(bytes[lower]) {
                self.written = (len, word.mark);
                break;
            }
            place[lower] = b' ';
            self.words.push(word);
            len += 1;
            (begin, mark) = (len, Mark::default());
            rest = &rest[1..];
            while let [byte, more @ ..] = rest
                && between(*byte)
            {
                rest = more;
            }
        }
        (self.next, self.len) = (begin, len);
        let too_few = rest.len() < 8 || self.bytes.len() - len < 8;
        let letters = if too_few { self.put_letters(rest) } else { 0 };
        source.len() - rest.len() + letters
    }

    /// Writes in lower case the short word of capitals, or with one in front, that a source begins with; says how many
    /// letters it has. None is written where a word is being written already or may be several (`RateLimit`).
    pub(super) fn put_capitals(&mut self, source: &[u8]) -> usize {
        if !self.is_gap() {
            return 0;
        }
        let place = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut::<8>);
        let (Some(bytes), Some(place)) = (source.first_chunk::<8>(), place) else { return 0 };
        let eight = u64::from_le_bytes(*bytes);
        let lower = eight | letters::CASE;
        let count = letters::lower(lower);
        let capitals = letters::begin(letters::CASE & !eight, count);
        if count == 8 || capitals > letters::FIRST_CASE && capitals != letters::begin(letters::CASE, count) {
            return 0;
        }
        *place = lower.to_le_bytes();
        self.len += count;
        self.written = (self.len, letters::begin(lower, count));
        count
    }

    /// Writes the lower-case letters that a source begins with, and says how many.
    fn put_letters(&mut self, source: &[u8]) -> usize {
        let letters = source.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        self.put_all(&source[..letters]);
        letters
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
        self.words.push(Word { begin: self.next, end: self.len, mark });
        self.put(b' ');
        self.next = self.len;
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
        &self.words
    }

    /// Eight bytes from a place on; behind the end of the text whatever they are.
    #[inline]
    pub(in crate::policy::classify) fn eight(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are read of a source which goes on long enough for eight bytes at once.
    fn read(source: &str) -> Text {
        let mut text = Text::default();
        text.make_room(source.len());
        let (bytes, mut i) = (source.as_bytes(), 0);
        while i < bytes.len() {
            let capitals = text.put_capitals(&bytes[i..]);
            i += capitals;
            let lower = text.put_words(bytes, i, |byte| byte == b' ' || byte == b',');
            if capitals == 0 && lower == i {
                text.gap();
                i += 1;
            } else {
                i = lower;
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
                let found = text.words().iter().find(|found| &text[found.begin..found.end] == word.as_bytes());
                assert_eq!(found.map(|found| found.mark), Some(mark), "{source}");
            }
            let mut text = Text::default();
            text.make_room(length);
            text.put_all(word.as_bytes());
            text.gap();
            assert_eq!(text.words()[0].mark, mark, "{word}");
        }
    }

    #[test]
    fn capitals_are_written_at_once_only_where_they_are_one_word() {
        for (source, letters) in [
            ("RATE limit", 4),
            ("Rate limit", 4),
            ("X       ", 1),
            ("rate    ", 4),
            ("RateLimi", 0),
            ("RAte lim", 0),
            ("URLs are", 0),
            ("RATELIMIT", 0),
            ("Rate", 0),
        ] {
            let mut text = Text::default();
            text.make_room(source.len());
            assert_eq!(text.put_capitals(source.as_bytes()), letters, "{source}");
            text.gap();
            let read = text.words().first().map_or(0, |word| word.end - word.begin);
            assert_eq!(read, letters, "{source}");
            assert_eq!(text.trim_ascii(), source[..letters].to_lowercase().as_bytes(), "{source}");
        }
    }
}
