//! When the tool that failed is executed again, with the same arguments or with adapted ones.

use super::*;

#[test]
fn what_was_not_executed_or_may_be_repeated_is_retried() {
    decided(vec![
        (
            "not sent: retried, whatever the tool does",
            World::reading(),
            writing,
            fault(F::Refused, C::Network),
            "retry",
        ),
        (
            "refused before execution: retried",
            World::reading(),
            writing,
            Failure {
                status: Some(429),
                ..retryable(C::RateLimited)
            },
            "retry",
        ),
        (
            "read-only: a timeout is retried",
            World::reading(),
            keep,
            retryable(C::Timeout),
            "retry",
        ),
        (
            "read-only: a broken stream is retried",
            World::reading(),
            keep,
            fault(F::Cut, C::StreamInterrupted),
            "retry",
        ),
        (
            "not repeatable: a timeout is unknown",
            World::reading(),
            writing,
            retryable(C::Timeout),
            "unknown",
        ),
        (
            "not repeatable: a reset is unknown",
            World::reading(),
            writing,
            fault(F::Reset, C::Network),
            "unknown",
        ),
        (
            "not repeatable: a cut is unknown",
            World::reading(),
            writing,
            fault(F::Cut, C::StreamInterrupted),
            "unknown",
        ),
        (
            "not repeatable: an exit is unknown",
            World::reading(),
            writing,
            fault(F::ProcessExited, C::Crash),
            "unknown",
        ),
        (
            "not repeatable: a reported failure is explained",
            World::reading(),
            writing,
            failed(C::ToolFailed),
            "explain",
        ),
        (
            "not repeatable: a limit met half way is explained",
            World::reading(),
            writing,
            retryable(C::RateLimited),
            "explain",
        ),
        (
            "unknown stays unknown",
            World::reading(),
            keep,
            failed(C::OutcomeUnknown),
            "unknown",
        ),
        (
            "retries are bounded",
            World::reading(),
            used_up,
            retryable(C::Network),
            "explain",
        ),
        (
            "a bug of the tool is not repeated",
            World::reading(),
            keep,
            failed(C::ServerError),
            "explain",
        ),
    ]);
}

#[test]
fn refused_arguments_are_adapted_or_handed_back() {
    decided(vec![
        (
            "an argument error refetches the list first",
            renamed(),
            |world| world.is_fresh = false,
            mismatch(),
            "refetch",
        ),
        ("a rename is adapted", renamed(), keep, mismatch(), "adapt"),
        (
            "an unchanged schema is the model's mistake",
            World::reading(),
            |world| world.arguments = arguments::read(r#"{"limit":"x"}"#).unwrap(),
            mismatch(),
            "fail",
        ),
        (
            "a compatible change is called as it is",
            World::reading(),
            |world| {
                world.current = Some(tool(
                    "get_activities",
                    json!({"after": {}, "before": {}, "page": {}, "limit": {}}),
                    json!([]),
                ));
            },
            mismatch(),
            "retry",
        ),
        (
            "what is ambiguous is handed back",
            renamed(),
            |world| {
                world.current = Some(tool(
                    "get_activities",
                    json!({"a": {"type": "integer"}, "b": {"type": "integer"}}),
                    json!([]),
                ));
            },
            mismatch(),
            "fail",
        ),
        (
            "an adaptation that did not help is not made twice",
            renamed(),
            |world| world.tried.adaptations = 1,
            mismatch(),
            "explain",
        ),
        (
            "a schema that does not compile is one error",
            renamed(),
            |world| {
                world.current = Some(tool(
                    "get_activities",
                    json!({"a": {"type": "odd"}}),
                    json!([]),
                ));
            },
            mismatch(),
            "fail",
        ),
    ]);
}

#[test]
fn a_tool_that_was_removed_or_may_do_harm_is_not_simply_adapted() {
    decided(vec![
        (
            "a removed tool has an alternative",
            renamed(),
            |world| {
                world.current = None;
                world.alternative("mirror", Some(0));
            },
            mismatch(),
            "alternative",
        ),
        (
            "a removed tool without one is explained",
            renamed(),
            |world| world.current = None,
            mismatch(),
            "explain",
        ),
        (
            "a destructive tool is not adapted",
            renamed(),
            |world| world.effects.destructive = true,
            mismatch(),
            "fail",
        ),
        (
            "what may be half done is not adapted",
            renamed(),
            |world| {
                world.effects.repeatable = false;
                world.effects.read_only = false;
            },
            Failure {
                detail: Some(D::Other),
                ..mismatch()
            },
            "explain",
        ),
    ]);
}
