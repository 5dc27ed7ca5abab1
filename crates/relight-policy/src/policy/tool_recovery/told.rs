//! Words for the model that called a tool: the tool's own words first, word for word, then why it
//! failed and what could be done, each sentence once.

use std::iter;

use crate::domain::{
    failure::Failure,
    invocation::{Outcome, ToolInvocation},
    message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult},
    tool::{ToolContent, ToolReply, UNNAMED_TYPE},
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

/// Returns the messages that the caller of a tool that returned this appends to its history: the
/// result, with its images and files behind it, and before it the call under the `minted` id, if the
/// caller did not name one of its own.
#[must_use]
pub fn messages(call: &ToolInvocation, minted: String, reply: &ToolReply) -> Vec<Message> {
    of_result(call, minted, reply.text(), Some(reply), false)
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
    let reply = failure.tool.reply.as_deref();
    of_result(call, minted, words.join("\n\n"), reply, true)
}

fn of_result(
    call: &ToolInvocation,
    minted: String,
    mut content: String,
    reply: Option<&ToolReply>,
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
    let mut shown = Vec::new();
    for piece in reply.into_iter().flat_map(|reply| &reply.content) {
        match piece {
            ToolContent::Image(media) => shown.push(Part::Image(media.clone())),
            ToolContent::File(media) => match link(media) {
                Some(words) if content.is_empty() => content = words,
                Some(words) => content = format!("{content}\n{words}"),
                None => shown.push(Part::File(media.clone())),
            },
            ToolContent::Text(_) | ToolContent::Other(_) => {}
        }
    }
    let result = Part::ToolResult(ToolResult {
        call_id: id,
        name: call.name.clone(),
        content,
        is_error,
    });
    let parts = iter::once(result).chain(shown).collect();
    called
        .into_iter()
        .chain([Message::new(Role::Tool, parts)])
        .collect()
}

/// Returns the words for a file that no provider can fetch or show: one that the tool's server only
/// names, or whose type nobody states.
fn link(media: &Media) -> Option<String> {
    let name = media.name.as_deref().unwrap_or("file");
    match &media.source {
        MediaSource::Url(url) => Some(format!("[{name}: {url}]")),
        MediaSource::Bytes(bytes) if media.mime_type == UNNAMED_TYPE => Some(format!(
            "[{name}: {} bytes of an unknown type]",
            bytes.len()
        )),
        MediaSource::Bytes(_) => None,
    }
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

    #[test]
    fn what_a_tool_returned_beside_text_stands_behind_its_result() {
        let sent = r#"{"content":[
            {"type":"image","data":"AQI=","mimeType":"image/png"},
            {"type":"text","text":"a"},
            {"type":"audio","data":"AQI=","mimeType":"audio/wav"},
            {"type":"resource_link","uri":"note://3","name":"three"},
            {"type":"resource","resource":{"uri":"note://2","blob":"AQI="}}]}"#;
        let reply = ToolReply::of_mcp(sent.to_owned()).unwrap().0;
        let call = ToolInvocation {
            call_id: Some("call-9".to_owned()),
            ..ToolInvocation::default()
        };
        let failed = Failure {
            tool: ToolFault {
                reply: Some(Arc::new(reply.clone())),
                ..ToolFault::default()
            },
            ..Failure::local(FailureClass::ToolFailed, "a")
        };
        let ended = outcome(failed.clone(), "", &[]);
        for told in [
            messages(&call, String::new(), &reply),
            failed_messages(&call, String::new(), &failed, &ended),
        ] {
            let [Message { parts, .. }] = &told[..] else {
                panic!("{told:?}")
            };
            let [
                Part::ToolResult(result),
                Part::Image(image),
                Part::File(sound),
            ] = &parts[..]
            else {
                panic!("{parts:?}")
            };
            assert!(
                result.content.starts_with("a\n")
                    && result.content.contains("[three: note://3]")
                    && result
                        .content
                        .ends_with("[note://2: 2 bytes of an unknown type]"),
                "{result:?}"
            );
            assert_eq!(
                (&*image.mime_type, &*sound.mime_type),
                ("image/png", "audio/wav")
            );
        }
    }
}
