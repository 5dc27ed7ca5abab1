//! Codes of the clouds and of tool protocols: AWS exceptions, google.rpc reasons, Azure, JSON-RPC and MCP.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // AWS.
    rule(
        "aws.quota",
        C::QuotaExceeded,
        &["service quota exceeded exception", "too many tokens per day", "daily token quota"],
    ),
    rule(
        "aws.overloaded",
        C::Overloaded,
        &[
            "service unavailable exception",
            "model not ready exception",
            "model stream error exception & overloaded",
            "=insufficient capacity*",
        ],
    ),
    rule("aws.timeout", C::Timeout, &["model timeout exception", "model invocation time out*"]),
    rule(
        "aws.stream",
        C::ServerError,
        &["internal server exception", "model error exception", "model stream error exception !too long"],
    ),
    rule(
        "aws.authentication",
        C::Authentication,
        &[
            "expired token*",
            "unrecognized client exception",
            "invalid signature exception",
            "incomplete signature*",
            "missing authentication token*",
            "security token included in the request is {invalid|expired}",
            "=not authorized exception",
        ],
    ),
    rule(
        "aws.on_legacy",
        C::NotFound,
        &["marked by provider as legacy", "this model version has reached the end of its life"],
    ),
    rule(
        "aws.access",
        C::PermissionDenied,
        &[
            "access denied exception",
            "is not authorized to perform",
            "aws marketplace .. actions",
            "you dont have access to the model with the specified model id",
            "explicit deny",
        ],
    ),
    rule(
        "aws.throttling",
        C::RateLimited,
        &[
            "throttling exception",
            "=throttling*",
            "=too many requests exception",
            "provisioned throughput exceeded*",
            "request limit exceeded",
            "bandwidth limit exceeded exception",
        ],
    ),
    rule(
        "aws.model_id",
        C::NotFound,
        &["model identifier is invalid", "could not resolve the foundation model", "resource not found exception"],
    ),
    // google.rpc and the Gemini family.
    rule(
        "google.auth",
        C::Authentication,
        &[
            "=api key invalid",
            "=api key expired",
            "=access token expired",
            "=credentials missing",
            "=access token type unsupported",
            "=account state invalid",
            "request had invalid authentication credentials",
            "request is missing required authentication credential",
        ],
    ),
    rule(
        "google.disabled",
        C::PermissionDenied,
        &[
            "=service disabled",
            "=consumer invalid",
            "=consumer suspended",
            "=iam permission denied",
            "=access token scope insufficient",
            "=api key service blocked",
            "=api key http referrer blocked",
            "=api key ip address blocked",
            "=user project denied",
            "=location policy violated",
            "=security policy violated",
            "=api key android app blocked",
        ],
    ),
    rule(
        "google.billing",
        C::QuotaExceeded,
        &["=billing disabled", "requires billing to be enabled", "billing {account |}.. {not enabled|disabled|closed}"],
    ),
    rule("google.no_credentials", C::Configuration, &["default credentials error"]),
    rule(
        "google.publisher_model",
        C::NotFound,
        &["publisher model .. {not found|was not found}", "models .. is not found for api version"],
    ),
    // JSON-RPC and MCP: the words come first, the number decides where there are none.
    rule(
        "mcp.not_found",
        C::NotFound,
        &["@num:32601", "@num:32002", "unknown tool", "tool .. not found @tool", "method not found"],
    ),
    rule("mcp.timeout", C::Timeout, &["@num:32001 & timed out", "@num:32001 & timeout"]),
    rule("mcp.authentication", C::Authentication, &["=unauthorized & @num:32000", "@num:32001 & unauthorized"]),
    invalid("mcp.invalid_type", D::BadSchema, &["invalid type & @num:32602", "expected .. received & @num:32602"]),
    invalid("mcp.invalid_params", D::ParameterMismatch, &["@num:32602"]),
    invalid("jsonrpc.parse", D::BadSchema, &["@num:32700", "@num:32600"]),
];
