//! A model server that fails on demand: a real socket on 127.0.0.1, HTTP/1.1, with every fault of a
//! real connection.
//!
//! `relight demo --provider` and the tests use it to make a provider fail as that provider fails.
//! It plays a queue of replies, one per request, then a default reply; it records every request,
//! the connection on which it came, and when its client disconnected before the reply was over. It
//! uses raw TCP, because HTTP libraries cannot break HTTP's rules. It is not reachable from other
//! hosts, and not part of `relight serve`.

pub mod answers;
pub mod mcp;
mod reply;
mod request;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

pub use self::{reply::Reply, request::Request};

/// Chooses the reply to a request.
type Chooser = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// A running server; stops when it is dropped.
pub struct WireServer {
    address: SocketAddr,
    state: Arc<WireState>,
    _accepting: JoinSet<()>,
}

struct WireState {
    queue: Mutex<VecDeque<Reply>>,
    otherwise: Mutex<Chooser>,
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    changed: watch::Sender<()>,
}

// === impl WireServer ===

impl WireServer {
    /// Starts a server on a free port; its default reply is status 503.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> io::Result<Self> {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a server at this address; its default reply is status 503.
    ///
    /// # Errors
    /// Returns an error if the address is taken.
    pub async fn start_on(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(WireState {
            queue: Mutex::default(),
            otherwise: Mutex::new(Arc::new(|_: &Request| Reply::status(503))),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            changed: watch::channel(()).0,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _accepting: accepting,
        })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a reply for the next request that has none yet.
    pub fn push(&self, reply: Reply) -> &Self {
        locked(&self.state.queue).push_back(reply);
        self
    }

    /// Returns the number of queued replies that were not played yet.
    #[must_use]
    pub fn unplayed(&self) -> usize {
        locked(&self.state.queue).len()
    }

    /// Chooses what is replied when nothing is queued.
    pub fn otherwise(&self, choose: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        *locked(&self.state.otherwise) = Arc::new(choose);
        self
    }

    /// Returns all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        locked(&self.state.requests).clone()
    }

    /// Returns the number of connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Changes whenever a request came or its client disconnected early.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.state.changed.subscribe()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

async fn accept(listener: TcpListener, state: Arc<WireState>) {
    // Connections live as long as the server.
    let mut serving = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let connection = state.connections.fetch_add(1, Ordering::SeqCst);
        serving.spawn(serve(socket, connection, Arc::clone(&state)));
    }
}

async fn serve(mut socket: TcpStream, connection: usize, state: Arc<WireState>) {
    let _ = socket.set_nodelay(true);
    let mut unread = Vec::new();
    while let Some(request) = request::read(&mut socket, &mut unread, connection).await {
        let queued = locked(&state.queue).pop_front();
        let choose = Arc::clone(&locked(&state.otherwise));
        let reply = queued.unwrap_or_else(|| choose(&request));
        let number = {
            let mut requests = locked(&state.requests);
            requests.push(request);
            requests.len() - 1
        };
        state.changed.send_replace(());
        let (mut reading, mut writing) = socket.split();
        let gone = async {
            let mut byte = [0_u8; 1];
            // A client sends nothing while it waits, so that anything readable is its end.
            while reading.peek(&mut byte).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ending = tokio::select! {
            ending = reply.play(&mut writing) => ending,
            () = gone => None,
        };
        match ending {
            Some(reply::ConnectionEnd::KeepOpen) => {}
            Some(reply::ConnectionEnd::Close) => return,
            Some(reply::ConnectionEnd::Reset) => {
                let _ = socket.set_zero_linger();
                return;
            }
            None => {
                if let Some(request) = locked(&state.requests).get_mut(number) {
                    request.cancelled_at = Some(Instant::now());
                }
                state.changed.send_replace(());
                return;
            }
        }
    }
}
