//! Tests of `event`: its promises, each as one test.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::domain::{
    completion::Usage,
    event::{EventScope, Evidence, GateKind},
    failure::{FailureClass, Wait, WaitSource},
    invocation::{AttemptCause, RecoveryStrategy},
};

fn scope() -> Arc<EventScope> {
    Arc::new(EventScope {
        invocation: "i1".into(),
        thread: Some("t1".into()),
        tenant: "tenant-secret".into(),
        route: "fast".into(),
        operation: "executor".into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
    })
}

fn event(body: EventBody) -> Event {
    Event {
        cursor: Cursor(7),
        at: Timestamp::from_second(1000).unwrap(),
        scope: Some(scope()),
        attempt: 2,
        target: Some("openai".into()),
        body,
    }
}

fn recovery() -> EventBody {
    EventBody::RecoveryAttempted {
        error: "Request timeout".to_owned(),
        class: FailureClass::Timeout,
        retry: 1,
        max_retries: 2,
        strategy: RecoveryStrategy::Retry,
        wait: Wait { duration: Duration::from_millis(250), source: WaitSource::Backoff },
        adaptation: None,
    }
}

/// One event of each kind.
fn every_body() -> Vec<EventBody> {
    let (usage, class) = (Usage::default(), FailureClass::Timeout);
    let text = || "text".to_owned();
    vec![
        EventBody::InvocationStarted { deadline_ms: 5 },
        EventBody::InvocationSucceeded { duration_ms: 5, usage },
        EventBody::InvocationRecovered {
            duration_ms: 5,
            attempts: 2,
            strategies: vec![RecoveryStrategy::Retry],
            usage,
        },
        EventBody::InvocationFailed { duration_ms: 5, attempts: 1, class, message: text() },
        EventBody::AttemptStarted { cause: AttemptCause::Initial, model: text() },
        EventBody::FirstToken { after_ms: 5 },
        EventBody::AttemptSucceeded { duration_ms: 5, usage },
        EventBody::AttemptFailed { class, message: text(), status: Some(500), duration_ms: 5, sent: true, usage },
        recovery(),
        EventBody::ContextInjected { vehicle: "text_part".to_owned() },
        EventBody::ContextInjectionSkipped { reason: "never".to_owned() },
        EventBody::FallbackChosen { from: "anthropic".into(), class },
        EventBody::HedgeStarted { beside: "anthropic".into(), after_ms: 5 },
        EventBody::CircuitOpened { evidence: Evidence::default(), retry_in_ms: 5, reason: text() },
        EventBody::CircuitHalfOpen,
        EventBody::CircuitRecovering { admitted_percent: 25 },
        EventBody::CircuitClosed,
        EventBody::GateClosed { gate: GateKind::Rate, reopens_in_ms: 5, class },
        EventBody::GateOpened { gate: GateKind::Rate },
        EventBody::BudgetExhausted { level: 3 },
        EventBody::ReleaseRolledBack { release: text(), to: text(), reason: text() },
        EventBody::ConfigurationReloaded,
        EventBody::ConfigurationRejected { reason: text() },
        EventBody::StoreLost { store: "journal".to_owned(), reason: text() },
        EventBody::StoreFound { store: "journal".to_owned() },
    ]
}

fn told(body: EventBody) -> v1::RecoveryEvent {
    recovery_event(&event(body)).unwrap()
}

#[test]
fn every_event_is_told_under_its_own_type_save_the_two_that_stay_inside() {
    let mut inside = Vec::new();
    for body in every_body() {
        let kind = body.kind();
        let Some(told) = recovery_event(&event(body.clone())) else {
            assert_eq!(event_type(&body), None);
            inside.push(kind);
            continue;
        };
        let name = event_type(&body).unwrap().as_str_name();
        assert_eq!(name, format!("RECOVERY_EVENT_TYPE_{}", kind.to_ascii_uppercase()));
        // The body's name in the generated code is the type's name in camel case.
        let shown = format!("{:?}", told.body.unwrap());
        let camel: String = kind.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect();
        assert!(shown.starts_with(&format!("{camel}({camel}Event")), "{shown}");
        assert_ne!(told.severity, i32::from(v1::Severity::Unspecified));
    }
    assert_eq!(inside, ["first_token", "attempt_succeeded"]);
}

