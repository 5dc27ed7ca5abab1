//! The ladder: one row for each line of its table, the source's own examples, and what never happens.

mod never;
mod seed;
mod world;

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::domain::failure::{FailureClass as C, InvalidRequestDetail as D, TransportFault as F, WaitSource};
use world::{World, failed, tool};

/// The step as a row of a table names it.
fn rung(step: &ToolStep) -> &'static str {
    match step {
        ToolStep::Retry { .. } => "retry",
        ToolStep::RefetchList { .. } => "refetch",
        ToolStep::Adapt { .. } => "adapt",
        ToolStep::Alternative { .. } => "alternative",
        ToolStep::Offer { .. } => "offer",
        ToolStep::Chunk { .. } => "chunk",
        ToolStep::Explain { .. } => "explain",
        ToolStep::OutcomeUnknown { .. } => "unknown",
        ToolStep::Fail { .. } => "fail",
    }
}

fn mismatch() -> Failure {
    let message = "TypeError(\"unexpected keyword argument 'limit'\")".to_owned();
    Failure { detail: Some(D::ParameterMismatch), message, ..failed(C::InvalidRequest) }
}

fn fault(fault: F, class: C) -> Failure {
    Failure { fault: Some(fault), never_sent: fault.never_sent(), retryable: true, ..failed(class) }
}

fn retryable(class: C) -> Failure {
    Failure { retryable: true, ..failed(class) }
}

/// A world whose tool was changed from `limit` to `max_results`.
fn renamed() -> World {
    let mut world = World::reading();
    world.arguments = arguments::read(r#"{"limit": 10}"#).unwrap();
    world.current = Some(tool("get_activities", json!({"max_results": {"type": "integer"}}), json!([])));
    world
}

type Change = fn(&mut World);

/// A line of the design, what is known, the failure, the step.
type Row = (&'static str, World, Change, Failure, &'static str);

fn keep(_: &mut World) {}

fn splittable(world: &mut World) {
    world.split_by_dates();
}

fn group(world: &mut World) {
    world.alternative("mirror", Some(0));
}

fn other(world: &mut World) {
    world.alternative("get_activity", None);
}

fn writing(world: &mut World) {
    world.effects = World::writing_effects();
}

fn used_up(world: &mut World) {
    world.tried.retries = 2;
}

fn decided(rows: Vec<Row>) {
    for (line, mut world, change, failure, expected) in rows {
        change(&mut world);
        let step = world.decide(&failure);
        assert_eq!(rung(&step), expected, "{line}: {step:?}");
        assert!(!step.reason().is_empty() && !step.reason().contains('\n'), "{line}: {}", step.reason());
    }
}

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
            Failure { status: Some(429), ..retryable(C::RateLimited) },
            "retry",
        ),
        ("read-only: a timeout is retried", World::reading(), keep, retryable(C::Timeout), "retry"),
        ("read-only: a broken stream is retried", World::reading(), keep, fault(F::Cut, C::StreamInterrupted), "retry"),
        ("not repeatable: a timeout is unknown", World::reading(), writing, retryable(C::Timeout), "unknown"),
        ("not repeatable: a reset is unknown", World::reading(), writing, fault(F::Reset, C::Network), "unknown"),
        ("not repeatable: a cut is unknown", World::reading(), writing, fault(F::Cut, C::StreamInterrupted), "unknown"),
        ("not repeatable: an exit is unknown", World::reading(), writing, fault(F::ProcessExited, C::Crash), "unknown"),
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
        ("unknown stays unknown", World::reading(), keep, failed(C::OutcomeUnknown), "unknown"),
        ("retries are bounded", World::reading(), used_up, retryable(C::Network), "explain"),
        ("a bug of the tool is not repeated", World::reading(), keep, failed(C::ServerError), "explain"),
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
            "a removed tool has an alternative",
            renamed(),
            |world| {
                world.current = None;
                world.alternative("mirror", Some(0));
            },
            mismatch(),
            "alternative",
        ),
        ("a removed tool without one is explained", renamed(), |world| world.current = None, mismatch(), "explain"),
        (
            "a destructive tool is adapted only with leave",
            renamed(),
            |world| world.effects.destructive = true,
            mismatch(),
            "fail",
        ),
        (
            "a destructive tool with leave",
            renamed(),
            |world| {
                world.effects.destructive = true;
                world.policy.adapt_destructive = true;
            },
            mismatch(),
            "adapt",
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
            |world| world.current = Some(tool("get_activities", json!({"a": {"type": "odd"}}), json!([]))),
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
            Failure { detail: Some(D::Other), ..mismatch() },
            "explain",
        ),
    ]);
}

