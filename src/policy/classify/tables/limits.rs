//! The caller's own request, token and concurrency limits.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A client calls every 429 a rate limit; the answer's own words say whose limit it is.
    rule(
        "overloaded.under_client_name",
        C::Overloaded,
        &[
            "{model|server|servers|engine|service|system|provider|upstream|backend|cluster|llm} {is |are |currently |temporarily |too |very |all |}{busy|overloaded|at capacity|saturated|at full capacity|out of capacity} !rate limit exceeded !rate limit reached !too many requests !rate limited !quota",
        ],
    ),
    rule(
        "rate.code",
        C::RateLimited,
        &[
            "rate limit exceeded",
            "rate limit reached",
            "rate limit error",
            "rate limited",
            "ratelimited",
            "ratelimit*",
            "rate limiting",
            "=rate limit*",
            "rate {limit|limits|limiter|quota}",
            "too many {requests|request|concurrent*|calls|connections|messages|api calls|parallel*|simultaneous*|queries|attempts}",
            "toomanyrequests",
            "{throttling|throttled|throttle|throttling exception|throttle exception|request throttled|throttlingexception}",
            "request limit {exceeded|reached}",
            "=slow down",
            "=limit exceeded",
            "slow down",
            "{concurrency|concurrent} {limit|quota|requests|request|sessions|connections|streams|rate} .. {exceed*|reached|limit|hit|full|too}",
            "{exceed*|reached|hit|over|above} .. {concurrency|concurrent|rpm|tpm|qps|qpm|rps|tps|itpm|otpm}",
            "{rpm|tpm|qps|qpm|rps|ipm|itpm|otpm} .. {limit|exceed*|reached|quota}",
            "{tokens|token|requests|request|calls|queries|images|messages} per {min*|minute|second|hour|sec}",
            "per {minute|second|hour|min} .. {limit|quota|exceed*}",
            "{per minute|per second|per hour|per min|hourly|minute|minutely} {limit|quota|rate|token*|request*}",
            "{exceed*|reached|hit} {the |your |its |their |our |a |an |maximum |max |model |api |current |}{rate|request|requests|usage|call|calls|token|tokens|api|frequency|throughput|message} {rate |call |request |}{limit|limits|cap|rate|quota|frequency}",
            "{rate|request|requests|usage|call|frequency|throughput|message} {limit|limits|frequency} .. {exceed*|reached|hit|try again|wait}",
            "usage limits",
            "{hit|reached|exceeded} {your|the|its} limit",
            "{allocated|allocation} quota",
            "{quota|limit} .. exceed* .. {try again|retry|wait|per minute|increase|minute|rate|request*}",
            "quota exceeded",
            "exceeded quota",
            "exceeded .. quota",
            "quota .. exceeded",
            "resource exhausted",
            "resource has been exhausted",
            "too many tokens .. {wait|try again|per}",
            "please wait {a moment|before|#|and try|a few|a bit|a while|and retry|for}",
            "requests are too frequent",
            "{request|requests|requesting|sending} {is |are |were |was |}{too frequent*|too fast|too quickly|too often|too many}",
            "no deployments available",
            "cooldown",
            "{quota|limit|limits} will {reset|renew|refresh|be reset|be restored} {after|in}",
            "reduce the frequency",
            "exceeded your current {request|requests} {list|rate|limit}",
            "{限频|请求过于频繁|请求频率|频率限制|限流|速率限制|并发数|并发限制|请求过多|请求太多|请求数过多|并发过高|调用频率|访问过于频繁|速率达到|达到限制|限速|qps 超限|超过并发|触发限流|流量控制|频次|并发超|过于频繁|超出限制}",
            "{レート制限|リクエストが多すぎ|요청이 너무 많|demasiadas solicitudes|trop de requêtes|zu viele anfragen|слишком много запросов|muitas solicitações}",
        ],
    ),
];
