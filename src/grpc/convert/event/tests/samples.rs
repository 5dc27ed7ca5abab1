//! One event of each kind, with everything that it can hold.

use std::sync::Arc;

use super::*;
use crate::domain::{
    circuit::{CircuitState, GateKind},
    completion::{Exactness, Usage},
    event::{EventScope, Evidence, SettingFault},
    failure::InvalidRequestDetail,
    invocation::AttemptCause,
    release::{ReleaseAction, ReleaseDecision, ReleaseEvidence, ReleaseLane},
};

fn scope() -> Arc<EventScope> {
    Arc::new(EventScope {
        invocation: "i1".into(),
        thread: Some("t1".into()),
        request_id: Some("order-17".into()),
        tenant: "acme".into(),
        route: "fast".into(),
        operation: "executor".into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
    })
}

pub(super) fn event(body: EventBody) -> Event {
    Event {
        cursor: Cursor(7),
        at: Timestamp::from_second(1000).unwrap(),
        scope: Some(scope()),
        attempt: 2,
        target: Some("openai".into()),
        body,
    }
}

pub(super) fn recovery() -> EventBody {
    EventBody::RecoveryAttempted {
        error: "Request timeout".to_owned(),
        class: FailureClass::Timeout,
        recovery_hint: String::new(),
        retry: 1,
        max_retries: 2,
        strategy: RecoveryStrategy::Retry,
        wait: Wait {
            duration: Duration::from_millis(250),
            source: WaitSource::Backoff,
        },
        adaptation: None,
        going_on: None,
    }
}

pub(super) fn circuit_closed() -> EventBody {
    let from = CircuitState::Recovering;
    let disturbed_ms = 3100;
    EventBody::CircuitClosed {
        generation: 4,
        from,
        evidence: evidence(),
        disturbed_ms,
        forced: true,
    }
}

pub(super) fn evidence() -> Evidence {
    Evidence {
        committed: 9,
        failures: 8,
        slow: 3,
        pending: 2,
        consecutive: 7,
        window_ms: 10_000,
        threshold: 8,
    }
}

/// Returns a decision about a release, with everything that it can hold.
fn released(action: ReleaseAction) -> EventBody {
    let evidence = ReleaseEvidence {
        executions: 9,
        failures: 3,
        consecutive: 2,
        window: 9,
        window_success: Some(0.5),
        baseline_success: Some(0.9),
        e_value: Some(4.0),
        signature: text(),
    };
    let lane = Some(ReleaseLane::Standard);
    let decision = ReleaseDecision {
        at: Timestamp::UNIX_EPOCH,
        action,
        lane,
        provisional: true,
        evidence,
        reason: text(),
    };
    EventBody::ReleaseDecided {
        subject: text(),
        release: text(),
        to: text(),
        decision,
    }
}

const CLASS: FailureClass = FailureClass::InvalidRequest;
const DETAIL: Option<InvalidRequestDetail> = Some(InvalidRequestDetail::BadSchema);

fn text() -> String {
    "text".to_owned()
}

fn wait() -> Wait {
    Wait {
        duration: Duration::from_secs(2),
        source: WaitSource::RetryAfter,
    }
}

fn usage() -> Usage {
    Usage {
        input_tokens: 1,
        output_tokens: 2,
        exactness: Exactness::Exact,
        cached_input_tokens: Some(1),
        cache_write_tokens: Some(2),
        reasoning_tokens: Some(3),
    }
}

/// One event of each kind, with everything that it can hold.
pub(super) fn every_body() -> Vec<EventBody> {
    [
        of_invocations(),
        of_attempts(),
        of_recoveries(),
        of_targets(),
        of_the_server(),
    ]
    .concat()
}

