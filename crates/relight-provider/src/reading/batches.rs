//! How often a body is read: as it comes if somebody reads along, and in batches if only the end is
//! waited for.
//!
//! A provider sends each token by itself, and each one that is awaited costs a wake of the
//! connection, of the call and of all that is between them. Nothing is gained by that if nobody
//! reads along: the kernel keeps what comes meanwhile. So what is there is taken together, and the
//! next look is a thirty-second of the answer's time so far later, which is by how much its end may
//! be late: 3 %, and at most [`LONGEST_PAUSE`]. Silence and cuts are noticed as before.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep};

use super::facts::ResponseMeta;
use crate::{
    domain::{completion::Delta, failure::ProviderError},
    http::ReplyBody,
};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Time since the first content, over that until the body is looked at again.
const SHARE: u32 = 32;
/// Size of a batch after which it is parsed, whatever else there is.
const MAX_BATCH_BYTES: usize = 64 << 10;

/// State of reading one body.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// Somebody reads along.
    is_read_along: bool,
    /// Time of the first content: before it nothing is batched, so that its time is exact.
    since: Option<Instant>,
    /// Nothing more was there when the last batch ended.
    is_drained: bool,
    /// End of the body that followed the last batch.
    end: Option<Result<Option<Bytes>, ProviderError>>,
}

// === impl Batches ===

impl Batches {
    /// Reads as it comes for somebody who reads along.
    pub(super) fn new(is_read_along: bool) -> Self {
        Self {
            is_read_along,
            ..Self::default()
        }
    }

    /// Notes the deltas that came.
    pub(super) fn note(&mut self, deltas: &[Delta]) {
        if self.since.is_none() && !self.is_read_along && deltas.iter().any(Delta::is_content) {
            self.since = Some(Instant::now());
        }
    }

    /// Returns the next bytes of a body; an `IdleTimeout` if none come for so long.
    pub(super) async fn next(
        &mut self,
        meta: &ResponseMeta,
        body: &mut ReplyBody,
        silence_limit: Option<Duration>,
    ) -> Result<Option<Bytes>, ProviderError> {
        let Some(since) = self.since else {
            return meta.next(body, silence_limit).await;
        };
        if let Some(end) = self.end.take() {
            return end;
        }
        let mut left = silence_limit;
        if self.is_drained {
            let pause = (since.elapsed() / SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            let pause = left.map_or(pause, |left| left.min(pause));
            sleep(pause).await;
            left = left.map(|left| left.saturating_sub(pause));
        }
        match meta.next(body, left).await? {
            Some(first) => Ok(Some(self.batch(first, body).await)),
            None => Ok(None),
        }
    }

    /// Returns these bytes with all that is there already.
    async fn batch(&mut self, first: Bytes, body: &mut ReplyBody) -> Bytes {
        self.is_drained = false;
        let mut batch = BytesMut::from(first);
        while batch.len() < MAX_BATCH_BYTES {
            tokio::select! {
                biased;
                next = body.chunk() => match next {
                    Ok(Some(bytes)) => batch.extend_from_slice(&bytes),
                    end => {
                        self.end = Some(end);
                        break;
                    }
                },
                // Comes to its turn after the connection's task, and so once that has no more.
                () = tokio::task::yield_now() => {
                    self.is_drained = true;
                    break;
                }
            }
        }
        batch.freeze()
    }
}
