//! Reads an error text once and makes it comparable: one spelling for prose, codes, JSON, reprs and HTML.
//!
//! `RateLimitExceeded`, `RATE_LIMIT_EXCEEDED`, `"rate_limit_exceeded"` and "rate limit exceeded" all read `rate limit
//! exceeded`; quotes, brackets and escapes of any nesting depth become one space, so a JSON text inside a string inside an
//! array reads like a flat one. The values of keys that hold a code or the message (`code`, `type`, `reason`, …) are kept as
//! spans, so that a rule can ask for a whole value. Numbers become `#` and are kept beside the text with their place in
//! it. Addresses (`https://…`) and fields that echo the caller's own input are dropped, and so are the tags of a page and the
//! frames of a traceback.
//!
//! Never judges, and never looks further than [`HEAD`] and [`TAIL`] bytes.

use memchr::memchr2;

mod echo;
mod frames;
mod keys;
mod letters;
mod source;
mod text;

use echo::Echo;
pub(super) use frames::without_frames;
use keys::{Value, names_number};
use letters::{BETWEEN, Between, Kind, ends_with_one_letter};
pub(super) use letters::{LETTERS, Sieve, Word, last_mark, last_marks, mark};
use source::Source;
pub(super) use text::{Text, WORDS};

/// Bytes read from the beginning of a text.
pub(super) const HEAD: usize = 12 * 1024;
/// Bytes read from the end of a text that is longer.
pub(super) const TAIL: usize = 4 * 1024;
/// Numbers and values kept.
const MAX_KEPT: usize = 512;
/// Numbers and values that a usual text has room for at once.
const USUAL_KEPT: usize = 64;

/// A number of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// Where its `#` stands in the read text.
    pub at: usize,
    /// How many words end before it.
    pub words: usize,
    /// Where its first digit stands in the source.
    pub source: usize,
    /// Its whole part, saturated.
    pub whole: u32,
    /// Digits of the whole part.
    pub digits: u8,
    /// Whether it stands alone (no letter glued to it, no fraction).
    pub alone: bool,
}

/// A text in the one spelling that rules are written in.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Lower case, single spaces, beginning and ending with a space.
    pub text: Text,
    /// The numbers in it, in order.
    pub numbers: Vec<Number>,
    /// The values of code-like keys, as spans of the text, in order.
    pub values: Vec<(usize, usize)>,
    /// Bytes of frames of tracebacks that were left out.
    pub left_out: usize,
    open: Option<Open>,
    /// What is being read.
    source: Source,
    /// Whether the last letter was of a script without spaces.
    wide: bool,
    /// Whether it is a page of HTML.
    page: bool,
    /// Whether something that the caller sent does not end.
    unclosed: bool,
}

/// A keyed value that is being read.
#[derive(Debug, Clone, Copy)]
struct Open {
    from: usize,
    quoted: bool,
}

// === impl Reading ===

