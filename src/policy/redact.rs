//! Makes upstream text safe to show: takes out keys, tokens, addresses and characters that deceive a reader.
//!
//! Error texts of providers repeat the key that was sent, the caller's address and parts of the prompt's environment; they
//! end in logs, events and prompts. One pass over the words of a bounded text.
//!
//! Never guarantees that a text holds no secret: it removes what has the shape of one.

use std::ops::Range;

use super::blocks::{BLOCK, Block};

/// What stands in place of something removed.
const GONE: &str = "[redacted]";
/// Letters in a row of letters and digits from which a word counts as a secret.
const LONG: usize = 24;

/// Bytes of the shortest secret that is known by the word before it, or by how it begins.
const SHORTEST: usize = 8;

/// A text without secrets and control characters, of at most `limit` bytes (plus an ellipsis), on one line.
#[must_use]
pub fn redact(text: &str, limit: usize) -> String {
    // A secret may begin before the limit and end after it: read a little further than is kept.
    let source = &text[..text.floor_char_boundary(limit.saturating_add(256))];
    let mut clean = String::with_capacity(source.len().min(limit) + 16);
    // What stays as it is gets copied at once: all from `kept` up to `at`.
    let (mut kept, mut at) = (0, 0);
    // The word before, if nothing stands between that parts it from a secret.
    let mut before = 0..0;
    while let Some(first) = source.as_bytes().get(at)
        && clean.len() + (at - kept) <= limit
    {
        if *first == b' ' && at > kept && source.as_bytes()[at - 1] != b' ' {
            at += 1;
            continue;
        }
        if is_token(*first) {
            // A word of prose behind another is told nothing of: "basic authentication" holds no secret.
            let told =
                !before.is_empty() && source.as_bytes()[before.end..at].iter().any(|byte| matches!(byte, b':' | b'='));
            if !told && let Some((next, last)) = prose(source.as_bytes(), at) {
                (at, before) = (next, last);
                continue;
            }
            let bytes = &source.as_bytes()[at..];
            let (length, plain) = token(bytes);
            // Nearly no word is long enough for a secret.
            let bearer = length >= SHORTEST && (told || !plain) && names_secret(&source.as_bytes()[before]);
            before = at..at + length;
            if plain && !bearer && bytes.get(length) != Some(&b':') {
                // With the one space behind it.
                let space = matches!(bytes[length..], [b' ', next, ..] if next != b' ');
                at += length + usize::from(space);
                continue;
            }
            let (word, rest) = source[at..].split_at(length);
            if rest.starts_with("://") {
                clean.push_str(&source[kept..at]);
                at = source.len() - address(word, rest, &mut clean).len();
                kept = at;
            } else if let Some(stand_in) = stand_in(word, plain, bearer) {
                clean.push_str(&source[kept..at]);
                clean.push_str(stand_in);
                at += length;
                kept = at;
            } else {
                at += length;
            }
            continue;
        }
        if first.is_ascii_graphic() {
            if !matches!(first, b':' | b'=' | b'"' | b'\'' | b'\\') {
                before = 0..0;
            }
            at += 1;
            continue;
        }
        let Some(first) = source[at..].chars().next() else { break };
        let next = at + first.len_utf8();
        let gap = first.is_whitespace();
        if gap || is_deceptive(first) {
            let shown = &source[kept..at];
            let spaced = if shown.is_empty() { clean.ends_with(' ') } else { shown.ends_with(' ') };
            if first != ' ' || spaced {
                clean.push_str(shown);
                if gap && !spaced {
                    clean.push(' ');
                }
                kept = next;
            }
        } else {
            before = 0..0;
        }
        at = next;
    }
    clean.push_str(&source[kept..at]);
    clean.truncate(clean.trim_end().len());
    if clean.starts_with(char::is_whitespace) {
        clean = clean.trim_start().to_owned();
    }
    if clean.len() > limit {
        clean.truncate(clean[..clean.floor_char_boundary(limit)].trim_end().len());
        clean.push('…');
    } else if !text[at..].trim().is_empty() {
        clean.push('…');
    }
    clean
}

