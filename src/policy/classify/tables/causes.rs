//! Causes inside wrappers, told by the build of the sentence: who did what to what.
//!
//! A wire code, a client's class name or a first attempt says one thing, and the clause behind it says what happened. Each
//! phrase here asks for a subject, a verb and an object, so it holds for wordings that nobody listed.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A wire code around an apology.
    rule(
        "cause.internal",
        C::ServerError,
        &[
            "{permission denied|failed precondition|invalid argument|unauthenticated} .. {internal error occurred|internal server error|internal error has occurred} !quota !credits !timed out !api key",
        ],
    ),
    // Somebody else's word for a credential that they did not take.
    rule(
        "cause.credential_refused",
        C::Authentication,
        &[
            "{rejected|refused|declined|refuses|rejects|turned down|not accept|not recognize|not recognise|not honor|not honour|disallowed} {the |our |your |its |this |that |these |my |supplied |provided |given |configured |stored |a |an |}{gateways |gateway |routers |channels |proxys |clients |supplied |provided |given |configured |current |invalid |}{credentials|credential|api key|api keys|apikey|access key|access token|auth token|bearer token|token|key} !tool call",
            "{credentials|credential|api key|api keys|apikey|access token|auth token|bearer token} {we |you |it |i |that |which |}{presented|sent|supplied|provided|configured|used|stored|given|passed|set} .. {rejected|refused|declined|turned down|not accepted|no longer accepted} !unsupported",
            "{credentials|credential|api key|apikey|access token|auth token|key} .. {turned down|rejected|declined|not honored|not honoured} by !by you !by user !by the user !by operator !by the operator",
            "{token|key|credential|credentials} must be {passed|sent|provided|supplied|included|given|set} {as|in|via|through|with|inside} {a |an |the |}{http |request |}{header|authorization|x api key|bearer}",
        ],
    ),
    // A first step that found nothing, and a second one that got no connection.
    rule(
        "cause.last_attempt",
        C::Network,
        &[
            "{failed|unable|could not|couldnt|cannot} {to |}{connect|reach|dial|open} .. {econnreset|econnrefused|enotfound|ehostunreach|enetunreach|eai again|epipe} !running !started !installed !certificate !mcp server",
            "{maximum retries|max retries|retries} .. for url !error responses !status code",
        ],
    ),
    // Why a start came to nothing.
    rule(
        "cause.start",
        C::Crash,
        &[
            "{engine|runtime|backend|worker|runner|process|server|daemon|protocol} {protocol |process |}{startup|start up|initialization|initialisation|boot|launch} {was |has been |got |}{aborted|interrupted|cancelled|canceled|terminated|killed}",
        ],
    ),
    rule(
        "cause.load_cancelled",
        C::Cancelled,
        &[
            "{load|loading|download|downloading|generation|prediction|startup} .. {aborted|cancelled|canceled|stopped|interrupted} {due to|because of|on|at|by|following|upon} {a |the |}{user|users|operator|caller}",
        ],
    ),
    rule(
        "cause.load_rpc",
        C::ServerError,
        &["{could not|cannot|failed to|unable to} load model .. rpc error .. {canceled|cancelled|unknown} !no such file !not found !eof"],
    )
    .retry(false),
    // The worker is stopped because the time is up, and not the other way round.
    rule(
        "cause.own_timeout",
        C::Timeout,
        &[
            "{hit|reached|exceeded|exceeds|hits|reaches} {its|their|the} {own |configured |maximum |}{timeout|time limit|time out|deadline}",
            "{exceed*|over|overran|past} {its|the|their|a} {# s|# sec*|#s|#ms|# ms|#m|# min*} {allowance|limit|budget|cap|timeout|window|maximum|deadline}",
            "{aborted|abort error|request aborted} & at timeout",
        ],
    ),
    // One text for all faults; what stands in brackets behind it is the fault.
    rule(
        "cause.bracketed_permanent",
        C::ServerError,
        &["refresh this page .. {not implemented for|unsupported|must match|no kernel image}"],
    )
    .retry(false),
    rule(
        "cause.bracketed",
        C::ServerError,
        &["refresh this page .. {tensor|nan|expected|index|shape|dtype|type error|value error|key error|assertion|list|object} !out of memory !no available worker"],
    ),
    // Sizes of what goes before a message.
    invalid(
        "cause.metadata_size",
        D::Other,
        &[
            "{metadata|header|headers|trailers|cookie|cookies} {list |field |fields |}{size |}{exceed*|too large|is too large|are too large|too big|larger than} !authorization header !deserializing header",
            "request header {or cookie |fields |field |}too large",
        ],
    ),
    // A stream or socket that was closed with a reason: the reason counts.
    rule(
        "cause.closed_unauthorized",
        C::Authentication,
        &[
            "{websocket|web socket|socket|connection|session|ws} {is |was |has been |connection |}{closed|disconnected|rejected|terminated} .. {not authorized|unauthorized|unauthenticated|invalid token|invalid api key|authentication failed|invalid credentials|bad token|expired token} !permission !model",
        ],
    ),
    invalid(
        "cause.closed_unsupported",
        D::UnsupportedParameter,
        &[
            "not implemented or supported or enabled",
            "{websocket|web socket|socket|connection|session|ws} {is |was |has been |connection |}{closed|disconnected|rejected|terminated} .. {does not support|doesnt support|not supported|unsupported|not implemented} !country !region !territory !location",
        ],
    ),
    invalid(
        "cause.closed_invalid",
        D::Other,
        &[
            "{websocket|web socket|socket|connection|session|ws} {is |was |has been |connection |}{closed|disconnected|rejected|terminated} .. {invalid argument|invalid request|invalid frame payload|bad request|unexpected message|invalid message|unsupported data} !api key !quota !not found !maximum duration !expired",
        ],
    ),
    // Something ended, and what is missed is content and not the end.
    rule(
        "cause.ended_unusable",
        C::MalformedResponse,
        &[
            "{ended|finished|closed|completed|stopped|terminated|concluded} {the |its |a |}{response|stream|reply|answer|generation|turn|message} .. {without|before} {returning |producing |sending |giving |delivering |yielding |}{any |a |}{usable|valid|visible|final|readable} {output|content|text|answer|response|reply|result}",
        ],
    ),
    // Nothing at all came over the wire.
    rule(
        "cause.nothing_sent",
        C::Network,
        &[
            "no headers no data",
            "{server|peer|host|upstream|remote} {returned|sent|gave|delivered} {nothing|no data|no bytes|no response|0 bytes} .. {closed|hung up|disconnect*|dropped|closing|no headers}",
            "unavailable & {socket operation|dns server|dns query|dns lookup|wsa error|econnreset|econnrefused|os error 104|os error 111}",
        ],
    ),
    // An answer of a medium in which the medium is missing.
    rule(
        "cause.no_medium",
        C::MalformedResponse,
        &[
            "no {audio|image|images|video|transcript|transcription|speech|embedding|embeddings|vector|vectors|picture|pictures|translation|summary|caption} {data |frames |frame |bytes |chunks |output |content |url |urls |result |results |file |}{was |were |is |are |has been |have been |}{received|returned|produced|generated|pushed|emitted|created|synthesized|found in|in response|in the response|in result} !upload* !uploaded !attach* !input !microphone !request body !did not receive !timeout window !timed out !safety !filtered !policy !moderation !blocked",
            "{returned|produced|generated|contains|contained|gave|yielded|has|had|with|emitted|sent back|delivered} no {audio|image|images|video|transcript|transcription|embedding|embeddings|vector|vectors|pictures|translation} !upload* !attach* !input !support !timed out !safety !filtered !policy !moderation !blocked",
            "expected # {embeddings|vectors|items|results|choices|translations|segments|lines|entries|elements|outputs|answers} {but |}{got|received|found|returned|have} {#|0|none}",
            "{got|received|returned} # {embeddings|vectors|translations|results|items} .. {expected|for|instead of|but} #",
        ],
    ),
    // The answer, and a word that it is not what it should be.
    rule(
        "cause.odd_answer",
        C::MalformedResponse,
        &[
            "{incorrect|unusable|strange|odd|weird|nonsensical|abnormal|inconsistent|improper|unparsed} {response|answer|reply|output|completion} {from|by|of|received|returned|format|structure|data}",
            "{response|answer|reply|output|completion} {did not|does not|didnt|doesnt|do not|failed to|fails to} {respect|satisfy|obey|meet|honor|honour|fulfil|fulfill|adhere|correspond|pass validation} !rate !safety !moderation !policy",
            "{model|llm|ai|assistant|agent} {response|answer|reply|output|completion|message|result} {is |was |came back |returned |}{empty|blank|null|missing}",
            "{response|answer|reply|output} {hit|hits|reached|exceeded|exceeds|ran into} .. {length limit|output limit|output token*|output tokens|maximum length|token maximum} !prompt !input !context",
            "validation error* for {llm |chat |tool |text |}{result |completion |response |stream |}{chunk|completion|response|result|delta|choice|choices|reply|output|usage} !request",
            "cannot read {properties|property} of {undefined|null} !econnreset !socket hang up !enotfound !econnrefused !internal server error @http @stream",
        ],
    ),
    // A limit of how many things an account may own is its plan's.
    rule(
        "cause.owned_things",
        C::QuotaExceeded,
        &[
            "{workspace|workspaces|project|projects|skill|skills|assistant|assistants|knowledge base|knowledge bases|chatbot|chatbots|bots|apps|seats|members|collections|namespaces|vector stores|fine tuned models|fine tunes|deployments|custom models|cloned voices|custom voices|voices|indexes|indices|databases|pods|webhooks|datasets|notebooks|spaces|environments|sandboxes} {limit|quota|cap|count|maximum} {is |was |has been |of # |for this plan |for your plan |}{exceeded|reached|hit|exhausted} !concurrent !per minute !per second",
            "{maximum|max} {number of |amount of |count of |allowed |}{workspaces|projects|skills|assistants|knowledge bases|chatbots|bots|apps|seats|members|collections|namespaces|vector stores|fine tuned models|deployments|custom models|voices|indexes|databases|webhooks|datasets|spaces|sandboxes} .. {reached|exceeded|limit|plan|allowed} !concurrent !per minute !per second",
            "{at most|up to|only|limited to|limit of|maximum of} # {workspaces|projects|skills|assistants|knowledge bases|chatbots|bots|apps|seats|members|collections|namespaces|vector stores|deployments|custom models|cloned voices|voices|indexes|databases|webhooks|datasets|spaces|sandboxes} !concurrent !per minute !per second",
        ],
    ),
    // Money that is on its way.
    rule(
        "cause.settling",
        C::QuotaExceeded,
        &[
            "{charge|payment|transaction|top up|topup|invoice|deposit|balance} .. {being reconciled|being settled|being processed|still pending|being verified|is pending|still processing|being credited|not settled} .. {retry|try again}",
        ],
    )
    .retry(true),
    // Policies of an organisation, and not of a safety team.
    rule(
        "cause.access_policy",
        C::PermissionDenied,
        &[
            "{denied|blocked|restricted|disabled|forbidden|prevented|disallowed|prohibited|refused|rejected} by {the |your |our |a |an |its |}.. {access|iam|vpc*|copilot|organization|organisation|org|company|companys|enterprise|corporate|tenant|workspace|network|admin|administrators|rbac|egress|compliance|firewall|service control|service controls|device} {access |control |controls |perimeter |copilot |usage |service controls |security |}{policy|policies|rule|rules} !content policy !safety policy !content management",
            "access {denied|blocked|restricted|disabled|forbidden|refused|not allowed|prohibited} {by|due to|under|because of|per} .. {policy|policies} !content policy !safety policy !content management",
            "{abnormal|account|login|caller|access|behavior|behaviour|device|ip} .. risk control !content exists",
            "risk control .. {abnormal|account|login|caller|access|device|ip|behavior|behaviour}",
            "{用户|账号|账户|帐号|该账号|该用户|客户端} .. {被限制|受限|限制访问|访问受限|已冻结} !频繁 !过快 !频率 !次数 !余额 !额度 !欠费 !并发 !请求",
            "{tier|plan|key|account|subscription|license|token|access|trial|credential|credentials|model|models} can only be {used|accessed|called|invoked|run|consumed} {from|within|inside|in|through|via|by} !region !max tokens",
        ],
    ),
    // Neither access nor a right name: the name is the first thing to check.
    rule(
        "cause.no_access_or_name",
        C::NotFound,
        &[
            "{access|permission} .. {model|deployment|endpoint|resource} .. or .. {name is invalid|name is wrong|name is incorrect|id is invalid|id is wrong|misspelled|mistyped}",
            "{claude|gpt|gemini|llama|mistral|qwen|deepseek|grok|gemma|embedding} .. {not supported|not available|not served|not offered} {in|by|via|through|on} the .. api !parameter !region !country !tools !function",
            "{not available|not supported|not served} for publishers",
            "model .. is not supported for format",
        ],
    ),
    // A safety system as the one who acts.
    rule(
        "cause.safeguards",
        C::ContentFiltered,
        &[
            "{safeguards|safeguard|safety classifier|safety classifiers|safety measures} .. {flagged|blocked|tripped|triggered|stopped|refused|paused|intervened}",
            "flagged {this|your|the} {message|conversation|request|prompt|content|chat|input|query|image|text} !rate !spam !traffic",
            "{prompt|input|request|response|output|content|message|image} {was |is |has been |}{blocked|refused|rejected} {content policy|safety|moderation|by safety|by moderation|guidelines}",
        ],
    ),
    // More text than fits, in few words.
    rule(
        "cause.tokens_exceeded",
        C::ContextLength,
        &[
            "{max|maximum} {input |prompt |context |total |sequence |}tokens {limit |}{of |# |of # |}{was |were |is |}exceeded !higher limit !credits !afford !per !output !completion !rate !day !budget",
            "token limit of # {was |is |has been |}{exceeded|surpassed} !per !day !rate !month !minute",
        ],
    ),
    // Who may speak in a conversation is each vendor's own.
    invalid("cause.tool_role", D::MessageOrder, &["unexpected role tool after"]),
    invalid(
        "cause.unexpected_role",
        D::MessageOrder,
        &["unexpected role {role enum|user|assistant|system|tool|developer|function}"],
    )
    .fallback(true),
    invalid("cause.batch_size", D::Other, &["batch size # {maximum|max} allowed batch size"]),
    // A word of a query that its language does not know is no credential.
    invalid(
        "cause.syntax",
        D::Other,
        &[
            "{invalid|unexpected|illegal|unknown|bad} {token|symbol|operator|character|identifier} .. {query string|expression|filter string|formula|at column|near position|in the query|in query} !unexpected token in json !json at position",
        ],
    ),
    invalid(
        "cause.unknown_key",
        D::BadSchema,
        &["{unknown|unrecognized|unrecognised|unexpected} {key|keys} .. {in request|in the request|in body|in the body|in payload|in object}"],
    ),
    // A body that names no target.
    invalid(
        "cause.unnamed_target",
        D::BadSchema,
        &[
            "no {model|deployment|provider|engine|messages|prompt|input} {was |is |has been |name |id |}{provided|specified|given|sent|supplied|named|set|found|present|included} in {the |your |this |}{request|body|payload|request body|json|call|query}",
        ],
    ),
    // How an address of a database is written.
    rule(
        "cause.connection_string",
        C::Configuration,
        &[
            "{invalid|malformed|bad|wrong|unparsable|missing} {dsn|connection string|connection uri|connection url|database url|jdbc url|connection info string|redis url|postgres url}",
            "{dsn|connection string|database url} {is |was |}{invalid|malformed|missing|not set|empty}",
        ],
    ),
    // A schema of a tool that could not be checked.
    invalid(
        "cause.tool_schema",
        D::BadSchema,
        &["{failed|unable|could not|cannot} to validate tool .. {type error|schema|in operator|property}", "{invalid|malformed|broken} tool {schema|definition} @tool"],
    ),
];
