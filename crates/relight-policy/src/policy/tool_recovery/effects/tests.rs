//! What is taken for the effects of a tool, and whether it may be executed once more.

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
        sent: None,
    }
}

fn effects(policy: &EffectsPolicy, hints: SideEffects, claims: SideEffects) -> Effects {
    Effects::of(policy, Some(&tool(hints)), Some(claims))
}

const NONE: SideEffects = SideEffects {
    read_only: None,
    idempotent: None,
    destructive: None,
    open_world: None,
};
const READS: SideEffects = SideEffects {
    read_only: Some(true),
    ..NONE
};
const REPEATS: SideEffects = SideEffects {
    idempotent: Some(true),
    ..NONE
};

#[test]
fn what_is_not_known_is_taken_for_the_worst() {
    let unknown = effects(&EffectsPolicy::default(), READS, READS);
    assert!(!unknown.read_only && unknown.destructive && unknown.open_world && !unknown.repeatable);
    assert_eq!(
        unknown.reason,
        "it is not known whether repeating it has a further effect"
    );
    assert!(!Effects::of(&EffectsPolicy::default(), None, None).repeatable);
}

#[test]
fn the_operator_comes_before_a_key_and_a_key_before_a_trusted_server() {
    let trusting = EffectsPolicy {
        trust_annotations: true,
        ..EffectsPolicy::default()
    };
    assert!(effects(&trusting, REPEATS, NONE).repeatable);
    assert!(effects(&trusting, READS, NONE).splittable());
    let refusing = EffectsPolicy {
        idempotent: Some(false),
        ..trusting.clone()
    };
    assert!(!effects(&refusing, REPEATS, NONE).repeatable);
    let not = SideEffects {
        idempotent: Some(false),
        ..NONE
    };
    let keyed = EffectsPolicy {
        idempotency_key: Some("key".to_owned()),
        ..trusting
    };
    let with_key = effects(&keyed, not, NONE);
    assert_eq!(
        (with_key.repeatable, with_key.key_argument.as_deref()),
        (true, Some("key"))
    );
    let both = EffectsPolicy {
        idempotent: Some(false),
        ..keyed.clone()
    };
    assert!(
        !effects(&both, NONE, NONE).repeatable,
        "the operator states otherwise"
    );
    let unlisted = EffectsPolicy {
        idempotency_key: Some("other".to_owned()),
        ..keyed
    };
    assert!(
        !effects(&unlisted, NONE, NONE).repeatable,
        "the tool does not take it"
    );
}

#[test]
fn a_caller_adds_caution_and_lifts_it_only_where_it_is_trusted() {
    let operator = EffectsPolicy {
        read_only: Some(true),
        ..EffectsPolicy::default()
    };
    assert!(effects(&operator, NONE, NONE).repeatable);
    for claims in [
        SideEffects {
            read_only: Some(false),
            ..NONE
        },
        SideEffects {
            idempotent: Some(false),
            ..NONE
        },
        SideEffects {
            destructive: Some(true),
            ..NONE
        },
    ] {
        assert!(!effects(&operator, NONE, claims).repeatable, "{claims:?}");
    }
    let trusting = EffectsPolicy {
        trust_callers: true,
        ..EffectsPolicy::default()
    };
    assert!(
        effects(&trusting, NONE, READS).repeatable && effects(&trusting, NONE, REPEATS).repeatable
    );
}

#[test]
fn a_server_that_contradicts_itself_is_believed_in_the_worse() {
    let trusting = EffectsPolicy {
        trust_annotations: true,
        ..EffectsPolicy::default()
    };
    let both = SideEffects {
        destructive: Some(true),
        ..READS
    };
    let effects = effects(&trusting, both, NONE);
    assert!(!effects.read_only && effects.destructive && !effects.repeatable);
}

