//! Protects a failing target: takes a permit from its circuit, and reports the result to the
//! circuit.
//!
//! It admits after the slot is taken, so that no permit ages in a queue. The permit travels with
//! the stream: success is reported at the first token, and dropping a stream is reported too.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
    targets::{LeasedProbe, Targets},
};
use crate::{
    domain::{
        completion::Delta,
        failure::{Failure, FailureClass, TransportFault},
        invocation::Call,
        message::Part,
    },
    policy::{
        circuit::{CallerMarks, Permit, ReportContext, Signal},
        rng::SeededRng,
    },
};

/// The layer that protects targets by their circuits.
#[derive(Debug, Clone)]
pub struct CircuitLayer {
    targets: Targets,
}

// === impl CircuitLayer ===

impl CircuitLayer {
    /// Checks the circuits of this registry.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<S> tower::Layer<S> for CircuitLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(self.clone(), inner)
    }
}

impl AdmitAttempt for CircuitLayer {
    type Guard = Admitted;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<Admitted, Failure> {
        let probe = self.targets.lease_probe(&attempt.at.state).await?;
        Admitted::admit(self.targets.clone(), Arc::clone(attempt), probe)
    }
}

/// An admitted attempt; reports its result to the circuit exactly once, on drop at the latest.
#[derive(Debug)]
pub struct Admitted {
    targets: Targets,
    attempt: Arc<Attempt>,
    permit: Permit,
    caller: CallerMarks,
    began: Instant,
    slow_threshold: Duration,
    /// Its number among the target's attempts.
    number: u64,
    /// Its place among the probes of all replicas, until its result is known.
    probe: Option<LeasedProbe>,
    reported: bool,
}

// === impl Admitted ===

impl Admitted {
    fn admit(
        targets: Targets,
        attempt: Arc<Attempt>,
        probe: Option<LeasedProbe>,
    ) -> Result<Self, Failure> {
        let now = Instant::now();
        let permit = attempt
            .at
            .state
            .admit(now, rng(&attempt))
            .map_err(|reject| {
                attempt
                    .at
                    .state
                    .refused_by_circuit(now, Some(reject.retry_in).filter(|wait| !wait.is_zero()))
            })?;
        let slow_threshold = attempt.at.state.circuit().policy().slow_threshold;
        let number = attempt.at.state.observed.health().began(now);
        Ok(Self {
            caller: marks(&attempt),
            targets,
            attempt,
            permit,
            began: now,
            slow_threshold,
            number,
            probe,
            reported: false,
        })
    }

    fn is_slow(&self) -> bool {
        self.began.elapsed() >= self.slow_threshold
    }

    fn report(&mut self, signal: Signal) {
        self.report_because(signal, None);
    }

    fn report_because(&mut self, signal: Signal, class: Option<FailureClass>) {
        self.reported = true;
        let now = Instant::now();
        let answered = match signal {
            Signal::FirstToken => Some(true),
            Signal::Failed { .. } => Some(false),
            Signal::Neutral
            | Signal::RateLimited
            | Signal::Cancelled { .. }
            | Signal::Abandoned => None,
        };
        let recovered = self
            .attempt
            .at
            .state
            .observed
            .health()
            .ended(self.number, now, answered);
        if recovered {
            self.attempt.at.state.notices.recovered.notify_waiters();
        }
        let alternative_healthy =
            self.targets
                .alternative_healthy(&self.attempt.scope, &self.attempt.target().id, now);
        let context = ReportContext {
            now,
            rng: rng(&self.attempt),
            alternative_healthy,
        };
        let cause = class.filter(|_| matches!(signal, Signal::Failed { .. }));
        if let Some(class) = cause {
            self.attempt.at.state.failed_by(class);
        }
        let transitions = self
            .attempt
            .at
            .state
            .circuit()
            .report(&self.permit, signal, context);
        self.attempt.at.state.moved(transitions, cause);
        if let Some(probe) = self.probe.take()
            && answered == Some(false)
        {
            probe.failed();
        }
    }
}

impl AttemptGuard for Admitted {
    fn on_delta(&mut self, delta: &Delta) {
        let now = Instant::now();
        // A response that an earlier owner requested does not show how fast responses start, or
        // whether they are complete.
        let is_own = !self.attempt.is_attached();
        if is_own && matches!(delta, Delta::Finish { .. }) {
            self.attempt
                .at
                .state
                .observed
                .whole()
                .record(now, now - self.began);
        }
        if self.reported || !delta.is_content() {
            return;
        }
        if is_own && !self.attempt.sent.is_document() {
            self.attempt
                .at
                .state
                .observed
                .latency()
                .record(now, now - self.began);
        }
        self.attempt.at.state.circuit().weigh(
            now,
            self.began,
            self.caller,
            None,
            Signal::FirstToken,
        );
        self.report(Signal::FirstToken);
    }

    fn on_failure(&mut self, failure: &Failure) {
        let Attempt {
            scope, at, sent, ..
        } = &*self.attempt;
        let any_failure = at.state.circuit().policy().any_failure;
        let signal = Signal::of(
            failure,
            self.is_slow(),
            self.attempt.is_attached(),
            any_failure,
        );
        if failure.fault == Some(TransportFault::FirstTokenTimeout) {
            at.state.observed.latency().give_up();
        }
        let now = Instant::now();
        let before = scope.fails(&at.state.target.id, failure.class, now);
        let weighed = at
            .state
            .circuit()
            .weigh(now, self.began, self.caller, before, signal);
        if weighed != signal {
            // Set once, here.
            let _ = sent.own_failure.set(());
        }
        self.report_because(weighed, Some(failure.class));
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.reported {
            self.report(Signal::Cancelled {
                after_slow_threshold: self.is_slow(),
            });
        }
    }
}

/// Bytes of a text that tell it from others, with its length.
const MARKED: usize = 1024;

/// Returns the marks of whoever makes it: the tenant, and the caller's last message or arguments.
fn marks(attempt: &Attempt) -> CallerMarks {
    let invocation = &attempt.scope.invocation;
    let mut prompt = DefaultHasher::new();
    match &invocation.call {
        Call::Model(call) => {
            call.messages.len().hash(&mut prompt);
            let last = call.messages.last().map(|message| &message.parts);
            for text in last.into_iter().flatten().filter_map(Part::as_text) {
                text.len().hash(&mut prompt);
                prompt.write(&text.as_bytes()[..text.len().min(MARKED)]);
            }
        }
        Call::Tool(tool) => tool.arguments.hash(&mut prompt),
    }
    let mut tenant = DefaultHasher::new();
    invocation.tenant.hash(&mut tenant);
    CallerMarks {
        tenant: Some(tenant.finish()),
        prompt: Some(prompt.finish()),
    }
}

fn rng(attempt: &Attempt) -> f64 {
    SeededRng::new(
        attempt.scope.plan.seed,
        &attempt.scope.invocation.id,
        attempt.number(),
    )
    .unit()
}
