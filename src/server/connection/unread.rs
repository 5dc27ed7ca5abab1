//! What a client still sends of a body that its server does not want: read and thrown away, up to a
//! number of bytes and for a few seconds. A connection that is closed with bytes unread is reset,
//! and its client would not see the response.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

/// Most bytes that are thrown away.
const MOST_BYTES: usize = 64 << 20;

/// Maximum time for which they are waited for.
const LONGEST: Duration = Duration::from_secs(5);

/// The rest of a body on a connection on which nothing else is read or written any more.
#[derive(Debug)]
pub(super) struct UnreadBody {
    end: Pin<Box<Sleep>>,
    left: usize,
}

// === impl UnreadBody ===

impl UnreadBody {
    pub(super) fn new() -> Self {
        Self {
            end: Box::pin(sleep(LONGEST)),
            left: MOST_BYTES,
        }
    }

    /// Reads it until the client has closed the connection, or a bound is reached.
    pub(super) fn poll_discard(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut space = [MaybeUninit::uninit(); 16 << 10];
        while self.left > 0 && self.end.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                break;
            }
            self.left = self.left.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}
