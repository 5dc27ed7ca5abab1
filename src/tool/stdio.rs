//! MCP over the standard input and output of a child: one JSON-RPC message a line, and nothing
//! else.
//!
//! Whatever a child does to its output (a line without end, no JSON, a response to nothing, a
//! flood) ends it with one fault, in bounded memory. The SDK's own transport would skip such lines
//! and leave the call to its deadline.

use std::{
    collections::{HashSet, VecDeque},
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{
        ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId, ServerJsonRpcMessage,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{ChildStdin, ChildStdout},
    time::Instant,
};
use tokio_stream::StreamExt as _;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::{
    child::{ChildPipes, ChildProcess},
    errors::{self, WireError},
    facts::{LastWords, RequestFacts, WireHealth},
    spec::{ChildSpec, ToolServerSpec},
    unsolicited::UnsolicitedMeter,
};
use crate::domain::failure::{ProviderError, TransportFault};

/// Longest time for writing one message: a child that does not read its input for so long is ended.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what an exited child left in its output is still read.
const REST_TIMEOUT: Duration = Duration::from_millis(200);
/// Most lines before the first message that may be something else: a banner of a starter such as
/// `npx`.
const MAX_BANNER_LINES: u32 = 100;
/// Most cancelled requests whose late response is still known as one.
const MAX_CANCELLED: usize = 1024;
/// Longest piece of a line that is quoted, in bytes.
const MAX_QUOTE_BYTES: usize = 120;

/// The transport of one child.
pub(super) struct ChildTransport {
    process: ChildProcess,
    lines: FramedRead<ChildStdout, LinesCodec>,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    ids: Arc<Mutex<OpenRequests>>,
    health: WireHealth,
    last_words: LastWords,
    meter: UnsolicitedMeter,
    /// Lines before the first message; none once that came.
    banner: Option<u32>,
    /// The child exited: how, and until when the rest of its output is read.
    exited: Option<(ExitStatus, Instant)>,
    max_line_bytes: usize,
    stop_grace: Duration,
}

/// The requests that a child may respond to.
#[derive(Debug, Default)]
struct OpenRequests {
    open: HashSet<i64>,
    cancelled: VecDeque<i64>,
}

// === impl ChildTransport ===

impl ChildTransport {
    /// Starts the child; the SDK initializes it.
    pub(super) fn start(
        server: &ToolServerSpec,
        spec: &ChildSpec,
        health: WireHealth,
    ) -> Result<Self, ProviderError> {
        let last_words = LastWords::default();
        let (process, ChildPipes { stdin, stdout }) =
            ChildProcess::start(server, spec, &last_words)?;
        let max_line_bytes = server.limits.max_reply_bytes;
        Ok(Self {
            process,
            lines: FramedRead::new(stdout, LinesCodec::new_with_max_length(max_line_bytes)),
            input: Arc::new(tokio::sync::Mutex::new(Some(stdin))),
            ids: Arc::default(),
            health,
            last_words,
            meter: UnsolicitedMeter::new(),
            banner: Some(0),
            exited: None,
            max_line_bytes,
            stop_grace: spec.stop_grace,
        })
    }

    /// The next message. Cancel safe.
    async fn next_message(&mut self) -> Result<ServerJsonRpcMessage, ProviderError> {
        loop {
            let rest_until = self.exited.map(|(_, until)| until);
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                status = self.process.wait(), if rest_until.is_none() => {
                    let status = status.unwrap_or_default();
                    // Nothing that it started goes on without it.
                    self.process.kill();
                    self.exited = Some((status, Instant::now() + REST_TIMEOUT));
                    continue;
                }
                () = tokio::time::sleep_until(rest_until.unwrap_or_else(Instant::now)), if rest_until.is_some() => None,
            };
            let line = match line {
                Some(Ok(line)) => line,
                Some(Err(error)) => return Err(self.unreadable(&error)),
                None => return Err(self.ended().await),
            };
            if line.trim().is_empty() {
                continue;
            }
            if let Some(message) = self.read(&line)? {
                return Ok(message);
            }
        }
    }

    /// One line as a message; `None` for one that is passed over.
    fn read(&mut self, line: &str) -> Result<Option<ServerJsonRpcMessage>, ProviderError> {
        let Ok(message) = serde_json::from_str::<ServerJsonRpcMessage>(line) else {
            let quote = &line[..line.floor_char_boundary(MAX_QUOTE_BYTES)];
            if let Some(count) = self
                .banner
                .as_mut()
                .filter(|count| **count < MAX_BANNER_LINES)
            {
                *count += 1;
                tracing::debug!(
                    "passed over a line of a tool server before its first message: {quote:?}"
                );
                return Ok(None);
            }
            let words = format!(
                "the tool server wrote a line that is no message of the protocol: {quote:?}"
            );
            return Err(errors::fault(TransportFault::Protocol, words));
        };
        self.banner = None;
        let id = match &message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        match id {
            Some(id)
                if self
                    .ids
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .close(id) =>
            {
                Ok(Some(message))
            }
            Some(id) => {
                let words =
                    format!("the tool server responded to request {id}, which it does not have");
                Err(errors::fault(TransportFault::Protocol, words))
            }
            None if self.meter.is_flood() => Err(errors::fault(
                TransportFault::TooLarge,
                "the tool server floods its output with messages",
            )),
            None => Ok(Some(message)),
        }
    }

    fn unreadable(&self, error: &LinesCodecError) -> ProviderError {
        match error {
            LinesCodecError::MaxLineLengthExceeded => {
                let words = format!(
                    "the tool server wrote a line longer than {} bytes",
                    self.max_line_bytes
                );
                errors::fault(TransportFault::TooLarge, words)
            }
            LinesCodecError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                errors::fault(
                    TransportFault::Protocol,
                    "the tool server wrote a line that is no text",
                )
            }
            LinesCodecError::Io(_) => errors::fault(
                TransportFault::Reset,
                "the output of the tool server cannot be read",
            ),
        }
    }

    /// What is said of a child whose output ended.
    async fn ended(&mut self) -> ProviderError {
        let status = match self.exited {
            Some((status, _)) => Some(status),
            None => tokio::time::timeout(REST_TIMEOUT, self.process.wait())
                .await
                .ok()
                .and_then(Result::ok),
        };
        let what = match status {
            Some(status) => format!("the tool server's process ended ({status})"),
            None => "the tool server closed its output".to_owned(),
        };
        errors::fault(
            TransportFault::ProcessExited,
            format!("{what}{}", self.last_words.after_colon()),
        )
    }
}

