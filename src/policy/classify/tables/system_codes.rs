//! Documented names and numbers of transports: Node, undici, OpenSSL, libuv, Python, Go, Java, .NET, Apple, curl, Windows sockets,
//! HTTP/2 and `WebSocket`.
//!
//! They stand late: what an answer says counts before how a connection ended.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A certificate that is not trusted now is not trusted later.
    rule(
        "tls.certificate",
        C::Network,
        numbered!(
            "& nsurl error domain": 1201, 1202, 1203, 1204;
            "& win http*": 12044, 12045, 12057, 12169, 12175;
            also "{certificate verify failed|cert verification error|self signed certificate|x509|unknown authority|pkix path|remote certificate|hostname mismatch|certificate problem|certificate is not trusted|certificate has expired|certificate expired|unknown issuer|unable to get local issuer|unable to verify the first}",
            "self signed cert in chain", "depth zero self signed cert",
            "cert {not yet valid|signature failure|revoked|untrusted|rejected|chain too long|has expired}",
            "unable to get issuer cert*", "unable to verify leaf signature", "invalid ca", 
            "err cert*", "ssl peer unverified exception", "cert path validator exception",
            "client connector certificate error", "curl {60|51|77|58|59|66}", "curl error {60|51|77|58|59|66|83|90|91}", "curle peer failed verification", "trust failure"
        ),
    )
    .retry(false),
    rule(
        "system.timeout",
        C::Timeout,
        numbered!(
            "& nsurl error domain": 1001;
            "& win http*": 12002;
            "& {socket exception|wsa*}": 10060;
            "& nsposix error domain": 60;
            also "etime", "wsaetimedout", "curle operation timedout", "interrupted io exception", "=settings timeout", "err socket connection timeout", "keepalive ping timeout", "open timeout", "execution expired", "checkout timeout",
            "dial tcp .. i o timeout !lookup", "{dio exception type|dio error type} {connection|send|receive} timeout", "timeout rejected exception", "{transport error|http error|httpoison error} reason {timeout|connect timeout|checkout timeout}"
        ),
    ),
    rule(
        "system.cancelled",
        C::Cancelled,
        numbered!("& nsurl error domain": 999; also "=abort err", "abort err", "ecanceled", "und err aborted", "client abort exception"),
    ),
    rule(
        "system.setup",
        C::Configuration,
        numbered!(
            "& nsurl error domain": 1000, 1002;
            also "{missing|invalid} schema & requests", "requests exceptions {missing schema|invalid schema|invalid header}",
            "err {module not found|dlopen failed|invalid url|invalid protocol|unescaped characters|invalid char}",
            "=module not found", "module not found", "eaddrinuse", "address already in use", "port .. {already in use|is in use|already allocated}", "no class def found error", "class not found exception",
            "curl {1|3}", "curle {url malformat|unsupported protocol}", "gave http response to https client",
            "executable file not found in", "malformed url exception"
        ),
    ),
    rule(
        "system.unreadable",
        C::MalformedResponse,
        numbered!(
            "& nsurl error domain": 1015, 1016, 1017;
            "& win http*": 12152;
            also "hpe invalid {constant|header token|version|status|method|content length|chunk size|internal state}", "hpe {header overflow|cr expected|lf expected}", "und err headers overflow",
            "content decoding error", "httpx decoding error", "content type error", "json mapping exception", "malformed http response",
            "=server protocol violation"
        ),
    ),
    rule(
        "system.network",
        C::Network,
        numbered!(
            "& nsurl error domain": 1003, 1004, 1005, 1006, 1009, 1018, 1020, 1200;
            "& win http*": 12007, 12029, 12030, 12031, 12157;
            "& nsposix error domain": 50, 51, 53, 54, 57, 61, 65;
            "& {socket exception|win error|wsa*}": 10050, 10051, 10053, 10054, 10061, 10064, 10065, 11001, 11002, 11003, 11004;
            also "eai {nodata|noname|fail|service}", "{enetreset|enotconn|eshutdown|eaddrnotavail|esocket|emfile|enfile|ehostdown}",
            "und err {destroyed|res content length mismatch|req content length mismatch|prx tls}", "failed to open socket",
            "gaierror", "too many open files", "bad status line", "httpx {read|write|close|network} error", "httpcore {read|write|close|network} error",
            "={read|write|close} error", "max retry error", "{closed|broken} resource error", "end of stream", "ssl eof error", "ssleof error", "ssl zero return error",
            "{connect|socket|eof|closed channel|no http response|connection shutdown|no route to host} exception",
            "{connect|receive|send|secure channel|keep alive|pipeline|name resolution|proxy name resolution} failure",
            "{secure connection|proxy tunnel|http protocol|name resolution} error", "{wsaeconn*|wsaehost*|wsaenet*|wsahost*|wsatry*|wsano*}",
            "curl {5|55|94|95|96|97}", "curle {got nothing|recv error|send error|couldnt*|ssl connect error|partial file|http2*}",
            "proxyconnect tcp", "{flow control|frame size|compression} error",
            "hpe invalid eof state", "{errno|os error} {49|51|64|65|99|103|107|108|112}", "os error {101|113|10051|10053|10065|11001}", "nxdomain", "mint transport error", "handshake exception !certificate", "inadequate security", "http client error & connection", "err {empty response|dns*|network*|internet*|socket*|quic*}"
        ),
    ),
    // HTTP/2 and WebSocket say by a name or number why they close.
    rule("http2.calm", C::RateLimited, &["enhance your calm !goaway !too many pings"]),
    rule(
        "websocket.busy",
        C::Overloaded,
        numbered!("& {websocket|ws|close code|closed with}": 1012, 1013; also "received # {try again later|service restart}"),
    ),
    rule("websocket.size", C::ContextLength, numbered!("& {websocket|ws|close code|closed with}": 1009)),
    rule("websocket.server", C::ServerError, numbered!("& {websocket|ws|close code|closed with} !ping timeout !resolver": 1011)),
    rule("websocket.cut", C::Network, numbered!("& {websocket|ws|close code|closed with}": 1001, 1005, 1006, 1015; also "no close frame {received|sent}", "# abnormal closure")),
];
