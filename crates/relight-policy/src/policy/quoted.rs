//! Takes out of a provider's text what it quotes of the request, so that a caller's words are not
//! read as the provider's.
//!
//! Two shapes hold such words: a field that repeats the input (`"input": …`), and a sentence that
//! names what it objects to (`Invalid value: 'x'. Supported values are: 'a' and 'b'.`). Of quoted
//! words only those of the providers' own interfaces (`'tool_calls'`) stay. Of a list of a request's
//! faults, as validators write it, only what its own keys say is read.
//!
//! The caller may have put quotes into its own words, too. So there is a second, shorter reading of
//! a refused request: without everything from the first to the last quote of such a sentence.
//!
//! A server that failed may quote its caller anywhere, so of its sentences only those quotations stay
//! that follow a word of saying (`error: "…"`), and no field that holds a request.
//!
//! An error inside a string of another error is read as an error again, in JSON and as Python and
//! JavaScript print objects.

mod cues;

use std::ops::Range;

use aho_corasick::AhoCorasick;

use self::cues::{
    BEHIND, BETWEEN, CARRIERS, CUES, ECHOES, EXTRA, FAULTS, OWN, SENT, TALKS, UP_TO_THE_END,
    follows_noun, is_of_an_interface, is_said, names, nothing_else_follows,
};

/// Bytes behind a quote within which words belong to it.
const NEAR: usize = 48;
/// Strings within strings that are read.
const DEPTH: usize = 6;

const QUOTES: [char; 9] = [
    '\'', '"', '`', '\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}', '«', '»',
];

/// Extent of a text that is taken for quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotes {
    /// Text between two quotes.
    Pairs,
    /// The same, and every name between quotes that a sentence of a tool's holds.
    Names,
    /// The same as `Pairs`, and every quotation but what was said: the server failed, as the status
    /// says, whatever the caller wrote.
    Failed,
    /// The same, and words without quotes: the request is at fault, as the status says.
    Refused,
    /// All between the first and the last quote.
    All,
}

/// Returns a provider's text without what it quotes of the request.
#[must_use]
pub fn own_words(text: &str, quotes: Quotes) -> String {
    let mut own = Own {
        quotes,
        text: String::with_capacity(text.len()),
    };
    own.prose(text, false, 0);
    own.text
}

impl Quotes {
    /// Returns whether the request is at fault.
    const fn of_a_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::All)
    }
}

/// The words that stay.
struct Own {
    quotes: Quotes,
    text: String,
}

// === impl Own ===

impl Own {
    /// Keeps the provider's words of a sentence; `faulty`: it is known to name a fault.
    fn prose(&mut self, text: &str, faulty: bool, depth: usize) {
        let lower = text.to_ascii_lowercase();
        let refused = self.quotes.of_a_refusal();
        let [before, behind] = &*CUES;
        let all = self.quotes == Quotes::All;
        let failed = self.quotes == Quotes::Failed;
        let cued = |cues: &Option<AhoCorasick>, text: &str| {
            cues.as_ref().is_some_and(|cues| cues.is_match(text))
        };
        // What looks like an object within a quote is the caller's, who may write brackets, too.
        let quoted = if all { quoted_places(text) } else { 0..0 };
        let opens_at = |at: usize| opens(&text[at..]) && !quoted.contains(&at);
        let first = (0..text.len()).find(|at| text.is_char_boundary(*at) && opens_at(*at));
        let sentence = &lower[..first.unwrap_or(lower.len())];
        let from = if faulty || (all && (cued(before, sentence) || cued(behind, sentence))) {
            Some(0)
        } else {
            before
                .as_ref()
                .and_then(|cues| Some(cues.find(&lower)?.end()))
        };
        let mut at = if refused { self.subject(&lower) } else { 0 };
        while let Some(sign) = text[at..].chars().next() {
            let named = from.is_some_and(|from| from <= at);
            // An error or a list of faults as a whole, and no part of a sentence.
            let whole = text[..at].trim().is_empty();
            let end = end_of_quote(text, at, sign, all)
                // A caller's sentence may hold quotes of its own, and may be cut off.
                .filter(|end| !failed || !is_sentence(text, at, *end))
                .or_else(|| failed.then(|| end_of_quote(text, at, sign, true))?)
                .or_else(|| end_of_bracket(text, at).filter(|_| refused));
            if depth < DEPTH && opens_at(at) && (whole || !named || !refused) {
                let end = at + end_of_brackets(&text[at..]);
                if refused && BEHIND.iter().any(|words| lower[end..].starts_with(words)) {
                    self.text.push_str("'v'");
                    at = end;
                } else {
                    at += self.object(&text[at..], depth + 1);
                }
            } else if let Some(end) = end
                && (named
                    || follows_noun(&lower[..at])
                    || cued(behind, near(&lower, end))
                    || (self.quotes == Quotes::Names && names(&lower[..at]))
                    || (failed
                        && !is_said(&lower[..at])
                        && !(whole && lower[end..].trim().is_empty())))
            {
                let is_own = !all && !failed && is_of_an_interface(&text[at..end]);
                self.text
                    .push_str(if is_own { &text[at..end] } else { "'v'" });
                at = end;
            } else if refused && !sign.is_whitespace() && nothing_else_follows(&lower[..at]) {
                return;
            } else {
                at = self.keep(sign, at);
            }
        }
    }

