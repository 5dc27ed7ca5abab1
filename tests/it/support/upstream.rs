//! A model server that fails on demand: real sockets on 127.0.0.1, HTTP/1.1, every fault that a wire knows.
//!
//! It plays a queue of replies, one per request, then its default reply; it records every request, on which
//! connection it came, and when its client went away before the reply was over. It speaks raw TCP, because no HTTP
//! library can be made to break its own rules.
//!
//! ```ignore
//! let upstream = Upstream::start().await;
//! upstream.push(Reply::status(503)).push(Reply::text("Hello there").cut_after(120));
//! let base_url = upstream.base_url();
//! // … calls …
//! assert_eq!(upstream.requests().len(), 2);
//! ```

mod reply;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

pub(crate) use self::reply::{Reply, chunk, usage_chunk};

/// Longest time that an `await_…` waits before the test fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server; stops when it is dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
    _accepting: JoinSet<()>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// `POST`, …
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The JSON body; null where it is none.
    pub(crate) body: Value,
    /// When it was read.
    pub(crate) at: Instant,
    /// The connection it came on, from 0.
    pub(crate) connection: usize,
    /// When its client went away before the reply was over.
    pub(crate) cancelled_at: Option<Instant>,
}

struct State {
    queue: Mutex<VecDeque<Reply>>,
    default: Mutex<Reply>,
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    changed: watch::Sender<()>,
}

// === impl Upstream ===

impl Upstream {
    /// Starts a server that answers everything with a short text until told otherwise.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            queue: Mutex::default(),
            default: Mutex::new(Reply::text("Hello from upstream.")),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            changed: watch::channel(()).0,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, _accepting: accepting }
    }

    /// What a provider is configured with.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Queues a reply for the next request that has none yet.
    pub(crate) fn push(&self, reply: Reply) -> &Self {
        locked(&self.state.queue).push_back(reply);
        self
    }

    /// How many queued replies were not played yet.
    pub(crate) fn unplayed(&self) -> usize {
        locked(&self.state.queue).len()
    }

    /// What is replied when nothing is queued.
    pub(crate) fn otherwise(&self, reply: Reply) -> &Self {
        *locked(&self.state.default) = reply;
        self
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        locked(&self.state.requests).clone()
    }

    /// How many connections were accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Waits for the `n`th request (from 1).
    pub(crate) async fn await_request(&self, n: usize) -> Request {
        self.await_where(|requests| requests.get(n - 1).cloned()).await
    }

    /// Waits until the client of the `n`th request (from 1) went away early, and says when that was.
    pub(crate) async fn await_cancel(&self, n: usize) -> Instant {
        self.await_where(|requests| requests.get(n - 1).and_then(|request| request.cancelled_at)).await
    }

    async fn await_where<T>(&self, find: impl Fn(&[Request]) -> Option<T>) -> T {
        let mut changes = self.state.changed.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = find(&locked(&self.state.requests)) {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        let requests = || self.requests();
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not seen; seen: {:#?}", requests()))
    }
}

// === impl Request ===

impl Request {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The texts of all messages with that role, in order.
    pub(crate) fn texts_of(&self, role: &str) -> Vec<String> {
        let messages = self.body["messages"].as_array().cloned().unwrap_or_default();
        let by_role = messages.into_iter().filter(|message| message["role"] == role);
        by_role.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    // Connections live as long as the server.
    let mut serving = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let connection = state.connections.fetch_add(1, Ordering::SeqCst);
        serving.spawn(serve(socket, connection, Arc::clone(&state)));
    }
}

async fn serve(mut socket: TcpStream, connection: usize, state: Arc<State>) {
    let _ = socket.set_nodelay(true);
    let mut unread = Vec::new();
    while let Some(request) = read_request(&mut socket, &mut unread, connection).await {
        let reply = locked(&state.queue).pop_front().unwrap_or_else(|| locked(&state.default).clone());
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
            Some(reply::Ending::KeepOpen) => {}
            Some(reply::Ending::Close) => return,
            Some(reply::Ending::Reset) => {
                let _ = socket.set_zero_linger();
                return;
            }
            None => {
                locked(&state.requests)[number].cancelled_at = Some(Instant::now());
                state.changed.send_replace(());
                return;
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream, unread: &mut Vec<u8>, connection: usize) -> Option<Request> {
    let head_end = loop {
        if let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    };
    let head: String = String::from_utf8_lossy(&unread[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while unread.len() < head_end + length {
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&unread[head_end..head_end + length]).unwrap_or(Value::Null);
    unread.drain(..head_end + length);
    Some(Request { method, path, headers, body, at: Instant::now(), connection, cancelled_at: None })
}
