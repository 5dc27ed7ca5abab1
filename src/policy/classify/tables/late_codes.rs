//! Documented names that say little, or stand around a better reason: asked after everything else.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule("late.setting", C::Configuration, &["load setting error", "provider init error", "=get channel failed"]),
    invalid(
        "late.unsupported",
        D::UnsupportedParameter,
        &[
            "unsupported functionality error",
            "=unsupported {operation|protocol}",
            "{not supported|unsupported|not implemented|not yet implemented|not yet supported} !region !country !location !account !model not supported @400 @422",
        ],
    ),
    invalid(
        "late.invalid",
        D::Other,
        &[
            "invalid prompt error",
            "={validation|template error|tokenizer|empty}",
            "=upload too large",
            "illegal argument exception",
        ],
    ),
    rule("late.malformed", C::MalformedResponse, &["gateway response error", "=bad response"]),
    rule("late.network", C::Network, &["=eof"]),
    rule("late.overloaded", C::Overloaded, &["server unavailable error"]),
    rule("late.aborted", C::ServerError, &["={aborted|data loss} & grpc"]),
    rule(
        "late.server",
        C::ServerError,
        numbered!(
            "": 32603, 50000;
            also "ray task error",
            "={generation|incomplete generation|backend|unexpected output|dispatch internal error}", "incomplete generation error",
            "={io|model|model serving|fatal|conflict} error", "=general exception", "=downstream {request failed|service error}",
            "=runner server error", "=invoke model error", "={service|runtime} error"
        ),
    ),
];
