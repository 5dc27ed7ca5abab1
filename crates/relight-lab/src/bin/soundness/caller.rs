//! A caller of chat completions over a plain socket, which sees how a response ended.

use std::{collections::BTreeMap, time::Duration};

use relight_lab::fake_llm::FakeRecord;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

/// Longest time that a caller waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that a caller holds when its call is over.
#[derive(Debug, Default)]
pub(crate) struct HeldByCaller {
    /// 0 if there was no response.
    pub(crate) status: u16,
    pub(crate) text: String,
    /// Name and arguments of each tool call, by its index.
    pub(crate) tools: BTreeMap<u64, (String, String)>,
    pub(crate) finish: Option<String>,
    /// An error that the caller was given, or a response that ended against the rules of HTTP.
    pub(crate) error: Option<String>,
    pub(crate) elapsed: Duration,
    pub(crate) record: FakeRecord,
    /// The provider's connection ended after its caller left.
    pub(crate) provider_left: bool,
}

// === impl HeldByCaller ===

impl HeldByCaller {
    fn broken(why: &str) -> Self {
        Self {
            error: Some(why.to_owned()),
            ..Self::default()
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            self.error = Some("the connection ended before a response".to_owned());
            return;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        self.status = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_default();
        let (body, whole) = body_of(&head, &bytes[end + 4..]);
        let body = String::from_utf8_lossy(&body).into_owned();
        if head.contains("text/event-stream") {
            self.read_events(&body);
        } else {
            self.read_document(&body);
        }
        if !whole && self.error.is_none() {
            self.error = Some("the body broke off".to_owned());
        }
        if self.status >= 400 && self.error.is_none() {
            self.error = Some(format!("status {}", self.status));
        }
    }

    fn read_events(&mut self, body: &str) {
        let body = body.replace("\r\n", "\n");
        for event in body.split("\n\n") {
            let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
            let data: Vec<&str> = lines
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
                .collect();
            let data = data.join("\n");
            if data.is_empty() || data == "[DONE]" {
                continue;
            }
            match serde_json::from_str::<Value>(&data) {
                Ok(chunk) => self.read_chunk(&chunk, "delta"),
                // What no client can parse ends its call with an error.
                Err(_) => self.error = Some("an event that is no JSON".to_owned()),
            }
        }
    }

    fn read_document(&mut self, body: &str) {
        match serde_json::from_str::<Value>(body) {
            Ok(document) => self.read_chunk(&document, "message"),
            Err(_) => self.error = Some("a body that is no JSON".to_owned()),
        }
    }

    fn read_chunk(&mut self, chunk: &Value, message: &str) {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let words = error["message"]
                .as_str()
                .map_or_else(|| error.to_string(), str::to_owned);
            self.error = Some(words);
        }
        let choice = &chunk["choices"][0];
        let delta = &choice[message];
        self.text
            .push_str(delta["content"].as_str().unwrap_or_default());
        for (place, call) in (0..).zip(delta["tool_calls"].as_array().into_iter().flatten()) {
            let held = self
                .tools
                .entry(call["index"].as_u64().unwrap_or(place))
                .or_default();
            held.0
                .push_str(call["function"]["name"].as_str().unwrap_or_default());
            held.1
                .push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }
}

/// Sends one request, and reads until the response is over.
pub(crate) async fn call(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HeldByCaller {
    let began = Instant::now();
    let mut held = HeldByCaller::default();
    let mut bytes = Vec::new();
    match tokio::time::timeout(PATIENCE, exchange(address, path, headers, body, &mut bytes)).await {
        Ok(Ok(())) => held.read(&bytes),
        Ok(Err(fault)) if bytes.is_empty() => held = HeldByCaller::broken(&fault.to_string()),
        Ok(Err(fault)) => {
            held.read(&bytes);
            held.error.get_or_insert(fault.to_string());
        }
        Err(_) => {
            held.read(&bytes);
            held.error = Some(format!("nothing more within {} s", PATIENCE.as_secs()));
        }
    }
    held.elapsed = began.elapsed();
    held
}

async fn exchange(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
    bytes: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address).await?;
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request.push_str("\r\n");
    request.push_str(body);
    socket.write_all(request.as_bytes()).await?;
    while socket.read_buf(bytes).await? > 0 {}
    Ok(())
}

/// Returns the body without its transfer encoding, and if it ended as HTTP wants it.
fn body_of(head: &str, bytes: &[u8]) -> (Vec<u8>, bool) {
    if head.contains("transfer-encoding: chunked") {
        return unchunked(bytes);
    }
    let stated = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length = stated.and_then(|length| length.trim().parse::<usize>().ok());
    (
        bytes.to_vec(),
        length.is_none_or(|length| length == bytes.len()),
    )
}

fn unchunked(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            return (body, false);
        };
        if size == 0 {
            return (body, true);
        }
        let rest = &bytes[end + 2..];
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        let Some(next) = rest.get(size + 2..) else {
            return (body, false);
        };
        bytes = next;
    }
    (body, false)
}
