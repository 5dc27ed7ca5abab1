//! The ladder: one row for each line of its table, the source's own examples, and what never
//! happens.

mod equals;
mod never;
mod pleas;
mod same_tool;
mod seed;
mod split;
mod world;

use std::time::Duration;

use serde_json::json;

use super::{alternatives::Equivalence, *};
use crate::domain::failure::{
    FailureClass as C, InvalidRequestDetail as D, TransportFault as F, WaitSource,
};
use world::{World, failed, tool};

/// Returns the step as a row of a table names it.
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
    Failure {
        detail: Some(D::ParameterMismatch),
        message,
        ..failed(C::InvalidRequest)
    }
}

fn fault(fault: F, class: C) -> Failure {
    Failure {
        fault: Some(fault),
        never_sent: fault.never_sent(),
        retryable: true,
        ..failed(class)
    }
}

fn retryable(class: C) -> Failure {
    Failure {
        retryable: true,
        ..failed(class)
    }
}

/// Returns a world whose tool was changed from `limit` to `max_results`.
fn renamed() -> World {
    let mut world = World::reading();
    world.arguments = arguments::read(r#"{"limit": 10}"#).unwrap();
    world.current = Some(tool(
        "get_activities",
        json!({"max_results": {"type": "integer"}}),
        json!([]),
    ));
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
        assert!(
            !step.reason().is_empty() && !step.reason().contains('\n'),
            "{line}: {}",
            step.reason()
        );
    }
}

#[test]
fn the_caller_reads_why_another_tool_is_called() {
    for (equivalence, words) in [
        (
            Equivalence::StableRelease,
            "it is the stable release and the other one is its candidate",
        ),
        (
            Equivalence::Group(0),
            "its operator declared it as equivalent",
        ),
    ] {
        let mut world = World::reading();
        world.others.push((
            tool("mirror", json!({"after": {}, "before": {}}), json!([])),
            Some(equivalence),
        ));
        let reason = world.decide(&failed(C::NotFound)).reason().clone();
        assert!(
            reason.ends_with(&format!(
                "`mirror` is called in place of `get_activities`, because {words}"
            )),
            "{reason}"
        );
    }
}

#[test]
fn a_declared_group_stands_in_and_others_are_offered() {
    decided(vec![
        (
            "a declared group is called automatically",
            World::reading(),
            group,
            failed(C::NotFound),
            "alternative",
        ),
        (
            "others are offered",
            World::reading(),
            other,
            failed(C::NotFound),
            "offer",
        ),
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
            Failure {
                retryable: true,
                ..Failure::local(C::CircuitOpen, "")
            },
            "alternative",
        ),
        (
            "quota leads to the group",
            World::reading(),
            group,
            failed(C::QuotaExceeded),
            "alternative",
        ),
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
            "not repeatable: neither called nor offered, as it would act twice",
            World::reading(),
            |world| {
                world.effects = World::writing_effects();
                world.alternative("mirror", Some(0));
            },
            failed(C::NotFound),
            "explain",
        ),
    ]);
}

#[test]
fn a_tool_that_is_closed_for_more_than_a_second_is_left_for_another_one() {
    for (millis, expected) in [
        (None, true),
        (Some(1001), true),
        (Some(1000), false),
        (Some(0), false),
    ] {
        let refusal = Failure::local(C::CircuitOpen, "");
        let refusal = match millis {
            Some(millis) => {
                refusal.with_retry_after(Duration::from_millis(millis), WaitSource::Gate)
            }
            None => refusal,
        };
        assert_eq!(is_left(&refusal), expected, "{millis:?}");
    }
}

#[test]
fn what_cannot_work_is_explained() {
    decided(vec![
        (
            "permission is explained after one attempt",
            World::reading(),
            group,
            failed(C::PermissionDenied),
            "explain",
        ),
        (
            "so are credentials",
            World::reading(),
            group,
            failed(C::Authentication),
            "explain",
        ),
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
            retryable(C::RateLimited)
                .with_retry_after(Duration::from_mins(1), WaitSource::RetryAfter),
            "explain",
        ),
    ]);
}

#[test]
fn what_people_and_the_operator_decided_stays() {
    decided(vec![
        (
            "cancelled",
            World::reading(),
            keep,
            failed(C::Cancelled),
            "fail",
        ),
        (
            "rejected",
            World::reading(),
            group,
            failed(C::ApprovalRejected),
            "fail",
        ),
        (
            "switched off",
            World::reading(),
            |world| world.policy.enabled = false,
            retryable(C::Timeout),
            "fail",
        ),
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
    let ToolStep::Adapt { adapted, reason } = world.decide(&mismatch()) else {
        panic!()
    };
    assert_eq!(
        arguments::write(&adapted.arguments),
        r#"{"max_results":10}"#
    );
    assert_eq!(
        reason,
        "the arguments did not fit `get_activities`: `limit` was sent as `max_results`"
    );
    world = World::reading();
    world.split_by_dates();
    let ToolStep::Chunk {
        plan,
        backoff_kind,
        reason,
    } = world.decide(&retryable(C::RateLimited))
    else {
        panic!()
    };
    assert_eq!(
        (plan.parts(), backoff_kind),
        (6, Some(BackoffKind::Throttle))
    );
    assert!(
        reason.ends_with("the range from `after` to `before` was split into 6 parts"),
        "{reason}"
    );
    assert_eq!(
        chunk::ChunkRun::new(plan).start_next().len(),
        1,
        "what is limited is called one by one"
    );
    world.arguments = arguments::read(r#"{"limit": "many"}"#).unwrap();
    let ToolStep::Fail { finding, .. } = world.decide(&mismatch()) else {
        panic!()
    };
    assert!(
        matches!(finding, Some(Finding::ToolArguments { mismatch, .. }) if mismatch.path == "/limit")
    );
}