/// What is shown in place of a word, where it is not shown itself.
fn stand_in(word: &str, plain: bool, bearer: bool) -> Option<&'static str> {
    if bearer {
        Some(GONE)
    } else if plain {
        None
    } else if word.contains('@') && is_mail(word) {
        Some("[e-mail]")
    } else if is_ip(word) {
        Some("[ip]")
    } else if is_secret(word) {
        Some(GONE)
    } else {
        None
    }
}

fn is_token(byte: u8) -> bool {
    const TOKENS: [bool; 256] = {
        let (mut tokens, mut byte) = ([false; 256], 0_u8);
        while byte < 128 {
            tokens[byte as usize] = byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'+' | b'*' | b'/' | b'%' | b'~');
            byte += 1;
        }
        tokens
    };
    TOKENS[usize::from(byte)]
}

/// Passes over short words of prose with one space behind each, as far as 64 bytes tell; says where it came to and which word
/// was the last.
fn prose(text: &[u8], from: usize) -> Option<(usize, Range<usize>)> {
    let text = text.get(from..).filter(|text| text.first().is_some_and(u8::is_ascii_alphabetic))?;
    let mut padded = [0; BLOCK];
    let window = text.first_chunk().unwrap_or_else(|| {
        padded[..text.len()].copy_from_slice(text);
        &padded
    });
    let (Block { letters, lower }, spaces) = (Block::of(window), Block::places(window, b' '));
    let (mut at, mut last) = (0, None);
    // The byte behind the space has to be seen, too.
    while at < BLOCK - 2 && letters >> at & 1 == 1 {
        let end = at + 1 + (lower >> at >> 1).trailing_ones() as usize;
        if end > BLOCK - 2 || end - at > LONG || spaces >> end & 0b11 != 0b01 {
            break;
        }
        last = Some(from + at..from + end);
        at = end + 1;
    }
    last.map(|last| (from + at, last))
}

/// Where a token ends, and whether it is one short word of prose, in which nothing can hide.
fn token(text: &[u8]) -> (usize, bool) {
    let lower = 1 + text[1..].iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    let rest = text[lower..].iter().take_while(|byte| is_token(**byte)).count();
    (lower + rest, rest == 0 && lower <= LONG && text[0].is_ascii_alphabetic())
}

/// Keeps scheme, host and path of an address; drops user info, query and fragment.
fn address<'t>(scheme: &str, rest: &'t str, clean: &mut String) -> &'t str {
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}' | '\\' | ','))
        .unwrap_or(rest.len());
    let (whole, tail) = rest.split_at(end);
    let body = &whole[3.min(whole.len())..];
    let shown = body.find(['?', '#']).map_or(body, |at| &body[..at]);
    let (host, path) = shown.find('/').map_or((shown, ""), |at| shown.split_at(at));
    let host = host.rsplit('@').next().unwrap_or(host);
    clean.push_str(scheme);
    clean.push_str("://");
    let bare = host.split(':').next().unwrap_or(host);
    clean.push_str(if is_ip(bare) { "[ip]" } else { host });
    for part in path.split_inclusive('/') {
        clean.push_str(if is_secret(part.trim_end_matches('/')) { GONE } else { part });
    }
    tail
}

fn is_mail(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.starts_with('.'))
}

fn is_ip(word: &str) -> bool {
    if !word.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let mut parts = 0;
    for part in word.trim_end_matches('.').split('.') {
        if part.is_empty() || part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) || part.parse::<u8>().is_err()
        {
            return false;
        }
        parts += 1;
    }
    parts == 4
}

/// A word after which a secret stands.
fn names_secret(word: &[u8]) -> bool {
    const NAMES: [&str; 9] =
        ["bearer", "apikey", "api_key", "api-key", "secret", "password", "access_token", "authorization", "basic"];
    // Nearly no word ends like one of them.
    let [.., before, last] = word else { return false };
    let end = [before | 0x20, last | 0x20];
    word.len() >= 5
        && matches!(&end, b"er" | b"ey" | b"et" | b"rd" | b"en" | b"on" | b"ic")
        && NAMES.iter().any(|name| {
            word.len().checked_sub(name.len()).is_some_and(|from| word[from..].eq_ignore_ascii_case(name.as_bytes()))
        })
}

/// What keys of vendors begin with.
const PREFIXES: [&str; 28] = [
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk_",
    "AIza",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "xai-",
    "gsk_",
    "r8_",
    "nvapi-",
    "pplx-",
    "fw_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "ya29.",
    "eyJ",
    "csk-",
    "tgp_v1_",
];

