//! What does not exist, and answers that came but cannot be used.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule(
        "not_found.code",
        C::NotFound,
        &[
            "=model not found",
            "=zero results",
            "=deployment not found",
            "=model not supported",
            "=not found error",
            "=resource not found",
            "=model decommissioned",
            "=model not exist",
            "=invalid model",
            "=unknown model",
            "=unknown url",
            "unsupported {openapi|open api|api} {method|path|action|route|call|interface}",
            "unsupported {route|action|path} !file",
            "=no such model",
            "=model not available",
            "=route not found",
            "=method not found",
            "=tool not found",
            "invalid endpoint or model not found",
            "not found {for |the |requested |this |}{model|deployment|endpoint}",
            "{model not found|deployment not found|endpoint not found|model not exist|api deployment for this resource does not exist|tool not found|method not found|function not found|prompt not found|resource not found|unknown tool|unknown function|unknown method|no such tool|no tool named|unknown model|no such model|invalid model|model id is invalid|repository not found|manifest unknown|unknown service|unknown url|invalid url get|invalid url post|no route matched|no static resource|cannot get|cannot post|page not found|route not found|path not found|service not found|assistant not found|thread not found|file not found|session not found|collection not found|index not found|entity not found|object not found|user not found|item not found|could not find}",
        ],
    ),
    rule(
        "not_found.words",
        C::NotFound,
        &[
            "{model|models|deployment|endpoint|engine|tool|function|resource|file|url|route|method|project|assistant|collection|issue|page|document|repository|service|version|voice|agent|table|index|bucket|entity|record|object|tag|inference profile|channel|node|path|database|workspace} .. {does not exist|doesnt exist|do not exist|not exist|was not found|not found|is not found|could not be found|cannot be found|couldnt be found|can not be found|isnt found|no longer exists|is unknown|was deleted|has been deleted|not registered|could not be located|cannot be located|is unknown} !header !api key",
            "{model|models|deployment|engine|version|endpoint|api} .. {has been |is |was |been |have been |}{deprecated|decommissioned|retired|discontinued|sunset|shut down|removed|no longer available|no longer supported|no longer offered|end of life|taken offline|obsolete|turned off|deactivated} !stream removed",
            "{is not|isnt|not} a {valid|supported|known|recognized|registered} {model|deployment|engine|endpoint|tool|function}",
            "{not a valid model*|invalid model {name|id|identifier|specified|key}|model {identifier|name|id} .. {invalid|not valid|not recognized|unknown|incorrect}|model identifier is invalid|unrecognized model|unknown model|unsupported model|model is not supported|model not supported|no endpoints found for|no allowed providers|no available model|model is not available|requested model .. {not available|not supported|unavailable}}",
            "{no|unknown|nonexistent|missing} {such |matching |}{model|deployment|tool|function|file|resource|route|endpoint|engine|voice|key|index|table|adapter|lora|checkpoint|weights|template|project|assistant|collection} {named|called|with|found|matching|exists|available|for}",
            "model .. {not available|unavailable} {on|for|in|at|via|with|through|over} !service unavailable !overloaded !status unavailable !temporarily",
            "model .. is not supported !is not supported with !is not supported by",
            "model .. is not valid !json !token !unexpected !response",
            "{no longer {available|supported|offered|exists}} .. model",
            "{is not|not|isnt} servable",
            "{file does not exist|pull model manifest|try pulling it first|model .. try pulling|manifest for .. not found}",
            "{unimplemented|method not implemented|method not allowed}",
            "{not found .. http 404|http 404|404 not found}",
            "invalid operation .. unknown",
            "{模型不存在|模型未找到|不存在的模型|模型已下线|已经下线|已经停用|已经下架|已被下线|找不到模型|未找到|不存在|已下线|已停用|无效的模型|没有这个模型|没有该模型|没有此模型|模型名称错误|模型 .. 不存在}",
            "{モデルが見つかりません|모델을 찾을 수 없|nicht gefunden|no encontrado|introuvable|не найден*}",
        ],
    ),
    // A status that is known says more than that its body could not be read.
    rule("rate.unread", C::RateLimited, &["{could not|couldnt|cannot|failed to|unable to|error} {parse|parsing|decode|decoding|read|reading} .. {response|body|error} @429", "unexpected token .. json @429", "{too many r|too many requests|rate limit*} .. not valid json", "looking for beginning of value @429", "{failed to parse|error parsing|could not parse|couldnt parse|cannot parse|unexpected token|failed to decode|error decoding|json decode error|not valid json} & {rate limit exceeded|rate limit reached|rate limited|too many requests|too many messages}"]),
    rule("overloaded.unread", C::Overloaded, &["{could not|couldnt|cannot|failed to|unable to} {parse|decode|read} .. {error|http response|error body|html} @502 @503 @529", "{invalid character|unexpected token|expecting value|expected value} .. {looking for|json|line|value|doctype|html} @502 @503 @529", "{service un|service unavailable|bad gatewa|bad gateway} .. not valid json", "invalid response .. from {the |an |}upstream @502"]),
    rule("timeout.unread", C::Timeout, &["{could not|couldnt|cannot|failed to|unable to} {parse|decode|read} .. {error|http response|error body|html} @504 @522 @524"]),
    rule("server.unread", C::ServerError, &["{internal s|internal server error} .. not valid json"]),
    // A tool's own program stumbled.
    rule(
        "tool.exception",
        C::ServerError,
        &["{referenced before assignment|object is not subscriptable|object has no attribute|object is not iterable|list index out of range} !choices !candidates @tool"],
    )
    .retry(false),
    // A stream that stopped before it said that it was done.
    rule(
        "network.cut_stream",
        C::Network,
        &[
            "{stream|response|connection} {ended|finished|closed|terminated|stopped} without .. {terminal|terminating|completing|completion event|complete*|done|final|closing|stop event} !content !empty !choices !text",
            "{did not|didnt|never} receive .. {done|completion|terminal|final} .. {stream|event|response}",
        ],
    ),
    // A program's own fault, told by its language.
    rule(
        "server.exception",
        C::ServerError,
        &[
            "{none type object has|object has no attribute|not subscriptable|is not iterable|referenced before assignment|object is not callable|unsupported operand|division by zero|is not json serializable|circular structure to json|cannot read properties of|cannot read property|is not a function|is not defined|nil pointer dereference|null pointer exception|null reference exception|object reference not set|unbound local error|list index out of range|index out of range|name error name|key error|attribute error} !choices !candidates !completion @5xx",
            "{llama decode|failed to initialize batch|invalid input batch|failed to prepare batch}",
            "{exception calling application|exception iterating responses}",
        ],
    ),
    // An object of a program's own that it cannot write: it will fail again.
    rule(
        "server.unwritable",
        C::ServerError,
        &["{is not json serializable|circular structure to json|is not serializable|cannot be serialized|could not be serialized} !the request !your request !request body @http @stream @transport @grpc"],
    )
    .retry(false),
    // Nothing came for so long: the length says that somebody waited.
    rule(
        "timeout.silence",
        C::Timeout,
        &["{no|without|not received|never received} {any |}{output|response|reply|answer|data|token|tokens|chunk|chunks|event|events|activity|heartbeat|bytes} .. {for|within|after} {the last |over |more than |}{# s|# sec*|# ms|# min*|#s|#ms|#m|#min}", "{no|without|not received|never received} {any |}{output|response|reply|answer|data|token|tokens|chunk|chunks|event|events|activity|heartbeat|bytes} .. in {the last |over |more than |}{# s|# sec*|# ms|# min*|#s|#ms|#m|#min} !retrying !retry in !try again in"],
    ),
    // What a model wrote for a tool broke off before its end.
    rule(
        "malformed.cut_arguments",
        C::MalformedResponse,
        &["{unexpected end of json*|unterminated string|unexpected eof} & {run single tool|run tool|tool runner|parse tool*|execute tool*|call tool|invoke tool*|run implementation|tool arguments} !client error !fetch !response @tool"],
    ),
    // What a tool's server wrote is not what a model wrote.
    rule(
        "malformed.tool_answer",
        C::MalformedResponse,
        &[
            "{unexpected token|is not valid json|not valid json|unexpected end of json*|json parse error|json decode error|expecting value|unexpected content type|invalid content type|invalid response|unexpected response|failed to parse response|parse error|unexpected eof} !arguments !tool call !function call !tool input !llm !model output @tool",
        ],
    )
    .fallback(false),
    // What a reader could not read may say itself why: a fact goes before the complaint.
    rule("rate.under_reader", C::RateLimited, &["{rate limit exceeded|rate limit reached|rate limited|too many requests} & {no response|no output|no content|empty response|empty result|returned no|returned an empty|returned empty|invalid response|parse|parsing|decode|decoding|process|processing|json|gunzip*|failed to generate} !free !per day !daily !quota"]),
    rule("timeout.under_reader", C::Timeout, &["{timed out|etimedout|deadline exceeded|read timeout} & {no response|no output|no content|empty response|empty result|returned no|returned an empty|returned empty|invalid response|parse|parsing|decode|decoding|process|processing|json|gunzip*|failed to generate}"]),
    rule(
        "network.under_reader",
        C::Network,
        &[
            "{connection refused|econnrefused|econnreset|enotfound|eai again|getaddrinfo*|socket hang up|connection reset by peer|premature close|no route to host|broken pipe|name or service not known|actively refused} & {no response|no output|no content|empty response|empty result|returned no|returned an empty|returned empty|invalid response|parse|parsing|decode|decoding|process|processing|json|gunzip*|failed to generate} !certificate !running !started",
            "{could not|couldnt|cannot|unable to|failed to} connect to & {no response|no output|no content|empty response|empty result|returned no|returned an empty|returned empty|invalid response|parse|parsing|decode|decoding|process|processing|json|gunzip*|failed to generate} !certificate !running !started !unauthorized !not authorized",
            "server disconnected without",
        ],
    ),
    rule(
        "malformed.words",
        C::MalformedResponse,
        &[
            "{response|reply|answer|output|body|completion} {was |is |were |}not {valid |a |valid |well formed |}json",
            "{produced|returned|generated|gave|yielded|emitted} no {usable|valid|parsable|parseable|final|visible} !credentials !token",
            "{output|response|answer|reply|completion|json} {was |is |got |}cut {before|off|short|at|in}",
            "{finished|completed|ended|stopped} {without|with no} {an |any |a |}{answer|reply|response|final answer|visible answer|output|content|text|result} !closed !peer",
            "{finished|ended|completed|closed} {with|after} {0|zero|#|no} {tokens|chunks|characters|output tokens} & 0 tokens",
            "{finished|ended|completed|closed} {with|after} {zero|no} {tokens|chunks|characters|output}",
            "{failed|unable|could not|couldnt|cannot|error|failure|fail} {to |while |when |in |}{pars*|decod*|deserializ*|unmarshal*} .. {tool call*|arguments|json|model output|llm output}",
            "{failed|unable|could not|couldnt|cannot|error|failure|fail} {to |while |when |in |}process* {the |a |an |}{tool call*|json|model output|llm output}",
            "error decoding response body",
            "not a valid json",
            "{json parsing failed|json parse error|json decode error|jsondecodeerror|json parse exception|json exception|parse error at line|json reader exception|json syntax error|json serialization error|unexpected end of json*|unexpected token .. json|unterminated string|expecting value|extra data|expecting property name|expecting delimiter|unexpected non whitespace|invalid control character|is not valid json|not valid json|bad control character|in json at position|unexpected character|trailing characters|expected value at line|eof while parsing|invalid character .. looking for|syntax error .. json|double quoted property name|invalid literal|json repair|unexpected eof in json|json at position|unexpected end of input|malformed json|unparsable|unparseable|json eof|unexpected token}",
            "{did not match any variant|missing field .. at line|unknown variant|invalid type .. at line|invalid stream payload|invalid json response|unexpected content type|{invalid|wrong|bad} content type|mimetype|unexpected mimetype|unexpected data|unknown chunk} !http status code",
            "{llm|model|models|assistant|completion|ai|agent|chat|gpt} {output|response|answer|reply|message} .. {did not|does not|didnt|doesnt|do not} {contain|include|match|conform|return|have|follow|parse|provide|comply}",
            "{response|output|answer|object} {did not|does not|didnt|doesnt} {fit|match|conform|comply|validate|contain|follow}",
            "{did not|didnt|does not|doesnt|without} {provide|provid*|return|produc*|generate|emit|emitting|give|yield|yielding|send|sending|deliver*|includ*|output} {any |a |an |}{valid |usable |assistant |text |new |single |}{message|messages|content|text|output|response|answer|completion|choices|candidates|token|tokens|chunk|chunks|event|events|data|reply|image|images|tool call|tool calls|function call} !due to !within the !time limit !timeout",
            "failed to {provide|return|emit|give|yield|include|output} {any |a |an |}{valid |usable |assistant |text |new |}{message|messages|content|text|output|response|answer|completion|choices|candidates|tokens|reply|tool call|tool calls|function call} !due to !within the !time limit !timeout",
            "expected {a |}json .. {but|got|found|received}",
            "expected response body of the type",
            "mime type .. event stream",
            "{incorrect header check|decompression error|decompression failed|failed to decompress|error while decompressing|error decompressing|failed to decode it|zlib error|z data error|z buf error|invalid gzip|not a gzip file|not in gzip format|gunzip*|brotli error|brotli decompress*|unsupported content encoding}",
            "{parse error {expected http|missing expected|data after connection|response overflow}|parse error invalid {header*|character|constant|method|status|chunk*|http*|content length}|does not match the http # 1 protocol|illegal {status|header} line|invalid http {version|status|header} parsed|unexpected status line|malformed http status*|weird server reply}",
            "{expected http rtsp|did not receive a valid http response|invalid http {response|version|status line}|malformed http {response|version|status}|malformed chunked encoding|received http 0 9 when not allowed|not a valid http response|no grpc status|missing grpc status}",
            "{chunk|scanner token|buffer .. line|line|frame} {is |was |}too {big|long|large} @transport @stream @grpc",
            "{limit overrun error|chunk exceed the limit|chunk is longer than limit|buffer size exceeded|bufio scanner}",
            "{unmarshal*|deserializ*|decod*|pars*} .. {received message|protobuf message|protocol message|wire format data|wire type}",
            "{no choices|choices .. empty|empty choices|no candidates|without choices|no generations|choices is {null|none|empty|undefined|missing}|choices missing|missing choices|choices attribute|no output generated|no output|no content generated|no object generated|no content in response|no text content|no response from model|null response|no valid response|missing content|no message in response}",
            "{empty response|empty completion|empty content|empty message|empty output|empty stream|returned empty|returned no|returned an empty|response is empty|response was empty|empty reply|returned nothing|blank response|empty body|stream ended with empty|stream .. without {any |}content|without producing|empty result|returned none|model returned no|returned null|received empty|got empty} !empty reply from server",
            "none type object .. {choices|content|subscriptable|iterable|message|attribute*}",
            "cannot read {properties|property} of {undefined|null} .. reading .. {choices|content|message|delta|text|0|#}",
            "list index out of range",
            "{cannot unmarshal|missing field} !request !config* !settings !api key !yaml",
            "key error {choices|content|message|candidates|output|delta|usage}",
            "no {tool call|tool calls|function call|function calls} {was |were |is |}{found |returned |generated |made |}in {the |model |}{response|output|completion}",
            "failed to parse input at pos",
            "index out of range .. choices",
            "{tool call|function call|tool calls|function arguments|arguments|tool input|tool arguments} .. {not valid json|invalid json|unparsable|malformed|could not be parsed|cannot be parsed|not parseable|incomplete json|truncated|is not json|invalid}",
            "{invalid|malformed|incomplete|unparsable|truncated} {tool call|function call|tool calls|json arguments|tool arguments|function arguments|tool input|json|arguments json}",
            "{unexpected finish reason|unknown finish reason|missing finish reason} !before",
            "finish reason {is |was |}{malformed*|error}",
            "{response|stream|answer|output} .. {is |was |}{truncated|incomplete|cut off|malformed|garbled|corrupted} !connection closed !incomplete message !peer closed connection",
            "no {response|answer|reply|text|completion} {was |}{generated|produced}",
            "{no es un|não é um|pas un|kein gültiges|non è un} json",
            "не является .. json",
            "json .. {ではありません|ではない|として解析|아닙니다}",
            "{response|answer|reply|output|arguments|completion} .. {could not|couldnt} be {decoded|parsed|interpreted|understood}",
            "{couldnt|could not|cannot|unable to|failed to} {understand|interpret} .. {response|answer|reply|output}",
            "{bad|broken|partial|incorrect} json",
            "{is|was} not {parseable|parsable|decodable} !request",
            "{completed|ended|finished} without {receiving|producing|returning|yielding|sending|emitting|delivering} !terminal !done",
            "missing closing {tag|brace|bracket|quote}",
            "{ended|stopped|cut off} inside a {tool call|json*|string}",
            "arguments .. {cut off|broke off|cut short|end mid*|ended mid*}",
            "invalid .. not json",
            "{incomplete stream|stream {ended|finished} without|ended before}",
            "{不是 .. json|并非 .. json} !请求",
            "{返回为空|空响应|响应格式|解析失败|返回内容为空|无法解析}",
        ],
    ),
    invalid(
        "request.media",
        D::Other,
        &[
            "{image|media|file|audio|video|pdf|document|attachment} .. {does not match|could not be processed|could not process|cannot be processed|too large|too small|exceeds|exceed*|invalid|corrupt*|could not be decoded|cannot be decoded|failed to decode|unable to process|not valid|could not be downloaded|failed to download|unable to download|too many|unreadable|cannot identify}",
            "timeout while downloading @400",
            "{could not|cannot|unable to|failed to} {process|decode|load|read|identify|download|open|fetch} .. {image*|audio|video|media|file|pdf|document|url content} !load model",
            "{unsupported image|invalid image|invalid base64|bad image|oversized image|too many images|image too large|image format|image parse error|invalid image url|incorrect image}",
            "{does not|doesnt|did not} {appear to |}contain {any |valid |}{audio|video|speech}",
            "transcoding {failed|error}",
        ],
    ),
];
