//! Reads a response's bytes as a dialect's events or its document, and reports what is wrong if
//! they are neither.
//!
//! Dialects differ in what their events mean, not in how a body is read: a body is judged by its
//! content (servers respond to a request for a stream with a document, an error inside a 200, a
//! web page, or nothing), and an end without the dialect's own mark is a cut, not a short completion.
//! An event that ends within its JSON is a cut too, because its content is lost, and one that is
//! not JSON is malformed; once the mark was read the response is complete, whatever happens to its
//! connection.

mod batches;
mod facts;
mod linger;
mod sse_frames;

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;

use self::{batches::Batches, facts::ResponseMeta, linger::Linger};
use super::http::{ProviderResponse, ReplyBody};
use crate::domain::{
    completion::{Break, Delta},
    failure::{ProviderError, Surface, TransportFault},
    wire::DeltaStream,
};

pub(super) use self::{linger::ReadLimits, sse_frames::SseFrames};

/// Longest piece of a body in an error, in bytes.
pub(super) const MAX_EXCERPT_BYTES: usize = 4 << 10;

/// The parser of one response in one dialect.
pub(super) trait ResponseParser: Send + 'static {
    /// Framing that cuts the bytes into events.
    type Frames: Frames;

    /// Parses one event into deltas.
    fn event(
        &mut self,
        event: <Self::Frames as Frames>::Event,
        out: &mut Vec<Delta>,
    ) -> Result<ParseStep, ParseError>;

    /// Parses a complete response, its finish included.
    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError>;

    /// Handles the end of the body if no event was the response's own end.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError>;

    /// Returns the time for which the body may be silent before the response is resumed; `None`:
    /// for as long as the timers above allow.
    fn silence_limit(&self) -> Option<Duration> {
        None
    }

    /// Resumes a response whose connection broke; returns the break if it cannot be resumed.
    fn read_on(
        &mut self,
        cut: ProviderError,
    ) -> impl Future<Output = Result<(ProviderResponse, Break), ProviderError>> + Send {
        std::future::ready(Err(cut))
    }

    /// Returns whether the response is complete already, so that nothing is lost if its body breaks
    /// now.
    fn is_whole(&self) -> bool {
        false
    }
}

/// Indication of whether more of a response is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseStep {
    /// More is to come.
    More,
    /// The event was the response's own end; nothing after it is read.
    Complete,
}

/// Reason for which a response, or a piece of it, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParseError {
    /// It is nothing of this dialect.
    NotUnderstood,
    /// It is well formed, but its content cannot be used; the text may be sent to the model.
    Unusable(String),
    /// It ended before its dialect's own mark, or a piece of it is missing or torn.
    Cut(String),
    /// A piece of it is longer than its bound.
    TooLong(String),
    /// The provider's own error.
    Failed(Failed),
}

/// A provider's own error inside a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Failed {
    /// Status that the provider gives it elsewhere, if that is known.
    pub(super) status: Option<u16>,
    /// Its JSON as it came.
    pub(super) body: String,
    /// The header that the same error would have as a response of its own.
    pub(super) header: Option<(String, String)>,
}

/// Splits a body's bytes into events.
pub(super) trait Frames: Sized + Send + 'static {
    /// One event.
    type Event: Send;

    /// Cuts from the beginning of a body; nothing held may be longer than `max_bytes`.
    fn new(max_bytes: usize) -> Self;

    /// Decodes the next bytes into the events that they complete, including those before an error.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Self::Event>) -> Result<(), ParseError>;

    /// Returns what the end of the body leaves over, if it is whole.
    fn finish(self) -> Option<Self::Event>;

    /// Returns whether the second half of a character is missing.
    fn is_split(&self) -> bool;

    /// Returns the kind of a body by its first bytes (whitespace skipped); `None` while that is
    /// undecided.
    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind>;
}

/// Kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Events.
    Events,
    /// One JSON document.
    Document,
    /// Neither.
    Neither,
}

/// The result of parsing some bytes of a stream.
enum Taken {
    /// More is to come.
    More,
    /// The response's own end was among them.
    Complete,
    /// Something behind the mark of a complete response cannot be used, and is not needed.
    NotNeeded,
    /// The stream broke.
    Flawed(ParseError),
}

/// A response that is read: its deltas one by one, and at its end the error, if there is one.
struct BodyReader<D: ResponseParser> {
    facts: ResponseMeta,
    body: ReplyBody,
    parser: D,
    limits: ReadLimits,
    frames: D::Frames,
    linger: Linger,
    batches: Batches,
    /// Parsed deltas, which are returned before anything else is done.
    ready: VecDeque<Delta>,
    next: ReadStep,
}

/// The step that is taken once all that was parsed is returned.
enum ReadStep {
    /// The kind of the body is found.
    Open,
    /// These bytes of a stream are parsed.
    Parse(Bytes),
    /// The stream continues, or ends, as its last bytes say.
    Continue(Taken),
    /// Nothing.
    End,
}

