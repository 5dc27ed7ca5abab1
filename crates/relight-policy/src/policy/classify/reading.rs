//! Normalizes an error text in one pass: one spelling for prose, codes, JSON, reprs and HTML.
//!
//! `RateLimitExceeded`, `RATE_LIMIT_EXCEEDED`, `"rate_limit_exceeded"` and "rate limit exceeded"
//! all become `rate limit exceeded`; quotes, brackets and escapes of any nesting depth become one
//! space, so a JSON text inside a string inside an array reads like a flat one. The values of keys
//! that hold a code or the message (`code`, `type`, `reason`, …) are kept as spans, so that a rule
//! can require a whole value. Numbers become `#` and are kept beside the text with their position.
//! Addresses (`https://…`) are dropped, and so are the tags, scripts and styles of a page, the frames
//! of a traceback, and what was put in the place of a secret (`[redacted]`). Of a long text only the
//! first [`HEAD`] and the last [`TAIL`] bytes are read.

use crate::policy::{markup, traceback};

/// Bytes read from the beginning of a text.
const HEAD: usize = 12 * 1024;
/// Bytes read from the end of a text that is longer.
const TAIL: usize = 4 * 1024;
/// Numbers and values kept.
const MAX_KEPT: usize = 512;

/// Keys whose value is a code, or the message itself.
const CODE_KEYS: &str =
    "code|type|status|reason|name|errcode|category|error|detail|message|event|exception";
/// Keys of these whose value is words for people.
const MESSAGE_KEYS: &str = "message|detail|name|event";
/// Keys whose number keeps its digits, because systems number their errors the same in every
/// language.
const NUMBERED_KEYS: &str = "errno|curl|win error|os error|curl error|err code|exit code";

/// A number of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// Position of its `#` in the normalized text.
    pub at: usize,
    /// Position of its first digit in the source.
    pub source: usize,
    /// Its whole part, saturated.
    pub whole: u32,
    /// Digits of the whole part.
    pub digits: u8,
    /// `true` if it is separate (no letter attached, no fraction).
    pub alone: bool,
    /// `true` if it is the value of a key such as `"code"`.
    pub keyed: bool,
}

/// A text in the normalized spelling in which rules are written.
#[derive(Debug, Default)]
pub(super) struct NormalizedText {
    /// Lower case, single spaces, beginning and ending with a space.
    pub text: String,
    /// The numbers in it, in order.
    pub numbers: Vec<Number>,
    /// The values of code-like keys, as spans of the text, in order.
    pub values: Vec<(usize, usize)>,
    /// Those of them that are a code and no sentence.
    codes: Vec<(usize, usize)>,
    open: Option<OpenKey>,
    /// Position at which a number starts that is a value.
    keyed: Option<usize>,
    /// `true` if the last letter was of a script without spaces.
    wide: bool,
    /// `true` if it is a page of HTML.
    page: bool,
}

/// A keyed value that is being read.
#[derive(Debug, Clone, Copy)]
struct OpenKey {
    from: usize,
    quoted: bool,
    /// `true` if it may be a code: one word, of a key that holds no message.
    code: bool,
}

// === impl NormalizedText ===

impl NormalizedText {
    /// Reads a source of any length; only its head and tail are looked at.
    pub(super) fn add(&mut self, source: &str) {
        self.gap();
        let (head, tail) = match source.len() {
            all if all <= HEAD + TAIL => (all, all),
            all => (
                source.floor_char_boundary(HEAD),
                source.ceil_char_boundary(all - TAIL),
            ),
        };
        for (offset, text) in [(0, &source[..head]), (tail, &source[tail..])] {
            let parts = traceback::parts(text).into_iter();
            for (from, part) in parts.filter(|(_, part)| !part.is_empty()) {
                self.read(part, offset + from);
                self.gap();
            }
        }
    }

    /// Adds a code found outside the text (a header), as a keyed value.
    pub(super) fn add_code(&mut self, code: &str) {
        self.add("code");
        self.open = Some(OpenKey {
            from: self.text.len(),
            quoted: true,
            code: true,
        });
        self.read(&code[..code.floor_char_boundary(HEAD)], 0);
        self.gap();
    }

    /// The codes alone, each still the whole value of its key.
    pub(super) fn codes_alone(&self) -> Self {
        let mut alone = Self::default();
        for (from, to) in &self.codes {
            alone.gap();
            let begin = alone.text.len();
            alone.text.push_str(&self.text[*from..*to]);
            alone.values.push((begin, alone.text.len()));
        }
        alone.gap();
        alone
    }

