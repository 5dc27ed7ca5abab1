//! Traps: texts whose words say one thing and whose meaning is another. Asked before everything else.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // The text itself says that it cannot tell.
    rule(
        "trap.undecided",
        C::Unknown,
        &["{quota|credit*|balance} .. or your {api key|key|token} is {invalid|incorrect|wrong}"],
    ),
    rule("trap.contradiction", C::Unknown, &["=billing not active & 负载已饱和"]),
    // A request that can never fit a window, whatever the limit is called.
    rule(
        "context.never_fits_window",
        C::ContextLength,
        &[
            "request too large .. limit # requested",
            "request too large for model",
            "request too large .. tokens per min*",
            "requested tokens exceed .. {rate limit|tokens per minute} & single request",
        ],
    ),
    // "Does not exist or you have no access": the name is the first thing to check.
    rule(
        "not_found.or_no_access",
        C::NotFound,
        &[
            "{does not|doesnt|do not|not} {exist|found} .. or you {do not|dont|may not} have {access|permission*|the permission*|authorization|the necessary}",
            "not found .. or {no|missing|insufficient} {access|permission*}",
        ],
    ),
    // A file that a tool did not find is not a program that is not installed.
    rule(
        "not_found.file",
        C::NotFound,
        &["{no such file or directory|enoent|file not found|file does not exist|does not exist} @tool"],
    ),
    // A default page that offers two explanations has none.
    rule("server.either_or", C::ServerError, &["either the server is overloaded or"]),
    // An answer's limit above what the model can write is a parameter, not a prompt.
    invalid(
        "request.max_tokens",
        D::Other,
        &[
            "max {completion |output |new |}tokens is too large",
            "maximum allowed number of output tokens",
            "supports at most # {completion|output} tokens",
        ],
    ),
    // The signature of a model's reasoning is part of the conversation, and no credential.
    invalid(
        "request.reasoning_signature",
        D::Other,
        &[
            "{invalid|corrupt*|malformed|expired|mismatched} {thought|thinking|reasoning} signature",
            "{thought|thinking|reasoning} signature .. {not valid|invalid|corrupt*|mismatch*|expired|be verified}",
            "=invalid encrypted content",
            "encrypted content .. {could not|cannot} be {verified|decrypted}",
        ],
    )
    .fallback(true),
    // A body that broke while it was read.
    rule(
        "network.body",
        C::Network,
        &["error decoding response body .. {eof|connection|closed|reset|chunk size}", "failed host lookup"],
    ),
    // A window with no allowance at all.
    rule(
        "quota.zero_limit",
        C::QuotaExceeded,
        &[
            "quota limit value 0",
            "quota limit value value 0",
            "{per minute|per day|requests|tokens|quota} limit 0",
            "limit 0 model",
            "limit is 0",
        ],
    ),
    // Pools of a day or a month under the name of a rate limit.
    rule(
        "quota.daily_pool",
        C::QuotaExceeded,
        &[
            "free models per day*",
            "per day per project per model free tier",
            "per day .. free tier",
            "free tier .. per day",
            "free {tier|plan|model|models|quota|usage|requests} .. {daily|per day|today|per month|monthly}",
            "{daily|per day|per month|monthly|weekly} .. free {tier|plan|model|models|quota|usage}",
            "daily free",
        ],
    ),
    // A size limit of the message, worded as an exhausted resource.
    invalid(
        "grpc.message_size",
        D::Other,
        &["received message larger than max", "sent message larger than max", "trying to send message larger than max"],
    ),
    // The plan lacks the feature, at whatever status.
    rule(
        "permission.plan_lacks",
        C::PermissionDenied,
        &[
            "extra usage is required",
            "{long context|feature|model|endpoint} .. {not available|not included|unavailable} {in|on|for|with} your {current |}{plan|subscription|tier}",
            "{upgrade|higher} {your |}{plan|tier} to {use|access|unlock} {this|the} {model|feature|endpoint}",
            "your {current |}{plan|tier|subscription} does not {include|support|allow|have access}",
            "requires a {paid|pro|higher|premium|enterprise|plus|max} {plan|subscription|tier}",
            "only available {to|for|on} {paid|pro|premium|enterprise|plus|paying}",
        ],
    ),
    // An abuse block of a whole account or address.
    rule(
        "permission.abuse",
        C::PermissionDenied,
        &["unusual activity", "abuse detect*", "suspicious activity", "detected abuse"],
    ),
    // Names that say exhausted and mean the provider's capacity.
    rule(
        "overloaded.capacity_code",
        C::Overloaded,
        &[
            "model capacity exhausted",
            "no capacity available",
            "capacity exhausted",
            "=capacity exceeded",
            "engine overloaded*",
        ],
    ),
    // The relay is full; a structured code of the upstream beats its words.
    rule("rate.relay_code", C::RateLimited, &["=rate limit exceeded & 负载已饱和"]),
    rule("overloaded.relay", C::Overloaded, &["负载已饱和", "负载饱和", "上游负载"]),
    // A cancel that the server did on its own.
    rule("cancelled.backend", C::Cancelled, &["operation was cancelled & backend error", "=cancelled & backend error"])
        .retry(true)
        .fallback(true),
    // A cancel that the text explains by a timeout.
    rule(
        "timeout.cancelled_by_timeout",
        C::Timeout,
        &[
            "{canceled|cancelled|aborted} .. {timeout|timed out|time out|deadline}",
            "timeout exception .. operation was {canceled|cancelled}",
            "{canceled|cancelled|aborted} due to .. {timeout|time out|deadline}",
        ],
    ),
    // The model's own tool call could not be read: asking again may work.
    rule(
        "malformed.tool_call",
        C::MalformedResponse,
        &[
            "=tool use failed",
            "failed to call a function",
            "malformed function call",
            "failed generation",
            "tool call validation failed",
            "output parse error",
            "output parsing failed",
            "json validate failed",
            "failed to generate json",
            "{json|parse|parsing|unterminated string|decode|decoding} .. {tool call|function call|tool|function} arguments",
            "{tool call|function call|tool|function} {arguments|input} .. {unterminated*|not valid json|invalid json|json decode error|expecting value|extra data|unparsable|malformed json|parse error|failed to parse}",
        ],
    ),
    rule(
        "overloaded.worker_limit",
        C::Overloaded,
        &[
            "{processing|handling|receiving|experiencing} {currently |}too many {concurrent |}requests",
            "=provider unavailable",
            "worker .. request limit reached",
        ],
    ),
    // Somebody stopped, refused or interrupted it.
    rule(
        "cancelled.by_person",
        C::Cancelled,
        &[
            "{denied|rejected|declined|cancelled|canceled|stopped|interrupted|aborted|refused|dismissed} by {the |}user",
            "user {denied|rejected|declined|cancelled|canceled|stopped|interrupted|aborted|refused|dismissed|doesnt want|chose not}",
            "{request to call tool|tool call|tool use|call to tool} {was |}{denied|rejected|declined|cancelled|canceled|aborted|interrupted}",
            "request interrupted",
            "tool .. was {aborted|interrupted} @tool",
            "interrupted by user",
            "user {abort|interrupt|cancel|rejection|cancellation}",
            "keyboard interrupt",
            "approval {denied|rejected|declined|refused}",
            "{action|operation|execution|command|permission} {rejected|declined|denied} by {user|operator|human|reviewer}",
        ],
    ),
];
