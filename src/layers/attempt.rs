//! One attempt on its way down to a provider.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    event::{InvocationEvent, Preparation},
    invocation::InvocationScope,
    spans::AttemptTrace,
    targets::TargetState,
};
use crate::{
    domain::{
        adaptation::{Adaptation, DialectOverrides},
        failure::{FailureClass, Wait},
        ids::TargetId,
        invocation::{AttemptCause, TraceContext},
        message::{Message, ModelCall, Role},
        target::Target,
        tool::{ExecutedTool, ToolRequest},
        upstream::UpstreamHandle,
        wire::{SentTo, request_id},
    },
    policy::{continuation::Way, tool_recovery::effects::Effects},
};

/// An attempt for which no target is chosen yet.
#[derive(Debug)]
pub struct PendingAttempt {
    /// Whose attempt it is.
    pub scope: Arc<InvocationScope>,
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
    /// Whether it is made only to continue `held`, and with a target that can.
    pub extends: bool,
    /// A text of an abandoned attempt that followers hold and that may be gone on with.
    pub held: Option<Arc<str>>,
    /// The answer that it continues to read, instead of requesting one: of that answer's target,
    /// and no other.
    pub attach: Option<UpstreamHandle>,
    /// The tool call that it makes, of that call's target, and no other; `None` where a model is
    /// called.
    pub tool: Option<Arc<ToolAttempt>>,
    /// Where its spans hang.
    pub trace: AttemptTrace,
}

/// The tool call of one attempt.
#[derive(Debug, Clone)]
pub struct ToolAttempt {
    /// The tool, as a target.
    pub target: TargetId,
    /// What is sent to its server.
    pub request: Arc<ToolRequest>,
    /// Why it is made.
    pub cause: AttemptCause,
    /// What of the call was changed for it, in words; empty where nothing was.
    pub changed: String,
    /// How long the tool may take.
    pub timeout: Duration,
    /// What the tool does to the world.
    pub effects: Effects,
    /// What the record of the attempt keeps of it.
    pub kept: ExecutedTool,
}

/// An attempt on a target.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Whose attempt it is.
    pub scope: Arc<InvocationScope>,
    /// Set when it starts.
    pub number: OnceLock<u32>,
    /// Why it is made.
    pub cause: AttemptCause,
    /// The target that is called.
    pub target: Arc<Target>,
    /// What is known of that target.
    pub state: Arc<TargetState>,
    /// The request: this attempt's own copy.
    pub call: Arc<ModelCall>,
    /// Which of the dialect's usual words the target was found not to take.
    pub wording: DialectOverrides,
    /// Whether the call carries a note.
    pub noted: bool,
    /// The text that it continues, and how; `None` for an answer from its beginning.
    pub goes_on: Option<(Arc<str>, Way)>,
    /// The answer that it reads again from its beginning, instead of requesting one.
    pub attach: Option<UpstreamHandle>,
    /// The tool call that it makes; `None` where a model is called.
    pub tool: Option<Arc<ToolAttempt>>,
    /// When the invocation must be over.
    pub deadline: Instant,
    /// Where the URL of its request is noted.
    pub sent_to: SentTo,
    /// The trace context that the provider may be sent; set when the spans of its request are open.
    pub outgoing: OnceLock<TraceContext>,
    /// What was decided on the way to its target.
    pub prepared: Preparation,
    /// Where its spans hang.
    pub trace: AttemptTrace,
}

// === impl Attempt ===

impl Attempt {
    /// Begins the attempt, when gates, slots and circuit let it pass. One that Relight refuses
    /// itself never starts, and leaves nothing.
    pub fn begin(&self) {
        let Self {
            scope,
            cause,
            target,
            prepared,
            trace,
            ..
        } = self;
        let tool = self.tool.as_ref().map(|tool| &tool.kept);
        // Set once, here.
        let _ = self
            .number
            .set(scope.begin(*cause, target, tool, prepared, trace));
    }

    /// Reports what happened to it; a step of it is sent to followers.
    pub fn report(&self, event: &InvocationEvent<'_>) {
        self.scope.emit(
            self.scope
                .report(self.number(), Some(&self.target.id), event),
        );
    }

    /// Its number, 1 for the invocation's first; before it starts the one that it would have now.
    pub fn number(&self) -> u32 {
        self.number
            .get()
            .copied()
            .unwrap_or_else(|| self.scope.next_number())
    }

    /// Reports the id by which the provider knows the request, where these headers have it.
    pub fn report_request_id(&self, headers: &[(String, String)]) {
        if let Some(id) = request_id(headers) {
            self.report(&InvocationEvent::RequestIdReceived { id });
        }
    }
}

// === impl PendingAttempt ===

impl PendingAttempt {
    /// The call as this target takes it, behind its own system prompt, and its wording.
    pub fn adapted_to(&self, target: &Target) -> (Arc<ModelCall>, DialectOverrides) {
        let (mut call, mut wording) = (Arc::clone(&self.call), DialectOverrides::default());
        if let Some(prompt) = &target.system_prompt {
            Arc::make_mut(&mut call)
                .messages
                .insert(0, Message::text(Role::System, prompt.as_ref()));
        }
        for (_, change) in self
            .changes
            .iter()
            .filter(|(refused, _)| *refused == target.id)
        {
            change.change(Arc::make_mut(&mut call));
            change.apply(&mut wording);
        }
        (call, wording)
    }
}
