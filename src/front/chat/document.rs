//! The whole answer as one document of this wire, and the words that document and stream share.

use serde::Serialize;

use crate::domain::{
    completion::{Completion, Exactness, FinishReason, Usage},
    ids::InvocationId,
    message::Part,
};

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [AnswerChoice<'a>; 1],
    usage: Option<UsageFields>,
}

#[derive(Serialize)]
struct AnswerChoice<'a> {
    index: u32,
    message: AnswerMessage<'a>,
    logprobs: (),
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct AnswerMessage<'a> {
    role: &'static str,
    content: Option<String>,
    refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<AnswerCall<'a>>,
}

/// A tool call as a message has it, or a piece of one as a stream has it.
#[derive(Serialize)]
pub(super) struct AnswerCall<'a> {
    /// Its place among the calls of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    pub(super) function: AnswerFunction<'a>,
}

/// The function that a tool call names, and its arguments as JSON.
#[derive(Serialize)]
pub(super) struct AnswerFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

/// What an answer cost.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct UsageFields {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: CachedTokens,
    completion_tokens_details: ReasoningTokens,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct CachedTokens {
    cached_tokens: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct ReasoningTokens {
    reasoning_tokens: u64,
}

/// About what is around an answer's message, in bytes.
const AROUND_ANSWER: usize = 512;

/// The document of a whole answer.
pub(super) fn completion(
    invocation: &InvocationId,
    created_unix: i64,
    completion: &Completion,
) -> Vec<u8> {
    let document = ChatCompletion {
        id: answer_id(invocation),
        object: "chat.completion",
        created: created_unix,
        model: &completion.model,
        choices: [AnswerChoice {
            index: 0,
            message: AnswerMessage::of(&completion.message.parts),
            logprobs: (),
            finish_reason: finish_reason(completion.finish),
        }],
        usage: usage(completion.usage),
    };
    let mut written = Vec::with_capacity(AROUND_ANSWER + completion.message.approximate_bytes());
    write(&document, &mut written);
    written
}

/// Writes a document or an event as JSON.
pub(super) fn write(document: &impl Serialize, into: &mut Vec<u8>) {
    if let Err(error) = serde_json::to_writer(into, document) {
        // Their fields are texts and numbers, which can always be written.
        tracing::error!(%error, "an answer cannot be written as JSON");
    }
}

/// The id of an answer: the invocation's, as this wire writes ids.
pub(super) fn answer_id(invocation: &InvocationId) -> String {
    format!("chatcmpl-{invocation}")
}

/// Why the model stopped, in this wire's five words.
pub(super) const fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::Refusal | FinishReason::Other => "stop",
        FinishReason::ToolCalls | FinishReason::MalformedToolCall => "tool_calls",
        FinishReason::Length | FinishReason::ContextFull | FinishReason::Paused => "length",
        FinishReason::ContentFilter => "content_filter",
    }
}

/// What the answer cost, without the attempts that failed; nothing where nothing is known.
pub(super) fn usage(usage: Usage) -> Option<UsageFields> {
    if usage.exactness == Exactness::Unknown && usage.input_tokens == 0 && usage.output_tokens == 0
    {
        return None;
    }
    Some(UsageFields {
        prompt_tokens: usage.input_tokens,
        completion_tokens: usage.output_tokens,
        total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        prompt_tokens_details: CachedTokens {
            cached_tokens: usage.cached_input_tokens,
        },
        completion_tokens_details: ReasoningTokens {
            reasoning_tokens: usage.reasoning_tokens,
        },
    })
}

// === impl AnswerMessage ===

impl<'a> AnswerMessage<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let (mut content, mut reasoning, mut refusal) =
            (String::new(), String::new(), String::new());
        let mut calls = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => content.push_str(text),
                Part::Reasoning(part) => reasoning.push_str(&part.text),
                Part::Refusal(text) => refusal.push_str(text),
                Part::ToolCall(call) => {
                    calls.push(AnswerCall::whole(&call.id, &call.name, &call.arguments));
                }
                Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
            }
        }
        let unless_empty = |text: String| (!text.is_empty()).then_some(text);
        // An answer that is nothing but an empty text is the empty text.
        let content = if calls.is_empty() && refusal.is_empty() {
            Some(content)
        } else {
            unless_empty(content)
        };
        let (refusal, reasoning_content) = (unless_empty(refusal), unless_empty(reasoning));
        Self {
            role: "assistant",
            content,
            refusal,
            reasoning_content,
            tool_calls: calls,
        }
    }
}

// === impl AnswerCall ===

impl<'a> AnswerCall<'a> {
    /// A call with all that names it.
    pub(super) const fn whole(id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        let function = AnswerFunction {
            name: Some(name),
            arguments,
        };
        Self {
            index: None,
            id: Some(id),
            kind: Some("function"),
            function,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::message::{Message, Reasoning, Role, ToolCall};

    #[test]
    fn every_part_of_an_answer_has_its_place_in_the_document() {
        let call = ToolCall {
            id: "c1".into(),
            name: "add".into(),
            arguments: "{}".into(),
            opaque: None,
        };
        let parts = vec![
            Part::Reasoning(Reasoning {
                text: "Hm.".into(),
                opaque: None,
            }),
            Part::Text("Let me add.".into()),
            Part::ToolCall(call),
        ];
        let answer = Completion {
            tool_output: None,
            message: Message::new(Role::Assistant, parts),
            finish: FinishReason::ToolCalls,
            finish_raw: "tool_calls".into(),
            model: "m-1".into(),
            response_id: None,
            usage: Usage {
                input_tokens: 3,
                output_tokens: 4,
                exactness: Exactness::Exact,
                ..Usage::default()
            },
        };
        let document = completion(&InvocationId::from("i-1"), 7, &answer);
        let document: Value = serde_json::from_slice(&document).unwrap();
        assert_eq!(
            (&document["id"], &document["model"]),
            (&json!("chatcmpl-i-1"), &json!("m-1"))
        );
        let choice = &document["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], "Let me add.");
        assert_eq!(choice["message"]["reasoning_content"], "Hm.");
        assert_eq!(
            choice["message"]["tool_calls"],
            json!([
                {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
            ])
        );
        assert_eq!(document["usage"]["total_tokens"], 7);
    }

    #[test]
    fn unknown_usage_is_null_and_not_zero() {
        assert_eq!(usage(Usage::default()), None);
    }
}