/// A stream that ended without its mark.
struct CutStream {
    error: ProviderError,
    /// Nothing came for too long, so that more may still come.
    is_silence: bool,
}

/// Returns the deltas of a 2xx response.
pub(super) fn read<D: ResponseParser>(
    reply: ProviderResponse,
    limits: ReadLimits,
    parser: D,
) -> DeltaStream {
    let reader = BodyReader {
        facts: ResponseMeta {
            provider: Arc::clone(&limits.provider),
            status: reply.status,
            headers: reply.headers,
            excerpt: Vec::new(),
        },
        body: reply.body,
        parser,
        frames: D::Frames::new(limits.max_line_bytes),
        linger: Linger::default(),
        batches: Batches::new(limits.is_read_along),
        limits,
        ready: VecDeque::new(),
        next: ReadStep::Open,
    };
    Box::pin(stream::try_unfold(Box::new(reader), async |mut reader| {
        let delta = reader.next().await?;
        Ok(delta.map(|delta| (delta, reader)))
    }))
}

// === impl BodyReader ===

impl<D: ResponseParser> BodyReader<D> {
    /// Returns the next delta; `None` after the last.
    async fn next(&mut self) -> Result<Option<Delta>, ProviderError> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Ok(Some(delta));
            }
            self.next = match mem::replace(&mut self.next, ReadStep::End) {
                ReadStep::Open => self.open().await?,
                ReadStep::Parse(bytes) => self.parse(bytes).await,
                ReadStep::Continue(taken) => self.go_on(taken).await?,
                ReadStep::End => return Ok(None),
            };
        }
    }

    async fn open(&mut self) -> Result<ReadStep, ProviderError> {
        let (kind, first) = self.facts.open::<D::Frames>(&mut self.body).await?;
        match kind {
            Kind::Events => Ok(ReadStep::Parse(first)),
            Kind::Document => self.document(first).await,
            Kind::Neither => {
                let mut garbage = first;
                while self.facts.remember(&garbage) {
                    match self.body.chunk().await {
                        Ok(Some(bytes)) => garbage = bytes,
                        Ok(None) | Err(_) => break,
                    }
                }
                let flaw = ParseError::NotUnderstood;
                Err(self.facts.flawed(flaw, Surface::Http))
            }
        }
    }

    async fn document(&mut self, first: Bytes) -> Result<ReadStep, ProviderError> {
        let read = self.facts.document(&mut self.body, first, &self.limits);
        let document = read.await?;
        let mut out = Vec::new();
        parse(&document)
            .and_then(|parsed| self.parser.document(&parsed, &mut out))
            .map_err(|flaw| self.facts.flawed(flaw, Surface::Http))?;
        self.ready = out.into();
        Ok(ReadStep::End)
    }

    async fn parse(&mut self, bytes: Bytes) -> ReadStep {
        self.facts.remember(&bytes);
        let mut out = Vec::new();
        let taken = take(
            &mut self.frames,
            &mut self.parser,
            &self.linger,
            &bytes,
            &mut out,
        );
        // Before the next ones are awaited, so that the connection can read them into the same
        // buffer.
        drop(bytes);
        self.linger.note(self.parser.is_whole(), &out, &self.limits);
        self.batches.note(&out);
        join(&mut out);
        self.ready = out.into();
        if matches!(taken, Taken::Complete) {
            // Before the finish, because the stream may not be polled after it: servers send the
            // end of the body a moment after the mark, and only when it is read can the connection
            // be reused.
            self.body.discard_rest().await;
        }
        ReadStep::Continue(taken)
    }

    async fn go_on(&mut self, taken: Taken) -> Result<ReadStep, ProviderError> {
        let cut = match taken {
            Taken::Complete => return Ok(ReadStep::End),
            Taken::NotNeeded => None,
            Taken::Flawed(flaw) => Some(self.cut(flaw)?),
            Taken::More => match self.more().await {
                Ok(Some(bytes)) => return Ok(ReadStep::Parse(bytes)),
                Ok(None) => None,
                Err(_) if self.linger.left().is_some() => None,
                Err(error) => Some(CutStream {
                    is_silence: error.fault == Some(TransportFault::IdleTimeout),
                    error,
                }),
            },
        };
        let mut last = Vec::new();
        let CutStream { error, is_silence } = match cut {
            Some(cut) => cut,
            None => match finish(self.new_frames(), &mut self.parser, &mut last) {
                Ok(()) => {
                    self.ready = last.into();
                    return Ok(ReadStep::End);
                }
                Err(flaw) => self.cut(flaw)?,
            },
        };
        match self.facts.rest(&mut self.parser, error).await {
            Ok((body, first, break_info)) => {
                last.push(Delta::ReadOn(break_info));
                self.ready = last.into();
                self.body = body;
                self.new_frames();
                self.batches = Batches::new(self.limits.is_read_along);
                Ok(ReadStep::Parse(first))
            }
            // A silent body may still continue.
            Err(_) if is_silence => Ok(ReadStep::Parse(Bytes::new())),
            Err(error) => Err(error),
        }
    }

    /// Returns the next bytes of the stream; `None` at its end, and once a complete response was
    /// waited for long enough.
    async fn more(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let linger = self.linger.left();
        if linger == Some(Duration::ZERO) {
            return Ok(None);
        }
        let limit = linger.or_else(|| self.parser.silence_limit());
        self.batches.next(&self.facts, &mut self.body, limit).await
    }

    /// Replaces the frames by those of a new body; returns the old ones.
    fn new_frames(&mut self) -> D::Frames {
        mem::replace(&mut self.frames, D::Frames::new(self.limits.max_line_bytes))
    }

    /// Returns the cut that a flaw is; an error if it is another one.
    fn cut(&self, flaw: ParseError) -> Result<CutStream, ProviderError> {
        let is_cut = matches!(flaw, ParseError::Cut(_));
        let error = self.facts.flawed(flaw, Surface::Stream);
        if !is_cut {
            return Err(error);
        }
        Ok(CutStream {
            error,
            is_silence: false,
        })
    }
}

