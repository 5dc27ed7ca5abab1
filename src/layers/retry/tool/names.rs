//! Holds the names of a call's arguments against the schema of its tool, before anything is sent.
//!
//! A server may ignore a name that it does not know, as those of the official SDKs do: a renamed
//! argument then makes the call do something else than was asked, and nothing fails. Where all names
//! are listed, this costs a look-up each.

use super::{super::RetryLoop, AfterExecution, ToolCallState};
use crate::{
    domain::{
        failure::{Failure, FailureClass, InvalidRequestDetail},
        fold::StreamStep,
        invocation::AttemptCause,
    },
    policy::tool_recovery::{ToolStep, adapt, arguments::quoted},
};

impl<S> RetryLoop<S> {
    /// Makes arguments fit whose names the tool does not list, not even in a list that is fetched
    /// now; returns the end of the call if it is not clear what they should be.
    pub(super) async fn check_names(
        &mut self,
        tool_call: &mut ToolCallState,
    ) -> Option<StreamStep> {
        tool_call.called.unlisted_name()?;
        self.refetch(tool_call).await;
        tool_call.relist();
        let unknown = tool_call.called.unlisted_name()?.to_owned();
        let before = tool_call.plan.before.as_deref();
        if let Some(adapted) = tool_call.called.renamed(before) {
            let reason = format!(
                "the arguments were made to fit {} as it is listed now: {}",
                quoted(&tool_call.called.offer.spec.name),
                adapted.words
            );
            tool_call.steps.tried.adaptations += 1;
            tool_call.adapt(adapted);
            tool_call
                .steps
                .goes_on(AttemptCause::Adapt(FailureClass::InvalidRequest), &reason);
            return None;
        }
        let tool = &tool_call.called.offer.spec.name;
        let schema = &tool_call.called.offer.spec.input_schema;
        let taken = adapt::taken(schema);
        let words = format!(
            "Invalid arguments for tool {}: the argument {} is not known. {taken}",
            quoted(tool),
            quoted(&unknown)
        );
        let mut failure = Failure::local(FailureClass::InvalidRequest, words).of_tool(tool);
        failure.detail = Some(InvalidRequestDetail::ParameterMismatch);
        failure.target = Some(tool_call.called.offer.target.id.clone());
        let reason = format!(
            "{} was not called: it does not know the argument {}, and might have ignored it. {taken}",
            quoted(tool),
            quoted(&unknown)
        );
        let step = ToolStep::Fail {
            reason,
            finding: None,
        };
        match self.ended(tool_call, failure, step) {
            AfterExecution::Ended(end) => Some(end),
            AfterExecution::Planned(_) | AfterExecution::Chunks(..) => None,
        }
    }
}
