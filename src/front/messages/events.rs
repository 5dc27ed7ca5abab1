//! The stream of this protocol: one message, its blocks one after the other, and its end or an
//! error.

use std::mem;

use axum::body::Bytes;
use serde_json::{Value, json};

use super::document;
use crate::{
    domain::{
        completion::{BlockKind, Completion, Usage},
        fold::Block,
        ids::InvocationId,
        message::Opaque,
        own_fields,
    },
    front::{
        error::{CallError, Protocol},
        stream::AnswerEvents,
    },
};

/// Writes the events of one message.
#[derive(Debug)]
pub(super) struct MessageEvents {
    invocation: InvocationId,
    /// Stop sequence of the request, if it names one alone.
    only_stop: Option<String>,
    /// Model that answers, as far as it is known.
    model: String,
    /// What the provider said around the message when it began.
    around: Option<Opaque>,
    usage: Usage,
    begun: bool,
    /// The block that is being written.
    open: Option<u32>,
    /// If set, it is a text of the model's.
    is_text: bool,
    /// Number of blocks that were written.
    index: u32,
}

// === impl MessageEvents ===

impl MessageEvents {
    /// Nothing was written.
    pub(super) fn new(invocation: &InvocationId, model: String, only_stop: Option<String>) -> Self {
        let invocation = invocation.clone();
        Self {
            invocation,
            only_stop,
            model,
            around: None,
            usage: Usage::default(),
            begun: false,
            open: None,
            is_text: false,
            index: 0,
        }
    }

    fn begin(&mut self) -> Option<Bytes> {
        let first = !std::mem::replace(&mut self.begun, true);
        let message = || {
            let begun = document::begun(&self.invocation, &self.model, self.usage);
            document::begun_with(begun, self.around.as_ref())
        };
        first.then(|| event("message_start", json!({"message": message()})))
    }

    /// Opens the block, if it is not open already; another one that is open is closed.
    fn open(&mut self, block: u32, content: &Value) -> Vec<Bytes> {
        if self.open == Some(block) {
            return Vec::new();
        }
        let mut events = Vec::from_iter(self.begin());
        events.extend(self.close());
        self.open = Some(block);
        events.push(event(
            "content_block_start",
            json!({"index": self.index, "content_block": content}),
        ));
        events
    }

    fn delta(&self, delta: &Value) -> Bytes {
        event(
            "content_block_delta",
            json!({"index": self.index, "delta": delta}),
        )
    }

    /// Returns the arguments of a call.
    fn input(&self, json: &str) -> Bytes {
        self.delta(&json!({"type": "input_json_delta", "partial_json": json}))
    }

    fn close(&mut self) -> Option<Bytes> {
        self.open.take()?;
        self.is_text = false;
        let stop = event("content_block_stop", json!({"index": self.index}));
        self.index += 1;
        Some(stop)
    }
}

impl AnswerEvents for MessageEvents {
    fn answered_by(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    fn begins_with(&mut self, around: &Opaque) {
        self.around = Some(around.clone());
    }

    fn cost(&mut self, usage: Usage) {
        self.usage = usage;
    }

    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes> {
        let (content, delta) = match &block.kind {
            BlockKind::Text => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": text}),
            ),
            BlockKind::Reasoning => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "thinking_delta", "thinking": text}),
            ),
            // The end of the message has the words of a refusal.
            BlockKind::Refusal | BlockKind::ToolCall { .. } => return Vec::new(),
        };
        let mut events = self.open(block.id, &content);
        self.is_text = block.kind == BlockKind::Text;
        events.push(self.delta(&delta));
        events
    }

    fn stop(&mut self, block: &Block) -> Vec<Bytes> {
        let mut events = Vec::new();
        match (&block.kind, &block.opaque) {
            // Its citations may follow: it ends with what comes next.
            (BlockKind::Text, _) => return Vec::new(),
            (BlockKind::Refusal, _) | (BlockKind::Reasoning, None) => {}
            (BlockKind::Reasoning, Some(opaque)) => {
                if let Some(citations) = document::citations(opaque).filter(|_| self.is_text) {
                    let delta = |it| json!({"type": "citations_delta", "citation": it});
                    let citations = citations.iter().map(|it| self.delta(&delta(it)));
                    events.extend(citations);
                    events.extend(self.close());
                    return events;
                }
                if let Some(mut whole) = document::block_of(opaque) {
                    // As the API streams it: clients read the arguments of a call from the deltas
                    // alone.
                    let input = whole
                        .get_mut("input")
                        .filter(|input| input.is_object())
                        .map(|input| mem::replace(input, json!({})));
                    events.extend(self.open(block.id, &whole));
                    events.extend(input.map(|input| self.input(&input.to_string())));
                } else {
                    events.extend(self.open(
                        block.id,
                        &json!({"type": "thinking", "thinking": "", "signature": ""}),
                    ));
                    let signature = document::signature(opaque);
                    events.push(
                        self.delta(&json!({"type": "signature_delta", "signature": signature})),
                    );
                }
            }
            (BlockKind::ToolCall { id, name }, opaque) => {
                let (before, own) = document::of_call(opaque.as_ref(), id);
                if let Some(before) = before {
                    events.extend(self.open(block.id, &before));
                    events.extend(self.close());
                }
                let mut begun = document::tool_use(id, name, &json!({}));
                own_fields::merge(&mut begun, &own);
                events.extend(self.open(block.id, &begun));
                events.push(self.input(&block.text));
            }
        }
        if self.open == Some(block.id) {
            events.extend(self.close());
        }
        events
    }

    fn end(&mut self, completion: &Completion) -> Vec<Bytes> {
        self.answered_by(&completion.model);
        let mut events = Vec::from_iter(self.begin());
        events.extend(self.close());
        let mut delta = document::end(completion, self.only_stop.as_deref());
        let usage = delta.shift_remove("usage");
        events.push(event(
            "message_delta",
            json!({"delta": delta, "usage": usage}),
        ));
        events.push(event("message_stop", json!({})));
        events
    }

    fn broken(&mut self, refused: &CallError) -> Vec<Bytes> {
        vec![event("error", refused.object(Protocol::Anthropic))]
    }
}

fn event(name: &str, mut data: Value) -> Bytes {
    data["type"] = json!(name);
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
