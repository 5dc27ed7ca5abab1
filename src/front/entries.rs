//! Bounds the values of a JSON body before it is read: a number takes two bytes on the wire and some hundred in memory.

/// How many values a body has at most, nested ones included; `None` where they may be more than `max`. It counts the marks
/// before values and keys, which are at least as many. A body that is no JSON is left to its reader.
#[must_use]
pub fn at_most(max: usize, body: &[u8]) -> Option<usize> {
    let (mut marks, mut in_string, mut escaped) = (1_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b':' | b'[' | b'{' if !in_string => marks += 1,
            _ => {}
        }
    }
    (marks <= max).then_some(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_and_what_is_in_texts_is_not() {
        assert_eq!(at_most(1, br#""a, b: [c] {d} \", e""#), Some(1));
        assert_eq!(at_most(9, br#"{"a": [1, 2, "x,y"], "b": {}}"#), Some(9));
        assert_eq!(at_most(8, br#"{"a": [1, 2, "x,y"], "b": {}}"#), None);
        assert_eq!(at_most(1000, format!("[{}0]", "0,".repeat(1000)).as_bytes()), None);
    }
}
