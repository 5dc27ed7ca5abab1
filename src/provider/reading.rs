//! An answer's bytes as a dialect's events or its document, and what is wrong where they are neither.
//!
//! Four dialects differ in what their events say, not in how a body is taken in: a body is judged by what is in it
//! (servers answer a request for a stream with a document, an error inside a 200, a web page, or nothing), and an end
//! without the dialect's own mark is a cut, never a short answer. It never looks into an event.

mod sse_frames;

use std::{mem, sync::Arc, time::Duration};

use async_stream::try_stream;
use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::{
    http::{Reply, ReplyBody},
    spec::HttpSettings,
};
use crate::domain::{
    completion::{Break, Delta},
    failure::{ProviderError, Surface, TransportFault},
    wire::DeltaStream,
};

pub(super) use self::sse_frames::SseFrames;

/// Longest piece of a body in an error, in bytes.
pub(super) const MAX_EXCERPT_BYTES: usize = 4 << 10;

/// Longest time that the end of a body is waited for when its answer is whole.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(20);

/// How a dialect reads one answer.
pub(super) trait Dialog: Send + 'static {
    /// How its bytes are cut into events.
    type Frames: Frames;

    /// Takes one event and writes what it adds.
    fn event(&mut self, event: <Self::Frames as Frames>::Event, out: &mut Vec<Delta>) -> Result<Step, Flaw>;

    /// Takes a whole answer, its finish included.
    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), Flaw>;

    /// Takes the end of the body where no event was the answer's own end.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), Flaw>;

    /// How long nothing may come before the rest is asked for; `None`: for as long as the timers above allow.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Asks for the rest of an answer that broke off; gives the break back where there is no rest to be had.
    fn read_on(&mut self, cut: ProviderError) -> impl Future<Output = Result<(Reply, Break), ProviderError>> + Send {
        std::future::ready(Err(cut))
    }

    /// Whether the answer is whole already, so that nothing is lost if its body breaks off now.
    fn is_whole(&self) -> bool {
        false
    }
}

/// Whether more of an answer is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// More is to come.
    More,
    /// The event was the answer's own end; nothing after it is read.
    Whole,
}

/// Why an answer, or a piece of it, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is nothing of this dialect.
    NotUnderstood,
    /// It is, but says something that cannot be used; the words may go to the model.
    Unusable(String),
    /// It ended before its dialect's own mark.
    Cut(String),
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

    /// Takes the next bytes and returns the events that they complete.
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Self::Event>, FrameFault>;

    /// What the end of the body leaves over, if it is whole.
    fn finish(self) -> Option<Self::Event>;

    /// What a body is by its first bytes (blank space left out); `None` while they do not tell.
    fn kind_of(seen: &[u8], content_type: &str) -> Option<Kind>;
}

/// Why bytes cannot be cut into events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FrameFault {
    /// An event is longer than its bound.
    TooLong(String),
    /// The bytes are not what the protocol allows.
    Corrupt(String),
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

/// The deltas of an answer whose head said 2xx.
pub(super) fn read<D: Dialog>(reply: Reply, provider: Arc<str>, settings: &HttpSettings, mut dialog: D) -> DeltaStream {
    let Reply { status, headers, mut body } = reply;
    let max_line_bytes = settings.max_line_bytes;
    Box::pin(try_stream! {
        let mut facts = Facts { provider, status, headers, excerpt: Vec::new() };
        let (kind, first) = facts.open::<D::Frames>(&mut body).await?;
        match kind {
            Kind::Events => {
                let mut frames = D::Frames::new(max_line_bytes);
                let mut bytes = first;
                loop {
                    facts.remember(&bytes);
                    for event in frames.feed(&bytes).map_err(|fault| facts.broken(fault))? {
                        let mut out = Vec::new();
                        let step = dialog.event(event, &mut out).map_err(|flaw| facts.flawed(flaw, Surface::Stream))?;
                        for delta in out {
                            yield delta;
                        }
                        if step == Step::Whole {
                            // The connection can be used again once the body's own end is read.
                            drain(&mut body).await;
                            return;
                        }
                    }
                    let mut out = Vec::new();
                    let (cut, is_silence) = match facts.next(&mut body, dialog.patience()).await {
                        Ok(Some(next)) => {
                            bytes = next;
                            continue;
                        }
                        Err(silence) if silence.fault == Some(TransportFault::IdleTimeout) => (silence, true),
                        Err(error) if !dialog.is_whole() => (error, false),
                        Ok(None) | Err(_) => {
                            let frames = mem::replace(&mut frames, D::Frames::new(max_line_bytes));
                            let last = frames.finish().map_or(Ok(Step::More), |event| dialog.event(event, &mut out));
                            let ended =
                                last.and_then(|step| if step == Step::More { dialog.end(&mut out) } else { Ok(()) });
                            match ended {
                                Ok(()) => {
                                    for delta in out {
                                        yield delta;
                                    }
                                    return;
                                }
                                Err(flaw @ Flaw::Cut(_)) => (facts.flawed(flaw, Surface::Stream), false),
                                Err(flaw) => Err(facts.flawed(flaw, Surface::Stream))?,
                            }
                        }
                    };
                    match facts.rest(&mut dialog, cut).await {
                        Ok((rest, first, told)) => {
                            for delta in out {
                                yield delta;
                            }
                            yield Delta::ReadOn(told);
                            (body, bytes, frames) = (rest, first, D::Frames::new(max_line_bytes));
                        }
                        // What is silent may still speak.
                        Err(_) if is_silence => bytes = Bytes::new(),
                        Err(error) => Err(error)?,
                    }
                }
            }
            Kind::Document => {
                let mut document = BytesMut::from(&first[..]);
                while let Some(bytes) = body.chunk().await? {
                    document.extend_from_slice(&bytes);
                }
                facts.remember(&document);
                let mut out = Vec::new();
                let parsed = parse(&document).map_err(|flaw| facts.flawed(flaw, Surface::Http))?;
                dialog.document(&parsed, &mut out).map_err(|flaw| facts.flawed(flaw, Surface::Http))?;
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
                Err(facts.flawed(Flaw::NotUnderstood, Surface::Http))?;
            }
        }
    })
}

