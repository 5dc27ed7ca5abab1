//! The text of a reading while it is written: one buffer, sized once, so that a byte costs a store and no growth.
//!
//! Never grows: what does not fit any more is left out, which the bounded source makes impossible for any real text.

use std::ops::{Deref, Range};

use super::letters;

/// Words between single spaces, beginning with a space.
#[derive(Debug, Default)]
pub(in crate::policy::classify) struct Text {
    /// What is written, and room behind it.
    bytes: Vec<u8>,
    /// How much of it is written.
    len: usize,
    /// Where each word begins, and where the next one will.
    words: Vec<u32>,
    /// Where the word begins that is being written.
    next: usize,
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
        (self.len, self.next) = (0, 0);
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
            self.len = 1;
            self.next = 1;
            self.words.push(1);
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

    /// Writes the words of lower-case letters that begin at a place of a source, as long as only one byte that ends a
    /// word stands between them; says up to where it read.
    #[inline]
    pub(super) fn put_words(&mut self, source: &[u8], from: usize, ends_word: impl Fn(u8) -> bool) -> usize {
        let (out, mut len, mut i) = (&mut self.bytes[..], self.len, from);
        loop {
            // Eight bytes at once: all are written, and those that are no lower-case letters not counted.
            loop {
                let eight = source.get(i..).and_then(<[u8]>::first_chunk::<8>);
                let place = out.get_mut(len..).and_then(<[u8]>::first_chunk_mut::<8>);
                let (Some(eight), Some(place)) = (eight, place) else { break };
                *place = *eight;
                let lower = letters::lower(*eight);
                (len, i) = (len + lower, i + lower);
                if lower < 8 {
                    break;
                }
            }
            while let Some(byte) = source.get(i).filter(|byte| byte.is_ascii_lowercase())
                && let Some(place) = out.get_mut(len)
            {
                *place = *byte;
                (len, i) = (len + 1, i + 1);
            }
            if let [between, next, ..] = source[i..]
                && ends_word(between)
                && let Some(place) = out.get_mut(len)
            {
                *place = b' ';
                (len, i) = (len + 1, i + 1);
                self.next = len;
                self.words.push(u32::try_from(len).unwrap_or(u32::MAX));
                if next.is_ascii_lowercase() {
                    continue;
                }
            }
            self.len = len;
            return i;
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
    #[inline]
    pub(super) fn end_word(&mut self) {
        self.put(b' ');
        self.next = self.len;
        self.words.push(u32::try_from(self.next).unwrap_or(u32::MAX));
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
    }

    /// The last word that a space ends.
    #[inline]
    pub(super) fn last_word(&self) -> &[u8] {
        let from = self.words.len().checked_sub(2).map_or(0, |last| self.words[last] as usize);
        self.bytes.get(from..self.next.saturating_sub(1)).unwrap_or_default()
    }

    /// How many words a space ends.
    pub(in crate::policy::classify) fn count(&self) -> usize {
        self.words.len().saturating_sub(1)
    }

    /// Where a word begins and ends, counted from zero.
    #[inline]
    pub(in crate::policy::classify) fn word(&self, index: usize) -> Option<(usize, usize)> {
        match self.words.get(index..)? {
            [from, next, ..] => Some((*from as usize, *next as usize - 1)),
            _ => None,
        }
    }

    /// Where some of the words begin and end, as many as there are.
    #[inline]
    pub(in crate::policy::classify) fn words(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let last = self.words.len().min(range.end + 1);
        let bounds = self.words.get(range.start..last).unwrap_or_default();
        bounds.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize - 1))
    }

    /// Eight bytes from a place on; behind the end of the text whatever they are.
    #[inline]
    pub(in crate::policy::classify) fn eight(&self, at: usize) -> u64 {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}
