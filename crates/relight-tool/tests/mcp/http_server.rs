//! A server over HTTP that responds as a test says.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use relight_tool::{HttpPlace, ToolServerPlace, ToolServers};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::server;

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Came {
    pub(super) verb: String,
    pub(super) session: Option<String>,
    pub(super) message: Value,
}

/// Response to a request.
pub(super) enum Response {
    /// A status, a content type and a body; then the next request is read.
    Whole(u16, &'static str, String),
    /// The same, with a session that begins.
    Begun(String, String),
    /// Nothing, for ever.
    None,
}

type Respond = dyn FnMut(&Came) -> Response + Send;

/// A running server; ends when it is dropped.
pub(super) struct ScriptedServer {
    address: SocketAddr,
    came: Arc<Mutex<Vec<Came>>>,
    _task: JoinSet<()>,
}

// === impl Came ===

impl Came {
    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// Returns the message that responds to it with these members.
    pub(super) fn responded(&self, members: &Value) -> String {
        let mut response = json!({ "jsonrpc": "2.0", "id": self.message["id"] });
        let response_members = response.as_object_mut().unwrap();
        response_members.extend(members.as_object().unwrap().clone());
        response.to_string()
    }

    /// Returns the result of a tool.
    pub(super) fn done(&self, text: &str) -> String {
        let content = json!([{ "type": "text", "text": text }]);
        self.responded(&json!({ "result": { "content": content } }))
    }

    /// Returns how a server of sessions responds to what is no call; `session` is the one that it
    /// begins.
    pub(super) fn usual(&self, session: &str) -> Response {
        match (self.verb.as_str(), self.method()) {
            ("POST", "server/discover") => {
                Response::json(self.responded(
                    &json!({ "error": { "code": -32601, "message": "Method not found" } }),
                ))
            }
            ("POST", "initialize") => Response::Begun(
                session.to_owned(),
                self.responded(&json!({ "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "scripted", "version": "1" },
                } })),
            ),
            ("POST", "ping") => Response::json(self.responded(&json!({ "result": {} }))),
            ("POST", _) => Response::Whole(202, "text/plain", String::new()),
            _ => Response::Whole(405, "text/plain", String::new()),
        }
    }
}

// === impl Response ===

impl Response {
    pub(super) fn json(body: String) -> Self {
        Self::Whole(200, "application/json", body)
    }

    /// Returns the events with these data.
    pub(super) fn events(data: &[String]) -> Self {
        let events = data.iter().map(|data| format!("data: {data}\n\n"));
        Self::Whole(200, "text/event-stream", events.collect())
    }

    /// Returns what is sent; nothing, if the connection hangs.
    fn bytes(self) -> Option<Vec<u8>> {
        let (status, kind, body, session) = match self {
            Self::Whole(status, kind, body) => (status, kind, body, String::new()),
            Self::Begun(session, body) => {
                let session = format!("mcp-session-id: {session}\r\n");
                (200, "application/json", body, session)
            }
            Self::None => return None,
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\n{session}content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        Some([head.into_bytes(), body.into_bytes()].concat())
    }
}

// === impl ScriptedServer ===

impl ScriptedServer {
    pub(super) async fn start(respond: impl FnMut(&Came) -> Response + Send + 'static) -> Self {
        let respond: Arc<Mutex<Respond>> = Arc::new(Mutex::new(respond));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let came = Arc::new(Mutex::new(Vec::new()));
        let mut task = JoinSet::new();
        let noted = Arc::clone(&came);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, Arc::clone(&respond), Arc::clone(&noted)));
            }
        });
        Self {
            address,
            came,
            _task: task,
        }
    }

    pub(super) fn client(&self) -> ToolServers {
        let url = format!("http://{}/mcp", self.address);
        server(ToolServerPlace::McpHttp(HttpPlace::new(url)))
    }

    /// Returns how often a method came.
    pub(super) fn count(&self, method: &str) -> usize {
        let came = self.came.lock().unwrap();
        came.iter().filter(|came| came.method() == method).count()
    }
}

async fn serve(mut stream: TcpStream, respond: Arc<Mutex<Respond>>, noted: Arc<Mutex<Vec<Came>>>) {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if read.read_line(&mut head).await.unwrap_or_default() == 0 {
                return;
            }
        }
        let field = |name: &str| {
            head.lines()
                .filter_map(|line| line.split_once(": "))
                .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.to_owned()))
        };
        let length = field("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        if read.read_exact(&mut body).await.is_err() {
            return;
        }
        let came = Came {
            verb: head.split(' ').next().unwrap_or_default().to_owned(),
            session: field("mcp-session-id"),
            message: serde_json::from_slice(&body).unwrap_or_default(),
        };
        noted.lock().unwrap().push(came.clone());
        let response = respond.lock().unwrap()(&came).bytes();
        let Some(response) = response else {
            return std::future::pending().await;
        };
        if write.write_all(&response).await.is_err() {
            return;
        }
    }
}
