//! Sentences so well known that no wrapper changes them: refusals of content, and of callers.
//!
//! They say nothing new to the tables behind them; they only stand however loud the words around them are.

use crate::{
    domain::failure::FailureClass as C,
    policy::classify::rule::{Rule, rule},
};

/// Refused content; asked before all that is said of content.
pub(super) const CONTENT: &[Rule] = &[rule(
    "firm.filter",
    C::ContentFiltered,
    &[
        "{inappropriate content|sensitive words detected|data inspection failed|content policy violation|content exists risk|violating our usage policy|moderation blocked}",
        "flagged as potentially violating",
        "{rejected|blocked|refused} {by|as a result of} {our |the |openais |}{safety system|safety filters|content filters|content filter|content policy}",
        "{triggering|triggered} {the |azure openais |}content {management policy|filter}",
        "{request|content|output|input} moderated !not moderated",
        "{finish reason|block reason} {safety|prohibited content|image safety|blocklist|spii}",
        "{内容安全警告|敏感内容|不安全或敏感内容}",
    ],
)];

/// Refused callers; asked before all that is said of callers.
pub(super) const ACCESS: &[Rule] = &[
    rule(
        "firm.permission",
        C::PermissionDenied,
        &[
            "{country region or territory not supported|unsupported country region territory|unsupported country region or territory|user location is not supported}",
            "captcha {verification |}{is |}required",
            "organization has been disabled",
            "{project|team|key|user|account|you} {does not|do not|doesnt|dont} have access to {model|the model|this model}",
            "cannot access gated repo",
            "not authorized to perform .. {bedrock|sagemaker|aiplatform}",
        ],
    ),
    rule(
        "firm.authentication",
        C::Authentication,
        &[
            "{incorrect api key provided|invalid api key provided|invalid x api key|api key not valid please pass|invalid bearer token|authentication fails|oauth token has expired|oauth token has been revoked|security token included in the request is {invalid|expired}}",
            "api key provided is {invalid|incorrect}",
            "invalid authentication credentials !missing or !either",
        ],
    ),
    rule(
        "firm.configuration",
        C::Configuration,
        &[
            "api key client option must be set",
            "{无可用令牌|没有可用令牌}",
            "missing key inputs argument",
            "missing required api key !header @transport @stream",
        ],
    ),
];
