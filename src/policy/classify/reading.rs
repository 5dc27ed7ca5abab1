//! Reads an error text once and makes it comparable: one spelling for prose, codes, JSON, reprs and HTML.
//!
//! `RateLimitExceeded`, `RATE_LIMIT_EXCEEDED`, `"rate_limit_exceeded"` and "rate limit exceeded" all read `rate limit
//! exceeded`; quotes, brackets and escapes of any nesting depth become one space, so a JSON text inside a string inside an
//! array reads like a flat one. The values of keys that hold a code or the message (`code`, `type`, `reason`, …) are kept as
//! spans, so that a rule can ask for a whole value. Numbers become `#` and are kept beside the text with their place in it. Addresses (`https://…`) and fields that echo the caller's own input are dropped.
//!
//! Never judges, and never looks further than [`HEAD`] and [`TAIL`] bytes.

mod letters;

use letters::{KINDS, Kind};

/// Bytes read from the beginning of a text.
pub(super) const HEAD: usize = 12 * 1024;
/// Bytes read from the end of a text that is longer.
pub(super) const TAIL: usize = 4 * 1024;
/// Numbers and values kept.
const MAX_KEPT: usize = 512;

/// A number of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// Where its `#` stands in the read text.
    pub at: usize,
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
    pub text: Vec<u8>,
    /// The numbers in it, in order.
    pub numbers: Vec<Number>,
    /// The values of code-like keys, as spans of the text, in order.
    pub values: Vec<(usize, usize)>,
    open: Option<Open>,
    /// Whether the last letter was of a script without spaces.
    wide: bool,
}

/// A keyed value that is being read.
#[derive(Debug, Clone, Copy)]
struct Open {
    from: usize,
    quoted: bool,
}

/// Keys whose value is a code, or the message itself.
const fn is_code_key(word: &[u8]) -> bool {
    matches!(
        word,
        b"code"
            | b"type"
            | b"status"
            | b"reason"
            | b"name"
            | b"errcode"
            | b"category"
            | b"error"
            | b"detail"
            | b"message"
            | b"event"
            | b"exception"
    )
}

/// Keys whose value repeats what the caller sent or the model wrote.
fn is_echo(word: &[u8], text: &[u8]) -> bool {
    match word {
        b"input" | b"prompt" => true,
        b"generation" => ends_with_words(text, b"failed generation"),
        b"value" => ends_with_words(text, b"input value"),
        b"id" => ends_with_words(text, b"request id"),
        b"url" => ends_with_words(text, b"documentation url"),
        b"body" => ends_with_words(text, b"request body"),
        _ => false,
    }
}

// === impl Reading ===

impl Reading {
    /// Reads a source of any length; only its head and tail are looked at.
    pub(super) fn add(&mut self, source: &str) {
        if self.text.is_empty() {
            self.text.reserve(source.len().min(HEAD + TAIL) + source.len().min(HEAD + TAIL) / 4 + 16);
            self.text.push(b' ');
        }
        if source.len() <= HEAD + TAIL {
            self.read(source, 0);
        } else {
            self.read(&source[..source.floor_char_boundary(HEAD)], 0);
            let tail = source.ceil_char_boundary(source.len() - TAIL);
            self.read(&source[tail..], tail);
        }
        self.gap();
    }

    /// Adds a code found outside the text (a header), as a keyed value.
    pub(super) fn add_code(&mut self, code: &str) {
        self.add("code");
        self.open = Some(Open { from: self.text.len(), quoted: true });
        self.read(code, 0);
        self.gap();
    }

    /// Whether exactly this span is the value of a code-like key.
    pub(super) fn is_value(&self, span: (usize, usize)) -> bool {
        self.values.binary_search(&span).is_ok()
    }

