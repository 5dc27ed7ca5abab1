//! Plain facts that stand inside a wrapper's words, or that no vendor's code names: asked before the codes are.
//!
//! A limit that a client reports and the empty purse that the provider tells, a library that is not installed, a full disk, a
//! value that one model alone wants: each phrase names its fact whole, so that what stands around it does not count.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A client's word for a 429, and the provider's own reason behind it.
    rule(
        "plain.purse",
        C::QuotaExceeded,
        &[
            "{insufficient balance|insufficient account balance|insufficient wallet balance|insufficient quota|no resource package|credit balance is too low|billing hard limit|in arrears|余额不足|欠费} & {rate limit|rate limits|rate limited|ratelimit*|too many requests}",
            "{daily|weekly|monthly|per day|per month} {token|tokens|request|requests|usage} {pool|allotment|allocation|quota|allowance|budget|cap} .. {used up|consumed|exhausted|spent|gone} !try again in !retry in !untouched",
            "{request a service limit|request a limit|request a quota} increase & {limits were exceeded|limit was exceeded|limit exceeded|quota exceeded|limits exceeded}",
            "{исчерпан*|израсходован*|закончил*} .. {квот*|баланс*|кредит*|токен*|средств*}",
            "no {account|accounts|key|keys|channel|channels} {available |left |remaining |}with {remaining |available |enough |sufficient |any |}{quota|credits|credit|balance}",
        ],
    ),
    // A reset that has a date is no short window.
    rule(
        "plain.reset_date",
        C::QuotaExceeded,
        &[
            "{hit your|reached your|exceeded your|hit the|reached the|used your} {limit|usage limit} .. {resets|reset on|renews} {on |}{jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec|january|february|march|april|june|july|august|september|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow}",
        ],
    ),
    // An edge's own page, under whatever name; a budget of time.
    rule(
        "plain.time",
        C::Timeout,
        &[
            "{time|latency|wall clock|deadline|execution time} budget {of # |of #s |of #ms |}{was |is |has been |}{exceed*|exhausted|used up|over|spent}",
            "{exceed*|exhausted|ran out of|over|past} {the |its |our |your |a |}{overall |total |request |}{time|latency|wall clock|deadline} budget",
        ],
    ),
    // What counts the calls is down itself.
    rule(
        "plain.limiter",
        C::Network,
        &[
            "{rate limiter|rate limit {info|check|backend|store|service|middleware|status}} & {connection refused|econnrefused|econnreset|connection reset|no such host|no route to host}",
        ],
    ),
    rule("plain.limiter_slow", C::Timeout, &["{rate limiter|ratelimiter} .. {timed out|timeout}"]),
    rule("plain.limiter_bug", C::ServerError, &["{rate limiter|rate limit {check|backend|store|service|middleware}} .. {internal error|key error|type error|exception|crashed}"]),
    // What a program needs on this machine, and does not find.
    rule(
        "plain.library",
        C::Configuration,
        &[
            "{load|loading|open|find} {shared |dynamic |native |}{library|libraries|dll|shared object} .. {specified module|no such file|could not be found|cannot open} !core dumped !registry ollama",
            "{cannot open shared object file|error while loading shared libraries} !core dumped",
            "{library not loaded|dll load failed|dlopen failed|unsatisfied link error|no native library} !core dumped",
            "the specified module could not be found",
            "{engine variant|default engine|default backend|default runtime} .. not {set|selected|chosen|installed}",
            "{driver library version mismatch|cuda driver version is insufficient|nvidia driver .. too old}",
        ],
    ),
    // Parts of a program that nobody put in, or that name what is not there.
    rule(
        "plain.wiring",
        C::Configuration,
        &[
            "service of type .. not registered",
            "{bean of type|qualifying bean} .. {could not be found|not found|available|consider defining}",
            "no qualifying bean",
            "{value cannot be null|argument null exception|illegal argument exception} .. {credential|credentials|api key|apikey|endpoint|base url}",
            "model info is required when model name",
            "{model path|model file|gguf path|weights path} does not exist",
            "{unknown|unsupported} model architecture",
            "invalid model file",
            "{isnt|is not|not} defined in .. {json|toml|yaml|yml|config*} !schema",
            "check google application credentials",
            "{find|locate|set|define} cuda home",
            "{tokenizer|tokenizer config|tokenizer model|config|preprocessor config} {file |}{json |}{is |}missing !request !field",
            "no keys {found |configured |available |}that support",
        ],
    ),
    // A client left, and the engine stopped for it.
    rule("plain.left", C::Cancelled, &["client disconnected stopping {generation|inference|prediction}"]),
    // A file of weights that is broken is no broken picture.
    rule(
        "plain.model_file",
        C::Configuration,
        &[
            "not within the file bounds",
            "{invalid|bad|wrong|unknown|unexpected} {magic|gguf magic} {number|character|characters|bytes} & {gguf|ggml|safetensors|weights|checkpoint|load model|loading model}",
            "{gguf|ggml|safetensor|safetensors|checkpoint|tensor data|model weights|weights|model} {file |files |data |}{is|are|appears to be|seems to be|may be|might be|looks} {corrupted|corrupt|truncated|damaged|truncated or corrupt|incomplete or corrupted|corrupt or truncated} !image !audio !video",
            "{safetensor error|error while deserializing header|unexpected eof reading tensor|tensor .. has wrong shape}",
            "{digest|checksum|sha256|hash} mismatch & {download*|blob|manifest|must be downloaded}",
        ],
    ),
    // An account or a tier that somebody shut because others misused it.
    rule(
        "plain.misuse",
        C::PermissionDenied,
        &[
            "{due to|because of|owing to|on account of} {suspected |repeated |}{abuse|misuse|fraud} !please wait !rate limit !rate limits",
        ],
    ),
    // Places inside a network that a guard keeps callers from.
    rule(
        "plain.inner_address",
        C::PermissionDenied,
        &[
            "ssrf {protection|guard|blocked|check|prevention|filter|attempt|policy|detected}",
            "{resolves|resolved|points} to {a |an |}{private|internal|loopback|link local|reserved|non public|private internal} {internal |}{ip|ips|address|addresses|network|host} !image !audio !video !file",
            "{requests|connections|connection|access|calls} to {a |an |the |}{private|internal|loopback|link local|non public} {ip|ips|address|addresses|networks|network|hosts} {is|are|was|were} {blocked|forbidden|denied|not allowed|not permitted|disallowed|prohibited}",
            "{allowlist|allow list|whitelist|allowlisted} & {target ip|private ip|private address|internal ip|internal address|target host|loopback address}",
            "{unauthorized|unauthorised|disallowed|forbidden|blocked|untrusted|unapproved} {source |client |caller |remote |}ip {address|addresses|range}",
        ],
    ),
    // Not for this caller until somebody says so.
    rule(
        "plain.application",
        C::PermissionDenied,
        &[
            "{application|access request|use case|enrollment|waitlist} form & {fill out|fill in|fill|complete|submit}",
            "requested {resource|grant|service} {is |was |}not granted",
            "{requested grant not found|auth no license|auth no enough license|licc fail|licc failed}",
            "{virtual key|api key|consumer|team key|project key} is {blocked|paused|disabled|frozen} {for|by} {this |the |}{provider|model|policy|admin|administrator|owner}",
            "not eligible for {credits|free credits|this model|this feature|the model|the program}",
        ],
    ),
    // Two names for one failure: the plainer one is the inner.
    rule("plain.server", C::ServerError, &["server unavailable error {# |}internal server error"]),
    // The filter itself failed, and nothing was refused.
    rule("plain.filter_failed", C::ServerError, &["content filter error & {not filtered|filtered false}"]),
    // A safety review that something did not pass.
    rule(
        "plain.moderation",
        C::ContentFiltered,
        &[
            "{did not|didnt|does not|doesnt|failed to|fails to} {respect|meet|pass|comply with|follow|satisfy} {our |the |its |a |}{moderation|safety|content|usage} {rule|rules|check|checks|guidelines|guideline|review|step|filter|standards|requirements}",
            "failed to moderate {image|images|content|prompt|text|input|video} !connection !timed out !timeout !unavailable !internal server error",
            "content violates {the |our |their |}{usage|content|safety|community|acceptable use} {guidelines|policy|policies|rules}",
            "failed check safety check",
            "={moderated|request moderated|content moderated}",
            "{rai filter|rai filtered|copyright check failed}",
        ],
    ),
    // A model that somebody wakes, or that is on its way.
    rule(
        "plain.waking",
        C::Overloaded,
        &[
            "please wait {for|until|while} .. {deployed|ready|finish loading|finishes loading|loaded|initialized|initialised|warm|warmed up|start up|starts up|boot*} !rate limit !limit !quota",
            "{endpoint|deployment|it|model} is not {yet |}deployed yet",
            "{it|endpoint|deployment} is not yet deployed",
            "model is {currently |}cold",
            "not ready for {inference|serving|requests|prediction|predictions|traffic}",
            "{worker|pipeline|engine|model|service|server|runtime|session|tokenizer} is not {yet initialized|yet initialised|initialized yet|initialised yet|yet ready|ready yet|warmed up yet} !credential* !mcp",
            "deployment is not ready",
        ],
    ),
    // A pool that has nobody free.
    rule(
        "plain.pool",
        C::Overloaded,
        &[
            "no {available|idle|free|spare|healthy} {client|clients|session|sessions|connections|browser|browsers|engine|engines} !configured !api key !quota",
        ],
    ),
    // A container that says what it is, and always will.
    rule(
        "plain.container",
        C::ServerError,
        &[
            "received client error # from .. internal server exception !died !killed !crashed !out of memory !loading !too long !exceed*",
        ],
    )
    .retry(false),
    invalid(
        "plain.eula",
        D::Other,
        &["{need to|must|have to|should|please} {pass|set|send|add|provide|specify} .. accept eula", "accept eula {true |}{is |must be |}{required|missing|needed|set}"],
    )
    .fallback(true),
    // Nothing can be written any more, and waiting makes no room.
    rule(
        "plain.disk",
        C::ServerError,
        &[
            "{no space left on device|enospc|disk quota exceeded|disk is full|disk full|not enough space on the disk|not enough disk space|insufficient disk space|no disk space|磁盘空间不足|磁盘已满} !wal buffer",
        ],
    )
    .retry(false),
    // A plugin's own program broke while it was called.
    rule(
        "plain.plugin_bug",
        C::ServerError,
        &[
            "plugin invoke error .. error type {key error|attribute error|name error|index error|unbound local error|zero division error|import error|module not found error|not implemented error} !choices !candidates !response !content",
        ],
    )
    .retry(false),
    // Sentences of well-known clients for an answer that they cannot read.
    rule(
        "plain.unread",
        C::MalformedResponse,
        &[
            "unhandled format for {content|part|candidate|candidates|response|safety rating|count tokens response}",
            "{unknown|unrecognized|unrecognised|unhandled|unexpected} {server|realtime|websocket} event",
            "{unknown|unrecognized|unrecognised|unhandled} {event|message|frame} type {received |}{from|by} {the |}{server|upstream|provider|model}",
            "finish reason undefined",
            "instructor retry exception # validation {error|errors} for",
            "{validation error|validation errors} for {agent|planner|planning|router|routing|navigator|action|step|task|extraction|evaluation|grader|grade|judge|summary|query|structured|final|classification|decision|reflection} {model |}{output|response|answer|reply|result|decision}",
        ],
    ),
    // A handshake that ends with an alert about somebody's certificate ends so again.
    rule(
        "plain.certificate_alert",
        C::Network,
        &[
            "alert {bad certificate|unknown ca|certificate {required|expired|revoked|unknown}|unsupported certificate}",
            "tls {bad certificate|unknown certificate authority|unknown certificate|certificate required|expired certificate|revoked certificate|unsupported certificate}",
        ],
    )
    .retry(false),
    rule(
        "plain.no_connection",
        C::Network,
        &[
            "{all|every} {connection|connect|connections} {attempt|attempts} failed",
            "mcp error {# |}connection closed !program not found !no module !no such file !not found !command",
            "type error fetch failed @tool",
        ],
    ),
    rule(
        "plain.no_tool",
        C::NotFound,
        &[
            "no {mcp |}{client|server|handler|provider} {was |is |}{found|registered} for tool",
            "no models {were |are |}{returned|listed|found} {from|by|in} {the |}.. {catalog|catalogue|registry|hub}",
        ],
    ),
    // The address is wrong, says who was asked.
    rule("plain.address", C::Configuration, &["url error please check !invalid parameter"]),
    // One model's own value for a parameter.
    invalid(
        "plain.own_value",
        D::UnsupportedParameter,
        &[
            "only {#|0|the value #|value #} {is|are} {allowed|supported|accepted|permitted|valid} {for|with|by|in|on} {this|the|that} {model|endpoint|mode|provider}",
            "only {supports|accepts|allows} {a |}{temperature|top p|top k|n|frequency penalty|presence penalty|repetition penalty} {of |equal to |}{#|0}",
            "{temperature|top p|top k|frequency penalty|presence penalty|repetition penalty} must be {set to |exactly |equal to |}{#|0} {for|with|when|on|in} {this|the|that|using|thinking|reasoning}",
            "{thinking budget|budget tokens|reasoning budget} .. {is invalid|out of range|for this model|not supported|is deprecated}",
            "{beta header|beta headers|beta flag|beta flags|anthropic beta} & {unexpected value|unexpected values|invalid beta|unsupported beta|unknown beta|invalid value|unsupported value|unrecognized beta|not supported|unsupported}",
            "unsupported {for|by|with|on|in} {this|the|that} {model|endpoint|deployment|api version} !region !country !location",
            "{incompatible|conflicting} {tool choice|tool|parameter|parameters|param|params|option|options|argument|arguments|sampling} !library !version",
            "{cannot|can not|must not|may not} be {specified|set|provided|given|passed} {in the request body|in the request|in request|for {a|the|this} deployment}",
            "only {accepts|takes|supports|allows} {text|image|images|audio|video|single} {input|inputs|content|only}",
            "{audio|image|video|vision|speech} {output|input} requires {a |the |}model",
            "{model|endpoint|deployment} requires {stream|streaming|stream mode} {true|to be|set|enabled}",
            "tool choice must be {auto|none|any|required}",
            "{thinking|reasoning|vision|tool use|tool calling|function calling|structured outputs|prompt caching} {is|are} unavailable !temporarily !currently",
            "is a beta feature",
            "{add an image to use|switch your model to|text only requests are not}",
        ],
    ),
    invalid("plain.budget_tokens", D::Other, &["{budget tokens|thinking budget} .. {exceed*|must be less|greater than} .. max tokens", "max tokens must be greater than thinking budget"]),
    // An empty turn that this vendor does not take.
    invalid("plain.empty_turn", D::Other, &["all messages must have non empty content"]).fallback(true),
    invalid(
        "plain.last_turn",
        D::MessageOrder,
        &[
            "{assistant|user|system|tool|model} {role|turn|message} in {the |}{final|last|first} position",
            "{system|developer} {message|messages|prompt|role} {is|are} only allowed {at|as|in} the {beginning|start|first}",
            "only one system message",
            "{messages|conversation|list|history|messages list} must end with {a |an |}{user|tool|human|assistant|system}",
        ],
    )
    .fallback(true),
    // A result that answers no call.
    invalid(
        "plain.pairing",
        D::MessageOrder,
        &[
            "{unexpected|unknown|unmatched|dangling} tool {call|use|result} {id|ids} !server tool !advisor tool !web search tool",
            "{tool|tool result|tool message|function} {message |response |result |output |}{has|with|without} {no |a |any |}{matching|corresponding} {tool |function |}{call|use} !server tool !advisor tool !web search tool",
        ],
    ),
    // What a tool's own checks say of its arguments.
    invalid(
        "plain.argument",
        D::ParameterMismatch,
        &[
            "{parameter|argument|param} .. {should be|must be|expected} {a |an |}{int|str|bool|float|integer|string|boolean|number|list|dict|array|object} .. {got|not|but|received} @tool",
            "argument of type {int|str|bool|float|string|list|dict|none type} .. {expected|got|is not} @tool",
            "{must|have to|need to|should} {supply|provide|pass|specify} {the |a |an |at least |}.. {argument|parameter|arguments|parameters} @tool",
            "invalid params missing @tool",
        ],
    ),
    // A field that every call needs, and an enumeration that does not hold the value.
    invalid(
        "plain.field",
        D::BadSchema,
        &[
            "field {messages|model|prompt|input|contents|content|query|text|messages role|voice|file} is required !serial name @http @stream",
            "{messages|model name|user prompt|user input|user message|contents} is {a |}required {field|property|for} !serial name !response !answer @http @stream",
            "{messages|model name|contents|prompt} is required !serial name !response !answer @400 @422",
            "{user input|user prompt} is required @http @stream",
            "is too short {messages|input|inputs|contents|tools}",
            "{property|field|key|parameter} {messages|model|prompt|input|inputs|contents} is missing !response @http @stream",
            "{none|null} is not an allowed value",
            "not have {fewer|more} than # {items|item|characters|properties} !tool !response",
            "{could not|cannot|couldnt|unable to|failed to} {parse|decode|deserialize|unmarshal|bind} {the |your |}{json |}request !cancel* !eof !timed out !connection !deadline @http @stream @grpc",
            "{unmarshal|bind|decode} request {body |}{failed|error} @http @stream",
            "enum value expected & received !type validation !response !choices @http @stream",
            "invalid option expected one of !type validation !response !choices @http @stream",
        ],
    ),
];

/// How a connection or a wait ended, by the names that systems give it: asked after every answer, and still a fact.
pub(super) const ENDS: &[Rule] = &[
    rule(
        "ends.connection",
        C::Network,
        &[
            "getaddrinfo {enotfound|eai again|eai fail|eai noname}",
            "connect {econnrefused|econnreset|ehostunreach|enetunreach|eaddrnotavail}",
            "{read|write} {econnreset|econnrefused|epipe}",
            "socket hang up",
            "connection reset by peer",
            "{name or service not known|temporary failure in name resolution|nodename nor servname|could not resolve host}",
            "# going away",
            "{incomplete chunked read|server disconnected without sending|without sending complete message body}",
        ],
    ),
    rule("ends.wait", C::Timeout, &["{context deadline exceeded|read timed out|gateway time out|gateway timeout}"]),
];