fn of_invocations() -> Vec<EventBody> {
    vec![
        EventBody::InvocationStarted {
            deadline_ms: 5,
            max_retries: 2,
        },
        EventBody::InvocationSucceeded {
            duration_ms: 5,
            usage: usage(),
        },
        EventBody::InvocationRecovered {
            duration_ms: 5,
            attempts: 2,
            strategies: vec![RecoveryStrategy::Retry],
            usage: usage(),
            first_failure: Some(CLASS),
        },
        EventBody::InvocationFailed {
            duration_ms: 5,
            attempts: 1,
            usage: usage(),
            strategies: vec![RecoveryStrategy::Retry],
            class: CLASS,
            detail: DETAIL,
            message: text(),
            user_message: text(),
            recovery_hint: text(),
            stopped_by: Some(FailureClass::BudgetEmpty),
        },
        EventBody::InvocationParked {
            class: FailureClass::RateLimited,
            wait_ms: 5,
            in_line: true,
        },
        EventBody::CallsRefused { count: 3 },
    ]
}

fn of_attempts() -> Vec<EventBody> {
    vec![
        EventBody::AttemptStarted {
            cause: AttemptCause::Retry(CLASS),
            model: text(),
            wait: Some(wait()),
        },
        EventBody::FirstToken { after_ms: 5 },
        EventBody::AttemptReadOn {
            reason: text(),
            requests: 1,
        },
        EventBody::AttemptSucceeded {
            duration_ms: 5,
            usage: usage(),
            is_flawed: false,
        },
        EventBody::AttemptFailed {
            signature: String::new(),
            class: CLASS,
            detail: DETAIL,
            message: text(),
            recovery_hint: text(),
            retryable: true,
            retry_after: Some(wait()),
            status: Some(500),
            duration_ms: 5,
            sent: true,
            usage: usage(),
        },
        EventBody::FallbackChosen {
            from: "anthropic".into(),
            class: CLASS,
        },
        EventBody::HedgeStarted {
            beside: "anthropic".into(),
            after_ms: 5,
        },
    ]
}

fn of_recoveries() -> Vec<EventBody> {
    vec![
        EventBody::RecoveryAttempted {
            error: text(),
            class: CLASS,
            recovery_hint: String::new(),
            retry: 1,
            max_retries: 2,
            strategy: RecoveryStrategy::Adapt,
            wait: wait(),
            adaptation: Some(text()),
            going_on: None,
        },
        EventBody::ContextInjected {
            vehicle: "text_part".to_owned(),
            class: CLASS,
            note_bytes: 80,
        },
        EventBody::ContextInjectionSkipped {
            reason: "never".to_owned(),
            class: CLASS,
        },
    ]
}

fn of_targets() -> Vec<EventBody> {
    vec![
        EventBody::CircuitOpened {
            generation: 3,
            from: CircuitState::HalfOpen,
            evidence: evidence(),
            retry_in_ms: Some(5),
            reason: text(),
            class: Some(CLASS),
            streak: 2,
            forced: true,
        },
        EventBody::CircuitHalfOpen {
            generation: 2,
            open_ms: 5,
            probes: 1,
        },
        EventBody::CircuitRecovering {
            generation: 3,
            admitted_percent: 25,
            evidence: evidence(),
        },
        circuit_closed(),
        EventBody::GateClosed {
            gate: GateKind::Rate,
            reopens_in_ms: 5,
            source: WaitSource::RetryAfter,
            class: CLASS,
            key: Some("…3f9a".to_owned()),
        },
        EventBody::GateOpened {
            gate: GateKind::Credential,
            key: Some("…3f9a".to_owned()),
            closed_ms: 5,
        },
        EventBody::BudgetExhausted {
            level: 3.0,
            capacity: 500.0,
        },
    ]
}

fn of_the_server() -> Vec<EventBody> {
    vec![
        released(ReleaseAction::RolledBack),
        released(ReleaseAction::Held),
        EventBody::ConfigurationReloaded {
            generation: 2,
            changed: vec![text()],
            needs_restart: vec![text()],
        },
        EventBody::ConfigurationRejected {
            reason: text(),
            faults: vec![SettingFault {
                path: text(),
                reason: text(),
                nearest: Some(text()),
            }],
        },
        EventBody::StoreLost {
            store: "journal".to_owned(),
            reason: text(),
        },
        EventBody::StoreFound {
            store: "journal".to_owned(),
            lost_ms: 5,
        },
    ]
}
