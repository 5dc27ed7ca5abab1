//! Documented codes of the clouds: AWS exceptions, google.rpc reasons and Google's older ones, Azure, watsonx, OCI, Databricks,
//! Snowflake, NVIDIA.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, numbered, rule},
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
            "insufficient capacity {error|exception|on}",
            "=bad gateway exception",
        ],
    ),
    rule(
        "aws.timeout",
        C::Timeout,
        &["model timeout exception", "model invocation time out*", "invocation timed out while"],
    ),
    rule(
        "aws.stream",
        C::ServerError,
        &[
            "internal server exception !died !killed !crashed !out of memory",
            "model error exception !died !killed !crashed !out of memory",
            "model stream error exception !too long",
            "{dependency failed|internal dependency} exception",
            "internal stream failure",
        ],
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
            "=request expired & {amz|aws|signature|timestamp|date}",
            "{unauthorized sso token|token retrieval} error",
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
            "opt in required",
        ],
    ),
    rule(
        "aws.throttling",
        C::RateLimited,
        &[
            "throttling exception",
            "=throttling {rate quota|burst rate|user|api}",
            "=too many requests exception",
            "provisioned throughput exceeded*",
            "request limit exceeded",
            "bandwidth limit exceeded*",
            "ec2throttled exception",
            "prior request not complete",
            "=limit exceeded exception",
        ],
    ),
    rule(
        "aws.model_id",
        C::NotFound,
        &[
            "model identifier is invalid",
            "could not resolve the foundation model",
            "resource not found exception",
            "unknown operation exception",
        ],
    ),
    rule(
        "aws.no_credentials",
        C::Configuration,
        &[
            "{no credentials|partial credentials|no region|sso token load|credential retrieval|credentials provider|unknown service|invalid region} error",
            "=profile not found",
            "profile not found .. config profile",
        ],
    ),
    rule(
        "aws.connection",
        C::Network,
        &["{endpoint connection|response streaming|connection closed} error !received #"],
    ),
    invalid(
        "aws.query",
        D::Other,
        &[
            "malformed {query string|http request exception}",
            "param validation error & {botocore|boto3|parameter validation failed}",
        ],
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
            "=session cookie {invalid|expired}",
            "={auth error|key invalid|key expired}",
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
            "={location|security|resource usage restriction|org restriction} {policy |}{violated|violation}",
            "=api key {android|ios} app blocked",
            "=resource usage restriction violated",
            "=service not visible",
            "=gcp suspended",
            "=user blocked by admin",
            "=access not configured",
            "=account {deleted|disabled|unverified}",
            "=ip referer blocked",
            "=insufficient {permissions|file permissions|authorized party|audience}",
            "=app not authorized to file",
            "=domain policy",
            "=locked domain forbidden",
            "=cannot download abusive file",
        ],
    ),
    rule(
        "google.billing",
        C::QuotaExceeded,
        &["=billing disabled", "requires billing to be enabled", "billing {account |}.. {not enabled|disabled|closed}"],
    ),
    rule(
        "google.daily",
        C::QuotaExceeded,
        &[
            "={daily limit exceeded|daily limit exceeded unreg}",
            "={storage|download} quota exceeded",
            "variable term expired daily exceeded",
            "=quota exceeded & daily",
        ],
    ),
    rule(
        "google.rate",
        C::RateLimited,
        &["{serving|concurrent|variable term|user rate|sharing rate|calendar usage} {limit|limits} exceeded"],
    ),
    rule("google.backend", C::ServerError, &["=backend error"]),
    rule(
        "gemini.finish",
        C::MalformedResponse,
        &[
            "finish reason {unexpected tool call|too many tool calls|no image|malformed response}",
            "={unexpected tool call|no image}",
        ],
    ),
    rule("google.no_credentials", C::Configuration, &["default credentials error"]),
    rule(
        "google.publisher_model",
        C::NotFound,
        &["publisher model .. {not found|was not found}", "models .. is not found for api version"],
    ),
    // Google's ABORTED is a lost race, not somebody's wish.
    rule("grpc.aborted", C::ServerError, &["# aborted @grpc", "status code aborted"]),
    // Azure.
    rule(
        "azure.permission",
        C::PermissionDenied,
        &[
            "special feature or quota id required",
            "authentication type disabled",
            "={linked |}authorization failed",
            "{missing subscription registration|subscription not registered}",
            "read only disabled subscription",
            "=request disallowed by policy",
            "=authorization request denied",
            "=error access denied",
        ],
    ),
    rule("azure.token", C::Authentication, &["aadsts*", "{invalid|expired} authentication token"]),
    rule("azure.context", C::ContextLength, &["=tokens limit reached !per minute"]),
    rule("azure.not_found", C::NotFound, &["={unknown|unavailable} model", "=operation not found"]),
    rule("azure.capacity", C::Overloaded, &["=no capacity", "=sku not available"]),
    invalid("azure.operation", D::UnsupportedParameter, &["=operation not supported"]),
    // Watsonx, OCI.
    rule(
        "watsonx.quota",
        C::QuotaExceeded,
        &["=token quota reached", "=consumption limit reached", "=instance quota exceeded"],
    ),
    rule("watsonx.rate", C::RateLimited, &["=rate limit reached requests", "=request limit exceeded"]),
    rule("watsonx.auth", C::Authentication, &["bxnim*"]),
    rule(
        "watsonx.permission",
        C::PermissionDenied,
        &["=authorization rejected", "=no associated service instance error"],
    ),
    invalid("watsonx.function", D::UnsupportedParameter, &["=model no support for function"]),
    // Only watsonx asks where a call belongs; another vendor takes the same request.
    invalid(
        "watsonx.place",
        D::BadSchema,
        &["=invalid request entity & {project id|space id}", "missing .. {wml instance crn|space id}"],
    )
    .fallback(true),
    invalid("watsonx.entity", D::BadSchema, &["=invalid request entity"]),
    rule("oci.not_found", C::NotFound, &["not authorized or not found"]),
    rule("oci.capacity", C::Overloaded, &["out of {host |}capacity"]),
    rule("oci.permission", C::PermissionDenied, &["={sign up required|not allowed}"]),
    invalid("oci.state", D::Other, &["={incorrect|invalid} state"]),
    // Databricks, Snowflake, NVIDIA.
    rule("databricks.permission", C::PermissionDenied, &["=feature disabled", "=customer verification required"]),
    rule("databricks.unavailable", C::Overloaded, &["={workspace |}temporarily unavailable", "=endpoint not ready"]),
    rule("databricks.auth", C::Authentication, &["=customer unauthorized"]),
    rule(
        "snowflake.auth",
        C::Authentication,
        numbered!("": 390100, 390101, 390111, 390112, 390114, 390144, 390303, 390318),
    ),
    rule("snowflake.network_rule", C::PermissionDenied, numbered!("": 390422)),
    rule("nvidia.degraded", C::Overloaded, &["degraded function", "function .. {is |}in degraded"]),
    rule("nvidia.credits", C::QuotaExceeded, &["cloud credits expired"]),
];
