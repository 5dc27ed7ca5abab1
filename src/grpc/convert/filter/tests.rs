//! Tests of `filter`, one for each guarantee.

use std::sync::Arc;

use jiff::Timestamp;

use super::*;
use crate::domain::{
    circuit::CircuitState,
    completion::Usage,
    event::{EventBody, Evidence},
    failure::FailureClass,
    ids::{Cursor, TargetId},
};

type Filter = v1::RecoveryEventFilter;
type FilterChange = fn(&mut Filter);

fn event_filter(wire: Option<v1::RecoveryEventFilter>) -> Result<EventFilter, Violations> {
    let mut faults = Violations::default();
    let filter = read_filter(&Path::Root("filter"), wire.unwrap_or_default(), &mut faults);
    faults.or(filter)
}

fn scope() -> Arc<EventScope> {
    Arc::new(EventScope {
        invocation: "i1".into(),
        thread: Some("t1".into()),
        request_id: None,
        tenant: "tenant".into(),
        route: "fast".into(),
        operation: "executor".into(),
        labels: [
            ("team".to_owned(), "a".to_owned()),
            ("env".to_owned(), "prod".to_owned()),
        ]
        .into(),
        trace_id: String::new(),
    })
}

fn event(scope: Option<Arc<EventScope>>, body: EventBody) -> Event {
    let target = Some(TargetId::from("openai"));
    Event {
        cursor: Cursor(1),
        at: Timestamp::UNIX_EPOCH,
        scope,
        attempt: 1,
        target,
        body,
    }
}

fn circuit_closed() -> EventBody {
    EventBody::CircuitClosed {
        generation: 4,
        from: CircuitState::Recovering,
        evidence: Evidence::default(),
        disturbed_ms: 5,
        forced: false,
    }
}

fn attempt_failed() -> Event {
    let body = EventBody::AttemptFailed {
        signature: String::new(),
        class: FailureClass::Timeout,
        detail: None,
        message: "no answer".to_owned(),
        recovery_hint: String::new(),
        retryable: true,
        retry_after: None,
        status: None,
        duration_ms: 5,
        sent: true,
        usage: Usage::default(),
    };
    event(Some(scope()), body)
}

fn wanted(wire: v1::RecoveryEventFilter, event: &Event) -> bool {
    event_filter(Some(wire)).unwrap().matches(event)
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn labels(labels: &[(&str, &str)]) -> std::collections::HashMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn without_a_filter_every_event_of_the_contract_matches() {
    let filter = event_filter(None).unwrap();
    assert_eq!(filter, EventFilter::default());
    assert!(filter.matches(&attempt_failed()));
    assert!(filter.matches(&event(None, circuit_closed())));
    assert!(!filter.matches(&event(Some(scope()), EventBody::FirstToken { after_ms: 3 })));
}

#[test]
fn an_event_must_match_every_field_by_any_of_its_values() {
    const FAILED: i32 = v1::RecoveryEventType::AttemptFailed as i32;
    const STARTED: i32 = v1::RecoveryEventType::AttemptStarted as i32;
    let rows: &[(FilterChange, bool)] = &[
        (|filter| filter.invocation_ids = names(&["i0", "i1"]), true),
        (|filter| filter.invocation_ids = names(&["i0"]), false),
        (|filter| filter.thread_ids = names(&["t1"]), true),
        (|filter| filter.thread_ids = names(&["t2"]), false),
        (|filter| filter.routes = names(&["fast", "slow"]), true),
        (|filter| filter.routes = names(&["slow"]), false),
        (|filter| filter.targets = names(&["openai"]), true),
        (|filter| filter.targets = names(&["anthropic"]), false),
        (|filter| filter.operations = names(&["executor"]), true),
        (|filter| filter.operations = names(&["planner"]), false),
        (|filter| filter.event_types = vec![STARTED, FAILED], true),
        (|filter| filter.event_types = vec![STARTED], false),
        (
            |filter| filter.labels = labels(&[("team", "a"), ("env", "prod")]),
            true,
        ),
        (
            |filter| filter.labels = labels(&[("team", "a"), ("env", "test")]),
            false,
        ),
        (|filter| filter.labels = labels(&[("absent", "")]), false),
        (
            |filter| filter.min_severity = v1::Severity::Warning.into(),
            true,
        ),
        (
            |filter| filter.min_severity = v1::Severity::Error.into(),
            false,
        ),
        (
            |filter| {
                filter.routes = names(&["fast"]);
                filter.targets = names(&["anthropic"]);
            },
            false,
        ),
    ];
    for (change, expected) in rows {
        let mut filter = Filter::default();
        change(&mut filter);
        assert_eq!(
            wanted(filter.clone(), &attempt_failed()),
            *expected,
            "{filter:?}"
        );
    }
}

#[test]
fn an_event_without_an_invocation_matches_no_filter_on_one() {
    let circuit = event(None, circuit_closed());
    let none = Filter::default;
    for filter in [
        Filter {
            invocation_ids: names(&["i1"]),
            ..none()
        },
        Filter {
            thread_ids: names(&["t1"]),
            ..none()
        },
        Filter {
            routes: names(&["fast"]),
            ..none()
        },
        Filter {
            operations: names(&["executor"]),
            ..none()
        },
        Filter {
            labels: labels(&[("team", "a")]),
            ..none()
        },
    ] {
        assert!(!wanted(filter, &circuit));
    }
    assert!(wanted(
        Filter {
            targets: names(&["openai"]),
            ..none()
        },
        &circuit
    ));
}

#[test]
fn every_fault_of_a_filter_is_reported_at_once() {
    let faults = event_filter(Some(v1::RecoveryEventFilter {
        event_types: vec![1, 0, 99],
        min_severity: 12,
        targets: names(&["a", ""]),
        ..v1::RecoveryEventFilter::default()
    }))
    .unwrap_err();
    let fields: Vec<&str> = faults
        .kept()
        .iter()
        .map(|fault| fault.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "filter.event_types[1]",
            "filter.event_types[2]",
            "filter.min_severity",
            "filter.targets[1]"
        ]
    );
}
