//! Decodes server-sent events from bytes, however they were split on the way.
//!
//! Own code because recovery depends on details: which event is complete, which is torn, and what
//! servers write beyond the standard (`error:` lines of llama.cpp). Lines and events are bounded;
//! it does not reconnect.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, mem};

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// Value of its `event` field; empty if it has none. `error` also for llama.cpp's `error:`
    /// lines.
    pub name: String,
    /// Its `data` lines, joined by line feeds.
    pub data: String,
}

/// A line or an event beyond its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {max_bytes} bytes")]
pub struct EventTooLong {
    /// The bound, in bytes.
    pub max_bytes: usize,
}

/// The decoder of one stream.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact about the bytes so far"
)]
pub struct SseDecoder {
    max_bytes: usize,
    /// The line so far, its end not seen yet; never longer than the bound.
    line: Vec<u8>,
    /// The last byte was a CR that ended a line: an LF right after it belongs to that end.
    after_cr: bool,
    /// No line has ended yet: it may start with a byte order mark.
    at_first_line: bool,
    event: SseEvent,
    /// The event so far has a `data` line.
    has_data: bool,
    /// It has an `event` line.
    has_name: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// Names of events that only keep a connection open.
const HEARTBEATS: [&str; 4] = ["ping", "keepalive", "keep-alive", "heartbeat"];
/// The field in which an event says how many came before it.
const NUMBER: &str = "\"sequence_number\"";

// === impl SseDecoder ===

impl SseDecoder {
    /// A decoder at the beginning of a stream; a line, or the data of an event, may be `max_bytes`
    /// long.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            line: Vec::new(),
            after_cr: false,
            at_first_line: true,
            event: SseEvent::default(),
            has_data: false,
            has_name: false,
        }
    }

    /// Decodes the next bytes into the events that they complete.
    ///
    /// # Errors
    /// When a line or an event exceeds its bound; the decoder cannot be used after that.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), EventTooLong> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let line = &rest[..end];
            let ended_by_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if ended_by_cr {
                match rest.split_first() {
                    Some((b'\n', tail)) => rest = tail,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            if self.line.is_empty() && line.len() <= self.max_bytes {
                // The usual case: the whole line is here, and is read in place.
                events.extend(self.end_line(line)?);
            } else {
                self.extend_line(line)?;
                events.extend(self.end_held_line()?);
            }
        }
        self.extend_line(rest)
    }

    /// Returns the event at the end of the stream whose closing blank line is missing. It may be
    /// torn, so the caller has to check whether it is complete.
    ///
    /// # Errors
    /// When the event exceeds its bound.
    pub fn finish(mut self) -> Result<Option<SseEvent>, EventTooLong> {
        if !self.line.is_empty() {
            // A line that is not empty ends no event.
            let _ = self.end_held_line()?;
        }
        Ok(self.dispatch())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + bytes.len() > self.max_bytes {
            return Err(EventTooLong {
                max_bytes: self.max_bytes,
            });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Ends the line of which pieces were held.
    fn end_held_line(&mut self) -> Result<Option<SseEvent>, EventTooLong> {
        let mut line = mem::take(&mut self.line);
        let event = self.end_line(&line);
        line.clear();
        self.line = line;
        event
    }

    fn end_line(&mut self, mut bytes: &[u8]) -> Result<Option<SseEvent>, EventTooLong> {
        if mem::take(&mut self.at_first_line) {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        }
        if bytes.is_empty() {
            return Ok(self.dispatch());
        }
        // A line is decoded when it is whole, so no character is ever split.
        // Checked first, for that takes many bytes at once.
        let text = str::from_utf8(bytes).map_or_else(|_| marked(bytes), Cow::Borrowed);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => {
                self.has_name = true;
                value.clone_into(&mut self.event.name);
            }
            "data" => self.add_data(value)?,
            "error" => {
                "error".clone_into(&mut self.event.name);
                self.add_data(value)?;
            }
            // It may have held a piece of the completion: passed on as data, it does not parse, and so
            // is noticed.
            torn if is_torn(torn, &text) => self.add_data(&text)?,
            // Comments, ids, retry times, and unknown fields.
            _ => {}
        }
        Ok(None)
    }

    fn add_data(&mut self, value: &str) -> Result<(), EventTooLong> {
        if self.event.data.len() + value.len() + 1 > self.max_bytes {
            return Err(EventTooLong {
                max_bytes: self.max_bytes,
            });
        }
        if self.has_data {
            self.event.data.push('\n');
        }
        self.has_data = true;
        self.event.data.push_str(value);
        Ok(())
    }

    /// Returns the event that a blank line ends. One without data is passed on too, if it has a
    /// name or an empty `data` line: a piece of the completion may have been torn out of it, which its
    /// parser notices.
    fn dispatch(&mut self) -> Option<SseEvent> {
        let has_data = mem::take(&mut self.has_data);
        let has_name = mem::take(&mut self.has_name);
        let event = mem::take(&mut self.event);
        // One that is numbered is passed on: without it, a number would be missing.
        let is_heartbeat =
            HEARTBEATS.contains(&event.name.as_str()) && !event.data.contains(NUMBER);
        ((has_data || has_name) && !is_heartbeat).then_some(event)
    }
}

/// Returns a line with bytes that are not text, marked so that it is not JSON either: a byte of it
/// was lost.
fn marked(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    Cow::Owned(format!("{text}{}", char::REPLACEMENT_CHARACTER))
}

/// Returns whether a line of an unknown field is one of data whose name was damaged: it was cut
/// off, or ran into the next one, or JSON follows it.
fn is_torn(field: &str, line: &str) -> bool {
    let known = ["data", "event"];
    let is_named = !field.is_empty() && !["id", "retry"].contains(&field);
    is_named
        && (line.contains('{')
            || known
                .iter()
                .any(|known| known.starts_with(field) || field.ends_with(known)))
}
