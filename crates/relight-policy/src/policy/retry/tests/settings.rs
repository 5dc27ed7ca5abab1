//! What a policy of retries may be set to, and what its presets are.

use super::*;

#[test]
fn presets_have_their_documented_values() {
    let standard = RetryPolicy::preset("standard").unwrap();
    assert_eq!(standard, RetryPolicy::default());
    assert_eq!((standard.max_retries, standard.retry_crash), (2, false));
    let agent = RetryPolicy::preset("agent").unwrap();
    assert_eq!((agent.max_retries, agent.retry_crash), (2, true));
    let patient = RetryPolicy::preset("patient").unwrap();
    assert_eq!(
        (
            patient.max_retries,
            patient.backoff.base,
            patient.backoff.cap
        ),
        (3, s(1), s(32))
    );
    assert!(patient.retry_crash && patient.uniform_waits);
    let steady = RetryPolicy::preset("steady").unwrap();
    assert_eq!(
        (
            steady.max_retries,
            steady.backoff.cap,
            steady.backoff.jitter_share
        ),
        (3, s(30), 0.2)
    );
    let literal = RetryPolicy::preset("literal").unwrap();
    assert_eq!(
        (literal.max_retries, literal.retry_crash, literal.backoff),
        (2, false, patient.backoff)
    );
    let none = RetryPolicy::preset("none").unwrap();
    assert_eq!((none.enabled, none.max_retries), (false, 0));
    assert_eq!(RetryPolicy::preset("hurried"), None);
    let max = RetryPolicy {
        max_retries: 5,
        ..RetryPolicy::default()
    };
    assert!(max.validate().is_empty(), "six attempts are allowed");
    for name in RetryPolicy::PRESETS {
        assert!(
            RetryPolicy::preset(name).unwrap().validate().is_empty(),
            "{name}"
        );
    }
}

#[test]
fn planners_and_evaluators_are_tried_again_once_and_others_twice() {
    for (operation, retries) in [
        ("planner", 1),
        ("evaluator", 1),
        ("replanner", 1),
        ("executor", 2),
        ("", 2),
    ] {
        assert_eq!(
            RetryPolicy::for_operation(operation).max_retries,
            retries,
            "{operation}"
        );
    }
    assert_eq!(RetryPolicy::default().with_max_retries(99).max_retries, 5);
}

#[test]
fn nonsense_is_named_by_its_field() {
    let mut policy = RetryPolicy {
        max_retries: 6,
        prefer_same_target: s(61),
        max_token_multiple: 0.9,
        ..RetryPolicy::default()
    };
    policy.backoff.base = Duration::ZERO;
    let fields: Vec<_> = policy
        .validate()
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(
        fields,
        [
            "max_retries",
            "backoff.base",
            "prefer_same_target",
            "max_token_multiple"
        ]
    );
}

#[test]
fn a_policy_reads_what_it_writes_and_refuses_unknown_keys() {
    let policy = RetryPolicy::preset("patient").unwrap();
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
    assert!(text.contains(r#""prefer_same_target":"3s""#), "{text}");
    assert!(serde_json::from_str::<RetryPolicy>(r#"{"max_retry": 1}"#).is_err());
}

#[test]
fn what_is_just_within_the_ranges_is_good() {
    let longest = RetryPolicy {
        prefer_same_target: s(60),
        max_token_multiple: 100.0,
        ..RetryPolicy::default()
    };
    let shortest = RetryPolicy {
        prefer_same_target: Duration::ZERO,
        max_token_multiple: 1.0,
        ..longest.clone()
    };
    assert_eq!((longest.validate(), shortest.validate()), (vec![], vec![]));
}

#[test]
fn a_limit_without_a_stated_wait_is_waited_out_for_a_second_to_twenty_or_less() {
    let throttle = RetryPolicy::default().throttle_backoff();
    assert_eq!(
        (throttle.base, throttle.cap, throttle.jitter),
        (s(1), s(20), Jitter::Equal)
    );
    let mut quick = plain();
    (quick.backoff.base, quick.backoff.cap) = (ms(10), ms(40));
    let throttle = quick.throttle_backoff();
    assert_eq!(
        (throttle.base, throttle.cap, throttle.jitter),
        (ms(10), ms(40), Jitter::None)
    );
}
