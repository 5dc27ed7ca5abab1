//! An answer's bytes as a dialect's events or its document, and what is wrong where they are neither.
//!
//! Dialects differ in what their events say, not in how a body is taken in: a body is judged by what is in it
//! (servers answer a request for a stream with a document, an error inside a 200, a web page, or nothing), and an end
//! without the dialect's own mark is a cut, never a short answer. An event that cannot be parsed is a cut too, because
//! nobody can know what it held; once the mark was read the answer is whole, whatever becomes of its connection.

mod facts;
mod linger;
mod sse_frames;

use std::{mem, sync::Arc, time::Duration};

use async_stream::try_stream;
use bytes::Bytes;
use serde_json::Value;

use self::{facts::ResponseMeta, linger::Linger};
use super::http::ProviderResponse;
use crate::domain::{
    completion::{Break, Delta},
    failure::{ProviderError, Surface, TransportFault},
    wire::DeltaStream,
};

pub(super) use self::{linger::ReadLimits, sse_frames::SseFrames};

/// Longest piece of a body in an error, in bytes.
pub(super) const MAX_EXCERPT_BYTES: usize = 4 << 10;

/// How a dialect reads one answer.
pub(super) trait ResponseParser: Send + 'static {
    /// How its bytes are cut into events.
    type Frames: Frames;

    /// Takes one event and writes what it adds.
    fn event(&mut self, event: <Self::Frames as Frames>::Event, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError>;

    /// Takes a whole answer, its finish included.
    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError>;

    /// Takes the end of the body where no event was the answer's own end.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError>;

    /// How long nothing may come before the rest is asked for; `None`: for as long as the timers above allow.
    fn silence_limit(&self) -> Option<Duration> {
        None
    }

    /// Asks for the rest of an answer that broke off; gives the break back where there is no rest to be had.
    fn read_on(
        &mut self,
        cut: ProviderError,
    ) -> impl Future<Output = Result<(ProviderResponse, Break), ProviderError>> + Send {
        std::future::ready(Err(cut))
    }

    /// Whether the answer is whole already, so that nothing is lost if its body breaks off now.
    fn is_whole(&self) -> bool {
        false
    }
}

/// Whether more of an answer is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseStep {
    /// More is to come.
    More,
    /// The event was the answer's own end; nothing after it is read.
    Complete,
}

/// Why an answer, or a piece of it, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ParseError {
    /// It is nothing of this dialect.
    NotUnderstood,
    /// It is, but says something that cannot be used; the words may go to the model.
    Unusable(String),
    /// It ended before its dialect's own mark, or a piece of it is missing or torn.
    Cut(String),
    /// A piece of it is longer than its bound.
    TooLong(String),
    /// The provider's own error.
    Failed(Failed),
}

/// A provider's own error inside an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Failed {
    /// The status that the provider gives it elsewhere, where that is known.
    pub(super) status: Option<u16>,
    /// Its JSON as it came.
    pub(super) body: String,
    /// What stands in a header where the same error is an answer of its own.
    pub(super) header: Option<(String, String)>,
}

/// How a body's bytes are cut into events.
pub(super) trait Frames: Sized + Send + 'static {
    /// One event.
    type Event: Send;

    /// Cuts from the beginning of a body; nothing held may be longer than `max_bytes`.
    fn new(max_bytes: usize) -> Self;

    /// Takes the next bytes and writes the events that they complete, also those before a flaw.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Self::Event>) -> Result<(), ParseError>;

    /// What the end of the body leaves over, if it is whole.
    fn finish(self) -> Option<Self::Event>;

    /// What a body is by its first bytes (blank space left out); `None` while they do not tell.
    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind>;
}

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Events.
    Events,
    /// One JSON document.
    Document,
    /// Neither.
    Neither,
}

/// What came of some bytes of a stream.
enum Taken {
    /// More is to come.
    More,
    /// The answer's own end was among them.
    Complete,
    /// Something behind the mark of a whole answer cannot be used, and is not needed.
    NotNeeded,
    /// The stream broke.
    Flawed(ParseError),
}

