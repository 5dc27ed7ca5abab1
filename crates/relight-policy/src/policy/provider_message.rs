//! The message that people read of a provider's failure.
//!
//! It is the response's own `message` if it has one, or a page's title; without frames of
//! tracebacks and without the escapes of JSON, redacted and bounded.

use super::{redact::redact, traceback};
use crate::domain::failure::ProviderError;

/// Keys whose value is a message.
const MESSAGES: [&str; 4] = ["\"message\":", "\"msg\":", "\"detail\":", "\"error\":"];
/// Messages inside messages that are looked into.
const MAX_NESTED: usize = 4;
/// Bytes of a text in which its message is searched for.
const WINDOW: usize = 4096;
/// Bytes of a text without a key or title that are read.
const PLAIN: usize = 12 * 1024;

/// Returns the message that people read of a failure, redacted, at most so many bytes long.
pub(super) fn provider_message(error: &ProviderError, limit: usize) -> String {
    let text = error
        .message
        .as_deref()
        .or(error.body.as_deref())
        .unwrap_or_default();
    let window = &text[..text.floor_char_boundary(WINDOW)];
    let keyed = error.body.as_ref().and_then(|_| innermost_message(window));
    let page = || {
        if text.trim_start().starts_with('<') {
            title(window)
        } else {
            None
        }
    };
    let message = match keyed {
        Some(message) => message,
        // Outside JSON only an escaped letter is certainly an escape, and not a path.
        None => unescape(
            page().unwrap_or(&text[..text.floor_char_boundary(PLAIN)]),
            |escape| escape.starts_with("\\u"),
        ),
    };
    redact(&traceback::without_frames(&message), limit)
}

/// Returns the message of a body of JSON, and of the JSON inside that message.
fn innermost_message(body: &str) -> Option<String> {
    let mut found = keyed_message(body)?;
    for _ in 0..MAX_NESTED {
        match Some(&found)
            .filter(|text| text.trim_start().starts_with('{'))
            .and_then(|text| keyed_message(text))
        {
            Some(inner) => found = inner,
            None => break,
        }
    }
    Some(found)
}

/// Returns the value of the first key that holds a message, decoded; of a string that was cut off,
/// what there is of it.
fn keyed_message(text: &str) -> Option<String> {
    MESSAGES.iter().find_map(|key| {
        let rest = text.split_once(key)?.1.trim_start().strip_prefix('"')?;
        let mut escaped = false;
        let ends = |c: char| {
            let end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            end
        };
        let value = &rest[..rest.find(ends).unwrap_or(rest.len())];
        (!value.is_empty()).then(|| unescape(value, |_| true))
    })
}

/// Decodes those escapes of JSON that are wanted; text that is not an escape stays as it is.
fn unescape(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let (decoded, length) = Some(&rest[at..])
            .filter(|escape| wanted(escape))
            .and_then(decode)
            .unwrap_or(('\\', 1));
        plain.push(decoded);
        rest = &rest[at + length..];
    }
    plain.push_str(rest);
    plain
}

/// Returns the letter of an escape at the beginning of a text, and its length in bytes.
fn decode(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| u16::from_str_radix(text.get(from..from + 4)?, 16).ok();
    let letter = match text.as_bytes().get(1)? {
        letter @ (b'"' | b'\\' | b'/') => char::from(*letter),
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = unit(2)?;
            let low = || {
                text.get(6..8)
                    .filter(|mark| *mark == "\\u")
                    .and_then(|_| unit(8))
            };
            let units = [
                first,
                if (0xD800..0xDC00).contains(&first) {
                    low()?
                } else {
                    0
                },
            ];
            let length = if units[1] == 0 { 6 } else { 12 };
            return Some((char::decode_utf16(units).next()?.ok()?, length));
        }
        _ => return None,
    };
    Some((letter, 2))
}

/// Returns the title of an HTML page, which summarises the page.
fn title(window: &str) -> Option<&str> {
    let title = window.split_once("<title>")?.1.split('<').next()?.trim();
    (!title.is_empty()).then_some(title)
}
