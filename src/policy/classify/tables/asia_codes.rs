//! Documented codes of Asian vendors and their clouds: dotted names, and numbers that count only in their vendor's terms.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // DashScope (Model Studio).
    rule(
        "dashscope.throttling",
        C::RateLimited,
        &[
            "throttling {allocation|rate|burst} quota",
            "throttling burst rate",
            "limit requests !ratelimit limit requests",
            "limit burst rate",
        ],
    ),
    rule(
        "dashscope.free_only",
        C::QuotaExceeded,
        &[
            "allocation quota free tier only",
            "free quota has been exhausted",
            "{prepaid|postpaid|post paid} bill overdue",
        ],
    ),
    rule(
        "dashscope.access",
        C::PermissionDenied,
        &["{workspace|work space|model|app} access denied", "access denied unpurchased"],
    ),
    rule(
        "dashscope.filter",
        C::ContentFiltered,
        &["data inspection failed", "ip infringement suspect", "custom role blocked"],
    ),
    rule("dashscope.timeout", C::Timeout, &["=request time out", "=internal error timeout", "=response timeout"]),
    rule(
        "dashscope.not_found",
        C::NotFound,
        &["=flow not published", "=work space not found", "invalid parameter model not exist"],
    ),
    rule("dashscope.gone", C::Cancelled, &["=client disconnect"]),
    rule("dashscope.size", C::ContextLength, &["=bad request too large"]),
    invalid("dashscope.input", D::Other, &["bad request {empty|illegal|input download failed}*"]),
    // Tencent.
    rule(
        "tencent.quota",
        C::QuotaExceeded,
        &[
            "resource pack exhausted",
            "in arrears",
            "{account|stop|service} arrears*",
            "charge resource exhausted",
            "resource insufficient charge*",
            "resource unavailable low balance",
            "exceed token quota limit",
        ],
    ),
    rule(
        "tencent.permission",
        C::PermissionDenied,
        &[
            "=auth failure unauthorized operation",
            "=unauthorized operation",
            "{ip in blacklist|ip not in whitelist}",
            "failed operation {service not activated|user un auth error|partner account un support}",
            "=unsupported region",
        ],
    ),
    rule(
        "tencent.auth",
        C::Authentication,
        &["auth failure {signature*|secret id*|token*|invalid*|mfa*}", "=auth failure"],
    ),
    rule("tencent.filter", C::ContentFiltered, &["{text|image|video|audio} illegal detected"]),
    rule(
        "tencent.timeout",
        C::Timeout,
        &["{engine|failed operation} request timeout", "engine server limit exceed* & timeout"],
    ),
    rule("tencent.rate", C::RateLimited, &["engine server limit exceeded", "request limit exceeded job num exceed"]),
    rule(
        "tencent.server",
        C::ServerError,
        &["failed operation {engine server error|server error|console server error}"],
    ),
    rule("tencent.sold_out", C::Overloaded, &["=resources sold out", "=resource insufficient"]),
    rule(
        "tencent.not_found",
        C::NotFound,
        &[
            "=action offline",
            "=no such {version|product}",
            "=invalid action",
            "resource unavailable not exist",
            "failed operation job not exist",
        ],
    ),
    rule("tencent.size", C::ContextLength, &["=request size limit exceeded"]),
    // Tencent's knowledge engine (six digits, nobody else's).
    rule("lke.rate", C::RateLimited, numbered!("": 460011, 460032)),
    rule("lke.quota", C::QuotaExceeded, numbered!("": 460033, 460038, 460040)),
    rule("lke.timeout", C::Timeout, numbered!("": 460020)),
    rule("lke.auth", C::Authentication, numbered!("": 460001)),
    rule("lke.not_found", C::NotFound, numbered!("": 460002, 460004, 460006, 460009, 460010, 460034)),
    rule("lke.context", C::ContextLength, numbered!("": 460035, 460036)),
    // Volcengine Ark, BytePlus.
    rule("volcengine.access_disabled", C::PermissionDenied, &["model id access disabled"]),
    rule("volcengine.closed", C::NotFound, &["invalid endpoint {closed|not found|or model}", "closed endpoint"]),
    rule(
        "volcengine.quota",
        C::QuotaExceeded,
        &["service overdue", "=account quota exceeded", "=set limit exceeded", "=quota exceeded & {trial|free}"],
    ),
    rule(
        "volcengine.not_open",
        C::PermissionDenied,
        &[
            "=model not open",
            "has not activated the model",
            "access denied {expired|forbidden}",
            "service not open",
            "=invalid account status",
            "=operation denied",
            "operation denied permission denied",
        ],
    ),
    rule(
        "volcengine.burst",
        C::RateLimited,
        &[
            "request burst too fast",
            "inflight batchsize exceeded",
            "rate limit exceeded {endpoint|foundation model}",
            "{account|model} {rpm|tpm|ipm} rate limit exceeded",
            "flow limit exceeded",
        ],
    ),
    rule("volcengine.loading", C::Overloaded, &["=model loading error"]),
    rule("volcengine.context", C::ContextLength, &["outof context error"]),
    rule(
        "volcengine.filter",
        C::ContentFiltered,
        &["{text|image|video|audio} risk detection", "{text|image|video|audio} sensitive content detected"],
    ),
    rule("volcengine.auth", C::Authentication, &["=invalid {authorization|credential|access key|secret token}"]),
    rule("volcengine.timeout", C::Timeout, &["internal service timeout"]),
    invalid(
        "volcengine.image",
        D::Other,
        &["{oversize|oversized} image", "invalid image url {empty url|invalid format}"],
    ),
    // Zhipu (GLM, Z.ai).
    rule(
        "zhipu.authentication",
        C::Authentication,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1000, 1001, 1002, 1003, 1004, 1005),
    ),
    rule(
        "zhipu.balance",
        C::QuotaExceeded,
        numbered!(
            "@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1304, 1308, 1309, 1310;
            "@429": 1304, 1308, 1309, 1310;
            "& {glm|bigmodel|z ai|您|已达到|套餐}": 1304, 1308, 1309, 1310;
            "": 1113
        ),
    ),
    rule(
        "zhipu.permission",
        C::PermissionDenied,
        numbered!(
            "@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1110, 1111, 1112, 1121, 1220, 1311, 1313;
            "& {glm|bigmodel|z ai|您|套餐}": 1112, 1121, 1220, 1311, 1313
        ),
    ),
    rule(
        "zhipu.rate",
        C::RateLimited,
        numbered!(
            "@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1302, 1303;
            "@429": 1302, 1303;
            "& {glm|bigmodel|z ai|您|concurrency|frequency}": 1302, 1303
        ),
    ),
    rule(
        "zhipu.overloaded",
        C::Overloaded,
        numbered!(
            "@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1305, 1312;
            "@429": 1305, 1312;
            "& {glm|bigmodel|z ai|该模型}": 1305, 1312
        ),
    ),
    rule(
        "zhipu.filter",
        C::ContentFiltered,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1300, 1301; "@400": 1301),
    ),
    rule(
        "zhipu.context",
        C::ContextLength,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1261; "@400": 1261),
    ),
    rule(
        "zhipu.not_found",
        C::NotFound,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1221, 1222; "": 1211),
    ),
    invalid(
        "zhipu.method",
        D::UnsupportedParameter,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1212),
    ),
    invalid(
        "zhipu.request",
        D::Other,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1210, 1213, 1214, 1215, 1231),
    ),
    rule(
        "zhipu.server",
        C::ServerError,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1100, 1120, 1200, 1230),
    ),
    rule(
        "zhipu.network",
        C::Network,
        numbered!("@by:zhipu @by:bigmodel @by:glm @by:zai @by:z.ai @by:z-ai": 1234; also "网络错误 .. 请联系客服"),
    ),
    // Baidu Qianfan: numbers of the first interface, names of the second.
    rule(
        "qianfan.quota",
        C::QuotaExceeded,
        numbered!(
            "@by:baidu @by:qianfan @by:ernie @by:wenxin": 17, 19;
            also "open api daily request limit*", "open api total request limit*", "coding plan {hour|week|month} quota exceeded"
        ),
    ),
    rule(
        "qianfan.rate",
        C::RateLimited,
        numbered!(
            "@by:baidu @by:qianfan @by:ernie @by:wenxin": 4, 18;
            "": 336501, 336502, 336503, 336504, 336505;
            also "open api qps request limit*", "open api max request limit*", "open api request limit reached", "cluster max qps*",
            "={rpm|tpm|preemptible|user|cluster} rate limit exceeded"
        ),
    ),
    rule(
        "qianfan.authentication",
        C::Authentication,
        numbered!(
            "@by:baidu @by:qianfan @by:ernie @by:wenxin": 13, 14, 100, 110, 111;
            also "access token invalid or no longer valid", "iam certification failed", "get service token failed",
            "={invalid|expired} iam token", "=iam token expired", "=invalid appid"
        ),
    ),
    rule(
        "qianfan.permission",
        C::PermissionDenied,
        numbered!("@by:baidu @by:qianfan @by:ernie @by:wenxin": 6; also "no permission to access data"),
    ),
    rule(
        "qianfan.context",
        C::ContextLength,
        numbered!("": 336004, 336007, 336103; also "the max input chars*", "={tokens|characters} too long"),
    ),
    rule(
        "qianfan.overloaded",
        C::Overloaded,
        numbered!("": 336100; "@by:baidu @by:qianfan @by:ernie @by:wenxin": 2; also "=server high load"),
    ),
    rule("qianfan.server", C::ServerError, numbered!("": 336000; "@by:baidu @by:qianfan @by:ernie @by:wenxin": 1)),
    rule(
        "qianfan.filter",
        C::ContentFiltered,
        &["@num:336104 & content", "need clear history", "user intent risk*", "={system|prompt|input|output} unsafe"],
    ),
    invalid(
        "qianfan.request",
        D::BadSchema,
        numbered!("": 336001, 336002, 336003, 336005, 336006, 336104, 336105; also "=malformed json"),
    ),
    // MiniMax.
    rule(
        "minimax.filter",
        C::ContentFiltered,
        numbered!("@by:minimax @by:hailuo": 1026, 1027; also "{input|output} new sensitive"),
    ),
    rule("minimax.timeout", C::Timeout, numbered!("@by:minimax @by:hailuo": 1001)),
    rule("minimax.rate", C::RateLimited, numbered!("@by:minimax @by:hailuo": 1002, 1039, 1041, 2045)),
    rule("minimax.authentication", C::Authentication, numbered!("@by:minimax @by:hailuo": 1004, 2049)),
    rule("minimax.balance", C::QuotaExceeded, numbered!("@by:minimax @by:hailuo": 1008, 2056)),
    rule(
        "minimax.permission",
        C::PermissionDenied,
        numbered!("@by:minimax @by:hailuo": 2038, 2042, 2061; also "token plan .. {not support|not supported|does not support} model"),
    ),
    rule("minimax.server", C::ServerError, numbered!("@by:minimax @by:hailuo": 1000, 1013, 1024, 1033)),
    invalid("minimax.request", D::Other, numbered!("@by:minimax @by:hailuo": 1042, 2013, 2037)),
    // iFlytek Spark.
    rule(
        "spark.grant",
        C::PermissionDenied,
        numbered!("": 11200; "@by:spark @by:iflytek @by:xfyun @by:xunfei": 10015, 10016; also "app id no auth error"),
    ),
    rule("spark.quota", C::QuotaExceeded, numbered!("": 11201)),
    rule(
        "spark.rate",
        C::RateLimited,
        numbered!("": 11202, 11203; "@by:spark @by:iflytek @by:xfyun @by:xunfei": 10006, 10007; "& rate": 10907),
    ),
    rule(
        "spark.filter",
        C::ContentFiltered,
        numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10013, 10014, 10019),
    ),
    rule("spark.context", C::ContextLength, numbered!("": 10907)),
    rule(
        "spark.overloaded",
        C::Overloaded,
        numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10008, 10010, 10110),
    ),
    rule(
        "spark.authentication",
        C::Authentication,
        &["hmac signature .. {not match|cannot be verified|does not match}"],
    ),
    rule("spark.network", C::Network, numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10001, 10002)),
    rule(
        "spark.server",
        C::ServerError,
        numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10009, 10011, 10012, 10222),
    ),
    invalid("spark.schema", D::BadSchema, numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10003, 10004)),
    invalid("spark.request", D::Other, numbered!("@by:spark @by:iflytek @by:xfyun @by:xunfei": 10005, 10163)),
    // SiliconFlow.
    rule("siliconflow.balance", C::QuotaExceeded, numbered!("@by:siliconflow": 30001; "": 30011)),
    rule("siliconflow.not_found", C::NotFound, numbered!("": 20012; "@by:siliconflow": 30003)),
    rule("siliconflow.overloaded", C::Overloaded, numbered!("": 50505, 50508; "@by:siliconflow": 50603)),
    // Huawei ModelArts and its gateway.
    invalid("huawei.request", D::BadSchema, numbered!("& model arts": 81001)),
    rule("huawei.auth", C::Authentication, numbered!("& model arts": 81002, 81003, 4905; "& apig": 301, 303)),
    rule("huawei.filter", C::ContentFiltered, numbered!("& model arts": 81011, 81013)),
    rule("huawei.quota", C::QuotaExceeded, numbered!("& model arts": 81005, 4207)),
    rule(
        "huawei.permission",
        C::PermissionDenied,
        numbered!("& model arts": 81004, 81006, 81015, 81109, 4204; "& apig": 302, 304),
    ),
    rule("huawei.not_found", C::NotFound, numbered!("& model arts": 81009, 81108, 4203; "& apig": 101)),
    rule("huawei.rate", C::RateLimited, numbered!("& model arts": 81101, 81103, 4206; "& apig": 308)),
    rule("huawei.timeout", C::Timeout, numbered!("& apig": 203)),
    rule("huawei.backend", C::Overloaded, numbered!("& apig": 202)),
    // SenseNova names gRPC codes, and one of its own.
    rule("sensenova.filter", C::ContentFiltered, numbered!("@by:sensenova @by:sensetime": 17)),
    rule("sensenova.permission", C::PermissionDenied, numbered!("@by:sensenova @by:sensetime": 7)),
    rule("sensenova.auth", C::Authentication, numbered!("@by:sensenova @by:sensetime": 16)),
    rule("sensenova.rate", C::RateLimited, numbered!("@by:sensenova @by:sensetime": 8)),
    invalid("sensenova.request", D::Other, numbered!("@by:sensenova @by:sensetime": 3)),
    // A status and two digits more, as Naver's and others' gateways write it.
    rule("clova.context", C::ContextLength, numbered!("@by:clova @by:naver @by:hyperclova": 40003)),
    rule("status_plus.auth", C::Authentication, numbered!("": 40100, 40101)),
    rule("status_plus.permission", C::PermissionDenied, numbered!("": 40300)),
    rule("status_plus.not_found", C::NotFound, numbered!("": 40400)),
    rule("status_plus.rate", C::RateLimited, numbered!("": 42900, 42901)),
    rule("status_plus.overloaded", C::Overloaded, numbered!("": 50300)),
    rule("status_plus.timeout", C::Timeout, numbered!("": 50400)),
];
