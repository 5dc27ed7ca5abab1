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
    affinity::MovedConversations,
    attempt::{Attempt, AttemptRequest, CalledTarget, PendingAttempt, SentRequest},
    event::Preparation,
    guarded::NextLayer,
    invocation::{InvocationScope, Plan},
    targets::Targets,
};
use crate::{
    domain::{
        event::EventBody,
        failure::{Failure, FailureClass, WaitSource},
        ids::TargetId,
        invocation::AttemptCause,
    },
    policy::{
        retry::Candidate,
        rng::SeededRng,
        select::{AttemptFacts, Choice, Conversation, Order, cause, choose},
    },
};

/// Chooses targets.
#[derive(Debug, Clone)]
pub struct SelectLayer {
    targets: Targets,
    moved: MovedConversations,
}

/// See [`SelectLayer`].
#[derive(Debug)]
pub struct Select<S> {
    inner: S,
    targets: Targets,
    moved: MovedConversations,
}

// === impl SelectLayer ===

impl SelectLayer {
    /// Chooses among these targets; `moved`: conversations that stay with another than their own.
    pub fn new(targets: Targets, moved: MovedConversations) -> Self {
        Self { targets, moved }
    }
}

impl<S> tower::Layer<S> for SelectLayer {
    type Service = Select<S>;

    fn layer(&self, inner: S) -> Select<S> {
        Select {
            inner,
            targets: self.targets.clone(),
            moved: self.moved.clone(),
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
        let key = scope.plan.selection.conversation;
        let conversation = key.map(|key| self.moved.conversation(key, now));
        let conversation = conversation.as_ref();
        let index = self.index_of_target(pending, &candidates, conversation, now)?;
        let target = scope.plan.targets.get(index).map(Arc::clone);
        let state = target
            .as_ref()
            .and_then(|target| self.targets.state(&target.id));
        let attaches = pending.begun.attaches();
        let key = state
            .as_ref()
            .and_then(|state| state.key_for(scope, now, attaches));
        let (Some(target), Some(state), Some(key)) = (target, state, key) else {
            return Err(Failure::local(
                FailureClass::Configuration,
                "the route names a target that is gone",
            ));
        };
        let (call, wording) = pending.request.adapted_to(&target);
        let prompt_allowed = scope.invocation.overrides.allow_continuation_prompt;
        let goes_on = pending.begun.continued_by(&target, &call, prompt_allowed);
        if pending.begun.extends && goes_on.is_none() {
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
                .or(pending.begun.extends.then_some(AttemptCause::Extend)),
            after: pending.before.class,
            last: pending.before.target.as_ref(),
            first: first_place(&scope.plan, conversation),
            attaches,
            continues: goes_on.is_some(),
            adapted: pending.request.adapted,
            rotates: pending.request.rotates,
        };
        let closed_by = |target: &TargetId| {
            self.targets
                .state(target)
                .and_then(|state| state.closed_for())
        };
        let cause = cause(&facts, &candidates, index, closed_by);
        let reason = reason(cause, scope.plan.selection.policy.order, conversation);
        state.trace_choice(&pending.trace, now, &reason);
        if let Some((_, change)) = pending
            .request
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
        let prepared = prepared(pending, cause, facts.first);
        Ok(Attempt {
            scope: Arc::clone(scope),
            number: OnceLock::new(),
            cause,
            at: CalledTarget { state, key },
            request: AttemptRequest {
                call,
                wording,
                noted: false,
                goes_on,
                attach: pending.begun.attach.clone(),
                tool: pending.tool.clone(),
            },
            sent: SentRequest::default(),
            prepared,
            trace: pending.trace.clone(),
        })
    }

    /// Returns the place of the target among the plan's, or why none can be called now.
    fn index_of_target(
        &self,
        pending: &PendingAttempt,
        candidates: &[Candidate],
        conversation: Option<&Conversation>,
        now: Instant,
    ) -> Result<usize, Failure> {
        if let Some(index) = fixed(pending) {
            // No other target has that completion, or that tool; the layers below say whether it can be
            // called now.
            return Ok(index);
        }
        let scope = &pending.scope;
        let mut rng = SeededRng::new(scope.plan.seed, &scope.invocation.id, scope.next_number());
        let avoid = pending.before.avoided_target();
        match choose(
            &scope.plan.selection.policy,
            candidates,
            avoid,
            pending.hint.as_ref(),
            conversation,
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
            Choice::None if candidates.iter().all(|one| one.outgrown) => {
                Err(outgrown(&self.targets, scope))
            }
            Choice::None => Err(self.by_circuit(pending, now, None).unwrap_or_else(|| {
                Failure::local(
                    FailureClass::CircuitOpen,
                    "no target of the route can be called",
                )
            })),
        }
    }

    /// Returns the refusal by the first circuit of the route that alone keeps its target from being
    /// called.
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
        let state = states
            .find(|state| !state.circuit().state().is_closed() && state.closed_for().is_none())?;
        // It speaks for all targets, so that none of them counts as the one that refused.
        Some(Failure {
            target: None,
            ..state.refused_by_circuit(now, retry_in)
        })
    }
}

/// Returns the failure of a conversation that surely fits the window of no target.
fn outgrown(targets: &Targets, scope: &InvocationScope) -> Failure {
    let bytes = scope.prompt_bytes();
    let states = scope.plan.targets.iter();
    let states = states.filter_map(|target| targets.state(&target.id));
    let windows: Vec<String> = states
        .filter_map(|state| {
            let tokens = state.observed.token_ratio().tokens(bytes);
            let (id, window) = (&state.target.id, state.window()?);
            Some(format!(
                "{id} takes {window} tokens, and this is about {tokens}"
            ))
        })
        .collect();
    let message = format!(
        "the conversation outgrew the context window of every target: {}",
        windows.join("; ")
    );
    Failure::local(FailureClass::ContextLength, message)
}

/// Returns the place of the target that is called first while all are well.
fn first_place(plan: &Plan, conversation: Option<&Conversation>) -> usize {
    let kept = conversation.and_then(|one| one.kept_by.as_ref());
    let first = kept.or_else(|| plan.own_target());
    let mut places = plan.targets.iter();
    places
        .position(|target| Some(&target.id) == first)
        .unwrap_or(0)
}

/// Returns why a target is called, in a few words: the cause, and what else than the list decided.
fn reason(cause: AttemptCause, order: Order, conversation: Option<&Conversation>) -> String {
    let cause = cause.label();
    match order {
        _ if conversation.is_some() => cause + " (affinity)",
        Order::Listed => cause,
        Order::Shuffled => cause + " (shuffled)",
        Order::Weighted => cause + " (weighted)",
        Order::LeastBusy => cause + " (least busy)",
    }
}

/// Returns what led to an attempt, reported once it starts; `first` is the place of the target that
/// is called first while all are well.
fn prepared(pending: &PendingAttempt, cause: AttemptCause, first: usize) -> Preparation {
    let mut prepared = Preparation {
        wait: pending.wait,
        ..Preparation::default()
    };
    if let AttemptCause::Fallback(class) = cause {
        let primary = || Some(pending.scope.plan.targets.get(first)?.id.clone());
        let from = pending.before.target.clone().or_else(primary);
        let chosen = from.map(|from| EventBody::FallbackChosen { from, class });
        prepared.events.extend(chosen);
    }
    prepared
}

/// Returns the place, among the plan's targets, of the only one that can be called; `None` if there
/// is a choice.
fn fixed(pending: &PendingAttempt) -> Option<usize> {
    let only = pending.only_target()?;
    let mut targets = pending.scope.plan.targets.iter();
    targets.position(|target| target.id == *only)
}