#[test]
fn the_envelope_tells_where_an_event_belongs_but_never_the_tenant() {
    let told = told(EventBody::CircuitClosed);
    assert_eq!((told.cursor.as_str(), told.attempt), ("7", 2));
    assert_eq!((told.invocation_id.as_str(), told.thread_id.as_str()), ("i1", "t1"));
    assert_eq!((told.route.as_str(), told.operation.as_str()), ("fast", "executor"));
    assert_eq!((told.target.as_str(), told.labels["team"].as_str()), ("openai", "a"));
    assert!(told.trace_id.starts_with("0af7"));
    assert!(!format!("{told:?}").contains("tenant-secret"));
    let bare = recovery_event(&Event { scope: None, target: None, ..event(EventBody::CircuitClosed) }).unwrap();
    assert_eq!((bare.invocation_id.as_str(), bare.target.as_str(), bare.labels.len()), ("", "", 0));
}

#[test]
fn a_recovery_carries_the_line_to_show() {
    let Some(Body::RecoveryAttempted(body)) = told(recovery()).body else { panic!("a recovery") };
    assert_eq!(body.display_text, "Retrying executor (attempt 1/2): Request timeout");
    assert_eq!((body.wait_ms, body.wait_source), (250, v1::WaitSource::Backoff.into()));
    assert_eq!((body.attempt, body.max_retries, body.operation.as_str()), (1, 2, "executor"));
}

#[test]
fn numbers_go_out_in_the_contract_s_units() {
    let Some(Body::CircuitRecovering(body)) = told(EventBody::CircuitRecovering { admitted_percent: 25 }).body else {
        panic!("a circuit")
    };
    assert!((body.admitted_ratio - 0.25).abs() < f64::EPSILON);
    let Some(Body::InvocationStarted(body)) = told(EventBody::InvocationStarted { deadline_ms: 1500 }).body else {
        panic!("a start")
    };
    assert_eq!(body.deadline, Some(prost_types::Timestamp { seconds: 1001, nanos: 500_000_000 }));
}

#[test]
fn a_budget_is_the_target_s_where_one_is_named() {
    let body = EventBody::BudgetExhausted { level: 3 };
    let Some(Body::BudgetExhausted(of_target)) = told(body.clone()).body else { panic!("a budget") };
    assert_eq!(of_target.scope, i32::from(v1::BudgetScope::Target));
    assert!(of_target.budget.is_some_and(|budget| (budget.level - 3.0).abs() < f64::EPSILON));
    let own = recovery_event(&Event { target: None, ..event(body) }).unwrap().body;
    let Some(Body::BudgetExhausted(own)) = own else { panic!("a budget") };
    assert_eq!((own.scope, own.budget), (v1::BudgetScope::Invocation.into(), None));
}

#[test]
fn a_cursor_comes_back_as_it_was_and_garbage_is_told() {
    for cursor in [Cursor(0), Cursor(17), Cursor(u64::MAX)] {
        assert_eq!(parse_cursor(&cursor_text(cursor)), Ok(cursor));
    }
    for garbage in ["", " 1", "-1", "+1", "1.5", "abc", "18446744073709551616", "000000000000000000001"] {
        assert!(parse_cursor(garbage).is_err_and(|reason| reason.starts_with("is no cursor")), "{garbage}");
    }
}

#[test]
fn a_gap_says_where_it_begins_and_a_client_that_comes_back_goes_on_rightly() {
    let at = Timestamp::UNIX_EPOCH;
    let Some(Body::Missed(gap)) = missed(7, Cursor(4), Cursor(10), false, at).body else { panic!("a gap") };
    assert_eq!((gap.count, gap.from_cursor.as_str(), gap.to_cursor.as_str()), (7, "3", "10"));
    assert_eq!(missed(7, Cursor(4), Cursor(10), false, at).cursor, "10", "the events are lost: go on after them");
    assert_eq!(missed(7, Cursor(4), Cursor(10), true, at).cursor, "3", "the events follow: begin before them");
    let Some(Body::Missed(first)) = missed(1, Cursor(1), Cursor(1), false, at).body else { panic!("a gap") };
    assert_eq!(first.from_cursor, "");
    assert_eq!(bookmark(Cursor(9), at).cursor, "9");
}
