//! Bounds the values of a JSON body before it is read: a number takes two bytes on the wire and some hundred in memory.

/// How many bytes of a text are looked at one by one.
const SHORT: usize = 16;

/// How many values a body has at most, nested ones included; `None` where they may be more than `max`. It counts the marks
/// before values and keys, which are at least as many. A body that is no JSON is left to its reader.
#[must_use]
pub fn at_most(max: usize, body: &[u8]) -> Option<usize> {
    let (mut marks, mut next) = (1_usize, 0);
    while let Some(byte) = body.get(next) {
        next += 1;
        match byte {
            b'"' => next = text_end(body, next),
            b',' | b':' | b'[' | b'{' => marks += 1,
            _ => {}
        }
    }
    (marks <= max).then_some(marks)
}

/// Where what follows a text begins, whose first byte is at `start`.
fn text_end(body: &[u8], start: usize) -> usize {
    let mut next = start;
    // Most texts are keys, shorter than what it takes to begin a search of many bytes at once.
    for byte in body.iter().skip(start).take(SHORT) {
        match byte {
            b'"' => return next + 1,
            b'\\' => break,
            _ => next += 1,
        }
    }
    while let Some(mark) = body.get(next..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if body[next + mark] == b'"' {
            return next + mark + 1;
        }
        // What an escape is for is skipped with it.
        next += mark + 2;
    }
    body.len()
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
