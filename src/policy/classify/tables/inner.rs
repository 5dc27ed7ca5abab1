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
            "{had|encountered|hit} {an |}{internal |unexpected |unknown |}{error|problem|issue} {while |when |}{processing|handling|serving} {your|the|this} request !quota !rate limit exceeded !overloaded !timed out !memory !tokens",
            "error occurred while processing your request !quota !rate limit !overloaded !timed out !memory !tokens",
            "internal server error & {check your network|network connection|unexpected response|invalid response|unexpected response format|stream closed|stream disconnected|before completion} !quota !rate limit !overloaded !timed out !memory !tokens !econnreset !econnrefused",
            "{internal error|unexpected error} & {no credits consumed|no credits were|not charged}",
            "unexpected server response @500",
            "argument must be {of type|an instance of|one of type} .. {received|an instance of} @http @stream",
        ],
    ),
    // A limit that says itself to wait, whatever failed after it.
    rule("inner.rate", C::RateLimited, &["too many {tokens|requests} .. wait {before|for|a moment|and}"]),
    invalid("inner.request", D::Other, &["{issue|problem} with your request .. check your {input*|request|parameters}"]),
    // Close frames: the words behind the number say what the number means.
    rule("inner.frame_size", C::ContextLength, &["# message too big"]),
    rule(
        "inner.frame_server",
        C::ServerError,
        &[
            "# internal error & {then sent|no close frame|connection closed error|websocket|close code|closed with} !ping timeout !quota !exhausted !overloaded !unavailable !deadline !limit !api key !cancelled !not found",
        ],
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
            "{connection refused|connection error|connection reset|econnrefused|econnreset|enotfound|failed to connect|unable to connect|could not connect|couldnt connect|trouble connecting|trouble reaching|连接失败|无法连接|连接错误|连接 .. 发生错误} & {may be|might be|could be|maybe|possibly|可能} !running !started !installed !request blocked !timed out",
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
            "is required for type with serial name",
            "{model|llm|assistant|ai} {produced|emitted|generated|made|wrote} {an |a |}{invalid|malformed|broken} {tool|function} call",
            "{credential|credentials} {validation|validate} .. {invalid response|empty response|unexpected response}",
        ],
    ),
];
