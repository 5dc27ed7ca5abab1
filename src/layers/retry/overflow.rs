//! A conversation that outgrew the windows of the route's targets: it is shortened if the route allows
//! that, before it is sent in vain, and after a provider found it too long.

use std::sync::Arc;

use super::RetryLoop;
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        message::Endpoint,
    },
    layers::targets::TargetState,
    policy::{
        overflow::{Overflow, shorten},
        retry::{Candidate, larger_window_first},
        window::prompt_bytes,
    },
};

/// What a prompt that a provider found too long keeps at most, in hundredths: its window may not be
/// known, or its tokens not yet.
const KEPT: u64 = 70;

impl<S> RetryLoop<S> {
    /// Measures the prompt, and shortens it if it surely fits no target.
    pub(super) fn fit_windows(&mut self) {
        let states = self.states();
        let has_window = states.iter().any(|state| state.window().is_some());
        if self.request.call.endpoint != Endpoint::Answer || !has_window {
            return;
        }
        let bytes = prompt_bytes(&self.request.call);
        self.scope.measures(bytes);
        if states.iter().all(|state| state.is_outgrown_by(bytes)) {
            let room = states.iter().filter_map(|state| self.room(state)).max();
            let words = self.shorten_to(room.unwrap_or_default());
            self.scope.repairs(words);
        }
    }

    /// Shortens the conversation that a target found too long, unless another one has a larger window.
    pub(super) fn shorten_for(&mut self, failure: &Failure, candidates: &[Candidate]) -> bool {
        let is_too_long = failure.class == FailureClass::ContextLength && !failure.never_sent;
        if !is_too_long || larger_window_first(failure, candidates) {
            return false;
        }
        let state = failure
            .target
            .as_ref()
            .and_then(|id| self.targets.state(id));
        let room = state.and_then(|state| self.room(&state));
        let kept = prompt_bytes(&self.request.call) / 100 * KEPT;
        let Some(words) = self.shorten_to(room.map_or(kept, |room| room.min(kept))) else {
            return false;
        };
        self.record_change(failure, &words);
        true
    }

    /// Shortens the conversation to so many bytes, if the route allows that; returns what was left
    /// out, in words.
    fn shorten_to(&mut self, bytes: u64) -> Option<String> {
        let overflow = self.scope.plan.changes.overflow;
        if overflow == Overflow::Fail {
            return None;
        }
        let short = shorten(&self.request.call, overflow, bytes)?;
        self.scope.measures(prompt_bytes(&short.call));
        self.request.call = Arc::new(short.call);
        Some(short.words)
    }

    /// Returns the bytes of a prompt that leaves room for its answer at a target.
    fn room(&self, state: &TargetState) -> Option<u64> {
        let answer = self.request.call.max_output_tokens.unwrap_or_default();
        Some(
            state
                .observed
                .token_ratio()
                .room(state.window()?, answer.into()),
        )
    }

    fn states(&self) -> Vec<Arc<TargetState>> {
        let targets = self.scope.plan.targets.iter();
        targets
            .filter_map(|target| self.targets.state(&target.id))
            .collect()
    }
}
