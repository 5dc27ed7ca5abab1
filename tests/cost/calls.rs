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

const PATIENCE: Duration = Duration::from_mins(2);

/// A journal in a file of a folder of its own.
pub(crate) const SQLITE: &str = "sqlite:{}/journal.db";

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Front {
        stream: bool,
        pieces: usize,
        prompt_bytes: usize,
        turns: usize,
        tools: usize,
    },
    Grpc {
        stream: bool,
        pieces: usize,
        request_id: bool,
    },
}

/// A call through the HTTP front for an answer of so many pieces.
pub(crate) const fn front(stream: bool, pieces: usize) -> Kind {
    Kind::Front {
        stream,
        pieces,
        prompt_bytes: 20,
        turns: 0,
        tools: 0,
    }
}

/// The same over gRPC, without a request id.
pub(crate) const fn grpc(stream: bool, pieces: usize) -> Kind {
    Kind::Grpc {
        stream,
        pieces,
        request_id: false,
    }
}

const fn long_front(prompt_bytes: usize, turns: usize, tools: usize) -> Kind {
    Kind::Front {
        stream: false,
        pieces: 8,
        prompt_bytes,
        turns,
        tools,
    }
}

/// A short call through the HTTP front.
pub(crate) const FRONT_UNARY: Kind = front(false, 8);

/// The same over gRPC.
pub(crate) const GRPC_UNARY: Kind = grpc(false, 8);

/// Each kind with its name and its journal.
pub(crate) const KINDS: &[(&str, &str, Kind)] = &[
    ("front unary", "memory", FRONT_UNARY),
    ("front stream of 8", "memory", front(true, 8)),
    ("front stream of 64", "memory", front(true, 64)),
    ("front 1 MB prompt", "memory", long_front(1 << 20, 0, 0)),
    ("front 100 turns", "memory", long_front(20, 100, 0)),
    ("front 200 tools", "memory", long_front(20, 0, 200)),
    ("grpc unary, memory", "memory", GRPC_UNARY),
    ("grpc unary, sqlite", SQLITE, GRPC_UNARY),
    (
        "grpc unary, sqlite, request_id",
        SQLITE,
        Kind::Grpc {
            stream: false,
            pieces: 8,
            request_id: true,
        },
    ),
    ("grpc stream of 8", "memory", grpc(true, 8)),
    ("grpc stream of 64", "memory", grpc(true, 64)),
];

/// Where a server takes calls, and what its front calls the model.
#[derive(Debug, Clone)]
pub(crate) struct Interfaces {
    pub(crate) front: SocketAddr,
    pub(crate) path: String,
    pub(crate) model: String,
    pub(crate) grpc: SocketAddr,
}

impl Interfaces {
    /// Those of Relight.
    pub(crate) fn new(front: SocketAddr, grpc: SocketAddr) -> Self {
        Self {
            front,
            path: "/v1/chat/completions".to_owned(),
            model: "default".to_owned(),
            grpc,
        }
    }

    /// Connects to the HTTP front.
    pub(crate) async fn connect_front(&self) -> TcpStream {
        let socket = TcpStream::connect(self.front).await.unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// A client of the gRPC API, which connects when it is used.
    pub(crate) fn connect_grpc(&self) -> RecoveryServiceClient<Channel> {
        let channel = Channel::from_shared(format!("http://{}", self.grpc))
            .unwrap()
            .connect_lazy();
        RecoveryServiceClient::new(channel)
    }

    /// Head and body of a chat request.
    pub(crate) fn chat(
        &self,
        stream: bool,
        pieces: usize,
        prompt_bytes: usize,
        turns: usize,
        tools: usize,
    ) -> [String; 2] {
        let body = chat(&self.model, stream, pieces, prompt_bytes, turns, tools).to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: relight\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.path,
            body.len()
        );
        [head, body]
    }
}

/// One client with a connection to the interface that it calls.
pub(crate) struct Caller {
    interfaces: Interfaces,
    http: Option<TcpStream>,
    grpc: RecoveryServiceClient<Channel>,
}

/// Calls of all callers, so that each has a request id of its own.
static MADE: AtomicU64 = AtomicU64::new(0);

impl Caller {
    /// Makes one, which connects with its first call.
    pub(crate) fn new(interfaces: &Interfaces) -> Self {
        Self {
            interfaces: interfaces.clone(),
            http: None,
            grpc: interfaces.connect_grpc(),
        }
    }

