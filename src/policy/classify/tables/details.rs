//! What is wrong with a request that was refused as bad, in loose words: a name of a part, and what is said of it.
//!
//! The status has told the class already, so these only tell turns, parameters that a model does not take and broken
//! shapes apart; finer phrases were asked before.

use crate::{
    domain::failure::InvalidRequestDetail as D,
    policy::classify::rule::{Rule, invalid},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    invalid(
        "detail.pairing",
        D::MessageOrder,
        &[
            "tool {result|results|message|messages|response|responses|output|outputs} .. {directly follow|must follow|come right after|unknown call|unknown tool call|without a call|no matching|needs a matching|unmatched|orphaned} @400 @422",
            "{unknown|unmatched|orphaned|dangling|unanswered} {call id|tool call|tool call id|tool use|tool use id|function call} @400 @422",
        ],
    ),
    invalid(
        "detail.turns",
        D::MessageOrder,
        &[
            "{user|assistant|system|developer|human} {turn|turns|message|messages} .. {expected|only allowed|in a row|back to back|come first|comes first|be first|be last} @400 @422",
            "{last|first|final|previous|next} {turn|message|entry} {has to|must|should|needs to|may not|cannot|is expected to} @400 @422",
            "{order|sequence} of {messages|turns|roles} @400 @422",
        ],
    )
    .fallback(true),
    invalid(
        "detail.parameter",
        D::UnsupportedParameter,
        &[
            "{temperature|top p|top k|min p|frequency penalty|presence penalty|repetition penalty|logprobs|top logprobs|logit bias|seed|stop sequences|response format|json mode|structured outputs|tool choice|parallel tool calls|tool calling|function calling|reasoning effort|thinking|verbosity|modalities|system prompts|prompt caching|service tier|vision inputs|image inputs|audio inputs} .. {not supported|unsupported|not accepted|arent accepted|isnt accepted|not recogni*|not available|isnt available|unavailable|only valid|only offered|only available|ignored|cannot be|cant be|not allowed|not permitted|仅支持|只支持|不支持} !must be a !country !region @400 @422",
            "{quality|style|size|voice|resolution|aspect ratio|duration} .. {only valid for|not valid for|not available for|not supported|unsupported} @400 @422",
            "{model|engine|deployment|checkpoint|backend|server} .. {ignores|accepts text only|accepts only|only accepts|takes only|only takes} @400 @422",
            "{model|deployment|engine|checkpoint} {# |}{has no|lacks|is without} {tool|tools|vision|image|audio|function|json|streaming|reasoning|thinking} @400 @422",
            "{model|embedding model|chat model} {cannot|cant|can not} be used {for|with|by|in|on} @400 @422",
            "not a recogni* {option|parameter|argument|setting} @400 @422",
            "unsupported {image|audio|video|output} {size|dimension*|rate|length|resolution} @400 @422",
            "file type .. {not supported|unsupported} @400 @422",
            "{image|audio|video|pdf|file} {parts|inputs|content|attachments} {were|are|is|was} {sent|not accepted|not taken|refused} @400 @422",
        ],
    ),
    invalid(
        "detail.schema",
        D::BadSchema,
        &[
            "{messages|role|content|tools|body|payload|field|property|parameters|key} .. {is missing|lacks|is not a|is not an|isnt a|isnt an|not well formed|needs a|needs an|fehlt|obligatoire|obligatorio|obligatoria|obbligatorio|obrigatório} @400 @422",
            "{champ|champs|campo|parámetro|parâmetro|feld} .. {fehlt|obligatoire|manquant|obligatorio|obrigatório|obbligatorio|falta|requerido} @400 @422",
            "{expecting|expected} {a|an} {array|list|object|string|number|map|boolean} .. {found|got|received|but} @400 @422",
            "{lacks|lacking|without} {a |an |the |}{content|role|type|name|id|model} {key|field|property|attribute} @400 @422",
            "{part|content|block|tool|item} type .. {not known|unknown|unrecognized|unrecognised|invalid} @400 @422",
            "{each|every} {tool|message|part|item|function} {needs|must have|requires} @400 @422",
            "not well formed @400 @422",
        ],
    ),
];
