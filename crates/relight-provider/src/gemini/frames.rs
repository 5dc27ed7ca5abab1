//! Server-sent events, with the one thing that Google mixes into them: an error as bare JSON over
//! several lines.
//!
//! Such an error has no `data:`, so an event decoder would drop it line by line, and the response
//! would look cut. It is reassembled by counting brackets outside strings; nothing else is parsed
//! here.

use crate::{
    reading::{Frames, Kind, ParseError, SseFrames},
    sse::SseEvent,
};

/// Splits a body into events; a bare JSON text is an event without a name.
#[derive(Debug)]
pub(super) struct MixedFrames {
    events: SseFrames,
    max_bytes: usize,
    /// The line so far, its end not seen yet.
    line: Vec<u8>,
    bare: Option<Bare>,
}

/// A bare JSON text as it grows.
#[derive(Debug, Default)]
struct Bare {
    bytes: Vec<u8>,
    depth: usize,
    in_string: bool,
    after_backslash: bool,
}

// === impl MixedFrames ===

impl MixedFrames {
    fn line(&mut self, line: &[u8], out: &mut Vec<SseEvent>) -> Result<(), ParseError> {
        let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
        if self.bare.is_none() && !matches!(first, Some(b'{' | b'[')) {
            return self.events.feed(line, out);
        }
        let mut bare = self.bare.take().unwrap_or_default();
        if bare.bytes.len() + line.len() > self.max_bytes {
            return Err(self.too_long());
        }
        if bare.add(line) {
            out.push(bare.into_event());
        } else {
            self.bare = Some(bare);
        }
        Ok(())
    }

    fn too_long(&self) -> ParseError {
        ParseError::TooLong(format!(
            "an event of the stream is longer than {} bytes",
            self.max_bytes
        ))
    }
}

impl Frames for MixedFrames {
    type Event = SseEvent;

    fn new(max_bytes: usize) -> Self {
        Self {
            events: SseFrames::new(max_bytes),
            max_bytes,
            line: Vec::new(),
            bare: None,
        }
    }

    fn feed(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), ParseError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > self.max_bytes {
                return Err(self.too_long());
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(&line, out)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Option<SseEvent> {
        let mut out = Vec::new();
        let line = std::mem::take(&mut self.line);
        self.line(&line, &mut out).ok()?;
        out.pop().or_else(|| self.events.finish())
    }

    fn is_split(&self) -> bool {
        self.events.is_split()
    }

    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind> {
        SseFrames::kind_of(seen, content_type)
    }
}

// === impl Bare ===

impl Bare {
    /// Adds a line; returns whether the text is complete.
    fn add(&mut self, line: &[u8]) -> bool {
        self.bytes.extend_from_slice(line);
        for byte in line {
            match byte {
                _ if self.after_backslash => self.after_backslash = false,
                b'\\' if self.in_string => self.after_backslash = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.depth == 0
    }

    fn into_event(self) -> SseEvent {
        SseEvent {
            name: String::new(),
            data: String::from_utf8_lossy(&self.bytes).trim().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(body: &str, bytes: usize) -> Vec<SseEvent> {
        let mut frames = MixedFrames::new(1024);
        let mut events = Vec::new();
        for piece in body.as_bytes().chunks(bytes) {
            frames.feed(piece, &mut events).unwrap();
        }
        events.extend(frames.finish());
        events
    }

    #[test]
    fn a_bare_error_between_events_is_one_event_however_it_is_cut() {
        let error =
            "{\n  \"error\": {\n    \"message\": \"a } and \\\" in {\",\n    \"code\": 503\n  }\n}";
        let body = format!("data: {{\"a\":1}}\n\n{error}\n\ndata: {{\"b\":2}}\n\n");
        for bytes in [1, 2, 13, 1000] {
            let data: Vec<String> = all(&body, bytes)
                .into_iter()
                .map(|event| event.data)
                .collect();
            assert_eq!(
                data,
                ["{\"a\":1}", error, "{\"b\":2}"],
                "in pieces of {bytes}"
            );
        }
    }

    #[test]
    fn a_bare_error_at_the_very_end_needs_no_line_feed_and_a_torn_one_is_none() {
        assert_eq!(all("data: 1\n\n{\"error\":\n{}}", 3).len(), 2);
        assert_eq!(all("data: 1\n\n{\"error\":\n{", 3).len(), 1);
    }

    #[test]
    fn neither_a_line_nor_a_bare_text_grows_beyond_its_bound() {
        let mut frames = MixedFrames::new(8);
        assert!(frames.feed(b"data: 123", &mut Vec::new()).is_err());
        let mut frames = MixedFrames::new(8);
        assert!(frames.feed(b"{\n\"a\":\n\"b\"\n", &mut Vec::new()).is_err());
    }
}
