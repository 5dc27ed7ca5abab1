//! The frames of a traceback: lines that name the code a failure passed through, but not the
//! failure.
//!
//! Files, functions and lines of code are full of words such as `timeout` and `RateLimitError`,
//! whatever failed. Frames are recognised as Python writes them (`File "…", line 7, in call`, and
//! the code below it) and as Node, Java and .NET do (`at call (file.js:7:11)`), with line breaks as
//! they are or escaped (`
//! `). The first of several frames must name its place; indented lines that
//! start like a frame are dropped with it.
//!
//! A line that is not indented is kept.

/// Bytes of one frame that are looked at.
const NEAR: usize = 256;
/// The text between file and line in a frame of Python.
const LINE: &[u8] = b", line ";
/// Number of spaces that a tab counts for.
const TAB: usize = 4;

/// A line of a text.
#[derive(Debug, Clone, Copy)]
struct TextLine<'t> {
    text: &'t [u8],
    /// Position of its start.
    from: usize,
    /// Position at which its words start.
    words: usize,
    /// Spaces before them.
    indent: usize,
    /// `true` if line breaks are written as ` `.
    escaped: bool,
}

/// Returns a text without the frames in it.
pub(super) fn without_frames(text: &str) -> String {
    parts(text).into_iter().map(|(_, part)| part).collect()
}

/// Returns the parts of a text around its frames, and the position at which each starts.
pub(super) fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(line) = TextLine::behind(text.as_bytes(), at) {
        at = line.words;
        if line.is_frame() {
            parts.push((from, &text[from..line.from]));
            from = line.end_of_frames();
            at = from;
        }
    }
    parts.push((from, &text[from..]));
    parts
}

// === impl TextLine ===

impl<'t> TextLine<'t> {
    /// Returns the line that starts at a place.
    fn at(text: &'t [u8], from: usize, escaped: bool) -> Self {
        let mut words = from;
        let mut indent = 0;
        loop {
            (words, indent) = match &text[words..] {
                [b' ', ..] => (words + 1, indent + 1),
                [b'\t', ..] => (words + 1, indent + TAB),
                [b'\\', b't', ..] if escaped => (words + 2, indent + TAB),
                _ => {
                    return Self {
                        text,
                        from,
                        words,
                        indent,
                        escaped,
                    };
                }
            };
        }
    }

    /// Returns the first line that starts behind a place.
    fn behind(text: &'t [u8], from: usize) -> Option<Self> {
        (from..text.len()).find_map(|at| Self::broken_at(text, at))
    }

    /// Returns the line behind the line break at this position.
    fn broken_at(text: &'t [u8], at: usize) -> Option<Self> {
        match &text[at..] {
            [b'\n', ..] => Some(Self::at(text, at + 1, false)),
            [b'\\', b'n', ..] => Some(Self::at(text, at + 2, true)),
            _ => None,
        }
    }

    /// Returns whether it is indented and starts with something.
    fn begins(&self, begin: &[u8]) -> bool {
        self.indent > 0 && self.text[self.words..].starts_with(begin)
    }

    /// Returns whether it is a frame that names its place.
    fn is_frame(&self) -> bool {
        if self.begins(b"File ") {
            let rest = self.near(self.words);
            let line = rest
                .windows(LINE.len())
                .position(|window| window == LINE)
                .and_then(|at| rest.get(at + LINE.len()));
            return line.is_some_and(u8::is_ascii_digit);
        }
        if !self.begins(b"at ") || !self.is_plain() {
            return false;
        }
        let words = self.words + b"at ".len();
        let Some(sign) = (words..self.end()).find(|at| self.text[*at] == b'(') else {
            return false;
        };
        let (call, [_, place @ ..]) = (&self.text[words..sign], self.near(sign)) else {
            return false;
        };
        let place = place.split(|byte| *byte == b')').next().unwrap_or_default();
        let digits = place
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let called = call.contains(&b'.') && !call.contains(&b' ');
        called
            || place == b"<anonymous>"
            || digits > 0 && place[..place.len() - digits].ends_with(b":")
    }

