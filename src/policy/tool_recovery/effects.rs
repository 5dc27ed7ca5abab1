//! What a tool does to the world as far as it is known, and so whether an execution of it may be repeated.
//!
//! In this order: what the operator states, an argument that carries an idempotency key, what a trusted server states.
//! What remains unknown is taken for the worst. A caller may add caution; it lifts some only where the operator lets
//! it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::{Arguments, short_hash};
use crate::domain::{
    failure::{Failure, FailureClass, words},
    ids::InvocationId,
    invocation::SideEffects,
    tool::ToolSpec,
};

/// What the operator states about the side effects of a tool.
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
    /// The argument in which the tool takes an idempotency key. Relight fills it; the tool must list it in its schema.
    pub idempotency_key: Option<String>,
    /// Whether what the tool's server states in its annotations counts; default false.
    pub trust_annotations: bool,
    /// Whether a caller may state that a tool is safer than is known here; default false, it may only add caution.
    pub trust_callers: bool,
}

/// The side effects that a tool is taken to have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the tool")]
pub struct Effects {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy or overwrite.
    pub destructive: bool,
    /// It acts on the world outside its own data.
    pub open_world: bool,
    /// Whether an execution that may have taken place may be repeated.
    pub repeatable: bool,
    /// The argument that carries an idempotency key, where it is what makes the tool repeatable.
    pub key_argument: Option<String>,
    /// Why it is or is not repeatable, in words that follow "because".
    pub reason: &'static str,
}

/// Whether the tool was executed, as far as a failure shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolExecuted {
    /// It surely was not: nothing was sent, or it was refused before it began.
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
    pub fn of(policy: &EffectsPolicy, tool: Option<&ToolSpec>, caller: Option<SideEffects>) -> Self {
        let hints = tool.filter(|_| policy.trust_annotations).map(|tool| tool.annotations).unwrap_or_default();
        let claims = caller.unwrap_or_default();
        let lifted = if policy.trust_callers { claims } else { SideEffects::default() };
        // Who states that a tool both changes nothing and destroys is believed in the worse.
        let read_only_hint = hints.read_only.map(|it| it && hints.destructive != Some(true));
        let stated_read_only = first([lifted.read_only, policy.read_only, read_only_hint]);
        let destroys = claims.destructive == Some(true) || policy.destructive == Some(true);
        let read_only = stated_read_only == Some(true) && claims.read_only != Some(false) && !destroys;
        let worst = |stated: Option<bool>, claim: Option<bool>, otherwise: bool| {
            claim == Some(true) || stated.unwrap_or(otherwise)
        };
        let destructive =
            worst(first([lifted.destructive, policy.destructive, hints.destructive]), claims.destructive, !read_only);
        let open_world =
            worst(first([lifted.open_world, policy.open_world, hints.open_world]), claims.open_world, true);
        let key_argument =
            policy.idempotency_key.clone().filter(|key| tool.is_some_and(|tool| lists(&tool.input_schema, key)));
        let (repeatable, reason) = repeatable(policy, claims, lifted, hints, read_only, key_argument.is_some());
        let key_argument = key_argument.filter(|_| repeatable && !read_only);
        Self { read_only, destructive, open_world, repeatable, key_argument, reason }
    }

    /// Whether a call may be split into several that together do the same.
    #[must_use]
    pub const fn splittable(&self) -> bool {
        self.read_only || (self.repeatable && !self.destructive)
    }

    /// Whether this tool does nothing that the other one does not do as well.
    #[must_use]
    pub const fn not_worse_than(&self, other: &Self) -> bool {
        (self.read_only || !other.read_only)
            && (!self.destructive || other.destructive)
            && (!self.open_world || other.open_world)
            && (self.repeatable || !other.repeatable)
    }

    /// Whether what failed so may be executed once more, here or by another tool.
    #[must_use]
    pub fn allow_again(&self, failure: &Failure) -> bool {
        self.repeatable || execution(failure) == ToolExecuted::NotExecuted
    }

    /// Whether such a failure leaves it open what happened, and nothing may be done to find out.
    #[must_use]
    pub fn leave_open(&self, failure: &Failure) -> bool {
        !self.repeatable && execution(failure) == ToolExecuted::Unknown
    }

    /// The failure of an execution: where the tool may have been executed and must not be once more, what happened is not
    /// known. A caller who cancelled knows that.
    #[must_use]
    pub fn judged(&self, failure: Failure) -> Failure {
        let is_open = self.leave_open(&failure) && failure.class != FailureClass::Cancelled;
        if is_open { outcome_unknown(failure) } else { failure }
    }
}

