//! A call that is split: its chunks are executed through the same layers, a few at a time, and
//! merged.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{
    super::{RetryLoop, decide::AfterFailure},
    ToolCallState,
};
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

/// Outcome of a chunk.
struct ExecutedChunk {
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

    /// Returns the chunks that are to be executed now, each after its wait, which leaves time for
    /// it.
    fn next(&mut self, scope: &InvocationScope) -> Vec<ChunkTask> {
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
    fn take(&mut self, executed: ExecutedChunk) {
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

impl<S> RetryLoop<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    /// Executes the chunks of a call after its wait, and returns its end.
    pub(super) async fn execute_chunks(
        &mut self,
        tool_call: &mut ToolCallState,
        mut chunked: ChunkedCall,
    ) -> AfterFailure {
        if let Some(wait) = self.waits.next.take() {
            tokio::time::sleep(wait.duration).await;
        }
        let mut running = FuturesUnordered::new();
        loop {
            for task in chunked.next(&self.scope) {
                let chunk = self.chunk(tool_call, &task);
                running.push(execute(Arc::clone(&self.inner), chunk, task));
            }
            let Some(executed) = running.next().await else {
                break;
            };
            chunked.take(executed);
        }
        let (steps, end) = self.after_chunks(tool_call, chunked);
        self.give_all(steps).await;
        AfterFailure::Stop(end)
    }

    /// Returns the attempt that executes a chunk, and its span.
    fn chunk(
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

    /// Returns the last steps of a call that was split, and its end.
    fn after_chunks(
        &mut self,
        tool_call: &mut ToolCallState,
        chunked: ChunkedCall,
    ) -> (Vec<StreamStep>, StreamStep) {
        match chunked.run.finish(&tool_call.called.offer.spec.name) {
            Ok(mut output) => {
                self.settle(Settled::Succeeded);
                tool_call.learn_success();
                let before = tool_call.steps.reasoning();
                let reasoning = format!("{before} {}.", output.reasoning.trim_end_matches('.'));
                reasoning.trim().clone_into(&mut output.reasoning);
                self.returned(tool_call, output)
            }
            Err(failure) => {
                self.settle(Settled::Failed);
                let failure = failure.unwrap_or_else(|| {
                    let words = "no part of the call was done before the deadline";
                    Failure::local(FailureClass::Timeout, words)
                        .of_tool(&tool_call.called.offer.spec.name)
                });
                let ended_by = "not one part of the split call was done";
                let end = self.end_explained(tool_call, failure, ended_by, &[]);
                (Vec::new(), end)
            }
        }
    }
}

/// Executes a chunk after its wait.
async fn execute<S>(
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
    let result = super::result_of(inner, attempt).await;
    ExecutedChunk { task, span, result }
}