/// Reads what is left of a body that nobody wants, as far as it comes at once.
async fn drain(body: &mut ReplyBody) {
    let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
    // A server that keeps the body open loses its connection, not our time.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
}

/// The beginning of a text, as it may stand in an error.
pub(super) fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_EXCERPT_BYTES)].to_owned()
}

/// What every error of this answer carries.
struct Facts {
    provider: Arc<str>,
    status: u16,
    headers: Vec<(String, String)>,
    /// The beginning of the body.
    excerpt: Vec<u8>,
}

// === impl Facts ===

impl Facts {
    /// Reads until it is clear what the body is; gives that and what was read, blank space before it left out.
    async fn open<F: Frames>(&self, body: &mut ReplyBody) -> Result<(Kind, Bytes), ProviderError> {
        let mut seen = BytesMut::new();
        while let Some(bytes) = body.chunk().await? {
            seen.extend_from_slice(&bytes);
            // Servers under load send blank lines to keep the connection.
            let blank = seen.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let _ = seen.split_to(blank);
            if let Some(kind) = F::kind_of(&seen, self.content_type()) {
                return Ok((kind, seen.freeze()));
            }
        }
        if seen.is_empty() {
            return Err(ProviderError {
                message: Some("the answer is empty".to_owned()),
                fault: Some(TransportFault::Protocol),
                ..self.error(Surface::Http)
            });
        }
        Ok((Kind::Neither, seen.freeze()))
    }

    /// The next bytes of a body; an `IdleTimeout` where none come for so long.
    async fn next(&self, body: &mut ReplyBody, patience: Option<Duration>) -> Result<Option<Bytes>, ProviderError> {
        let Some(patience) = patience else { return body.chunk().await };
        let silence = |_| {
            let words = format!("nothing came for {} s", patience.as_secs_f64());
            ProviderError::transport(Arc::clone(&self.provider), TransportFault::IdleTimeout, words)
        };
        tokio::time::timeout(patience, body.chunk()).await.map_err(silence)?
    }

    /// Opens the rest of an answer that broke off.
    async fn rest<D: Dialog>(
        &self,
        dialog: &mut D,
        cut: ProviderError,
    ) -> Result<(ReplyBody, Bytes, Break), ProviderError> {
        loop {
            let (Reply { status, headers, mut body }, told) = dialog.read_on(cut.clone()).await?;
            let facts = Self { provider: Arc::clone(&self.provider), status, headers, excerpt: Vec::new() };
            // What is no stream, or breaks off at once, brought nothing; the dialog knows when to give up.
            if let Ok((Kind::Events, first)) = facts.open::<D::Frames>(&mut body).await {
                return Ok((body, first, told));
            }
        }
    }

    /// Keeps the beginning of the body; says whether there is room for more.
    fn remember(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_EXCERPT_BYTES.saturating_sub(self.excerpt.len());
        self.excerpt.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.excerpt.len() < MAX_EXCERPT_BYTES
    }

    fn broken(&self, fault: FrameFault) -> ProviderError {
        let (fault, message) = match fault {
            FrameFault::TooLong(message) => (TransportFault::TooLarge, message),
            FrameFault::Corrupt(message) => (TransportFault::Protocol, message),
        };
        ProviderError { message: Some(message), fault: Some(fault), ..self.error(Surface::Stream) }
    }

    fn flawed(&self, flaw: Flaw, surface: Surface) -> ProviderError {
        let error = self.error(surface);
        match flaw {
            Flaw::NotUnderstood => ProviderError {
                body: Some(String::from_utf8_lossy(&self.excerpt).into_owned()),
                fault: Some(TransportFault::Protocol),
                surface: Surface::Http,
                ..error
            },
            Flaw::Unusable(message) => {
                ProviderError { message: Some(message), fault: Some(TransportFault::Protocol), ..error }
            }
            Flaw::Cut(message) => ProviderError { message: Some(message), fault: Some(TransportFault::Cut), ..error },
            Flaw::Failed(Failed { status, body, header }) => {
                let mut headers = error.headers;
                headers.extend(header);
                ProviderError { body: Some(body), status: status.or(error.status), headers, ..self.error(surface) }
            }
        }
    }

    fn error(&self, surface: Surface) -> ProviderError {
        ProviderError {
            provider: Arc::clone(&self.provider),
            surface,
            status: Some(self.status),
            headers: self.headers.clone(),
            ..ProviderError::default()
        }
    }

    fn content_type(&self) -> &str {
        self.headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value.trim())
    }
}

// === impl Failed ===

impl Failed {
    /// An error that came as this JSON text.
    pub(super) fn new(status: Option<u16>, body: &str) -> Self {
        Self { status, body: bounded(body), header: None }
    }
}

fn parse(document: &[u8]) -> Result<Value, Flaw> {
    serde_json::from_slice(document).map_err(|error| {
        if error.is_eof() {
            Flaw::Cut("the answer ended within its JSON".to_owned())
        } else {
            Flaw::Unusable(format!("the answer is not JSON: {error}"))
        }
    })
}
