//! Puts the failure note into this attempt's copy of the conversation, if that is legal and may
//! help.
//!
//! The caller's history is never touched. The refusal of a request with a note by a target is
//! remembered; the planner then decides once more without: a note must never be the reason why a
//! request fails.

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::{
    Deltas,
    attempt::Attempt,
    event::PlacedNote,
    guarded::NextLayer,
    resume_text::{continued, from_its_beginning, with_prefill},
};
use crate::{
    domain::{
        event::EventBody,
        failure::{Failure, FailureClass},
        message::ModelCall,
    },
    policy::inject::{Placement, inject, may_blame_note, why_not_needed},
};

/// Tells models what went wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct InjectLayer;

/// See [`InjectLayer`].
#[derive(Debug)]
pub struct Inject<S> {
    inner: S,
}

impl<S> tower::Layer<S> for InjectLayer {
    type Service = Inject<S>;

    fn layer(&self, inner: S) -> Inject<S> {
        Inject { inner }
    }
}

// === impl Inject ===

impl<S> NextLayer<Attempt> for Inject<S>
where
    S: NextLayer<Arc<Attempt>, Out = Deltas, Error = Failure>,
{
    type Out = Deltas;
    type Error = Failure;

    async fn call(&self, attempt: Attempt) -> Result<Deltas, Failure> {
        if attempt.calls_tool() {
            // A tool reads no conversation.
            return Ok(Box::pin(self.inner.call(Arc::new(attempt)).await?));
        }
        let attempt = noted(attempt);
        attempt.scope.sends(&attempt.request.call);
        let attempt = Arc::new(with_prefill(attempt));
        let continued = continued(&attempt);
        if !attempt.request.noted {
            return Ok(from_its_beginning(
                continued,
                self.inner.call(attempt).await?,
            ));
        }
        let noted = Arc::clone(&attempt);
        let remember = move |failure: &Failure| {
            if may_blame_note(failure) {
                noted.at.state.observed.remember_note_refused();
                noted.amend(|record| record.injection.refused = true);
            }
        };
        let deltas = self.inner.call(attempt).await.inspect_err(&remember)?;
        let deltas = Box::pin(deltas.inspect(move |item| {
            if let Err(failure) = item {
                remember(failure);
            }
        }));
        Ok(from_its_beginning(continued, deltas))
    }
}

fn noted(mut attempt: Attempt) -> Attempt {
    let scope = Arc::clone(&attempt.scope);
    let failures = scope.failures();
    let Some(last) = failures.last().map(|failure| failure.class) else {
        return attempt;
    };
    if attempt.is_attached() {
        // No model is called, so that no note can be injected.
        return attempt;
    }
    if attempt.at.state.observed.note_refused() {
        skipped(
            &mut attempt,
            "this target refused a note before".to_owned(),
            last,
        );
        return attempt;
    }
    let failures: Vec<&Failure> = failures.iter().collect();
    let plan = &scope.plan;
    let operation = &scope.invocation.operation;
    match inject(
        &plan.changes.injection,
        plan.changes.injection_mode,
        operation,
        &attempt.request.call,
        attempt.target(),
        &failures,
    ) {
        Placement::NotNeeded => {
            let reason = why_not_needed(plan.changes.injection_mode, last);
            attempt.prepared.injection_skipped = Some(reason.to_owned());
        }
        Placement::Skipped { reason } => skipped(&mut attempt, reason, last),
        Placement::Injected {
            call,
            note,
            vehicle,
        } => {
            let vehicle = vehicle.as_str();
            let injected = EventBody::ContextInjected {
                vehicle: vehicle.to_owned(),
                class: last,
                note_bytes: note.len() as u64,
            };
            attempt.prepared.events.push(injected);
            attempt.prepared.note = Some(PlacedNote {
                text: note,
                vehicle,
                message: first_change(&attempt.request.call, &call),
            });
            attempt.request.call = Arc::new(call);
            attempt.request.noted = true;
        }
    }
    attempt
}

/// Returns the position of the first message that the note is in.
fn first_change(before: &ModelCall, after: &ModelCall) -> u32 {
    let same = before
        .messages
        .iter()
        .zip(&after.messages)
        .take_while(|(old, new)| old == new)
        .count();
    u32::try_from(same).unwrap_or(u32::MAX)
}

fn skipped(attempt: &mut Attempt, reason: String, class: FailureClass) {
    attempt.prepared.injection_skipped = Some(reason.clone());
    attempt
        .prepared
        .events
        .push(EventBody::ContextInjectionSkipped { reason, class });
}