    fn read(&mut self, source: &str, offset: usize) {
        let bytes = source.as_bytes();
        let mut i = 0;
        while let Some(&byte) = bytes.get(i) {
            i = match byte {
                b'a'..=b'z' | b'A'..=b'Z' => self.word(bytes, i),
                b'0'..=b'9' => self.number(bytes, i, offset),
                b'_' | b'-' | b'.' | b'/' => {
                    self.gap();
                    i + 1
                }
                b'"' => {
                    self.close();
                    self.gap();
                    i + 1
                }
                b';' => {
                    self.close_bare();
                    self.part();
                    i + 1
                }
                b':' | b'=' => {
                    self.close_bare();
                    if begins_error(&source[i + 1..]) {
                        self.part();
                    }
                    if bytes[i..].starts_with(b"://") {
                        self.skip_address(bytes, i)
                    } else {
                        self.gap_from(bytes, i)
                    }
                }
                // An apostrophe inside a word (`don't`) is dropped.
                b'\''
                    if i > 0
                        && bytes[i - 1].is_ascii_alphabetic()
                        && ends_with_one_letter(&source[i + 1..]) =>
                {
                    i + 1
                }
                b'\'' => {
                    self.close();
                    self.gap_from(bytes, i)
                }
                b'\\' => self.escape(bytes, i),
                b'<' => {
                    self.close_bare();
                    self.gap();
                    let skipped = markup::wordless(&source[i..], self.page);
                    self.page |= markup::begins_page(&source[i..]);
                    i + skipped
                }
                128.. => self.letter_or_sign(source, i),
                _ => {
                    self.close_bare();
                    if let Some(open) = &mut self.open {
                        open.code = false;
                    }
                    self.gap();
                    i + markup::wordless(&source[i..], self.page)
                }
            };
        }
        self.close();
    }

    /// Writes a run of letters; inside it a new word starts where the case says so (`RateLimit`,
    /// `LLMError`).
    fn word(&mut self, bytes: &[u8], from: usize) -> usize {
        self.part_from_wide();
        let mut i = from;
        while let Some(&byte) = bytes.get(i).filter(|byte| byte.is_ascii_alphabetic()) {
            if i > from && byte.is_ascii_uppercase() {
                let next = bytes.get(i + 1).copied().unwrap_or_default();
                // `URLs`, `IDs`: the last capital of a plural starts no word.
                let plural = next == b's' && !bytes.get(i + 2).is_some_and(u8::is_ascii_alphabetic);
                // `cURL`, `gRPC`: one small letter starts a word of capitals.
                let initial = i == from + 1 && next.is_ascii_uppercase();
                if bytes[i - 1].is_ascii_lowercase() && !initial
                    || next.is_ascii_lowercase() && !plural
                {
                    self.gap();
                }
            }
            self.text.push(byte.to_ascii_lowercase().into());
            i += 1;
        }
        i
    }

    /// Separates the words before from those behind, which are not a phrase together.
    fn part(&mut self) {
        self.gap();
        self.text.push_str("| ");
    }

    /// Ends a word with a space, if one is being written.
    fn gap(&mut self) {
        if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }

    /// Ends a value that has no quotes.
    fn close_bare(&mut self) {
        if self.open.is_some_and(|open| !open.quoted) {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let end = self.text.trim_ascii_end().len();
        if end > open.from && self.values.len() < MAX_KEPT {
            self.values.push((open.from, end));
            if open.code && open.quoted {
                self.codes.push((open.from, end));
            }
        }
    }

    /// Reads the gap between a key and its value, and starts the value.
    fn gap_from(&mut self, bytes: &[u8], from: usize) -> usize {
        let mut i = from;
        let mut assigned = false;
        while let Some(&byte) = bytes.get(i) {
            match byte {
                b':' | b'=' => assigned = true,
                b' ' | b'\t' | b'"' | b'\'' => {}
                // `\n` inside an escaped text ends the gap.
                b'\\' if !bytes.get(i + 1).is_some_and(u8::is_ascii_alphanumeric) => {}
                _ => break,
            }
            i += 1;
        }
        self.gap();
        if assigned {
            self.open_value(bytes, i);
        }
        i.max(from + 1)
    }

    /// Opens a value when its key is a code's.
    fn open_value(&mut self, bytes: &[u8], i: usize) {
        let Some(first) = bytes.get(i) else { return };
        if ends_with_any(&self.text, CODE_KEYS) {
            if first.is_ascii_digit() {
                self.keyed = Some(i);
            } else if first.is_ascii_alphabetic() && self.open.is_none() {
                self.open = Some(OpenKey {
                    from: self.text.len(),
                    quoted: matches!(bytes[i - 1], b'"' | b'\''),
                    code: !ends_with_any(&self.text, MESSAGE_KEYS),
                });
            }
        }
    }

    /// Writes a letter outside ASCII; scripts without spaces are separated from Latin words.
    fn letter(&mut self, letter: char) {
        let wide = letter >= '\u{2e80}';
        if wide && !self.wide {
            self.gap();
        } else if !wide {
            self.part_from_wide();
        }
        self.wide = wide;
        self.text.extend(letter.to_lowercase());
    }

    /// Ends a run of a script without spaces.
    fn part_from_wide(&mut self) {
        if self.wide {
            self.wide = false;
            self.gap();
        }
    }

    fn skip_address(&mut self, bytes: &[u8], from: usize) -> usize {
        // The scheme was written already; it is removed with the rest.
        let before = self
            .text
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric());
        self.text.truncate(before.len());
        self.text.push_str("url ");
        let ends = |byte: &u8| b" \"'\\)]}><\n`".contains(byte);
        bytes[from..]
            .iter()
            .position(ends)
            .map_or(bytes.len(), |end| from + end)
    }