    fn keep(&mut self, sign: char, at: usize) -> usize {
        self.text.push(sign);
        at + sign.len_utf8()
    }

    /// Keeps the text before a caller's words without quotes, and returns the position at which the
    /// provider's own start again.
    fn subject(&mut self, lower: &str) -> usize {
        let begins = lower.len() - lower.trim_start().len();
        // An error as a whole has sentences of its own, and a sentence may name its end itself.
        let is_named = UP_TO_THE_END.iter().any(|words| lower.contains(words))
            && !lower.trim_end().ends_with(EXTRA);
        if opens(&lower[begins..]) || is_named {
            return 0;
        }
        for (subject, predicates) in BETWEEN {
            let Some(named) = lower[begins..].strip_prefix(subject) else {
                continue;
            };
            let ends = predicates.iter().filter_map(|words| named.rfind(words));
            if let Some(end) = ends.max().filter(|_| !named.starts_with(QUOTES)) {
                self.text.push_str(subject);
                return lower.len() - named.len() + end;
            }
        }
        0
    }

    /// Keeps an object or list with the provider's words of its strings, and returns its length.
    fn object(&mut self, text: &str, depth: usize) -> usize {
        let escaped = text[1..].trim_start().starts_with('\\');
        if escaped {
            self.prose(&unescaped(text), false, depth);
            return text.len();
        }
        let lower = text.to_ascii_lowercase();
        let refused = self.quotes.of_a_refusal();
        let failed = self.quotes == Quotes::Failed;
        let faulty = refused && FAULTS.iter().any(|key| lower.contains(key));
        let is_sent = |key: &str| {
            let is_talk = TALKS.contains(&key) && lower.contains("role");
            ECHOES.contains(&key) || (failed && (SENT.contains(&key) || is_talk))
        };
        let is_foreign =
            |key: &str| is_sent(key) || (faulty && !key.is_empty() && !OWN.contains(&key));
        let mut at = 0;
        let mut open = 0_usize;
        let mut key = String::new();
        while let Some(sign) = text[at..].chars().next() {
            let next = at + sign.len_utf8();
            match sign {
                '\'' | '"' => {
                    let end = end_of_string(text, next, sign);
                    let content = &text[next..end];
                    at = (end + 1).min(text.len());
                    if text[at..].trim_start().starts_with(':') {
                        key = plain(content);
                        // The name of a field whose faults follow is the caller's.
                        let is_field =
                            refused && !OWN.contains(&&*key) && begins_texts(&text[at..]);
                        let named = &text[next - 1..at];
                        self.text.push_str(if is_field { "\"v\"" } else { named });
                    } else if !is_foreign(&key) {
                        let begin = self.text.len();
                        self.prose(&unescaped(content), faulty && is_message(&key), depth);
                        let own = self.text.split_off(begin);
                        self.text
                            .push_str(&serde_json::Value::String(own).to_string());
                    }
                }
                '{' | '[' | '(' if is_sent(&key) || (faulty && CARRIERS.contains(&&*key)) => {
                    at += end_of_brackets(&text[at..]);
                    key.clear();
                }
                '{' | '[' | '(' => {
                    open += 1;
                    at = self.keep(sign, at);
                }
                '}' | ']' | ')' => {
                    open = open.saturating_sub(1);
                    at = self.keep(sign, at);
                    if open == 0 {
                        return at;
                    }
                }
                ':' => {
                    let bare = text[..at].rsplit(|c: char| !is_name(c)).next();
                    key = bare.filter(|bare| !bare.is_empty()).map_or(key, plain);
                    at = self.keep(sign, at);
                }
                _ => at = self.keep(sign, at),
            }
        }
        text.len()
    }
}

