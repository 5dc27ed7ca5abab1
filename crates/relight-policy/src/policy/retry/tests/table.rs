//! The class table, row by row, as in the design.

use super::{super::recovery_options::Restriction, *};
use crate::domain::{failure::InvalidRequestDetail, target::Target};

use BackoffKind::{AtOnce, Backoff, Throttle};
use FailureClass as C;
use Restriction::{LargerWindow, None as Any, OtherCredential};

const YES: bool = true;
const NO: bool = false;

/// class, same target, other target, other first, which others, pace, whether it costs budget.
type Row = (
    FailureClass,
    bool,
    bool,
    bool,
    Restriction,
    BackoffKind,
    bool,
);

/// What may help where the classifier objects to nothing.
const TABLE: [Row; 28] = [
    (C::RateLimited, YES, YES, NO, Any, Throttle, YES),
    (C::QuotaExceeded, NO, YES, NO, OtherCredential, Backoff, YES),
    (C::Overloaded, YES, YES, YES, Any, Throttle, YES),
    (C::ServerError, YES, YES, NO, Any, Backoff, YES),
    (C::Timeout, YES, YES, YES, Any, Backoff, YES),
    (C::Network, YES, YES, NO, Any, Backoff, YES),
    (C::Crash, NO, YES, NO, Any, Backoff, YES),
    (
        C::Authentication,
        NO,
        YES,
        NO,
        OtherCredential,
        Backoff,
        YES,
    ),
    (C::PermissionDenied, NO, NO, NO, Any, Backoff, YES),
    (C::InvalidRequest, NO, YES, NO, Any, Backoff, YES),
    (C::ContextLength, NO, YES, NO, LargerWindow, Backoff, YES),
    (C::ContentFiltered, NO, NO, NO, Any, Backoff, YES),
    (C::NotFound, NO, YES, NO, Any, Backoff, YES),
    (C::MalformedResponse, YES, YES, NO, Any, AtOnce, NO),
    (C::Configuration, NO, YES, NO, Any, Backoff, YES),
    (C::Cancelled, NO, NO, NO, Any, Backoff, YES),
    (C::ApprovalRejected, NO, NO, NO, Any, Backoff, YES),
    (C::ToolFailed, YES, YES, NO, Any, Backoff, YES),
    (C::OutcomeUnknown, NO, NO, NO, Any, Backoff, YES),
    (C::StreamInterrupted, YES, YES, NO, Any, Backoff, YES),
    (C::State, YES, NO, NO, Any, Backoff, YES),
    (C::Checkpoint, YES, NO, NO, Any, Backoff, YES),
    (C::Cache, NO, NO, NO, Any, Backoff, YES),
    (C::CircuitOpen, YES, YES, NO, Any, Backoff, YES),
    (C::Shed, YES, YES, NO, Any, Backoff, YES),
    (C::BudgetEmpty, YES, YES, NO, Any, Backoff, YES),
    (C::Deadline, YES, YES, NO, Any, Backoff, YES),
    (C::Unknown, YES, YES, NO, Any, Backoff, YES),
];

#[test]
fn every_class_has_the_remedies_of_the_table() {
    assert_eq!(TABLE.map(|row| row.0), FailureClass::ALL);
    for (class, same_target, other_target, other_first, restriction, backoff_kind, costs_budget) in
        TABLE
    {
        let at_most = matches!(class, C::State | C::Checkpoint).then_some(1);
        let expected = RecoveryOptions {
            same_target,
            other_target,
            other_first,
            restriction,
            backoff_kind,
            costs_budget,
            at_most,
        };
        assert_eq!(
            recovery_options(&RetryPolicy::default(), &failure(class)),
            expected,
            "{class}"
        );
    }
}

#[test]
fn the_classifier_can_forbid_an_option_and_not_allow_one() {
    for class in FailureClass::ALL
        .into_iter()
        .filter(|class| !class.is_local_refusal())
    {
        let doubted = Failure {
            retryable: false,
            fallback_helps: false,
            ..failure(class)
        };
        let recovery_options = recovery_options(&RetryPolicy::default(), &doubted);
        assert!(!recovery_options.same_target, "{class}");
        assert!(!recovery_options.other_target, "{class}");
    }
}

