//! Request of the next attempt, and its target.

use std::{borrow::Cow, sync::Arc};

use super::{RetryLoop, tool::LadderStep};
use crate::{
    domain::{
        adaptation::Adaptation, failure::Wait, ids::TargetId, invocation::Call, message::ModelCall,
        upstream::UpstreamHandle,
    },
    layers::{
        attempt::{AttemptBefore, BegunAnswer, PendingAttempt, PendingRequest},
        invocation::InvocationScope,
        spans::AttemptTrace,
    },
    policy::{inject, retry::recovery_options},
};

/// State of the phase that opens an attempt.
#[derive(Default)]
pub(super) struct NextRequest {
    /// Call of the model, repaired; empty if a tool is called.
    pub(super) call: Arc<ModelCall>,
    /// Target that the policy chose.
    pub(super) hint: Option<TargetId>,
    /// Changes that targets were found to need.
    pub(super) changes: Vec<(TargetId, Adaptation)>,
    /// The next attempt is not the same request as the last one.
    pub(super) adapted: bool,
    /// The next attempt is the same request with another key of the same target.
    pub(super) rotates: bool,
    /// Answer that the next attempt continues to read, instead of requesting one.
    pub(super) attach: Option<UpstreamHandle>,
    /// Step that the ladder of tools decided upon; `None` if a model is called.
    pub(super) step: Option<LadderStep>,
}

// === impl NextRequest ===

impl NextRequest {
    /// Returns the first one of a call, whose history is repaired if a provider would refuse it.
    pub(super) fn first(scope: &InvocationScope) -> Self {
        let call = match &scope.invocation.call {
            Call::Model(call) => match inject::repair(call) {
                Cow::Borrowed(_) => Arc::clone(call),
                Cow::Owned(repaired) => {
                    scope.repairs(inject::changes(call, &repaired));
                    Arc::new(repaired)
                }
            },
            Call::Tool(_) => Arc::default(),
        };
        Self {
            call,
            ..Self::default()
        }
    }
}

impl<S> RetryLoop<S> {
    /// Returns the next attempt.
    pub(super) fn next_attempt(&mut self, trace: AttemptTrace) -> PendingAttempt {
        self.read.diverged = false;
        let policy = &self.scope.plan.retry;
        let avoided = self
            .verdict
            .upstream
            .as_ref()
            .is_some_and(|failure| recovery_options(policy, failure).other_first);
        let parked = Wait {
            duration: self.waits.parked,
            source: self.parked_source(),
        };
        let parked = Some(parked).filter(|wait| !wait.duration.is_zero());
        PendingAttempt {
            scope: Arc::clone(&self.scope),
            before: AttemptBefore {
                class: self.verdict.after,
                target: self.verdict.last.clone(),
                avoided,
            },
            request: PendingRequest {
                call: Arc::clone(&self.request.call),
                changes: self.request.changes.clone(),
                adapted: self.request.adapted,
                rotates: self.request.rotates,
            },
            begun: BegunAnswer {
                held: self.read.assembler.held_text(),
                extends: self.read.extension.is_under_way(),
                attach: self.request.attach.clone(),
            },
            tool: None,
            hint: self.request.hint.take(),
            wait: self.waits.waited.or(parked),
            trace,
        }
    }
}
