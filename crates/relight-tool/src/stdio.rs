//! MCP over the standard input and output of a child: one JSON-RPC message a line.
//!
//! A child survives whatever else it writes there (a `print`, a banner, bytes that are not text):
//! such a line is logged and passed over, in bounded memory. A response that cannot be read fails
//! its own request at once, whereas the SDK's transport would leave that to its deadline; one that
//! names no open request ends none. Only a flood without end ends the child.

use std::{process::ExitStatus, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rmcp::{
    RoleClient,
    model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{ChildStdin, ChildStdout},
    time::Instant,
};
use tokio_stream::StreamExt as _;
use tokio_util::codec::FramedRead;

use super::{
    body,
    child::{ChildPipes, ChildProcess},
    child_line::{cut_response_id, may_be_response, message_in, response_id},
    era::{self, Era},
    errors::{self, WireError},
    facts::{LastWords, WireHealth},
    lines::{PipeLine, PipeLines},
    open_requests::{OpenRequests, number},
    spec::{ChildSpec, ToolServerSpec},
    unsolicited::Unsolicited,
};
use crate::{
    domain::failure::{ProviderError, TransportFault},
    policy::redact::redact,
};

/// Longest time for writing one message: a child that does not read its input for so long is ended.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a child may take to say how it speaks before it is spoken to in the older way.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which what an exited child left in its output is still read.
const REST_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for which the one open request is still waited for after the child could not read one.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest piece of a line that is quoted, in bytes.
const MAX_QUOTE_BYTES: usize = 120;

/// The transport of one child.
pub(super) struct ChildTransport {
    process: ChildProcess,
    lines: FramedRead<ChildStdout, PipeLines>,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    open: Arc<Mutex<OpenRequests>>,
    health: WireHealth,
    last_words: LastWords,
    unsolicited: Unsolicited,
    /// What was known when it was started.
    era: Era,
    /// Question of how the server speaks, and time until which its response is waited for.
    probe: Option<(RequestId, Instant)>,
    /// Request that the child may not have been able to read, time until which its response is
    /// waited for, and what the child said.
    unread: Option<(i64, Instant, String)>,
    /// The child exited: how, and until when the rest of its output is read.
    exited: Option<(ExitStatus, Instant)>,
    max_line_bytes: usize,
    stop_grace: Duration,
}

// === impl ChildTransport ===

impl ChildTransport {
    /// Starts the child; the SDK initializes it.
    pub(super) fn start(
        server: &ToolServerSpec,
        spec: &ChildSpec,
        health: WireHealth,
        unsolicited: Unsolicited,
        known: Era,
    ) -> Result<Self, ProviderError> {
        let last_words = LastWords::default();
        let (process, ChildPipes { stdin, stdout }) =
            ChildProcess::start(server, spec, &last_words)?;
        let max_line_bytes = server.limits.max_reply_bytes;
        Ok(Self {
            process,
            lines: FramedRead::new(stdout, PipeLines::new(max_line_bytes, MAX_QUOTE_BYTES)),
            input: Arc::new(tokio::sync::Mutex::new(Some(stdin))),
            open: Arc::default(),
            health,
            last_words,
            unsolicited,
            era: known,
            probe: None,
            unread: None,
            exited: None,
            max_line_bytes,
            stop_grace: spec.stop_grace,
        })
    }

    /// Returns the next message. Cancel safe.
    async fn next_message(&mut self) -> Result<ServerJsonRpcMessage, ProviderError> {
        loop {
            let rest_until = self.exited.map(|(_, until)| until);
            let probe_until = self.probe.as_ref().map(|(_, until)| *until);
            let unread_until = self.unread.as_ref().map(|(_, until, _)| *until);
            let line = tokio::select! {
                biased;
                // First, because a process that it started may write to its pipe for ever.
                () = tokio::time::sleep_until(rest_until.unwrap_or_else(Instant::now)), if rest_until.is_some() => None,
                line = self.lines.next() => line,
                status = self.process.wait(), if rest_until.is_none() => {
                    let status = status.unwrap_or_default();
                    // Nothing that it started continues without it.
                    self.process.kill();
                    self.exited = Some((status, Instant::now() + REST_TIMEOUT));
                    continue;
                }
                () = tokio::time::sleep_until(probe_until.unwrap_or_else(Instant::now)), if probe_until.is_some() => {
                    if let Some(message) = self.unanswered_probe() {
                        return Ok(message);
                    }
                    continue;
                }
                () = tokio::time::sleep_until(unread_until.unwrap_or_else(Instant::now)), if unread_until.is_some() => {
                    if let Some(message) = self.unread() {
                        return Ok(message);
                    }
                    continue;
                }
            };
            let message = match line {
                Some(Ok(PipeLine::Whole(line))) => self.read(&line)?,
                Some(Ok(PipeLine::PassedOver(bytes))) => {
                    self.pass_over(bytes)?;
                    None
                }
                Some(Ok(PipeLine::TooLong { head, tail })) => self.too_long(&head, &tail),
                Some(Err(_)) => {
                    let words = "the output of the tool server cannot be read";
                    return Err(errors::fault(TransportFault::Reset, words));
                }
                None => return Err(self.ended().await),
            };
            if let Some(message) = message {
                return Ok(message);
            }
        }
    }

    /// One line as a message; `None` for one that is passed over.
    fn read(&mut self, line: &str) -> Result<Option<ServerJsonRpcMessage>, ProviderError> {
        if line.trim().is_empty() {
            self.pass_over(line.len() + 1)?;
            return Ok(None);
        }
        let open = Arc::clone(&self.open);
        let facts_of = |id: &RequestId| {
            let open = open.lock();
            open.facts(id)
        };
        let Some(message) = message_in(line, facts_of) else {
            let quote = redact(line, MAX_QUOTE_BYTES);
            self.pass_over(line.len())?;
            if let Some(id) = response_id(line) {
                let words =
                    format!("the tool server wrote a response that breaks the protocol: {quote:?}");
                return Ok(self.fail(id, errors::fault(TransportFault::Protocol, words)));
            }
            tracing::debug!("passed over a line of a tool server that is no message: {quote:?}");
            return Ok(None);
        };
        let id = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => match &error.id {
                Some(id) => Some(id.clone()),
                None => return Ok(self.of_none(&error.error)),
            },
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        match id {
            Some(id) if self.open().close(&id) => {
                self.unsolicited.note_response();
                Ok(Some(self.probed(&id, message)))
            }
            Some(_) if era::is_discovery(&message) => {
                self.health.note_era(Era::Modern);
                Ok(None)
            }
            Some(id) => {
                tracing::debug!(
                    "the tool server responded to request {id}, which it does not have"
                );
                self.pass_over(line.len())?;
                Ok(None)
            }
            None => {
                self.pass_over(line.len())?;
                Ok(self.unsolicited.take(message))
            }
        }
    }

    /// Returns what a server that does not respond says of how it speaks: many do not respond to
    /// what they do not know.
    fn unanswered_probe(&mut self) -> Option<ServerJsonRpcMessage> {
        let (id, _) = self.probe.take()?;
        let is_open = self.open().close(&id);
        is_open.then(|| era::unknown_method(id, None))
    }

    /// Returns a response; one to the probe that is not a valid one is that of a server that does
    /// not know it.
    fn probed(&mut self, id: &RequestId, message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
        let is_probe = self
            .probe
            .as_ref()
            .is_some_and(|(probe, _)| number(probe) == number(id));
        if !is_probe {
            return message;
        }
        self.probe = None;
        let is_result = matches!(message, ServerJsonRpcMessage::Response(_));
        if is_result && !era::is_discovery(&message) {
            return era::unknown_method(id.clone(), None);
        }
        message
    }

    /// Returns what comes of an error that names no request. The server could not read one, which
    /// may be the one that waits, or a notification: if no response comes, it was the former.
    fn of_none(&mut self, error: &ErrorData) -> Option<ServerJsonRpcMessage> {
        tracing::debug!("the tool server named no request in an error: {error}");
        let id = self.open().only()?;
        let probe = self.probe.as_ref().and_then(|(probe, _)| number(probe));
        if probe == Some(id) {
            return self.unanswered_probe();
        }
        if [ErrorCode::PARSE_ERROR, ErrorCode::INVALID_REQUEST].contains(&error.code) {
            let until = Instant::now() + UNREAD_TIMEOUT;
            let quote = redact(&error.message, MAX_QUOTE_BYTES);
            self.unread.get_or_insert((id, until, quote));
        }
        None
    }

    /// Returns the end of a request that the child could not read.
    fn unread(&mut self) -> Option<ServerJsonRpcMessage> {
        let (id, _, quote) = self.unread.take()?;
        let words = format!("the tool server could not read a request: {quote:?}");
        self.fail(id, errors::fault(TransportFault::Protocol, words))
    }

    /// Returns what comes of a line that was too long: its request fails, if it is a response.
    fn too_long(&mut self, head: &str, tail: &str) -> Option<ServerJsonRpcMessage> {
        let error = body::too_large(self.max_line_bytes);
        tracing::debug!("{error}: {:?}", redact(head, MAX_QUOTE_BYTES));
        if !may_be_response(head, tail) {
            return None;
        }
        let id = cut_response_id(head, tail).or_else(|| self.open().only())?;
        self.fail(id, error)
    }

    /// Ends an open request with these facts.
    fn fail(&mut self, id: i64, error: ProviderError) -> Option<ServerJsonRpcMessage> {
        let facts = self.open().take(id)?;
        let words = error.to_string();
        if let Some(facts) = facts {
            facts.note_error(error);
        }
        Some(ServerJsonRpcMessage::error(
            ErrorData::internal_error(words, None),
            Some(RequestId::Number(id)),
        ))
    }

    /// Counts bytes that are no response.
    fn pass_over(&mut self, bytes: usize) -> Result<(), ProviderError> {
        if !self.unsolicited.is_flood(bytes) {
            return Ok(());
        }
        let words = "the tool server floods its output with what is no response";
        Err(errors::fault(TransportFault::TooLarge, words))
    }

    fn open(&self) -> parking_lot::MutexGuard<'_, OpenRequests> {
        self.open.lock()
    }

    /// Returns the error for a child whose output ended.
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
        let facts = self.open().note(&message);
        let is_asked = self.era == Era::Unknown;
        if let Some(id) = era::probe_id(&message).filter(|_| is_asked) {
            self.probe = Some((id, Instant::now() + PROBE_TIMEOUT));
        }
        let input = Arc::clone(&self.input);
        let health = self.health.clone();
        let line = serde_json::to_vec(&message).map(|mut line| {
            line.push(b'\n');
            line
        });
        async move {
            let line = line.map_err(|error| {
                WireError(errors::fault(TransportFault::Protocol, error.to_string()))
            })?;
            let mut at = 0;
            let write = async {
                let mut input = input.lock().await;
                let closed = || {
                    errors::fault(
                        TransportFault::ClosedEarly,
                        "the tool server closed its input",
                    )
                };
                let pipe = input.as_mut().ok_or_else(closed)?;
                if let Some(facts) = &facts {
                    facts.note_sent();
                }
                while at < line.len() {
                    at += pipe.write(&line[at..]).await.map_err(|_| closed())?;
                }
                Ok(())
            };
            let written = tokio::time::timeout(WRITE_TIMEOUT, write).await;
            let is_deaf = written.is_err();
            let written = written.unwrap_or_else(|_| {
                Err(errors::fault(
                    TransportFault::FirstTokenTimeout,
                    "the tool server does not read its input",
                ))
            });
            written.map_err(|error| {
                // Cut short it is no message; the end of its line alone may be missing.
                if let Some(facts) = facts.filter(|_| at + 1 < line.len()) {
                    facts.note_unsent();
                }
                if is_deaf {
                    health.end(error.clone());
                } else {
                    // What it read before may still be responded to.
                    health.retire();
                }
                WireError(error)
            })
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