#[test]
fn the_policy_decides_about_crashes_and_refusals() {
    let policy = RetryPolicy {
        retry_crash: true,
        fallback_on_content_filter: true,
        ..RetryPolicy::default()
    };
    for (class, same, other) in [(C::Crash, true, false), (C::ContentFiltered, false, true)] {
        let doubted = Failure {
            retryable: false,
            fallback_helps: false,
            ..failure(class)
        };
        let recovery_options = recovery_options(&policy, &doubted);
        assert_eq!(
            (recovery_options.same_target, recovery_options.other_target),
            (same, other),
            "{class}"
        );
    }
}

#[test]
fn a_request_that_is_wrong_everywhere_goes_nowhere() {
    for (detail, other) in [
        (Some(InvalidRequestDetail::ParameterMismatch), false),
        (Some(InvalidRequestDetail::MessageOrder), false),
        (Some(InvalidRequestDetail::UnsupportedParameter), true),
        (Some(InvalidRequestDetail::BadSchema), true),
        (Some(InvalidRequestDetail::Other), true),
        (None, true),
    ] {
        let invalid = Failure {
            detail,
            ..failure(C::InvalidRequest)
        };
        let recovery_options = recovery_options(&RetryPolicy::default(), &invalid);
        assert_eq!(
            (recovery_options.same_target, recovery_options.other_target),
            (false, other),
            "{detail:?}"
        );
    }
}

#[test]
fn what_a_failure_denies_is_ruled_out() {
    let policy = RetryPolicy::default();
    let plain = Candidate::new(TargetId::from("b"));
    let context = recovery_options(&policy, &failure(C::ContextLength));
    assert!(
        !context.admits(&called_once(), true)
            && !context.admits(&plain, false)
            && context.admits(&fresh("b"), false)
    );
    let server = recovery_options(&policy, &failure(C::ServerError));
    assert!(server.admits(&called_once(), true) && server.admits(&plain, false));
    let cancelled = recovery_options(&policy, &failure(C::Cancelled));
    assert!(!cancelled.admits(&called_once(), true) && !cancelled.admits(&fresh("b"), false));
}

#[test]
fn a_window_is_larger_by_its_size_or_else_where_the_model_is_another() {
    let target = |model: &str, window| {
        let mut target = Target {
            model: model.into(),
            ..Target::of_tool("s", "t", "f", "")
        };
        target.capabilities.context_window_tokens = window;
        target
    };
    for (model, window, than, expected) in [
        ("a", Some(9), Some(8), true),
        ("b", Some(8), Some(8), false),
        ("b", Some(7), Some(8), false),
        ("b", Some(7), None, true),
        ("b", None, Some(8), true),
        ("b", None, None, true),
        ("a", Some(9), None, false),
        ("a", None, Some(8), false),
        ("a", None, None, false),
    ] {
        let is_larger = has_larger_window(&target(model, window), &target("a", than));
        assert_eq!(is_larger, expected, "{model}, {window:?} than {than:?}");
    }
}

#[test]
fn a_larger_window_goes_before_a_shorter_answer_only_where_the_prompt_is_too_long() {
    let plain = Candidate::new(TargetId::from("b"));
    let ruled_out = Candidate {
        ruled_out: true,
        ..fresh("b")
    };
    for (class, other, expected) in [
        (C::ContextLength, fresh("b"), true),
        (C::ContextLength, fresh("a"), false),
        (C::ContextLength, plain, false),
        (C::ContextLength, ruled_out, false),
        (C::InvalidRequest, fresh("b"), false),
    ] {
        let candidates = [called_once(), other];
        assert_eq!(
            larger_window_first(&failure(class), &candidates),
            expected,
            "{class}, {candidates:?}"
        );
    }
}
