//! Known side effects of a tool, and whether an execution of it may therefore be
//! repeated.
//!
//! In this order: the operator's statement, an argument that carries an idempotency key, a trusted
//! server's statement. Unknown facts are taken for the worst. A caller may add caution; it
//! lifts some only if the operator lets it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::{self, Arguments, short_hash};
use crate::domain::{
    failure::{Failure, FailureClass, words},
    ids::InvocationId,
    invocation::SideEffects,
    tool::ToolSpec,
};

/// Operator's statement about the side effects of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EffectsPolicy {
    /// The tool changes nothing.
    pub read_only: Option<bool>,
    /// Repeating it with the same arguments has no further effect.
    pub idempotent: Option<bool>,
    /// It may destroy or overwrite.
    pub destructive: Option<bool>,
    /// It acts on the world outside its own data.
    pub open_world: Option<bool>,
    /// The argument in which the tool takes an idempotency key. Relight fills it; the tool must
    /// list it in its schema.
    pub idempotency_key: Option<String>,
    /// If set, the statements of the tool's server in its annotations count; default false.
    pub trust_annotations: bool,
    /// If set, a caller may state that a tool is safer than is known here; default false, it may
    /// only add caution.
    pub trust_callers: bool,
}

/// The side effects that a tool is taken to have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact about the tool"
)]
pub struct Effects {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy or overwrite.
    pub destructive: bool,
    /// It acts on the world outside its own data.
    pub open_world: bool,
    /// `true` if an execution that may have taken place may be repeated.
    pub repeatable: bool,
    /// Argument that carries an idempotency key, if it makes the tool repeatable.
    pub key_argument: Option<String>,
    /// Reason for which it is or is not repeatable, in words that follow "because".
    pub reason: &'static str,
}

/// Execution of the tool, as far as a failure shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolExecuted {
    /// Surely not executed: nothing was sent, or it was refused before it began.
    NotExecuted,
    /// It ended, and its tool reported a failure.
    Ended,
    /// It may have taken place, partly or as a whole.
    Unknown,
}

// === impl Effects ===

impl Effects {
    /// The side effects of a tool by what the operator, its server and the caller state.
    #[must_use]
    pub fn of(
        policy: &EffectsPolicy,
        tool: Option<&ToolSpec>,
        caller: Option<SideEffects>,
    ) -> Self {
        let hints = tool
            .filter(|_| policy.trust_annotations)
            .map(|tool| tool.annotations)
            .unwrap_or_default();
        let claims = caller.unwrap_or_default();
        let lifted = if policy.trust_callers {
            claims
        } else {
            SideEffects::default()
        };
        // Who states that a tool both changes nothing and destroys is believed in the worse.
        let read_only_hint = hints
            .read_only
            .map(|it| it && hints.destructive != Some(true));
        let stated_read_only = first([lifted.read_only, policy.read_only, read_only_hint]);
        let destroys = claims.destructive == Some(true) || policy.destructive == Some(true);
        let read_only =
            stated_read_only == Some(true) && claims.read_only != Some(false) && !destroys;
        let worst = |stated: Option<bool>, claim: Option<bool>, otherwise: bool| {
            claim == Some(true) || stated.unwrap_or(otherwise)
        };
        let destructive = worst(
            first([lifted.destructive, policy.destructive, hints.destructive]),
            claims.destructive,
            !read_only,
        );
        let open_world = worst(
            first([lifted.open_world, policy.open_world, hints.open_world]),
            claims.open_world,
            true,
        );
        let key_argument = policy
            .idempotency_key
            .clone()
            .filter(|key| tool.is_some_and(|tool| lists(&tool.input_schema, key)));
        let (repeatable, reason) = repeatable(
            policy,
            claims,
            lifted,
            hints,
            read_only,
            key_argument.is_some(),
        );
        let key_argument = key_argument.filter(|_| repeatable && !read_only);
        Self {
            read_only,
            destructive,
            open_world,
            repeatable,
            key_argument,
            reason,
        }
    }

    /// Returns whether a call may be split into several that together do the same.
    #[must_use]
    pub const fn splittable(&self) -> bool {
        self.read_only || (self.repeatable && !self.destructive)
    }

    /// Returns whether this tool does nothing that the other one does not do as well.
    #[must_use]
    pub const fn not_worse_than(&self, other: &Self) -> bool {
        (self.read_only || !other.read_only)
            && (!self.destructive || other.destructive)
            && (!self.open_world || other.open_world)
            && (self.repeatable || !other.repeatable)
    }

    /// Returns whether an execution that failed so may be repeated, here or by another tool.
    #[must_use]
    pub fn allow_again(&self, failure: &Failure) -> bool {
        self.repeatable || execution(failure) == ToolExecuted::NotExecuted
    }

    /// Returns whether such a failure leaves it open what happened, and nothing may be done to find
    /// out.
    #[must_use]
    pub fn leave_open(&self, failure: &Failure) -> bool {
        !self.repeatable && execution(failure) == ToolExecuted::Unknown
    }

    /// Returns the failure of an execution: if the tool may have been executed and must not be once
    /// more, the outcome is not known. A caller who cancelled knows that.
    #[must_use]
    pub fn judged(&self, failure: Failure) -> Failure {
        let is_open = self.leave_open(&failure) && failure.class != FailureClass::Cancelled;
        if is_open {
            outcome_unknown(failure)
        } else {
            failure
        }
    }
}

