//! When a call is split into several, and what its parts are given.

use super::*;

#[test]
fn what_is_too_slow_too_large_or_limited_is_split() {
    decided(vec![
        (
            "a timeout is split",
            World::reading(),
            splittable,
            retryable(C::Timeout),
            "chunk",
        ),
        (
            "a result too large is split",
            World::reading(),
            splittable,
            Failure {
                fault: Some(F::TooLarge),
                ..failed(C::MalformedResponse)
            },
            "chunk",
        ),
        (
            "a request too large is split",
            World::reading(),
            splittable,
            failed(C::ContextLength),
            "chunk",
        ),
        (
            "a limit is split",
            World::reading(),
            splittable,
            retryable(C::RateLimited),
            "chunk",
        ),
        (
            "a limit that states its wait is waited for first",
            World::reading(),
            splittable,
            retryable(C::RateLimited)
                .with_retry_after(Duration::from_secs(2), WaitSource::RetryAfter),
            "retry",
        ),
        (
            "and then split",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.retries = 1;
            },
            retryable(C::RateLimited)
                .with_retry_after(Duration::from_secs(2), WaitSource::RetryAfter),
            "chunk",
        ),
        (
            "an opaque failure is split at last",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.tried.retries = 2;
            },
            Failure {
                message: "Error executing tool get_activities".to_owned(),
                ..failed(C::ServerError)
            },
            "chunk",
        ),
        (
            "an opaque failure is retried first",
            World::reading(),
            splittable,
            Failure {
                message: "Error executing tool get_activities".to_owned(),
                ..failed(C::ServerError)
            },
            "retry",
        ),
    ]);
}

#[test]
fn a_call_is_split_once_and_only_where_it_may_be_repeated_and_that_can_help() {
    decided(vec![
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
    ]);
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
    let plain = tool(
        "get_activities",
        json!({"limit": {"type": "integer"}, "offset": {"type": "integer"}}),
        json!([]),
    );
    (world.old, world.current) = (Some(plain.clone()), Some(plain));
    let refused = Failure {
        message: "limit must be less than or equal to 200".to_owned(),
        ..failed(C::InvalidRequest)
    };
    assert_eq!(rung(&world.decide(&refused)), "chunk");
}

#[test]
fn parts_and_other_tools_do_not_get_the_key_of_the_whole_call() {
    let mut world = World::reading();
    world.split_by_dates();
    world.effects = Effects {
        read_only: false,
        key_argument: Some("key".to_owned()),
        ..World::reading_effects()
    };
    world.arguments.insert("key".to_owned(), json!("k"));
    let ToolStep::Chunk { plan, .. } = world.decide(&retryable(C::Timeout)) else {
        panic!()
    };
    assert!(
        chunk::ChunkRun::new(plan)
            .start_next()
            .iter()
            .all(|task| !task.arguments.contains_key("key"))
    );
}
