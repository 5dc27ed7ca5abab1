//! Frames of AWS's binary event stream, each with two checksums.
//!
//! Twelve bytes of prelude (length of the frame, length of its headers, CRC-32 of both), headers,
//! payload, CRC-32 of all. A frame with a wrong checksum ends the response, since anything else may
//! be wrong too. Payloads are not parsed here.

use crate::{
    reading::{Frames, Kind, ParseError},
    split_character::SplitCharacter,
};

const PRELUDE_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Frame {
    /// `event`, `exception` or `error`.
    pub(super) message_type: String,
    /// The event's or exception's type, or the error's code.
    pub(super) name: String,
    /// Error message, if the frame is an `error`.
    pub(super) message: String,
    /// JSON, as text.
    pub(super) payload: String,
}

/// Splits a body into frames.
#[derive(Debug)]
pub(super) struct EventStream {
    max_bytes: usize,
    held: Vec<u8>,
    split: SplitCharacter,
}

// === impl EventStream ===

impl EventStream {
    /// The next whole frame of what is held, if there is one.
    fn next(&mut self) -> Result<Option<Frame>, ParseError> {
        let Some((length, headers)) = self.prelude()? else {
            return Ok(None);
        };
        if self.held.len() < length {
            return Ok(None);
        }
        let bytes: Vec<u8> = self.held.drain(..length).collect();
        let (content, checksum) = bytes.split_at(length - CHECKSUM_BYTES);
        if crc32fast::hash(content) != number(checksum, 0) {
            return Err(corrupt("a frame's checksum does not agree"));
        }
        let (headers, payload) = content[PRELUDE_BYTES..].split_at(headers);
        let mut frame = Frame {
            payload: self
                .split
                .join(String::from_utf8_lossy(payload).into_owned()),
            ..Frame::default()
        };
        frame
            .read_headers(headers)
            .ok_or_else(|| corrupt("a frame's headers are torn"))?;
        Ok(Some(frame))
    }

    /// Returns the lengths of the frame and of its headers, checked.
    fn prelude(&self) -> Result<Option<(usize, usize)>, ParseError> {
        let Some(prelude) = self.held.get(..PRELUDE_BYTES) else {
            return Ok(None);
        };
        if crc32fast::hash(&prelude[..8]) != number(prelude, 8) {
            return Err(corrupt(
                "a frame's prelude does not agree with its checksum",
            ));
        }
        let length = usize::try_from(number(prelude, 0)).unwrap_or(usize::MAX);
        let headers = usize::try_from(number(prelude, 4)).unwrap_or(usize::MAX);
        if length > self.max_bytes {
            return Err(ParseError::TooLong(format!(
                "a frame of the stream is longer than {} bytes",
                self.max_bytes
            )));
        }
        if length < headers.saturating_add(PRELUDE_BYTES + CHECKSUM_BYTES) {
            return Err(corrupt("a frame is shorter than its headers"));
        }
        Ok(Some((length, headers)))
    }
}

impl Frames for EventStream {
    type Event = Frame;

    fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            held: Vec::new(),
            split: SplitCharacter::default(),
        }
    }

    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Frame>) -> Result<(), ParseError> {
        self.held.extend_from_slice(bytes);
        while let Some(frame) = self.next()? {
            out.push(frame);
        }
        Ok(())
    }

    /// A torn frame is not a frame.
    fn finish(self) -> Option<Frame> {
        None
    }

    fn is_split(&self) -> bool {
        self.split.is_open()
    }

    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind> {
        match seen.first()? {
            b'{' => Some(Kind::Document),
            // No frame is so long that its first byte is not zero.
            0 => Some(Kind::Events),
            _ if content_type.starts_with("application/vnd.amazon.eventstream") => {
                Some(Kind::Events)
            }
            _ => Some(Kind::Neither),
        }
    }
}

// === impl Frame ===

