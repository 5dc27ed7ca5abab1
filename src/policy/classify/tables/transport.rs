//! No answer, a late one or half of one: timeouts, cancels and broken connections as Node, Python, Go, Java, Rust, .NET, Bun,
//! curl and gRPC word them.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule(
        "network.certificate",
        C::Network,
        &[
            "{certificate verify failed|cert verification error|ssl cert verification*|self signed certificate|unable to get local issuer|unable to verify the first|certificate has expired|certificate is not yet valid|certificate expired|x509|unknown authority|cert authority invalid|unknown issuer|invalid peer certificate|hostname mismatch|pkix path|unable to find valid certification|cert path validator*|depth zero self signed*|unable to verify leaf*|cert has expired|cert altname invalid|altnames|ssl peer certificate|remote certificate is invalid|remote certificate was rejected|certificate is not trusted|certificate not trusted|certificate signed by|bad certificate|untrusted root|ssl certificate problem|certificate problem|not valid for name|certificate unknown|err tls cert*|invalid certificate|certificate required|certificate chain}",
        ],
    )
    .retry(false),
    rule(
        "timeout.words",
        C::Timeout,
        &[
            "{timed out|time out|timeout error|timeout exception|request timeout|gateway timeout|gateway time out|read timeout|connect timeout|connection timeout|idle timeout|timed out after|timeout exceeded|timeout of|timeout waiting|timeout while|timeout after|timeout error|headers timeout|body timeout|socket timeout|operation timeout|timeout reached|timeout expired|request time out|api timeout|upstream timeout|inactivity timeout|stream timeout|timeouterror|timeoutexception|exceeded timeout|hit timeout|response timeout|apitimeouterror|readtimeout|connecttimeout|sockettimeout|execution timeout|processing timeout|polling timeout|generation timeout|upstream request timeout|timeout calling|due to timeout|timeouts|timedout|write timeout|pool timeout}",
            "{und err headers timeout|und err body timeout|und err connect timeout|etimedout|esockettimedout|econnaborted .. timeout|err timed out|err connection timed out|errno 110|errno 60|os error 110|os error 60|err code 28|curl 28|curl error 28}",
            "timeout # {ms |s |seconds |}{exceeded|elapsed|expired|reached}",
            "timeout {exceeded|elapsed|expired|reached}",
            "=timeout*",
            "=request timed out",
            "deadline exceeded",
            "deadline {has |}{expired|elapsed|passed|been exceeded}",
            "{took|taking} too long",
            "{did not|didnt|failed to|not} {respond|complete|finish|receive .. response|return} {in time|within|before the}",
            "{no response|no data|no answer|no output|no token*|no chunk*|no events|no activity|silence} {was |were |}{received |}{for|within|after|in} #",
            "{stalled|stream stalled|stream idle|idle for|stream has been idle|no progress}",
            "{exceeded|exceeds} {the |}{maximum |max |}{execution time|time limit|processing time|wait time|response time|duration|time allowed|allowed time}",
            "{task|function invocation|lambda|invocation} timed out",
            "function invocation timeout",
            "{超时|请求超时|连接超时|响应超时}",
            "{タイムアウト|시간 초과|zeitüberschreitung|délai d|tiempo de espera|тайм аут|время ожидания}",
        ],
    ),
    rule(
        "cancelled.words",
        C::Cancelled,
        &[
            "context canceled",
            "context cancelled",
            "{client|caller} {has |}{cancelled|canceled|closed request|closed the request|disconnected|aborted|went away|closed connection}",
            "client closed request",
            "{request|call|operation|task|stream|run|generation|execution|query|the operation|this operation} {was |has been |is |}{cancelled|canceled|aborted|interrupted} !timeout",
            "{abort error|aborterror|cancelled error|canceled error|task canceled exception|operation canceled exception|asyncio cancelled*|canceled exception|cancellation exception|api user abort error|request aborted|the user aborted|signal is aborted|signal aborted|aborted without reason|cancel scope|was cancelled|was canceled|been cancelled|been canceled}",
            "={cancelled|canceled|aborted}",
            "status code cancelled",
            "cancelled call",
            "# cancelled",
            "{已取消|用户取消|请求取消|被取消|中止}",
        ],
    ),
    rule(
        "network.words",
        C::Network,
        &[
            "{econnrefused|econnreset|enotfound|eai again|ehostunreach|enetunreach|epipe|econnaborted|enetdown|ehostdown|und err socket|und err closed|err connection*|err network*|err name not*|err internet*|err socket*|err http2*|err stream*|err ssl*|err address*|err proxy*|eproto|err empty response|econnection*}",
            "{connection|connect|socket|stream|tcp|conn|channel|pipe|transport} {was |is |has been |has |been |unexpectedly |error |call |attempt |forcibly |closed |could not be |}{refused|reset|closed|aborted|dropped|lost|terminated|broken|failed|hang up|error|disconnected|interrupted|unexpectedly|forcibly|severed|hangup|died|shut down|established}",
            "{closed|reset|dropped|terminated|lost|aborted|refused} {the |}connection",
            "{failed|unable|could not|couldnt|cannot|error|cant|not able} {to |}{connect|connecting|establish*|reach|resolve|open {a |}connection} !running",
            "{connecterror|connection error|connection refused error|connection reset error|api connection error|apiconnectionerror|remote protocol error|client connector error|client os error|server disconnected*|server disconnected error|protocol error|new connection error|max retries exceeded with url|client payload error|response payload is not completed|incomplete read|chunked encoding error|incomplete message|incomplete chunked read|premature close|premature end|err stream premature close|unexpected eof|peer closed connection|remote end closed|without response|body error|remote disconnected|socket hang up|broken pipe|network error|networkerror|network is unreachable|no route to host|host is unreachable|host unreachable|network unreachable|network changed|network connection|fetch failed|failed to fetch|failed fetch|load failed|error sending request|error decoding response body|request or response body error|do request failed|io exception|ioexception|upstream prematurely closed|eof occurred|bad record mac|closed before message completed|terminated other side closed|other side closed|unexpected end of file|unexpected end of stream|unexpected disconnect|transport closing|error reading from server|connection forcibly|goaway|go away|the socket connection|broken connection|null connection|connection pool .. {failed|exhausted}|ssl error|tls handshake*|ssl handshake*|handshake failure|handshake failed|ssl exception|ssl routines|tls connection|tls alert|client network socket disconnected|eof was observed|no such host|dns|name resolution|name or service not known|nodename nor servname|getaddrinfo*|could not resolve host*|cannot resolve|unresolved address exception|unknown host|unknown host exception|unable to resolve|failed to lookup address|failed to resolve|temporary failure in name|lookup .. {no such|server misbehaving|i o timeout}|name does not resolve|resolve host|internet connection|check your {internet|network|connection}|offline|proxy error|unable to connect to proxy|proxy connection|tunnel connection failed|tunneling socket|bad proxy|is the computer able to access}",
            "{errno 111|errno 104|errno 101|errno 113|errno 32|errno 54|errno 61|os error 111|os error 104|os error 10061|os error 10054|os error 54|os error 61|os error 32|win error 10060|win error 10061|win error 10054|win error 10053|win error 10051|win error 10065|win error 11001|err code 7|err code 6|err code 56|err code 35|err code 52|err code 18|err code 92|curl 56|curl 7|curl 6|curl 35|curl 18|curl 52|curl 92|curl 16}",
            "{rst stream|http2 .. {error|stream}|http 2 .. {error|stream|framing}|stream error|stream closed|stream reset|stream terminated|received rst|refused stream|ping timeout|keepalive|quic|nghttp2*|h2 protocol error}",
            "{stream|response|connection} {ended|closed|terminated|cut|broke|interrupted|disconnected|was closed|closed early} {before|without|unexpectedly|early|prematurely|abruptly|mid|while|by}",
            "{stream disconnected|stream interrupted|disconnected before|stream was interrupted|before completion|before response}",
            "=eof",
            "eof & {post|get|read|url}",
            "url eof",
            "unexpected eof",
            "{connection|upstream} {terminated|disconnected}",
            "disconnect reset before headers",
            "terminated & {type error|typeerror|fetch on aborted}",
            "transport error",
            "=terminated",
            "{网络错误|连接失败|连接被|网络异常|无法连接|连接重置|连接中断|网络连接|连接错误|断开连接|链接失败}",
            "{ネットワークエラー|接続できません|接続エラー|네트워크 오류|verbindung|netzwerkfehler|conexión|réseau|сетев*|соединени*}",
        ],
    ),
];
