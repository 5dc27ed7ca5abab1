//! Refuses a target whose rate, credential or configuration gate is closed, and closes gates on
//! what failures say.
//!
//! Cheap and without a permit: it is checked before a slot is taken. A gate's deadline only ever
//! moves out.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
};
use crate::{
    domain::{
        circuit::GateKind,
        completion::Delta,
        failure::{Failure, FailureClass, WaitSource},
    },
    policy::{circuit::Peek, gates::closed_by, rng::SeededRng},
};

/// Guards targets by their gates.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatesLayer;

/// An attempt that passed the gates.
#[derive(Debug)]
pub struct PassedGates {
    attempt: Arc<Attempt>,
    passed: Passed,
    /// Whether the target took it, as far as limits go.
    accepted: bool,
}

const KINDS: [GateKind; 3] = [
    GateKind::Rate,
    GateKind::Credential,
    GateKind::Configuration,
];

// === impl GatesLayer ===

impl<S> tower::Layer<S> for GatesLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(*self, inner)
    }
}

impl AdmitAttempt for GatesLayer {
    type Guard = PassedGates;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<PassedGates, Failure> {
        Ok(PassedGates {
            passed: pass(attempt)?,
            attempt: Arc::clone(attempt),
            accepted: false,
        })
    }
}

// === impl PassedGates ===

impl AttemptGuard for PassedGates {
    fn on_delta(&mut self, delta: &Delta) {
        if !std::mem::replace(&mut self.accepted, true) {
            self.attempt.state.accepted_by_limit();
        }
        match delta {
            Delta::Start { headers, .. } if !headers.is_empty() => pace(&self.attempt, headers),
            Delta::Finish { .. } => open(&self.attempt),
            _ => {}
        }
    }

    fn on_failure(&mut self, failure: &Failure) {
        judge(&self.attempt, self.passed, failure);
    }
}

/// When a call passed the gates, and their epochs then, in the order of `KINDS`.
#[derive(Debug, Clone, Copy)]
struct Passed(Instant, [u64; 3]);

/// Passes all gates and peeks at the circuit, or says how long to wait. All are looked at before
/// any is passed: the one probe a minute of a closed gate must not be spent on an attempt that
/// another refuses.
fn pass(attempt: &Attempt) -> Result<Passed, Failure> {
    let now = Instant::now();
    for kind in KINDS {
        if let Some(reopens_in) = attempt.state.gate_closed_for(kind, now) {
            return Err(gate_closed(attempt, kind, reopens_in));
        }
    }
    if let Peek::Wait { retry_in } = attempt.state.peek(now) {
        return Err(attempt.state.refused_by_circuit(now, retry_in));
    }
    let in_turn = attempt.scope.take_turn(&attempt.target.id);
    for kind in KINDS {
        if kind == GateKind::Rate && in_turn {
            continue;
        }
        let passed = attempt
            .state
            .gate(kind)
            .admit(now, attempt.scope.goes_ahead());
        passed.map_err(|reopens_in| gate_closed(attempt, kind, reopens_in))?;
    }
    Ok(Passed(
        now,
        KINDS.map(|kind| attempt.state.gate(kind).epoch()),
    ))
}

fn gate_closed(attempt: &Attempt, kind: GateKind, reopens_in: Duration) -> Failure {
    closed(
        attempt,
        &format!("the {} gate is closed", kind.as_str()),
        reopens_in,
        WaitSource::Gate,
    )
}

fn closed(attempt: &Attempt, words: &str, reopens_in: Duration, source: WaitSource) -> Failure {
    let mut refused = Failure::local(FailureClass::CircuitOpen, words);
    refused.target = Some(attempt.target.id.clone());
    refused.with_retry_after(reopens_in, source)
}

/// Closes the gate that a failure speaks of, unless it was opened from outside since the call
/// passed: a call with the old key says nothing of the new one.
fn judge(attempt: &Attempt, passed: Passed, failure: &Failure) {
    let scope = &attempt.scope;
    let Some(kind) = closed_by(
        failure,
        attempt.tool.is_some(),
        scope.plan.retry.uniform_waits,
    ) else {
        return;
    };
    let rng = SeededRng::new(scope.plan.seed, &scope.invocation.id, attempt.number()).unit();
    let stated = failure
        .retry_after
        .filter(|wait| kind == GateKind::Rate && !wait.duration.is_zero());
    let source = stated.map_or(WaitSource::Backoff, |wait| wait.source);
    let now = Instant::now();
    let change = {
        let mut gate = attempt.state.gate(kind);
        let is_current = KINDS
            .iter()
            .zip(passed.1)
            .any(|(one, epoch)| *one == kind && epoch == gate.epoch());
        is_current
            .then(|| gate.close(now, failure, now - passed.0, rng))
            .flatten()
    };
    attempt
        .state
        .gate_moved(kind, change, failure.class, source);
}

/// Paces by what the provider says is left.
fn pace(attempt: &Attempt, headers: &[(String, String)]) {
    let change = attempt
        .state
        .gate(GateKind::Rate)
        .observe_limits(Instant::now(), headers);
    attempt.state.gate_moved(
        GateKind::Rate,
        change,
        FailureClass::RateLimited,
        WaitSource::RateLimitReset,
    );
}

/// A whole answer proves that the credential and the model are good.
fn open(attempt: &Attempt) {
    for kind in [GateKind::Credential, GateKind::Configuration] {
        let change = attempt.state.gate(kind).succeed(Instant::now());
        attempt
            .state
            .gate_moved(kind, change, FailureClass::Unknown, WaitSource::Backoff);
    }
}
