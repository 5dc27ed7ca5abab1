//! A call that is split: its chunks are executed through the same layers, a few at a time, and
//! merged.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{super::RetryLoop, ToolCallState};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        fold::StreamStep,
        tool::ToolReply,
    },
    layers::{
        Deltas, attempt::PendingAttempt, guarded::NextLayer, invocation::InvocationScope,
        spans::AttemptSpan,
    },
    policy::{
        retry_budget::Settled,
        tool_recovery::chunk::{ChunkPlan, ChunkRun, ChunkTask},
    },
};

/// Before the deadline, the time in which no further chunk is begun: what is done by then is
/// returned.
const LAST_CHUNK_BEFORE: Duration = Duration::from_millis(250);

/// A call that was split.
pub(super) struct ChunkedCall {
    run: ChunkRun,
}

/// What became of a chunk.
pub(super) struct ExecutedChunk {
    task: ChunkTask,
    span: AttemptSpan,
    result: Result<Arc<ToolReply>, Failure>,
}

// === impl ChunkedCall ===

impl ChunkedCall {
    pub(super) fn new(plan: ChunkPlan) -> Self {
        Self {
            run: ChunkRun::new(plan),
        }
    }

    /// The chunks that are to be executed now, each after its wait, which leaves time for it.
    pub(super) fn next(&mut self, scope: &InvocationScope) -> Vec<ChunkTask> {
        let left = scope
            .invocation
            .deadline
            .saturating_duration_since(Instant::now());
        if left < LAST_CHUNK_BEFORE {
            self.run.stop("the time is up");
        }
        let mut tasks = self.run.start_next();
        for task in &mut tasks {
            task.wait = task.wait.min(left / 2);
        }
        tasks
    }

    /// Takes the result of a chunk.
    pub(super) fn take(&mut self, executed: ExecutedChunk) {
        let ExecutedChunk { task, span, result } = executed;
        match result {
            Ok(reply) => {
                span.finish_ok(true);
                self.run.succeed(&task.number, Arc::unwrap_or_clone(reply));
            }
            Err(failure) => {
                span.finish_failed(&failure, !failure.never_sent);
                self.run.fail(&task.number, &failure);
            }
        }
    }
}

impl<S> RetryLoop<S> {
    /// The attempt that executes a chunk, and its span.
    pub(super) fn chunk(
        &mut self,
        tool_call: &ToolCallState,
        task: &ChunkTask,
    ) -> (PendingAttempt, AttemptSpan) {
        let span = self.scope.trace.attempt();
        let tool = Some(tool_call.attempt(&task.arguments));
        (
            PendingAttempt {
                tool,
                ..self.next_attempt(span.trace())
            },
            span,
        )
    }

    /// The last steps of a call that was split.
    pub(super) fn after_chunks(
        &mut self,
        tool_call: &mut ToolCallState,
        chunked: ChunkedCall,
    ) -> Vec<StreamStep> {
        match chunked.run.finish(&tool_call.offer.spec.name) {
            Ok(mut output) => {
                self.settle(Settled::Succeeded);
                tool_call.learn_success(&self.scope);
                let before = tool_call.reasoning();
                let reasoning = format!("{before} {}.", output.reasoning.trim_end_matches('.'));
                reasoning.trim().clone_into(&mut output.reasoning);
                self.returned(tool_call, output)
            }
            Err(failure) => {
                self.settle(Settled::Failed);
                let failure = failure.unwrap_or_else(|| {
                    let words = "no part of the call was done before the deadline";
                    Failure::local(FailureClass::Timeout, words).of_tool(&tool_call.offer.spec.name)
                });
                vec![self.end_explained(
                    tool_call,
                    failure,
                    "not one part of the split call was done",
                    &[],
                )]
            }
        }
    }
}

/// Executes a chunk after its wait.
pub(super) async fn execute<S>(
    inner: Arc<S>,
    (attempt, span): (PendingAttempt, AttemptSpan),
    task: ChunkTask,
) -> ExecutedChunk
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    if !task.wait.is_zero() {
        tokio::time::sleep(task.wait).await;
    }
    let result = super::execute(inner, attempt).await;
    ExecutedChunk { task, span, result }
}
