//! How a tool call ends: with its result, or with a failure that explains what was tried and what
//! else could be done.

use std::sync::Arc;

use super::{super::RetryLoop, AfterExecution, ToolCallState};
use crate::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        failure::{Failure, FailureClass, TransportFault},
        fold::StreamStep,
        invocation::HistoryPatch,
        tool::ToolOutput,
    },
    layers::tools::minted_call_id,
    policy::tool_recovery::{
        ToolStep,
        alternatives::RankedTool,
        arguments::quoted,
        explain::{Explanation, ExplanationFacts},
        history, told,
    },
};

impl<S> RetryLoop<S> {
    /// Returns the last steps of a call whose tool returned this, its text as a block, and the end.
    pub(super) fn returned(
        &mut self,
        tool_call: &ToolCallState,
        output: ToolOutput,
    ) -> (Vec<StreamStep>, StreamStep) {
        let attempt = self.scope.next_number() - 1;
        let text = output.reply.text();
        self.read.assembler.begin_attempt();
        let mut steps = Vec::new();
        let mut deltas = Vec::new();
        if !text.is_empty() {
            deltas.push(Delta::BlockStart {
                block: 0,
                kind: BlockKind::Text,
            });
            deltas.push(Delta::BlockDelta { block: 0, text });
            deltas.push(Delta::BlockStop {
                block: 0,
                opaque: None,
            });
        }
        deltas.push(Delta::Finish {
            reason: FinishReason::Stop,
            raw: String::new(),
        });
        for delta in deltas {
            steps.extend(self.read.assembler.push(attempt, delta));
        }
        steps.extend(self.read.assembler.commit());
        let mut end = self.succeeded();
        if let StreamStep::Terminal(outcome) = &mut end {
            let outcome = Arc::make_mut(outcome);
            if !output.reasoning.is_empty() {
                outcome.reasoning.clone_from(&output.reasoning);
            }
            let messages = told::messages(&tool_call.call, minted_call_id(), &output.reply);
            if let Ok(completion) = &mut outcome.result {
                completion.message = messages
                    .last()
                    .cloned()
                    .unwrap_or_else(|| completion.message.clone());
                completion.model = String::new();
                completion.tool_output = Some(Box::new(output));
            }
            outcome.history_patch = HistoryPatch {
                replace_tail: 0,
                messages,
            };
        }
        (steps, end)
    }

    /// Returns the end of a tool call that an earlier owner started, if it must not be executed
    /// once more; `None` if it is.
    pub(super) fn taken_over(&mut self, tool_call: &mut ToolCallState) -> Option<StreamStep> {
        if tool_call.called.offer.effects.repeatable {
            return None;
        }
        let words = "the replica that executed the tool went away, and whether it was executed is not known";
        let mut failure = Failure::local(FailureClass::OutcomeUnknown, words)
            .of_tool(&tool_call.called.offer.spec.name);
        failure.never_sent = false;
        failure.target = Some(tool_call.called.offer.target.id.clone());
        let end = self.failed(
            failure,
            "The tool is executed at most once, and it may have been executed.",
        );
        Some(self.explained(tool_call, end))
    }
}

impl<S> RetryLoop<S> {
    /// Returns the end that the ladder decided upon.
    pub(super) fn ended(
        &mut self,
        tool_call: &ToolCallState,
        failure: Failure,
        step: ToolStep,
    ) -> AfterExecution {
        let end = match step {
            ToolStep::Offer { explanation, .. } | ToolStep::Explain { explanation } => {
                self.verdict.impossible = true;
                self.with_explanation(tool_call, failure, &explanation)
            }
            ToolStep::OutcomeUnknown { reason } => {
                let user_message = words_of_unknown(tool_call, &failure);
                let reason = format!("{user_message} {reason}");
                let failure = Failure {
                    user_message,
                    ..failure
                };
                self.end_with(tool_call, failure, reason, Vec::new())
            }
            ToolStep::Fail { reason, finding } => {
                let mut failure = failure;
                if let Some(finding) = finding {
                    finding.mark(&mut failure);
                }
                self.end_with(tool_call, failure, reason, Vec::new())
            }
            ToolStep::Retry { reason, .. }
            | ToolStep::RefetchList { reason }
            | ToolStep::Adapt { reason, .. }
            | ToolStep::Alternative { reason, .. }
            | ToolStep::Chunk { reason, .. } => {
                self.end_with(tool_call, failure, reason, Vec::new())
            }
        };
        AfterExecution::Ended(end)
    }

    /// Returns the end that the planner decided upon, with what it explains.
    pub(super) fn explained(&mut self, tool_call: &ToolCallState, end: StreamStep) -> StreamStep {
        let StreamStep::Terminal(outcome) = end else {
            return end;
        };
        let Err(failure) = outcome.result.clone() else {
            return StreamStep::Terminal(outcome);
        };
        self.end_explained(
            tool_call,
            failure,
            outcome.reasoning.trim_end_matches('.'),
            &[],
        )
    }

    /// Returns an end that explains a failure after which nothing more is tried, for this reason.
    pub(super) fn end_explained(
        &mut self,
        tool_call: &ToolCallState,
        failure: Failure,
        ended_by: &str,
        alternatives: &[RankedTool],
    ) -> StreamStep {
        let explanation = Explanation::of(ExplanationFacts {
            tool: &tool_call.called.offer.spec.name,
            goal: &tool_call.call.goal,
            failure: &failure,
            tried: &tool_call.steps.tried.words,
            ended_by,
            alternatives,
        });
        self.with_explanation(tool_call, failure, &explanation)
    }

    fn with_explanation(
        &mut self,
        tool_call: &ToolCallState,
        mut failure: Failure,
        explained: &Explanation,
    ) -> StreamStep {
        if failure.class != FailureClass::OutcomeUnknown {
            failure.user_message = format!("{} {}", explained.summary, explained.why);
        }
        failure.recovery_hint.clone_from(&explained.operator_hint);
        let alternatives = explained
            .alternatives
            .iter()
            .chain(&explained.remedies)
            .cloned()
            .collect();
        self.end_with(tool_call, failure, explained.text(), alternatives)
    }

    fn end_with(
        &mut self,
        tool_call: &ToolCallState,
        failure: Failure,
        reasoning: String,
        alternatives: Vec<String>,
    ) -> StreamStep {
        let target = failure.target.clone();
        let past = history::note(
            &tool_call
                .plan
                .past
                .iter()
                .map(|past| past.attempt.clone())
                .collect::<Vec<_>>(),
        );
        let reasoning = if past.is_empty() {
            reasoning
        } else {
            format!("{reasoning}\n\n{past}")
        };
        self.terminal(
            Err(failure),
            reasoning,
            alternatives,
            HistoryPatch::default(),
            target,
        )
    }
}

fn words_of_unknown(tool_call: &ToolCallState, failure: &Failure) -> String {
    let tool = quoted(&tool_call.called.offer.spec.name);
    let why = match (&failure.tool.reply, failure.fault) {
        (Some(_), _) => "it reported a failure that leaves that open",
        (None, Some(TransportFault::TooLarge)) => "its result was too large",
        (None, _) => "its result was lost",
    };
    format!("Whether {tool} took effect is not known: {why}. Please check before it is done again.")
}
