//! Chooses the target of this attempt, afresh each time: the world may have changed while it
//! waited.
//!
//! Where no target can be called now, it refuses with the time at which one can; the retry loop
//! then waits or gives up.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    attempt::{Attempt, PendingAttempt},
    event::{InvocationEvent, Preparation},
    guarded::NextLayer,
    targets::Targets,
};
use crate::{
    domain::{
        failure::{Failure, FailureClass, WaitSource},
        ids::TargetId,
        invocation::AttemptCause,
        wire::SentTo,
    },
    policy::{
        continuation,
        retry::Candidate,
        rng::SeededRng,
        select::{AttemptFacts, Choice, cause, choose},
    },
};

/// Chooses targets.
#[derive(Debug, Clone)]
pub struct SelectLayer {
    targets: Targets,
}

/// See [`SelectLayer`].
#[derive(Debug)]
pub struct Select<S> {
    inner: S,
    targets: Targets,
}

// === impl SelectLayer ===

impl SelectLayer {
    /// Chooses among these targets.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<S> tower::Layer<S> for SelectLayer {
    type Service = Select<S>;

    fn layer(&self, inner: S) -> Select<S> {
        Select {
            inner,
            targets: self.targets.clone(),
        }
    }
}

// === impl Select ===

impl<S> NextLayer<PendingAttempt> for Select<S>
where
    S: NextLayer<Attempt, Error = Failure>,
{
    type Out = S::Out;
    type Error = Failure;

    async fn call(&self, pending: PendingAttempt) -> Result<S::Out, Failure> {
        let chosen = self.attempt(&pending)?;
        // What it was made from is not kept for as long as it runs.
        drop(pending);
        self.inner.call(chosen).await
    }
}

impl<S> Select<S> {
    fn attempt(&self, pending: &PendingAttempt) -> Result<Attempt, Failure> {
        let scope = &pending.scope;
        let now = Instant::now();
        let candidates = self.targets.candidates(scope, now);
        let index = self.index_of_target(pending, &candidates, now)?;
        let target = scope.plan.targets.get(index).map(Arc::clone);
        let state = target
            .as_ref()
            .and_then(|target| self.targets.state(&target.id));
        let (Some(target), Some(state)) = (target, state) else {
            return Err(Failure::local(
                FailureClass::Configuration,
                "the route names a target that is gone",
            ));
        };
        let (call, wording) = pending.adapted_to(&target);
        let prompt_allowed = scope.invocation.overrides.allow_continuation_prompt;
        // An answer that is read on is read from its own beginning.
        let goes_on = pending
            .held
            .as_ref()
            .filter(|_| pending.attach.is_none())
            .and_then(|held| {
                let way = continuation::way(held, &call, &target.capabilities, prompt_allowed)?;
                Some((Arc::clone(held), way))
            });
        if pending.extends && goes_on.is_none() {
            return Err(Failure::local(
                FailureClass::Configuration,
                "the target cannot go on with a text",
            ));
        }
        let facts = AttemptFacts {
            given: pending
                .tool
                .as_ref()
                .map(|tool| tool.cause)
                .or(pending.extends.then_some(AttemptCause::Extend)),
            after: pending.after,
            last: pending.last.as_ref(),
            attaches: pending.attach.is_some(),
            continues: goes_on.is_some(),
            adapted: pending.adapted,
        };
        let closed_by = |target: &TargetId| {
            self.targets
                .state(target)
                .and_then(|state| state.closed_for(now))
        };
        let cause = cause(&facts, &candidates, index, closed_by);
        state.trace_choice(&pending.trace, now, &cause.label());
        if let Some((_, change)) = pending
            .changes
            .last()
            .filter(|_| matches!(cause, AttemptCause::Adapt(_)))
        {
            pending.trace.adapted(&change.to_string());
        }
        if let Some(tool) = pending
            .tool
            .as_ref()
            .filter(|tool| !tool.changed.is_empty())
        {
            pending.trace.adapted(&tool.changed);
        }
        let mut prepared = Preparation {
            wait: pending.wait,
            ..Preparation::default()
        };
        if let AttemptCause::Fallback(class) = cause {
            let from = pending
                .last
                .clone()
                .or_else(|| scope.plan.targets.first().map(|first| first.id.clone()));
            prepared
                .events
                .extend(from.map(|from| InvocationEvent::FallbackChosen { from, class }));
        }
        Ok(Attempt {
            scope: Arc::clone(scope),
            number: OnceLock::new(),
            cause,
            target,
            state,
            call,
            wording,
            noted: false,
            goes_on,
            attach: pending.attach.clone(),
            tool: pending.tool.clone(),
            deadline: scope.invocation.deadline,
            sent_to: SentTo::default(),
            outgoing: OnceLock::new(),
            prepared,
            trace: pending.trace.clone(),
        })
    }

    /// The place of the target among the plan's, or why none can be called now.
    fn index_of_target(
        &self,
        pending: &PendingAttempt,
        candidates: &[Candidate],
        now: Instant,
    ) -> Result<usize, Failure> {
        if let Some(index) = fixed(pending) {
            // No other target has that answer, or that tool; the layers below say whether it can be
            // called now.
            return Ok(index);
        }
        let scope = &pending.scope;
        let mut rng = SeededRng::new(scope.plan.seed, &scope.invocation.id, scope.next_number());
        let avoid = pending.last.as_ref().filter(|_| pending.avoid_last);
        match choose(
            &scope.plan.select,
            candidates,
            avoid,
            pending.hint.as_ref(),
            &mut rng,
        ) {
            Choice::Target(index) => Ok(index),
            Choice::WaitUntil(until, _) => {
                let wait = until.saturating_duration_since(now);
                let refused = self
                    .by_circuit(pending, now, Some(wait))
                    .unwrap_or_else(|| {
                        Failure::local(
                            FailureClass::CircuitOpen,
                            "every target is closed to calls now",
                        )
                    });
                Err(refused.with_retry_after(wait, WaitSource::Parked))
            }
            Choice::None => Err(self.by_circuit(pending, now, None).unwrap_or_else(|| {
                Failure::local(
                    FailureClass::CircuitOpen,
                    "no target of the route can be called",
                )
            })),
        }
    }

    /// The refusal by the first circuit of the route that alone keeps its target from being called.
    fn by_circuit(
        &self,
        pending: &PendingAttempt,
        now: Instant,
        retry_in: Option<Duration>,
    ) -> Option<Failure> {
        let mut states = pending
            .scope
            .plan
            .targets
            .iter()
            .filter_map(|target| self.targets.state(&target.id));
        let state = states.find(|state| {
            !state.circuit().state().is_closed() && state.closed_for(now).is_none()
        })?;
        // It speaks for all targets, so that none of them counts as the one that refused.
        Some(Failure {
            target: None,
            ..state.refused_by_circuit(now, retry_in)
        })
    }
}

/// The place, among the plan's targets, of the only one that can be called: whose answer is to be
/// read on, or which is the tool that the planner chose.
fn fixed(pending: &PendingAttempt) -> Option<usize> {
    let attached = pending.attach.as_ref().map(|handle| &handle.target);
    let only = pending
        .tool
        .as_ref()
        .map(|tool| &tool.target)
        .or(attached)?;
    pending
        .scope
        .plan
        .targets
        .iter()
        .position(|target| target.id == *only)
}
