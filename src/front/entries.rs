//! Bounds the values of a JSON body before it is read: a number takes two bytes on the wire and some hundred in memory.

/// How many values a body has at most, nested ones included; `None` where they may be more than `max`. It counts the marks
/// before values and keys, which are at least as many. A body that is no JSON is left to its reader.
#[must_use]
pub fn at_most(max: usize, body: &[u8]) -> Option<usize> {
    let (mut marks, mut rest) = (1_usize, body);
    while let Some(quote) = memchr::memchr(b'"', rest) {
        marks += marks_in(&rest[..quote]);
        rest = after_text(&rest[quote + 1..]);
    }
    marks += marks_in(rest);
    (marks <= max).then_some(marks)
}

/// The marks before values and keys, where no text is.
fn marks_in(json: &[u8]) -> usize {
    json.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count()
}

/// What follows the text that begins here.
fn after_text(json: &[u8]) -> &[u8] {
    let mut rest = json;
    while let Some(mark) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[mark] == b'"' {
            return &rest[mark + 1..];
        }
        rest = rest.get(mark + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_and_what_is_in_texts_is_not() {
        assert_eq!(at_most(1, br#""a, b: [c] {d} \", e""#), Some(1));
        assert_eq!(at_most(1, br#""a\\\", b: [c]"#), Some(1));
        assert_eq!(at_most(2, br#""a\\", b"#), Some(2));
        assert_eq!(at_most(1, br#""a, b\"#), Some(1));
        assert_eq!(at_most(9, br#"{"a": [1, 2, "x,y"], "b": {}}"#), Some(9));
        assert_eq!(at_most(8, br#"{"a": [1, 2, "x,y"], "b": {}}"#), None);
        assert_eq!(at_most(1000, format!("[{}0]", "0,".repeat(1000)).as_bytes()), None);
    }
}
