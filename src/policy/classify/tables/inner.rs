//! The plain reason inside a louder text: client class names, close frames, and what a wrapper guesses around a fact.
//!
//! Asked early, because the louder words are names that finer tables know; each phrase asks for the fact itself.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A provider's own apology, whatever a client calls it.
    rule(
        "inner.server_error",
        C::ServerError,
        &[
            "{server|service|system|model|engine|backend|openai|provider} {had|has|encountered|hit} {an |}{internal |unexpected |unknown |}{error|problem|issue} {while |when |}{processing|handling|serving} {your|the|this} request !quota !rate limit exceeded !overloaded !timed out !memory !tokens",
            "internal server error & {unexpected response|invalid response|unexpected response format|stream closed} !quota !rate limit !overloaded !timed out !memory !tokens !econnreset !econnrefused",
            "{internal error|unexpected error} & {no credits consumed|no credits were|not charged}",
            "lua # .. must be {a |an |of type }{string|number|table|boolean|function|object} @5xx",
            "bad argument # .. {expected|got} .. {lua|nil|no value|stack traceback} @5xx",
            "unexpected server response @500",
            "{failed to|unable to|could not|error} {update|updating|consume|consuming|record|recording|write|writing|insert|inserting|increase|decrease|sync|cache} {the |user |token |channel |account |request |remaining |}{quota|usage|quotas|remain quota|usage log|usage logs|quota record} !insufficient !not enough !exceed*",
            "{error|failure|problem} {was |has been |is |}{encountered|occurred|raised|thrown} {while|when|during} {running|executing|serving|evaluating} {the |this |your |}{model|inference|prediction|pipeline|generation} !quota !memory !cuda !timed out !timeout !not found !overloaded !unavailable !invalid !out of !eof !connection !reset !deadline !too long !context",
            "argument must be {of type|an instance of|one of type} .. {received|an instance of} @http @stream",
        ],
    ),
    // More output asked for than the model writes is its own cap, and no long prompt.
    invalid(
        "inner.output_cap",
        D::Other,
        &[
            "maximum tokens you requested exceed* the model limit",
            "{number of |}{output|completion|generated} tokens {you |}requested {# |}.. {exceed*|larger than|greater than|more than|above|over} !context !prompt !input",
            "{max tokens|max output tokens|max completion tokens|max new tokens} {# |is # |of # |value |parameter |}{exceed*|is above|is over|is larger than|is greater than|cannot exceed|must not exceed} {the |}{# |}{output|completion|model|models|maximum|max} {limit|maximum|completion|output|length|number|tokens|capacity|#} !context !prompt !input !budget",
            "{max tokens|max output tokens|max completion tokens} {value |parameter |is # |# |must be |should be |}.. {valid range|supported range|allowed range|range is|range of} !context",
            "maximum number of {completion|output} tokens {this|the|that|allowed|supported|for}",
            "maximum value for max {completion |output |new |}tokens",
        ],
    )
    .fallback(true),
    // A tensor of the wrong shape will be so again.
    rule(
        "inner.tensor",
        C::ServerError,
        &[
            "{index out of range in self|index select invalid index}",
            "size of {the |}tensor .. must match",
        ],
    )
    .retry(false),
    // A limit that says itself to wait, whatever failed after it.
    rule(
        "inner.rate",
        C::RateLimited,
        &[
            "too many {tokens|requests} .. wait {before|for|a moment|and} !per day !per month !per week !daily !monthly",
            "{rate limit exceeded|rate limit reached|rate limited|too many requests} & {permission denied|forbidden|access denied} !per day !daily !monthly !quota !credits !billing !balance",
        ],
    ),
    rule(
        "inner.per_day",
        C::QuotaExceeded,
        &["too many {tokens|requests|calls|messages|queries|images} per {day|week|month} !try again in"],
    ),
    invalid("inner.request", D::Other, &["{issue|problem} with your request .. check your {input*|request|parameters}"]),
    // How much an answer may hold at most, and how many things one call may bring, are this model's and vendor's own.
    invalid(
        "inner.max_tokens",
        D::UnsupportedParameter,
        &[
            "{max|maximum} {completion |output |new |response |}tokens .. {cannot exceed|can not exceed|must not exceed|at most|larger than|greater than|exceed* {the |this |}{model|models|maximum|max|allowed}|above the|bigger than|must be less|must be lower|must be smaller|should be less|less than or equal} !prompt !context !input !inputs !per minute !total !quota !rate !budget",
            "{reduce|lower|decrease} {the |}.. {max tokens|max completion tokens|max new tokens|output tokens|max output tokens|completion tokens} !prompt !context !input !inputs !per minute !quota !credits !afford !rate limit",
            "{maximum|max} {output |completion |}tokens {you |}requested exceed* !prompt !context !input !inputs",
            "{requested|requests|asked for} .. {output|completion} tokens .. {at most|only|maximum|limit*|supports} !rate limit !too many requests !prompt !context !input !inputs !per minute !quota !credits",
        ],
    )
    .fallback(true),
    invalid(
        "inner.own_limit",
        D::Other,
        &[
            "max tokens must be {greater|larger|higher|more} than {the |}{thinking|reasoning}",
            "{max|maximum} {completion |output |new |response |}tokens .. range !prompt !context !input !inputs !per minute !total !quota !rate",
            "{batch size|batch} .. {larger than|exceed*|at most|greater than|no more than|not be more|over the maximum|above the maximum|more than #} !memory !cuda !rate !quota !per minute !tokens !characters !chars",
            "{max|maximum} {number|count|amount} of {documents|texts|passages|sentences|chunks|queries|inputs|strings|tools|functions|stop sequences|choices|candidates} !tokens !rate !quota !per minute",
            "{tool description|function description|tool name|function name|tool call id|tool names} .. {too long|exceed*|longer than|at most #|maximum length|maximum of #} !deadline exceeded !timed out !rate limit !quota !prompt !tokens !must start",
            "{description|title|label} .. {exceed*|too long|longer|at most|maximum} .. characters !prompt !tokens",
            "{too many|at most #|no more than #|maximum of #|up to #|limit of #|more than #} {documents|texts|passages|sentences|chunks|strings|inputs|tools|functions|stop sequences} !tokens !rate !quota !per minute !per second !per day !per month",
        ],
    )
    .fallback(true),
    // The name of a place that only this platform has.
    invalid(
        "inner.own_place",
        D::BadSchema,
        &[
            "{have to|must|need to|required to|please|should} {specify|provide|pass|set|include|supply} {the |a |your |an |}{folder|compartment|space|workspace|tenancy|catalog} {id|identifier} !config* !environment !settings !env",
            "specify {the |a |your |}{folder|compartment|space|workspace|tenancy} {id|identifier} !config* !environment !settings !env",
            "{folder|compartment|space|workspace|tenancy} id {field |parameter |}{is |}{required|missing|must be|not specified|not provided|should be} !config* !environment !settings !env",
        ],
    )
    .fallback(true),
    // Close frames: the words behind the number say what the number means.
    rule("inner.frame_size", C::ContextLength, &["# message too big"]),
    rule(
        "inner.frame_server",
        C::ServerError,
        &[
            "# internal error & {then sent|no close frame|connection closed error|websocket|close code|closed with} !timeout !timed out !did not receive !quota !exhausted !overloaded !unavailable !deadline !limit !api key !cancelled !not found",
        ],
    ),
    rule(
        "inner.frame_timeout",
        C::Timeout,
        &["received # internal error .. {did not receive|timeout window|timed out|deadline|idle timeout|inactivity}"],
    ),
    invalid(
        "inner.frame_request",
        D::Other,
        &[
            "# invalid frame payload data .. {invalid argument|argument|field|parameter|setup|unsupported|malformed} !api key !not found !quota",
        ],
    ),
    invalid(
        "inner.frame_protocol",
        D::Other,
        &[
            "# policy violation .. {must be provided|must be the first|must be sent|field|parameter|argument|unexpected message|not implemented} !api key !not found !quota !limit !exceeded !permission*",
        ],
    )
    .fallback(true),
    // A browser is asked for, and there is none.
    rule(
        "inner.challenge",
        C::PermissionDenied,
        &["enable {javascript|java script} and cookies", "{challenge error text|cf challenge|cf chl opt|cf mitigated challenge}"],
    ),
    // A refused connection stays one, whatever a wrapper makes of it.
    rule(
        "inner.connection",
        C::Network,
        &[
            "{cause|caused by} .. {econnreset|econnrefused|enotfound|eai again|socket hang up|other side closed|ehostunreach|enetunreach}",
            "{aborted|cannot read properties|cannot read property} & {econnreset|socket hang up|epipe}",
            "{failed to establish a new connection|new connection error} & {max retries exceeded with url|caused by}",
            "{delayed connect error|remote connection failure|name resolver error}",
            "service unavailable error .. {connection error|connection refused|cannot connect|connect call failed|connect error}",
            "contacting dns",
            "{host|hostname|server name} {was |is |}{not found|could not be found|not be found} !key !header !upstream !config* !agent",
            "{无法解析服务器|无法解析主机|无法解析域名|域名解析失败|解析域名失败|名前を解決できません|ホスト名を解決}",
            "{主机名的服务器|主機名稱的伺服器|ホスト名のサーバ|호스트 이름을 가진 서버|angegebenen hostnamen|указанным именем хоста|nombre de host especificado|nom d hôte précisé|nome de host especificado|nome host specificato}",
            "dns .. {timed out|timeout}",
            "timeout .. dns",
            "net err aborted",
        ],
    ),
    // A name that the certificate does not hold, in the words for people who are not verified.
    rule("inner.certificate", C::Network, &["hostname .. not verified", "{ssl peer unverified|ssl handshake exception} .. not verified"]).retry(false),
    // Who guesses tells a fact first.
    rule(
        "inner.connection_guess",
        C::Network,
        &[
            "{connection refused|connection error|connection reset|econnrefused|econnreset|enotfound|failed to connect|unable to connect|could not connect|couldnt connect|trouble connecting|trouble reaching|连接失败|无法连接|连接错误|连接 .. 发生错误} & {may be|might be|could be|maybe|possibly|可能} !running !started !installed !cuda !out of memory !request blocked !timed out",
            "trouble {connecting|reaching|contacting|communicating}",
        ],
    ),
    rule(
        "inner.timeout_guess",
        C::Timeout,
        &[
            "{timed out|time out|超时} & {may be|might be|could be|maybe|possibly|可能} !dns !certificate !running !started !installed",
        ],
    ),
    rule(
        "inner.empty_guess",
        C::MalformedResponse,
        &[
            "{empty response|empty answer|empty reply|empty completion|blank response} & {may be|might be|could be|may have|might have|可能} !safety !filter* !blocked !moderation !policy",
        ],
    ),
    // Readers of answers that are not of our language: JVM, .NET, Swift.
    rule(
        "inner.reader",
        C::MalformedResponse,
        &[
            "unrecognized token .. was expecting",
            "is an invalid start of a {value|property name}",
            "data couldnt be read because it",
            "{未能读取数据|无法读取数据|無法讀取資料|正しいフォーマットではないため|올바른 포맷이 아니|データを読み込めません}",
            "{daten konnten nicht gelesen werden|données n ont pas pu être lues|podido leer los datos|прочитать данные|possível ler os dados|impossibile leggere i dati}",
            "{no value associated with key|key not found coding keys|expected to decode .. but found|decoding error {key not found|value not found|type mismatch|data corrupted}}",
            "is required for type with serial name !overloaded !unavailable !quota !exhausted !api key not valid",
            "json decode .. argument # must be of type",
            "tried to {use|call|invoke} .. without value",
            "{key not found|value not found|type mismatch|data corrupted|decoding error} & {coding keys|coding path}",
            "no value {was |}{found for|associated with} {dictionary |the |}key",
            "expected {begin object|begin array} but was",
            "{mismatched input exception|unrecognized property exception|missing kotlin parameter exception|value instantiation exception} !http message not readable* !request body !bad request",
            "is not a subtype of type !tool @http @stream @transport",
            "failed to {deserialize|decode|parse|unmarshal} {the |}{api |model |provider |}response .. {unknown variant|missing field|invalid type|expected value|did not match}",
            "unknown variant .. expected one of .. {stop|length|tool calls|function call} !request",
            "{model|llm|assistant|ai} {produced|emitted|generated|made|wrote} {an |a |}{invalid|malformed|broken} {tool|function} call",
            "{credential|credentials} {validation|validate} .. {invalid response|empty response|unexpected response}",
        ],
    ),
];
