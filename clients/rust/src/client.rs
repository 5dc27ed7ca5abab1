//! The client: invoke, call tools, stream, resume and watch.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use relight_proto::v1::{
    self, cancel_invocation_request, recovery_service_client::RecoveryServiceClient,
    stream_with_recovery_request::Start,
};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tonic::transport::ClientTlsConfig;

use crate::{
    Answer, AnswerStream, Call, Change, Connection, Error, EventStream, Outcome, Reconnect,
    ResumePoint, StatusError, Tool, ToolOutcome, ToolResult, Watch, reader::Reader, retry::Retry,
};

const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls Relight. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    stub: RecoveryServiceClient<Connection>,
    reconnect: Reconnect,
    timeout: Option<Duration>,
    /// Cancellations of invocations whose callers left.
    cancelling: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// Options of a [`Client`].
pub struct Builder {
    target: String,
    tls: Option<ClientTlsConfig>,
    api_key: Option<String>,
    reconnect: Reconnect,
    timeout: Option<Duration>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Encrypts the connections.
    #[must_use]
    pub fn tls(mut self, tls: ClientTlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sends this key with every call.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Sets the attempts after lost connections.
    #[must_use]
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Sets the time for each call that names none. Default: no limit but the server's.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Creates the client, which connects with its first call.
    ///
    /// # Errors
    ///
    /// The target, the API key or the settings of TLS are not valid.
    pub fn build(self) -> Result<Client, Error> {
        let connection = Connection::new(&self.target, self.tls, self.api_key.as_deref())?;
        Ok(Client {
            stub: RecoveryServiceClient::new(connection).max_decoding_message_size(usize::MAX),
            reconnect: self.reconnect,
            timeout: self.timeout,
            cancelling: Arc::default(),
        })
    }
}

impl Client {
    /// Creates a client of a gRPC target: `host:port`, `dns:///relight-headless:50051` for all
    /// replicas behind a name, or `ipv4:10.0.0.1:50051,10.0.0.2:50051` for a list of them. It
    /// spreads calls over all addresses.
    ///
    /// # Errors
    ///
    /// The target is not valid.
    pub fn new(target: impl Into<String>) -> Result<Self, Error> {
        Self::builder(target).build()
    }

    /// Returns the options of a client, to be changed.
    pub fn builder(target: impl Into<String>) -> Builder {
        Builder {
            target: target.into(),
            tls: None,
            api_key: None,
            reconnect: Reconnect::default(),
            timeout: None,
        }
    }

    /// Returns the generated client, for every other RPC.
    pub fn stub(&self) -> RecoveryServiceClient<Connection> {
        self.stub.clone()
    }

    /// Waits for the cancellations of invocations whose callers left. Call it before the runtime
    /// ends; what was not cancelled by then ends by its own deadline.
    pub async fn close(&self) {
        let cancelling = std::mem::take(&mut *self.cancelling.lock());
        for task in cancelling {
            // A task that was aborted with its runtime has nothing to report.
            let _ = task.await;
        }
    }

    /// Invokes a model and returns its answer.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the invocation failed for good, else an error that concerns Relight.
    pub async fn invoke(&self, call: impl Into<Call>) -> Result<Answer, Error> {
        Ok(self.try_invoke(call).await?.answer()?)
    }

    /// Invokes a model, and returns also a failure as a value.
    ///
    /// # Errors
    ///
    /// An error that concerns Relight.
    pub async fn try_invoke(&self, call: impl Into<Call>) -> Result<Outcome, Error> {
        let call: Call = call.into();
        let retry = self.retry(call.options.timeout);
        let mut invocation = call.invocation();
        // However long the answer is, its turn in the history is whole.
        invocation.answer_view = v1::AnswerView::Repeated.into();
        self.unary(invocation, retry).await.map(Outcome::from)
    }

    /// Calls a tool of a tool server and returns its result.
    ///
    /// A call that a model wants brings its arguments and its id:
    /// `client.call_tool(call).await?.apply_to(&mut history)`.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if it failed for good, else an error that concerns Relight.
    pub async fn call_tool(&self, tool: impl Into<Tool>) -> Result<ToolResult, Error> {
        Ok(self.try_call_tool(tool).await?.result()?)
    }

    /// Calls a tool of a tool server, and returns also a failure as a value.
    ///
    /// # Errors
    ///
    /// An error that concerns Relight.
    pub async fn try_call_tool(&self, tool: impl Into<Tool>) -> Result<ToolOutcome, Error> {
        let tool: Tool = tool.into();
        let retry = self.retry(tool.options.timeout);
        let response = self.unary(tool.invocation(), retry).await;
        response.map(ToolOutcome::from)
    }

