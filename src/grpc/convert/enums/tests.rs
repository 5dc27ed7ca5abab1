//! Tests of `enums`, one for each guarantee.

use std::time::Duration;

use super::*;

#[test]
fn every_failure_class_maps_to_the_contract_and_back() {
    for class in FailureClass::ALL {
        let wire = class.into_proto();
        let name = wire
            .as_str_name()
            .strip_prefix("FAILURE_CLASS_")
            .unwrap()
            .to_ascii_lowercase();
        assert_eq!(name, class.as_str());
        assert_eq!(wire.into_domain(), Ok(class));
    }
    assert_eq!(v1::FailureClass::Unspecified.into_domain(), Err(Unset));
}

#[test]
fn every_value_of_the_contract_maps_to_its_number_and_back() {
    // The largest number of each list; a longer list fails to come back here first.
    for number in 1..=5 {
        let role = v1::Role::try_from(number).unwrap();
        assert_eq!(role.into_domain().unwrap().into_proto(), role);
        let surface = v1::FailureSurface::try_from(number).unwrap();
        assert_eq!(surface.into_domain().unwrap().into_proto(), surface);
        let detail = v1::InvalidRequestDetail::try_from(number).unwrap();
        assert_eq!(detail.into_domain().unwrap().into_proto(), detail);
    }
    for number in 1..=7 {
        let strategy = v1::RecoveryStrategy::try_from(number).unwrap();
        assert_eq!(strategy.into_domain().unwrap().into_proto(), strategy);
        let code = v1::FailureCode::try_from(number).unwrap();
        assert_eq!(code.into_domain().unwrap().into_proto(), code);
    }
    for number in 1..=3 {
        let mode = v1::InjectionMode::try_from(number).unwrap();
        assert_eq!(mode.into_domain().unwrap().into_proto(), mode);
        let gate = v1::GateKind::try_from(number).unwrap();
        assert_eq!(gate.into_domain().unwrap().into_proto(), gate);
    }
}

#[test]
fn what_is_only_written_has_the_word_of_the_domain() {
    for reason in [
        FinishReason::Stop,
        FinishReason::ToolCalls,
        FinishReason::Length,
        FinishReason::ContextFull,
        FinishReason::ContentFilter,
        FinishReason::Refusal,
        FinishReason::Paused,
        FinishReason::Other,
    ] {
        let word = word(reason);
        assert_eq!(
            reason.into_proto().as_str_name(),
            format!("FINISH_REASON_{word}")
        );
    }
    for exactness in [Exactness::Unknown, Exactness::Estimated, Exactness::Exact] {
        let word = word(exactness);
        assert_eq!(
            exactness.into_proto().as_str_name(),
            format!("USAGE_EXACTNESS_{word}")
        );
    }
}

/// The name of a value as it is serialized, in capitals.
fn word(value: impl serde::Serialize) -> String {
    let text = serde_json::to_string(&value).unwrap();
    text.trim_matches('"').to_ascii_uppercase()
}

#[test]
fn no_recovery_is_exactly_none_and_none_is_never_beside_another() {
    let none: i32 = v1::RecoveryStrategy::None.into();
    assert_eq!(strategies_field(&[]), [none]);
    assert_eq!(strategies_field(&[RecoveryStrategy::None]), [none]);
    assert_eq!(
        strategies_field(&[
            RecoveryStrategy::None,
            RecoveryStrategy::Retry,
            RecoveryStrategy::Fallback
        ]),
        [
            i32::from(v1::RecoveryStrategy::Retry),
            v1::RecoveryStrategy::Fallback.into()
        ]
    );
}

#[test]
fn a_wait_names_its_source() {
    let wait = |source| {
        Some(Wait {
            duration: Duration::from_millis(1_500),
            source,
        })
    };
    for (source, switch, class, expected) in [
        (WaitSource::Backoff, false, None, v1::WaitSource::Backoff),
        (
            WaitSource::Backoff,
            true,
            None,
            v1::WaitSource::TargetSwitch,
        ),
        (
            WaitSource::RetryAfter,
            true,
            None,
            v1::WaitSource::RetryAfter,
        ),
        (
            WaitSource::RetryAfterMs,
            false,
            None,
            v1::WaitSource::RetryAfter,
        ),
        (
            WaitSource::RateLimitReset,
            false,
            None,
            v1::WaitSource::RateLimitReset,
        ),
        (
            WaitSource::RetryInfo,
            false,
            None,
            v1::WaitSource::RetryInfo,
        ),
        (
            WaitSource::BodyField,
            false,
            None,
            v1::WaitSource::ErrorBody,
        ),
        (WaitSource::Text, false, None, v1::WaitSource::ErrorText),
        (
            WaitSource::Parked,
            false,
            Some(FailureClass::RateLimited),
            v1::WaitSource::Gate,
        ),
        (
            WaitSource::Parked,
            false,
            Some(FailureClass::Overloaded),
            v1::WaitSource::Circuit,
        ),
        (WaitSource::Parked, false, None, v1::WaitSource::Circuit),
    ] {
        assert_eq!(
            wait_fields(wait(source), switch, class),
            (1_500, expected.into()),
            "{source:?}"
        );
    }
    let no_wait = Wait {
        duration: Duration::ZERO,
        source: WaitSource::Backoff,
    };
    assert_eq!(
        wait_fields(Some(no_wait), false, None),
        (0, v1::WaitSource::Unspecified.into())
    );
    assert_eq!(
        wait_fields(None, true, None),
        (0, v1::WaitSource::Unspecified.into())
    );
}

#[test]
fn names_that_events_carry_as_text_map_to_their_number_or_stay_unset() {
    assert_eq!(vehicle("tool_result"), v1::InjectionVehicle::ToolResult);
    assert_eq!(vehicle("user_text_block"), v1::InjectionVehicle::TextPart);
    assert_eq!(
        vehicle("after_tool_results"),
        v1::InjectionVehicle::UserMessage
    );
    assert_eq!(vehicle("carrier pigeon"), v1::InjectionVehicle::Unspecified);
    assert_eq!(
        skip_reason("not_actionable"),
        v1::InjectionSkipReason::NotActionable
    );
    assert_eq!(
        skip_reason("a tool call waits for its answer"),
        v1::InjectionSkipReason::NoLegalPlace
    );
    assert_eq!(
        skip_reason("this target refused a note before"),
        v1::InjectionSkipReason::TargetRefused
    );
    assert_eq!(skip_reason(""), v1::InjectionSkipReason::Unspecified);
    assert_eq!(store_kind("journal"), v1::StoreKind::Journal);
}
