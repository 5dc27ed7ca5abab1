//! The whole answer as one document of this wire, and the words that document and stream share.

use serde_json::{Map, Value, json};

use crate::domain::{
    completion::{Completion, Exactness, FinishReason, Usage},
    ids::InvocationId,
    message::Part,
};

/// The document of a whole answer.
pub(super) fn completion(invocation: &InvocationId, created_unix: i64, completion: &Completion) -> Value {
    let mut texts = DocumentTexts::default();
    for part in &completion.message.parts {
        match part {
            Part::Text(text) => texts.content.push_str(text),
            Part::Reasoning(reasoning) => texts.reasoning.push_str(&reasoning.text),
            Part::Refusal(text) => texts.refusal.push_str(text),
            Part::ToolCall(call) => texts.calls.push(tool_call(&call.id, &call.name, &call.arguments)),
            Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    let choice = json!({
        "index": 0,
        "message": texts.message(),
        "logprobs": null,
        "finish_reason": finish_reason(completion.finish),
    });
    json!({
        "id": answer_id(invocation),
        "object": "chat.completion",
        "created": created_unix,
        "model": completion.model,
        "choices": [choice],
        "usage": usage(completion.usage),
    })
}

/// The id of an answer: the invocation's, as this wire writes ids.
pub(super) fn answer_id(invocation: &InvocationId) -> String {
    format!("chatcmpl-{invocation}")
}

/// A tool call as a message has it.
pub(super) fn tool_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
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

/// What the answer cost, without the attempts that failed; null where nothing is known.
pub(super) fn usage(usage: Usage) -> Value {
    if usage.exactness == Exactness::Unknown && usage.input_tokens == 0 && usage.output_tokens == 0 {
        return Value::Null;
    }
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

#[derive(Default)]
struct DocumentTexts {
    content: String,
    reasoning: String,
    refusal: String,
    calls: Vec<Value>,
}

impl DocumentTexts {
    fn message(self) -> Map<String, Value> {
        let text = |text: String| if text.is_empty() { Value::Null } else { Value::String(text) };
        let says_nothing_else = self.calls.is_empty() && self.refusal.is_empty();
        let mut fields = Map::new();
        fields.insert("role".to_owned(), json!("assistant"));
        // An answer that is nothing but an empty text is the empty text.
        let content = if says_nothing_else { Value::String(self.content) } else { text(self.content) };
        fields.insert("content".to_owned(), content);
        fields.insert("refusal".to_owned(), text(self.refusal));
        if !self.reasoning.is_empty() {
            fields.insert("reasoning_content".to_owned(), Value::String(self.reasoning));
        }
        if !self.calls.is_empty() {
            fields.insert("tool_calls".to_owned(), Value::Array(self.calls));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::{Message, Reasoning, Role, ToolCall};

    #[test]
    fn every_part_of_an_answer_has_its_place_in_the_document() {
        let call = ToolCall { id: "c1".into(), name: "add".into(), arguments: "{}".into(), opaque: None };
        let parts = vec![
            Part::Reasoning(Reasoning { text: "Hm.".into(), opaque: None }),
            Part::Text("Let me add.".into()),
            Part::ToolCall(call),
        ];
        let answer = Completion {
            tool_output: None,
            message: Message { role: Role::Assistant, parts },
            finish: FinishReason::ToolCalls,
            finish_raw: "tool_calls".into(),
            model: "m-1".into(),
            response_id: None,
            usage: Usage { input_tokens: 3, output_tokens: 4, exactness: Exactness::Exact, ..Usage::default() },
        };
        let document = completion(&InvocationId::from("i-1"), 7, &answer);
        assert_eq!((&document["id"], &document["model"]), (&json!("chatcmpl-i-1"), &json!("m-1")));
        let choice = &document["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls");
        assert_eq!(choice["message"]["content"], "Let me add.");
        assert_eq!(choice["message"]["reasoning_content"], "Hm.");
        assert_eq!(choice["message"]["tool_calls"], json!([tool_call("c1", "add", "{}")]));
        assert_eq!(document["usage"]["total_tokens"], 7);
    }

    #[test]
    fn unknown_usage_is_null_and_not_zero() {
        assert_eq!(usage(Usage::default()), Value::Null);
    }
}