impl Reading {
    /// Forgets what was read and keeps the room for the next text.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.numbers.clear();
        self.values.clear();
        self.left_out = 0;
        (self.open, self.wide, self.page, self.unclosed) = (None, false, false, false);
    }

    /// Reads a source of any length; only its head and tail are looked at.
    pub(super) fn add(&mut self, source: &str) {
        self.text.begin();
        self.values.reserve(USUAL_KEPT);
        self.numbers.reserve(USUAL_KEPT);
        let (head, tail) = match source.len() {
            all if all <= HEAD + TAIL => (all, all),
            all => (source.floor_char_boundary(HEAD), source.ceil_char_boundary(all - TAIL)),
        };
        for (offset, text) in [(0, &source[..head]), (tail, &source[tail..])] {
            self.left_out += text.len();
            for (from, part) in frames::parts(text).filter(|(_, part)| !part.is_empty()) {
                self.left_out -= part.len();
                self.read(part, offset + from);
                self.text.gap();
            }
        }
    }

    /// Adds a code found outside the text (a header), as a keyed value.
    pub(super) fn add_code(&mut self, code: &str) {
        self.add("code");
        let code = &code[..code.floor_char_boundary(HEAD)];
        self.open = Some(Open { from: self.text.len(), quoted: true });
        self.read(code, 0);
        self.text.gap();
    }

    /// Whether exactly this span is the value of a code-like key.
    pub(super) fn is_value(&self, (from, to): (usize, usize)) -> bool {
        let at = self.values.partition_point(|value| value.0 < from);
        self.values.get(at) == Some(&(from, to))
    }

    /// Ends a value that has no quotes.
    fn close_bare(&mut self) {
        if self.open.is_some_and(|open| !open.quoted) {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let end = self.text.len() - usize::from(self.text.is_gap());
        if end > open.from && self.values.len() < MAX_KEPT {
            self.values.push((open.from, end));
        }
    }

    fn read(&mut self, source: &str, offset: usize) {
        let bytes = source.as_bytes();
        self.source.take(bytes);
        let mut i = 0;
        loop {
            match self.source.kind(i) {
                Kind::End if i >= bytes.len() => break,
                Kind::Letter => {
                    self.part_from_wide();
                    i = self.words(i);
                }
                Kind::Joint => {
                    self.text.gap();
                    i += 1;
                }
                Kind::Gap | Kind::End => {
                    self.close_bare();
                    self.text.gap();
                    i += 1;
                }
                Kind::Angle => {
                    self.close_bare();
                    self.text.gap();
                    i += self.tag(&bytes[i..]);
                }
                Kind::Quote => {
                    self.close();
                    self.text.gap();
                    i += 1;
                    while self.source.kind(i) <= Kind::Quote {
                        i += 1;
                    }
                }
                Kind::Assign => {
                    self.close_bare();
                    i = match &bytes[i..] {
                        [b':', b'/', b'/', ..] => self.skip_address(bytes, i),
                        // What JSON has nearly always, straight to the value.
                        [b':', b'"', b'a'..=b'z' | b'A'..=b'Z', ..] => self.value_from(bytes, i + 2),
                        [b':', b' ', b'"', b'a'..=b'z' | b'A'..=b'Z', ..] => self.value_from(bytes, i + 3),
                        _ => self.gap_from(bytes, i),
                    };
                }
                Kind::Digit => i = self.number(bytes, i, offset),
                Kind::Apostrophe => {
                    let inside =
                        i > 0 && self.source.kind(i - 1) == Kind::Letter && ends_with_one_letter(&source[i + 1..]);
                    if inside {
                        i += 1;
                    } else {
                        self.close();
                        i = self.gap_from(bytes, i);
                    }
                }
                Kind::Backslash => i = self.escape(bytes, i),
                Kind::Wide => i = self.wide(source, i),
            }
        }
        self.close();
    }

    /// Writes the words from here on between which only gaps stand.
    #[inline]
    fn words(&mut self, from: usize) -> usize {
        let within = match self.open {
            None => Kind::Quote,
            Some(Open { quoted: true, .. }) => Kind::Gap,
            Some(Open { quoted: false, .. }) => Kind::Joint,
        };
        self.text.put_words(&self.source, from, within)
    }

    /// Reads the gap between a key and its value, and begins the value.
    fn gap_from(&mut self, bytes: &[u8], from: usize) -> usize {
        let (mut i, mut assigned) = (from, false);
        while let Some(between) = bytes.get(i).and_then(|byte| BETWEEN[*byte as usize]) {
            match between {
                Between::Assign => assigned = true,
                // `\n` inside an escaped text ends the gap.
                Between::Backslash if bytes.get(i + 1).is_some_and(u8::is_ascii_alphanumeric) => break,
                Between::Backslash | Between::Space => {}
            }
            i += 1;
        }
        if assigned {
            i = self.value_from(bytes, i);
        } else {
            self.text.gap();
        }
        i.max(from + 1)
    }

    /// Ends a key; opens its value when it is a code's, drops it when it is an echo.
    #[expect(clippy::inline_always, reason = "nearly every key is none of those that it looks for")]
    #[inline(always)]
    fn value_from(&mut self, bytes: &[u8], mut i: usize) -> usize {
        self.text.gap();
        let Some(first) = bytes.get(i) else { return i };
        match keys::value_of(self.text.words()) {
            Value::Code if first.is_ascii_alphabetic() && self.open.is_none() => {
                let quoted = matches!(bytes[i - 1], b'"' | b'\'');
                self.open = Some(Open { from: self.text.len(), quoted });
            }
            Value::Echo => match echo::of(bytes, i, !self.unclosed) {
                Echo::Ends(end) => i = end,
                // Looked for once.
                Echo::Open => self.unclosed = true,
                Echo::Other => {}
            },
            _ => {}
        }
        i
    }

    /// How much of a text that begins with an angle to pass over: of a page, the whole tag, for its name and attributes say
    /// nothing of a failure; of anything else only the angle.
    #[cold]
    fn tag(&mut self, text: &[u8]) -> usize {
        let begins = |begin: &[u8]| text.get(..begin.len()).is_some_and(|head| head.eq_ignore_ascii_case(begin));
        if begins(b"<!doctype html") || begins(b"<html") {
            self.page = true;
        } else if self.page && matches!(text, [_, b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!', ..]) {
            // What is no whole tag is none.
            return memchr2(b'<', b'>', &text[1..]).filter(|end| text[1 + end] == b'>').map_or(1, |end| 1 + end);
        }
        1
    }

    /// Writes a letter outside ASCII; scripts without spaces stand apart from Latin words.
    fn letter(&mut self, letter: char) {
        let wide = letter >= '\u{2e80}';
        if wide && !self.wide {
            self.text.gap();
        } else if !wide {
            self.part_from_wide();
        }
        self.wide = wide;
        let mut buffer = [0; 4];
        for lower in letter.to_lowercase() {
            self.text.put_all(lower.encode_utf8(&mut buffer).as_bytes());
        }
    }

    /// Ends a run of a script without spaces.
    fn part_from_wide(&mut self) {
        if self.wide {
            self.wide = false;
            self.text.gap();
        }
    }

    fn skip_address(&mut self, bytes: &[u8], from: usize) -> usize {
        // The scheme was written already; it goes with the rest.
        self.text.take_back_word();
        self.text.put_all(b"url");
        self.text.gap();
        let mut i = from;
        while i < bytes.len()
            && !matches!(bytes[i], b' ' | b'"' | b'\'' | b'\\' | b')' | b']' | b'}' | b'>' | b'<' | b'\n' | b'`')
        {
            i += 1;
        }
        i
    }

    fn number(&mut self, bytes: &[u8], from: usize, offset: usize) -> usize {
        self.part_from_wide();
        // Digits inside a word (`http2`, `v1`) belong to the word.
        if self.text.last().is_some_and(u8::is_ascii_lowercase) && from > 0 && bytes[from - 1].is_ascii_alphabetic() {
            let mut i = from;
            while i < bytes.len() && bytes[i].is_ascii_digit() {
                self.text.put(bytes[i]);
                i += 1;
            }
            return i;
        }
        let mut i = from;
        let (mut whole, mut digits, mut fraction) = (0_u32, 0_u8, false);
        loop {
            let first = i;
            while let Some(digit) = bytes.get(i).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
                if !fraction {
                    whole = whole.saturating_mul(10).saturating_add(digit.into());
                }
                i += 1;
            }
            if !fraction {
                digits = digits.saturating_add(u8::try_from(i - first).unwrap_or(u8::MAX));
            }
            let [sign @ (b'.' | b','), b'0'..=b'9', ..] = &bytes[i..] else { break };
            fraction |= *sign == b'.';
            digits = digits.saturating_add(u8::from(*sign == b','));
            i += 1;
        }
        let alone = !fraction && !bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
        if self.numbers.len() < MAX_KEPT {
            let (at, words) = (self.text.len(), self.text.words().len());
            self.numbers.push(Number { at, words, source: from + offset, whole, digits, alone });
        }
        if self.text.is_gap() && names_number(self.text.words()) {
            self.text.put_all(&bytes[from..i]);
        } else {
            // Nothing at all is told apart from any other number: a limit of zero is no limit that frees up.
            self.text.put(if whole == 0 && alone { b'0' } else { b'#' });
        }
        i
    }

    fn escape(&mut self, bytes: &[u8], from: usize) -> usize {
        let mut i = from;
        while i < bytes.len() && bytes[i] == b'\\' {
            i += 1;
        }
        self.close();
        match bytes.get(i) {
            Some(b'n' | b'r' | b't') => {
                self.text.gap();
                i + 1
            }
            Some(b'u') => {
                let code = bytes.get(i + 1..i + 5).and_then(|hex| std::str::from_utf8(hex).ok());
                match code.and_then(|hex| u32::from_str_radix(hex, 16).ok()).and_then(char::from_u32) {
                    Some(letter) if !letter.is_ascii() => {
                        self.letter(letter);
                        i + 5
                    }
                    Some(_) => {
                        self.text.gap();
                        i + 5
                    }
                    None => {
                        self.text.gap();
                        i
                    }
                }
            }
            Some(b'"' | b'\'') => self.gap_from(bytes, i),
            _ => {
                self.text.gap();
                i
            }
        }
    }

    fn wide(&mut self, source: &str, from: usize) -> usize {
        let Some(letter) = source[from..].chars().next() else { return from + 1 };
        let next = from + letter.len_utf8();
        match letter {
            // A curly apostrophe inside a word goes, like a straight one.
            '\u{2019}' if ends_with_one_letter(&source[next..]) => {}
            letter if letter.is_alphanumeric() => self.letter(letter),
            _ => self.text.gap(),
        }
        next
    }
}
