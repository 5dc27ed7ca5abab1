//! Connections within limits: a maximum number, timeouts for silent and slow ones, and no busy loop
//! where accepting fails.
//!
//! A connection is monitored where its bytes pass, below TLS and HTTP: without a request in flight
//! it must begin one in time. Requests report their begin and end through [`Activity`]. One that is
//! refused before its body was read gets the rest of it thrown away behind the response
//! ([`UnreadBody`]).

mod unread;

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody as _},
    serve::Listener,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};
use tonic::transport::server::Connected;

use self::unread::UnreadBody;
use crate::config::limits::{LimitsConfig, TimeoutsConfig};

/// Waits after a failed accept, such as for want of file descriptors.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often one kind of refusal is logged at most.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// How an HTTP/2 connection begins.
const HTTP2_PREFACE: &[u8] = b"PRI ";

/// Accepts connections while there is room for them.
#[derive(Debug)]
pub(super) struct LimitedListener {
    name: &'static str,
    listener: TcpListener,
    places: Arc<Semaphore>,
    timeouts: TimeoutsConfig,
    refused: LogLimit,
}

/// A connection that ends when it is silent or slow for too long.
#[derive(Debug)]
pub(super) struct LimitedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
    /// When its state is looked at again.
    check: Pin<Box<Sleep>>,
    /// When a write that the peer does not take has lasted too long.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What is still to be read behind the last response.
    unread: Option<UnreadBody>,
    _place: OwnedSemaphorePermit,
}

/// The activity of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    timeouts: TimeoutsConfig,
    state: Mutex<ConnectionState>,
    /// Bytes of its requests that are being read or handled.
    pub(super) bytes: AtomicU64,
}

#[derive(Debug)]
struct ConnectionState {
    /// Requests that are being handled.
    requests: usize,
    phase: ConnectionPhase,
    /// Since when.
    since: Instant,
    is_http2: bool,
    is_identified: bool,
    /// Whether the newest request has a body that was not read to its end.
    is_body_unread: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Nothing has come yet.
    Silent,
    /// A request's head is coming.
    Head,
    /// Between requests.
    Idle,
}

/// A request in flight on a connection.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

/// A connection as its requests see it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) activity: Arc<Activity>,
}

/// Limits how often a log line is written.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    last: Option<Instant>,
    held_back: u64,
}

// === impl LimitedListener ===

impl LimitedListener {
    pub(super) fn new(
        name: &'static str,
        listener: TcpListener,
        limits: &LimitsConfig,
        timeouts: &TimeoutsConfig,
    ) -> Self {
        let places = Arc::new(Semaphore::new(
            limits.connections.min(Semaphore::MAX_PERMITS),
        ));
        Self {
            name,
            listener,
            places,
            timeouts: timeouts.clone(),
            refused: LogLimit::default(),
        }
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        self.timeouts.handshake
    }
}

impl Listener for LimitedListener {
    type Io = LimitedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    pause = FIRST_PAUSE;
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        if let Some(more) = self.refused.pass() {
                            tracing::warn!(
                                listener = self.name,
                                more,
                                "connection closed: server.limits.connections are open"
                            );
                        }
                        continue;
                    };
                    // Small events must not wait for each other.
                    let _ = stream.set_nodelay(true);
                    return (LimitedStream::new(stream, &self.timeouts, place), peer);
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if let Some(more) = self.refused.pass() {
                        tracing::error!(listener = self.name, %error, more, "connections cannot be accepted; trying again");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

// === impl LogLimit ===

impl LogLimit {
    /// How many lines were held back since the last one, if another may be written.
    pub(super) fn pass(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.held_back))
    }
}

// === impl LimitedStream ===