#[test]
fn a_failure_says_whether_the_tool_was_executed() {
    use FailureClass as C;
    use ToolExecuted as E;
    use TransportFault as F;

    let failed =
        |class, status: Option<u16>, fault: Option<TransportFault>, message: &str| Failure {
            status,
            fault,
            never_sent: fault.is_some_and(TransportFault::never_sent),
            ..Failure::local(class, message)
        };
    for (failure, expected) in [
        (
            failed(C::Network, None, Some(F::Refused), ""),
            E::NotExecuted,
        ),
        (
            failed(C::Timeout, None, Some(F::ConnectTimeout), ""),
            E::NotExecuted,
        ),
        (failed(C::RateLimited, Some(429), None, ""), E::NotExecuted),
        (
            failed(C::NotFound, None, None, "MCP error -32602: Unknown tool: x"),
            E::NotExecuted,
        ),
        (
            failed(
                C::InvalidRequest,
                None,
                None,
                "MCP error -32602: Invalid arguments",
            ),
            E::NotExecuted,
        ),
        (
            failed(C::Timeout, None, Some(F::FirstTokenTimeout), ""),
            E::Unknown,
        ),
        (
            failed(C::Timeout, None, None, "Request timeout"),
            E::Unknown,
        ),
        (
            failed(C::StreamInterrupted, None, Some(F::Cut), ""),
            E::Unknown,
        ),
        (failed(C::Network, None, Some(F::Reset), ""), E::Unknown),
        (
            failed(C::Crash, None, Some(F::ProcessExited), ""),
            E::Unknown,
        ),
        (failed(C::Overloaded, Some(503), None, ""), E::Unknown),
        (failed(C::Timeout, Some(504), None, ""), E::Unknown),
        (failed(C::Timeout, Some(408), None, ""), E::Unknown),
        (
            failed(
                C::MalformedResponse,
                None,
                None,
                "MCP error -32602: Output validation error",
            ),
            E::Unknown,
        ),
        (
            failed(C::MalformedResponse, None, Some(F::TooLarge), ""),
            E::Unknown,
        ),
        (
            failed(C::Cancelled, None, Some(F::Cancelled), ""),
            E::Unknown,
        ),
        (failed(C::Deadline, None, None, ""), E::Unknown),
        (
            failed(C::RateLimited, None, None, "after 50 of 100 mails"),
            E::Ended,
        ),
        (
            failed(C::NotFound, None, None, "Activity not found"),
            E::Ended,
        ),
        (failed(C::ServerError, Some(500), None, ""), E::Ended),
        (failed(C::ToolFailed, None, None, ""), E::Ended),
    ] {
        assert_eq!(execution(&failure), expected, "{failure:?}");
    }
    assert_eq!(
        execution(&Failure::local(C::CircuitOpen, "")),
        E::NotExecuted
    );
}

#[test]
fn what_may_have_been_executed_and_is_not_repeatable_has_an_unknown_outcome() {
    use FailureClass as C;
    let once = EffectsPolicy::default();
    let repeatable = EffectsPolicy {
        read_only: Some(true),
        ..once.clone()
    };
    for (policy, class, never_sent, expected) in [
        (&once, C::Timeout, false, C::OutcomeUnknown),
        (&once, C::Timeout, true, C::Timeout),
        (&once, C::ToolFailed, false, C::ToolFailed),
        (&once, C::Cancelled, false, C::Cancelled),
        (&repeatable, C::Timeout, false, C::Timeout),
    ] {
        let fault = (class == C::Cancelled).then_some(TransportFault::Cancelled);
        let failure = Failure {
            never_sent,
            fault,
            retryable: true,
            ..Failure::local(class, "it failed")
        };
        let judged = effects(policy, NONE, NONE).judged(failure);
        assert_eq!(
            (judged.class, judged.retryable),
            (expected, expected != C::OutcomeUnknown),
            "{class}"
        );
    }
}

#[test]
fn a_key_is_the_same_for_one_call_and_another_for_every_other() {
    let key = |invocation: &str, call, arguments| {
        idempotency_key(&InvocationId::from(invocation), call, arguments)
    };
    let one = key("i", "c", "{}");
    assert_eq!((one.len(), &one), (32, &key("i", "c", "{}")));
    for other in [
        key("j", "c", "{}"),
        key("i", "d", "{}"),
        key("i", "c", "{ }"),
        key("ic", "", "{}"),
    ] {
        assert_ne!(one, other);
    }
    let given = super::super::arguments::read(r#"{"key":"mine"}"#).unwrap();
    assert_eq!(with_key(&given, "key", &one), given);
    assert_eq!(
        with_key(&Arguments::new(), "key", &one).get("key"),
        Some(&Value::from(one.as_str()))
    );
}

#[test]
fn a_key_changes_nothing_else_of_what_was_written() {
    for (text, expected) in [
        ("", r#"{"key":"k"}"#),
        (" { } ", r#"{"key":"k"}"#),
        (
            "{\"n\": 12345678901234567890123, \"x\": 1.50}\n",
            r#"{"n": 12345678901234567890123, "x": 1.50,"key":"k"}"#,
        ),
        (r#"{"key": "mine" }"#, r#"{"key": "mine" }"#),
        (r#"{"key": null}"#, r#"{"key":"k"}"#),
    ] {
        let arguments = super::super::arguments::read(text).unwrap();
        assert_eq!(with_key_in_text(text, &arguments, "key", "k"), expected);
    }
}
