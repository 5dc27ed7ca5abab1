//! When a tool that is declared equal takes over from one that is down.

use proptest::prelude::*;

use super::*;

fn opaque() -> Failure {
    Failure {
        message: "Error executing tool get_activities".to_owned(),
        ..failed(C::ServerError)
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn an_equal_tool_takes_over_as_soon_as_time_does_not_mend_the_failure() {
    decided(vec![
        (
            "a time-out",
            World::reading(),
            group,
            retryable(C::Timeout),
            "alternative",
        ),
        (
            "nobody listens",
            World::reading(),
            group,
            fault(F::Refused, C::Network),
            "alternative",
        ),
        (
            "a broken stream",
            World::reading(),
            group,
            fault(F::Cut, C::StreamInterrupted),
            "alternative",
        ),
        (
            "too much to do",
            World::reading(),
            group,
            retryable(C::Overloaded),
            "alternative",
        ),
        (
            "a limit, whatever its wait",
            World::reading(),
            group,
            retryable(C::RateLimited)
                .with_retry_after(Duration::from_secs(2), WaitSource::RetryAfter),
            "alternative",
        ),
        (
            "a hiccup is retried once",
            World::reading(),
            group,
            retryable(C::ServerError),
            "retry",
        ),
        (
            "so is what says nothing",
            World::reading(),
            group,
            opaque(),
            "retry",
        ),
        (
            "and not twice",
            World::reading(),
            |world| {
                world.tried.retries = 1;
                world.alternative("mirror", Some(0));
            },
            retryable(C::ServerError),
            "alternative",
        ),
        (
            "nor where it fails all the time",
            World::reading(),
            |world| {
                world.failing = true;
                world.alternative("mirror", Some(0));
            },
            retryable(C::ServerError),
            "alternative",
        ),
        (
            "nor a candidate",
            World::reading(),
            |world| {
                let stable = tool("stable", json!({"after": {}, "before": {}}), json!([]));
                world
                    .others
                    .push((stable, Some(Equivalence::StableRelease)));
            },
            retryable(C::ServerError),
            "alternative",
        ),
        (
            "a call that can be split is split",
            World::reading(),
            |world| {
                world.split_by_dates();
                world.alternative("mirror", Some(0));
            },
            retryable(C::Timeout),
            "chunk",
        ),
        (
            "no more of them than are allowed",
            World::reading(),
            |world| {
                world.tried.alternatives = 2;
                world.alternative("mirror", Some(0));
            },
            retryable(C::Timeout),
            "retry",
        ),
        (
            "what nobody declared equal is not called",
            World::reading(),
            other,
            retryable(C::Timeout),
            "retry",
        ),
    ]);
}

proptest! {
    #[test]
    fn with_as_many_attempts_left_as_there_are_equal_tools_one_of_them_is_called(
        equals in 1_usize..4,
        spare in 0_u32..3,
        class in proptest::sample::select(vec![C::ServerError, C::Timeout, C::Network, C::Overloaded]),
        is_opaque in any::<bool>(),
    ) {
        let mut world = World::reading();
        for order in 0..equals {
            world.alternative(["mirror", "copy", "backup"][order], Some(order));
        }
        let attempts = u32::try_from(equals).unwrap();
        world.attempts_left = attempts + spare;
        let failure = if is_opaque { opaque() } else { retryable(class) };
        let step = world.decide(&failure);
        prop_assert!(spare > 0 || rung(&step) == "alternative", "{:?}", step);
        prop_assert!(matches!(rung(&step), "alternative" | "retry"), "{:?}", step);
    }
}
