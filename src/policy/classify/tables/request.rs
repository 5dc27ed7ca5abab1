//! The request is wrong: arguments, order of messages, unsupported parameters, schemas.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A client that checks an answer in the words of a request's checks.
    rule(
        "malformed.client_check",
        C::MalformedResponse,
        &[
            "unexpected model behavior",
            "{failed|error|unable|could not|cannot} {to |}{deserialize|deserializing|deserialise|unmarshal|unmarshalling|decode} {the |}{api |}{response|answer|reply|completion|chunk|event} !response body !response format",
            "instructor retry exception",
            "{baml validation|baml client finish reason} error",
            "{maximum|max|too many} retries .. {result|output|response} validation",
"{type validation error|type validation failed|response validation} & {invalid union|invalid type|expected|unrecognized keys|invalid input|required|literal error} !value error !value type error"],
    ),
    // A constructor that fails is the tool's own bug, not the caller's arguments.
    rule("tool.own_bug", C::ServerError, &["error init takes", "exception init takes", "error init missing", "error init got", "{object has no attribute|none type object has|is not subscriptable|object is not iterable|cannot read properties of|is not a function} @tool"]).retry(false),
    // An engine's answer that is a parse problem of what the model wrote stands in `lost`.
    invalid(
        "request.arguments",
        D::ParameterMismatch,
        &[
            "unexpected keyword argument*",
            "unexpected {argument|parameter|keyword|arguments|parameters} @tool",
            "missing # required {positional |keyword only |keyword |}argument*",
            "missing required {positional |keyword only |}argument*",
            "missing {a |}required {parameter|argument|property|field|input|param} @tool",
            "takes # positional argument*",
            "takes {no|from #|exactly #|at most #} {arguments|positional arguments|to # positional*}",
            "{got|received} {an |}unexpected {argument*|parameter*|kwarg*|keyword*}",
            "{unknown|unrecognized|extra|unsupported|invalid} {argument|parameter|keyword argument|param|arg} {name |named |: |}@tool",
            "{multiple values for argument|too many positional arguments|invalid number of arguments|wrong number of arguments|expected # arguments|expected at most|no such parameter}",
            "field required & @tool",
            "{argument|parameter|arg|property|input} .. is required @tool",
            "{argument|parameter} .. {must be|should be|is not|expected} .. {string|integer|number|array|object|boolean|list|type} @tool",
            "type missing & @tool",
            "type unexpected keyword*",
            "missing required {parameter|argument} .. for tool",
            "required {parameter|argument|property|field} .. {is |was |}{missing|not provided|not supplied|absent} @tool",
            "must have required property @tool",
            "{additional properties|additional property} .. {not allowed|not permitted|false} @tool",
        ],
    ),
    invalid(
        "request.tool_schema",
        D::BadSchema,
        &[
            "=invalid type & @num:32602",
            "invalid {arguments|params|parameters|input} for tool",
            "input validation error .. {is not of type|required property|is a required} @tool",
            "{is not of type|is not valid under any|expected {array|string|number|object|boolean|integer} received} @tool",
            "{input schema|output schema|schema validation} .. {fail*|error|invalid} @tool",
        ],
    ),
    // An edit that names a text which the file does not hold, or a file that changed since it was read.
    invalid(
        "request.stale_edit",
        D::Other,
        &[
            "{string to replace|old string|old str|search block|search text|text to replace|oldtext|original text} .. {not found|no match|did not match|does not match|no exact match|was not found|not unique|multiple} @tool",
            "{has not been|hasnt been|been modified since} {read|it was read|last read} @tool",
            "{hunk|patch|diff} .. {failed to apply|does not apply|did not apply|could not be applied|cannot be applied|rejected} @tool",
        ],
    ),
    // Tools that run at one vendor exist only there.
    invalid("request.server_tool", D::MessageOrder, &["{server tool use|advisor tool result|web search tool result|mcp tool result|code execution tool result} block*"])
        .fallback(true),
    // Pairing of calls and results: no vendor would take it.
    invalid(
        "request.tool_pairing",
        D::MessageOrder,
        &[
            "{role|roles} tool must {be a response|follow|be preceded}",
            "must be a response to a prece* message",
            "{assistant message|tool calls|tool call|tool use|tool uses} .. must be followed by .. tool {messages|result*|response*|call id*}",
            "tool {call ids|call id|calls|call|use ids|use} .. {did not have|without|missing|no matching|do not have|not have} {a |}{response*|result*|corresponding*|tool result*|matching*}",
            "tool {use|call} ids were found without",
            "{unexpected tool use id*|unexpected tool result*|tool use id .. {not found|found in|unexpected}|each tool result block must have|each tool use .. must have|tool result .. without .. tool {use|call}|no tool call found for|no matching tool {call|use}|no tool output found for|no function call found for|orphan* tool*|tool call id .. not found|tool call id .. {does not match|doesnt match}}",
            "number of function {response|call|responses|calls}",
            "number of {tool result|tool results|tool use|tool call|tool calls|tool response*} .. {exceed*|match*|equal*|mismatch*|differ*}",
            "{duplicate|multiple} {tool use|tool call|tool result|function call} {id*|blocks|ids}",
            "tool {call id|result|message|messages|response} {is |must |}{missing|required|not found|has no|without} .. {tool calls|tool call|assistant}",
            "unexpected role tool",
            "tool result* .. {tool id|tool call id|tool use id} .. not found",
            "{function|tool} response .. {without|does not match|must follow|immediately}  .. {function|tool} call",
        ],
    ),
    // Role rules that only some vendors have.
    invalid(
        "request.role_order",
        D::MessageOrder,
        &[
            "each {advisor tool result|server tool*|web search tool result|code execution tool result} block must have",
            "{advisor|server} tool .. block must have",
            "{unexpected|invalid} role .. after role",
            "role* .. must {precede|alternate|be alternating|follow|come|be first|be the first|be last}",
            "{roles|role|messages|turns|conversation roles} .. {alternat*|must alternate|should alternate|should be alternating}",
            "role .. must {precede|follow|be followed|come before|come after|end the array}",
            "{multiturn|multi turn} requests .. alternate",
            "function call turn comes immediately",
            "{first|last} message must {be|use|have|come} .. {user|system|assistant|tool|human}",
            "{last|final} {message|turn|content} .. {must|should|cannot|can not} be {a |from |the |}{user|system|assistant|tool|human}",
            "{conversation|messages|prompt|request|history} must {start|begin|end|finish} {with|on|in}",
            "{ends|end|ending|final|last} .. {assistant|user} {message|turn} .. {prefill*|must|not supported|must end}",
            "{system|developer} {message|role|messages|prompt} .. {must be at the beginning|must be first|must be the first|must be placed|must be at the start}",
            "only .. first message .. system",
            "expected last role",
            "invalid role order",
            "missing {the |}{reasoning content|thought signature|thinking block*|reasoning item*}",
            "{reasoning content|thinking|thinking blocks|thought signature|reasoning item|thought signatures|redacted thinking|reasoning} .. {must be passed back|must be {passed|returned|sent|included|preserved|provided}|cannot be modified|is missing|missing in|without its required|must remain|required following|must start with|when thinking is enabled|must precede}",
            "{function call|function call part|item of type} .. {is missing a|without its required} .. {thought signature|reasoning|following item}",
            "{invalid signature|signature} in thinking block",
            "messages in the wrong order",
            "contents .. {roles|role} .. {user model|alternate}",
            "should alternate with",
            "please use a valid role",
            "should end with .. user",
            "content is in the wrong order",
            "consecutive {user|assistant|system} messages",
            "cannot have # or more assistant messages",
        ],
    )
    .fallback(true),
    invalid(
        "request.unsupported",
        D::UnsupportedParameter,
        &[
            "=unsupported {parameter|value|content*|feature|model parameter|media type|modality|tool*}",
            "unsupported {parameter|parameters|value|params|params error|argument|field|option|feature|content part*|content type|media type|mime type|image type|modality|input type|role|response format|tool type|format}",
            "no endpoints found that {support|can handle|match}",
            "{reasoning|thinking|streaming} .. {is mandatory|cannot be disabled|can not be disabled|cannot be turned off}",
            "no {endpoints|providers|provider|endpoint} .. {support|handle} .. {tool*|image*|requested|parameter*|cache*|input|this}",
            "{does not|doesnt|do not|dont|did not|cannot|can not|cant} {currently |yet |}support {the |this |that |}{parameter|stream*|tool*|function*|image*|vision|json*|response format|structured|system*|developer*|temperature|top p|logprobs|n |thinking|reasoning|audio|video|file*|multi*|parallel*|prefill*|assistant*|penalt*|stop|max tokens|batch*|role|input|content|image url|feature|value|stream mode|this parameter|specifying|tools|sampling|generation|cach*|embedding*|completion*|chat|message*|non stream*|enabling}",
            "{parameter|parameters|value|stream*|tool choice|tools|tool use|tool calling|function calling|function call|image*|image input|vision|json mode|json object|response format|structured output*|temperature|top p|top k|logprobs|thinking|reasoning effort|reasoning|audio|video|prefill|system message|system messages|system role|developer role|developer message|penalty|stop|cache control|parallel tool calls|max tokens|max completion tokens|assistant message prefill|multimodal*|input type|file input|pdf|role|sampling parameters|n|suffix|enable thinking|logit bias|seed|stream options|store|verbosity} .. {is not supported|are not supported|not supported|isnt supported|arent supported|is unsupported|are unsupported|not available|not allowed|is not permitted|not enabled|is not available|not implemented|not yet supported|is deprecated for|not compatible|incompatible|are not available|cannot be used|can not be used|cannot be set|must be removed} !country !region",
            "not supported {with|by|for|in|on} {this|the|that} {model|endpoint|provider|deployment|version|engine|backend|mode}",
            "{model|provider|endpoint|deployment|backend} {# |}{does not|doesnt|do not} {support|accept|allow|handle}",
            "{model|provider|endpoint|engine|server|template|backend} .. {does not|doesnt} support",
            "is not a multimodal model",
            "{streaming|stream mode} is {required|mandatory}",
            "not a {chat model|vision model|multimodal model|embedding model|text generation model|completion model|reasoning model}",
            "only supported {by|for|with|in|on}",
            "only {the default|default} .. {value|supported|is}",
            "{image|audio|video|file} input is not supported",
            "{enabled|available|supported|valid|works} only {for|in|with|on|from} api version*",
            "unsupported api version",
            "cannot both be {specified|set|used|provided} {for|with|on|in} {this|the} model",
            "{tools|functions|tool choice|auto tool choice} .. requires .. {enable|parser|flag}",
            "{requires enable auto tool choice|enable auto tool choice|no tool parser|tool call parser}",
            "{must be set to false|must be set to true|must be enabled} {for|when|in} .. {call*|non stream*|stream*|model*}",
            "{unsupported|unknown|unrecognized|unexpected|unrecognised} {request |}{argument supplied|parameter|field|param|arguments supplied|key|argument|keys|parameters|property}",
            "{extra inputs are not permitted|extra fields not permitted|extra forbidden|additional properties are not allowed|extraneous key|is not a permitted parameter|unknown name .. cannot find field|unrecognized request argument*|unknown field|unknown parameter*|not a valid parameter|unexpected field|no such field}",
            "use max completion tokens instead",
            "one or more parameters specified in the request are not valid",
            "does not have a chat template",
            "{不支持} .. {参数|模型|图片|工具|流式|格式|功能}",
            "{模型不支持|该模型不支持|不支持该参数|参数不支持|暂不支持}",
            "registry ollama .. does not support",
        ],
    ),
    // What only this gateway or platform wants to know: its own headers and the names of its own places.
    invalid(
        "request.own_header",
        D::Other,
        &[
            "{header|headers} {is |are |was |were |has been |have been |}{required|missing|mandatory|not present|not provided|must be|absent}",
            "{missing|missing required|required} {request |http |}{header|headers}",
        ],
    )
    .fallback(true),
    invalid(
        "request.own_place",
        D::BadSchema,
        &[
            "missing {either |required |}{project id|space id|workspace id|instance id|tenant id|account id|resource group|compartment id|namespace id}",
            "{project id|space id|workspace id|instance id|tenant id|account id|resource group|compartment id|namespace id} {field |parameter |}{is |are |}{required|missing|not provided|must be}",
        ],
    )
    .fallback(true),
    // A vague refusal of the whole shape.
    invalid(
        "request.shape",
        D::Other,
        &[
            "improperly formed request !request body invalid",
        ],
    ),
    // A vendor's own strictness about schemas and roles; another vendor takes the same request.
    invalid(
        "request.vendor_schema",
        D::BadSchema,
        &["invalid schema for {function|response format|tool}", "literal error .. role", "input should be .. {user|assistant|system|developer}"],
    )
    .fallback(true),
    invalid(
        "request.on_demand",
        D::Other,
        &["on demand throughput isnt supported", "on demand throughput .. not supported", "inference profile that contains this model"],
    )
    .fallback(true),
    invalid(
        "request.schema",
        D::BadSchema,
        &[
            "=missing {required |}{parameter|field|param|argument}*",
            "missing {required |a required |}{parameter|field|param|argument|property|key|body|arguments|parameters|fields|properties}",
            "missing parameter*",
            "{required|mandatory} {parameter|field|property|argument|key|attribute|properties|parameters|body|query|fields} .. {missing|not provided|not supplied|absent|is required|not found|must be|not specified|are missing|not set}",
            "{is missing|missing} .. {required parameter|parameter|required field|required property}",
            "{field required|field is required|is a required property|fields required|value is required|property is required|parameter is required|this field is required|must be provided|must not be empty|should not be empty|cannot be empty|must be non empty|cannot both be|cannot be null|must not be null|cannot be none|must have non empty|must contain at least|is required but|at least one message|empty messages|may not be empty|should be non empty|non empty content|can not be empty}",
            "invalid json @4xx",
            "invalid {schema|type for|request body|body|json payload|json schema|json body|tool schema|function schema|input schema|type|tool|function|tool name|function name|property name|parameters schema|request format|message format|messages format}",
            "=invalid {json|schema|function parameters|type|request body|body|tool schema|message format}",
            "{invalid schema for|schema .. is invalid|schema is invalid|invalid function parameters|json schema is invalid|is not valid json schema|tool schema|schema must be|schema .. {not valid|too complex|not supported|unsupported}|function declarations .. {should|must|properties|items|parameters}|should be non empty for object type|input schema .. {type|must|field|does not|does}|schema exceeds|schema error|input schema}",
            "{literal error|string type|json invalid|type value error|model attributes type|list type|dict type|int parsing|missing .. loc body|loc body|union tag invalid|enum .. loc|validation error for|validation errors for|pydantic}",
            "input should be {a |an |}",
            "{string does not match|does not match pattern|string should match pattern|does not match the expected pattern|expected a string|expected an object|expected a string but got|expected an array|expected object|expected array|expected string|expected number|must be a string|must be an array|must be an object|must be a list|must be a number|should be a string|must be of type|should be an array|must be an integer|must be one of|expected one of|invalid value for|is not one of|is not of type|not a valid}",
            "{value|field|text|content} {at|in} .. is empty",
            "body failed validation",
            "either .. or .. must be {provided|specified|set|defined|present|supplied|given|passed|included}",
            "missing {either|one of|at least one of|exactly one of}",
            "{requires|require|needs|specify|provide} {either|at least one of|exactly one of} .. {or|field*|parameter*}",
            "{shape|dimension|dimensions} {mismatch|mismatched|does not match|do not match}",
            "{unexpected|invalid|wrong|incorrect|mismatched} {input |tensor |}{shape|dimension*}",
            "{request body invalid|invalid request body|malformed request|badly formed|malformed input request|unable to parse request|cannot parse request|could not parse the json body|could not parse your json|failed to deserialize the json body|failed to parse the request|failed to parse request|error parsing the body|json parse error in request|body is not valid json|not valid json in the request|request body .. {not valid|malformed|cannot|could not}|unable to parse the request|invalid json payload|parse error .. request|deserializ* .. request|error decoding request|failed to decode request|cannot unmarshal|the request body|malformed body}",
            "invalid character .. looking for !response !reply !answer !unmarshal @4xx",
            "requested tool does not exist",
            "tool .. {was not in request tools|not in request tools|which was not in}",
            "invalid {params|arguments|parameters} & @num:32602",
            "{缺少|必填|缺失} .. {参数|字段}",
            "{缺少参数|缺少必要|参数缺失|参数为空|不能为空|参数格式|格式错误|json 格式}",
        ],
    ),
];
