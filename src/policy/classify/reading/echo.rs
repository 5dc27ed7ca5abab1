//! Finds where a JSON value that repeats the caller's input ends: a string, or everything within
//! its brackets.
//!
//! JSON inside a string of JSON has its quotes escaped, once more at every level; the quote before
//! a value shows its level.

/// Bytes between the quote that ends a key and the value of that key.
const NEAR: usize = 8;
/// Escapes of a quote that are counted.
const ESCAPES: usize = 64;

/// The kind of a value by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Echo {
    /// A string or brackets, up to there.
    Ends(usize),
    /// Brackets that do not end.
    OpenKey,
    /// Neither, or a value without quotes that would show its level.
    Other,
}

/// The value that begins at a place, behind its opening quote if it has one; brackets count only if
/// they may.
#[cold]
pub(super) fn of(text: &[u8], from: usize, brackets: bool) -> Echo {
    let near = &text[from.saturating_sub(NEAR)..from];
    let Some(between) = near.iter().rev().position(|byte| *byte == b'"') else {
        return Echo::Other;
    };
    let level = escapes(text, from - 1 - between);
    if between == 0 {
        return Echo::Ends(end_of_string(text, from, level));
    }
    if !brackets || !matches!(text.get(from), Some(b'{' | b'[')) {
        return Echo::Other;
    }
    let (mut at, mut depth) = (from, 0_usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_string(text, at + 1, level),
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return Echo::Ends(at + 1),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    Echo::OpenKey
}

/// Where a string ends that begins at a place; of one that does not end there is nothing left.
fn end_of_string(text: &[u8], from: usize, level: usize) -> usize {
    let mut quotes = (from..text.len()).filter(|at| text[*at] == b'"');
    // An escaped backslash before the quote has two for each of its own.
    quotes
        .find(|quote| escapes(text, *quote) % (2 * level + 2) == level)
        .unwrap_or(text.len())
}

/// The number of backslashes before a quote.
fn escapes(text: &[u8], quote: usize) -> usize {
    text[..quote]
        .iter()
        .rev()
        .take(ESCAPES)
        .take_while(|byte| **byte == b'\\')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text behind the value of the key `input`.
    fn behind(text: &str) -> Result<&str, Echo> {
        let from = text.find(':').unwrap() + 1;
        let value = from
            + text[from..]
                .find(|c| !matches!(c, ' ' | '"' | '\\'))
                .unwrap();
        match of(text.as_bytes(), value, true) {
            Echo::Ends(end) => Ok(&text[end..]),
            other => Err(other),
        }
    }

    #[test]
    fn a_value_ends_with_its_quote_or_its_brackets_at_any_level_of_escapes() {
        let plain = [
            (r#"{"input":"a","b":1}"#, r#"","b":1}"#),
            (r#"{"input":"a \" b\\","b":1}"#, r#"","b":1}"#),
            (r#"{"input": "a} b","b":1}"#, r#"","b":1}"#),
            (r#"{"input":{},"b":1}"#, r#","b":1}"#),
            (
                r#"{"input": {"c":[{"d":"} \" ]"},{}]},"b":1}"#,
                r#","b":1}"#,
            ),
            (r#"{"input":[1,[2],"\\"],"b":1}"#, r#","b":1}"#),
        ];
        for (text, rest) in plain {
            let (mut text, mut rest) = (text.to_owned(), rest.to_owned());
            for level in 0..4 {
                assert_eq!(
                    behind(&text).map(|end| end.trim_start_matches('\\')),
                    Ok(&*rest),
                    "{level}: {text}"
                );
                let string = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
                (text, rest) = (
                    string(&text),
                    string(&rest).trim_start_matches('\\').to_owned(),
                );
            }
        }
    }

    #[test]
    fn a_value_that_does_not_end_is_a_string_or_undecidable() {
        assert_eq!(behind(r#"{"input":"a, b"#), Ok(""));
        assert_eq!(behind(r#"{"input":{"a":"b"#), Err(Echo::OpenKey));
        assert_eq!(behind(r#"{"input":{"a":"b"}"#), Ok(""));
        assert_eq!(behind(r"{'input':{'a':'b'}}"), Err(Echo::Other));
        assert_eq!(behind(r#"{"input":7}"#), Err(Echo::Other));
        assert_eq!(behind(r#"{"input":}"#), Err(Echo::Other));
    }
}