    /// Returns the text from a position on, as far as it is examined.
    fn near(&self, from: usize) -> &'t [u8] {
        &self.text[from..self.end().clamp(from, from + NEAR)]
    }

    /// Returns whether no text is quoted in it.
    fn is_plain(&self) -> bool {
        !self.text[self.words..self.end()].contains(&b'"')
    }

    /// Returns the position at which the run of frames that starts with this one ends. If nothing
    /// follows code, the failure was cut off, and the last line of code may name it.
    fn end_of_frames(self) -> usize {
        let with_code = self.begins(b"File ");
        let mut end = self.end();
        while let Some(next) = Self::broken_at(self.text, end) {
            let continues = if with_code {
                (next.begins(b"File ") || next.indent > self.indent)
                    && Self::broken_at(self.text, next.end()).is_some()
            } else {
                (next.begins(b"at ") || next.begins(b"... ")) && next.is_plain()
            };
            if !continues {
                break;
            }
            end = next.end();
        }
        end
    }

    /// Returns the position of its end: before a line break, or behind the text or the string that
    /// holds it.
    fn end(&self) -> usize {
        let whole = self.text.len();
        let mut at = self.words;
        if !self.escaped {
            return (at..whole)
                .find(|at| self.text[*at] == b'\n')
                .unwrap_or(whole);
        }
        let code = !self.begins(b"at ");
        while let Some(found) =
            (at..whole).find(|at| matches!(self.text[*at], b'\\' | b'"' | b'\''))
        {
            at = found;
            match &self.text[at..] {
                [b'\\', b'\\', ..] => at += 1,
                [b'\'', ..] if code => at += 1,
                [b'\\', b'n', ..] | [b'"' | b'\'', ..] => return at,
                _ => at += 2,
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_go_and_what_failed_stays() {
        for (text, left) in [
            (
                "Traceback (most recent call last):\n  File \"/app/a.py\", line 7, in call\n    raise Timeout(\n    ^^^^^\n\
                 \x20 File \"/app/b.py\", line 9, in step\nopenai.RateLimitError: 429",
                "Traceback (most recent call last):\n\nopenai.RateLimitError: 429",
            ),
            (
                "Error: 529 Overloaded\n    at timeout (/app/a.js:7:11)\n    at async /app/b.js:9:1\n  status: 529",
                "Error: 529 Overloaded\n\n  status: 529",
            ),
            (
                "java.io.IOException: reset\n\tat a.b.C.call(C.java:12) ~[a.jar:1]\n\tat a.D.<init>(Native Method)\n\
                 \t... 12 more\nCaused by: x",
                "java.io.IOException: reset\n\nCaused by: x",
            ),
            (
                "HttpRequestException: refused\n   at A.B.Send(Request r, Token t) in D:\\a\\new.cs:line 7\n   --- End",
                "HttpRequestException: refused\n\n   --- End",
            ),
            (
                r#"{"error":"x\n  File \"/a.py\", line 7, in f\n    g('timeout')\nKeyError","more":"y"}"#,
                r#"{"error":"x\n\nKeyError","more":"y"}"#,
            ),
            (
                r#"{"stack":"E: x\n    at f (/a.js:1:2)\n\tat g (/b.js:1)","code":"y"}"#,
                r#"{"stack":"E: x\n","code":"y"}"#,
            ),
            (
                "x\n  File \"/a.py\", line 7\n    f()\n  File \"/b.py\", line 9\n    raise E(",
                "x\n\n    raise E(",
            ),
            ("x\n  File \"/a.py\", line 7", "x\n"),
            (
                "E\n    at f (a.js:1:2)\n\\tat g (b.js:1:2)",
                "E\n\n\\tat g (b.js:1:2)",
            ),
            (
                r#"{"stack":"E\n\t\tat a.b.c(D.java:7)","code":"y"}"#,
                r#"{"stack":"E\n","code":"y"}"#,
            ),
            (
                "x\n  File \"/a.py\", line 7\n    f()\n  E: y\n",
                "x\n\n  E: y\n",
            ),
            (
                r#"{"error":"words that stand before the frames\n  File \"/a.py\", line 7\n    f()\nE: y"}"#,
                r#"{"error":"words that stand before the frames\n\nE: y"}"#,
            ),
            (
                r"{'stack': 'E\n    at f (a.js:1:2)', 'code': 'y'}",
                r"{'stack': 'E\n', 'code': 'y'}",
            ),
            (
                r#"[{\"stack\":\"E\\n    at f (a.js:1:2)\\nend\",\"code\":1}]"#,
                r#"[{\"stack\":\"E\\n\nend\",\"code\":1}]"#,
            ),
        ] {
            assert_eq!(without_frames(text), left, "{text}");
        }
    }

    #[test]
    fn lines_that_name_no_place_in_code_stay() {
        for text in [
            "",
            "(",
            "at f (/a.js:1:2)",
            "failed at f (/a.js:1:2)",
            "Error\n  at least one (1) of these",
            "Error\n  at position 871 (line 5 column 41)",
            "Error\n  at 12:30 (try later)",
            "Error\n  at example.com we failed (see docs)",
            "Error\n  at once(7)",
            "Error\n  at once (step:)",
            "Error\n  at api.Failed: too many requests",
            "Error\n  File (too large)",
            "Error\n  File \"a.pdf\" is no image, line breaks follow\n    in it",
            "Error\nFile \"a.py\", line 7",
            r#"{"a":"b\n  at","c":"File (","d":"e\n  File","f":", line 7"}"#,
            "Error\n  at \"f (/a.js:1:2)\", code: 7",
        ] {
            assert_eq!(without_frames(text), text, "{text}");
        }
        let far = format!("Error\n  File \"{}\", line 7", "a".repeat(NEAR));
        assert_eq!(without_frames(&far), far);
    }

    proptest! {
        #[test]
        fn parts_are_of_the_text_and_in_order(
            pieces in proptest::collection::vec(0..18_usize, 0..40)
        ) {
            const PIECES: [&str; 18] = [
                "\n", "\\n", "\\t", "\t", "  ", "    ", "at ", "File ", "\"a.py\"", "\\\"", ", line 7", "f (a.js:1:2)",
                "a.b(c)", "\"", "'", "\\", "é", "... ",
            ];
            let text: String = pieces.iter().map(|piece| PIECES[*piece]).collect();
            let mut last = 0;
            for (from, part) in parts(&text) {
                prop_assert!(from >= last);
                prop_assert_eq!(&text[from..from + part.len()], part);
                last = from + part.len();
            }
        }
    }
}
