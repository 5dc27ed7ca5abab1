//! The settings and the table of signals.

use super::{super::signal::signal_for, *};
use crate::domain::failure::{Failure, FailureClass, TransportFault};

#[test]
fn the_defaults_are_valid_and_an_empty_section_means_them() {
    for policy in [CircuitPolicy::default(), CircuitPolicy::consecutive()] {
        assert_eq!(policy.validate(), []);
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(
            serde_json::from_str::<CircuitPolicy>(&text).unwrap(),
            policy
        );
    }
    assert_eq!(
        serde_json::from_str::<CircuitPolicy>("{}").unwrap(),
        CircuitPolicy::default()
    );
    assert!(serde_json::from_str::<CircuitPolicy>(r#"{"open_bass": "1s"}"#).is_err());
    assert!(serde_json::from_str::<CircuitPolicy>(r#"{"open_base": 1}"#).is_err());
}

#[test]
fn every_setting_out_of_range_is_named() {
    let good = || serde_json::to_value(CircuitPolicy::default()).unwrap();
    let bad = [
        ("slow_threshold", serde_json::json!("11m")),
        ("run_at_low_rate", serde_json::json!(1)),
        ("open_base", serde_json::json!("1ms")),
        ("consecutive_failures", serde_json::json!(0)),
        ("consecutive_open", serde_json::json!("1ms")),
    ];
    for (field, value) in bad {
        let mut policy = good();
        policy[field] = value;
        let policy: CircuitPolicy = serde_json::from_value(policy).unwrap();
        let named: Vec<_> = policy
            .validate()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert!(named.contains(&field), "{field}: {named:?}");
    }
}

/// The least and the greatest value of a setting, one that is less and one that is greater; where
/// nothing is less or greater, the bound itself is given again.
type SettingBounds<T> = (&'static str, [T; 4]);

const DURATIONS: &[SettingBounds<&str>] = &[
    ("slow_threshold", ["1ms", "10m", "0ms", "600001ms"]),
    ("open_base", ["10ms", "10m", "9ms", "600001ms"]),
    ("consecutive_open", ["10ms", "1h", "9ms", "3600001ms"]),
];

fn is_named_beyond_its_bounds<T: serde::Serialize + PartialEq>(
    (field, [min, max, below, above]): &SettingBounds<T>,
) {
    let faults = |value: &T| {
        let mut policy = serde_json::to_value(CircuitPolicy::default()).unwrap();
        policy[field] = serde_json::to_value(value).unwrap();
        serde_json::from_value::<CircuitPolicy>(policy)
            .unwrap()
            .validate()
            .len()
    };
    assert_eq!((faults(min), faults(max)), (0, 0), "{field}");
    assert_eq!(
        (faults(below) > 0, faults(above) > 0),
        (below != min, above != max),
        "{field}"
    );
}

#[test]
fn every_bound_is_just_allowed_and_what_is_beyond_is_named() {
    DURATIONS.iter().for_each(is_named_beyond_its_bounds);
}

#[test]
fn the_run_that_opens_grows_with_the_logarithm_of_the_rate() {
    let policy = CircuitPolicy::default();
    for (rate, length) in [
        (0.0, 8),
        (1.0, 8),
        (2.0, 10),
        (7.1, 14),
        (25.0, 18),
        (50.0, 20),
        (5000.0, 20),
    ] {
        assert_eq!(policy.run_at(rate), length, "{rate} per second");
    }
}

#[test]
fn each_class_signals_to_the_circuit_what_the_table_lists() {
    use FailureClass as C;
    for class in C::ALL {
        let signal = signal_for(class, None, Some(Duration::from_secs(3)), true);
        let failed = |kind| Signal::Failed {
            kind,
            retry_after: Some(Duration::from_secs(3)),
            local_origin: false,
        };
        let expected = match class {
            C::Timeout => failed(FailKind::Slow),
            C::RateLimited => Signal::RateLimited,
            C::ContentFiltered | C::MalformedResponse => Signal::FirstToken,
            C::Cancelled | C::ApprovalRejected => Signal::Cancelled {
                after_slow_threshold: true,
            },
            C::Overloaded
            | C::ServerError
            | C::Network
            | C::Crash
            | C::ToolFailed
            | C::OutcomeUnknown
            | C::StreamInterrupted
            | C::Unknown => failed(FailKind::Fast),
            C::QuotaExceeded
            | C::Authentication
            | C::PermissionDenied
            | C::InvalidRequest
            | C::ContextLength
            | C::NotFound
            | C::Configuration
            | C::State
            | C::Checkpoint
            | C::Cache
            | C::CircuitOpen
            | C::Shed
            | C::BudgetEmpty
            | C::Deadline => Signal::Neutral,
        };
        assert_eq!(signal, expected, "{class}");
        assert!(!class.is_local_refusal() || signal == Signal::Neutral);
    }
}

#[test]
fn the_fault_decides_what_the_class_leaves_open() {
    let of = |class, fault| signal_for(class, Some(fault), None, false);
    assert_eq!(of(FailureClass::Network, TransportFault::Dns), LOCAL);
    assert_eq!(of(FailureClass::Network, TransportFault::Refused), FAILURE);
    assert_eq!(
        of(FailureClass::StreamInterrupted, TransportFault::IdleTimeout),
        TIMEOUT
    );
    assert_eq!(
        of(FailureClass::StreamInterrupted, TransportFault::Cut),
        FAILURE
    );
    for fault in [TransportFault::Deadline, TransportFault::Cancelled] {
        for class in [
            FailureClass::Timeout,
            FailureClass::Network,
            FailureClass::Deadline,
        ] {
            assert_eq!(
                of(class, fault),
                Signal::Cancelled {
                    after_slow_threshold: false
                },
                "{class}"
            );
        }
    }
}

#[test]
fn where_any_failure_counts_only_cancellations_and_local_refusals_do_not() {
    use FailureClass as C;
    for class in C::ALL {
        let failure = Failure::local(class, "");
        let plain = Signal::of(&failure, false, false, false);
        assert_eq!(plain, signal_for(class, None, None, false), "{class}");
        let ignored = class == C::Cancelled
            || class.is_local_refusal()
            || matches!(plain, Signal::Failed { .. });
        let expected = if ignored { plain } else { FAILURE };
        assert_eq!(
            Signal::of(&failure, false, false, true),
            expected,
            "{class}"
        );
    }
}

#[test]
fn a_response_that_is_gone_shows_nothing_about_its_target() {
    use FailureClass as C;
    for (class, status, attached, expected) in [
        (C::StreamInterrupted, Some(404), true, Signal::Neutral),
        (C::StreamInterrupted, Some(400), true, Signal::Neutral),
        (C::StreamInterrupted, Some(399), true, FAILURE),
        (C::StreamInterrupted, None, true, FAILURE),
        (C::StreamInterrupted, Some(404), false, FAILURE),
        (C::ServerError, Some(500), true, FAILURE),
    ] {
        let failure = Failure {
            status,
            ..Failure::local(class, "")
        };
        for any_failure in [false, true] {
            assert_eq!(
                Signal::of(&failure, false, attached, any_failure),
                expected,
                "{class} {status:?} {attached}"
            );
        }
    }
}