impl Frame {
    /// Reads all headers; `None` if they are torn.
    fn read_headers(&mut self, mut rest: &[u8]) -> Option<()> {
        while let Some((&length, tail)) = rest.split_first() {
            let (name, tail) = tail.split_at_checked(usize::from(length))?;
            let (&kind, tail) = tail.split_first()?;
            let (length, tail) = match kind {
                // Booleans are their own value.
                0 | 1 => (0, tail),
                2 => (1, tail),
                3 => (2, tail),
                4 => (4, tail),
                5 | 8 => (8, tail),
                9 => (16, tail),
                6 | 7 => {
                    let (length, tail) = tail.split_at_checked(2)?;
                    (
                        usize::from(u16::from_be_bytes([length[0], length[1]])),
                        tail,
                    )
                }
                _ => return None,
            };
            let (value, tail) = tail.split_at_checked(length)?;
            rest = tail;
            let text = || String::from_utf8_lossy(value).into_owned();
            match name {
                b":message-type" => self.message_type = text(),
                b":event-type" | b":exception-type" | b":error-code" => self.name = text(),
                b":error-message" => self.message = text(),
                _ => {}
            }
        }
        Some(())
    }
}

/// Four bytes as a number; the caller has checked that they are there.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes
        .iter()
        .skip(at)
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn corrupt(words: &str) -> ParseError {
    ParseError::Cut(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of AWS's own specification suite: no headers, payload `{'foo':'bar'}`.
    const PLAIN: [u8; 29] = [
        0, 0, 0, 29, 0, 0, 0, 0, 253, 82, 140, 90, 123, 39, 102, 111, 111, 39, 58, 39, 98, 97, 114,
        39, 125, 195, 101, 57, 54,
    ];

    fn framed(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(headers.len() + payload.len() + 16).unwrap();
        let mut frame = [
            length.to_be_bytes(),
            u32::try_from(headers.len()).unwrap().to_be_bytes(),
        ]
        .concat();
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        frame.extend_from_slice(headers);
        frame.extend_from_slice(payload);
        frame.extend(crc32fast::hash(&frame).to_be_bytes());
        frame
    }

    fn feed(stream: &mut EventStream, bytes: &[u8]) -> Result<Vec<Frame>, ParseError> {
        let mut frames = Vec::new();
        stream.feed(bytes, &mut frames).map(|()| frames)
    }

    #[test]
    fn a_frame_is_read_however_its_bytes_come() {
        for size in [1, 5, 29] {
            let mut stream = EventStream::new(1024);
            let frames: Vec<Frame> = PLAIN
                .chunks(size)
                .flat_map(|piece| feed(&mut stream, piece).unwrap())
                .collect();
            assert_eq!(frames.len(), 1);
            assert_eq!(frames[0].payload, "{'foo':'bar'}");
        }
    }

    #[test]
    fn every_kind_of_header_is_passed_over_and_the_known_ones_are_read() {
        let mut headers = Vec::new();
        for (kind, bytes) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 4),
            (5, 8),
            (8, 8),
            (9, 16),
        ] {
            headers.extend([1, b'x', kind]);
            headers.extend(vec![7; bytes]);
        }
        headers.extend([1, b'b', 6, 0, 2, 1, 2]);
        for (name, value) in [
            (":message-type", "exception"),
            (":exception-type", "throttlingException"),
        ] {
            headers.push(u8::try_from(name.len()).unwrap());
            headers.extend(name.bytes());
            headers.extend([7, 0, u8::try_from(value.len()).unwrap()]);
            headers.extend(value.bytes());
        }
        let frame = feed(&mut EventStream::new(1024), &framed(&headers, b"{}"))
            .unwrap()
            .remove(0);
        assert_eq!(
            (frame.message_type.as_str(), frame.name.as_str()),
            ("exception", "throttlingException")
        );
        headers.pop();
        assert!(feed(&mut EventStream::new(1024), &framed(&headers, b"{}")).is_err());
    }

    #[test]
    fn a_single_wrong_bit_anywhere_is_found() {
        for at in 0..PLAIN.len() {
            let mut bytes = PLAIN;
            bytes[at] ^= 0x10;
            assert!(
                feed(&mut EventStream::new(1024), &bytes).is_err(),
                "byte {at}"
            );
        }
    }

    #[test]
    fn a_frame_beyond_its_bound_is_refused_before_it_is_held() {
        let frame = framed(b"", &[b'x'; 100]);
        assert!(matches!(
            feed(&mut EventStream::new(64), &frame[..12]),
            Err(ParseError::TooLong(_))
        ));
    }
}