impl Transport<RoleClient> for ChildTransport {
    type Error = WireError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let facts = self
            .ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(&message);
        let (input, health) = (Arc::clone(&self.input), self.health.clone());
        let line = serde_json::to_vec(&message).map(|mut line| {
            line.push(b'\n');
            line
        });
        async move {
            let write = async {
                let line = line
                    .map_err(|error| errors::fault(TransportFault::Protocol, error.to_string()))?;
                let mut input = input.lock().await;
                let closed = || {
                    errors::fault(
                        TransportFault::ClosedEarly,
                        "the tool server closed its input",
                    )
                };
                let pipe = input.as_mut().ok_or_else(closed)?;
                if let Some(facts) = facts {
                    facts.note_sent();
                }
                pipe.write_all(&line).await.map_err(|_| closed())?;
                pipe.flush().await.map_err(|_| closed())
            };
            let written = tokio::time::timeout(WRITE_TIMEOUT, write)
                .await
                .unwrap_or_else(|_| {
                    let error = errors::fault(
                        TransportFault::FirstTokenTimeout,
                        "the tool server does not read its input",
                    );
                    health.end(error.clone());
                    Err(error)
                });
            written.map_err(WireError)
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let health = self.health.clone();
        let received = tokio::select! {
            received = self.next_message() => received,
            // A child that does not read its input was given up.
            () = health.ended() => {
                self.process.kill();
                return None;
            }
        };
        match received {
            Ok(message) => Some(message),
            Err(error) => {
                self.health.end(error);
                self.process.kill();
                None
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        if self.health.is_ended() {
            self.process.kill();
        } else if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        self.health.end(errors::fault(
            TransportFault::ProcessExited,
            "the tool server was ended",
        ));
        self.process.stop(self.stop_grace).await;
        Ok(())
    }
}

// === impl OpenRequests ===

impl OpenRequests {
    /// Notes what a message begins or cancels; returns the facts of a request that has some.
    fn note(&mut self, message: &ClientJsonRpcMessage) -> Option<RequestFacts> {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                self.open.extend(number(&request.id));
                match &request.request {
                    ClientRequest::CallToolRequest(call) => {
                        call.extensions.get::<RequestFacts>().cloned()
                    }
                    ClientRequest::ListToolsRequest(list) => {
                        list.extensions.get::<RequestFacts>().cloned()
                    }
                    _ => None,
                }
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = cancelled.params.request_id.as_ref().and_then(number)
                    && self.open.remove(&id)
                {
                    if self.cancelled.len() == MAX_CANCELLED {
                        self.cancelled.pop_front();
                    }
                    self.cancelled.push_back(id);
                }
                None
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => None,
        }
    }

    /// Ends the request of a response; whether there is one.
    fn close(&mut self, id: &RequestId) -> bool {
        let Some(id) = number(id) else { return false };
        let late = self.cancelled.iter().position(|cancelled| *cancelled == id);
        self.open.remove(&id) || late.and_then(|at| self.cancelled.remove(at)).is_some()
    }
}

/// The number of an id: the SDK numbers requests, and some servers respond with the number as a
/// text.
fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}