/// The first bytes of those, by which nearly all other words are told from them at once.
const BEGINNINGS: [bool; 256] = {
    let (mut beginnings, mut at) = ([false; 256], 0);
    while at < PREFIXES.len() {
        beginnings[PREFIXES[at].as_bytes()[0] as usize] = true;
        at += 1;
    }
    beginnings
};

/// The shape of a key: a vendor's prefix, or a long run of mixed letters and digits.
fn is_secret(word: &str) -> bool {
    let may_begin = word.as_bytes().first().is_some_and(|first| BEGINNINGS[usize::from(*first)]);
    if may_begin && word.len() >= SHORTEST && PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
        return true;
    }
    if word.len() < LONG {
        return false;
    }
    // Words of prose and paths are letters with few digits; keys mix both, or are one long run.
    let mut run = 0;
    let (mut letters, mut digits, mut upper, mut lower) = (0, 0, false, false);
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() {
            run += 1;
            letters += usize::from(byte.is_ascii_alphabetic());
            digits += usize::from(byte.is_ascii_digit());
            upper |= byte.is_ascii_uppercase();
            lower |= byte.is_ascii_lowercase();
            if run >= LONG && digits >= 4 && letters >= 4 || run >= 32 && (digits >= 3 || upper && lower) {
                return true;
            }
        } else {
            (run, letters, digits, upper, lower) = (0, 0, 0, false, false);
        }
    }
    false
}

/// Control characters, bidirectional marks and invisible ones.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_tokens_and_addresses_are_taken_out_and_the_words_stay() {
        for (text, gone, stays) in [
            ("Incorrect API key provided: sk-abcdefgh12345678.", "abcdefgh", "Incorrect API key provided"),
            ("Authorization: Bearer abc123def456 was refused", "abc123def456", "was refused"),
            ("key=AIzaSyA1234567890abcdefghijk", "AIzaSy", "key="),
            ("GET https://user:pass@host.example/v1?key=abc failed", "pass", "https://host.example/v1"),
            ("https://host.example/v1?key=abc failed", "key=abc", "failed"),
            ("contact ops@example.com now", "ops@example.com", "contact"),
            ("dial 192.168.1.17: refused", "192.168.1.17", "refused"),
            ("\"api_key\": \"a1b2c3d4e5\"", "a1b2c3d4e5", "api_key"),
            ("the password: correcthorse was refused", "correcthorse", "was refused"),
            ("Basic dXNlcjpwYXNz is not authorization", "dXNlcjpwYXNz", "is not authorization"),
        ] {
            let clean = redact(text, 300);
            assert!(!clean.contains(gone), "{clean}");
            assert!(clean.contains(stays), "{clean}");
        }
    }

    #[test]
    fn model_names_codes_and_paths_stay_readable() {
        for text in [
            "The model `llama-3.3-70b-versatile` does not exist (model_not_found)",
            "Please try again in 8.64s. Limit 200000, Used 199999, Requested 17",
            "anthropic.claude-3-7-sonnet-20250219-v1:0 is not supported",
            "Basic authentication failed: no authorization presented, and the password provided is wrong",
            "Set the API_KEY environment variable or pass the 'apiKey' parameter",
        ] {
            assert_eq!(redact(text, 500), text);
        }
    }

    #[test]
    fn what_is_cut_ends_with_an_ellipsis_behind_a_word() {
        assert_eq!(redact("one two three", 13), "one two three");
        assert_eq!(redact("one two three", 8), "one two…");
        assert_eq!(redact("one two three", 7), "one two…");
        assert_eq!(redact("one two three", 6), "one tw…");
        assert_eq!(redact("one two  ", 7), "one two");
    }

    #[test]
    fn control_and_bidirectional_characters_are_stripped() {
        assert_eq!(redact("a\u{202e}b\u{7}c\nd\te\u{200b}", 100), "abc d e");
    }

    proptest! {
        #[test]
        fn no_text_panics_and_none_grows_past_its_limit(text in ".*", limit in 0_usize..400) {
            prop_assert!(redact(&text, limit).len() <= limit + '…'.len_utf8());
        }
    }
}
