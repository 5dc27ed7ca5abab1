//! The lines of a pipe, whatever its process writes to it: no line ends the reading, and none is
//! kept beyond its bound.

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio_util::codec::Decoder;

/// Bytes at the end of a line that was too long which are still known.
const TAIL_BYTES: usize = 128;

/// One line, without what ends it; bytes that are not text are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PipeLine {
    /// A line within its bound.
    Whole(String),
    /// Empty lines, however many came at once, or more bytes of a line beyond its bound: they are
    /// not kept.
    PassedOver(usize),
    /// The end of a line beyond its bound: how it started, and how it ended.
    TooLong {
        /// Its first bytes, as many as are kept of such a line.
        head: String,
        /// Its last bytes.
        tail: String,
    },
}

/// Cuts bytes into lines.
#[derive(Debug)]
pub(super) struct PipeLines {
    max_bytes: usize,
    head_bytes: usize,
    /// Bytes of the buffer that hold no end of a line.
    searched: usize,
    too_long: Option<LongLine>,
}

/// A line beyond its bound that has not ended yet.
#[derive(Debug)]
struct LongLine {
    head: Vec<u8>,
    tail: Vec<u8>,
}

// === impl PipeLines ===

impl PipeLines {
    /// Lines of at most `max_bytes`; of a longer one its first `head_bytes` are kept.
    pub(super) fn new(max_bytes: usize, head_bytes: usize) -> Self {
        Self {
            max_bytes,
            head_bytes: head_bytes.min(max_bytes),
            searched: 0,
            too_long: None,
        }
    }

    /// Takes the rest of a line out of the buffer, `end` bytes long.
    fn ended(&mut self, buffer: &mut BytesMut, end: usize) -> PipeLine {
        let line = buffer.split_to(end);
        self.searched = 0;
        if self.too_long.is_none() && line.len() <= self.max_bytes {
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            return PipeLine::Whole(text(line));
        }
        self.pass_over(&line);
        let LongLine { head, tail } = self.too_long.take().unwrap_or_else(LongLine::empty);
        PipeLine::TooLong {
            head: text(&head),
            tail: text(&tail),
        }
    }

    fn pass_over(&mut self, bytes: &[u8]) {
        let line = self.too_long.get_or_insert_with(LongLine::empty);
        let missing = self.head_bytes.saturating_sub(line.head.len());
        line.head
            .extend_from_slice(&bytes[..missing.min(bytes.len())]);
        line.tail
            .extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let before = line.tail.len().saturating_sub(TAIL_BYTES);
        line.tail.drain(..before);
    }
}

impl Decoder for PipeLines {
    type Item = PipeLine;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<PipeLine>> {
        if self.too_long.is_none() {
            let empty = buffer.iter().take_while(|byte| **byte == b'\n').count();
            if empty > 0 {
                buffer.advance(empty);
                return Ok(Some(PipeLine::PassedOver(empty)));
            }
        }
        let found = buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        if let Some(at) = found {
            let line = self.ended(buffer, self.searched + at);
            buffer.advance(1);
            return Ok(Some(line));
        }
        if self.too_long.is_none() && buffer.len() <= self.max_bytes {
            self.searched = buffer.len();
            return Ok(None);
        }
        let bytes = buffer.len();
        self.searched = 0;
        self.pass_over(buffer);
        // Its room stays: a buffer without any is filled a few bytes at a time.
        buffer.clear();
        Ok((bytes > 0).then_some(PipeLine::PassedOver(bytes)))
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> io::Result<Option<PipeLine>> {
        if let Some(line) = self.decode(buffer)? {
            return Ok(Some(line));
        }
        let is_begun = !buffer.is_empty() || self.too_long.is_some();
        Ok(is_begun.then(|| self.ended(buffer, buffer.len())))
    }
}

// === impl LongLine ===

impl LongLine {
    fn empty() -> Self {
        Self {
            head: Vec::new(),
            tail: Vec::new(),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the lines of bytes that arrive in these pieces.
    fn read(pieces: &[&[u8]], max_bytes: usize) -> Vec<PipeLine> {
        let mut lines = PipeLines::new(max_bytes, 4);
        let mut buffer = BytesMut::new();
        let mut read = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(line) = lines.decode(&mut buffer).unwrap() {
                read.push(line);
            }
            assert!(buffer.len() <= max_bytes, "{} bytes are kept", buffer.len());
        }
        while let Some(line) = lines.decode_eof(&mut buffer).unwrap() {
            read.push(line);
        }
        read.retain(|line| !matches!(line, PipeLine::PassedOver(_)));
        read
    }

    #[test]
    fn a_line_beyond_its_bound_is_cut_and_the_next_one_is_read() {
        let long = "x".repeat(300) + "yz\n";
        let lines = read(&[b"one\r\n", long.as_bytes(), b"\xff\n\nlast"], 8);
        let whole = |text: &str| PipeLine::Whole(text.to_owned());
        let too_long = PipeLine::TooLong {
            head: "xxxx".to_owned(),
            tail: "x".repeat(126) + "yz",
        };
        assert_eq!(
            lines,
            [whole("one"), too_long, whole("\u{fffd}"), whole("last")]
        );
    }

    proptest! {
        #[test]
        fn every_line_comes_in_order_whatever_bytes_it_has_and_however_they_arrive(
            bytes in prop::collection::vec(
                prop_oneof![3 => any::<u8>(), 1 => Just(b'\n'), 2 => Just(b'x')], 0..400),
            size in 1..64_usize,
            max_bytes in 1..40_usize,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let expected: Vec<&[u8]> = bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .collect();
            let lines = read(&pieces, max_bytes);
            prop_assert_eq!(lines.len(), expected.len());
            for (line, expected) in lines.iter().zip(expected) {
                match line {
                    PipeLine::Whole(line) => {
                        let shown = expected.strip_suffix(b"\r").unwrap_or(expected);
                        prop_assert_eq!(line, &String::from_utf8_lossy(shown));
                    }
                    PipeLine::TooLong { tail, .. } => {
                        prop_assert!(expected.len() > max_bytes);
                        let end = &expected[expected.len().saturating_sub(TAIL_BYTES)..];
                        prop_assert_eq!(tail, &String::from_utf8_lossy(end));
                    }
                    PipeLine::PassedOver(_) => unreachable!(),
                }
            }
        }
    }
}
