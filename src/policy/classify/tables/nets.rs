//! The wide nets: names and types that say little. What a finer rule or an inner cause says goes before them.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule("grpc.cancelled", C::Cancelled, &["status code cancelled", "status cancelled"]),
    rule("grpc.deadline", C::Timeout, &["deadline exceeded", "status code deadline*"]),
    rule(
        "net.authentication",
        C::Authentication,
        &[
            "authentication error",
            "unauthorized",
            "unauthorised",
            "authentication failed",
            "auth error",
            "not authorized",
            "login expired",
        ],
    ),
    rule(
        "net.permission",
        C::PermissionDenied,
        &[
            "permission error",
            "forbidden",
            "access denied",
            "permission !check permission !checking permission !permission check",
        ],
    ),
    rule(
        "net.not_found",
        C::NotFound,
        &["not found error", "not found", "does not exist", "not exist", "no such", "unimplemented"],
    ),
    invalid(
        "net.tool_required",
        D::ParameterMismatch,
        &[
            "{is|are} required !authentication !authorization !approval !login !sign in !payment !subscription !permission !confirmation !upgrade !credentials !api key !token !license !verification !consent !session !password !install !installed !restart !connection !plan !scope !network !proxy @tool",
        ],
    ),
    rule(
        "net.cancelled",
        C::Cancelled,
        &[
            "{cancelled|canceled|aborted} !cancelled false !canceled false !aborted false !already cancelled !already canceled !already aborted",
        ],
    ),
    rule(
        "net.timeout",
        C::Timeout,
        &["timeout !timeout # !timeout #s !timeout #ms !timeout none !timeout null", "timed out", "deadline"],
    ),
    rule(
        "net.upstream_failed",
        C::Unknown,
        &[
            "{upstream|provider|backend} {request |}{failed|failure|error} !something went wrong",
            "failed to get response from provider",
        ],
    )
    .retry(true),
    rule("net.streaming", C::MalformedResponse, &["error occurred {during|while} streaming"]),
    rule("net.unavailable", C::Overloaded, &["unavailable", "try again later & @num:503"]),
    invalid(
        "net.invalid_request",
        D::Other,
        &[
            "invalid request error",
            "invalid argument",
            "invalid parameter*",
            "bad request*",
            "request {was|is} malformed",
            "validation exception",
            "validation error !type validation error",
            "invalid request",
            "invalid parameter error",
            "unprocessable entity*",
            "failed precondition",
            "invalid input",
            "out of range",
            "invalid value",
            "invalid params",
            "badrequest*",
            "validation failed !type validation failed",
            "参数错误",
            "请求错误",
        ],
    ),
    // A provider's own apology; as a wrapper it says nothing, so whatever stands behind it was asked before.
    rule(
        "net.apology",
        C::ServerError,
        &[
            "{had|encountered|hit} {an |}{internal |unexpected |unknown |}{error|problem|issue} {while |when |}{processing|handling|serving} {your|the|this} request !quota !rate limit exceeded !overloaded !timed out !memory !tokens",
            "error occurred while processing your request !quota !rate limit !overloaded !timed out !memory !tokens",
            "internal server error & {check your network|network connection|unexpected response|invalid response|unexpected response format|stream closed} !quota !rate limit !overloaded !timed out !memory !tokens !econnreset !econnrefused",
            "{unexpected|unknown|unhandled} {error|failure} {in|during|inside} {the |our |}{generation|inference|prediction|handler|backend|worker|pipeline|model|engine}",
        ],
    ),
    rule(
        "net.server_error",
        C::ServerError,
        &[
            "internal server error",
            "internal error",
            "server error",
            "internal service error",
            "internal failure",
            "api error & @num:500",
            "=api error @5xx",
            "=internal",
            "unexpected error occurred",
            "{unknown|unexpected|unspecified} error {was |has |}{encountered|occurred|happened} {while|when|during}",
            "error {was |has |}{encountered|occurred} {while|when|during} {running|executing|loading|evaluating} {the |this |}{model|inference|prompt|prediction}",
            "{returned|reported|raised|threw|hit} {an |}{unexpected|unknown|unspecified|internal} {error|problem|failure|exception}",
            "something went wrong",
            "an internal error",
            "an error occurred while processing",
            "processing your request",
            "unexpected condition",
            "unhandled exception",
            "internalservererror",
            "upstream error @5xx",
            "内部错误",
            "服务器错误",
            "系统错误",
            "服务异常",
            "系统异常",
        ],
    ),
    // A reader's complaint about an answer, where no inner cause is told.
    rule(
        "net.unreadable",
        C::MalformedResponse,
        &[
            "{type validation error|type validation failed|ai type validation*|zod error|response validation|invalid response|unexpected response|bad response body|not in expected format|not in the expected format}",
        ],
    ),
    // What a client says before or behind any cause.
    rule(
        "net.cut",
        C::Network,
        &[
            "{stream disconnected|disconnected before|before completion}",
            "{stream|connection} {error|failed} !stream error false",
            "{internet connection|network connection|check your {internet|network|connection}}",
        ],
    ),
    rule("net.json_rpc", C::ServerError, &["@num:32603", "@num:32000"]),
    // A stream that ended as it should, and failed all the same: nothing usable came.
    rule(
        "net.empty_stream",
        C::MalformedResponse,
        &["=stream end @stream", "data done @stream", "=message stop @stream"],
    ),
    rule("net.exception", C::ServerError, &["unhandled {error|exception}", "uncaught {error|exception}"]),
    invalid(
        "net.tool_syntax",
        D::Other,
        &[
            "syntax error {at|near|in} @tool",
            "{sql|query} syntax @tool",
            "{unique|foreign key|check|not null} constraint @tool",
            "duplicate {key|entry} @tool",
        ],
    ),
    rule(
        "net.tool_exception",
        C::ServerError,
        &[
            "{traceback|zero division error|division by zero|assertion error|os error|not implemented error} @tool",
            "{cannot be spread here|cannot query field} @tool",
            "exception @tool",
            "error {executing|running|calling|invoking} {the |}{tool|function} @tool",
            "type error !type error error !type error response !type error message !type error code !type error detail @tool",
            "attribute error @tool",
            "key error @tool",
            "value error @tool",
            "runtime error @tool",
            "name error !name error message !name error code !name error error @tool",
        ],
    )
    .retry(false),
];
