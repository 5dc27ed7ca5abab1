//! Table of the errors with which Relight ends a call, one row each: a new one is a row and its
//! text.
//!
//! The name of a row is its reason in gRPC (`ErrorInfo`), unless it has another one. A word in
//! braces stands for what the place that refuses fills in. `docs/errors.md` shows the same table.

use tonic::Code::{
    self, Aborted, AlreadyExists, Cancelled, DeadlineExceeded, FailedPrecondition, Internal,
    InvalidArgument, NotFound, PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable,
    Unimplemented,
};

use crate::domain::failure::FailureClass;

/// Properties of an error that depend on nothing but its kind.
#[derive(Debug, Clone, Copy)]
pub struct ErrorRow {
    /// Name of the row.
    pub name: &'static str,
    /// Reason in gRPC.
    pub reason: &'static str,
    /// Code in gRPC.
    pub grpc: Code,
    /// Status over HTTP.
    pub http: u16,
    /// `type` in an error of `OpenAI`'s API.
    pub openai: &'static str,
    /// `type` in an error of Anthropic's API.
    pub anthropic: &'static str,
    /// `code` in an error object over HTTP.
    pub code: &'static str,
    /// `code` in JSON-RPC, as MCP has it.
    pub rpc: i64,
    /// Status over HTTP of a response of MCP with this error.
    pub rpc_http: u16,
    /// `param` in an error object: the field or header at fault, if it is always the same one.
    pub param: Option<&'static str>,
    /// Wait in milliseconds after which the same call may be repeated; `None` if it may not.
    pub retry_ms: Option<u64>,
    /// Text of the error.
    pub text: &'static str,
}

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident = $row:expr;)*) => {
        $($(#[$doc])* pub const $name: &ErrorRow = &$row.named(stringify!($name));)*

        /// All rows.
        #[cfg(test)]
        pub const TABLE: &[&ErrorRow] = &[$($name),*];
    };
}

table! {
    // The request.

    /// Fields of the request that are wrong, all of them at once.
    INVALID_REQUEST = row(InvalidArgument, 400, "invalid_request",
        "the request is not valid: {faults}");
    /// One field or header of a request over HTTP that is wrong.
    INVALID_PARAMETER = row(InvalidArgument, 400, "invalid_request", "{why}")
        .reason("INVALID_REQUEST");
    /// A field that asks for something that the HTTP front does not have.
    UNSUPPORTED_PARAMETER = row(InvalidArgument, 400, "unsupported_parameter", "{why}");
    /// Bytes that are not a message of the method.
    UNDECODABLE_REQUEST = row(InvalidArgument, 400, "invalid_request",
        "the request is not a message of this method");
    /// A tool of a name that several servers list.
    TOOL_AMBIGUOUS = row(InvalidArgument, 400, "tool_ambiguous",
        "`{name}` is the name of several tools; name one of {candidates}")
        .reason("INVALID_REQUEST");
    /// A body of another type.
    UNSUPPORTED_MEDIA_TYPE = row(InvalidArgument, 415, "unsupported_media_type",
        "the body must be JSON, with `content-type: application/json`");
    /// A body that is compressed.
    UNSUPPORTED_CONTENT_ENCODING = row(InvalidArgument, 415, "unsupported_content_encoding",
        "the body must be sent as it is: `content-encoding` may be `identity` alone")
        .param("content-encoding");
    /// A request beyond a limit that each request has.
    REQUEST_TOO_LARGE = row(ResourceExhausted, 413, "request_too_large",
        "the request is larger than {limit} allows ({max})");
    /// A request with more fields, or values, than any may have.
    TOO_MANY_ENTRIES = row(ResourceExhausted, 413, "request_too_large",
        "the request has more than {max} values")
        .reason("REQUEST_TOO_LARGE");
    /// A head whose fields are longer than they may be together.
    HEADERS_TOO_LARGE = row(ResourceExhausted, 431, "headers_too_large",
        "the header fields are longer than {max} bytes")
        .reason("REQUEST_TOO_LARGE");
    /// A body that did not come in time.
    BODY_LATE = row(DeadlineExceeded, 408, "request_timeout",
        "the body took longer than server.timeouts.body")
        .reason("DEADLINE_EXCEEDED");
    /// A body that broke off.
    BODY_BROKEN = row(Cancelled, 400, "invalid_request", "the body broke off")
        .reason("CANCELLED");

    // The caller.

    /// No credential, or one that is not known; it does not say which.
    UNAUTHENTICATED = row(Unauthenticated, 401, "invalid_api_key",
        "a valid credential is required, such as an API key as `Authorization: Bearer <key>` \
         (over HTTP also `x-api-key: <key>`)");
    /// A role that may look only.
    ROLE_NOT_ALLOWED = row(PermissionDenied, 403, "role_not_allowed",
        "a watcher may look and not call")
        .reason("PERMISSION_DENIED");
    /// A role that does not administer.
    ADMIN_ONLY = row(PermissionDenied, 403, "role_not_allowed",
        "the AdminService needs an admin key")
        .reason("PERMISSION_DENIED");
    /// A route that is not among those of the key.
    ROUTE_NOT_ALLOWED = row(PermissionDenied, 403, "route_not_allowed",
        "this key may not use the route `{name}`")
        .reason("PERMISSION_DENIED")
        .param("model");
    /// A thread of such a route.
    THREAD_NOT_ALLOWED = row(PermissionDenied, 403, "thread_not_allowed",
        "the thread began on a route that this key may not use")
        .reason("PERMISSION_DENIED");
    /// Access that was withdrawn while a stream lasted.
    ACCESS_WITHDRAWN = row(PermissionDenied, 403, "access_withdrawn",
        "this key may no longer do what its stream does")
        .reason("PERMISSION_DENIED");
    /// A web page of another origin.
    ORIGIN_NOT_ALLOWED = row(PermissionDenied, 403, "origin_not_allowed",
        "requests of this origin are not accepted; it would have to be in \
         server.cors.allow_origins")
        .reason("PERMISSION_DENIED");

    // Names of things that do not exist.

    /// A route.
    ROUTE_NOT_FOUND = row(NotFound, 404, "model_not_found", "there is no route `{name}`{hint}")
        .param("model");
    /// No name of a route, without a default one.
    ROUTE_NOT_NAMED = row(NotFound, 404, "model_not_found",
        "no route was named, and there is no default_route")
        .reason("ROUTE_NOT_FOUND")
        .param("model");
    /// A model over HTTP: neither a route nor a target of one.
    MODEL_NOT_FOUND = row(NotFound, 404, "model_not_found",
        "the model `{name}` does not exist: a model is a route of this server{hint}")
        .param("model");
    /// A target.
    TARGET_NOT_FOUND = row(NotFound, 404, "target_not_found",
        "there is no target `{name}`{hint}");
    /// A replica of the fleet.
    REPLICA_NOT_FOUND = row(NotFound, 404, "replica_not_found",
        "there is no live replica `{name}`{hint}");
    /// A release.
    RELEASE_NOT_FOUND = row(NotFound, 404, "release_not_found",
        "there is no release `{name}`{hint}");
    /// A subject of releases.
    SUBJECT_NOT_FOUND = row(NotFound, 404, "subject_not_found",
        "there is no subject `{name}`{hint}");
    /// A tool.
    TOOL_NOT_FOUND = row(NotFound, 404, "tool_not_found",
        "no tool server lists a tool `{name}`{hint}");
    /// An invocation, or one of another tenant.
    INVOCATION_NOT_FOUND = row(NotFound, 404, "invocation_not_found",
        "there is no invocation `{invocation}`, or it is no longer kept");
    /// A thread, or one of another tenant.
    THREAD_NOT_FOUND = row(NotFound, 404, "thread_not_found", "there is no thread `{threadId}`");
    /// A response of the Responses API.
    RESPONSE_NOT_FOUND = row(NotFound, 404, "response_not_found",
        "there is no response `{name}` here, or it is no longer kept");
    /// A response that is to be continued.
    PREVIOUS_RESPONSE_NOT_FOUND = row(NotFound, 400, "previous_response_not_found",
        "there is no response `{name}` here, or it is no longer kept")
        .param("previous_response_id");
    /// The input of a response, because the journal keeps no payloads.
    INPUT_NOT_KEPT = row(NotFound, 404, "input_not_kept",
        "the input of response `{name}` is not kept here");
    /// A path.
    PATH_NOT_FOUND = row(Unimplemented, 404, "not_found",
        "there is no such path; there are POST /v1/chat/completions, /v1/responses, /v1/messages, \
         /v1/messages/count_tokens and /v1/embeddings, POST /v1/responses/{id}/cancel, \
         GET /v1/responses/{id}, /v1/responses/{id}/input_items, /v1/models and \
         /v1/models/{model}");
    /// A method of a path.
    METHOD_NOT_ALLOWED = row(Unimplemented, 405, "method_not_allowed",
        "this path takes another method");

    // State that does not allow it.

    /// A request id (idempotency key) of another request.
    REQUEST_ID_REUSED = row(AlreadyExists, 409, "idempotency_key_reused",
        "the request id (idempotency key) was used for another request, by invocation \
         {invocationId}")
        .param("idempotency-key");
    /// An event of a stream that another request began.
    EVENT_OF_OTHER_REQUEST = row(FailedPrecondition, 409, "event_of_another_request",
        "the event belongs to invocation {invocationId}, which another request began: a stream is \
         resumed by the same request with the same headers, `x-relight-resumable` among them")
        .param("last-event-id");
    /// Events behind the one that a client has, which are gone.
    EVENTS_NOT_KEPT = row(NotFound, 410, "events_not_kept",
        "what follows that event is no longer kept; discard the answer and repeat the request \
         without it")
        .param("last-event-id");
    /// A request that is repeated after its end, although the journal keeps no answers.
    ANSWER_NOT_KEPT = row(FailedPrecondition, 409, "answer_not_kept",
        "invocation {invocationId} of the same request is finished, and its answer is not kept");
    /// A thread on which another invocation runs.
    THREAD_BUSY = row(FailedPrecondition, 409, "thread_busy",
        "invocation `{invocationId}` runs on thread `{threadId}`")
        .retry_ms(1_000);
    /// A thread of another version.
    THREAD_VERSION = row(FailedPrecondition, 409, "thread_version",
        "the thread is at version {version}");
    /// A call that needs payloads, which the journal does not keep.
    PAYLOADS_NOT_KEPT = row(FailedPrecondition, 400, "payloads_not_kept",
        "the journal keeps no payloads, which {what} needs");
    /// A response that is not deleted one by one.
    NOT_DELETABLE = row(FailedPrecondition, 405, "not_deletable",
        "response `{name}` was not deleted: what is kept here is deleted when its retention ends; \
         send `store: false` for what must not be kept");
    /// A release that stays as it is.
    RELEASE_NOT_CHANGED = row(FailedPrecondition, 409, "release_not_changed", "{why}");

    // Calls that are not taken now.

    /// Too much work at once.
    SHED = row(ResourceExhausted, 429, "shed", "too much work at once: {bound}").retry_ms(1_000);
    /// A tenant that is over one of its limits.
    TENANT_LIMITED = row(ResourceExhausted, 429, "rate_limit_exceeded",
        "rate limit reached: {bound}; it has room again in {wait}")
        .reason("RATE_LIMITED")
        .retry_ms(1_000);
    /// Requests that hold as many bytes as allowed.
    NO_ROOM = row(ResourceExhausted, 429, "shed", "too many requests at once: {limit} is reached")
        .reason("SHED")
        .retry_ms(1_000);
    /// A replica that ends what runs and takes nothing new; another one is ready.
    DRAINING = row(Unavailable, 503, "draining",
        "this replica is draining; retry, and another one will respond")
        .retry_ms(100);
    /// A journal that cannot be reached.
    STORE_UNAVAILABLE = row(Unavailable, 503, "journal_unavailable",
        "the {store} cannot be reached; retry")
        .retry_ms(1_000);
    /// Another replica of the fleet that cannot be asked.
    REPLICA_SILENT = row(Unavailable, 503, "replica_silent",
        "the replica `{name}` did not respond: {why}")
        .retry_ms(1_000);
    /// A tool that cannot be looked up, because servers list none.
    TOOLS_UNLISTED = row(Unavailable, 503, "tools_unlisted",
        "the tool `{name}` cannot be looked up; no tools are listed by {servers}")
        .retry_ms(1_000);
    /// A list of tools that is empty, because no server lists any.
    NO_TOOLS_LISTED = row(Unavailable, 503, "tools_unlisted", "no tools are listed by {servers}")
        .reason("TOOLS_UNLISTED")
        .retry_ms(1_000);

    // Calls that cannot go on.

    /// A stream that was lost although its invocation was not.
    RESUME = row(Unavailable, 503, "resume",
        "the stream was lost, the invocation was not; resume it")
        .retry_ms(200);
    /// A call of a tool that was lost before its end.
    CUT_OFF = row(Unavailable, 503, "cut_off",
        "the call was lost before the tool ended, which may have done what it was called for");
    /// A stream of which a part was sent that does not begin the new attempt's answer.
    STREAM_INTERRUPTED = row(Aborted, 502, "stream_interrupted",
        "the answer broke off, and the new attempt's text is not the one that was sent; discard \
         this answer and repeat the request");
    /// A deadline that passed before an outcome could be reported.
    DEADLINE_EXCEEDED = row(DeadlineExceeded, 504, "timeout",
        "the deadline passed before the outcome could be reported");
    /// A call of MCP that its client cancelled.
    CALL_CANCELLED = row(Cancelled, 499, "cancelled", "the client cancelled the call")
        .reason("CANCELLED");
    /// A fault of Relight itself.
    INTERNAL = row(Internal, 500, "internal", "a fault in Relight: {what}");

    // MCP.

    /// A body that is not JSON.
    RPC_UNREADABLE = row(InvalidArgument, 400, "invalid_request", "the body is not JSON")
        .rpc(-32700, 200);
    /// A message that is not a request.
    RPC_NOT_A_REQUEST = row(InvalidArgument, 400, "invalid_request",
        "one request is expected, with a method")
        .rpc(-32600, 200);
    /// A method that does not exist.
    RPC_NO_SUCH_METHOD = row(Unimplemented, 404, "not_found", "there is no method `{name}`")
        .rpc(-32601, 404);
    /// A request that lacks what its revision demands.
    RPC_MALFORMED = row(InvalidArgument, 400, "invalid_request",
        "the request is malformed: {why}")
        .rpc(-32602, 400);
    /// Headers that differ from the body.
    RPC_HEADER_MISMATCH = row(InvalidArgument, 400, "invalid_request", "Header mismatch: {why}")
        .rpc(-32020, 400);
    /// A revision that is not spoken.
    RPC_UNSUPPORTED_VERSION = row(InvalidArgument, 400, "invalid_request",
        "Unsupported protocol version")
        .rpc(-32022, 400);
}

/// Rows of failed invocations over HTTP, one for each class.
static FAILURES: [ErrorRow; FailureClass::ALL.len()] = {
    let mut rows = [*INTERNAL; FailureClass::ALL.len()];
    let mut index = 0;
    while index < rows.len() {
        rows[index] = failed(FailureClass::ALL[index]);
        index += 1;
    }
    rows
};

/// Returns the row of an invocation that failed with this class.
pub fn of_failure(class: FailureClass) -> &'static ErrorRow {
    &FAILURES[class as usize]
}

