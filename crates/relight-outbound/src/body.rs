//! The body of a response as it arrives, within its bound.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::fault::body_fault;
use crate::domain::failure::{ProviderError, Surface, TransportFault};

/// Longest error body kept, in bytes.
const MAX_EXCERPT_BYTES: usize = 64 << 10;
/// Longest time to wait for an error body: its status is enough to continue.
const EXCERPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time to wait for the protocol's end of a body whose content has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(20);

/// The body of a response; dropping it cancels the request upstream.
pub struct ReplyBody {
    incoming: Incoming,
    provider: Arc<str>,
    max_bytes: u64,
    left_bytes: u64,
}

// === impl ReplyBody ===

impl ReplyBody {
    /// A body of which at most `max_bytes` are read.
    #[must_use]
    pub fn new(incoming: Incoming, provider: Arc<str>, max_bytes: u64) -> Self {
        Self {
            incoming,
            provider,
            max_bytes,
            left_bytes: max_bytes,
        }
    }

    /// Returns the next bytes; `None` at the clean end. Cancel safe.
    ///
    /// # Errors
    /// When the body breaks off or exceeds its bound.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        loop {
            let frame = match self.incoming.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(body_fault(&self.provider, &error)),
                Some(Ok(frame)) => frame,
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = data.len() as u64;
            if length > self.left_bytes {
                return Err(ProviderError {
                    surface: Surface::Stream,
                    ..ProviderError::transport(
                        Arc::clone(&self.provider),
                        TransportFault::TooLarge,
                        format!("the answer is longer than {} bytes", self.max_bytes),
                    )
                });
            }
            self.left_bytes -= length;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Reads the unneeded rest of a body up to its end, so that the connection can be reused. It
    /// waits only as long as that is cheaper than a new connection; a later end costs the
    /// connection and nothing else.
    pub async fn discard_rest(&mut self) {
        let reading = async { while let Ok(Some(_)) = self.chunk().await {} };
        let _ = tokio::time::timeout(REST_TIMEOUT, reading).await;
    }

    /// Returns the text of an error body: bounded in size and in time, decoded lossily; `None` if
    /// there is none.
    pub async fn excerpt(self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.excerpt_bytes().await).into_owned();
        (!text.trim().is_empty()).then_some(text)
    }

    /// Returns an error body, bounded in size and in time.
    pub async fn excerpt_bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let reading = async {
            while bytes.len() < MAX_EXCERPT_BYTES {
                match self.chunk().await {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                    Ok(None) | Err(_) => break,
                }
            }
        };
        // What came in time is kept, whole or not.
        let _ = tokio::time::timeout(EXCERPT_TIMEOUT, reading).await;
        bytes.truncate(MAX_EXCERPT_BYTES);
        bytes
    }
}
