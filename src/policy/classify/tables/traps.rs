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
        &["{quota|credit*|balance} .. or your {api key|key|token} is {invalid|incorrect|wrong}", "{api key|key|token} is {invalid|incorrect|wrong} or .. {model|endpoint|url} {is|does|name} !found !exist"],
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
    // A field of the request that this server does not know; "not permitted" is no permission.
    invalid(
        "request.extra_argument",
        D::ParameterMismatch,
        &[
            "{extra inputs are not permitted|extra fields not permitted|extra forbidden} @tool",
            "extra {input|inputs|field|fields|key|keys|argument|arguments|properties|property} {is |are |}{not permitted|not allowed|forbidden} @tool",
            "{expected .. received undefined|invalid type .. received undefined} @tool",
            "required & received undefined @tool",
        ],
    ),
    invalid(
        "request.extra_field",
        D::UnsupportedParameter,
        &[
            "extra {input|inputs|field|fields|key|keys|value|values|parameter|parameters|attribute*} {is |are |were |}{not permitted|not allowed|forbidden|not accepted}",
            "{field|fields|parameter|parameters|property|argument|attribute|input|inputs|type|option|item} .. {not permitted|not allowed|not accepted} {by|for|with|in|on} {this|the} {model|endpoint|provider|api|request|version|mode}",
            "{temperature|top p|top k|logprobs|stop|seed|penalty|tools|system|reasoning*|stream*} .. {not permitted|not allowed|not accepted} {for|with|on|by} {this|the} {model|provider|endpoint}",
            "{field|parameter|property} .. is not allowed in {messages|request|the request|body}",
            "extra forbidden",
            "extraneous key*",
        ],
    ),
    // "Does not exist or you have no access": the name is the first thing to check.
    rule(
        "not_found.or_no_access",
        C::NotFound,
        &[
            "{does not|doesnt|do not|not} {exist|found} .. or {perhaps |maybe |possibly |}{you|your project|your account|your organization|your api key|your key|your team|your user|the project|the user|the caller} {do not|does not|doesnt|has no|cannot|cant|dont|may not|might not|lack|are not|arent} {have |}{access|permission*|the permission*|authorization|authorized|allowed|the necessary}",
            "{does not|doesnt|do not|not} {exist|found} .. or {you have |}{no|missing|insufficient|inaccessible|is not accessible|not accessible|is private|access is denied|access denied|permission denied|permission was denied|not permitted}",
            "{not found the model .. or permission denied|missing or inaccessible|authorization failed or requested resource not found|not authorized or not found|not authorized or resource not found|not found or access denied|not found or not authorized|not found or no access|not found or not permitted|invalid .. or not permitted}",
            "not found .. or {permission denied|no permission|insufficient permission*|access denied|no access}",
        ],
    ),
    // A program that cannot be started because it is not there, whoever says so.
    rule(
        "config.command",
        C::Configuration,
        &[
            "{spawn|exec|execvp|posix spawn|execve} .. {enoent|executable file not found|not found in path|no such file}",
            "{command not found|executable file not found|executable not found|binary not found|not recognized as an internal|not recognized as the name of a cmdlet|program not found|is not on path|not found on path|not found in path|not found in your path|not in your path|not in path}",
            "{failed|unable|could not|cannot} {to |}{spawn|launch|exec|execute|start|run} .. {no such file|not found|enoent|cannot find the file}",
            "{exited|exit|exits|failed|terminated|returned} .. code @num:127",
            "{exited|exit|exits|failed|terminated|returned} .. code @num:126",
            "{exit|return|status} {code|status} 127",
            "{sh|bash|zsh} # .. not found",
            "{node|python|python3|npx|uvx|uv|docker|bun|deno} .. {no such file or directory|is not installed|command not found} !node llm !manifests !blobs",
            "bin {sh|bash|zsh|dash} .. not found",
        ],
    ),
    // A file that a tool did not find is not a program that is not installed.
    rule(
        "not_found.file",
        C::NotFound,
        &["{no such file or directory|enoent|file not found|file does not exist|does not exist} !column !field @tool"],
    ),
    // A default page that offers two explanations has none.
    rule("server.either_or", C::ServerError, &["either the server is overloaded or"]),
    // An answer's limit above what the model can write is a parameter, not a prompt.
    invalid(
        "request.max_tokens",
        D::UnsupportedParameter,
        &[
            "max {completion |output |new |}tokens is too large !context length !context window",
            "maximum allowed number of output tokens",
            "supports at most # {completion|output} tokens",
        ],
    )
    .fallback(true),
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
    // TLS speaks of authentication, too: no key was refused.
    rule(
        "network.tls",
        C::Network,
        &[
            "{ssl|tls} .. {not be established|cannot be established|failed to be established} !certificate",
            "received corrupt message",
            "{authentication exception|authentication failed} & {ssl connection|tls connection|ssl stream|ssl exception|secure channel|ssl handshake|tls handshake} !certificate",
        ],
    ),
    // An address or a header that a client refuses to use, or a rule of the browser's: nothing was asked.
    rule(
        "config.client",
        C::Configuration,
        &[
            "{too many redirects|redirect loop|redirected too many times}",
            "{redirect|redirects} .. {exceeded|reached|followed}",
            "{exceeded|stopped after} .. redirects",
            "{invalid|illegal} {character in header|header value|header field*|http header*} !parse error",
            "failed to parse header value",
            "{curl 26|curl error 26|err code 26}",
            "curl .. {encountered when reading a file|failed to open read local data}",
            "unexpected char .. header",
            "{latin #|ascii} codec cant encode @transport @http",
            "to a byte string",
            "{url scheme is not allowed|unsupported protocol scheme|unsupported url scheme|unsupported scheme|unknown protocol scheme|invalid port .. after host|invalid uri|uri is not absolute|url cannot contain}",
            "protocol .. not supported expected {http|https}",
            "{must be an absolute uri|missing dependencies for socks|no transport security set|response protocol downgraded|credentials require transport level security}",
            "cleartext .. not permitted",
            "app transport security",
            "sent to https port",
            "{dynamic client registration|incompatible auth server}",
            "mixed content & https",
            "{cors policy|access control allow origin|cors request did not succeed|cors header}",
        ],
    ),
    // A client that tried again until it was tired says what it got each time.
    rule("rate.retried", C::RateLimited, &["max retries exceeded & error responses @429"]),
    rule("overloaded.retried", C::Overloaded, &["max retries exceeded & error responses @502 @503 @529"]),
    rule("timeout.retried", C::Timeout, &["max retries exceeded & error responses @504 @408 @522 @524"]),
    rule("server.retried", C::ServerError, &["max retries exceeded & error responses @5xx"]),
    // A proxy in between wants its own credentials.
    rule("auth.proxy", C::Authentication, &["{tunnel*|proxy*} @407"]),
    // A gRPC or gateway status that only repeats that no connection came about.
    rule(
        "network.no_connection",
        C::Network,
        &[
            "failed to connect to all addresses",
            "{connections to all backends failing|tcp handshaker shutdown|failed to connect to remote host|empty address list|no addresses found}",
            "{name resolver error|produced zero addresses|returned no addresses|returned zero addresses|channel shutdownnow invoked}",
            "fail connecting to server",
            "resource temporarily unavailable & {http request exception|socket exception|connect|connection|errno 11|os error 11|name resolution} !fork",
            "connection is {draining|closing|shutting down|drained} !cancelled !canceled !timed out !keepalive ping timeout",
            "unavailable & {socket closed|connection reset by peer|connection refused|broken pipe|rst stream|goaway|dns resolution failed|name resolution|name or service not known|connection closed|transport is closing|keepalive} !reset reason overflow !keepalive ping timeout",
            "empty reply from server",
            "returned nothing no headers",
            "network connection {was |}lost",
            "{response|stream|connection|request|body} {has |was |}{ended|closed|terminated} prematurely",
        ],
    ),
    // A socket that says it closes because of a fault of the server's.
    rule("server.websocket", C::ServerError, &["received # internal error !timeout !timed out !did not receive !quota !exhausted !overloaded !unavailable !deadline !exceeded !limit !capacity !api key !not found !cancelled"]),
    rule("timeout.unread_body", C::Timeout, &["error {decoding|reading} response body & {timed out|timeout|time out} !timeout # !timeout #s"]),
    // The transport's fault under the words of a reader.
    rule(
        "network.unread_body",
        C::Network,
        &[
            "error {decoding|reading} response body !expected value !missing field !invalid type !invalid character !timed out !timeout @transport @stream",
            "error {decoding|reading} response body & {transport error|network error|stream error|stream disconnected|connection|interrupted|body error|hyper} !timed out !timeout",
        ],
    ),
    // A body that broke while it was read.
    rule(
        "network.body",
        C::Network,
        &[
            "error decoding response body .. {eof|connection|closed|reset|chunk size}",
            "failed host lookup",
            "stream {has been |was |}aborted !user !client !cancel* !idle !no token !no tokens !no data !no output !timed out !timeout @transport @stream",
            "econnreset & aborted",
        ],
    ),
    // A window with no allowance at all.
    rule(
        "quota.zero_limit",
        C::QuotaExceeded,
        &[
            "quota limit value 0",
            "quota limit value value 0",
            "{per minute|per day|requests|tokens|quota} limit 0",
            "limit {is |of |is set to |set to |value |}0 !is disabled !not found limit 0 !must be !minimum !connection reset !offset",
            "0 {requests|tokens|images|calls} per {minute|day|hour|second|min}",
        ],
    ),
    // How many calls may run at once frees up with every call that ends, even under the name of a quota.
    rule(
        "rate.concurrency",
        C::RateLimited,
        &[
            "{concurrent|concurrency|parallel|simultaneous} {request |requests |session |sessions |connection |stream |call |job |usage |}{quota|limit|cap}",
            "{high|reduce|reducing|lower|decrease|limit} {the |your |}{concurrency|parallelism|number of concurrent|number of parallel|number of simultaneous} !out of memory !memory error",
            "{number of|maximum of|limit of|quota for|limit for|limit on|quota on} {concurrent|simultaneous|parallel} !out of memory !memory error",
            "{requests|messages|calls|jobs|generations|tasks|chats|prompts} at {a|the same|one} time",
            "# {requests|calls|jobs|generations|tasks|streams|sessions|connections} {concurrently|simultaneously|in parallel|at once}",
        ],
    ),
    // A short window beside a long one: the short one is what is hit first.
    rule("rate.two_windows", C::RateLimited, &["{per|every|each} .. {second|minute|hour} {or|and} # .. {day|month}"]),
    // Pools of a day or a month under the name of a rate limit.
    rule(
        "quota.daily_pool",
        C::QuotaExceeded,
        &[
            "free models per day*",
            "too many {tokens|requests|calls|messages|images|generations|queries|prompts|characters|searches} {per|a|each|this|for this|in a|in one|in the} {day|week|month|billing period} !try again in",
            "too many {tokens|requests|calls|messages|images|generations|queries} today",
            "per day per project per model free tier",
            "per day .. free tier",
            "free tier .. per day",
            "free {tier|plan|model|models|quota|usage|requests} .. {daily|per day|today|per month|monthly}",
            "{daily|per day|per month|monthly|weekly} .. free {tier|plan|model|models|quota|usage}",
            "{limit|quota|allowance|reached|exceed*|used} .. {for today|todays|today|for the day|this month|this week|until tomorrow} !try again in",
            "daily free",
            "limit {is |of |}# per {month|week}",
            "{today s|todays|this week s|this month s} {quota|limit|allowance|usage|budget|cap|credits|free}",
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
            "{extra usage is|usage credits are} required",
            "{long context|feature|model|endpoint} .. {not available|not included|unavailable} {in|on|for|with} your {current |}{plan|subscription|tier}",
            "{upgrade|higher} {your |}{plan|tier} to {use|access|unlock} {this|the} {model|feature|endpoint}",
            "your .. {plan|tier|subscription} {does not|doesnt} {include|support|allow|have access|cover|permit|grant|come with}",
            "requires a {paid|pro|higher|premium|enterprise|plus|max} {plan|subscription|tier}",
            "requires {a |an |}{team|pro|paid|enterprise|business} {seat|license|licence|membership}",
            "{plan|tier|subscription} {only |}permits",
            "requires {a |an active |an |}subscription",
            "only available {to|for|on|in|with} {the |a |our |}{paid|pro|premium|enterprise|plus|paying|business|team|higher|subscri*}",
            "{not supported|not available|unavailable|unsupported} {when using .. |}{with|using|for|on} a {chatgpt|chat gpt|free|personal|trial|consumer|basic|standard} {account|plan|subscription|tier}",
            "{paid|pro|premium|enterprise|plus|subscriber|subscribers} {plan |plans |user |users |account |accounts |tier |tiers |}only",
            "{available|accessible|reserved|enabled|restricted} {only |exclusively |}{to|for|on|in|with} {paid|pro|premium|enterprise|plus|paying|business} {user*|plan*|account*|tier*|subscri*|customer*|member*}",
            "unavailable {for|to} {this |your |the |}{account|user|key|api key|organization|project|tenant|team|workspace|subscription|plan|tier}",
        ],
    ),
    // Known, and not allowed: also where the words for a token stand beside it.
    rule(
        "permission.not_entitled",
        C::PermissionDenied,
        &[
            "{无权|没有权限|无权限|权限不足|暂无权限|不允许使用}",
            "grant .. {api key|key|token|app|service account|role|principal|user|account} .. {scope*|permission*|role*|access}",
            "{api key|key|token|credential|credentials|service account|role|principal} {does not|doesnt|do not|lacks|is missing|missing|needs|requires} {have |grant |include |contain |}.. {scope|scopes|permission|permissions|privilege|privileges|entitlement*}",
        ],
    ),
    // An abuse block of a whole account or address.
    rule(
        "permission.abuse",
        C::PermissionDenied,
        &[
            "unusual activity",
            "abuse detect* !please wait !wait a few !secondary rate limit !abuse detection mechanism",
            "suspicious activity",
            "detected abuse",
        ],
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
    rule(
        "cancelled.backend",
        C::Cancelled,
        &[
            "operation was cancelled & backend error",
            "=cancelled & backend error",
            "{failed to load|loading} .. model .. {canceled|cancelled|aborted} !startup !start up !rpc error !core dumped !killed !connection aborted !connection was aborted",
        ],
    )
    .retry(true)
    .fallback(true),
    // A cancel that the text explains by a timeout.
    rule(
        "timeout.cancelled_by_timeout",
        C::Timeout,
        &[
            "{canceled|cancelled|aborted} .. {timeout|timed out|time out|deadline} !timeout 0 !cancelled by the user !canceled by the user",
            "timeout exception .. operation was {canceled|cancelled}",
            "{canceled|cancelled|aborted} after {# s|# sec*|# ms|# min*|#s|#ms|#m|#min}",
            "{canceled|cancelled|aborted} due to .. {timeout|time out|deadline}",
        ],
    ),
    // The model's own tool call could not be read: asking again may work.
    rule(
        "malformed.tool_arguments",
        C::MalformedResponse,
        &["{invalid args|bad args|args|arguments|tool input} .. {invalid character|expecting .. delimiter|unexpected end of json*|eof while parsing|unterminated string|not json|no json|as json|expecting value} !arguments null !args null @tool"],
    )
    .fallback(false),
    rule(
        "malformed.tool_call",
        C::MalformedResponse,
        &[
            "=tool use failed",
            "invalid {input|arguments} for tool .. {json parsing failed|parse error|unexpected token|unexpected end|unterminated*|not valid json}",
            "failed to call a function",
            "malformed function call",
            "failed generation & {failed to call|failed to generate|tool call|adjust your prompt|json}",
            "tool call validation failed",
            "output parse error",
            "output {parsing|parser} exception",
            "output parsing failed",
            "json validate failed",
            "failed to generate json",
            "{json|parse|parsing|unterminated string|decode|decoding} .. {tool call|function call|tool|function} arguments",
            "{invalid args|bad args|invalid arguments|tool arguments|function arguments} .. {invalid character|expecting .. delimiter|eof while parsing|json parsing failed|unexpected token|not json|as json}",
            "{tool call|function call|tool|function} {arguments|input} .. {unterminated*|not valid json|invalid json|json decode error|expecting value|extra data|unparsable|malformed json|parse error|failed to parse}",
        ],
    ),
    rule(
        "overloaded.worker_limit",
        C::Overloaded,
        &[
            "{processing|handling|receiving|experiencing} {currently |far |simply |}too many {concurrent |}requests !requests from you !requests from your",
            "=provider unavailable",
            "worker .. request limit reached",
            "{preempted|evicted|aborted|cancelled|displaced} by .. {higher priority|priority|scheduler}",
            "not {at |in |}ready state",
            "{server|service|runner|replica} .. at {max|maximum|full} {concurrency|capacity}",
        ],
    ),
    // A client guesses at an outage where the status says that the key was refused.
    rule(
        "auth.guessed_outage",
        C::Authentication,
        &["{temporarily|momentarily|currently} {unavailable|down|not available|unreachable} @401"],
    ),
    // Loading and short outages are the provider's state, whatever name stands between the words.
    rule(
        "overloaded.temporary",
        C::Overloaded,
        &[
            "{temporarily|momentarily|briefly} {unavailable|not available|offline|down|out of service|unreachable|inaccessible|overloaded|saturated} !region !country !account !quota !credits !name or service !name changed !was not found !request timed out !invalid api key !incorrect api key !unauthorized",
            "{model|models|deployment|endpoint|adapter} .. {is|are} {currently |still |now |being |}{loading|loaded into memory|warming up|starting up|initializing|spinning up|scaling up|cold starting}",
            "{no more|no other|no remaining|no further|no eligible|no suitable} .. {data center*|datacenter*|server*|backend*|instance*|node*|worker*|replica*|upstream*|host*|gpu*|machine*} !host key !load model !loading model",
            "degraded {function|state|mode|model|service|performance|deployment|endpoint} !lead to degraded !leads to degraded !result in degraded !results in degraded !cause degraded !degraded model performance",
            "{state|status|health|is} {currently |}degraded",
            "model {is |}not {yet |}loaded {yet|it will|but loading|loading}",
            "no {provider|providers|model|endpoint|channel|backend|upstream} {is |are |}{currently |}available {right now|at the moment|at this time|now}",
            "=degraded",
        ],
    ),
];