/// Parses the events that these bytes complete, up to the response's own end or the first error.
fn take<D: ResponseParser>(
    frames: &mut D::Frames,
    parser: &mut D,
    linger: &Linger,
    bytes: &[u8],
    out: &mut Vec<Delta>,
) -> Taken {
    let mut events = Vec::new();
    let fed = frames.feed(bytes, &mut events);
    for event in events {
        let was_whole = parser.is_whole() && !linger.is_misled();
        let before = out.len();
        let step = parser.event(event, out).and_then(|step| {
            if step == ParseStep::Complete {
                no_half_character(frames.is_split(), &out[before..])?;
            }
            Ok(step)
        });
        match step {
            Ok(ParseStep::More) => {}
            Ok(ParseStep::Complete) => return Taken::Complete,
            Err(flaw) => {
                out.truncate(before);
                return if was_whole {
                    Taken::NotNeeded
                } else {
                    Taken::Flawed(flaw)
                };
            }
        }
    }
    match fed {
        Ok(()) => Taken::More,
        Err(_) if parser.is_whole() && !linger.is_misled() => Taken::NotNeeded,
        Err(flaw) => Taken::Flawed(flaw),
    }
}

/// Joins adjacent pieces of one block, so that what arrived together is passed on together.
fn join(deltas: &mut Vec<Delta>) {
    deltas.dedup_by(|next, last| match (last, next) {
        (
            Delta::BlockDelta { block, text },
            Delta::BlockDelta {
                block: same,
                text: more,
            },
        ) if block == same => {
            text.push_str(more);
            true
        }
        _ => false,
    });
}

/// Handles the end of a body.
fn finish<D: ResponseParser>(
    frames: D::Frames,
    parser: &mut D,
    out: &mut Vec<Delta>,
) -> Result<(), ParseError> {
    let was_whole = parser.is_whole();
    let is_split = frames.is_split();
    let before = out.len();
    let last = frames
        .finish()
        .map_or(Ok(ParseStep::More), |event| parser.event(event, out));
    match last {
        Ok(ParseStep::Complete) => Ok(()),
        Ok(ParseStep::More) => parser.end(out),
        Err(_) if was_whole => parser.end(out),
        Err(flaw) => Err(flaw),
    }?;
    no_half_character(is_split, &out[before..]).inspect_err(|_| out.truncate(before))
}

/// Refuses the end of a response that lacks the second half of a character, unless it was cut short
/// on purpose.
fn no_half_character(is_split: bool, end: &[Delta]) -> Result<(), ParseError> {
    let is_short =
        |delta: &Delta| matches!(delta, Delta::Finish { reason, .. } if reason.is_short());
    if is_split && !end.iter().any(is_short) {
        let words = "the answer ended within a character";
        return Err(ParseError::Cut(words.to_owned()));
    }
    Ok(())
}

/// Returns the beginning of a text, short enough for an error.
pub(super) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_EXCERPT_BYTES)].to_owned()
}

// === impl ParseError ===

impl ParseError {
    /// Returns the error for an event that cannot be parsed. If the response had started, one that
    /// ends within its JSON is torn, and a piece of it may be lost; another one is not JSON. Else
    /// it is not a response.
    pub(super) fn torn(has_begun: bool, error: &serde_json::Error) -> Self {
        if !has_begun {
            Self::NotUnderstood
        } else if error.is_eof() {
            Self::Cut(format!("an event of the answer is torn: {error}"))
        } else {
            Self::Unusable(format!("an event of the answer is not JSON: {error}"))
        }
    }
}

// === impl Failed ===

impl Failed {
    /// An error that came as this JSON text.
    pub(super) fn new(status: Option<u16>, body: &str) -> Self {
        Self {
            status,
            body: bounded(body),
            header: None,
        }
    }
}

fn parse(document: &[u8]) -> Result<Value, ParseError> {
    serde_json::from_slice(document).map_err(|error| {
        if error.is_eof() {
            ParseError::Cut("the answer ended within its JSON".to_owned())
        } else {
            ParseError::Unusable(format!("the answer is not JSON: {error}"))
        }
    })
}