    fn gap(&mut self) {
        if !matches!(self.text.last(), Some(b' ')) {
            self.text.push(b' ');
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let end = self.text.len() - usize::from(matches!(self.text.last(), Some(b' ')));
        if end > open.from && self.values.len() < MAX_KEPT {
            self.values.push((open.from, end));
        }
    }

    fn read(&mut self, source: &str, offset: usize) {
        let bytes = source.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            let byte = bytes[i];
            match KINDS[byte as usize] {
                Kind::Lower => {
                    self.part_from_wide();
                    // Eight bytes at once: all are written, those that are no lower-case letters taken back.
                    while let Some(eight) = bytes.get(i..).and_then(<[u8]>::first_chunk::<8>) {
                        let lower = letters::lower(*eight);
                        self.text.extend_from_slice(eight);
                        i += lower;
                        if lower < 8 {
                            self.text.truncate(self.text.len() - (8 - lower));
                            break;
                        }
                    }
                    while bytes.get(i).is_some_and(u8::is_ascii_lowercase) {
                        self.text.push(bytes[i]);
                        i += 1;
                    }
                }
                Kind::Upper => {
                    self.part_from_wide();
                    let before = if i == 0 { Kind::Gap } else { KINDS[bytes[i - 1] as usize] };
                    let after = bytes.get(i + 1).map_or(Kind::Gap, |b| KINDS[*b as usize]);
                    if before == Kind::Lower || (before == Kind::Upper && after == Kind::Lower && !plural(bytes, i)) {
                        self.gap();
                    }
                    self.text.push(byte | 0x20);
                    i += 1;
                }
                Kind::Digit => i = self.number(bytes, i, offset),
                Kind::Apostrophe => {
                    let inside = i > 0
                        && matches!(KINDS[bytes[i - 1] as usize], Kind::Lower | Kind::Upper)
                        && bytes.get(i + 1).is_some_and(u8::is_ascii_lowercase)
                        && !bytes.get(i + 2).is_some_and(u8::is_ascii_alphabetic);
                    if inside {
                        i += 1;
                    } else {
                        self.close();
                        i = self.gap_from(bytes, i);
                    }
                }
                Kind::Backslash => i = self.escape(bytes, i),
                Kind::Wide => i = self.wide(source, i),
                Kind::Gap => {
                    if let Some(open) = self.open {
                        let ends = if open.quoted { byte == b'"' } else { !matches!(byte, b'_' | b'-' | b'.' | b'/') };
                        if ends {
                            self.close();
                        }
                    }
                    if byte == b':' && bytes[i..].starts_with(b"://") {
                        i = self.skip_address(bytes, i);
                    } else if matches!(byte, b':' | b'=') {
                        i = self.gap_from(bytes, i);
                    } else {
                        self.gap();
                        i += 1;
                    }
                }
            }
        }
        self.close();
    }

    /// Reads the gap between a key and its value; opens the value when the key's is a code, drops it when it is an echo.
    fn gap_from(&mut self, bytes: &[u8], from: usize) -> usize {
        let mut i = from;
        let mut assigned = false;
        while i < bytes.len() && matches!(bytes[i], b':' | b'=' | b' ' | b'"' | b'\'' | b'\\' | b'\t') {
            // `\n` inside an escaped text ends the gap.
            if bytes[i] == b'\\' && bytes.get(i + 1).is_some_and(u8::is_ascii_alphanumeric) {
                break;
            }
            assigned |= matches!(bytes[i], b':' | b'=');
            i += 1;
        }
        self.gap();
        if !assigned || i >= bytes.len() {
            return i.max(from + 1);
        }
        let word = last_word(&self.text);
        if is_code_key(word) && bytes[i].is_ascii_alphabetic() {
            if self.open.is_none() {
                let quoted = matches!(bytes[i - 1], b'"' | b'\'');
                self.open = Some(Open { from: self.text.len(), quoted });
            }
        } else if bytes[i - 1] == b'"' && is_echo(word, &self.text) {
            while i < bytes.len() && !(bytes[i] == b'"' && bytes[i - 1] != b'\\') {
                i += 1;
            }
        }
        i.max(from + 1)
    }

    /// Writes a letter outside ASCII; scripts without spaces stand apart from Latin words.
    fn letter(&mut self, letter: char) {
        let wide = letter >= '\u{2e80}';
        if wide && !self.wide && self.text.last().is_some_and(|b| *b != b' ') {
            self.text.push(b' ');
        } else if !wide {
            self.part_from_wide();
        }
        self.wide = wide;
        let mut buffer = [0; 4];
        for lower in letter.to_lowercase() {
            self.text.extend_from_slice(lower.encode_utf8(&mut buffer).as_bytes());
        }
    }

