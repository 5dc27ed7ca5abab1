//! Documented codes of model vendors and of inference, speech and image services, where the code's words alone would mislead.
//!
//! Numbers count only when they stand as a code (`"code": 1113`), and short ones only from their own vendor.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A named short window is the caller's rate, whatever else the text advises.
    rule(
        "rate.window",
        C::RateLimited,
        &[
            "{tokens|token|requests|request|calls|queries|images|messages|credits} per {min*|second|hour|sec} .. {limit*|exceed*|rate|reached|too many}",
            "{per minute|per second|per hour|tpm|rpm|per min} .. rate limit*",
            "rate limit {for|of|on} {your|this|the|model} .. per {minute|second|min|hour}",
            "would exceed .. rate limit",
            "exceed* {your |the |token |request |call |}.. {token |request |call |}rate limit",
            "{per minute|per second} {per project|per user|rate|limit|quota|token*|request*}",
            "per {model|base model|project|user|region|key|organization|account} per {minute|second|hour} !per day",
            "{tokens|token|requests|request|calls} .. {this|last|past|current|previous} {minute|hour|second} .. {exceed*|over|above|limit|too many}",
            "{hourly|per hour|per minute} {quota|allowance} .. {used up|exceed*|reached|exhausted|hit|consumed}",
            "# {requests|calls|messages|queries} per # {seconds|second|sec|s|minutes|min}",
            "rate limit reached for",
            "quota exceeded for metric & {retry in #s|retry in # s*} !per day*",
            "requests per {minute|second|hour|min|sec} per",
            "=request quota exceeded",
            "=token quota exceeded !per day",
            "=tpm exceeded",
            "endpoint {tpm|rpm} exceeded",
            "{model|account|user|organization|org|project} {tpm|rpm|rate limit*|concurrency limit} exceeded",
        ],
    ),
    // A day's allowance, where no word says that the window rolls.
    rule(
        "quota.per_day",
        C::QuotaExceeded,
        &[
            "{quota|limit|exceed*|reached} .. {per day|rpd|tpd}",
            "{per day|rpd|tpd} .. {quota|limit|exceed*|reached}",
            "{limit|usage|quota} .. {resets #pm|resets #am|resets at #|resets at #pm|resets at #am|resets tomorrow|resets on|resets jan|resets feb|resets mar|resets apr|resets may|resets jun|resets jul|resets aug|resets sep|resets oct|resets nov|resets dec} !rate limit exceeded !limit type",
            "{hit|reached|exceeded|used} .. {limit|limits|cap|allowance} .. {reset|resets|refresh|refreshes|renew|renews|available again|try again} {at|on} {#|monday|tuesday|wednesday|thursday|friday|saturday|sunday|midnight|noon} !rate limit !per minute !per hour !per second !too many requests",
        ],
    ),
    // OpenAI, Azure OpenAI.
    rule(
        "openai.rate",
        C::RateLimited,
        &[
            "=tokens & rate limit exceeded",
            "=requests & rate limit exceeded",
            "=engine {rate limited|rate limit exceeded}",
        ],
    ),
    rule(
        "openai.unsupported_region",
        C::PermissionDenied,
        &[
            "=unsupported country region territory",
            "=request forbidden",
            "={access terminated|access terminated error}",
            "=ip not authorized",
            "=missing {scope|scopes}",
        ],
    ),
    rule(
        "openai.moderation",
        C::ContentFiltered,
        &[
            "=image generation user error",
            "={content|bio|cyber} {policy|policy violation}",
            "image content policy violation",
            "=moderation",
            "=sexual",
            "content filter finish reason error",
        ],
    ),
    rule("azure.filter", C::ContentFiltered, &["azure open ais content management policy"]),
    rule("azure.quota_tier", C::RateLimited, &["call rate limit of your current", "token rate limit of your current"]),
    // Anthropic.
    rule("anthropic.size", C::ContextLength, &["=request too large"]),
    rule("anthropic.overloaded", C::Overloaded, &["=overloaded error", "=overloaded"]),
    rule("anthropic.billing", C::QuotaExceeded, &["=billing error"]),
    // Moonshot, xAI, Cohere, Cerebras, SambaNova, AI21.
    rule(
        "moonshot.overloaded",
        C::Overloaded,
        &[
            "=engine overloaded error",
            "=queue exceeded",
            "={server|engine} overloaded",
            "=over capacity",
            "=server busy",
            "=capacity error",
            "=too many requests & at capacity",
        ],
    ),
    rule("cohere.trial", C::QuotaExceeded, &["trial {key|token} .. {calls month|calls per month|monthly}"]),
    // Hugging Face, TGI, Replicate.
    rule("tgi.overloaded", C::Overloaded, &["=overloaded & model is overloaded"]),
    rule(
        "tgi.context",
        C::ContextLength,
        &["=validation & inputs tokens", "input validation error .. inputs {tokens|must have}"],
    ),
    rule(
        "hf.quota",
        C::QuotaExceeded,
        &[
            "exceeded .. included credits",
            "pro subscription .. {credits|quota}",
            "zero gpu quota*",
            "gpu quota !retry in !try again in",
        ],
    ),
    rule("hf.gated", C::PermissionDenied, &["=gated repo"]),
    // OpenAI, Azure OpenAI: what else they name.
    rule("openai.organization", C::Authentication, &["={invalid|mismatched} organization", "=invalid issuer"]),
    rule(
        "openai.spend",
        C::QuotaExceeded,
        &[
            "credit balance exhausted",
            "{organization|project|account|user} spend limit exceeded",
            "=blocked api access",
        ],
    ),
    invalid("openai.unsupported", D::UnsupportedParameter, &["=unsupported {file|image media type}"]),
    invalid(
        "openai.request",
        D::Other,
        &[
            "={integer|decimal|array|number} {above max|below min} {value|length}",
            "={empty string|string below min length|empty image file|image file too large}",
            "conversation already has active response",
            "input audio buffer commit empty",
        ],
    ),
    // Anthropic's server tools.
    rule("anthropic.tool_url", C::PermissionDenied, &["=url not allowed"]),
    rule("anthropic.tool_time", C::Timeout, &["=execution time exceeded"]),
    rule("anthropic.container", C::NotFound, &["=container expired"]),
    invalid("anthropic.tool_input", D::Other, &["=max uses exceeded", "={query|url} too long"]),
    // Groq, Mistral, Together, Cohere.
    rule(
        "groq.permission",
        C::PermissionDenied,
        &["model permission blocked*", "=model terms required", "=organization restricted"],
    ),
    rule("groq.inactive", C::NotFound, &["=model not active", "=dedicated endpoint not running"]),
    invalid("mistral.order", D::MessageOrder, &["invalid request message order"]).fallback(true),
    rule("mistral.tier", C::RateLimited, &["=service tier capacity exceeded"]),
    rule("mistral.backend", C::Overloaded, &["unreachable backend"]),
    rule("together.rate", C::RateLimited, &["=dynamic {request|token} limited"]),
    rule("together.credit", C::QuotaExceeded, &["=credit limit exceeded"]),
    rule("together.key", C::Authentication, &["=missing api key"]),
    rule("cohere.toxic", C::ContentFiltered, &["=error toxic"]),
    rule("cohere.limit", C::ContextLength, &["=error limit"]),
    // Hugging Face's hub and servers.
    rule("hf.disabled", C::PermissionDenied, &["=disabled repo"]),
    rule("tgi.unhealthy", C::Overloaded, &["={unhealthy|no permits}"]),
    invalid("llamacpp.unsupported", D::UnsupportedParameter, &["=not supported error"]),
    rule("llamacpp.loading", C::Overloaded, &["=unavailable error"]),
    // Replicate numbers its failures behind a letter.
    rule("replicate.memory", C::Crash, &["e1001 & {memory|oom}"]),
    rule("replicate.start", C::Timeout, &["e6716 & {timeout|starting}"]),
    rule("replicate.unexpected", C::ServerError, &["e9243 & {unexpected|director}", "e1000 & unknown error"]),
    // Speech.
    rule(
        "elevenlabs.permission",
        C::PermissionDenied,
        &[
            "only for creator plus",
            "=can not use {instant|professional} voice cloning",
            "={free users|output format|ivc} not allowed",
            "={captcha|subscription} required",
            "=missing permissions",
        ],
    ),
    rule("elevenlabs.voices", C::QuotaExceeded, &["={voice|voice add edit|professional voice} limit reached"]),
    rule("elevenlabs.length", C::ContextLength, &["=max character limit exceeded", "=text too long"]),
    rule("elevenlabs.key", C::Authentication, &["=needs authorization", "=invalid authorization header"]),
    invalid("elevenlabs.model", D::UnsupportedParameter, &["model can not do"]),
    invalid("elevenlabs.voice", D::Other, &["=voice not fine tuned"]),
    rule("deepgram.auth", C::Authentication, &["=invalid auth"]),
    rule("deepgram.slow", C::Timeout, &["=slow upload"]),
    // fal: the runner's own names.
    rule("fal.runner", C::Network, &["=runner {disconnected|connection refused|connection error}"]),
    rule("fal.scheduling", C::Overloaded, &["=runner scheduling failure", "=downstream service unavailable"]),
    rule("fal.empty", C::MalformedResponse, &["=no media generated", "=runner incomplete response"]),
    rule("fal.gone", C::Cancelled, &["=client {disconnected|cancelled|canceled}"]),
    invalid("fal.feature", D::UnsupportedParameter, &["={feature not supported|unsupported image format}"]),
    invalid("fal.input", D::Other, &["={image load|file download|face detection} error"]),
    // Wit, Novita, Cartesia, Clarifai, Polly, batches.
    rule("speech.auth", C::Authentication, &["={no auth|bad auth|failed to auth}"]),
    rule("novita.access", C::PermissionDenied, &["=access deny", "=plan upgrade required"]),
    rule("cartesia.concurrency", C::RateLimited, &["=concurrency limited"]),
    rule("clarifai.deploying", C::Overloaded, &["=model {deploying|busy please retry}"]),
    rule("polly.length", C::ContextLength, &["text length exceeded exception", "=err {prompt|token} exceeded"]),
    rule("batch.expired", C::Timeout, &["=batch expired"]),
    // Azure's translator: a status and three digits more.
    rule("translator.auth", C::Authentication, &["@num:401000", "@num:401015"]),
    rule("translator.quota", C::QuotaExceeded, &["@num:403001"]),
    rule("translator.rate", C::RateLimited, &["@num:429000", "@num:429001", "@num:429002"]),
    // pydantic's and zod's names of what is wrong with a field.
    invalid(
        "pydantic.tool",
        D::ParameterMismatch,
        &["={missing argument|unexpected keyword argument|missing keyword only argument}"],
    ),
    invalid(
        "pydantic.extra",
        D::UnsupportedParameter,
        &["=extra forbidden", "extra inputs are not permitted @http", "=unrecognized keys"],
    ),
    // A role that this vendor does not know.
    invalid("pydantic.role", D::BadSchema, &["=literal error & role & loc"]).fallback(true),
    invalid(
        "pydantic.type",
        D::BadSchema,
        &[
            "={string|int|float|bool|list|dict|model|model attributes|tuple|set|bytes|url|uuid} {type|parsing}",
            "={literal error|union tag invalid}",
            "=json {type|invalid}",
            "={string|list|too} {too short|too long|short|long} & loc",
            "=missing & loc",
            "=value error & loc",
        ],
    ),
];
