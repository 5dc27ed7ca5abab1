//! Tests of `event`, one for each guarantee.

mod samples;

use std::time::Duration;

use self::samples::{circuit_closed, event, every_body, evidence, recovery};
use super::*;
use crate::{
    domain::{
        circuit::CircuitState,
        failure::{FailureClass, Wait, WaitSource},
        invocation::{AttemptCause, RecoveryStrategy},
    },
    grpc::convert::unset::unset,
};

fn sent(body: EventBody) -> v1::RecoveryEvent {
    recovery_event(&event(body)).unwrap()
}

#[test]
fn every_event_is_sent_under_its_own_type_except_the_three_internal_ones() {
    let mut inside = Vec::new();
    for body in every_body() {
        let kind = body.kind();
        let Some(sent) = recovery_event(&event(body.clone())) else {
            assert_eq!(event_type(&body), None);
            inside.push(kind);
            continue;
        };
        let name = event_type(&body).unwrap().as_str_name();
        assert_eq!(
            name,
            format!("RECOVERY_EVENT_TYPE_{}", kind.to_ascii_uppercase())
        );
        // The body's name in the generated code is the type's name in camel case.
        let shown = format!("{:?}", sent.body.unwrap());
        let camel: String = kind
            .split('_')
            .map(|word| word[..1].to_ascii_uppercase() + &word[1..])
            .collect();
        assert!(
            shown.starts_with(&format!("{camel}({camel}Event")),
            "{shown}"
        );
        assert_ne!(sent.severity, i32::from(v1::Severity::Unspecified));
    }
    assert_eq!(
        inside,
        ["calls_refused", "first_token", "attempt_succeeded"]
    );
}

#[test]
fn no_field_of_an_event_is_left_unset_when_its_fact_is_known() {
    for body in every_body() {
        let Some(sent) = recovery_event(&event(body)) else {
            continue;
        };
        // Its replica is named where the events of several are merged.
        let unset = unset("RecoveryEvent", &sent);
        assert_eq!(unset, ["replica"], "{sent:?}");
    }
}

#[test]
fn what_is_not_known_is_absent_and_no_zero() {
    let opened = EventBody::CircuitOpened {
        generation: 1,
        from: CircuitState::Closed,
        evidence: evidence(),
        retry_in_ms: None,
        reason: "forced open by an operator".to_owned(),
        class: None,
        streak: 1,
        forced: true,
    };
    assert!(
        event(opened.clone())
            .display()
            .starts_with("An operator opened the circuit of openai")
    );
    let Some(Body::CircuitOpened(opened)) = sent(opened).body else {
        panic!("a circuit")
    };
    assert_eq!(
        (opened.retry_in_ms, opened.cause()),
        (None, v1::FailureClass::Unspecified)
    );
    let started = EventBody::AttemptStarted {
        cause: AttemptCause::Initial,
        model: "m".to_owned(),
        wait: None,
    };
    let Some(Body::AttemptStarted(started)) = sent(started).body else {
        panic!("an attempt")
    };
    assert_eq!(
        (started.wait_before_ms, started.wait_source()),
        (0, v1::WaitSource::Unspecified)
    );
}

#[test]
fn a_waiting_invocation_reports_its_target_the_wait_and_the_reason() {
    let parked = |class, wait_ms, in_line| EventBody::InvocationParked {
        class,
        wait_ms,
        in_line,
    };
    for (body, line, source) in [
        (
            parked(FailureClass::RateLimited, 11_200, false),
            "Waiting 11.2 s for openai: rate limit reached",
            "GATE",
        ),
        (
            parked(FailureClass::CircuitOpen, 800, false),
            "Waiting 800 ms for openai: its circuit is open",
            "CIRCUIT",
        ),
        (
            parked(FailureClass::RateLimited, 9000, true),
            "Queued for openai, about 9 s: rate limit reached",
            "GATE",
        ),
    ] {
        assert_eq!(event(body.clone()).display(), line);
        let Some(Body::InvocationParked(sent)) = sent(body).body else {
            panic!("a wait")
        };
        assert_eq!(
            sent.wait_source().as_str_name(),
            format!("WAIT_SOURCE_{source}")
        );
    }
}

#[test]
fn the_envelope_holds_invocation_target_and_tenant_of_an_event() {
    let sent = sent(circuit_closed());
    assert_eq!((sent.cursor.as_str(), sent.attempt), ("7", 2));
    assert_eq!(
        (sent.invocation_id.as_str(), sent.thread_id.as_str()),
        ("i1", "t1")
    );
    assert_eq!(
        (sent.route.as_str(), sent.operation.as_str()),
        ("fast", "executor")
    );
    assert_eq!(
        (sent.target.as_str(), sent.labels["team"].as_str()),
        ("openai", "a")
    );
    assert!(sent.trace_id.starts_with("0af7"));
    assert_eq!(
        (sent.tenant.as_str(), sent.request_id.as_str()),
        ("acme", "order-17")
    );
    let bare = recovery_event(&Event {
        scope: None,
        target: None,
        ..event(circuit_closed())
    })
    .unwrap();
    assert_eq!(
        (
            bare.invocation_id.as_str(),
            bare.target.as_str(),
            bare.labels.len()
        ),
        ("", "", 0)
    );
}