/// The same failure as one that leaves it open what happened.
#[must_use]
pub fn outcome_unknown(failure: Failure) -> Failure {
    Failure {
        class: FailureClass::OutcomeUnknown,
        retryable: false,
        fallback_helps: false,
        retry_after: None,
        message: format!("{}; whether the tool was executed is not known", failure.message),
        user_message: words::for_user(FailureClass::OutcomeUnknown, None).into_owned(),
        recovery_hint: words::for_operator(FailureClass::OutcomeUnknown, None, None, true).into_owned(),
        ..failure
    }
}

/// Whether the tool was executed, as far as a failure shows it.
#[must_use]
pub fn execution(failure: &Failure) -> ToolExecuted {
    use FailureClass as C;
    if failure.never_sent {
        return ToolExecuted::NotExecuted;
    }
    match (failure.class, failure.status) {
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
        // The server itself refused the request, before it gave it to the tool.
        (_, Some(400 | 401 | 403..=405 | 413..=415 | 422 | 429)) => ToolExecuted::NotExecuted,
        (C::InvalidRequest | C::NotFound, None) if is_refused_by_protocol(&failure.message) => ToolExecuted::NotExecuted,
        _ => ToolExecuted::Ended,
    }
}

/// The idempotency key of one call: the same for every execution of it, another for every other call.
///
/// `arguments` are those of the call (or of the part, where a call is split) before anything was adapted.
#[must_use]
pub fn idempotency_key(invocation: &InvocationId, call: &str, arguments: &str) -> String {
    short_hash([invocation.as_str(), call, arguments])
}

/// The arguments with this key in them; a key that the caller put there itself stays.
#[must_use]
pub fn with_key(arguments: &Arguments, argument: &str, key: &str) -> Arguments {
    let mut keyed = arguments.clone();
    if keyed.get(argument).is_none_or(Value::is_null) {
        keyed.insert(argument.to_owned(), Value::from(key));
    }
    keyed
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
        return (false, "its caller states that repeating it has a further effect");
    }
    if read_only {
        return (true, "it changes nothing");
    }
    if lifted.idempotent == Some(true) {
        return (true, "its caller states that repeating it has no further effect");
    }
    match policy.idempotent {
        Some(true) => return (true, "its operator states that repeating it has no further effect"),
        Some(false) => return (false, "its operator states that repeating it has a further effect"),
        None => {}
    }
    if has_key {
        return (true, "an idempotency key makes its repetition one execution");
    }
    match hints.idempotent {
        Some(true) => (true, "its server, which is trusted, states that repeating it has no further effect"),
        Some(false) => (false, "its server states that repeating it has a further effect"),
        None => (false, "it is not known whether repeating it has a further effect"),
    }
}

fn first<const N: usize>(statements: [Option<bool>; N]) -> Option<bool> {
    statements.into_iter().flatten().next()
}

/// Whether a schema lists a property at its root.
fn lists(schema: &Value, property: &str) -> bool {
    schema.pointer("/properties").and_then(Value::as_object).is_some_and(|listed| listed.contains_key(property))
}

