//! Bounds the values of a JSON body before it is read: a number takes two bytes on the wire and
//! some hundred in memory.

/// Number of words of eight bytes that are searched in a text before the search of many bytes at
/// once.
const SHORT: usize = 8;

/// A one, and the highest bit, in each byte of a word.
const ONES: u64 = u64::MAX / 0xff;
const HIGHEST: u64 = ONES << 7;

/// Returns the maximum number of values that a body has, including nested ones; `None` if they may
/// be more than `max`. It counts the marks before values and keys, which are at least as many. A
/// body that is not JSON is left to its reader.
#[must_use]
pub fn at_most(max: usize, body: &[u8]) -> Option<usize> {
    let mut marks = 1_usize;
    let mut next = 0;
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

/// Returns the position after a text whose first byte is at `start`.
fn text_end(body: &[u8], start: usize) -> usize {
    let mut next = start;
    // Most texts are keys, shorter than what it takes to start a search of many bytes at once.
    for _ in 0..SHORT {
        let Some(word) = body.get(next..).and_then(<[u8]>::first_chunk) else {
            break;
        };
        match first_mark(u64::from_le_bytes(*word)) {
            8 => next += 8,
            place if word[place] == b'"' => return next + place + 1,
            _ => break,
        }
    }
    while let Some(mark) = body
        .get(next..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        if body[next + mark] == b'"' {
            return next + mark + 1;
        }
        // What an escape is for is skipped with it.
        next += mark + 2;
    }
    body.len()
}

/// Returns the byte of a word that is its first quote or backslash; 8 if there is none.
fn first_mark(word: u64) -> usize {
    // The lowest bit that is set is in the first byte that is zero (Lamport 1975); those above may
    // be wrong.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHEST;
    let marks = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
    marks.trailing_zeros() as usize / 8
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
        for length in 0..100 {
            // Wherever in a word the marks are, and whatever is around them.
            let text = "\u{a2}#]![\u{1}"
                .chars()
                .cycle()
                .take(length)
                .collect::<String>();
            let body = format!(r#"["{text}","{text}\\,{text}\",{text}"]"#);
            assert_eq!(at_most(9, body.as_bytes()), Some(3), "{body}");
        }
        assert_eq!(at_most(8, br#"{"a": [1, 2, "x,y"], "b": {}}"#), None);
        assert_eq!(
            at_most(1000, format!("[{}0]", "0,".repeat(1000)).as_bytes()),
            None
        );
    }
}
