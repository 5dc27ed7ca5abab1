//! A tool call: executed, recovered by the ladder of tools, and ended once.
//!
//! It is beside the retry loop for models and uses what that has: its decisions about waits, budget
//! and deadline, its announcements, its parking and its end. What comes after a failure is decided
//! in `ladder`.

mod chunks;
mod ending;
mod ladder;
mod learning;

use std::sync::Arc;

use async_stream::stream;
use futures_util::{StreamExt as _, stream::FuturesUnordered};

use super::{RetryLoop, decide::AfterFailure, pending_events};
use crate::{
    domain::{
        completion::Delta,
        failure::{Failure, FailureClass},
        ids::{InvocationId, TargetId},
        invocation::{AttemptCause, Call, ToolInvocation},
        tool::{ExecutedTool, ToolOutput, ToolReply, ToolRequest, ToolSpec},
    },
    layers::{
        Deltas, StepStream,
        assembler::DeltaAssembler,
        attempt::{PendingAttempt, ToolAttempt},
        guarded::NextLayer,
        invocation::InvocationScope,
        spans::AttemptSpan,
        tools::{ToolOffer, ToolPlan},
    },
    policy::{
        redact::redact,
        retry::RecoveryOptions,
        retry_budget::Settled,
        tool_recovery::{
            ToolTrials,
            adapt::{AdaptedArguments, ArgumentChange},
            arguments::{self, Arguments},
            effects,
        },
    },
};

use self::chunks::ChunkedCall;

/// Longest goal that is kept with an execution, in bytes.
const MAX_GOAL_BYTES: usize = 1024;

/// The step that the ladder decided upon, as the planner takes it.
#[derive(Debug, Clone)]
pub(super) struct LadderStep {
    /// The tool that is called next, as a target.
    pub(super) target: TargetId,
    /// Why that may help, in the planner's terms.
    pub(super) options: RecoveryOptions,
    /// Whether the same tool is called with other arguments.
    pub(super) adapts: bool,
}

/// The state of one tool call, beside what the planner knows of any call.
pub(super) struct ToolCallState {
    call: ToolInvocation,
    invocation: InvocationId,
    plan: Arc<ToolPlan>,
    /// The tool that is called next, or was called last.
    offer: ToolOffer,
    /// The tool as it was listed when its arguments were written.
    listed: Arc<ToolSpec>,
    /// The arguments, without an idempotency key of Relight's own.
    arguments: Arguments,
    cause: AttemptCause,
    /// What of the call was changed for the next attempt, in words.
    changed: String,
    tried: ToolTrials,
    /// Why the call was changed, split or given to another tool, in plain words, one a step.
    reasons: Vec<String>,
    /// Whether the list of the tool's server was fetched after its last failure.
    list_is_fresh: bool,
    /// The tool that was called at first and was not the right one.
    mistaken: Option<TargetId>,
    /// The tool that was learnt to be meant and is called in place of the one that was named.
    preferred: bool,
    /// What of the arguments was changed, to be remembered once it worked.
    adaptation: Option<SchemaAdaptation>,
}

/// A change of arguments from one schema to another.
struct SchemaAdaptation {
    old: Arc<ToolSpec>,
    new: Arc<ToolSpec>,
    changes: Vec<ArgumentChange>,
}

/// What follows a failed execution.
enum AfterExecution {
    /// As after any failed attempt.
    Planned(AfterFailure),
    /// It ends so.
    Ended(crate::domain::fold::StreamStep),
    /// The call is split, and its chunks are executed.
    Chunks(Box<ChunkedCall>, Vec<crate::domain::fold::StreamStep>),
}

// === impl ToolCallState ===

impl ToolCallState {
    /// The state of the tool call that this invocation is; `None` where it calls a model. Where it
    /// was learnt that another tool is meant, or how arguments are adapted, it starts with that.
    pub(super) fn of(scope: &InvocationScope) -> Option<Self> {
        let Call::Tool(call) = &scope.invocation.call else {
            return None;
        };
        let plan = Arc::clone(scope.plan.tool.as_ref()?);
        let offer = plan.offers.first()?.clone();
        let mut tool_call = Self {
            call: call.clone(),
            invocation: scope.invocation.id.clone(),
            listed: Arc::clone(&offer.spec),
            arguments: Arguments::new(),
            offer,
            plan,
            cause: AttemptCause::Initial,
            changed: String::new(),
            tried: ToolTrials::default(),
            reasons: Vec::new(),
            list_is_fresh: false,
            mistaken: None,
            preferred: false,
            adaptation: None,
        };
        tool_call.arguments = tool_call.written();
        if tool_call.begin_with_release() {
            tool_call.recall(&scope.invocation.operation);
        }
        Some(tool_call)
    }

    /// The arguments as the caller wrote them.
    fn written(&self) -> Arguments {
        // They were found to be an object when the call came in.
        arguments::read(&self.call.arguments).unwrap_or_default()
    }

    /// The next execution, with these arguments.
    fn attempt(&self, arguments: &Arguments) -> Arc<ToolAttempt> {
        let written = arguments::write(arguments);
        let keyed = self.offer.effects.key_argument.as_ref().map(|argument| {
            let key = effects::idempotency_key(&self.invocation, &self.call.name, &written);
            arguments::write(&effects::with_key(arguments, argument, &key))
        });
        // Unchanged arguments are sent as they were written.
        let is_own = *arguments == self.arguments && self.adaptation.is_none();
        let plain = if is_own {
            self.call.arguments.clone()
        } else {
            written
        };
        Arc::new(ToolAttempt {
            target: self.offer.target.id.clone(),
            request: Arc::new(ToolRequest {
                tool: self.offer.spec.name.clone(),
                arguments: keyed.unwrap_or(plain),
            }),
            cause: self.cause,
            changed: self.changed.clone(),
            timeout: self.offer.timeout,
            effects: self.offer.effects.clone(),
            kept: ExecutedTool {
                arguments: self
                    .plan
                    .catalogue
                    .redacted(&self.offer, &arguments::write(arguments)),
                goal: redact(&self.call.goal, MAX_GOAL_BYTES),
                release: self.offer.release.clone(),
            },
        })
    }