    /// Streams an answer as text that is final. It begins with the first read.
    pub fn stream(&self, call: impl Into<Call>) -> AnswerStream<String> {
        AnswerStream::final_text(self.reader(call.into(), |overrides| {
            overrides.rewind_mode = v1::RewindMode::Atomic.into();
        }))
    }

    /// Streams an answer as it comes, and what is taken back of it. It begins with the first read.
    pub fn stream_live(&self, call: impl Into<Call>) -> AnswerStream<Change> {
        AnswerStream::changes(self.reader(call.into(), |overrides| {
            // A stricter one that the caller chose stays.
            if overrides.rewind_mode() == v1::RewindMode::Unspecified {
                overrides.rewind_mode = v1::RewindMode::Rewind.into();
            }
        }))
    }

    /// Streams the whole answer of an earlier stream that was detached, here or in another
    /// process.
    pub fn resume(&self, point: ResumePoint) -> AnswerStream<String> {
        AnswerStream::final_text(self.resumed(point))
    }

    /// Streams the whole answer of an earlier stream that was detached, as it comes.
    pub fn resume_live(&self, point: ResumePoint) -> AnswerStream<Change> {
        AnswerStream::changes(self.resumed(point))
    }

    /// Streams recovery events: from now on, after a cursor, or all that are kept.
    pub fn watch(&self, watch: Watch) -> EventStream {
        EventStream::new(self.stub(), self.reconnect, watch)
    }

    fn reader(&self, call: Call, choose_mode: impl FnOnce(&mut v1::Overrides)) -> Reader {
        let retry = self.retry(call.options.timeout);
        let is_resumable = call.is_resumable;
        let returns_failure = call.returns_failure;
        let mut invocation = call.invocation();
        invocation.answer_view = v1::AnswerView::Repeated.into();
        let overrides = invocation.overrides.get_or_insert_default();
        choose_mode(overrides);
        if is_resumable {
            overrides.resumable.get_or_insert_default();
        }
        Reader::new(
            self.clone(),
            retry,
            Start::Invocation(invocation),
            returns_failure,
        )
    }

    fn resumed(&self, point: ResumePoint) -> Reader {
        let invocation = if point.request_id.is_empty() {
            v1::resume::Invocation::Token(point.token)
        } else {
            v1::resume::Invocation::RequestId(point.request_id)
        };
        let resume = v1::Resume {
            invocation: Some(invocation),
            cursor: None,
            answer_view: v1::AnswerView::Repeated.into(),
        };
        Reader::new(self.clone(), self.retry(None), Start::Resume(resume), false)
    }

    fn retry(&self, timeout: Option<Duration>) -> Retry {
        Retry::new(self.reconnect, timeout.or(self.timeout))
    }

    async fn unary(
        &self,
        invocation: v1::Invocation,
        mut retry: Retry,
    ) -> Result<v1::InvokeWithRecoveryResponse, Error> {
        let message = v1::InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        loop {
            let mut stub = self.stub();
            // The same request id: it joins what still runs, or gets the outcome once more.
            let attempt = stub.invoke_with_recovery(retry.request(message.clone()));
            let lost = match retry.within(attempt).await {
                Some(Ok(response)) => return Ok(response.into_inner()),
                Some(Err(status)) => StatusError::from(status),
                None => return Err(Error::Deadline(None)),
            };
            sleep(retry.wait_after(lost)?).await;
        }
    }

    /// Cancels an invocation for which nobody waits any more. What cannot be reached ends by its
    /// own deadline.
    pub(crate) fn cancel(&self, invocation_id: String, request_id: String) {
        let invocation = if !invocation_id.is_empty() {
            cancel_invocation_request::Invocation::InvocationId(invocation_id)
        } else if !request_id.is_empty() {
            cancel_invocation_request::Invocation::RequestId(request_id)
        } else {
            return;
        };
        let request = v1::CancelInvocationRequest {
            reason: "the caller left its stream".to_owned(),
            invocation: Some(invocation),
        };
        let mut stub = self.stub();
        // Without a runtime nothing can be sent.
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(async move {
                let _ = timeout(CANCEL_TIMEOUT, stub.cancel_invocation(request)).await;
            });
            let mut cancelling = self.cancelling.lock();
            cancelling.retain(|task| !task.is_finished());
            cancelling.push(task);
        }
    }
}
