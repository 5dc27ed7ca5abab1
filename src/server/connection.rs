//! Connections within limits: a maximum number, timeouts for silent and slow ones, and no busy loop
//! if accepting fails.
//!
//! If there is no room, the oldest connection that has not shown whose it is and has no request
//! makes some: whoever holds silent ones, however many and however often renewed, keeps nobody out.
//!
//! A connection is monitored where its bytes pass, below TLS and HTTP: without a request in flight
//! it must start one in time. Requests report their start and end through [`Activity`]. For one
//! that is refused before its body was read, the rest of the body is discarded behind the response
//! ([`UnreadBody`]).

mod log_limit;
mod unread;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak, atomic::AtomicU64},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody as _},
    serve::Listener,
};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep, timeout},
};
use tonic::transport::server::Connected;

use self::log_limit::LogLimit;
use self::unread::UnreadBody;
use crate::config::limits::{LimitsConfig, TimeoutsConfig};

/// Waits after a failed accept, such as for want of file descriptors.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Time that a connection that makes room may take to end.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// First bytes of an HTTP/2 connection.
const HTTP2_PREFACE: &[u8] = b"PRI ";

/// Accepts connections while there is room for them.
#[derive(Debug)]
pub(super) struct LimitedListener {
    name: &'static str,
    listener: TcpListener,
    places: Arc<Semaphore>,
    /// Connections that had not shown whose they are when this was last looked at, the oldest first.
    unknown: VecDeque<Weak<Activity>>,
    timeouts: TimeoutsConfig,
    refused: LogLimit,
}

/// A connection that ends when it is silent or slow for too long.
#[derive(Debug)]
pub(super) struct LimitedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
    /// Time at which its state is checked again.
    check: Pin<Box<Sleep>>,
    /// Time at which a write that the peer does not take has lasted too long.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Body that is still to be read behind the last response.
    unread: Option<UnreadBody>,
    _place: OwnedSemaphorePermit,
}

/// The activity of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    timeouts: TimeoutsConfig,
    state: Mutex<ConnectionState>,
    /// Task that reads the connection, to be woken when it is to make room.
    reader: AtomicWaker,
    /// Bytes of its requests that are being read or handled.
    pub(super) bytes: AtomicU64,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct ConnectionState {
    /// Requests that are being handled.
    requests: usize,
    phase: ConnectionPhase,
    /// Since when.
    since: Instant,
    is_http2: bool,
    is_identified: bool,
    /// If set, it is to end, so that another one has room.
    makes_room: bool,
    /// If set, the newest request has a body that was not read to its end.
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

/// Decision on whether a connection ends so that another one has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MakesRoom {
    Now,
    /// It has a request.
    NotNow,
    /// It has shown whose it is.
    Never,
}

/// A request in flight on a connection.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

/// A connection as its requests see it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) activity: Arc<Activity>,
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
            unknown: VecDeque::new(),
            timeouts: timeouts.clone(),
            refused: LogLimit::default(),
        }
    }

    pub(super) fn handshake_timeout(&self) -> Duration {
        self.timeouts.head
    }

    /// Returns a place for a new connection; `None` if every place is in use.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        let places = Arc::clone(&self.places);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Some(place);
        }
        let makes_room = self.make_room();
        if let Some(more) = self.refused.pass() {
            tracing::warn!(
                listener = self.name,
                more,
                "connection closed: server.limits.connections are open"
            );
        }
        if !makes_room {
            return None;
        }
        timeout(GONE_WITHIN, places.acquire_owned())
            .await
            .ok()?
            .ok()
    }

    /// Has the oldest connection end that nobody is known to use; returns whether there is one.
    fn make_room(&mut self) -> bool {
        for _ in 0..self.unknown.len() {
            let Some(oldest) = self.unknown.pop_front() else {
                return false;
            };
            match oldest.upgrade().map(|activity| activity.make_room()) {
                Some(MakesRoom::Now) => return true,
                Some(MakesRoom::NotNow) => self.unknown.push_back(oldest),
                Some(MakesRoom::Never) | None => {}
            }
        }
        false
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
                    let Some(place) = self.place().await else {
                        continue;
                    };
                    // Small events must not wait for each other.
                    let _ = stream.set_nodelay(true);
                    let stream = LimitedStream::new(stream, &self.timeouts, place);
                    self.unknown.push_back(Arc::downgrade(stream.activity()));
                    return (stream, peer);
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
        this.activity.reader.register(context.waker());
        loop {
            let now = Instant::now();
            // With a request in flight there is no end; it is checked again, because its end wakes
            // nothing.
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
            makes_room: false,
            is_body_unread: false,
        };
        Self {
            timeouts,
            state: Mutex::new(state),
            reader: AtomicWaker::new(),
            bytes: AtomicU64::new(0),
        }
    }

    /// Starts a request with this body; it ends when the guard is dropped.
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

    /// Returns whether the client may still send a body that nothing reads; over HTTP/2 that closes
    /// no connection.
    fn leaves_body_unread(&self) -> bool {
        let state = self.state();
        state.is_body_unread && !state.is_http2
    }

    /// A request showed whose it is.
    pub(super) fn identified(&self) {
        self.state().is_identified = true;
    }

    /// Has the connection end if nobody is known to use it.
    fn make_room(&self) -> MakesRoom {
        let mut state = self.state();
        if state.is_identified {
            return MakesRoom::Never;
        }
        if state.requests > 0 {
            return MakesRoom::NotNow;
        }
        state.makes_room = true;
        drop(state);
        self.reader.wake();
        MakesRoom::Now
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

    /// Returns the time at which the connection is to be closed if nothing else happens.
    fn end(&self) -> Option<Instant> {
        let state = self.state();
        match state.phase {
            _ if state.makes_room => Some(state.since),
            _ if state.requests > 0 => None,
            ConnectionPhase::Silent | ConnectionPhase::Head => {
                Some(state.since + self.timeouts.head)
            }
            ConnectionPhase::Idle if state.is_http2 && state.is_identified => None,
            ConnectionPhase::Idle => Some(state.since + self.timeouts.idle),
        }
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, ConnectionState> {
        self.state.lock()
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
