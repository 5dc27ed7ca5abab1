//! What an outer act says of itself: a program ended, a page was not fetched, a document was not processed. Such a clause
//! stands around any reason, so all that names a reason is asked before.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule(
        "outer.exited",
        C::Crash,
        &[
            "{runner|server|worker|model|child|engine|claude|subprocess|backend|shard|agent|cli|inference} {process |}{has |was |}exited",
            "process {has |was |}exited {with|code|exit|due|on|prior|}",
            "{process|worker|runner|engine|server|shard|child process|mcp server|container|pod} .. {exited|exit} .. {code|status}",
            "exited with {code|status|exit code|error code}",
            "exit status # & {runner|process|server}",
        ],
    ),
    rule(
        "outer.unavailable",
        C::Overloaded,
        &[
            "service unavailable",
            "{service|server|model|backend|provider|api|upstream|endpoint|resource|gateway} {is |are |currently |temporarily |}{unavailable|not available} {error|exception|now|right|please|at|currently|try|due|} !server unavailable error",
        ],
    ),
    rule(
        "outer.setup",
        C::Configuration,
        &[
            "make sure .. {server|ollama|lm studio|backend|daemon|service} .. {is started|is running|has started}",
            "failed to {read|parse|load} .. {yaml|yml|toml|config json|settings json|env file|config file|configuration file}",
        ],
    ),
    rule(
        "outer.not_able",
        C::PermissionDenied,
        &[
            "{key|token|account|user|role|seat|plan|tier|project} {cannot|may not|is not able to|is unable to} {call|use|access|invoke|reach}",
        ],
    ),
    rule(
        "outer.gone",
        C::Crash,
        &["{process|worker|runner|engine|server} {has |}{vanished|disappeared|went away|is gone}"],
    ),
    rule("outer.rate", C::RateLimited, &["rate limits"]),
];

/// Asked after the widest nets.
pub(super) const LAST: &[Rule] = &[
    invalid(
        "outer.media",
        D::Other,
        &[
            "{could not|cannot|unable to|failed to} {process|decode|load|read|identify|download|open|fetch} .. {image*|audio|video|media|file|pdf|document|url content} !load model",
        ],
    ),
    rule(
        "outer.generation",
        C::ServerError,
        &[
            "{failed to|unable to|could not} {generate|produce} {any |a |an |the |}{text |}{message|messages|content|text|output|response|answer|completion|reply|image|images}",
            "{prediction|generation|inference|job} {was |has |}{interrupted|failed}",
        ],
    ),
    rule(
        "outer.fetch",
        C::Network,
        &[
            "failed to fetch @http @transport @stream @grpc",
            "{failed|unable|could not|couldnt} {to |}{send|transmit} {the |a |your |}{http |api |}request",
        ],
    ),
    rule(
        "outer.server",
        C::ServerError,
        &[
            "={api|system|unknown|upstream|one api|new api} error",
            "{系统|服务|服务器|内部|后端|服务端} .. {错误|异常|故障|出错} !返回了错误 !返回错误",
            "traceback most recent call last @http @stream @grpc",
        ],
    ),
];
