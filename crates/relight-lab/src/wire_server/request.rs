//! A request as a wire server read it.
//!
//! Only the part of HTTP/1.1 that a well-behaved client uses: a head, and a body of a stated
//! length.

use serde_json::Value;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::Instant};

/// A request as received.
#[derive(Debug, Clone)]
pub struct Request {
    /// `POST`, …
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// JSON body; null if it has none.
    pub body: Value,
    /// Time at which it was read.
    pub at: Instant,
    /// The connection it came on, from 0.
    pub connection: usize,
    /// Time at which its client disconnected before the reply was over.
    pub cancelled_at: Option<Instant>,
}

// === impl Request ===

impl Request {
    /// Returns the value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the texts of all messages with that role, in order, of a chat completions request.
    #[must_use]
    pub fn texts_of(&self, role: &str) -> Vec<String> {
        let messages = self
            .body
            .get("messages")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let by_role =
            messages.filter(|message| message.get("role").and_then(Value::as_str) == Some(role));
        by_role
            .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
            .collect()
    }
}

/// Reads the next request; `None` when its client is gone.
pub(super) async fn read(
    socket: &mut TcpStream,
    unread: &mut Vec<u8>,
    connection: usize,
) -> Option<Request> {
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
    let method = words.next()?;
    let path = words.next()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(Some(0), |(_, value)| value.parse().ok())?;
    while unread.len() < head_end + length {
        if socket.read_buf(unread).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&unread[head_end..head_end + length]).unwrap_or(Value::Null);
    unread.drain(..head_end + length);
    Some(Request {
        method,
        path,
        headers,
        body,
        at: Instant::now(),
        connection,
        cancelled_at: None,
    })
}
