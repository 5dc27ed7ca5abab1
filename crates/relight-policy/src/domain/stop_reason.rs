//! Reasons why a model stopped, in the words of every dialect and of every protocol that callers
//! speak: one closed table.
//!
//! A word that no dialect has here is `Other`, and no protocol tells that as the end of a whole
//! answer: nobody can know that the rest was not cut off.

use super::{completion::FinishReason, target::Dialect};

/// The words of one dialect.
type Words = &'static [(&'static str, Option<FinishReason>)];

/// Words of chat completions, as every server of them writes them; `None` if the word means that
/// the server failed.
const CHAT: Words = &[
    ("stop", Some(FinishReason::Stop)),
    ("eos", Some(FinishReason::Stop)),
    ("eos_token", Some(FinishReason::Stop)),
    ("end_turn", Some(FinishReason::Stop)),
    ("stop_sequence", Some(FinishReason::Stop)),
    ("complete", Some(FinishReason::Stop)),
    ("completed", Some(FinishReason::Stop)),
    ("length", Some(FinishReason::Length)),
    ("max_tokens", Some(FinishReason::Length)),
    ("model_length", Some(FinishReason::ContextFull)),
    (
        "model_context_window_exceeded",
        Some(FinishReason::ContextFull),
    ),
    ("tool_calls", Some(FinishReason::ToolCalls)),
    ("function_call", Some(FinishReason::ToolCalls)),
    ("tool_use", Some(FinishReason::ToolCalls)),
    ("content_filter", Some(FinishReason::ContentFilter)),
    ("safety", Some(FinishReason::ContentFilter)),
    ("recitation", Some(FinishReason::ContentFilter)),
    ("language", Some(FinishReason::ContentFilter)),
    ("refusal", Some(FinishReason::Refusal)),
    ("pause_turn", Some(FinishReason::Paused)),
    (
        "malformed_function_call",
        Some(FinishReason::MalformedToolCall),
    ),
    (
        "function_call_filter: malformed_function_call",
        Some(FinishReason::MalformedToolCall),
    ),
    ("error", None),
    ("abort", None),
    ("insufficient_system_resource", None),
];

/// Of the Responses API: the status of a whole response, and the reasons of incomplete ones.
const RESPONSES: Words = &[
    ("completed", Some(FinishReason::Stop)),
    ("max_output_tokens", Some(FinishReason::Length)),
    ("max_tokens", Some(FinishReason::Length)),
    ("content_filter", Some(FinishReason::ContentFilter)),
    ("max_prompt_tokens", Some(FinishReason::ContextFull)),
    ("context_length_exceeded", Some(FinishReason::ContextFull)),
];

/// Of the Messages API.
const MESSAGES: Words = &[
    ("end_turn", Some(FinishReason::Stop)),
    ("stop_sequence", Some(FinishReason::Stop)),
    ("tool_use", Some(FinishReason::ToolCalls)),
    ("max_tokens", Some(FinishReason::Length)),
    (
        "model_context_window_exceeded",
        Some(FinishReason::ContextFull),
    ),
    ("pause_turn", Some(FinishReason::Paused)),
    ("refusal", Some(FinishReason::Refusal)),
];

/// Of Gemini. `OTHER`, `TOO_MANY_TOOL_CALLS`, `MISSING_THOUGHT_SIGNATURE`, `NO_IMAGE` and
/// `IMAGE_OTHER` are as good as unknown.
const GEMINI: Words = &[
    ("stop", Some(FinishReason::Stop)),
    ("max_tokens", Some(FinishReason::Length)),
    ("safety", Some(FinishReason::ContentFilter)),
    ("recitation", Some(FinishReason::ContentFilter)),
    ("language", Some(FinishReason::ContentFilter)),
    ("blocklist", Some(FinishReason::ContentFilter)),
    ("prohibited_content", Some(FinishReason::ContentFilter)),
    ("spii", Some(FinishReason::ContentFilter)),
    ("model_armor", Some(FinishReason::ContentFilter)),
    ("image_safety", Some(FinishReason::ContentFilter)),
    (
        "image_prohibited_content",
        Some(FinishReason::ContentFilter),
    ),
    ("image_recitation", Some(FinishReason::ContentFilter)),
    (
        "malformed_function_call",
        Some(FinishReason::MalformedToolCall),
    ),
    (
        "unexpected_tool_call",
        Some(FinishReason::MalformedToolCall),
    ),
];

