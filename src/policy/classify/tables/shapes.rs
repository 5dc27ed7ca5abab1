//! What is wrong with a request, by the fixed sentences of languages, servers and vendors: arguments of a call, turns of a
//! conversation, parameters and schemas that only some take.

use crate::{
    domain::failure::InvalidRequestDetail as D,
    policy::classify::rule::{Rule, invalid},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // A command line that a program does not understand.
    invalid(
        "call.command_line",
        D::ParameterMismatch,
        &[
            "unexpected argument .. found !failed to start",
            "error unrecognized {argument|arguments|option|options} !request",
            "flag provided but not defined",
            "unknown {shorthand |long |command line |}{flag|option|switch} @transport @tool",
            "{no such|unrecognized|unrecognised|illegal|invalid} {command line |}option @transport",
            "{no such|unrecognized|unrecognised} option @tool",
            "unknown {command line |}{argument|arguments} @transport",
        ],
    ),
    // A tool's own check of what it was given.
    invalid(
        "call.checked",
        D::ParameterMismatch,
        &["invalid arguments for tool .. unrecognized keys @tool",
            "tool .. called without {required |}{parameter|argument|field|input} @tool",
            "too many {arguments|parameters|inputs} for tool @tool", "validation error* for .. arguments @tool"],
    ),
    // A call that its function does not take, in the words of languages.
    invalid(
        "call.language",
        D::ParameterMismatch,
        &[
            "unused {argument|arguments} @transport @http",
            "is missing with no default",
            "must be {a |an |}{single |}{string|number|integer|function|list|flag|logical|logical value|true or false|data frame|scalar} {or null |}not {null|a|an|the|absent|na} @transport",
            "argument error .. {unknown|missing} {keyword|keywords}",
            "{wrong number of args|argument count error|unknown named parameter}",
            "too {few|many} arguments {to|for|in call to} {function|method|the function}",
            "argument # .. must be of type .. given !json decode",
            "no method matching",
            "parameter cannot be found that matches parameter name",
            "bad argument # to .. {expected|got} @transport @tool",
            "no overload for {method|function}",
            "no named parameter {with|named|called}",
        ],
    ),
    // Turns of a conversation that must follow one another, as a vendor wants them.
    invalid(
        "turn.order",
        D::MessageOrder,
        &[
            "{最后一条|最后一轮|第一条|首条|最后一个} .. {必须是|必须为|应为|需为|只能是|须为|应该是}",
            "{角色|消息|对话|user|assistant|轮次} .. {交替|轮流|交錯}",
            "cannot {specify|set|use|send|provide|pass|include} {a |the |}message .. tool {results|result|outputs}",
            "message {cannot|must not|should not|may not|can not} be {set|specified|sent|used|provided|given|passed} .. tool {results|result|outputs}",
        ],
    )
    .fallback(true),
    invalid(
        "turn.pairing",
        D::MessageOrder,
        &["{tool call id|tool calls|tool use|工具调用} .. {不匹配|不对应|不一致|缺少对应|没有对应}"],
    ),
    // What a history has to bring along at this vendor's.
    invalid(
        "turn.parts",
        D::BadSchema,
        &[
            "tool config .. {defined|required|provided|specified|present|included|set} .. tool {use|result|uses|results}",
            "{tools|tools parameter|tools field|tool definitions|tools param} {is|are|must be|parameter is|must be} {required|defined|provided|specified|present} {when|if|whenever} .. {tool use|tool result|tool call|tool calls|tool results}",
            "{elements|entries|items|turns} {in|of} {the |}{chat |}{history|messages|contents|conversation} must {have|contain|include}",
            "{message|prompt|query} must be at least # {token|tokens|character|characters} long",
            "{invalid|unsupported|unknown|illegal|bad} {message |chat |}role !after !unexpected role !role enum !order !arn !iam !last message !first message !alternat*",
            "message role must be {user|assistant|system} !first message !last message",
            "{role|角色} {信息不正确|信息有误|信息错误}",
            "tool call id was .. {but must|must be}",
            "must have either content or tool calls",
            "message role .. {invalid|unsupported|not supported|illegal|unknown} !role order",
            "messages .. role {非法|不支持|无效|错误|不合法}",
        ],
    )
    .fallback(true),
    invalid(
        "turn.messages",
        D::BadSchema,
        &[
            "messages {参数|字段|parameter|field|格式|参数格式} .. {非法|错误|有误|不合法|illegal|无效}",
            "messages parameter is {illegal|invalid|malformed}",
            "=invalid {param|params|parameter|parameters} & {is required|are required|is missing} !unsupported @400 @422",
            "{has|have|contains|contain} {invalid|unknown|unexpected|unrecognized} {field|fields} !header",
        ],
    ),
    // Keywords of a schema that this vendor's compiler does not know; another one's does.
    invalid(
        "schema.own_keywords",
        D::BadSchema,
        &[
            "extraneous key* & {input schema|tool spec|function declarations|tool config}",
            "invalid schema .. {not supported|unsupported|not permitted|not allowed}",
            "json schema not supported {could|at|one of|oneof|any of|anyof|ref|keyword|construct|property|pattern}",
            "not understand the instance",
            "{one of|oneof|all of|any of} .. at the top level",
            "{function|tool} {name|names} must {start|begin|contain|consist|match}",
            "schema {keyword|keywords|construct|feature|features} .. {not supported|unsupported|not permitted|not allowed|unknown}",
            "invalid {function|tool} {format|definition format} !tool call !call format",
            "{description|user|metadata|title|call id|tool name|safety identifier|cache key|suffix|voice} string too {long|short}",
            "unhashable type",
        ],
    )
    .fallback(true),
    // Parameters that this model or vendor does not take, or not so.
    invalid(
        "parameter.own",
        D::UnsupportedParameter,
        &[
            "response format type .. {allowed values|must be one of|not one of|valid values|supported values|expected one of|invalid value|must be text|must be either}",
            "use max completion tokens",
            "property .. {is unsupported|is not supported} !schema !response format",
            "thinking budget is out of range",
            "{tool|tools} .. supported only {when|with|if|for}",
            "{only works|works only|only work} in {thinking|streaming|batch|json|reasoning|stream} mode",
            "{operation|endpoint|method|api|completion} does not work with {the |this |}{specified |given |selected |requested |}model",
            "unknown variant {image url|input audio|image|file|audio url|video url} expected @4xx",
            "must {be|equal} .. {for|with|on} {this|the selected|the chosen} {model|engine|voice} !last message !conversation !token !tokens !length !characters !schema",
            "{size|resolution|aspect ratio|duration|quality|style|sample rate|speed} .. {not one of the supported|must be one of|choose one of|not one of the allowed}",
            "{voice|size|resolution|quality|speed|format|language} .. {is not supported by|not available for} !country !region !provider",
            "{unavailable|not available|not supported|unsupported|not allowed} {on|for|with|in} {reasoning|thinking|chat|embedding|audio|vision} models !region",
            "{max tokens|max output tokens|max completion tokens|max new tokens} .. {超出|超过|范围|must be # or less} !上下文 !context",
            "maximum output tokens {for|of} {this|the} model is # !context",
            "{仅支持|只支持|只能} .. {流式|非流式|stream}",
            "only {support|supports} {stream|streaming|non streaming|batch} {mode|output|calls|requests}",
            "{parameter|param|option|argument} .. {is not valid|is invalid|is not applicable|is not available} {for|with|on} {this|the} {model|endpoint|deployment}",
            "thinking budget {parameter |value |}{must|should|cannot|may not|has to}",
            "{does not declare|has no|lacks|without} {image|vision|audio|video|tool|tools|multimodal|pdf} {input |calling |}{support|capability|capabilities|modality}",
            "{temperature|top p|top k|max tokens|stop|seed|penalty|thinking|tool choice|response format|stream} {参数|取值|参数取值|参数值|值|的值} {非法|有误|不合法|错误|无效|超出|超范围|不支持}",
            "{temperature|top p|top k|max tokens|seed|penalty|thinking|tool choice|response format} {参数非法|参数有误|参数错误|参数无效|取值不合法|参数取值不合法|取值非法|参数取值非法|参数不合法}",
            "@num:1210 & {api 调用参数有误|invalid api parameter}",
            "invalid chat setting",
            "image size must be",
        ],
    ),
];
