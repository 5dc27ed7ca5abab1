//! One attempt on its way down to a provider.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    event::Preparation,
    invocation::InvocationScope,
    spans::AttemptTrace,
    targets::{KeyState, TargetState},
};
use crate::{
    domain::{
        adaptation::{Adaptation, DialectOverrides},
        event::EventBody,
        failure::{FailureClass, Wait},
        ids::TargetId,
        invocation::{AttemptCause, AttemptRecord, TraceContext},
        message::{Message, ModelCall, Role},
        target::Target,
        tool::{ExecutedTool, ToolRequest},
        upstream::UpstreamHandle,
        wire::{CompletionForm, SentTo, request_id},
    },
    policy::{
        continuation::{self, Way},
        tool_recovery::effects::Effects,
    },
};

/// An attempt for which no target is chosen yet.
#[derive(Debug)]
pub struct PendingAttempt {
    /// Scope of the invocation that the attempt belongs to.
    pub scope: Arc<InvocationScope>,
    /// The failed attempt before it.
    pub before: AttemptBefore,
    /// The request for a model, as no target in particular takes it.
    pub request: PendingRequest,
    /// Answer that was begun before, and that it may go on with.
    pub begun: BegunAnswer,
    /// Tool call that it makes, of that call's target, and no other; `None` if a model is called.
    pub tool: Option<Arc<ToolAttempt>>,
    /// The target that the planner would like.
    pub hint: Option<TargetId>,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// Trace to which its spans belong.
    pub trace: AttemptTrace,
}

/// The failed attempt before another one; empty before the first.
#[derive(Debug)]
pub struct AttemptBefore {
    /// Class of its failure.
    pub class: Option<FailureClass>,
    /// Its target.
    pub target: Option<TargetId>,
    /// If set, that target is avoided while there is another.
    pub avoided: bool,
}

/// The request of an attempt for which no target is chosen yet.
#[derive(Debug)]
pub struct PendingRequest {
    /// The conversation as the caller wrote it.
    pub call: Arc<ModelCall>,
    /// Changes of it for each target.
    pub changes: Vec<(TargetId, Adaptation)>,
    /// `true` if it was changed so that the same target may take it now.
    pub adapted: bool,
    /// `true` if it is sent to the same target with another key of its pool.
    pub rotates: bool,
}

/// The part of an answer that earlier attempts left.
#[derive(Debug)]
pub struct BegunAnswer {
    /// A text of an abandoned attempt that followers hold and that may be gone on with.
    pub held: Option<Arc<str>>,
    /// `true` if the attempt is made only to continue `held`, and with a target that can.
    pub extends: bool,
    /// Answer that the attempt continues to read, instead of requesting one: of that completion's
    /// target, and no other.
    pub attach: Option<UpstreamHandle>,
}

/// The tool call of one attempt.
#[derive(Debug, Clone)]
pub struct ToolAttempt {
    /// The tool, as a target.
    pub target: TargetId,
    /// Request that is sent to its server.
    pub request: Arc<ToolRequest>,
    /// Reason why it is made.
    pub cause: AttemptCause,
    /// Changes of the call for it, in words; empty if there are none.
    pub changed: String,
    /// Time that the tool may take.
    pub timeout: Duration,
    /// Effects of the tool on the world.
    pub effects: Effects,
    /// The schema that its structured result should fit, if it declares one.
    pub output_schema: Option<Arc<serde_json::Value>>,
    /// Part that the record of the attempt keeps of it.
    pub kept: ExecutedTool,
}

/// An attempt on a target.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Scope of the invocation that the attempt belongs to.
    pub scope: Arc<InvocationScope>,
    /// Set when it starts.
    pub number: OnceLock<u32>,
    /// Reason why it is made.
    pub cause: AttemptCause,
    /// Place at which it is made.
    pub at: CalledTarget,
    /// Thing that is asked for there.
    pub request: AttemptRequest,
    /// Facts of the request on its way.
    pub sent: SentRequest,
    /// Decisions made on the way to its target.
    pub prepared: Preparation,
    /// Trace to which its spans belong.
    pub trace: AttemptTrace,
}

/// The target of one attempt, as it is called with one of its keys.
#[derive(Debug, Clone)]
pub struct CalledTarget {
    /// Known state of the target.
    pub state: Arc<TargetState>,
    /// The key with which it is called, the gates of that, and the target itself.
    pub key: Arc<KeyState>,
}

/// The request of one attempt: a call of a model or of a tool, or an answer that is read again.
#[derive(Debug, Clone)]
pub struct AttemptRequest {
    /// The conversation: this attempt's own copy.
    pub call: Arc<ModelCall>,
    /// Usual words of the dialect that the target was found not to take.
    pub wording: DialectOverrides,
    /// `true` if the call carries a note.
    pub noted: bool,
    /// Text that it continues, and the way; `None` for a completion from its start.
    pub goes_on: Option<(Arc<str>, Way)>,
    /// Answer that it reads again from its start, instead of requesting one.
    pub attach: Option<UpstreamHandle>,
    /// Tool call that it makes; `None` if a model is called.
    pub tool: Option<Arc<ToolAttempt>>,
}

