//! Documented codes of what stands between: gateways, routers, relays, edges, serverless hosts.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // Cloudflare: Workers AI, AI Gateway, its API, its edge.
    rule(
        "cloudflare.quota",
        C::QuotaExceeded,
        numbered!("@by:cloudflare @by:workers-ai": 3036, 4006; also "free allocation of # neurons", "used up your daily free allocation"),
    ),
    rule(
        "cloudflare.capacity",
        C::Overloaded,
        numbered!("@by:cloudflare @by:workers-ai": 1200, 3040; also "no more data centers", "worker exceeded resource limits @503"),
    ),
    rule("cloudflare.not_found", C::NotFound, numbered!("@by:cloudflare @by:workers-ai": 3042, 5007, 7000, 7003)),
    rule(
        "cloudflare.permission",
        C::PermissionDenied,
        numbered!("@by:cloudflare @by:workers-ai": 3023, 3041, 5016, 5018; also "service unavailable for account"),
    ),
    rule(
        "cloudflare.authentication",
        C::Authentication,
        numbered!("@by:cloudflare @by:workers-ai": 2009, 6003, 6111, 9103, 9106, 9109, 10000, 10001),
    ),
    rule("cloudflare.size", C::ContextLength, numbered!("@by:cloudflare @by:workers-ai": 3006, 5021)),
    rule("cloudflare.timeout", C::Timeout, numbered!("@by:cloudflare @by:workers-ai": 3007, 3046)),
    rule("cloudflare.filter", C::ContentFiltered, numbered!("@by:cloudflare @by:workers-ai": 2016, 2017, 3030)),
    rule(
        "cloudflare.rate",
        C::RateLimited,
        numbered!("@by:cloudflare @by:workers-ai": 971, 2003; "": 1015; also "you are being rate limited"),
    ),
    invalid("cloudflare.lora", D::UnsupportedParameter, numbered!("@by:cloudflare @by:workers-ai": 5005)),
    invalid("cloudflare.request", D::BadSchema, numbered!("@by:cloudflare @by:workers-ai": 3003, 3039, 5004, 5006)),
    rule(
        "cloudflare.access",
        C::PermissionDenied,
        numbered!("": 1020; "@403": 1005, 1006, 1009, 1010; "& {cloudflare|error code} !websocket": 1009, 1010; "@by:cloudflare": 1006, 1009, 1010; also "=browser signature banned"),
    ),
    rule(
        "cloudflare.origin",
        C::Network,
        numbered!("@by:cloudflare @by:cf": 1016, 1033; "& {cloudflare|error code}": 1016, 1033; "@530": 1016, 1033),
    ),
    rule(
        "cloudflare.worker",
        C::ServerError,
        numbered!("@by:cloudflare @by:cf": 1101, 1102; "& cloudflare": 1101, 1102; also "worker threw exception"),
    ),
    // LiteLLM.
    rule(
        "litellm.budget",
        C::QuotaExceeded,
        &["=budget exceeded", "budget has been exceeded", "exceeded token budget", "budget exceeded error"],
    ),
    rule(
        "litellm.model_access",
        C::PermissionDenied,
        &["{key|team|user|project} not allowed to access model", "={key|team|user|org|project} model access denied"],
    ),
    rule("litellm.context", C::ContextLength, &["context window exceeded error"]),
    rule("litellm.filter", C::ContentFiltered, &["content policy violation error"]),
    invalid("litellm.params", D::UnsupportedParameter, &["unsupported params error"]),
    rule("litellm.schema", C::MalformedResponse, &["json schema validation error"]),
    // OpenRouter, Vercel's gateway, Copilot.
    rule("openrouter.moderation", C::ContentFiltered, &["requires moderation on", "input was flagged"]),
    rule("vercel.funds", C::QuotaExceeded, &["=insufficient funds", "=deployment disabled @402"]),
    rule("copilot.weekly", C::QuotaExceeded, &["user {weekly|monthly} rate limited", "agent usage limit exceeded"]),
    rule("copilot.rate", C::RateLimited, &["{user model|user global|integration} rate limited"]),
    rule("copilot.context", C::ContextLength, &["model max prompt tokens exceeded"]),
    rule("copilot.off_topic", C::ContentFiltered, &["=off topic"]),
    rule("copilot.flag", C::PermissionDenied, &["=feature flag blocked"]),
    invalid("copilot.api", D::UnsupportedParameter, &["=unsupported api for model"]),
    // Serverless hosts.
    rule("vercel.function", C::Timeout, &["{function|middleware} invocation timeout"]),
    rule("vercel.payload", C::ContextLength, &["function payload too large", "function response payload too large"]),
    rule("vercel.failed", C::ServerError, &["{function|middleware} invocation failed", "=infinite loop detected"]),
    rule("vercel.empty", C::MalformedResponse, &["no response from function"]),
    rule("vercel.throttled", C::RateLimited, &["=function throttled"]),
    rule("vercel.blocked", C::PermissionDenied, &["=deployment blocked"]),
    rule("lambda.function", C::Timeout, &["sandbox timedout", "=function error timeout"]),
    rule("lambda.crash", C::Crash, &["runtime exit error", "extension crash"]),
    rule("lambda.setup", C::Configuration, &["runtime {import module error|handler not found|invalid entrypoint}"]),
    rule("heroku.timeout", C::Timeout, &["={h12|h15|h20}"]),
    rule("heroku.network", C::Network, &["={h13|h18|h19}"]),
    rule("heroku.crash", C::Crash, &["={h10|r14|r15}"]),
    rule("heroku.none", C::Overloaded, &["={h11|h14|h21}"]),
    // Apigee.
    rule("apigee.rate", C::RateLimited, &["spike arrest violation"]),
    rule("apigee.quota", C::QuotaExceeded, &["policies ratelimit quota violation", "=quota violation"]),
    rule(
        "apigee.key",
        C::Authentication,
        &["failed to resolve api key", "failed to resolve access token", "keymanagement service invalid access token"],
    ),
    rule(
        "apigee.product",
        C::PermissionDenied,
        &["invalid api key for given resource", "invalid api call as no api product match found"],
    ),
    rule("apigee.targets", C::Overloaded, &["no active targets"]),
    rule("apigee.cut", C::Network, &["unexpected eofat target", "unexpected eof at target"]),
    rule("apigee.size", C::ContextLength, &["protocol http too big body"]),
    // Portkey, Kong, Azure API Management, Envoy.
    rule("portkey.guardrail", C::ContentFiltered, &["=hooks failed", "guardrail checks .. failed", "hook* failed"]),
    rule(
        "apim.key",
        C::Authentication,
        &[
            "=subscription key {not found|invalid}",
            "=token {not present|not found|audience not allowed|issuer not allowed|signature invalid|claim value not allowed}",
            "=jwt {invalid|expired|malformed}",
        ],
    ),
    rule("apim.ip", C::PermissionDenied, &["=caller ip {blocked|not allowed}"]),
    rule("apim.backend", C::Network, &["=backend connection failure"]),
    rule("apim.gone", C::Cancelled, &["=client connection failure"]),
    rule("apim.volume", C::QuotaExceeded, &["out of call volume quota", "out of bandwidth quota"]),
    rule("kong.balancer", C::Overloaded, &["failure to get a peer from the ring balancer"]),
    rule("envoy.rbac", C::PermissionDenied, &["rbac access denied"]),
    rule("envoy.cluster", C::Configuration, &["=cluster not found", "=nr route not found"]),
    // one-api, new-api and their kin.
    rule(
        "relay.filter",
        C::ContentFiltered,
        &["=prompt blocked", "violation fee", "=sensitive words detected", "=err safety breach"],
    ),
    rule("relay.timeout", C::Timeout, &["=channel response time exceeded"]),
    rule("relay.key", C::Authentication, &["=channel invalid key", "=err auth failed"]),
    rule(
        "relay.channel",
        C::Configuration,
        &[
            "=channel no available key",
            "=channel {model mapped error|param override invalid|header override invalid|aws client error}",
            "=model price error",
            "{渠道已被禁用|渠道已禁用|渠道被禁用}",
            "channel {has been |is |was }disabled",
            "failed to get available channel",
            "=invalid api type",
            "=get channel failed & {no available|无可用|没有可用}",
            "=no {available channel|providers available|provider available}",
        ],
    ),
    rule("relay.balance", C::QuotaExceeded, &["=err insufficient balance", "=reject no credit", "=quote exceeded"]),
    // Gateways' budgets, key rules and tunnels.
    rule(
        "gateway.budget",
        C::QuotaExceeded,
        &["={project|key|team|user|customer|organization|monthly|daily} budget exceeded"],
    ),
    rule("gateway.model", C::PermissionDenied, &["=model not allowed"]),
    rule("ngrok.network", C::Network, numbered!("& err ngrok": 3200, 3800, 8012)),
    rule("ngrok.quota", C::QuotaExceeded, numbered!("& err ngrok": 725, 726, 727)),
    rule("relay.body", C::Network, &["={read|close|copy} response body failed"]),
    rule(
        "relay.unread",
        C::MalformedResponse,
        &["unmarshal response body failed", "={bad response body|empty response}"],
    ),
    invalid(
        "relay.request",
        D::BadSchema,
        &[
            "={convert request failed|read request body failed|bad request body|bind request body failed} !body too large",
        ],
    ),
    rule("relay.store", C::ServerError, &["={query|update} data error", "=count token failed"]),
];
