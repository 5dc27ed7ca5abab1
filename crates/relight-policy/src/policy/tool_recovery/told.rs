//! Words for the model that called a tool: the tool's own words first, word for word, then why it
//! failed and what could be done, each sentence once.

use crate::domain::{
    failure::Failure,
    invocation::{Outcome, ToolInvocation},
    message::{Message, Part, Role, ToolCall, ToolResult},
};

/// Relight's own sentences about a failed call: for its user, why it ended, what else could be
/// done.
#[must_use]
pub fn explanation(failure: &Failure, outcome: &Outcome) -> String {
    let reasoning = outcome.reasoning.as_str();
    let mut words: Vec<&str> = Vec::new();
    // What is said again by a longer text is left to that.
    if !says(reasoning, &failure.user_message) {
        words.push(&failure.user_message);
    }
    words.push(reasoning);
    for alternative in &outcome.alternatives {
        if !words.iter().any(|text| says(text, alternative)) {
            words.push(alternative);
        }
    }
    words.retain(|text| !text.trim().is_empty());
    words.join("\n\n")
}

/// Returns the statement of the tool or its server about a failure itself; empty if it said
/// nothing.
#[must_use]
pub fn own_words(failure: &Failure) -> String {
    match &failure.tool.reply {
        Some(reply) => reply.text(),
        // Without a target nobody was called.
        None if failure.target.is_some() && !failure.class.is_local_refusal() => {
            failure.message.clone()
        }
        None => String::new(),
    }
}

/// Returns the messages that the caller of a tool appends to its history: the result, and before it
/// the call under the `minted` id, if the caller did not name one of its own.
#[must_use]
pub fn messages(
    call: &ToolInvocation,
    minted: String,
    content: String,
    is_error: bool,
) -> Vec<Message> {
    let id = call.call_id.clone().unwrap_or(minted);
    let called = call.call_id.is_none().then(|| {
        let part = Part::ToolCall(ToolCall {
            id: id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            opaque: None,
        });
        Message::new(Role::Assistant, vec![part])
    });
    let result = ToolResult {
        call_id: id,
        name: call.name.clone(),
        content,
        is_error,
    };
    let returned = Message::new(Role::Tool, vec![Part::ToolResult(result)]);
    called.into_iter().chain([returned]).collect()
}

/// Returns the messages of a call that failed.
#[must_use]
pub fn failed_messages(
    call: &ToolInvocation,
    minted: String,
    failure: &Failure,
    outcome: &Outcome,
) -> Vec<Message> {
    let mut words = vec![own_words(failure), explanation(failure, outcome)];
    words.retain(|text| !text.trim().is_empty());
    messages(call, minted, words.join("\n\n"), true)
}

/// Returns whether a text says all that another one does.
fn says(text: &str, other: &str) -> bool {
    let other = other.trim().trim_end_matches('.');
    !other.is_empty() && text.contains(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        completion::Usage,
        failure::{FailureClass, ToolFault},
        invocation::HistoryPatch,
        tool::ToolReply,
    };

    fn outcome(failure: Failure, reasoning: &str, alternatives: &[&str]) -> Outcome {
        Outcome {
            invocation: "inv-1".into(),
            operation: None,
            result: Err(failure),
            attempts: Vec::new(),
            recovery_applied: Vec::new(),
            reasoning: reasoning.to_owned(),
            alternatives: alternatives.iter().map(|it| (*it).to_owned()).collect(),
            usage: Usage::default(),
            history_patch: HistoryPatch::default(),
            target: None,
            stopped_by: None,
        }
    }

    fn failure(user_message: &str) -> Failure {
        Failure {
            user_message: user_message.to_owned(),
            tool: ToolFault {
                reply: Some(Arc::new(ToolReply::of_text("date must be YYYY-MM-DD"))),
                ..ToolFault::default()
            },
            ..Failure::local(FailureClass::ToolFailed, "date must be YYYY-MM-DD")
        }
    }

    #[test]
    fn no_sentence_is_said_twice() {
        let failed = failure("It could not. It is not allowed.");
        let reasoning = "It could not. It is not allowed. What would help: A key.";
        let words = explanation(&failed, &outcome(failed.clone(), reasoning, &["A key."]));
        assert_eq!(words, reasoning);
        let words = explanation(
            &failed,
            &outcome(failed.clone(), "No time is left.", &["Wait."]),
        );
        assert_eq!(
            words,
            "It could not. It is not allowed.\n\nNo time is left.\n\nWait."
        );
    }

    #[test]
    fn the_result_of_a_failed_call_has_the_tools_own_words_first() {
        let call = ToolInvocation {
            name: "book".to_owned(),
            arguments: "{}".to_owned(),
            call_id: Some("call-9".to_owned()),
            ..ToolInvocation::default()
        };
        let failed = failure("It could not.");
        let outcome = outcome(failed.clone(), "It said so.", &[]);
        let [message] = &failed_messages(&call, String::new(), &failed, &outcome)[..] else {
            panic!()
        };
        let Part::ToolResult(result) = &message.parts[0] else {
            panic!("{message:?}")
        };
        assert_eq!((result.call_id.as_str(), result.is_error), ("call-9", true));
        assert_eq!(
            result.content,
            "date must be YYYY-MM-DD\n\nIt could not.\n\nIt said so."
        );
    }
}
