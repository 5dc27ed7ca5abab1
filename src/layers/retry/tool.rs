//! A tool call: executed, recovered by the ladder of tools, and ended once.
//!
//! The loop is that of models, with its decisions about waits, budget and deadline, its
//! announcements, its parking and its end. What comes after a failure is decided in `ladder`.

mod called;
mod chunks;
mod ending;
mod ladder;
mod learning;
mod names;

use std::sync::Arc;

use futures_util::StreamExt as _;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        completion::Delta,
        failure::{Failure, FailureClass},
        ids::{InvocationId, TargetId},
        invocation::{AttemptCause, Call, ToolInvocation},
        tool::{ExecutedTool, ToolOutput, ToolReply, ToolRequest},
    },
    layers::{
        Deltas,
        assembler::DeltaAssembler,
        attempt::{PendingAttempt, ToolAttempt},
        guarded::NextLayer,
        invocation::{InvocationScope, PreviousRun},
        spans::{AttemptSpan, AttemptTrace},
        tools::{ToolOffer, ToolPlan},
    },
    policy::{
        redact::redact,
        retry::RecoveryOptions,
        retry_budget::Settled,
        tool_recovery::{
            adapt::AdaptedArguments,
            arguments::{self, Arguments, quoted},
            effects,
            learning::Learner,
        },
    },
};

use self::{called::CalledTool, chunks::ChunkedCall, ladder::StepsTaken};

/// Longest goal that is kept with an execution, in bytes.
const MAX_GOAL_BYTES: usize = 1024;

/// The step that the ladder decided upon, as the planner takes it.
#[derive(Debug, Clone)]
pub(super) struct LadderStep {
    /// The tool that is called next, as a target.
    pub(super) target: TargetId,
    /// Reason why that may help, in the planner's terms.
    pub(super) options: RecoveryOptions,
    /// If set, the same tool is called with other arguments.
    pub(super) adapts: bool,
}

/// The state of one tool call, beside what the planner knows of any call.
pub(super) struct ToolCallState {
    call: ToolInvocation,
    invocation: InvocationId,
    plan: Arc<ToolPlan>,
    called: CalledTool,
    steps: StepsTaken,
    /// `true` if the list of the tool's server was fetched after its last failure.
    list_is_fresh: bool,
    /// Learner whose outcomes these are, and the operation.
    learner: Learner,
    /// The tool that was called at first and was not the right one.
    mistaken: Option<TargetId>,
    /// The tool that was learnt to be meant and is called in place of the one that was named.
    preferred: bool,
}

/// Next step after a failed execution.
enum AfterExecution {
    /// As after any failed attempt.
    Planned(AfterFailure),
    /// It ends so.
    Ended(crate::domain::fold::StreamStep),
    /// The call is split, and its chunks are executed.
    Chunks(Box<ChunkedCall>, Vec<crate::domain::fold::StreamStep>),
}

// === impl AfterExecution ===

impl AfterExecution {
    /// Returns whether a tool is executed next.
    fn goes_on(&self) -> bool {
        match self {
            Self::Planned(AfterFailure::Again(_) | AfterFailure::Park { .. })
            | Self::Chunks(..) => true,
            Self::Planned(AfterFailure::Stop(_) | AfterFailure::Complete(_)) | Self::Ended(_) => {
                false
            }
        }
    }
}

// === impl ToolCallState ===

impl ToolCallState {
    /// Returns the state of the tool call that this invocation is; `None` if it calls a model. If
    /// it was learnt that another tool is meant, or how arguments are adapted, it starts with that.
    pub(super) fn of(scope: &InvocationScope) -> Option<Self> {
        let Call::Tool(call) = &scope.invocation.call else {
            return None;
        };
        let plan = Arc::clone(scope.plan.tool.as_ref()?);
        let offer = plan.offers.first()?.clone();
        let mut tool_call = Self {
            call: call.clone(),
            invocation: scope.invocation.id.clone(),
            called: CalledTool::new(offer, written(call)),
            plan,
            steps: StepsTaken::new(),
            list_is_fresh: false,
            learner: Learner {
                tenant: scope.invocation.tenant.clone(),
                operation: scope.invocation.operation.clone(),
            },
            mistaken: None,
            preferred: false,
        };
        if let Some(named) = &tool_call.plan.unlisted {
            let called = quoted(tool_call.called.offer.target.id.as_str());
            let named = quoted(named.as_str());
            let reason = format!(
                "{called} was called in place of {named}, because the server of that does not list its tools and its \
                 operator declared both as equivalent"
            );
            let cause = AttemptCause::Fallback(FailureClass::Network);
            tool_call.steps.begin_with(cause, reason);
        } else if tool_call.begin_with_release() {
            tool_call.recall();
        }
        Some(tool_call)
    }

    /// Returns the arguments as the caller wrote them.
    fn written(&self) -> Arguments {
        written(&self.call)
    }

