//! The stream of this wire: each event as bytes, in the order that clients expect.
//!
//! The role comes first and once, every chunk has the same id, usage comes in a chunk of its own without choices and
//! only when it was asked for, and `[DONE]` ends a whole answer and nothing else.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::document;
use crate::{
    domain::{
        completion::{BlockKind, Completion},
        fold::Block,
        ids::InvocationId,
    },
    front::{
        error::{Protocol, Refused},
        stream::AnswerEvents,
    },
};

/// Writes the events of one answer.
#[derive(Debug)]
pub(super) struct Chunks {
    id: String,
    created_unix: i64,
    include_usage: bool,
    /// The model that answers, as far as it is known.
    model: String,
    begun: bool,
    calls: u32,
}

// === impl Chunks ===

impl Chunks {
    /// Nothing was written.
    pub(super) fn new(invocation: &InvocationId, created_unix: i64, model: String, include_usage: bool) -> Self {
        Self { id: document::answer_id(invocation), created_unix, include_usage, model, begun: false, calls: 0 }
    }

    fn role(&mut self) -> Option<Bytes> {
        let first = !std::mem::replace(&mut self.begun, true);
        first.then(|| self.delta(&json!({"role": "assistant", "content": ""})))
    }

    fn delta(&self, delta: &Value) -> Bytes {
        self.chunk(delta, &Value::Null)
    }

    fn chunk(&self, delta: &Value, finish_reason: &Value) -> Bytes {
        let mut chunk = self.frame();
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        chunk["choices"] = json!([choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        event(&chunk)
    }

    fn frame(&self) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created_unix,
            "model": self.model,
            "choices": [],
        })
    }
}

impl AnswerEvents for Chunks {
    fn answered_by(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes> {
        let delta = match &block.kind {
            BlockKind::Text => json!({"content": text}),
            BlockKind::Reasoning => json!({"reasoning_content": text}),
            BlockKind::Refusal => json!({"refusal": text}),
            BlockKind::ToolCall { .. } => return Vec::new(),
        };
        let mut events = Vec::from_iter(self.role());
        events.push(self.delta(&delta));
        events
    }

    fn stop(&mut self, block: &Block) -> Vec<Bytes> {
        let BlockKind::ToolCall { id, name } = &block.kind else { return Vec::new() };
        let mut events = Vec::from_iter(self.role());
        let index = self.calls;
        self.calls += 1;
        let mut begin = document::tool_call(id, name, "");
        begin["index"] = json!(index);
        events.push(self.delta(&json!({"tool_calls": [begin]})));
        let rest = json!({"index": index, "function": {"arguments": block.text}});
        events.push(self.delta(&json!({"tool_calls": [rest]})));
        events
    }

    fn end(&mut self, completion: &Completion) -> Vec<Bytes> {
        self.answered_by(&completion.model);
        let mut events = Vec::from_iter(self.role());
        events.push(self.chunk(&json!({}), &json!(document::finish_reason(completion.finish))));
        if self.include_usage {
            let mut chunk = self.frame();
            chunk["usage"] = document::usage(completion.usage);
            events.push(event(&chunk));
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn broken(&mut self, refused: &Refused) -> Vec<Bytes> {
        vec![event(&refused.object(Protocol::Openai))]
    }
}

fn event(data: &Value) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}
