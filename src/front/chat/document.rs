//! The whole completion as one document of this wire, and the words that document and stream share.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::own;
use crate::domain::{
    completion::{Completion, Exactness, Usage},
    ids::InvocationId,
    message::{Opaque, Part, ToolCall},
    own_fields, stop_reason,
    target::Dialect,
};

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [AnswerChoice<'a>; 1],
    usage: Option<Value>,
    /// Fields of the provider's own.
    #[serde(flatten)]
    around: Map<String, Value>,
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
    /// Fields of the provider's own.
    #[serde(flatten)]
    own: Map<String, Value>,
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
    /// Fields of the provider's own.
    #[serde(flatten)]
    pub(super) own: Option<Map<String, Value>>,
}

/// The function that a tool call names, and its arguments as JSON.
#[derive(Serialize)]
pub(super) struct AnswerFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
    pub(super) arguments: &'a str,
}

/// Approximate size of what is around a completion's message, in bytes.
const AROUND_ANSWER: usize = 512;

/// Returns the document of a whole completion.
pub(super) fn completion(
    invocation: &InvocationId,
    created_unix: i64,
    completion: &Completion,
) -> Vec<u8> {
    let (usage, around) = around(completion);
    let document = ChatCompletion {
        id: answer_id(invocation),
        object: "chat.completion",
        created: created_unix,
        model: &completion.model,
        choices: [AnswerChoice {
            index: 0,
            message: AnswerMessage::of(&completion.message.parts),
            logprobs: (),
            finish_reason: stop_reason::in_chat(completion.finish, &completion.finish_raw),
        }],
        usage,
        around,
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

/// Returns the id of a completion: the invocation's, as this wire writes ids.
pub(super) fn answer_id(invocation: &InvocationId) -> String {
    format!("chatcmpl-{invocation}")
}

/// Returns the cost of the completion, without the attempts that failed; nothing if nothing is known,
/// and nothing of what the provider does not say.
fn usage(usage: Usage) -> Option<Value> {
    if usage.exactness == Exactness::Unknown && usage.input_tokens == 0 && usage.output_tokens == 0
    {
        return None;
    }
    let mut counts = json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    });
    if let Some(cached) = usage.cached_input_tokens {
        counts["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    if let Some(reasoning) = usage.reasoning_tokens {
        counts["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
    }
    Some(counts)
}

/// Returns what a provider of this protocol says around a completion; of any other, nothing.
pub(super) fn said_around(around: &Opaque) -> Map<String, Value> {
    own_fields::fields_in(Dialect::OpenaiChat, Some(around))
}

/// Returns the cost of the completion, and what else a provider of this protocol says around it.
pub(super) fn around(completion: &Completion) -> (Option<Value>, Map<String, Value>) {
    let mut usage = usage(completion.usage);
    let mut around = completion
        .around
        .as_ref()
        .map(said_around)
        .unwrap_or_default();
    let of_usage = around.shift_remove("usage");
    if let (Some(usage), Some(Value::Object(own))) = (&mut usage, of_usage) {
        own_fields::merge(usage, &own);
    }
    (usage, around)
}

// === impl AnswerMessage ===

impl<'a> AnswerMessage<'a> {
    fn of(parts: &'a [Part]) -> Self {
        let (mut content, mut reasoning, mut refusal) =
            (String::new(), String::new(), String::new());
        let mut calls = Vec::new();
        let mut own = Map::new();
        for part in parts {
            match part {
                Part::Text(text) => content.push_str(text),
                Part::Reasoning(part) => {
                    reasoning.push_str(&part.text);
                    if let Some(opaque) = &part.opaque {
                        own_fields::add(&mut own, &own::of_reasoning(&part.text, opaque));
                    }
                }
                Part::Refusal(text) => refusal.push_str(text),
                Part::ToolCall(call) => calls.push(AnswerCall::of(call)),
                Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
            }
        }
        let unless_empty = |text: String| (!text.is_empty()).then_some(text);
        // A completion that is nothing but an empty text is the empty text.
        let content = if calls.is_empty() && refusal.is_empty() {
            Some(content)
        } else {
            unless_empty(content)
        };
        let refusal = unless_empty(refusal);
        let reasoning_content = unless_empty(reasoning);
        Self {
            role: "assistant",
            content,
            refusal,
            reasoning_content,
            tool_calls: calls,
            own,
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
            own: None,
        }
    }

    fn of(call: &'a ToolCall) -> Self {
        Self {
            own: call.opaque.as_ref().map(own::of_call),
            ..Self::whole(&call.id, &call.name, &call.arguments)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::{
        completion::FinishReason,
        message::{Message, Reasoning, Role},
    };

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
            around: None,
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
