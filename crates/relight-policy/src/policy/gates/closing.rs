//! The gate that a failure closes.

use crate::domain::{
    circuit::GateKind,
    failure::{Failure, FailureClass},
};

/// Parts that a request names beside its model; if one of these is not found, the target is well.
const PARTS_OF_A_REQUEST: [&str; 8] = [
    "file",
    "files",
    "image",
    "attachment",
    "container",
    "cachedcontent",
    "cachedcontents",
    "document",
];

/// Parts that make up a target; all of its calls fail if one of these is not found.
const PARTS_OF_A_TARGET: [&str; 8] = [
    "model",
    "models",
    "deployment",
    "engine",
    "endpoint",
    "endpoints",
    "profile",
    "url",
];

/// Returns the gate that a failure closes; `by_tool`: whether it is that of a tool,
/// `uniform_waits`: as the retry policy states. Callers share a gate, so one that rests on words
/// alone closes none.
#[must_use]
pub fn closed_by(failure: &Failure, by_tool: bool, uniform_waits: bool) -> Option<GateKind> {
    let closes = |kind: &GateKind| match kind {
        // The policy alone says how long to wait if the provider does not.
        GateKind::Rate => !uniform_waits || failure.retry_after.is_some(),
        // Of a tool server's credential only its own HTTP status speaks.
        GateKind::Credential => {
            (!by_tool || failure.status.is_some()) && !concerns_one_request(failure)
        }
        // What a tool did not find was not the tool itself.
        GateKind::Configuration => !by_tool && !concerns_one_request(failure),
    };
    let gate = failure.class.row().gate.filter(closes);
    gate.filter(|_| failure.binds_others())
}

/// Returns whether a failure shows something about one request, and nothing about the target: a
/// file that is not found, a completion so long that the credit does not cover it. Other callers, with
/// other requests, are not to be refused for it.
fn concerns_one_request(failure: &Failure) -> bool {
    let words = format!("{} {}", failure.message, failure.fact).to_lowercase();
    let has = |known: &[&str]| {
        words
            .split(|char: char| !char.is_alphanumeric())
            .any(|word| known.contains(&word))
    };
    match failure.class {
        FailureClass::NotFound => {
            has(&PARTS_OF_A_REQUEST) || !(has(&PARTS_OF_A_TARGET) || words.contains("模型"))
        }
        FailureClass::QuotaExceeded => {
            words.contains("max_tokens") || words.contains("can only afford")
        }
        _ => false,
    }
}
