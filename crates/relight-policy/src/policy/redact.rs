//! Makes upstream text safe to show: removes keys, tokens, addresses and characters that deceive a
//! reader.
//!
//! Error texts of providers repeat the key that was sent, the caller's address and parts of the
//! prompt's environment; they end in logs, events and prompts. One pass over the words of a bounded
//! text.
//!
//! This does not guarantee that a text holds no secret: it removes text that has the shape of one.

use std::ops::Range;

mod shapes;

use shapes::{GONE, SHORTEST, is_ip, is_secret, is_token, names_secret, replacement, token};

/// Returns a text without secrets and control characters, of at most `limit` bytes (plus an
/// ellipsis), on one line.
#[must_use]
pub fn redact(text: &str, limit: usize) -> String {
    // A secret may start before the limit and end after it: read a little further than is kept.
    let source = &text[..text.floor_char_boundary(limit.saturating_add(256))];
    let mut clean = String::with_capacity(source.len().min(limit) + 16);
    // What stays as it is gets copied at once: all from `kept` up to `at`.
    let mut kept = 0;
    let mut at = 0;
    // The last token.
    let mut before = 0..0;
    while at < source.len() && clean.len() + (at - kept) <= limit {
        let Some(first) = source[at..].chars().next() else {
            break;
        };
        if is_token(source.as_bytes()[at]) {
            let (length, plain) = token(&source.as_bytes()[at..]);
            let bearer = length >= SHORTEST && is_named(source, &before, at, plain);
            before = at..at + length;
            let (word, rest) = source[at..].split_at(length);
            if rest.starts_with("://") {
                clean.push_str(&source[kept..at]);
                at = source.len() - address(word, rest, &mut clean).len();
                kept = at;
            } else if let Some(replacement) = replacement(word, plain, bearer) {
                clean.push_str(&source[kept..at]);
                clean.push_str(replacement);
                at += length;
                kept = at;
            } else {
                at += length;
            }
            continue;
        }
        let mut next = at + first.len_utf8();
        let gap = first.is_whitespace();
        if gap || is_deceptive(first) {
            clean.push_str(&source[kept..at]);
            if gap {
                if !clean.ends_with(' ') {
                    clean.push(' ');
                }
                next += source.as_bytes()[next..]
                    .iter()
                    .take_while(|byte| **byte == b' ')
                    .count();
            }
            kept = next;
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

/// Returns whether a field of this name holds a secret: `api_key`, `accessToken`, `password`.
#[must_use]
pub fn is_name_of_secret(name: &str) -> bool {
    let plain = name.to_ascii_lowercase().replace(['-', '_', ' '], "");
    plain.ends_with("token") || plain.ends_with("accesskey") || names_secret(plain.as_bytes())
}

/// Returns whether the token before marks this one as a secret: behind a colon or an equals sign,
/// or if it is not a word of prose itself ("basic authentication" holds no secret).
fn is_named(text: &str, before: &Range<usize>, at: usize, plain: bool) -> bool {
    let between = &text[before.end..at];
    names_secret(&text.as_bytes()[before.clone()])
        && between.chars().all(|c| {
            matches!(c, ':' | '=' | '"' | '\'' | '\\') || c.is_whitespace() || is_deceptive(c)
        })
        && (!plain || between.contains([':', '=']))
}

/// Keeps scheme, host and path of an address; drops user info, query and fragment.
fn address<'t>(scheme: &str, rest: &'t str, clean: &mut String) -> &'t str {
    let (whole, tail) = rest.split_at(rest.find(ends_address).unwrap_or(rest.len()));
    let body = &whole[3.min(whole.len())..];
    let shown = body.split(['?', '#']).next().unwrap_or(body);
    let (host, path) = shown.find('/').map_or((shown, ""), |at| shown.split_at(at));
    let host = host.rsplit('@').next().unwrap_or(host);
    clean.push_str(scheme);
    clean.push_str("://");
    let bare = host.split(':').next().unwrap_or(host);
    clean.push_str(if is_ip(bare) { "[ip]" } else { host });
    for part in path.split_inclusive('/') {
        clean.push_str(if is_secret(part.trim_end_matches('/')) {
            GONE
        } else {
            part
        });
    }
    tail
}

/// Returns whether a character ends an address.
fn ends_address(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '"' | '\'' | '`' | '<' | '>' | ')' | ']' | '}' | '\\' | ','
        )
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
            (
                "Incorrect API key provided: sk-abcdefgh12345678.",
                "abcdefgh",
                "Incorrect API key provided",
            ),
            (
                "Authorization: Bearer abc123def456 was refused",
                "abc123def456",
                "was refused",
            ),
            ("key=AIzaSyA1234567890abcdefghijk", "AIzaSy", "key="),
            (
                "GET https://user:pass@host.example/v1?key=abc failed",
                "pass",
                "https://host.example/v1",
            ),
            (
                "https://host.example/v1?key=abc failed",
                "key=abc",
                "failed",
            ),
            (
                "https://host.example/v1!a;b?key=abc failed",
                "key=abc",
                "https://host.example/v1!a;b failed",
            ),
            (
                "https://host.example/é?key=abc\u{a0}failed",
                "key=abc",
                "https://host.example/é failed",
            ),
            ("contact ops@example.com now", "ops@example.com", "contact"),
            ("dial 192.168.1.17: refused", "192.168.1.17", "refused"),
            ("\"api_key\": \"a1b2c3d4e5\"", "a1b2c3d4e5", "api_key"),
            (
                "the password: correcthorse was refused",
                "correcthorse",
                "was refused",
            ),
            (
                "Basic dXNlcjpwYXNz is not authorization",
                "dXNlcjpwYXNz",
                "is not authorization",
            ),
        ] {
            let clean = redact(text, 300);
            assert!(!clean.contains(gone), "{clean}");
            assert!(clean.contains(stays), "{clean}");
        }
    }

    #[test]
    fn a_secret_is_removed_wherever_it_occurs() {
        let words = "the key that you have given is no good ".repeat(5);
        for (secret, replacement) in [
            (" sk-abcdefgh12345678 ", GONE),
            (" Bearer: correcthorse ", GONE),
            (
                " a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4e5f6a1b2c3d4 ",
                GONE,
            ),
            (" a@b.example ", "[e-mail]"),
            ("\t10.0.0.1:8080\n", "[ip]"),
            (" 1.2.3.4 ", "[ip]"),
            (" a1b2c3d4e5f6a1b2c3d4e5f6 ", GONE),
            (" id/a1b2c3d4e5f6a1b2c3d4e5f6_1 ", GONE),
            (
                " ws://name:word@host.example/v1?token=word ",
                "ws://host.example/v1",
            ),
        ] {
            let Some(core) = secret.rsplit([' ', '\t']).find(|part| !part.is_empty()) else {
                panic!("{secret}")
            };
            for at in 0..150 {
                let clean = redact(&format!("{}{secret}{words}", &words[..at]), 400);
                assert!(
                    clean.contains(replacement) && !clean.contains(core.trim()),
                    "{at}: {clean}"
                );
            }
        }
    }

    #[test]
    fn spaces_become_one_wherever_they_occur() {
        let words = "the key that you have given is no good ".repeat(5);
        for at in 0..150 {
            let (head, rest) = words.split_at(at);
            let clean = redact(&format!("{head}   {rest}"), 400);
            let expected = format!("{} {}", head.trim_end(), rest.trim());
            assert_eq!(clean, expected.trim(), "{at}");
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
            "Zu viele Anfragen für Ihr Konto – später erneut: 请求过于频繁，请稍后再试 (№ 7)",
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