/// The deltas of an answer whose head said 2xx.
pub(super) fn read<D: ResponseParser>(reply: ProviderResponse, limits: ReadLimits, mut parser: D) -> DeltaStream {
    let ProviderResponse { status, headers, mut body } = reply;
    Box::pin(try_stream! {
        let mut facts = ResponseMeta { provider: Arc::clone(&limits.provider), status, headers, excerpt: Vec::new() };
        let (kind, first) = facts.open::<D::Frames>(&mut body).await?;
        match kind {
            Kind::Events => {
                let mut frames = D::Frames::new(limits.max_line_bytes);
                let mut bytes = first;
                let mut linger = Linger::default();
                loop {
                    facts.remember(&bytes);
                    let mut out = Vec::new();
                    let taken = take(&mut frames, &mut parser, &linger, &bytes, &mut out);
                    linger.note(parser.is_whole(), &out, &limits);
                    if matches!(taken, Taken::Complete) {
                        // Before the finish, because nobody may poll after it: servers send the body's own end a
                        // moment after the mark, and only when it is read can the connection be used again.
                        body.discard_rest().await;
                    }
                    for delta in out.drain(..) {
                        yield delta;
                    }
                    // The body's end, or where it broke off and whether that was by silence.
                    let cut = match taken {
                        Taken::Complete => return,
                        Taken::NotNeeded => None,
                        Taken::More if linger.left() == Some(Duration::ZERO) => None,
                        Taken::Flawed(flaw @ ParseError::Cut(_)) => Some((facts.flawed(flaw, Surface::Stream), false)),
                        Taken::Flawed(flaw) => Err(facts.flawed(flaw, Surface::Stream))?,
                        Taken::More => match facts.next(&mut body, linger.left().or_else(|| parser.silence_limit())).await {
                            Ok(Some(next)) => {
                                bytes = next;
                                continue;
                            }
                            Ok(None) => None,
                            Err(_) if linger.left().is_some() => None,
                            Err(error) => {
                                let is_silence = error.fault == Some(TransportFault::IdleTimeout);
                                Some((error, is_silence))
                            }
                        },
                    };
                    let (cut, is_silence) = if let Some(cut) = cut {
                        cut
                    } else {
                        let frames = mem::replace(&mut frames, D::Frames::new(limits.max_line_bytes));
                        match finish(frames, &mut parser, &mut out) {
                            Ok(()) => {
                                for delta in out {
                                    yield delta;
                                }
                                return;
                            }
                            Err(flaw @ ParseError::Cut(_)) => (facts.flawed(flaw, Surface::Stream), false),
                            Err(flaw) => Err(facts.flawed(flaw, Surface::Stream))?,
                        }
                    };
                    match facts.rest(&mut parser, cut).await {
                        Ok((rest, first, told)) => {
                            for delta in out {
                                yield delta;
                            }
                            yield Delta::ReadOn(told);
                            (body, bytes, frames) = (rest, first, D::Frames::new(limits.max_line_bytes));
                        }
                        // What is silent may still speak.
                        Err(_) if is_silence => bytes = Bytes::new(),
                        Err(error) => Err(error)?,
                    }
                }
            }
            Kind::Document => {
                let document = facts.document(&mut body, first, &limits).await?;
                let mut out = Vec::new();
                let parsed = parse(&document).map_err(|flaw| facts.flawed(flaw, Surface::Http))?;
                parser.document(&parsed, &mut out).map_err(|flaw| facts.flawed(flaw, Surface::Http))?;
                for delta in out {
                    yield delta;
                }
            }
            Kind::Neither => {
                let mut garbage = first;
                while facts.remember(&garbage) {
                    match body.chunk().await {
                        Ok(Some(bytes)) => garbage = bytes,
                        Ok(None) | Err(_) => break,
                    }
                }
                Err(facts.flawed(ParseError::NotUnderstood, Surface::Http))?;
            }
        }
    })
}

/// Takes the events that these bytes complete, up to the answer's own end or the first flaw.
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
        let (was_whole, before) = (parser.is_whole() && !linger.is_misled(), out.len());
        match parser.event(event, out) {
            Ok(ParseStep::More) => {}
            Ok(ParseStep::Complete) => return Taken::Complete,
            Err(flaw) => {
                out.truncate(before);
                return if was_whole { Taken::NotNeeded } else { Taken::Flawed(flaw) };
            }
        }
    }
    match fed {
        Ok(()) => Taken::More,
        Err(_) if parser.is_whole() && !linger.is_misled() => Taken::NotNeeded,
        Err(flaw) => Taken::Flawed(flaw),
    }
}

/// Takes the end of a body.
fn finish<D: ResponseParser>(frames: D::Frames, parser: &mut D, out: &mut Vec<Delta>) -> Result<(), ParseError> {
    let was_whole = parser.is_whole();
    let last = frames.finish().map_or(Ok(ParseStep::More), |event| parser.event(event, out));
    match last {
        Ok(ParseStep::Complete) => Ok(()),
        Ok(ParseStep::More) => parser.end(out),
        Err(_) if was_whole => parser.end(out),
        Err(flaw) => Err(flaw),
    }
}

/// The beginning of a text, as it may stand in an error.
pub(super) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_EXCERPT_BYTES)].to_owned()
}

// === impl ParseError ===

impl ParseError {
    /// An event that cannot be parsed. Where the answer had begun, a piece of it may be lost; else it is no answer.
    pub(super) fn torn(has_begun: bool, error: &serde_json::Error) -> Self {
        if has_begun { Self::Cut(format!("an event of the answer is torn: {error}")) } else { Self::NotUnderstood }
    }
}

// === impl Failed ===

impl Failed {
    /// An error that came as this JSON text.
    pub(super) fn new(status: Option<u16>, body: &str) -> Self {
        Self { status, body: bounded(body), header: None }
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