/// Returns whether an object or a list of a program starts here, and not brackets of a sentence.
fn opens(text: &str) -> bool {
    let Some(inside) = text.strip_prefix(['{', '[']) else {
        return false;
    };
    let inside = inside.trim_start_matches("\\n").trim_start();
    let name = inside.trim_start_matches(is_name);
    inside.starts_with(['"', '\'', '{', '['])
        || inside.starts_with("\\\"")
        || (name.len() < inside.len()
            && text.starts_with('{')
            && name.trim_start().starts_with(':'))
}

/// Whether the value that follows a key is a list of texts.
fn begins_texts(behind_key: &str) -> bool {
    let value = behind_key
        .trim_start()
        .strip_prefix(':')
        .map(str::trim_start);
    let first = value.and_then(|value| value.strip_prefix('['));
    first.is_some_and(|first| first.trim_start().starts_with(['"', '\'']))
}

const fn is_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-')
}

/// Returns a key in one spelling.
fn plain(key: &str) -> String {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Returns whether the value of a key is a sentence about a fault.
fn is_message(key: &str) -> bool {
    matches!(key, "msg" | "message" | "description" | "detail" | "reason")
}

/// Returns the text shortly behind a place.
fn near(text: &str, from: usize) -> &str {
    &text[from..text.floor_char_boundary((from + NEAR).min(text.len()))]
}

/// Returns the places between the first quote and the last, whatever quotes the caller wrote there.
fn quoted_places(text: &str) -> Range<usize> {
    let is_within_word = |at: usize, sign: char| {
        let behind = &text[at + sign.len_utf8()..];
        text[..at].ends_with(char::is_alphanumeric) && behind.starts_with(char::is_alphanumeric)
    };
    let mut quotes = text
        .char_indices()
        .filter(|(at, sign)| QUOTES.contains(sign) && !is_within_word(*at, *sign));
    let first = quotes.next().map_or(text.len(), |(at, _)| at + 1);
    let last = quotes.next_back().map_or(first, |(at, _)| at);
    first..last
}

/// Returns the position behind the quote that closes the one at a place, or the last quote of the
/// text; `None` if none opens.
fn end_of_quote(text: &str, at: usize, sign: char, last: bool) -> Option<usize> {
    if !QUOTES.contains(&sign) || text[..at].ends_with(char::is_alphanumeric) {
        return None;
    }
    let from = at + sign.len_utf8();
    let closing = match sign {
        '\u{2018}' => '\u{2019}',
        '\u{201c}' => '\u{201d}',
        '«' => '»',
        other => other,
    };
    // An apostrophe inside a word closes nothing.
    let closes = |(place, quote): (usize, &str)| {
        let end = from + place + quote.len();
        let inside = text[from..from + place].ends_with(char::is_alphanumeric)
            && text[end..].starts_with(char::is_alphanumeric);
        (!inside).then_some(end)
    };
    if last {
        let end = text[from..].rmatch_indices(QUOTES).find_map(closes);
        return end.or(Some(text.len()));
    }
    text[from..].match_indices(closing).find_map(closes)
}

/// Returns whether a quotation is no name, and no value that is assigned.
fn is_sentence(text: &str, at: usize, end: usize) -> bool {
    text[at..end].contains(char::is_whitespace) && !text[..at].ends_with('=')
}

/// Behind the bracket that closes one around a name (`key [x] is not permitted`).
fn end_of_bracket(text: &str, at: usize) -> Option<usize> {
    let name = text[at..].strip_prefix('[')?;
    let closes = name.find(']').filter(|_| follows_noun(&text[..at]))?;
    Some(text.len() - name.len() + closes + 1)
}

/// Returns the position at which a string ends that a quote opened.
fn end_of_string(text: &str, from: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, sign) in text[from..].char_indices() {
        if sign == quote && !escaped {
            return from + at;
        }
        escaped = sign == '\\' && !escaped;
    }
    text.len()
}