/// Of Bedrock. What is malformed is the call, or was to be one.
const BEDROCK: Words = &[
    ("end_turn", Some(FinishReason::Stop)),
    ("stop_sequence", Some(FinishReason::Stop)),
    ("tool_use", Some(FinishReason::ToolCalls)),
    ("max_tokens", Some(FinishReason::Length)),
    (
        "model_context_window_exceeded",
        Some(FinishReason::ContextFull),
    ),
    ("guardrail_intervened", Some(FinishReason::ContentFilter)),
    ("content_filtered", Some(FinishReason::ContentFilter)),
    ("malformed_tool_use", Some(FinishReason::MalformedToolCall)),
    (
        "malformed_model_output",
        Some(FinishReason::MalformedToolCall),
    ),
    ("refusal", Some(FinishReason::Refusal)),
    ("pause_turn", Some(FinishReason::Paused)),
];

/// Returns the reason why a model stopped, by a provider's word for it, in capital letters or not;
/// `None` if the word means that the provider failed.
#[must_use]
pub fn read(dialect: Dialect, raw: &str) -> Option<FinishReason> {
    let known = words(dialect)
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(raw));
    known.map_or(Some(FinishReason::Other), |(_, reason)| *reason)
}

/// Returns whether the word of a model that stopped may mean that it came to a stop sequence. Most
/// dialects have one word for that and for the end of the answer.
#[must_use]
pub fn may_be_a_sequence(raw: &str) -> bool {
    !["end_turn", "completed"].contains(&raw)
}

/// Returns the reason why it stopped, in the words of chat completions.
#[must_use]
pub fn in_chat(reason: FinishReason, raw: &str) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls | FinishReason::MalformedToolCall => "tool_calls",
        FinishReason::Length | FinishReason::ContextFull | FinishReason::Paused => "length",
        // The model refused in words of its own, and its provider calls that a whole completion.
        FinishReason::Refusal if is_called_whole(raw) => "stop",
        FinishReason::ContentFilter | FinishReason::Refusal | FinishReason::Other => {
            "content_filter"
        }
    }
}

/// Returns the reason why it stopped, in the words of the Messages API.
#[must_use]
pub fn in_messages(reason: FinishReason, raw: &str) -> &'static str {
    match reason {
        FinishReason::Stop if raw == "stop_sequence" => "stop_sequence",
        FinishReason::Stop => "end_turn",
        FinishReason::ToolCalls | FinishReason::MalformedToolCall => "tool_use",
        FinishReason::Length => "max_tokens",
        FinishReason::ContextFull => "model_context_window_exceeded",
        FinishReason::ContentFilter | FinishReason::Refusal | FinishReason::Other => "refusal",
        FinishReason::Paused => "pause_turn",
    }
}

/// Returns the reason why a response is incomplete, in the words of the Responses API; `None` if it
/// is completed.
#[must_use]
pub fn in_responses(reason: FinishReason, raw: &str) -> Option<&'static str> {
    match reason {
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MalformedToolCall => None,
        FinishReason::Length | FinishReason::ContextFull | FinishReason::Paused => {
            Some("max_output_tokens")
        }
        FinishReason::Refusal if is_called_whole(raw) => None,
        FinishReason::ContentFilter | FinishReason::Refusal | FinishReason::Other => {
            Some("content_filter")
        }
    }
}

const fn words(dialect: Dialect) -> Words {
    match dialect {
        Dialect::OpenaiChat | Dialect::Scripted | Dialect::Tool => CHAT,
        Dialect::OpenaiResponses => RESPONSES,
        Dialect::Anthropic => MESSAGES,
        Dialect::Gemini => GEMINI,
        Dialect::Bedrock => BEDROCK,
    }
}