    /// The result with what was done to get it.
    fn output(&self, reply: ToolReply) -> ToolOutput {
        ToolOutput {
            tool: self.offer.spec.name.clone(),
            reply,
            arguments: self
                .adaptation
                .is_some()
                .then(|| arguments::write(&self.arguments)),
            coverage: None,
            reasoning: self.reasoning(),
        }
    }

    /// Why the call was changed, in sentences.
    fn reasoning(&self) -> String {
        let sentence = |reason: &String| format!("{}.", reason.trim_end_matches('.'));
        self.reasons
            .iter()
            .map(sentence)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Takes arguments that were changed to fit the tool as it is listed now.
    fn adapt(&mut self, adapted: AdaptedArguments) {
        let server = &self.offer.target.provider;
        if let Some(now) =
            self.plan
                .catalogue
                .offer(server, &self.offer.spec.name, self.call.side_effects)
        {
            self.offer = ToolOffer {
                target: Arc::clone(&self.offer.target),
                ..now
            };
        }
        let (old, new) = (Arc::clone(&self.listed), Arc::clone(&self.offer.spec));
        self.adaptation = Some(SchemaAdaptation {
            old,
            new,
            changes: adapted.changes,
        });
        self.arguments = adapted.arguments;
        self.changed = adapted.words;
    }
}

impl<S> RetryLoop<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    /// Runs a tool call.
    pub(super) fn run_tool(mut self, mut tool_call: ToolCallState) -> StepStream {
        Box::pin(stream! {
            let Some(mut steps) = self.scope.take_steps() else {
                yield self.failed(Failure::local(FailureClass::State, "the invocation runs already"), "it runs already");
                return;
            };
            let before = self.scope.take_before();
            self.recount(&before.attempts);
            self.assembler = DeltaAssembler::after(before.blocks, before.last_block);
            if before.was_owned && let Some(end) = self.taken_over(&mut tool_call) {
                yield end;
                return;
            }
            loop {
                let span = self.scope.trace.attempt();
                self.wait_out(&span.trace()).await;
                let attempt = PendingAttempt {
                    tool: Some(tool_call.attempt(&tool_call.arguments)),
                    ..self.next_attempt(span.trace())
                };
                let executing = execute(Arc::clone(&self.inner), attempt);
                tokio::pin!(executing);
                let executed = loop {
                    tokio::select! {
                        biased;
                        Some(step) = steps.recv() => yield step,
                        executed = &mut executing => break executed,
                    }
                };
                while let Some(step) = pending_events(&mut steps) { yield step; }
                let failure = match executed {
                    Ok(reply) => {
                        self.settle(Settled::Succeeded);
                        span.finish_ok(true);
                        let output = tool_call.output(Arc::unwrap_or_clone(reply));
                        tool_call.learn_success(&self.scope);
                        for step in self.returned(&tool_call, output) { yield step; }
                        return;
                    }
                    Err(failure) => failure,
                };
                let next = self.after_execution(&mut tool_call, span, failure).await;
                let next = match next {
                    AfterExecution::Planned(next) => next,
                    AfterExecution::Ended(end) => {
                        yield end;
                        return;
                    }
                    AfterExecution::Chunks(mut chunked, announced) => {
                        for step in announced { yield step; }
                        if let Some(wait) = self.wait.take() {
                            tokio::time::sleep(wait.duration).await;
                        }
                        let mut running = FuturesUnordered::new();
                        loop {
                            for task in chunked.next(&self.scope) {
                                running.push(chunks::execute(Arc::clone(&self.inner), self.chunk(&tool_call, &task), task));
                            }
                            tokio::select! {
                                biased;
                                Some(step) = steps.recv() => yield step,
                                executed = running.next() => match executed {
                                    Some(executed) => chunked.take(executed),
                                    None => break,
                                },
                            }
                        }
                        while let Some(step) = pending_events(&mut steps) { yield step; }
                        for step in self.after_chunks(&mut tool_call, *chunked) { yield step; }
                        return;
                    }
                };
                match next {
                    AfterFailure::Stop(terminal) => {
                        yield self.explained(&tool_call, terminal);
                        return;
                    }
                    // Only an answer of a model can be complete by what was delivered of it.
                    AfterFailure::Complete(pending_events) | AfterFailure::Again(pending_events) => {
                        for step in pending_events { yield step; }
                    }
                    AfterFailure::Park { pending_events, until, changed } => {
                        for step in pending_events { yield step; }
                        self.wait_parked(until, changed).await;
                    }
                }
            }
        })
    }

    /// What follows an execution that failed.
    async fn after_execution(
        &mut self,
        tool_call: &mut ToolCallState,
        span: AttemptSpan,
        failure: Failure,
    ) -> AfterExecution {
        if !failure.class.is_local_refusal() {
            (self.waited, self.parked) = (None, std::time::Duration::ZERO);
        }
        self.close_failed(span, &failure);
        self.take_step(tool_call, failure).await
    }
}

/// One execution, up to its result: what its server says of itself on the way is read by the layers
/// below.
async fn execute<S>(inner: Arc<S>, attempt: PendingAttempt) -> Result<Arc<ToolReply>, Failure>
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
        if let Delta::ToolReply(returned) = item? {
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