const fn failed(class: FailureClass) -> ErrorRow {
    let (http, code) = class.row().http;
    match class {
        FailureClass::Shed => *SHED,
        FailureClass::QuotaExceeded => ErrorRow {
            openai: "insufficient_quota",
            ..row(Internal, http, code, "{why}").named("INTERNAL")
        },
        _ => row(Internal, http, code, "{why}").named("INTERNAL"),
    }
}

const fn row(grpc: Code, http: u16, code: &'static str, text: &'static str) -> ErrorRow {
    let (openai, anthropic) = types(http);
    ErrorRow {
        name: "",
        reason: "",
        grpc,
        http,
        openai,
        anthropic,
        code,
        rpc: match grpc {
            InvalidArgument | NotFound | AlreadyExists | PermissionDenied => -32602,
            _ => -32603,
        },
        rpc_http: 200,
        param: None,
        retry_ms: None,
        text,
    }
}

/// Returns the `type` that the APIs of `OpenAI` and of Anthropic give an error of this status.
const fn types(status: u16) -> (&'static str, &'static str) {
    match status {
        401 => ("authentication_error", "authentication_error"),
        403 => ("permission_error", "permission_error"),
        404 => ("invalid_request_error", "not_found_error"),
        409 => ("invalid_request_error", "conflict_error"),
        413 => ("invalid_request_error", "request_too_large"),
        429 => ("rate_limit_error", "rate_limit_error"),
        400..=498 => ("invalid_request_error", "invalid_request_error"),
        499 => ("server_error", "invalid_request_error"),
        503 => ("server_error", "overloaded_error"),
        504 => ("server_error", "timeout_error"),
        _ => ("server_error", "api_error"),
    }
}

// === impl ErrorRow ===

impl ErrorRow {
    const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        if self.reason.is_empty() {
            self.reason = name;
        }
        self
    }

    const fn reason(mut self, reason: &'static str) -> Self {
        self.reason = reason;
        self
    }

    const fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    const fn retry_ms(mut self, retry_ms: u64) -> Self {
        self.retry_ms = Some(retry_ms);
        self
    }

    const fn rpc(mut self, code: i64, http: u16) -> Self {
        self.rpc = code;
        self.rpc_http = http;
        self
    }
}
