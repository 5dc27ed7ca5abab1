//! The head and the beginning of the body of one response: what every error of it carries, and how
//! its bytes are awaited.

use std::{mem, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};

use super::{Failed, Frames, Kind, MAX_EXCERPT_BYTES, ParseError, ReadLimits, ResponseParser};
use crate::{
    domain::{
        completion::Break,
        failure::{ProviderError, Surface, TransportFault},
        units,
    },
    http::{ProviderResponse, ReplyBody},
};

/// Facts that every error of this response carries.
pub(super) struct ResponseMeta {
    pub(super) provider: Arc<str>,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// The beginning of the body.
    pub(super) excerpt: Vec<u8>,
}

// === impl ResponseMeta ===

impl ResponseMeta {
    /// Reads until it is clear what the body is; gives that and what was read, blank space before
    /// it left out.
    pub(super) async fn open<F: Frames>(
        &self,
        body: &mut ReplyBody,
    ) -> Result<(Kind, Bytes), ProviderError> {
        let mut seen = BytesMut::new();
        while let Some(bytes) = body.chunk().await? {
            seen.extend_from_slice(&bytes);
            // Servers under load send blank lines to keep the connection.
            let blank = seen
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
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

    /// Returns the next bytes of a body; an `IdleTimeout` if none come for so long.
    pub(super) async fn next(
        &self,
        body: &mut ReplyBody,
        silence_limit: Option<Duration>,
    ) -> Result<Option<Bytes>, ProviderError> {
        let Some(silence_limit) = silence_limit else {
            return body.chunk().await;
        };
        let silence = |_| {
            let words = format!("nothing came for {}", units::duration_text(silence_limit));
            ProviderError::transport(
                Arc::clone(&self.provider),
                TransportFault::IdleTimeout,
                words,
            )
        };
        tokio::time::timeout(silence_limit, body.chunk())
            .await
            .map_err(silence)?
    }

    /// Reads a document. One that is whole is not lost when the connection breaks, or stays open,
    /// behind it.
    pub(super) async fn document(
        &mut self,
        body: &mut ReplyBody,
        first: Bytes,
        limits: &ReadLimits,
    ) -> Result<BytesMut, ProviderError> {
        let mut document = BytesMut::from(&first[..]);
        let mut is_new = true;
        loop {
            let broken = match self.next(body, Some(limits.linger())).await {
                Ok(Some(bytes)) => {
                    document.extend_from_slice(&bytes);
                    is_new = true;
                    continue;
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if broken.is_none() || (mem::take(&mut is_new) && is_json(&document)) {
                self.remember(&document);
                return Ok(document);
            }
            if let Some(error) =
                broken.filter(|error| error.fault != Some(TransportFault::IdleTimeout))
            {
                return Err(error);
            }
        }
    }

    /// Opens the rest of a response whose connection broke.
    pub(super) async fn rest<D: ResponseParser>(
        &self,
        parser: &mut D,
        cut: ProviderError,
    ) -> Result<(ReplyBody, Bytes, Break), ProviderError> {
        loop {
            let (
                ProviderResponse {
                    status,
                    headers,
                    mut body,
                },
                break_info,
            ) = parser.read_on(cut.clone()).await?;
            let facts = Self {
                provider: Arc::clone(&self.provider),
                status,
                headers,
                excerpt: Vec::new(),
            };
            // A rest that is not a stream, or breaks at once, added nothing; the parser decides
            // when to stop resuming.
            if let Ok((Kind::Events, first)) = facts.open::<D::Frames>(&mut body).await {
                return Ok((body, first, break_info));
            }
        }
    }

    /// Keeps the beginning of the body; returns whether there is room for more.
    pub(super) fn remember(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_EXCERPT_BYTES.saturating_sub(self.excerpt.len());
        self.excerpt
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.excerpt.len() < MAX_EXCERPT_BYTES
    }

    pub(super) fn flawed(&self, flaw: ParseError, surface: Surface) -> ProviderError {
        let error = self.error(surface);
        match flaw {
            ParseError::NotUnderstood => ProviderError {
                body: Some(String::from_utf8_lossy(&self.excerpt).into_owned()),
                fault: Some(TransportFault::Protocol),
                surface: Surface::Http,
                ..error
            },
            ParseError::Unusable(message) => {
                // A document's text is all there is to report.
                let excerpt = (surface == Surface::Http)
                    .then(|| String::from_utf8_lossy(&self.excerpt).into_owned());
                ProviderError {
                    message: Some(message),
                    body: excerpt,
                    fault: Some(TransportFault::Protocol),
                    ..error
                }
            }
            ParseError::TooLong(message) => ProviderError {
                message: Some(message),
                fault: Some(TransportFault::TooLarge),
                ..error
            },
            ParseError::Cut(message) => ProviderError {
                message: Some(message),
                fault: Some(TransportFault::Cut),
                ..error
            },
            ParseError::Failed(Failed {
                status,
                body,
                header,
            }) => {
                let mut headers = error.headers;
                headers.extend(header);
                ProviderError {
                    body: Some(body),
                    status: status.or(error.status),
                    headers,
                    ..self.error(surface)
                }
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
        self.headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map_or("", |(_, value)| value.trim())
    }
}

fn is_json(document: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(document).is_ok()
}
