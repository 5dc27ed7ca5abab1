//! Refuses a target whose rate, credential or configuration gate is closed, and tells the gates what
//! became of the calls that passed.
//!
//! Cheap and without a permit: it is checked before a slot is taken.

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
    policy::{
        circuit::Peek,
        gates::{CallNumber, GateChange, closed_by},
    },
};

/// Guards targets by their gates.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatesLayer;

/// An attempt that passed the gates.
#[derive(Debug)]
pub struct PassedGates {
    attempt: Arc<Attempt>,
    /// In the order of `GateKind::ALL`.
    passed: [Passed; 3],
    /// `true` if the gates know the outcome of the attempt.
    known: bool,
}

/// Passage through one gate: the call's number, and how often the gate had been opened from outside
/// by then.
#[derive(Debug, Clone, Copy)]
struct Passed {
    call: CallNumber,
    epoch: u64,
}

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
            known: false,
        })
    }
}

// === impl PassedGates ===

impl AttemptGuard for PassedGates {
    fn on_delta(&mut self, delta: &Delta) {
        match delta {
            Delta::Start { headers, .. } if !headers.is_empty() => pace(&self.attempt, headers),
            Delta::Finish { .. } => self.succeeded(),
            delta if delta.is_content() => self.succeeded(),
            _ => {}
        }
    }

    fn on_failure(&mut self, failure: &Failure) {
        let by_tool = self.attempt.calls_tool();
        let uniform_waits = self.attempt.scope.plan.retry.uniform_waits;
        self.attempt.at.key.failed(Instant::now(), failure);
        if let Some(kind) = closed_by(failure, by_tool, uniform_waits) {
            self.refused(kind, failure);
        }
    }
}

impl PassedGates {
    /// A successful response of the target proves that its limit is not reached and that the
    /// credential and the model are good.
    fn succeeded(&mut self) {
        if std::mem::replace(&mut self.known, true) {
            return;
        }
        let now = Instant::now();
        self.attempt.at.key.answered();
        for (kind, passed) in self.current() {
            let change = self.attempt.at.key.gate(kind).succeeded(now, passed.call);
            let class = FailureClass::Unknown;
            moved(&self.attempt, kind, change, class, WaitSource::Backoff);
        }
    }

    fn refused(&self, kind: GateKind, failure: &Failure) {
        let stated = failure
            .retry_after
            .filter(|wait| kind == GateKind::Rate && !wait.duration.is_zero());
        let source = stated.map_or(WaitSource::Backoff, |wait| wait.source);
        for (_, passed) in self.current().filter(|(one, _)| *one == kind) {
            let change = {
                let mut gate = self.attempt.at.key.gate(kind);
                gate.refused(Instant::now(), passed.call, failure)
            };
            moved(&self.attempt, kind, change, failure.class, source);
        }
    }

    /// Returns the gates that were not opened from outside since: a call with the old key shows
    /// nothing of the new one.
    fn current(&self) -> impl Iterator<Item = (GateKind, Passed)> + '_ {
        let is_current = move |(kind, passed): &(GateKind, Passed)| {
            self.attempt.at.key.gate(*kind).epoch() == passed.epoch
        };
        GateKind::ALL
            .into_iter()
            .zip(self.passed)
            .filter(is_current)
    }
}

impl Drop for PassedGates {
    fn drop(&mut self) {
        for (kind, passed) in self.current() {
            self.attempt.at.key.gate(kind).ended(passed.call);
        }
    }
}

/// Passes all gates and peeks at the circuit, or says how long to wait. All are looked at before
/// any is passed: the probe of a closed gate must not be spent on an attempt that another refuses.
fn pass(attempt: &Attempt) -> Result<[Passed; 3], Failure> {
    let now = Instant::now();
    let state = &attempt.at.state;
    let scope = &attempt.scope;
    let tenant = &scope.invocation.tenant;
    let key = &attempt.at.key;
    let in_turn = scope.has_turn_with(key);
    for kind in GateKind::ALL {
        let peeked = key.gate(kind).peek(now, tenant);
        if let Err(reopens_in) = peeked
            && !(kind == GateKind::Rate && in_turn)
        {
            return Err(gate_closed(attempt, kind, reopens_in));
        }
    }
    if let Peek::Wait { retry_in } = state.peek(now) {
        return Err(state.refused_by_circuit(now, retry_in));
    }
    let turn = scope.take_turn(key);
    let admit = |kind: GateKind| {
        let mut gate = key.gate(kind);
        let pass = match turn.filter(|_| kind == GateKind::Rate) {
            Some(pass) => Ok(pass),
            None => gate.admit(now, tenant, scope.goes_ahead()),
        };
        let epoch = gate.epoch();
        let change = gate.drain();
        drop(gate);
        moved(
            attempt,
            kind,
            change,
            FailureClass::Unknown,
            WaitSource::Gate,
        );
        pass.map(|pass| Passed {
            call: pass.call,
            epoch,
        })
    };
    let passed: [(GateKind, Result<Passed, Duration>); 3] =
        GateKind::ALL.map(|kind| (kind, admit(kind)));
    if passed.iter().any(|(_, pass)| pass.is_err()) {
        for (kind, pass) in &passed {
            let _ = pass.map(|pass| key.gate(*kind).ended(pass.call));
        }
    }
    let [rate, credential, configuration] =
        passed.map(|(kind, pass)| pass.map_err(|wait| gate_closed(attempt, kind, wait)));
    Ok([rate?, credential?, configuration?])
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
    refused.target = Some(attempt.target().id.clone());
    refused.with_retry_after(reopens_in, source)
}

/// Paces by what the provider says is left.
fn pace(attempt: &Attempt, headers: &[(String, String)]) {
    let change = attempt.at.key.gate(GateKind::Rate).observe_limits(
        Instant::now(),
        headers,
        &attempt.scope.invocation.tenant,
    );
    let class = FailureClass::RateLimited;
    moved(
        attempt,
        GateKind::Rate,
        change,
        class,
        WaitSource::RateLimitReset,
    );
}

/// Publishes how a gate of the attempt's key moved.
fn moved(
    attempt: &Attempt,
    kind: GateKind,
    change: Option<GateChange>,
    class: FailureClass,
    source: WaitSource,
) {
    let key = &attempt.at.key;
    attempt
        .at
        .state
        .gate_moved(key, kind, change, class, source);
}
