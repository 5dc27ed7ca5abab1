//! A model that responds with as many words as a request's limit of tokens, at once or one by one.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// The reason of the end, the usage, and `[DONE]`.
const EVENTS_OF_END: usize = 3;

/// How a stream comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    AtOnce,
    /// A piece at a time, with so much time after each.
    Apart(Duration),
    /// The same, and it never ends.
    Open(Duration),
}

/// How a request fails.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// A 503 that states no wait.
    Unavailable,
    /// The connection is closed before a response.
    Closed,
    /// The connection is closed in the middle of a response.
    Cut,
}

/// The requests that an upstream has got, of which one in ten fails.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) seen: AtomicU64,
    fault: Mutex<Option<Fault>>,
}

/// One request in so many fails.
const FAILS_OF: u64 = 10;

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 54\r\n\r\n\
    {\"error\":{\"message\":\"overloaded\",\"type\":\"overloaded\"}}";

// === impl Requests ===

impl Requests {
    /// From now on one request in ten fails so, or none.
    pub(crate) fn fail(&self, fault: Option<Fault>) {
        *self.fault.lock() = fault;
    }

    fn next(&self) -> Option<Fault> {
        let number = self.seen.fetch_add(1, Relaxed);
        (*self.fault.lock()).filter(|_| number.is_multiple_of(FAILS_OF))
    }
}

/// Starts it, for as long as the process runs.
pub(crate) async fn start(pace: Pace) -> SocketAddr {
    start_with(pace, Arc::default()).await
}

/// Starts one that responds at once, and fails as its requests say.
pub(crate) async fn start_failing(requests: Arc<Requests>) -> SocketAddr {
    start_with(Pace::AtOnce, requests).await
}

async fn start_with(pace: Pace, requests: Arc<Requests>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            tokio::spawn(serve(socket, pace, Arc::clone(&requests)));
        }
    });
    address
}

async fn serve(mut socket: TcpStream, pace: Pace, requests: Arc<Requests>) {
    let mut bytes = Vec::new();
    while let Some(body) = request(&mut socket, &mut bytes).await {
        let mut response = response(&body);
        let fault = requests.next();
        match fault {
            Some(Fault::Unavailable) => UNAVAILABLE.clone_into(&mut response),
            Some(Fault::Closed) => return,
            Some(Fault::Cut) => response.truncate(response.len() / 2),
            None => {}
        }
        let mut pieces: Vec<&str> = response.split_inclusive("\n\n").collect();
        let wait = match pace {
            Pace::AtOnce => {
                pieces = vec![&response];
                Duration::ZERO
            }
            Pace::Apart(wait) => wait,
            Pace::Open(wait) => {
                pieces.truncate(pieces.len() - EVENTS_OF_END);
                wait
            }
        };
        for piece in pieces {
            if socket.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
            if !wait.is_zero() {
                sleep(wait).await;
            }
        }
        if matches!(fault, Some(Fault::Cut)) {
            return;
        }
    }
}

/// The body of the next request; `None` where the client has left.
async fn request(socket: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    let (start, length) = loop {
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let fields = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = fields
                .split("content-length: ")
                .nth(1)?
                .lines()
                .next()?
                .parse::<usize>()
                .ok()?;
            break (head + 4, length);
        }
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    while bytes.len() < start + length {
        if socket.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let rest = bytes.split_off(start + length);
    let body = String::from_utf8(bytes.split_off(start)).ok()?;
    *bytes = rest;
    Some(body)
}

fn response(request: &str) -> String {
    // Some clients write a space after the colon.
    let value = |end_of_name: &str| {
        request
            .split_once(end_of_name)
            .map(|(_, rest)| rest.trim_start())
    };
    let limit = value("tokens\":").unwrap();
    let words: u32 = limit
        .split(|it: char| !it.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let is_stream = value("\"stream\":").is_some_and(|value| value.starts_with("true"));
    let common = "\"id\":\"c-1\",\"created\":1,\"model\":\"m-1\"";
    let usage = format!(
        "\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":{words},\"total_tokens\":{}}}",
        words + 10
    );
    let (kind, body) = if is_stream {
        let chunk = |delta: &str, reason: &str| {
            format!(
                "data: {{{common},\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\
                 \"finish_reason\":{reason}}}]}}\n\n"
            )
        };
        let mut body = chunk("\"role\":\"assistant\",\"content\":\"\"", "null");
        for word in 0..words {
            body.push_str(&chunk(&format!("\"content\":\"word {word} \""), "null"));
        }
        body.push_str(&chunk("", "\"stop\""));
        write!(
            body,
            "data: {{{common},\"object\":\"chat.completion.chunk\",\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"
        )
        .unwrap();
        ("text/event-stream", body)
    } else {
        let text: String = (0..words).map(|word| format!("word {word} ")).collect();
        let message = format!("{{\"role\":\"assistant\",\"content\":\"{text}\"}}");
        let choice = format!("{{\"index\":0,\"message\":{message},\"finish_reason\":\"stop\"}}");
        (
            "application/json",
            format!("{{{common},\"object\":\"chat.completion\",\"choices\":[{choice}],{usage}}}"),
        )
    };
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