fn is_called_whole(raw: &str) -> bool {
    read(Dialect::OpenaiChat, raw) == Some(FinishReason::Stop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIALECTS: [Dialect; 5] = [
        Dialect::OpenaiChat,
        Dialect::OpenaiResponses,
        Dialect::Anthropic,
        Dialect::Gemini,
        Dialect::Bedrock,
    ];

    /// Each reason, how its provider names it, and its words in the three protocols.
    const EXPECTED: [(FinishReason, &str, &str, &str, Option<&str>); 12] = [
        (FinishReason::Stop, "stop", "stop", "end_turn", None),
        (
            FinishReason::Stop,
            "stop_sequence",
            "stop",
            "stop_sequence",
            None,
        ),
        (
            FinishReason::ToolCalls,
            "tool_use",
            "tool_calls",
            "tool_use",
            None,
        ),
        (
            FinishReason::MalformedToolCall,
            "malformed_tool_use",
            "tool_calls",
            "tool_use",
            None,
        ),
        (
            FinishReason::Length,
            "length",
            "length",
            "max_tokens",
            Some("max_output_tokens"),
        ),
        (
            FinishReason::ContextFull,
            "model_length",
            "length",
            "model_context_window_exceeded",
            Some("max_output_tokens"),
        ),
        (
            FinishReason::Paused,
            "pause_turn",
            "length",
            "pause_turn",
            Some("max_output_tokens"),
        ),
        (
            FinishReason::ContentFilter,
            "SAFETY",
            "content_filter",
            "refusal",
            Some("content_filter"),
        ),
        (
            FinishReason::Refusal,
            "refusal",
            "content_filter",
            "refusal",
            Some("content_filter"),
        ),
        (FinishReason::Refusal, "stop", "stop", "refusal", None),
        (FinishReason::Refusal, "completed", "stop", "refusal", None),
        (
            FinishReason::Other,
            "OTHER",
            "content_filter",
            "refusal",
            Some("content_filter"),
        ),
    ];

    fn is_told_as_whole(reason: FinishReason, raw: &str) -> bool {
        in_chat(reason, raw) == "stop"
            || ["end_turn", "stop_sequence"].contains(&in_messages(reason, raw))
            || in_responses(reason, raw).is_none()
    }

    #[test]
    fn every_reason_has_its_word_in_every_protocol() {
        for (reason, raw, chat, messages, responses) in EXPECTED {
            let found = (
                in_chat(reason, raw),
                in_messages(reason, raw),
                in_responses(reason, raw),
            );
            assert_eq!(found, (chat, messages, responses), "{reason:?} {raw}");
        }
    }

    #[test]
    fn only_what_a_dialect_calls_whole_is_told_as_whole() {
        for dialect in DIALECTS {
            for (raw, reason) in words(dialect) {
                assert_eq!(read(dialect, raw), *reason, "{dialect:?} {raw}");
                assert_eq!(
                    read(dialect, &raw.to_ascii_uppercase()),
                    *reason,
                    "{dialect:?} {raw}"
                );
                let Some(reason) = reason else { continue };
                let is_whole = matches!(
                    reason,
                    FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MalformedToolCall
                );
                assert_eq!(
                    is_told_as_whole(*reason, raw),
                    is_whole,
                    "{dialect:?} {raw}"
                );
            }
        }
    }

    #[test]
    fn what_gemini_calls_other_or_a_language_is_not_whole() {
        for raw in [
            "OTHER",
            "LANGUAGE",
            "IMAGE_OTHER",
            "TOO_MANY_TOOL_CALLS",
            "NEW_IN_2027",
        ] {
            let reason = read(Dialect::Gemini, raw).unwrap();
            assert!(!is_told_as_whole(reason, raw), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn a_word_that_no_table_has_is_never_told_as_whole(raw in "[ -~]{0,24}") {
            for dialect in DIALECTS {
                if words(dialect).iter().all(|(word, _)| !word.eq_ignore_ascii_case(&raw)) {
                    prop_assert_eq!(read(dialect, &raw), Some(FinishReason::Other));
                    prop_assert!(!is_told_as_whole(FinishReason::Other, &raw));
                }
            }
        }
    }
}