#[test]
fn a_declared_group_stands_in_and_others_are_offered() {
    decided(vec![
        ("a declared group is called automatically", World::reading(), group, failed(C::NotFound), "alternative"),
        ("others are offered", World::reading(), other, failed(C::NotFound), "offer"),
        (
            "not found refetches the list first",
            World::reading(),
            |world| world.is_fresh = false,
            failed(C::NotFound),
            "refetch",
        ),
        (
            "the group takes over when retries are used up",
            World::reading(),
            |world| {
                world.tried.retries = 2;
                world.alternative("mirror", Some(0));
            },
            retryable(C::Network),
            "alternative",
        ),
        (
            "an open circuit leads to the group",
            World::reading(),
            group,
            Failure { retryable: true, ..Failure::local(C::CircuitOpen, "") },
            "alternative",
        ),
        ("quota leads to the group", World::reading(), group, failed(C::QuotaExceeded), "alternative"),
        (
            "alternatives are bounded",
            World::reading(),
            |world| {
                world.tried.alternatives = 2;
                world.alternative("mirror", Some(0));
            },
            failed(C::QuotaExceeded),
            "offer",
        ),
        (
            "not repeatable: offered, not called",
            World::reading(),
            |world| {
                world.effects = World::writing_effects();
                world.alternative("mirror", Some(0));
            },
            failed(C::NotFound),
            "offer",
        ),
    ]);
}

#[test]
fn a_tool_that_is_closed_for_more_than_a_second_is_left_for_another_one() {
    for (millis, expected) in [(None, true), (Some(1001), true), (Some(1000), false), (Some(0), false)] {
        let refusal = Failure::local(C::CircuitOpen, "");
        let refusal = match millis {
            Some(millis) => refusal.with_retry_after(Duration::from_millis(millis), WaitSource::Gate),
            None => refusal,
        };
        assert_eq!(is_left(&refusal), expected, "{millis:?}");
    }
}

#[test]
fn what_is_too_slow_too_large_or_limited_is_split() {
    decided(vec![
        ("a timeout is split", World::reading(), splittable, retryable(C::Timeout), "chunk"),
        (
            "a result too large is split",
            World::reading(),
            splittable,
            Failure { fault: Some(F::TooLarge), ..failed(C::MalformedResponse) },
            "chunk",
        ),
        ("a request too large is split", World::reading(), splittable, failed(C::ContextLength), "chunk"),
        ("a limit is split", World::reading(), splittable, retryable(C::RateLimited), "chunk"),
        (
            "a limit that states its wait is waited for first",
            World::reading(),
            splittable,
            retryable(C::RateLimited).with_retry_after(Duration::from_secs(2), WaitSource::RetryAfter),
            "retry",
        ),
        (
            "and then split",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.retries = 1;
            },
            retryable(C::RateLimited).with_retry_after(Duration::from_secs(2), WaitSource::RetryAfter),
            "chunk",
        ),
        (
            "a call is split once",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.chunked = true;
            },
            retryable(C::Timeout),
            "retry",
        ),
        (
            "retries come before, where the policy says so",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.policy.retries_before_chunk = 1;
            },
            retryable(C::Timeout),
            "retry",
        ),
        (
            "a tool that may not be repeated is not split",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.effects = World::writing_effects();
            },
            failed(C::ContextLength),
            "explain",
        ),
        (
            "a lost connection is not split",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.retries = 2;
            },
            retryable(C::Network),
            "explain",
        ),
        (
            "an opaque failure is split at last",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.retries = 2;
            },
            Failure { message: "Error executing tool get_activities".to_owned(), ..failed(C::ServerError) },
            "chunk",
        ),
        (
            "an opaque failure is retried first",
            World::reading(),
            splittable,
            Failure { message: "Error executing tool get_activities".to_owned(), ..failed(C::ServerError) },
            "retry",
        ),
    ]);
}

