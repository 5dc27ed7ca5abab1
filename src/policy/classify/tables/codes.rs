//! Documented codes of model vendors, relays and tool protocols, where the code's words alone would mislead or are numbers.
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
            "rate limit reached for",
            "requests per {minute|second|hour|min|sec} per",
            "=request quota exceeded",
            "=token quota exceeded",
            "=tokens limit reached",
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
            "{limit|usage|quota} .. {resets #pm|resets #am|resets at #|resets at #pm|resets at #am|resets tomorrow|resets on}",
        ],
    ),
    // DashScope.
    rule(
        "dashscope.throttling",
        C::RateLimited,
        &[
            "throttling {allocation|rate|burst} quota",
            "throttling allocation quota",
            "throttling rate quota",
            "throttling burst rate",
            "limit requests",
            "limit burst rate",
        ],
    ),
    rule(
        "dashscope.free_only",
        C::QuotaExceeded,
        &["allocation quota free tier only", "free quota has been exhausted"],
    ),
    rule("dashscope.workspace", C::PermissionDenied, &["workspace access denied", "model access denied"]),
    // OpenAI, Azure OpenAI.
    rule(
        "openai.rate",
        C::RateLimited,
        &["=tokens & rate limit exceeded", "=requests & rate limit exceeded", "=engine rate limit*"],
    ),
    rule(
        "openai.unsupported_region",
        C::PermissionDenied,
        &["=unsupported country region territory", "=request forbidden"],
    ),
    rule(
        "openai.moderation",
        C::ContentFiltered,
        &["=image generation user error", "=content policy*", "=moderation", "=sexual", "=cyber policy*"],
    ),
    rule("azure.filter", C::ContentFiltered, &["azure open ai s content management policy"]),
    rule("azure.quota_tier", C::RateLimited, &["call rate limit of your current", "token rate limit of your current"]),
    // OpenRouter metadata.
    rule("openrouter.moderation", C::ContentFiltered, &["requires moderation on", "input was flagged"]),
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
            "=server overloaded",
            "=server busy",
            "=capacity error",
            "=too many requests & at capacity",
        ],
    ),
    rule("cohere.trial", C::QuotaExceeded, &["trial {key|token} .. {calls month|calls per month|monthly}"]),
    // Watsonx, Databricks, Vercel, Portkey, LiteLLM.
    rule(
        "watsonx.quota",
        C::QuotaExceeded,
        &["=token quota reached", "=consumption limit reached", "=instance quota*"],
    ),
    rule("watsonx.rate", C::RateLimited, &["=rate limit reached requests", "=request limit exceeded"]),
    rule("databricks.permission", C::PermissionDenied, &["=feature disabled", "=customer verification required"]),
    rule("databricks.unavailable", C::Overloaded, &["=temporarily unavailable"]),
    rule(
        "litellm.budget",
        C::QuotaExceeded,
        &["=budget exceeded*", "budget has been exceeded", "exceeded token budget"],
    ),
    rule(
        "litellm.model_access",
        C::PermissionDenied,
        &[
            "{key|team|user|project} not allowed to access model",
            "=key model access denied",
            "=team model access denied",
        ],
    ),
    rule("vercel.function", C::Timeout, &["=function invocation timeout"]),
    rule("vercel.payload", C::ContextLength, &["=function payload too large"]),
    rule("portkey.guardrail", C::ContentFiltered, &["=hooks failed", "guardrail checks .. failed", "hook* failed"]),
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
        &["exceeded .. included credits", "pro subscription .. {credits|quota}", "zero gpu quota*"],
    ),
    rule("hf.gated", C::PermissionDenied, &["=gated repo"]),
    // Tencent, Volcengine.
    rule(
        "tencent.quota",
        C::QuotaExceeded,
        &[
            "free resource pack exhausted",
            "in arrears",
            "resource pack exhausted",
            "account arrears*",
            "=account arrears error",
            "charge resource exhausted",
            "resource insufficient charge*",
        ],
    ),
    rule(
        "tencent.auth",
        C::Authentication,
        &["auth failure {signature*|secret id*|token*|invalid*|unauthorized*|invalid secret id}", "=auth failure*"],
    ),
    rule("tencent.timeout", C::Timeout, &["engine request timeout", "engine server limit exceed* & timeout"]),
    rule(
        "volcengine.closed",
        C::NotFound,
        &["invalid endpoint {closed|not found|or model}", "=model not open & not activated", "closed endpoint"],
    ),
    rule(
        "volcengine.not_open",
        C::PermissionDenied,
        &["=model not open", "has not activated the model", "access denied {expired|forbidden}", "=operation denied*"],
    ),
    rule(
        "volcengine.burst",
        C::RateLimited,
        &["request burst too fast", "inflight batchsize exceeded", "rate limit exceeded endpoint"],
    ),
    // Zhipu (GLM, Z.ai).
    rule(
        "zhipu.authentication",
        C::Authentication,
        &[
            "@num:1000 @by:zhipu",
            "@num:1001 @by:zhipu",
            "@num:1002 @by:zhipu",
            "@num:1003 @by:zhipu",
            "@num:1004 @by:zhipu",
        ],
    ),
    rule(
        "zhipu.balance",
        C::QuotaExceeded,
        &[
            "@num:1113",
            "@num:1304 @by:zhipu",
            "@num:1308 @by:zhipu",
            "@num:1309 @by:zhipu",
            "@num:1310 @by:zhipu",
            "@num:1308 @429",
            "@num:1310 @429",
            "@num:1304 @429",
        ],
    ),
    rule(
        "zhipu.permission",
        C::PermissionDenied,
        &[
            "@num:1110 @by:zhipu",
            "@num:1111 @by:zhipu",
            "@num:1112 @by:zhipu",
            "@num:1121 @by:zhipu",
            "@num:1220 @by:zhipu",
            "@num:1311 @by:zhipu",
            "@num:1313 @by:zhipu",
        ],
    ),
    rule(
        "zhipu.rate",
        C::RateLimited,
        &["@num:1302 @by:zhipu", "@num:1303 @by:zhipu", "@num:1302 @429", "@num:1303 @429"],
    ),
    rule(
        "zhipu.overloaded",
        C::Overloaded,
        &["@num:1305 @by:zhipu", "@num:1312 @by:zhipu", "@num:1305 @429", "@num:1312 @429"],
    ),
    rule("zhipu.filter", C::ContentFiltered, &["@num:1301 @by:zhipu", "@num:1301 @400"]),
    rule("zhipu.context", C::ContextLength, &["@num:1261 @by:zhipu"]),
    rule("zhipu.not_found", C::NotFound, &["@num:1211", "@num:1221 @by:zhipu", "@num:1222 @by:zhipu"]),
    invalid(
        "zhipu.request",
        D::Other,
        &["@num:1210 @by:zhipu", "@num:1213 @by:zhipu", "@num:1214 @by:zhipu", "@num:1215 @by:zhipu"],
    ),
    rule("zhipu.server", C::ServerError, &["@num:1230 @by:zhipu", "@num:1231 @by:zhipu", "@num:1234 @by:zhipu"]),
    // Baidu Qianfan.
    rule(
        "qianfan.quota",
        C::QuotaExceeded,
        &[
            "open api daily request limit*",
            "open api total request limit*",
            "@num:17 @by:baidu",
            "@num:19 @by:baidu",
            "@num:17 @by:qianfan",
            "@num:19 @by:qianfan",
        ],
    ),
    rule(
        "qianfan.rate",
        C::RateLimited,
        &[
            "open api qps request limit*",
            "open api max request limit*",
            "cluster max qps*",
            "@num:4 @by:baidu",
            "@num:18 @by:baidu",
            "@num:4 @by:qianfan",
            "@num:18 @by:qianfan",
            "@num:336501",
            "@num:336502",
            "@num:336503",
            "@num:336504",
            "@num:336505",
        ],
    ),
    rule(
        "qianfan.authentication",
        C::Authentication,
        &[
            "access token invalid or no longer valid",
            "iam certification failed",
            "get service token failed",
            "@num:14 @by:baidu",
            "@num:110 @by:baidu",
            "@num:111 @by:baidu",
            "@num:110 @by:qianfan",
            "@num:111 @by:qianfan",
        ],
    ),
    rule(
        "qianfan.permission",
        C::PermissionDenied,
        &["no permission to access data", "@num:6 @by:baidu", "@num:6 @by:qianfan", "@num:336004"],
    ),
    rule("qianfan.context", C::ContextLength, &["@num:336103", "@num:336007", "the max input chars*"]),
    rule("qianfan.overloaded", C::Overloaded, &["@num:336100", "@num:2 @by:qianfan", "@num:2 @by:baidu"]),
    rule("qianfan.server", C::ServerError, &["@num:336000", "@num:1 @by:qianfan"]),
    invalid(
        "qianfan.request",
        D::BadSchema,
        &["@num:336001", "@num:336002", "@num:336003", "@num:336006", "@num:336104", "@num:336105"],
    ),
    rule("qianfan.filter", C::ContentFiltered, &["@num:336104 & content", "need clear history", "user intent risk*"]),
    // MiniMax.
    rule("minimax.timeout", C::Timeout, &["@num:1001 @by:minimax"]),
    rule("minimax.rate", C::RateLimited, &["@num:1002 @by:minimax", "@num:1039 @by:minimax", "@num:1041 @by:minimax"]),
    rule("minimax.authentication", C::Authentication, &["@num:1004 @by:minimax", "@num:2049 @by:minimax"]),
    rule("minimax.balance", C::QuotaExceeded, &["@num:1008 @by:minimax", "@num:2056 @by:minimax"]),
    rule("minimax.filter", C::ContentFiltered, &["@num:1026 @by:minimax", "@num:1027 @by:minimax"]),
    rule(
        "minimax.server",
        C::ServerError,
        &["@num:1000 @by:minimax", "@num:1013 @by:minimax", "@num:1024 @by:minimax", "@num:1033 @by:minimax"],
    ),
    invalid("minimax.request", D::Other, &["@num:2013 @by:minimax", "@num:1042 @by:minimax"]),
    // iFlytek Spark.
    rule("spark.grant", C::PermissionDenied, &["@num:11200", "@num:10015 @by:spark"]),
    rule("spark.quota", C::QuotaExceeded, &["@num:11201"]),
    rule(
        "spark.rate",
        C::RateLimited,
        &["@num:11202", "@num:11203", "@num:10006 @by:spark", "@num:10007 @by:spark", "@num:10907 & rate"],
    ),
    rule("spark.filter", C::ContentFiltered, &["@num:10013 @by:spark", "@num:10014 @by:spark", "@num:10019 @by:spark"]),
    rule("spark.context", C::ContextLength, &["@num:10907"]),
    rule("spark.overloaded", C::Overloaded, &["@num:10008 @by:spark", "@num:10110 @by:spark", "@num:10010 @by:spark"]),
    rule(
        "spark.authentication",
        C::Authentication,
        &["@num:10016 @by:spark", "hmac signature .. {not match|cannot be verified|does not match}"],
    ),
    // SiliconFlow.
    rule("siliconflow.balance", C::QuotaExceeded, &["@num:30001 @by:siliconflow", "@num:30011"]),
    rule("siliconflow.not_found", C::NotFound, &["@num:20012", "@num:30003 @by:siliconflow"]),
    rule("siliconflow.overloaded", C::Overloaded, &["@num:50505", "@num:50603 @by:siliconflow"]),
    // Cloudflare Workers AI and AI Gateway.
    rule(
        "cloudflare.quota",
        C::QuotaExceeded,
        &[
            "@num:3036 @by:cloudflare",
            "@num:4006 @by:cloudflare",
            "free allocation of # neurons",
            "used up your daily free allocation",
        ],
    ),
    rule("cloudflare.capacity", C::Overloaded, &["@num:3040 @by:cloudflare", "@num:3042 @by:cloudflare"]),
    rule(
        "cloudflare.not_found",
        C::NotFound,
        &["@num:5007 @by:cloudflare", "@num:7003 @by:cloudflare", "@num:7000 @by:cloudflare"],
    ),
    rule(
        "cloudflare.permission",
        C::PermissionDenied,
        &["@num:5016 @by:cloudflare", "@num:5018 @by:cloudflare", "@num:3023 @by:cloudflare"],
    ),
    rule(
        "cloudflare.authentication",
        C::Authentication,
        &[
            "@num:10000 @by:cloudflare",
            "@num:9109 @by:cloudflare",
            "@num:2009 @by:cloudflare",
            "@num:10001 @by:cloudflare",
        ],
    ),
    rule("cloudflare.size", C::ContextLength, &["@num:3006 @by:cloudflare", "@num:5021 @by:cloudflare"]),
    rule("cloudflare.timeout", C::Timeout, &["@num:3007 @by:cloudflare", "@num:3046 @by:cloudflare"]),
    rule(
        "cloudflare.filter",
        C::ContentFiltered,
        &["@num:2016 @by:cloudflare", "@num:2017 @by:cloudflare", "@num:3030 @by:cloudflare"],
    ),
    rule("cloudflare.rate", C::RateLimited, &["@num:2003 @by:cloudflare", "@num:1015", "you are being rate limited"]),
    invalid(
        "cloudflare.request",
        D::BadSchema,
        &["@num:5004 @by:cloudflare", "@num:5006 @by:cloudflare", "@num:3003 @by:cloudflare"],
    ),
    rule(
        "cloudflare.access",
        C::PermissionDenied,
        &["@num:1020", "@num:1009 @403", "@num:1006 @403", "@num:1010 @403", "@num:1010 & cloudflare"],
    ),
];