/// Facts of one attempt's request that are known only once it is on its way.
#[derive(Debug, Clone, Default)]
pub struct SentRequest {
    /// Place in which its URL is noted.
    pub to: SentTo,
    /// The trace context that the provider may be sent; set when its spans are open.
    pub outgoing: OnceLock<TraceContext>,
    /// Silence after which another attempt may start beside it; unset if none may.
    pub raced_after: OnceLock<Duration>,
    /// Form in which the completion is wanted; set when it is requested.
    pub form: OnceLock<CompletionForm>,
    /// Set once it failed in a way that is its caller's own, and shows nothing about the target.
    pub own_failure: OnceLock<()>,
}

// === impl Attempt ===

impl Attempt {
    /// Begins the attempt, when gates, slots and circuit let it pass. One that Relight refuses
    /// itself never starts, and leaves nothing.
    pub fn begin(&self) {
        let Self {
            scope,
            cause,
            at,
            request,
            prepared,
            trace,
            ..
        } = self;
        let tool = request.tool.as_ref().map(|tool| &tool.kept);
        // Set once, here.
        let _ = self
            .number
            .set(scope.begin(*cause, &at.key, tool, prepared, trace));
    }

    /// Publishes what happened to it.
    pub fn publish(&self, body: EventBody) {
        self.scope
            .publish(self.number(), Some(&self.target().id), body);
    }

    /// Writes to its record.
    pub fn amend(&self, change: impl FnOnce(&mut AttemptRecord)) {
        self.scope.amend(self.number(), change);
    }

    /// Returns its number, 1 for the invocation's first; before it starts the one that it would
    /// have now.
    pub fn number(&self) -> u32 {
        self.number
            .get()
            .copied()
            .unwrap_or_else(|| self.scope.next_number())
    }

    /// Returns the target as it is called.
    pub fn target(&self) -> &Arc<Target> {
        &self.at.key.target
    }

    /// Returns the time by which the invocation must be over.
    pub fn deadline(&self) -> Instant {
        self.scope.invocation.deadline
    }

    /// Returns whether it calls a tool, and no model.
    pub fn calls_tool(&self) -> bool {
        self.request.tool.is_some()
    }

    /// Returns whether it reads an answer again, instead of requesting one.
    pub fn is_attached(&self) -> bool {
        self.request.attach.is_some()
    }

    /// Records the id by which the provider knows the request, if these headers have it.
    pub fn record_request_id(&self, headers: &[(String, String)]) {
        if let Some(id) = request_id(headers) {
            self.amend(|record| id.clone_into(&mut record.ids.upstream_request_id));
        }
    }
}

// === impl SentRequest ===

impl SentRequest {
    /// Returns whether the completion was requested as a document by choice: its first token is its
    /// end, and shows nothing.
    pub fn is_document(&self) -> bool {
        self.form.get() == Some(&CompletionForm::Document)
    }
}

// === impl PendingAttempt ===

impl PendingAttempt {
    /// Returns the only target that can be called: the one whose answer is to be read on, or the
    /// tool that the planner chose; `None` if there is a choice.
    pub fn only_target(&self) -> Option<&TargetId> {
        let tool = self.tool.as_ref().map(|tool| &tool.target);
        let attached = self.begun.attach.as_ref();
        tool.or_else(|| attached.map(|handle| &handle.target))
    }
}

// === impl AttemptBefore ===

impl AttemptBefore {
    /// Returns the target that is avoided while there is another.
    pub fn avoided_target(&self) -> Option<&TargetId> {
        self.target.as_ref().filter(|_| self.avoided)
    }
}

// === impl PendingRequest ===

impl PendingRequest {
    /// The call as this target takes it, behind its own system prompt, and its wording.
    pub fn adapted_to(&self, target: &Target) -> (Arc<ModelCall>, DialectOverrides) {
        let mut call = Arc::clone(&self.call);
        let mut wording = DialectOverrides::default();
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

// === impl BegunAnswer ===

impl BegunAnswer {
    /// Returns whether an answer is read on, and none requested.
    pub fn attaches(&self) -> bool {
        self.attach.is_some()
    }

    /// Returns the text that a call of this target goes on with, and the way; `None` if there is
    /// none, or the target cannot. A completion that is read on is read from its own start.
    pub fn continued_by(
        &self,
        target: &Target,
        call: &ModelCall,
        prompt_allowed: bool,
    ) -> Option<(Arc<str>, Way)> {
        let held = self.held.as_ref().filter(|_| !self.attaches())?;
        let way = continuation::way(held, call, &target.capabilities, prompt_allowed)?;
        Some((Arc::clone(held), way))
    }
}