#[test]
fn what_cannot_work_is_explained() {
    decided(vec![
        ("permission is explained after one attempt", World::reading(), group, failed(C::PermissionDenied), "explain"),
        ("so are credentials", World::reading(), group, failed(C::Authentication), "explain"),
        (
            "an exhausted ladder is explained",
            World::reading(),
            |world| world.attempts_left = 0,
            retryable(C::Timeout),
            "explain",
        ),
        (
            "no time is explained",
            World::reading(),
            |world| world.time_left = Some(Duration::from_millis(1)),
            retryable(C::Timeout),
            "explain",
        ),
        (
            "a wait that ends too late is none",
            World::reading(),
            |world| world.time_left = Some(Duration::from_secs(30)),
            retryable(C::RateLimited).with_retry_after(Duration::from_mins(1), WaitSource::RetryAfter),
            "explain",
        ),
    ]);
}

#[test]
fn what_people_and_the_operator_decided_stays() {
    decided(vec![
        ("cancelled", World::reading(), keep, failed(C::Cancelled), "fail"),
        ("rejected", World::reading(), group, failed(C::ApprovalRejected), "fail"),
        ("switched off", World::reading(), |world| world.policy.enabled = false, retryable(C::Timeout), "fail"),
        (
            "switched off, and still not claimed",
            World::reading(),
            |world| {
                world.policy.enabled = false;
                world.effects = World::writing_effects();
            },
            retryable(C::Timeout),
            "unknown",
        ),
    ]);
}

#[test]
fn a_step_carries_what_it_takes_to_obey_it() {
    let mut world = renamed();
    let ToolStep::Adapt { adapted, reason } = world.decide(&mismatch()) else { panic!() };
    assert_eq!(arguments::write(&adapted.arguments), r#"{"max_results":10}"#);
    assert_eq!(reason, "the arguments did not fit `get_activities`: `limit` was sent as `max_results`");
    world = World::reading();
    world.split_by_dates();
    let ToolStep::Chunk { plan, pace, reason } = world.decide(&retryable(C::RateLimited)) else { panic!() };
    assert_eq!((plan.parts(), pace), (6, Some(BackoffKind::Throttle)));
    assert!(reason.ends_with("the range from `after` to `before` was split into 6 parts"), "{reason}");
    assert_eq!(chunk::ChunkRun::new(plan).start_next().len(), 1, "what is limited is called one by one");
    world.arguments = arguments::read(r#"{"limit": "many"}"#).unwrap();
    let ToolStep::Fail { finding, .. } = world.decide(&mismatch()) else { panic!() };
    assert!(matches!(finding, Some(Finding::ToolArguments { mismatch, .. }) if mismatch.path == "/limit"));
}

#[test]
fn a_call_for_more_than_the_schema_allows_at_once_is_split_and_not_a_mistake() {
    let mut world = World::reading();
    world.arguments = arguments::read(r#"{"limit": 500}"#).unwrap();
    let bounded = tool(
        "get_activities",
        json!({"limit": {"type": "integer", "maximum": 100}, "offset": {"type": "integer"}}),
        json!([]),
    );
    (world.old, world.current) = (Some(bounded.clone()), Some(bounded));
    world.split_by_pages();
    assert_eq!(rung(&world.decide(&mismatch())), "chunk");
    let plain = tool("get_activities", json!({"limit": {"type": "integer"}, "offset": {"type": "integer"}}), json!([]));
    (world.old, world.current) = (Some(plain.clone()), Some(plain));
    let refused =
        Failure { message: "limit must be less than or equal to 200".to_owned(), ..failed(C::InvalidRequest) };
    assert_eq!(rung(&world.decide(&refused)), "chunk");
}

#[test]
fn parts_and_other_tools_do_not_get_the_key_of_the_whole_call() {
    let mut world = World::reading();
    world.split_by_dates();
    world.effects = Effects { read_only: false, key_argument: Some("key".to_owned()), ..World::reading_effects() };
    world.arguments.insert("key".to_owned(), json!("k"));
    let ToolStep::Chunk { plan, .. } = world.decide(&retryable(C::Timeout)) else { panic!() };
    assert!(chunk::ChunkRun::new(plan).start_next().iter().all(|task| !task.arguments.contains_key("key")));
}