    /// Ends a run of a script without spaces.
    fn part_from_wide(&mut self) {
        if self.wide {
            self.wide = false;
            self.gap();
        }
    }

    fn skip_address(&mut self, bytes: &[u8], from: usize) -> usize {
        // The scheme was written already; it goes with the rest.
        while self.text.last().is_some_and(u8::is_ascii_alphanumeric) {
            self.text.pop();
        }
        self.text.extend_from_slice(b"url ");
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
                self.text.push(bytes[i]);
                i += 1;
            }
            return i;
        }
        let mut i = from;
        let (mut whole, mut digits, mut fraction) = (0_u32, 0_u8, false);
        while i < bytes.len() {
            if bytes[i].is_ascii_digit() {
                if !fraction {
                    whole = whole.saturating_mul(10).saturating_add(u32::from(bytes[i] - b'0'));
                    digits = digits.saturating_add(1);
                }
            } else if matches!(bytes[i], b'.' | b',') && bytes.get(i + 1).is_some_and(u8::is_ascii_digit) {
                fraction |= bytes[i] == b'.';
                if bytes[i] == b',' {
                    digits = digits.saturating_add(1);
                }
            } else {
                break;
            }
            i += 1;
        }
        let alone = !fraction && !bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
        if self.numbers.len() < MAX_KEPT {
            self.numbers.push(Number { at: self.text.len(), source: from + offset, whole, digits, alone });
        }
        if NUMBERED.iter().any(|key| self.text.ends_with(key)) {
            self.text.extend_from_slice(&bytes[from..i]);
        } else {
            // Nothing at all is told apart from any other number: a limit of zero is no limit that frees up.
            self.text.push(if whole == 0 && alone { b'0' } else { b'#' });
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
                self.gap();
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
                        self.gap();
                        i + 5
                    }
                    None => {
                        self.gap();
                        i
                    }
                }
            }
            Some(b'"' | b'\'') => self.gap_from(bytes, i),
            _ => {
                self.gap();
                i
            }
        }
    }

    fn wide(&mut self, source: &str, from: usize) -> usize {
        let Some(letter) = source[from..].chars().next() else { return from + 1 };
        let next = from + letter.len_utf8();
        match letter {
            // A curly apostrophe inside a word goes, like a straight one.
            '\u{2019}' if source[next..].starts_with(|c: char| c.is_ascii_lowercase()) => {}
            letter if letter.is_alphanumeric() => self.letter(letter),
            _ => self.gap(),
        }
        next
    }
}

/// Words after which a number keeps its digits, because systems number their errors the same in every language.
const NUMBERED: [&[u8]; 8] = [
    b" errno ",
    b"error errno ",
    b" win error ",
    b" os error ",
    b" err code ",
    b" curl ",
    b" curl error ",
    b" exit code ",
];

/// `URLs`, `IDs`: a plural, not the end of a word.
fn plural(bytes: &[u8], i: usize) -> bool {
    bytes.get(i + 1) == Some(&b's') && !bytes.get(i + 2).is_some_and(u8::is_ascii_alphabetic)
}

/// Bytes looked back for a key, so that reading stays linear.
const LONGEST_KEY: usize = 24;

fn last_word(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b" ").unwrap_or(text);
    let text = &text[text.len().saturating_sub(LONGEST_KEY)..];
    // Of what is no letter and no digit only spaces, `#` and letters of other scripts are in a reading.
    let from = text.iter().rposition(|b| !(b'0'..=b'z').contains(b)).map_or(0, |at| at + 1);
    &text[from..]
}

fn ends_with_words(text: &[u8], words: &[u8]) -> bool {
    text.strip_suffix(b" ")
        .and_then(|text| text.strip_suffix(words))
        .is_some_and(|before| before.last().is_none_or(|b| !b.is_ascii_alphanumeric()))
}