    /// Makes one call, which must succeed.
    pub(crate) async fn call(&mut self, kind: Kind) {
        timeout(PATIENCE, async {
            match kind {
                Kind::Front {
                    stream,
                    pieces,
                    prompt_bytes,
                    turns,
                    tools,
                } => {
                    let request = self
                        .interfaces
                        .chat(stream, pieces, prompt_bytes, turns, tools);
                    self.over_http(&request, pieces).await;
                }
                Kind::Grpc {
                    stream,
                    pieces,
                    request_id,
                } => self.over_grpc(stream, pieces, request_id).await,
            }
        })
        .await
        .unwrap();
    }

    async fn over_http(&mut self, request: &[String; 2], pieces: usize) {
        if self.http.is_none() {
            self.http = Some(self.interfaces.connect_front().await);
        }
        let socket = self.http.as_mut().unwrap();
        for part in request {
            socket.write_all(part.as_bytes()).await.unwrap();
        }
        let mut answer = Vec::new();
        while !is_whole(&answer) {
            assert!(
                socket.read_buf(&mut answer).await.unwrap() > 0,
                "{}",
                String::from_utf8_lossy(&answer)
            );
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(&format!("word {}", pieces - 1)), "{answer}");
    }

    async fn over_grpc(&mut self, stream: bool, pieces: usize, request_id: bool) {
        let invocation = invocation(stream, pieces, request_id);
        if !stream {
            let request = InvokeWithRecoveryRequest {
                invocation: Some(invocation),
            };
            let response = self
                .grpc
                .invoke_with_recovery(request)
                .await
                .unwrap()
                .into_inner();
            assert!(format!("{response:?}").contains("word 7"), "{response:?}");
            return;
        }
        let request = StreamWithRecoveryRequest {
            start: Some(Start::Invocation(invocation)),
        };
        let mut steps = self
            .grpc
            .stream_with_recovery(request)
            .await
            .unwrap()
            .into_inner();
        let mut last = None;
        while let Some(step) = steps.message().await.unwrap() {
            last = step.event;
        }
        assert!(format!("{last:?}").contains("Terminal"), "{last:?}");
    }
}

/// An invocation of a model for so many pieces.
pub(crate) fn invocation(stream: bool, pieces: usize, request_id: bool) -> Invocation {
    let part = Part {
        content: Some(Content::Text(TextPart {
            text: "Why is the sky blue?".to_owned(),
        })),
        ..Part::default()
    };
    let message = Message {
        role: Role::User.into(),
        parts: vec![part],
        ..Message::default()
    };
    let pieces = u32::try_from(pieces).unwrap();
    let call = ModelCall {
        messages: vec![message],
        max_output_tokens: Some(pieces),
        ..ModelCall::default()
    };
    Invocation {
        operation: "executor".to_owned(),
        request_id: if request_id {
            format!("request-{}", MADE.fetch_add(1, Relaxed))
        } else {
            String::new()
        },
        overrides: stream.then(|| Overrides {
            rewind_mode: RewindMode::Rewind.into(),
            ..Overrides::default()
        }),
        call: Some(Call::Model(call)),
        ..Invocation::default()
    }
}

fn chat(
    model: &str,
    stream: bool,
    pieces: usize,
    prompt_bytes: usize,
    turns: usize,
    tools: usize,
) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "You are helpful."})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": format!("Question {turn}: what comes after it, and why?")}));
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn}: the next one, as numbers go.")}));
    }
    messages.push(json!({"role": "user", "content": "prompt ".repeat(prompt_bytes.div_ceil(7))}));
    let mut body =
        json!({"model": model, "messages": messages, "stream": stream, "max_tokens": pieces});
    if tools > 0 {
        body["tools"] = (0..tools).map(tool).collect();
    }
    body
}

fn tool(number: usize) -> Value {
    let field = |what: &str| json!({"type": "string", "description": format!("The {what} to look for, in plain words")});
    let properties = json!({"query": field("query"), "place": field("place"), "limit": {"type": "integer", "minimum": 1}});
    let parameters = json!({"type": "object", "properties": properties, "required": ["query"], "additionalProperties": false});
    let function = json!({"name": format!("tool_{number}"), "description": "Looks something up", "parameters": parameters});
    json!({"type": "function", "function": function})
}

/// Whether an HTTP answer has come to its end.
fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let body = &answer[head + 4..];
    let head = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    match head.split("\r\ncontent-length: ").nth(1) {
        Some(length) => {
            body.len()
                >= length
                    .lines()
                    .next()
                    .unwrap()
                    .trim()
                    .parse::<usize>()
                    .unwrap()
        }
        None => body.ends_with(b"0\r\n\r\n"),
    }
}
