//! What the ladder never does, whatever happened before.

use proptest::prelude::*;

use super::{
    super::*,
    renamed,
    world::{World, failed},
};
use crate::domain::failure::{
    FailureClass as C, InvalidRequestDetail as D, TransportFault as F, WaitSource,
};

fn any_failure() -> impl Strategy<Value = Failure> {
    let detail = prop_oneof![
        Just(None),
        Just(Some(D::ParameterMismatch)),
        Just(Some(D::BadSchema)),
        Just(Some(D::Other)),
    ];
    let faults = vec![
        F::Refused,
        F::Reset,
        F::Cut,
        F::TooLarge,
        F::ProcessExited,
        F::FirstTokenTimeout,
    ];
    let fault = prop_oneof![
        3 => Just(None),
        1 => proptest::sample::select(faults).prop_map(Some),
    ];
    let statuses = vec![400_u16, 403, 404, 413, 429, 500, 503];
    let status =
        prop_oneof![2 => Just(None), 1 => proptest::sample::select(statuses).prop_map(Some)];
    let message = proptest::sample::select(vec![
        "",
        "Error executing tool get_activities",
        "MCP error -32602: x",
        "unexpected keyword argument 'limit'",
        "limit",
    ]);
    let wait = proptest::option::of(0_u64..100);
    (
        proptest::sample::select(C::ALL.to_vec()),
        detail,
        fault,
        status,
        message,
        any::<bool>(),
        wait,
    )
        .prop_map(|(class, detail, fault, status, message, retryable, wait)| {
            let failure = Failure {
                detail,
                fault,
                status,
                message: message.to_owned(),
                retryable,
                never_sent: fault.is_some_and(F::never_sent),
                ..failed(class)
            };
            match wait {
                Some(wait) => {
                    failure.with_retry_after(Duration::from_secs(wait), WaitSource::RetryAfter)
                }
                None => failure,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn nothing_that_may_have_taken_place_and_may_not_be_repeated_is_ever_repeated(
        failure in any_failure(),
        is_repeatable in any::<bool>(),
        is_destructive in any::<bool>(),
        is_renamed in any::<bool>(),
        is_fresh in any::<bool>(),
        has_group in any::<bool>(),
        retries in 0_u32..3,
        attempts_left in 0_u32..4,
        seconds_left in proptest::option::of(0_u64..100),
    ) {
        let mut world = if is_renamed { renamed() } else { World::reading() };
        world.split_by_dates();
        world.effects = Effects {
            read_only: is_repeatable && !is_destructive,
            destructive: is_destructive,
            repeatable: is_repeatable,
            ..World::reading_effects()
        };
        world.is_fresh = is_fresh;
        if has_group {
            world.alternative("mirror", Some(0));
        }
        world.tried.retries = retries;
        world.attempts_left = attempts_left;
        world.time_left = seconds_left.map(Duration::from_secs);
        let step = world.decide(&failure);
        let execution = effects::execution(&failure);
        if !is_repeatable && execution != effects::ToolExecuted::NotExecuted {
            let repeats =
                matches!(step, ToolStep::Retry { .. } | ToolStep::Chunk { .. } | ToolStep::Alternative { .. });
            prop_assert!(!repeats, "{:?}", step);
        }
        if !is_repeatable && execution == effects::ToolExecuted::Unknown {
            prop_assert!(matches!(step, ToolStep::OutcomeUnknown { .. }), "{:?}", step);
        }
        if attempts_left == 0 || (step.executes() && is_destructive && !is_repeatable) {
            prop_assert!(!step.executes() || execution == effects::ToolExecuted::NotExecuted, "{:?}", step);
        }
        if matches!(failure.class, C::PermissionDenied | C::Cancelled | C::ApprovalRejected) {
            prop_assert!(!step.executes(), "{:?}", step);
        }
        prop_assert!(!step.reason().is_empty());
    }
}