impl LimitedStream {
    fn new(stream: TcpStream, timeouts: &TimeoutsConfig, place: OwnedSemaphorePermit) -> Self {
        let activity = Arc::new(Activity::new(timeouts.clone()));
        Self {
            stream,
            activity,
            check: Box::pin(sleep(timeouts.head)),
            stalled: None,
            unread: None,
            _place: place,
        }
    }

    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Ends a write that the peer does not take.
    fn progress<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let idle = self.activity.timeouts.idle;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            this.activity.received(&buffer.filled()[before..]);
            return Poll::Ready(read);
        }
        loop {
            let now = Instant::now();
            // With a request in flight there is no end; it is looked at again, because its end
            // wakes nothing.
            let end = this.activity.end();
            if end.is_some_and(|end| end <= now) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let check = end.unwrap_or_else(|| now + this.activity.timeouts.head);
            if this.check.deadline() > check || this.check.deadline() <= now {
                this.check.as_mut().reset(check);
            }
            ready!(this.check.as_mut().poll(context));
        }
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.progress(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.progress(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        if !this.activity.leaves_body_unread() {
            return Poll::Ready(Ok(()));
        }
        this.unread
            .get_or_insert_with(UnreadBody::new)
            .poll_discard(&mut this.stream, context)
    }
}

impl Connected for LimitedStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        Connection {
            activity: Arc::clone(&self.activity),
        }
    }
}

// === impl Activity ===

impl Activity {
    fn new(timeouts: TimeoutsConfig) -> Self {
        let state = ConnectionState {
            requests: 0,
            phase: ConnectionPhase::Silent,
            since: Instant::now(),
            is_http2: false,
            is_identified: false,
            is_body_unread: false,
        };
        Self {
            timeouts,
            state: Mutex::new(state),
            bytes: AtomicU64::new(0),
        }
    }

    /// A request with this body begins; it ends when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, body: &Body) -> RequestGuard {
        // Before the lock is taken: HTTP/2 has a lock of its own here, under which it drops guards,
        // which take this one.
        let is_body_unread = !body.is_end_stream();
        let mut state = self.state();
        state.requests += 1;
        state.is_body_unread = is_body_unread;
        drop(state);
        RequestGuard(Arc::clone(self))
    }

    /// The body of the request was read to its end.
    pub(super) fn read_body(&self) {
        self.state().is_body_unread = false;
    }

    /// Whether the client may still send a body that nothing reads; over HTTP/2 that closes no
    /// connection.
    fn leaves_body_unread(&self) -> bool {
        let state = self.state();
        state.is_body_unread && !state.is_http2
    }

    /// A request showed whose it is.
    pub(super) fn identified(&self) {
        self.state().is_identified = true;
    }

    /// Notes that the TLS handshake is done; the bytes so far were not HTTP.
    pub(super) fn secured(&self, is_http2: bool) {
        let mut state = self.state();
        state.is_http2 = is_http2;
        state.turn(if is_http2 {
            ConnectionPhase::Idle
        } else {
            ConnectionPhase::Silent
        });
    }

    /// Bytes came.
    fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.requests > 0 || state.is_http2 || bytes.is_empty() {
            return;
        }
        match state.phase {
            ConnectionPhase::Silent if bytes.starts_with(HTTP2_PREFACE) => {
                state.is_http2 = true;
                state.turn(ConnectionPhase::Idle);
            }
            ConnectionPhase::Silent => state.phase = ConnectionPhase::Head,
            ConnectionPhase::Idle => state.turn(ConnectionPhase::Head),
            ConnectionPhase::Head => {}
        }
    }

    /// When the connection is to be closed if nothing else happens.
    fn end(&self) -> Option<Instant> {
        let state = self.state();
        match state.phase {
            _ if state.requests > 0 => None,
            ConnectionPhase::Silent | ConnectionPhase::Head => {
                Some(state.since + self.timeouts.head)
            }
            ConnectionPhase::Idle if state.is_http2 && state.is_identified => None,
            ConnectionPhase::Idle => Some(state.since + self.timeouts.idle),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ConnectionState ===

impl ConnectionState {
    fn turn(&mut self, phase: ConnectionPhase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

// === impl RequestGuard ===

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests = state.requests.saturating_sub(1);
        if state.requests == 0 {
            state.turn(ConnectionPhase::Idle);
        }
    }
}