/// Returns the length of an object or list.
fn end_of_brackets(text: &str) -> usize {
    let mut at = 0;
    let mut open = 0_usize;
    while let Some(sign) = text[at..].chars().next() {
        at += sign.len_utf8();
        match sign {
            '\'' | '"' => at = (end_of_string(text, at, sign) + 1).min(text.len()),
            '{' | '[' | '(' => open += 1,
            '}' | ']' | ')' => {
                open = open.saturating_sub(1);
                if open == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Returns a string's content with one level of escapes less; anything but an escape of a quote, a
/// backslash or a line's end stays.
fn unescaped(content: &str) -> String {
    let mut plain = String::with_capacity(content.len());
    let mut signs = content.chars().peekable();
    while let Some(sign) = signs.next() {
        let meant = match signs.peek().filter(|_| sign == '\\') {
            Some(next @ ('"' | '\'' | '\\' | '/')) => Some(*next),
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            _ => None,
        };
        if meant.is_some() {
            signs.next();
        }
        plain.push(meant.unwrap_or(sign));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_goes_and_the_words_around_it_stay() {
        for (text, own) in [
            (
                "Invalid value: 'rate limit'. Supported values are: 'user'.",
                "Invalid value: 'v'. Supported values are: 'user'.",
            ),
            (
                r#"{"error":{"message":"The model `a b` does not exist","code":"c"}}"#,
                r#"{"error":{"message":"The model 'v' does not exist","code":"c"}}"#,
            ),
            (
                r#"{"detail":[{"loc":["body"],"msg":"Field required","input":{"a":["}"]},"type":"missing"}]}"#,
                r#"{"detail":[{"loc":["body"],"msg":"Field required","input":,"type":"missing"}]}"#,
            ),
            ("It failed: 'rate limit'", "It failed: 'rate limit'"),
            ("It doesn't 'work'", "It doesn't 'work'"),
        ] {
            assert_eq!(own_words(text, Quotes::Pairs), own, "{text}");
        }
    }

    #[test]
    fn a_caller_who_writes_quotes_gets_no_word_out_of_them_in_the_shorter_reading() {
        let text = "Invalid value: 'a' insufficient_quota 'b'. See the docs.";
        assert_eq!(
            own_words(text, Quotes::All),
            "Invalid value: 'v'. See the docs."
        );
    }

    #[test]
    fn words_without_quotes_go_up_to_the_providers_own() {
        for (text, own) in [
            ("x y is not a valid model ID", " is not a valid model ID"),
            ("model: x y", "model: "),
            ("Unknown model: x y", "Unknown model: "),
        ] {
            assert_eq!(own_words(text, Quotes::Refused), own, "{text}");
        }
    }

    #[test]
    fn of_a_list_of_faults_only_what_its_own_keys_say_stays() {
        let text = r#"{"errors":[{"instancePath":"/a","message":"too short","data":"x y"}],"z w":["is odd"]}"#;
        let own = own_words(text, Quotes::Refused);
        assert!(own.contains("too short") && !own.contains("x y"), "{own}");
        assert!(!own.contains("z w"), "{own}");
        assert_eq!(own_words(text, Quotes::Pairs), text);
    }

    #[test]
    fn an_error_within_an_error_is_read_as_one_in_each_languages_notation() {
        for text in [
            r#"{"error":{"message":"{\"error\":{\"message\":\"Invalid value: 'x y'\"}}"}}"#,
            r#"Error code: 400 - {'error': {'message': "Invalid value: 'x y'"}}"#,
            r#"{ error: { message: "Invalid value: 'x y'" } }"#,
        ] {
            let own = own_words(text, Quotes::Refused);
            assert!(
                !own.contains("x y") && own.contains("Invalid value: 'v'"),
                "{own}"
            );
        }
    }

    #[test]
    fn no_text_is_too_deep_or_too_broken() {
        for piece in [
            "{\"a\":",
            "['",
            "\\\"",
            "{\\\"a\\\":\\\"",
            "'",
            "{\"input\":[",
        ] {
            for quotes in [Quotes::Pairs, Quotes::Failed, Quotes::Refused, Quotes::All] {
                let words = own_words(&piece.repeat(3000), quotes);
                assert!(words.len() <= 2 * 3000 * piece.len());
            }
        }
    }
}
