//! Bodies of server-sent events, distinguished from documents and from anything else.
//!
//! A server's content type counts less than its first bytes. An event that the end of a body tore
//! is dropped rather than completed.

use super::{Frames, Kind, ParseError};
use crate::{
    split_character::SplitCharacter,
    sse::{SseDecoder, SseEvent},
};

/// Most bytes of an undecided body that are waited for before it is called unusable.
const MAX_UNDECIDED_BYTES: usize = 4 << 10;
const FIELDS: [&[u8]; 6] = [b"data:", b"event:", b":", b"id:", b"retry:", b"error:"];

/// Server-sent events.
#[derive(Debug)]
pub(crate) struct SseFrames {
    decoder: SseDecoder,
    split: SplitCharacter,
}

// === impl SseFrames ===

impl Frames for SseFrames {
    type Event = SseEvent;

    fn new(max_bytes: usize) -> Self {
        Self {
            decoder: SseDecoder::new(max_bytes),
            split: SplitCharacter::default(),
        }
    }

    fn feed(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), ParseError> {
        let before = out.len();
        let fed = self.decoder.feed(bytes, out);
        for event in &mut out[before..] {
            event.data = self.split.join(std::mem::take(&mut event.data));
        }
        fed.map_err(|error| ParseError::TooLong(error.to_string()))
    }

    /// The end of a body may have torn its last event; whether a torn one was complete cannot be
    /// known, so it is dropped.
    fn finish(self) -> Option<SseEvent> {
        let last = self.decoder.finish().ok().flatten()?;
        let is_whole = last.name == "error"
            || serde_json::from_str::<serde::de::IgnoredAny>(&last.data).is_ok();
        is_whole.then_some(last)
    }

    fn is_split(&self) -> bool {
        self.split.is_open()
    }

    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind> {
        match seen.first()? {
            b'{' | b'[' => Some(Kind::Document),
            _ if content_type.starts_with("text/event-stream") => Some(Kind::Events),
            _ => {
                let bare = seen.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(seen);
                if FIELDS.iter().any(|field| bare.starts_with(field)) {
                    return Some(Kind::Events);
                }
                let may_become = b"\xEF\xBB\xBF".starts_with(seen)
                    || FIELDS.iter().any(|field| field.starts_with(bare));
                (!may_become || seen.len() > MAX_UNDECIDED_BYTES).then_some(Kind::Neither)
            }
        }
    }
}
