//! An answer's bytes as deltas: what kind of body it is, where it ends, and what is wrong with it.
//!
//! A body is judged by what is in it, not by what its head says: servers answer a request for a stream with a
//! document, with an error inside a 200, with a web page, or with nothing. An end without the dialect's own marks is
//! a cut, never a short answer.

use std::sync::Arc;

use async_stream::try_stream;
use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::{
    assemble::{Assembler, Flaw},
    inband,
};
use crate::{
    domain::{
        completion::Delta,
        failure::{ProviderError, Surface, TransportFault},
        wire::DeltaStream,
    },
    provider::{
        http::{Reply, ReplyBody, lasting},
        spec::HttpSettings,
        sse::{SseDecoder, SseEvent},
    },
};

/// Longest piece of a body in an error, in bytes.
const MAX_EXCERPT_BYTES: usize = 2 << 10;
/// Most bytes of an undecided body that are waited for before it is called unusable.
const MAX_UNDECIDED_BYTES: usize = 4 << 10;

const FIELDS: [&[u8]; 6] = [b"data:", b"event:", b":", b"id:", b"retry:", b"error:"];

/// The deltas of an answer whose head said 2xx.
pub(super) fn read(reply: Reply, provider: Arc<str>, settings: &HttpSettings) -> DeltaStream {
    let Reply { status, headers, mut body } = reply;
    let max_line_bytes = settings.max_line_bytes;
    Box::pin(try_stream! {
        let assembler = Assembler::new(lasting(&headers));
        let mut reader = Reader { facts: Facts { provider, status, headers }, assembler, excerpt: Vec::new(), skipped: false };
        let (kind, first) = reader.open(&mut body).await?;
        match kind {
            Kind::Events => {
                let mut decoder = SseDecoder::new(max_line_bytes);
                let mut next = Some(first);
                let mut ended_by_mark = false;
                'body: while let Some(bytes) = next {
                    reader.remember(&bytes);
                    let events = decoder.feed(&bytes).map_err(|error| reader.facts.too_large(&error.to_string()))?;
                    for event in events {
                        if event.data.trim() == "[DONE]" {
                            ended_by_mark = true;
                            break 'body;
                        }
                        for delta in reader.event(&event)? {
                            yield delta;
                        }
                    }
                    next = body.chunk().await?;
                }
                if ended_by_mark {
                    // Before the finish, because nobody may poll after it: servers send the body's own end a moment
                    // after the mark, and only when it is read can the connection be used again.
                    body.discard_rest().await;
                } else if let Ok(Some(event)) = decoder.finish() {
                    for delta in reader.last_event(&event)? {
                        yield delta;
                    }
                }
                for delta in reader.end()? {
                    yield delta;
                }
            }
            Kind::Document => {
                let mut document = BytesMut::from(&first[..]);
                while let Some(bytes) = body.chunk().await? {
                    document.extend_from_slice(&bytes);
                }
                reader.remember(&document);
                for delta in reader.document(&document)? {
                    yield delta;
                }
            }
            Kind::Neither => {
                let mut garbage = first;
                while reader.remember(&garbage) {
                    match body.chunk().await {
                        Ok(Some(bytes)) => garbage = bytes,
                        Ok(None) | Err(_) => break,
                    }
                }
                Err(reader.unusable(None))?;
            }
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Events,
    Document,
    Neither,
}

/// What every error of this answer carries.
struct Facts {
    provider: Arc<str>,
    status: u16,
    headers: Vec<(String, String)>,
}

struct Reader {
    facts: Facts,
    assembler: Assembler,
    /// The beginning of the body, for errors.
    excerpt: Vec<u8>,
    /// One malformed event was skipped.
    skipped: bool,
}

// === impl Reader ===

impl Reader {
    /// Reads until it is clear what the body is; gives that and what was read, blank space before it left out.
    async fn open(&self, body: &mut ReplyBody) -> Result<(Kind, Bytes), ProviderError> {
        let mut seen = BytesMut::new();
        while let Some(bytes) = body.chunk().await? {
            seen.extend_from_slice(&bytes);
            // Servers under load send blank lines to keep the connection.
            let blank = seen.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let _ = seen.split_to(blank);
            let is_stream = self.facts.content_type().starts_with("text/event-stream");
            if let Some(kind) = kind_of(&seen, is_stream) {
                return Ok((kind, seen.freeze()));
            }
        }
        if seen.is_empty() {
            return Err(ProviderError {
                message: Some("the answer is empty".to_owned()),
                fault: Some(TransportFault::Protocol),
                ..self.facts.error(Surface::Http)
            });
        }
        Ok((Kind::Neither, seen.freeze()))
    }

    /// Keeps the beginning of the body; says whether there is room for more.
    fn remember(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_EXCERPT_BYTES.saturating_sub(self.excerpt.len());
        self.excerpt.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.excerpt.len() < MAX_EXCERPT_BYTES
    }

    fn event(&mut self, event: &SseEvent) -> Result<Vec<Delta>, ProviderError> {
        let flaw = match serde_json::from_str::<Value>(&event.data) {
            Ok(value) if inband::is_error(&event.name, &value) => {
                return Err(self.in_stream(&inband::bare(&value, &event.data)));
            }
            Ok(value) => match self.assembler.chunk(&value) {
                Ok(deltas) => return Ok(deltas),
                Err(flaw) => flaw,
            },
            Err(_) if event.name == "error" => return Err(self.in_stream(&event.data)),
            Err(_) => Flaw::NoChunk,
        };
        // An event that is no chunk at all may be skipped once; one that carried a piece of the answer may not,
        // because nobody could see that the piece is missing.
        let harmless = flaw == Flaw::NoChunk && !event.data.contains("\"delta\"");
        if harmless && !self.skipped && self.assembler.may_skip() {
            self.skipped = true;
            return Ok(Vec::new());
        }
        Err(self.flawed(flaw, &event.data))
    }

    /// An event that the end of the body may have torn: a torn one was never sent as far as anybody can tell.
    fn last_event(&mut self, event: &SseEvent) -> Result<Vec<Delta>, ProviderError> {
        let is_whole = event.name == "error" || serde_json::from_str::<Value>(&event.data).is_ok();
        if is_whole { self.event(event) } else { Ok(Vec::new()) }
    }

    /// What the end of the stream means.
    fn end(&mut self) -> Result<Vec<Delta>, ProviderError> {
        if !self.assembler.has_choices() {
            return Err(self.unusable(Some("the answer holds no choices")));
        }
        if !self.assembler.is_complete() {
            return Err(ProviderError {
                message: Some("the answer ended without a finish_reason".to_owned()),
                fault: Some(TransportFault::Cut),
                ..self.facts.error(Surface::Stream)
            });
        }
        self.assembler.seal().map_err(|flaw| self.flawed(flaw, ""))
    }

    fn document(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, ProviderError> {
        let parsed = match serde_json::from_slice::<Value>(bytes) {
            Ok(Value::Array(mut items)) if items.len() == 1 => items.remove(0),
            Ok(parsed) => parsed,
            Err(error) if error.is_eof() => {
                return Err(ProviderError {
                    message: Some("the answer ended within its JSON".to_owned()),
                    fault: Some(TransportFault::Cut),
                    ..self.facts.error(Surface::Http)
                });
            }
            Err(error) => return Err(self.unusable(Some(&format!("the answer is not JSON: {error}")))),
        };
        if inband::is_error("", &parsed) || inband::is_bare_error(&parsed) {
            return Err(ProviderError { body: Some(self.body_text()), ..self.facts.error(Surface::Http) });
        }
        let mut deltas = match self.assembler.chunk(&parsed) {
            Ok(deltas) if self.assembler.has_choices() => deltas,
            Ok(_) | Err(Flaw::NoChunk) => return Err(self.unusable(Some("the answer holds no choices"))),
            Err(flaw) => return Err(self.flawed(flaw, "")),
        };
        deltas.extend(self.end()?);
        Ok(deltas)
    }

    fn in_stream(&self, data: &str) -> ProviderError {
        ProviderError { body: Some(bounded(data)), ..self.facts.error(Surface::Stream) }
    }

    fn flawed(&self, flaw: Flaw, data: &str) -> ProviderError {
        let (message, fault, status) = match flaw {
            Flaw::NoChunk => (None, Some(TransportFault::Protocol), self.facts.status),
            Flaw::Unusable(message) => (Some(message), Some(TransportFault::Protocol), self.facts.status),
            Flaw::Failed(message, status) => (Some(message), None, status),
        };
        let body = message.is_none().then(|| bounded(data));
        ProviderError { body, message, fault, status: Some(status), ..self.facts.error(Surface::Stream) }
    }

    /// An answer that is none: its beginning is all there is to say.
    fn unusable(&self, message: Option<&str>) -> ProviderError {
        ProviderError {
            message: message.map(str::to_owned),
            body: Some(self.body_text()),
            fault: Some(TransportFault::Protocol),
            ..self.facts.error(Surface::Http)
        }
    }

    fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.excerpt).into_owned()
    }
}

// === impl Facts ===

impl Facts {
    fn error(&self, surface: Surface) -> ProviderError {
        ProviderError {
            provider: Arc::clone(&self.provider),
            surface,
            status: Some(self.status),
            headers: self.headers.clone(),
            ..ProviderError::default()
        }
    }

    fn too_large(&self, message: &str) -> ProviderError {
        let fault = Some(TransportFault::TooLarge);
        ProviderError { message: Some(message.to_owned()), fault, ..self.error(Surface::Stream) }
    }

    fn content_type(&self) -> &str {
        self.headers.iter().find(|(name, _)| name == "content-type").map_or("", |(_, value)| value.trim())
    }
}

/// What a body is by its first bytes; `None` while they do not tell.
fn kind_of(seen: &[u8], is_stream: bool) -> Option<Kind> {
    match seen.first()? {
        b'{' | b'[' => Some(Kind::Document),
        _ if is_stream => Some(Kind::Events),
        _ => {
            let bare = seen.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(seen);
            if FIELDS.iter().any(|field| bare.starts_with(field)) {
                return Some(Kind::Events);
            }
            let may_become = b"\xEF\xBB\xBF".starts_with(seen) || FIELDS.iter().any(|field| field.starts_with(bare));
            (!may_become || seen.len() > MAX_UNDECIDED_BYTES).then_some(Kind::Neither)
        }
    }
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_EXCERPT_BYTES)].to_owned()
}
