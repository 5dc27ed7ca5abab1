//! Reasons that louder words around them drown: a wrapper's name, an outer cause, a word of another sense beside them.
//!
//! Each phrase names a fact that a client, a server, a system or a vendor states in a fixed sentence, so that it may be
//! asked before everything that is wider.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A program that unwraps a fault panics, and what it unwrapped is the reason.
    rule(
        "panic.network",
        C::Network,
        &[
            "panicked & {connection refused|connect error|dns error|connection reset|failed to lookup address|error trying to connect|os error 111|os error 104|connection closed before} !certificate !timed out",
        ],
    ),
    rule("panic.timeout", C::Timeout, &["panicked & {timed out|deadline elapsed|timeout error|deadline exceeded}"]),
    rule(
        "panic.authentication",
        C::Authentication,
        &[
            "panicked & {unauthorized|invalid api key|incorrect api key|invalid x api key|authentication error|invalid token}",
        ],
    ),
    rule("panic.permission", C::PermissionDenied, &["panicked & {status text forbidden|# forbidden|gated repo}"]),
    rule("panic.rate", C::RateLimited, &["panicked & {too many requests|rate limit exceeded|rate limit reached}"]),
    rule("panic.not_found", C::NotFound, &["panicked & {status text not found|# not found|model not found}"]),
    rule(
        "panic.configuration",
        C::Configuration,
        &[
            "panicked & {not present|environment variable not found|api key must be set|api key not set|must be set|env var error|var error}",
        ],
    ),
    // A refusal for legal reasons, and not for want of servers.
    rule("reason.legal", C::PermissionDenied, &["unavailable for legal reasons", "legal reasons @451"]),
    // A kind of account that is not served.
    rule(
        "reason.account_type",
        C::PermissionDenied,
        &[
            "no access to {git hub|github} copilot",
            "restricted {key|api key|token} {cannot|may not|can not}",
"account type .. {not supported|not allowed|not eligible|unsupported|not currently supported|not permitted}"],
    ),
    // A plan that does not reach so far, beside a name that may be wrong.
    rule(
        "reason.plan",
        C::PermissionDenied,
        &["{tier|plan|level} {is |}not high enough", "available .. under your {current |}{plan|policies|subscription|tier}"],
    ),
    // Time-outs of a socket by their name, and of a first token by its.
    rule(
        "reason.timeout",
        C::Timeout,
        &[
            "not properly respond after a period of time",
            "{zu lange gedauert|a mis trop de temps|tardó demasiado|demorou demais|muito tempo para responder|troppo tempo|時間がかかりすぎ|너무 오래 걸|слишком долго|耗时过长|响应时间过长|等待时间过长} !轮询",

            "{connect|read|write|errno} etimedout !econnrefused !econnreset !enotfound !enetunreach !ehostunreach !eai again",
            "{jsonrpc|json rpc} .. error .. {request timed out|timed out|deadline exceeded}",
            "# a timeout occurred",
            "first token .. {deadline|in time|time limit|timed out|timeout|time out|too long}",
            "{waiting for|without} {a |the |}{keepalive|keep alive|heartbeat} {pong|ack|reply|response}",
        ],
    ),
    // A connection that ended where an answer should have begun, in the words of Go.
    rule(
        "reason.eof",
        C::Network,
        &["unexpected end of stream on", "{post|get|put|delete|patch|head} url {unexpected |}eof", "{post|get|put|delete|patch|head} url .. {read tcp|write tcp|dial tcp} .. {eof|reset|refused|broken pipe} !timeout"],
    ),
    // HTTP/2 between two parties that do not agree on its frames.
    rule(
        "reason.frames",
        C::Network,
        &[
            "{tlsv1|tlsv13|sslv3} alert {protocol version|handshake failure|internal error|unrecognized name|decode error|access denied|insufficient security|no application protocol}",
            "{ist nicht erreichbar|est injoignable|no se puede acceder al servidor|servidor inacessível|サーバーに接続できません|서버에 연결할 수} !model !modell !modelo !modèle",

            "{protocol|frame size|flow control|compression|stream closed|settings timeout} error & unavailable @grpc",
            "protocol error invalid settings",
            "is currently unreachable !temporarily !model !user",
        ],
    ),
    // A safety system by its name.
    rule(
        "reason.filter",
        C::ContentFiltered,
        &[
            "responsible ai service .. {filtered|blocked|refused|stopped|rejected}",
            "{filtered|blocked|refused|stopped|rejected} by {the |our |a |}responsible ai",
            "{负责任|負責任} & {过滤|拦截|屏蔽|篩選|封鎖}",
            "{ia responsable|ia responsável|verantwortungsvolle ki|verantwortungsvollen ki|ia responsabile|責任ある ai|책임 있는 ai} & {filtr*|block*|bloque*|gefiltert|フィルタ|필터}",
            "rai media filtered",
            "rai filtered reason",
            "{inappropriate|improper} {request|prompt|question} !format",
            "prompt filtered !false",
            "containinappropriate content",
        ],
    ),
    // Identities of a key that a vendor does not know are no missing resources.
    rule(
        "reason.unknown_key",
        C::Authentication,
        &[
            "reauthentication {required|failed} !application default",

            "{secret id|secretid|access key id|access key|accesskeyid|accesskey|app key|appkey|client id} {you provided |provided |specified |}{is |was |does |could |}{not found|not exist|not be found|unknown} !environment !config* !settings !set !file",
            "{invalid|incorrect|wrong} {model|provider|llm|gateway} key !value",
            "invalid token error !unexpected token !json !parse",
            "{missing|no|without} {an |a |the |}{valid |}authorization header @4xx",
            "authorization header {is |was |}{missing|required|absent|not present|not provided|empty|not found|not set} @4xx",
        ],
    ),
    // A browser's session that was copied here and has run out.
    rule(
        "reason.cookie",
        C::Authentication,
        &[
            "{snlm0e|nl m0e|snl m0e} value",
            "{update|refresh|renew|replace|paste|reset} {the |your |a |}{new |}{# |}{suno |session |bing |login |account |auth |google |browser |}{cookie|cookies} !accept",
            "{suno|session|bing|login|account|auth|your|the} {cookie|cookies} .. {expired|no longer valid|is invalid|are invalid|has lapsed} !domain",
        ],
    ),
    // A program that was written for another of this engine's versions.
    rule(
        "reason.architecture",
        C::Configuration,
        &[
            "unknown {model |}architecture !terminated !exit status !exited",
            "{architecture|architectures} .. {not supported|unsupported|not recognized|not recognised} !gpu !cuda !cpu !platform !terminated",
            "{not recognize|not recognise|not support} this architecture !terminated",
            "unsupported {model |}architecture !gpu !cuda !cpu !platform !terminated",
            "unsupported model type",
            "model type .. {not supported|unsupported|not recognized|not recognised} @transport",
            "{please|must|need to|have to|should} load a model {first|before|and|then}",
        ],
    ),
    // Nobody here answers for the provider's name.
    rule(
        "reason.provider",
        C::Configuration,
        &[
            "{pick|select|choose|configure} {a |an |your |the |}{chat |language |default |ai |llm |}model {before|first|in settings|in the settings|to continue|to use}",
            "provider {was|has been} removed from {your|the} {config*|settings}",
            "{mapping values are not allowed|toml parse error|toml decode error|not find expected node content|found character that cannot start any token}",
            "{keychain|keyring|credential manager|credential store|secret store} {entry|item|access|error|backend} .. {not found|missing|denied|locked|failed|unavailable|could not}",

            "provider .. {not found in registry|not registered|not in registry|not in the registry}",
            "model provider .. {not supported|not registered|not known|not recognized} !parameter !feature !tool !tools !region !country",
            "{unsupported|unknown} {llm|model|ai|embedding|chat} provider !unavailable !timed out !overloaded",
            "agent server .. not registered",
            "no {model|models} available !available for !available in !available to !available right !available at !available now !region !capacity !currently !temporarily !cooldown !try again !rate limited !reset",
            "{packages|package|libraries|dependencies|extras} {are |is |}required for .. {ai|llm|assist*|chat|openai|anthropic|provider|feature|features|support}",
            "cannot load such file",
        ],
    ),
    // The program that should be started is not there, in a system's own words.
    rule(
        "reason.command",
        C::Configuration,
        &[
            "system cannot find the {file|path} specified @transport @stream",
            "{fichier spécifié est introuvable|angegebene datei nicht finden|指定されたファイルが見つかりません|系统找不到指定的文件|系統找不到指定的檔案|найти указанный файл|archivo especificado|지정된 파일을 찾을 수 없} @transport @stream",
            "{zsh|bash|fish|sh} # {no matches found|event not found|bad substitution|syntax error|unexpected eof} @transport",
            "curl no url specified",
            "{no url specified|malformed input to a url function} & curl",
        ],
    ),
    // A name of a model that nobody knows.
    rule(
        "reason.model",
        C::NotFound,
        &[
            "unknown model !architecture !unknown model type !model version !not at ready !unknown model provider",
            "=model archived",
            "model .. {is |was |has been |}archived !chat",
            "does not exist cannot be loaded due to missing permissions",
            "model .. not supported by provider",
            "{incorrect|invalid|wrong|unknown} model {id|name|identifier} .. or you {do not|dont|may not|have no}",
        ],
    ),
    // A pool of one person, or of many hours.
    rule(
        "reason.quota",
        C::QuotaExceeded,
        &[
            "{burned|burnt|blown|gone|went|blew} through .. {included|monthly|month s|months|free|premium|allotted|credits|quota|allowance}",

            "{individual|personal|seat|member|per user} {usage |}quota {has been |was |is |}{reached|exceeded|exhausted|used up}",
            "enable {overages|overage}",
            "no {account|accounts|key|keys} {are |is |}{available |left |}with {remaining |enough |available |sufficient |any |}{quota|credits|balance}",
            "{messages|requests|calls|images|generations|queries|prompts|videos|tokens} {per|every|in|each} {#h|# hours|# hrs} !try again in !concurrent",
        ],
    ),
    // Whose load it is, whatever a client calls the exception.
    rule(
        "reason.load",
        C::Overloaded,
        &[
            "{gpus|servers|machines} are {melting|on fire|overwhelmed|swamped|maxed out|struggling|slammed}",

            "{servers|service|system|cluster|platform|backend} {is |are |}{currently |now |}experiencing {a |very |extremely |unusually |}{high|heavy|peak|elevated} {load|traffic|demand} !timed out !your",
            "too much {traffic|load|demand} !your !might be !you are",
            "no {active|healthy|live|idle} .. {servers|server|workers|worker|instances|nodes|backends|replicas} {are |is |}{available|online} !configured",
        ],
    ),
    // A person, or a rule that stands for one, did not let a tool run.
    rule(
        "reason.not_approved",
        C::Cancelled,
        &[
            "{execution|command|tool|tool call|tool use|action|operation|edit} {was |is |has |}{not approved|not been approved|not confirmed|unapproved} @tool",
            "interrupt processing exception",
            "processing interrupted @tool",
        ],
    ),
    rule(
        "reason.tool_rule",
        C::PermissionDenied,
        &[
            "{tool|command|action|call} .. denied by {a |the |your |}{hook|policy|permission*|rule|rules|setting|settings|config*|sandbox|profile|guard|allowlist|denylist} @tool",
            "no approval {channel|handler|callback|provider} {is |was |}{available|configured|registered} @tool",
        ],
    ),
    // A body that is too long for a server, in Chinese.
    rule("reason.body_size", C::ContextLength, &["{请求体|請求體|请求正文|请求内容} .. {超过|超出|过大|太大|上限|超過}"]),
    // Too many things at once, in Chinese.
    rule("reason.parallel", C::RateLimited, &["{同时|并发|並發|並行} .. {任务|任務|请求|請求|会话|會話} .. {上限|过多|過多|超过|超過|限制}"]),
    // A bug of the server's that every request meets.
    rule(
        "reason.bug",
        C::ServerError,
        &[
            "{local variable|free variable} .. {referenced before assignment|not associated with a value} @http @grpc @stream",
            "name error name .. is not defined @http @grpc @stream",
        ],
    )
    .retry(false),
    // What a caller's file is, and what a server made of a header.
    invalid(
        "reason.file",
        D::Other,
        &["invalid {audio |image |video |document |media |}file {or|type|format|extension}", "did not attempt to load json data"],
    ),
];