    fn number(&mut self, bytes: &[u8], from: usize, offset: usize) -> usize {
        self.part_from_wide();
        let mut i = from;
        // Digits inside a word (`http2`, `v1`) belong to the word.
        if from > 0
            && bytes[from - 1].is_ascii_alphabetic()
            && self.text.ends_with(|c: char| c.is_ascii_lowercase())
        {
            while let Some(&digit) = bytes.get(i).filter(|byte| byte.is_ascii_digit()) {
                self.text.push(digit.into());
                i += 1;
            }
            return i;
        }
        let mut whole = 0_u32;
        let mut digits = 0_u8;
        let mut fraction = false;
        while let Some(&byte) = bytes.get(i) {
            match byte {
                b'0'..=b'9' if !fraction => {
                    let digit = u32::from(byte - b'0');
                    whole = whole.saturating_mul(10).saturating_add(digit);
                    digits = digits.saturating_add(1);
                }
                b'0'..=b'9' => {}
                b'.' | b',' if bytes.get(i + 1).is_some_and(u8::is_ascii_digit) => {
                    fraction |= byte == b'.';
                    digits = digits.saturating_add(u8::from(byte == b','));
                }
                _ => break,
            }
            i += 1;
        }
        let alone = !fraction && !bytes.get(i).is_some_and(u8::is_ascii_alphanumeric);
        if self.numbers.len() < MAX_KEPT {
            self.numbers.push(Number {
                at: self.text.len(),
                source: from + offset,
                whole,
                digits,
                alone,
                keyed: self.keyed == Some(from),
            });
        }
        if ends_with_any(&self.text, NUMBERED_KEYS) {
            self.text
                .extend(bytes[from..i].iter().copied().map(char::from));
        } else {
            // Zero is distinguished from other numbers: a limit of zero does not free up.
            self.text.push(if whole == 0 && alone { '0' } else { '#' });
        }
        i
    }

    fn escape(&mut self, bytes: &[u8], from: usize) -> usize {
        let slashes = bytes[from..].iter().take_while(|byte| **byte == b'\\');
        let i = from + slashes.count();
        self.close();
        match bytes.get(i) {
            Some(b'"' | b'\'') => return self.gap_from(bytes, i),
            Some(b'n' | b'r' | b't') => {
                self.gap();
                return i + 1;
            }
            Some(b'u') => {
                let hex = bytes
                    .get(i + 1..i + 5)
                    .and_then(|hex| std::str::from_utf8(hex).ok());
                let letter = hex
                    .and_then(|hex| u32::from_str_radix(hex, 16).ok())
                    .and_then(char::from_u32);
                if let Some(letter) = letter {
                    if letter.is_ascii() {
                        self.gap();
                    } else {
                        self.letter(letter);
                    }
                    return i + 5;
                }
            }
            _ => {}
        }
        self.gap();
        i
    }

    fn letter_or_sign(&mut self, source: &str, from: usize) -> usize {
        let Some(letter) = source[from..].chars().next() else {
            return from + 1;
        };
        let next = from + letter.len_utf8();
        match letter {
            // A curly apostrophe inside a word is dropped, like a straight one.
            '\u{2019}' if ends_with_one_letter(&source[next..]) => {}
            letter if letter.is_alphanumeric() => self.letter(letter),
            _ => self.gap(),
        }
        next
    }
}

/// Returns whether a text names its kind and says nothing of the words before: `Error: …`.
fn begins_error(rest: &str) -> bool {
    let rest = rest.strip_prefix(' ').unwrap_or_default();
    rest.starts_with("Error") && !rest.starts_with("Error code")
}

/// Returns whether a text ends with one of some words, which `|` separates.
pub(super) fn ends_with_any(text: &str, words: &str) -> bool {
    longest_end(text, words).is_some()
}

/// Returns the longest of some words that a text ends with.
pub(super) fn longest_end<'w>(text: &str, words: &'w str) -> Option<&'w str> {
    let text = text.strip_suffix(' ')?;
    let ends = |words: &&str| {
        text.strip_suffix(words)
            .is_some_and(|before| before.ends_with(' '))
    };
    words
        .split('|')
        .filter(ends)
        .max_by_key(|words| words.len())
}

/// Returns whether one small letter ends the word, as in `don’t`.
fn ends_with_one_letter(rest: &str) -> bool {
    let mut letters = rest.chars();
    letters
        .next()
        .is_some_and(|letter| letter.is_ascii_lowercase())
        && !letters.next().is_some_and(char::is_alphabetic)
}
