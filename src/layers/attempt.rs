//! One attempt on its way down to a provider.

use std::sync::Arc;

use tokio::time::Instant;

use super::{scope::Scope, spans::AttemptTrace, targets::TargetState};
use crate::{
    domain::{
        adaptation::{Adaptation, Wording},
        failure::{FailureClass, Wait},
        ids::TargetId,
        invocation::{AttemptCause, TraceContext},
        message::ModelCall,
        target::Target,
        upstream::UpstreamHandle,
        wire::request_id,
    },
    policy::continuation::Way,
};

/// An attempt for which no target is chosen yet.
#[derive(Debug)]
pub struct Try {
    /// Whose attempt it is.
    pub scope: Arc<Scope>,
    /// The conversation as the caller wrote it.
    pub call: Arc<ModelCall>,
    /// How the attempt before it failed; `None` for the first.
    pub after: Option<FailureClass>,
    /// The target of the attempt before it.
    pub last: Option<TargetId>,
    /// Whether that target is to be avoided while there is another.
    pub avoid_last: bool,
    /// Whether the request was changed so that the same target may take it now.
    pub adapted: bool,
    /// What of the request is changed for which target.
    pub changes: Vec<(TargetId, Adaptation)>,
    /// The target that the planner would like.
    pub hint: Option<TargetId>,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// Whether it is made only to go on with `held`, and with a target that can.
    pub extends: bool,
    /// A text of an abandoned attempt that followers hold and that may be gone on with.
    pub held: Option<Arc<str>>,
    /// The answer that it reads on, instead of asking for one: of that answer's target, and no other.
    pub attach: Option<UpstreamHandle>,
    /// Where its spans hang.
    pub trace: AttemptTrace,
}

/// An attempt on a target.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Whose attempt it is.
    pub scope: Arc<Scope>,
    /// 1 for the invocation's first.
    pub number: u32,
    /// Why it is made.
    pub cause: AttemptCause,
    /// Who is asked.
    pub target: Arc<Target>,
    /// What is known of that target.
    pub state: Arc<TargetState>,
    /// What is asked: this attempt's own copy.
    pub call: Arc<ModelCall>,
    /// Which of the dialect's usual words the target was found not to take.
    pub wording: Wording,
    /// Whether the call carries a note.
    pub noted: bool,
    /// The text that it goes on with, and how; `None` for an answer from its beginning.
    pub goes_on: Option<(Arc<str>, Way)>,
    /// The answer that it reads on from its beginning, instead of asking for one.
    pub attach: Option<UpstreamHandle>,
    /// When the invocation must be over.
    pub deadline: Instant,
    /// The trace context that the provider may be sent.
    pub outgoing: TraceContext,
    /// Where its spans hang.
    pub trace: AttemptTrace,
}

// === impl Attempt ===

impl Attempt {
    /// Writes down by which id the provider knows the request, where these headers tell it.
    pub fn learn_request_id(&self, headers: &[(String, String)]) {
        if let Some(id) = request_id(headers) {
            self.scope.learn(self.number, |record| id.clone_into(&mut record.upstream_request_id));
        }
    }
}

// === impl Try ===

impl Try {
    /// The call as this target takes it, and its wording.
    pub fn adapted_to(&self, target: &TargetId) -> (Arc<ModelCall>, Wording) {
        let (mut call, mut wording) = (Arc::clone(&self.call), Wording::default());
        for (_, change) in self.changes.iter().filter(|(refused, _)| refused == target) {
            change.change(Arc::make_mut(&mut call));
            change.reword(&mut wording);
        }
        (call, wording)
    }
}