/// Returns the same failure as one that leaves it open what happened.
#[must_use]
pub fn outcome_unknown(failure: Failure) -> Failure {
    Failure {
        class: FailureClass::OutcomeUnknown,
        retryable: false,
        fallback_helps: false,
        retry_after: None,
        message: format!(
            "{}; whether the tool was executed is not known",
            failure.message
        ),
        user_message: words::for_user(FailureClass::OutcomeUnknown, None, true).into_owned(),
        recovery_hint: words::for_operator(FailureClass::OutcomeUnknown, None, None, true)
            .into_owned(),
        ..failure
    }
}

/// Returns whether the tool was executed, as far as a failure shows it.
#[must_use]
pub fn execution(failure: &Failure) -> ToolExecuted {
    use FailureClass as C;
    if failure.never_sent {
        return ToolExecuted::NotExecuted;
    }
    match (failure.class, failure.status) {
        // It ran up to a result that cannot be used.
        _ if failure.tool.returned && failure.fault.is_some() => ToolExecuted::Ended,
        (
            C::OutcomeUnknown
            | C::Timeout
            | C::Network
            | C::StreamInterrupted
            | C::Crash
            | C::MalformedResponse
            | C::Deadline,
            _,
        )
        // A gateway that lost what it had passed on.
        | (_, Some(502..=504)) => ToolExecuted::Unknown,
        // A broken connection, or one that was given up from this side.
        _ if failure.fault.is_some() => ToolExecuted::Unknown,
        // It ran up to its result, whatever that says.
        _ if failure.tool.returned => ToolExecuted::Ended,
        // The server itself refused the request, before it gave it to the tool.
        (_, Some(400 | 401 | 403..=405 | 413..=415 | 422 | 429)) => ToolExecuted::NotExecuted,
        (C::InvalidRequest | C::NotFound, None) if is_refused_by_protocol(&failure.message) => ToolExecuted::NotExecuted,
        _ => ToolExecuted::Ended,
    }
}

/// Returns the idempotency key of one call: the same for every execution of it, another for every other
/// call.
///
/// `arguments` are those of the call (or of the part, if a call is split) before anything was
/// adapted.
#[must_use]
pub fn idempotency_key(invocation: &InvocationId, call: &str, arguments: &str) -> String {
    short_hash([invocation.as_str(), call, arguments])
}

/// Returns the arguments with this key in them; a key that the caller put there itself stays.
#[must_use]
pub fn with_key(arguments: &Arguments, argument: &str, key: &str) -> Arguments {
    let mut keyed = arguments.clone();
    if keyed.get(argument).is_none_or(Value::is_null) {
        keyed.insert(argument.to_owned(), Value::from(key));
    }
    keyed
}

/// Returns the text of these arguments with this key in it, and all else as it was written: numbers
/// keep their digits.
#[must_use]
pub fn with_key_in_text(text: &str, arguments: &Arguments, argument: &str, key: &str) -> String {
    match arguments.get(argument) {
        Some(Value::Null) => arguments::write(&with_key(arguments, argument, key)),
        Some(_) => text.to_owned(),
        None => {
            let open = text.trim().strip_suffix('}').map_or("{", str::trim_end);
            let comma = if arguments.is_empty() { "" } else { "," };
            format!(
                "{open}{comma}{}:{}}}",
                Value::from(argument),
                Value::from(key)
            )
        }
    }
}

fn repeatable(
    policy: &EffectsPolicy,
    claims: SideEffects,
    lifted: SideEffects,
    hints: SideEffects,
    read_only: bool,
    has_key: bool,
) -> (bool, &'static str) {
    if claims.idempotent == Some(false) {
        return (
            false,
            "its caller states that repeating it has a further effect",
        );
    }
    if read_only {
        return (true, "it changes nothing");
    }
    if lifted.idempotent == Some(true) {
        return (
            true,
            "its caller states that repeating it has no further effect",
        );
    }
    match policy.idempotent {
        Some(true) => {
            return (
                true,
                "its operator states that repeating it has no further effect",
            );
        }
        Some(false) => {
            return (
                false,
                "its operator states that repeating it has a further effect",
            );
        }
        None => {}
    }
    if has_key {
        return (
            true,
            "an idempotency key makes its repetition one execution",
        );
    }
    match hints.idempotent {
        Some(true) => (
            true,
            "its server, which is trusted, states that repeating it has no further effect",
        ),
        Some(false) => (
            false,
            "its server states that repeating it has a further effect",
        ),
        None => (
            false,
            "it is not known whether repeating it has a further effect",
        ),
    }
}

fn first<const N: usize>(statements: [Option<bool>; N]) -> Option<bool> {
    statements.into_iter().flatten().next()
}

/// Returns whether a schema lists a property at its root.
fn lists(schema: &Value, property: &str) -> bool {
    schema
        .pointer("/properties")
        .and_then(Value::as_object)
        .is_some_and(|listed| listed.contains_key(property))
}

/// Returns whether the words hold a code by which JSON-RPC refuses a request that it does not
/// execute.
fn is_refused_by_protocol(message: &str) -> bool {
    ["-32600", "-32601", "-32602", "-32700"]
        .iter()
        .any(|code| message.contains(code))
}

#[cfg(test)]
mod tests;
