//! The kinds of calls that are counted and measured, and their clients.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, Message, ModelCall, Overrides, Part, RewindMode, Role,
    StreamWithRecoveryRequest, TextPart, invocation::Call, part::Content,
    recovery_service_client::RecoveryServiceClient, stream_with_recovery_request::Start,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::transport::Channel;

const PATIENCE: Duration = Duration::from_secs(30);
const SQLITE: &str = "sqlite:{}/journal.db";

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Front { stream: bool, pieces: usize, prompt_bytes: usize, turns: usize, tools: usize },
    Grpc { stream: bool, pieces: usize, request_id: bool },
}

const fn front(stream: bool, pieces: usize) -> Kind {
    Kind::Front { stream, pieces, prompt_bytes: 20, turns: 0, tools: 0 }
}

const fn long_front(prompt_bytes: usize, turns: usize, tools: usize) -> Kind {
    Kind::Front { stream: false, pieces: 8, prompt_bytes, turns, tools }
}

/// Each kind with its name and its journal.
pub(crate) const KINDS: &[(&str, &str, Kind)] = &[
    ("front unary", "memory", front(false, 8)),
    ("front stream of 8", "memory", front(true, 8)),
    ("front stream of 64", "memory", front(true, 64)),
    ("front 1 MB prompt", "memory", long_front(1 << 20, 0, 0)),
    ("front 100 turns", "memory", long_front(20, 100, 0)),
    ("front 200 tools", "memory", long_front(20, 0, 200)),
    ("grpc unary, memory", "memory", Kind::Grpc { stream: false, pieces: 8, request_id: false }),
    ("grpc unary, sqlite", SQLITE, Kind::Grpc { stream: false, pieces: 8, request_id: false }),
    ("grpc unary, sqlite, request_id", SQLITE, Kind::Grpc { stream: false, pieces: 8, request_id: true }),
    ("grpc stream of 8", "memory", Kind::Grpc { stream: true, pieces: 8, request_id: false }),
    ("grpc stream of 64", "memory", Kind::Grpc { stream: true, pieces: 64, request_id: false }),
];

/// One client with a connection to either interface.
pub(crate) struct Caller {
    http: TcpStream,
    grpc: RecoveryServiceClient<Channel>,
}

/// Calls of all callers, so that each has a request id of its own.
static MADE: AtomicU64 = AtomicU64::new(0);

impl Caller {
    /// Connects to an HTTP front and a gRPC API.
    pub(crate) async fn connect(front: SocketAddr, grpc: SocketAddr) -> Self {
        let http = TcpStream::connect(front).await.unwrap();
        http.set_nodelay(true).unwrap();
        let grpc = Channel::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        Self { http, grpc: RecoveryServiceClient::new(grpc) }
    }

    /// Makes one call, which must succeed.
    pub(crate) async fn call(&mut self, kind: Kind) {
        timeout(PATIENCE, async {
            match kind {
                Kind::Front { .. } => self.over_http(kind).await,
                Kind::Grpc { stream, pieces, request_id } => self.over_grpc(stream, pieces, request_id).await,
            }
        })
        .await
        .unwrap();
    }

    async fn over_http(&mut self, kind: Kind) {
        let Kind::Front { stream, pieces, prompt_bytes, turns, tools } = kind else { return };
        let body = chat(stream, pieces, prompt_bytes, turns, tools).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: relight\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        self.http.write_all(head.as_bytes()).await.unwrap();
        self.http.write_all(body.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            assert!(self.http.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(&format!("word {}", pieces - 1)), "{answer}");
    }

    async fn over_grpc(&mut self, stream: bool, pieces: usize, request_id: bool) {
        let part = Part {
            content: Some(Content::Text(TextPart { text: "Why is the sky blue?".to_owned() })),
            ..Part::default()
        };
        let message = Message { role: Role::User.into(), parts: vec![part], ..Message::default() };
        let pieces = u32::try_from(pieces).unwrap();
        let call = ModelCall { messages: vec![message], max_output_tokens: Some(pieces), ..ModelCall::default() };
        let invocation = Invocation {
            operation: "executor".to_owned(),
            request_id: if request_id { format!("request-{}", MADE.fetch_add(1, Relaxed)) } else { String::new() },
            overrides: stream.then(|| Overrides { rewind_mode: RewindMode::Rewind.into(), ..Overrides::default() }),
            call: Some(Call::Model(call)),
            ..Invocation::default()
        };
        if !stream {
            let request = InvokeWithRecoveryRequest { invocation: Some(invocation) };
            let response = self.grpc.invoke_with_recovery(request).await.unwrap().into_inner();
            assert!(format!("{response:?}").contains("word 7"), "{response:?}");
            return;
        }
        let request = StreamWithRecoveryRequest { start: Some(Start::Invocation(invocation)) };
        let mut steps = self.grpc.stream_with_recovery(request).await.unwrap().into_inner();
        let mut last = None;
        while let Some(step) = steps.message().await.unwrap() {
            last = step.event;
        }
        assert!(format!("{last:?}").contains("Terminal"), "{last:?}");
    }
}

fn chat(stream: bool, pieces: usize, prompt_bytes: usize, turns: usize, tools: usize) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "You are helpful."})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": format!("Question {turn}: what comes after it, and why?")}));
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn}: the next one, as numbers go.")}));
    }
    messages.push(json!({"role": "user", "content": "prompt ".repeat(prompt_bytes.div_ceil(7))}));
    let mut body = json!({"model": "default", "messages": messages, "stream": stream, "max_tokens": pieces});
    if tools > 0 {
        body["tools"] = (0..tools).map(tool).collect();
    }
    body
}

fn tool(number: usize) -> Value {
    let field =
        |what: &str| json!({"type": "string", "description": format!("The {what} to look for, in plain words")});
    let properties =
        json!({"query": field("query"), "place": field("place"), "limit": {"type": "integer", "minimum": 1}});
    let parameters =
        json!({"type": "object", "properties": properties, "required": ["query"], "additionalProperties": false});
    let function =
        json!({"name": format!("tool_{number}"), "description": "Looks something up", "parameters": parameters});
    json!({"type": "function", "function": function})
}

/// Whether an HTTP answer has come to its end.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let body = &answer[head + 4..];
    let head = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    match head.split("content-length: ").nth(1) {
        Some(length) => body.len() >= length.lines().next().unwrap().trim().parse::<usize>().unwrap(),
        None => body.ends_with(b"0\r\n\r\n"),
    }
}