#[test]
fn a_recovery_carries_the_line_to_show() {
    let Some(Body::RecoveryAttempted(body)) = sent(recovery()).body else {
        panic!("a recovery")
    };
    assert_eq!(
        body.display_text,
        "Retrying executor (attempt 1/2): Request timeout"
    );
    assert_eq!(
        (body.wait_ms, body.wait_source),
        (250, v1::WaitSource::Backoff.into())
    );
    assert_eq!(
        (body.attempt, body.max_retries, body.operation.as_str()),
        (1, 2, "executor")
    );
}

#[test]
fn a_recovery_after_a_crash_is_going_on_and_no_retry() {
    let mut body = recovery();
    if let EventBody::RecoveryAttempted {
        retry, going_on, ..
    } = &mut body
    {
        (*retry, *going_on) = (0, Some("the request is sent again".to_owned()));
    }
    let line = "Going on with executor: Request timeout; the request is sent again";
    assert_eq!(event(body.clone()).display(), line);
    let Some(Body::RecoveryAttempted(sent)) = sent(body).body else {
        panic!("a recovery")
    };
    assert_eq!((sent.display_text.as_str(), sent.attempt), (line, 0));
}

#[test]
fn numbers_go_out_in_the_contract_s_units() {
    let recovering = EventBody::CircuitRecovering {
        generation: 3,
        admitted_percent: 25,
        evidence: evidence(),
    };
    let Some(Body::CircuitRecovering(body)) = sent(recovering).body else {
        panic!("a circuit")
    };
    assert!((body.admitted_ratio - 0.25).abs() < f64::EPSILON);
    let Some(Body::InvocationStarted(body)) = sent(EventBody::InvocationStarted {
        deadline_ms: 1500,
        max_retries: 0,
    })
    .body
    else {
        panic!("a start")
    };
    assert_eq!(
        body.deadline,
        Some(prost_types::Timestamp {
            seconds: 1001,
            nanos: 500_000_000
        })
    );
}

#[test]
fn a_budget_is_the_target_s_where_one_is_named() {
    let body = EventBody::BudgetExhausted {
        level: 3.0,
        capacity: 500.0,
    };
    let Some(Body::BudgetExhausted(of_target)) = sent(body.clone()).body else {
        panic!("a budget")
    };
    assert_eq!(of_target.scope, i32::from(v1::BudgetScope::Target));
    assert!(
        of_target
            .budget
            .is_some_and(|budget| (budget.level - 3.0).abs() < f64::EPSILON)
    );
    let own = recovery_event(&Event {
        target: None,
        ..event(body)
    })
    .unwrap()
    .body;
    let Some(Body::BudgetExhausted(own)) = own else {
        panic!("a budget")
    };
    assert_eq!(
        (own.scope, own.budget),
        (v1::BudgetScope::Invocation.into(), None)
    );
}

#[test]
fn a_cursor_is_returned_unchanged_and_garbage_is_rejected() {
    for cursor in [Cursor(0), Cursor(17), Cursor(u64::MAX)] {
        assert_eq!(parse_cursor(&cursor_text(cursor)), Ok(cursor));
    }
    for garbage in [
        "",
        " 1",
        "-1",
        "+1",
        "1.5",
        "abc",
        "18446744073709551616",
        "000000000000000000001",
    ] {
        assert!(
            parse_cursor(garbage).is_err_and(|reason| reason.starts_with("is no cursor")),
            "{garbage}"
        );
    }
}

#[test]
fn a_gap_reports_where_it_begins_and_a_returning_client_resumes_correctly() {
    let at = Timestamp::UNIX_EPOCH;
    let Some(Body::Missed(gap)) = missed(7, Cursor(4), Cursor(10), at).body else {
        panic!("a gap")
    };
    assert_eq!(
        (gap.count, gap.from_cursor.as_str(), gap.to_cursor.as_str()),
        (7, "3", "10")
    );
    assert_eq!(
        missed(7, Cursor(4), Cursor(10), at).cursor,
        "10",
        "the events are lost: go on after them"
    );
    let Some(Body::Missed(first)) = missed(1, Cursor(1), Cursor(1), at).body else {
        panic!("a gap")
    };
    assert_eq!(first.from_cursor, "");
    assert_eq!(bookmark(Cursor(9), at).cursor, "9");
}