    /// Returns the next execution, with these arguments.
    fn attempt(&self, arguments: &Arguments) -> Arc<ToolAttempt> {
        let written = arguments::write(arguments);
        let redacted = self.plan.catalogue.redacted(&self.called.offer, &written);
        // Unchanged arguments are sent as they were written.
        let is_own = *arguments == self.called.arguments && self.called.adaptation.is_none();
        let key = self.called.offer.effects.key_argument.as_deref();
        let key = key.map(|argument| {
            let key = effects::idempotency_key(&self.invocation, &self.call.name, &written);
            (argument, key)
        });
        let unkeyed = if is_own {
            self.call.arguments.clone()
        } else {
            written
        };
        let sent = match key {
            Some((argument, key)) => effects::with_key_in_text(&unkeyed, arguments, argument, &key),
            None => unkeyed,
        };
        Arc::new(ToolAttempt {
            target: self.called.offer.target.id.clone(),
            request: Arc::new(ToolRequest {
                tool: self.called.offer.spec.name.clone(),
                arguments: sent,
                meta: self.call.meta.clone(),
            }),
            cause: self.steps.cause,
            changed: self.called.changed.clone(),
            timeout: self.called.offer.timeout,
            effects: self.called.offer.effects.clone(),
            output_schema: self.called.offer.spec.output_schema.clone(),
            kept: ExecutedTool {
                arguments: redacted,
                goal: redact(&self.call.goal, MAX_GOAL_BYTES),
                release: self.called.offer.release.clone(),
            },
        })
    }

    /// The result with what was done to get it.
    fn output(&self, reply: ToolReply) -> ToolOutput {
        ToolOutput {
            tool: self.called.offer.spec.name.clone(),
            reply,
            arguments: self.called.adapted_arguments(),
            coverage: None,
            reasoning: self.steps.reasoning(),
        }
    }

    /// Takes arguments that were changed to fit the tool as it is listed now.
    fn adapt(&mut self, adapted: AdaptedArguments) {
        self.relist();
        self.called.adapt(adapted);
    }

    /// Takes the tool as it is listed now.
    fn relist(&mut self) {
        let ToolOffer { target, spec, .. } = &self.called.offer;
        let side_effects = self.call.side_effects;
        let catalogue = &self.plan.catalogue;
        if let Some(now) = catalogue.offer(&target.provider, &spec.name, side_effects) {
            self.called.relisted(now);
        }
    }
}

impl<S> RetryLoop<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    /// Takes over what an earlier owner of the call did, checks the arguments' names, and returns
    /// what follows: the first execution, or the end.
    pub(super) async fn begin_execution(
        &mut self,
        tool_call: &mut ToolCallState,
        before: PreviousRun,
    ) -> AfterFailure {
        self.read.assembler = DeltaAssembler::after(before.blocks, before.last_block);
        if before.was_owned
            && let Some(end) = self.taken_over(tool_call)
        {
            return AfterFailure::Stop(end);
        }
        match self.check_names(tool_call).await {
            Some(end) => AfterFailure::Stop(end),
            None => AfterFailure::Again(Vec::new()),
        }
    }

    /// Executes the tool with the arguments as they are now.
    pub(super) async fn execute(
        &mut self,
        tool_call: &ToolCallState,
        trace: AttemptTrace,
    ) -> Result<Arc<ToolReply>, Failure> {
        let attempt = PendingAttempt {
            tool: Some(tool_call.attempt(&tool_call.called.arguments)),
            ..self.next_attempt(trace)
        };
        Box::pin(result_of(Arc::clone(&self.inner), attempt)).await
    }

    /// Returns what follows an execution: its result ends the call, and after a failure the ladder
    /// decides.
    pub(super) async fn judge_execution(
        &mut self,
        tool_call: &mut ToolCallState,
        span: AttemptSpan,
        executed: Result<Arc<ToolReply>, Failure>,
    ) -> AfterFailure {
        let failure = match executed {
            Ok(reply) => {
                self.settle(Settled::Succeeded);
                span.finish_ok(true);
                let output = tool_call.output(Arc::unwrap_or_clone(reply));
                tool_call.learn_success();
                let (steps, end) = self.returned(tool_call, output);
                self.give_all(steps).await;
                return AfterFailure::Stop(end);
            }
            Err(failure) => failure,
        };
        self.close_failed(span, &failure);
        match self.take_step(tool_call, failure).await {
            AfterExecution::Planned(AfterFailure::Stop(end)) => {
                AfterFailure::Stop(self.explained(tool_call, end))
            }
            // Only a completion of a model can be complete by the delivered part of it.
            AfterExecution::Planned(AfterFailure::Complete(steps)) => AfterFailure::Again(steps),
            AfterExecution::Planned(next) => next,
            AfterExecution::Ended(end) => AfterFailure::Stop(end),
            AfterExecution::Chunks(chunked, announced) => {
                self.give_all(announced).await;
                self.execute_chunks(tool_call, *chunked).await
            }
        }
    }
}

/// Returns the arguments of a call as the caller wrote them: they were found to be an object when
/// the call came in.
fn written(call: &ToolInvocation) -> Arguments {
    arguments::read(&call.arguments).unwrap_or_default()
}

/// One execution, up to its result: what its server says of itself on the way is read by the layers
/// below.
async fn result_of<S>(inner: Arc<S>, attempt: PendingAttempt) -> Result<Arc<ToolReply>, Failure>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    let tool = attempt
        .tool
        .as_ref()
        .map(|tool| tool.request.tool.clone())
        .unwrap_or_default();
    let mut deltas = inner.call(attempt).await?;
    let mut reply = None;
    while let Some(item) = deltas.next().await {
        if let Delta::ToolReply(returned) = item.map_err(|failure| *failure)? {
            reply = Some(returned);
        }
    }
    reply.ok_or_else(|| {
        Failure::local(
            FailureClass::MalformedResponse,
            "the tool server returned no result",
        )
        .of_tool(&tool)
    })
}