/// Whether the words hold a code by which JSON-RPC refuses a request that it does not execute.
fn is_refused_by_protocol(message: &str) -> bool {
    ["-32600", "-32601", "-32602", "-32700"].iter().any(|code| message.contains(code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::failure::TransportFault;

    fn tool(annotations: SideEffects) -> ToolSpec {
        ToolSpec {
            name: "t".to_owned(),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": {"key": {"type": "string"}}}).into(),
            output_schema: None,
            annotations,
        }
    }

    fn effects(policy: &EffectsPolicy, hints: SideEffects, claims: SideEffects) -> Effects {
        Effects::of(policy, Some(&tool(hints)), Some(claims))
    }

    const NONE: SideEffects = SideEffects { read_only: None, idempotent: None, destructive: None, open_world: None };
    const READS: SideEffects = SideEffects { read_only: Some(true), ..NONE };
    const REPEATS: SideEffects = SideEffects { idempotent: Some(true), ..NONE };

    #[test]
    fn what_is_not_known_is_taken_for_the_worst() {
        let unknown = effects(&EffectsPolicy::default(), READS, READS);
        assert!(!unknown.read_only && unknown.destructive && unknown.open_world && !unknown.repeatable);
        assert_eq!(unknown.reason, "it is not known whether repeating it has a further effect");
        assert!(!Effects::of(&EffectsPolicy::default(), None, None).repeatable);
    }

    #[test]
    fn the_operator_comes_before_a_key_and_a_key_before_a_trusted_server() {
        let trusting = EffectsPolicy { trust_annotations: true, ..EffectsPolicy::default() };
        assert!(effects(&trusting, REPEATS, NONE).repeatable);
        assert!(effects(&trusting, READS, NONE).splittable());
        let refusing = EffectsPolicy { idempotent: Some(false), ..trusting.clone() };
        assert!(!effects(&refusing, REPEATS, NONE).repeatable);
        let not = SideEffects { idempotent: Some(false), ..NONE };
        let keyed = EffectsPolicy { idempotency_key: Some("key".to_owned()), ..trusting };
        let with_key = effects(&keyed, not, NONE);
        assert_eq!((with_key.repeatable, with_key.key_argument.as_deref()), (true, Some("key")));
        let both = EffectsPolicy { idempotent: Some(false), ..keyed.clone() };
        assert!(!effects(&both, NONE, NONE).repeatable, "the operator states otherwise");
        let unlisted = EffectsPolicy { idempotency_key: Some("other".to_owned()), ..keyed };
        assert!(!effects(&unlisted, NONE, NONE).repeatable, "the tool does not take it");
    }

    #[test]
    fn a_caller_adds_caution_and_lifts_it_only_where_it_is_trusted() {
        let operator = EffectsPolicy { read_only: Some(true), ..EffectsPolicy::default() };
        assert!(effects(&operator, NONE, NONE).repeatable);
        for claims in [
            SideEffects { read_only: Some(false), ..NONE },
            SideEffects { idempotent: Some(false), ..NONE },
            SideEffects { destructive: Some(true), ..NONE },
        ] {
            assert!(!effects(&operator, NONE, claims).repeatable, "{claims:?}");
        }
        let trusting = EffectsPolicy { trust_callers: true, ..EffectsPolicy::default() };
        assert!(effects(&trusting, NONE, READS).repeatable && effects(&trusting, NONE, REPEATS).repeatable);
    }

    #[test]
    fn a_server_that_contradicts_itself_is_believed_in_the_worse() {
        let trusting = EffectsPolicy { trust_annotations: true, ..EffectsPolicy::default() };
        let both = SideEffects { destructive: Some(true), ..READS };
        let effects = effects(&trusting, both, NONE);
        assert!(!effects.read_only && effects.destructive && !effects.repeatable);
    }

    #[test]
    fn a_failure_says_whether_the_tool_was_executed() {
        use FailureClass as C;
        use ToolExecuted as E;
        use TransportFault as F;

        let failed = |class, status: Option<u16>, fault: Option<TransportFault>, message: &str| Failure {
            status,
            fault,
            never_sent: fault.is_some_and(TransportFault::never_sent),
            ..Failure::local(class, message)
        };
        for (failure, expected) in [
            (failed(C::Network, None, Some(F::Refused), ""), E::NotExecuted),
            (failed(C::Timeout, None, Some(F::ConnectTimeout), ""), E::NotExecuted),
            (failed(C::RateLimited, Some(429), None, ""), E::NotExecuted),
            (failed(C::NotFound, None, None, "MCP error -32602: Unknown tool: x"), E::NotExecuted),
            (failed(C::InvalidRequest, None, None, "MCP error -32602: Invalid arguments"), E::NotExecuted),
            (failed(C::Timeout, None, Some(F::FirstTokenTimeout), ""), E::Unknown),
            (failed(C::Timeout, None, None, "Request timeout"), E::Unknown),
            (failed(C::StreamInterrupted, None, Some(F::Cut), ""), E::Unknown),
            (failed(C::Network, None, Some(F::Reset), ""), E::Unknown),
            (failed(C::Crash, None, Some(F::ProcessExited), ""), E::Unknown),
            (failed(C::Overloaded, Some(503), None, ""), E::Unknown),
            (failed(C::Timeout, Some(504), None, ""), E::Unknown),
            (failed(C::Timeout, Some(408), None, ""), E::Unknown),
            (failed(C::MalformedResponse, None, None, "MCP error -32602: Output validation error"), E::Unknown),
            (failed(C::MalformedResponse, None, Some(F::TooLarge), ""), E::Unknown),
            (failed(C::Cancelled, None, Some(F::Cancelled), ""), E::Unknown),
            (failed(C::Deadline, None, None, ""), E::Unknown),
            (failed(C::RateLimited, None, None, "after 50 of 100 mails"), E::Ended),
            (failed(C::NotFound, None, None, "Activity not found"), E::Ended),
            (failed(C::ServerError, Some(500), None, ""), E::Ended),
            (failed(C::ToolFailed, None, None, ""), E::Ended),
        ] {
            assert_eq!(execution(&failure), expected, "{failure:?}");
        }
        assert_eq!(execution(&Failure::local(C::CircuitOpen, "")), E::NotExecuted);
    }

    #[test]
    fn what_may_have_been_executed_and_is_not_repeatable_has_an_unknown_outcome() {
        use FailureClass as C;
        let once = EffectsPolicy::default();
        let repeatable = EffectsPolicy { read_only: Some(true), ..once.clone() };
        for (policy, class, never_sent, expected) in [
            (&once, C::Timeout, false, C::OutcomeUnknown),
            (&once, C::Timeout, true, C::Timeout),
            (&once, C::ToolFailed, false, C::ToolFailed),
            (&once, C::Cancelled, false, C::Cancelled),
            (&repeatable, C::Timeout, false, C::Timeout),
        ] {
            let fault = (class == C::Cancelled).then_some(TransportFault::Cancelled);
            let failure = Failure { never_sent, fault, retryable: true, ..Failure::local(class, "it failed") };
            let judged = effects(policy, NONE, NONE).judged(failure);
            assert_eq!((judged.class, judged.retryable), (expected, expected != C::OutcomeUnknown), "{class}");
        }
    }

    #[test]
    fn a_key_is_the_same_for_one_call_and_another_for_every_other() {
        let key = |invocation: &str, call, arguments| idempotency_key(&InvocationId::from(invocation), call, arguments);
        let one = key("i", "c", "{}");
        assert_eq!((one.len(), &one), (32, &key("i", "c", "{}")));
        for other in [key("j", "c", "{}"), key("i", "d", "{}"), key("i", "c", "{ }"), key("ic", "", "{}")] {
            assert_ne!(one, other);
        }
        let given = super::super::arguments::read(r#"{"key":"mine"}"#).unwrap();
        assert_eq!(with_key(&given, "key", &one), given);
        assert_eq!(with_key(&Arguments::new(), "key", &one).get("key"), Some(&Value::from(one.as_str())));
    }
}
