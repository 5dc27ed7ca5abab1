//! The stream of this wire: each event as bytes, in the order that clients expect.
//!
//! The role comes first and once, every chunk has the same id, usage comes in a chunk of its own
//! without choices and only if it was asked for, and `[DONE]` ends a whole completion and nothing
//! else.

use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    document::{self, AnswerCall, AnswerFunction},
    own,
};
use crate::{
    domain::{
        completion::{BlockKind, Completion},
        fold::Block,
        ids::InvocationId,
        message::Opaque,
        stop_reason,
    },
    front::{
        error::{CallError, Protocol},
        stream::AnswerEvents,
    },
};

/// Room for most events, so that they are not moved while they are written.
const EVENT_BYTES: usize = 384;

/// Writes the events of one completion.
#[derive(Debug)]
pub(super) struct Chunks {
    id: String,
    created_unix: i64,
    include_usage: bool,
    /// Model that answers, as far as it is known.
    model: String,
    /// Fields of the provider's own in the first chunk.
    first: Map<String, Value>,
    begun: bool,
    calls: u32,
}

#[derive(Serialize)]
struct ChatChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [DeltaChoice<'a>],
    #[serde(skip_serializing_if = "ChunkUsage::is_missing")]
    usage: ChunkUsage,
    /// Fields of the provider's own.
    #[serde(flatten)]
    around: Option<&'a Map<String, Value>>,
}

/// Cost of the completion as a chunk states it.
#[derive(Serialize)]
#[serde(untagged)]
enum ChunkUsage {
    /// Nothing, because it was not requested.
    Missing,
    /// The cost, or null if it is not known.
    Said(Option<Value>),
}

#[derive(Serialize)]
struct DeltaChoice<'a> {
    index: u32,
    delta: AnswerDelta<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

/// Part that a chunk adds; what it does not add is missing.
#[derive(Default, Serialize)]
struct AnswerDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[AnswerCall<'a>; 1]>,
    /// Fields of the provider's own.
    #[serde(flatten)]
    own: Option<Map<String, Value>>,
}

// === impl Chunks ===

impl Chunks {
    /// Nothing was written.
    pub(super) fn new(
        invocation: &InvocationId,
        created_unix: i64,
        model: String,
        include_usage: bool,
    ) -> Self {
        Self {
            id: document::answer_id(invocation),
            created_unix,
            include_usage,
            model,
            first: Map::new(),
            begun: false,
            calls: 0,
        }
    }

    /// Returns the role, once, with the content that begins: the empty text, or none where none
    /// follows.
    fn role(&mut self, content: Option<&str>) -> Option<Bytes> {
        let first = !std::mem::replace(&mut self.begun, true);
        first.then(|| {
            let role = AnswerDelta {
                role: Some("assistant"),
                content,
                ..AnswerDelta::default()
            };
            self.chunk(role, None, Some(&self.first))
        })
    }

    /// What the provider needs back with a block of reasoning.
    fn own(&mut self, block: &Block) -> Vec<Bytes> {
        let Some(opaque) = &block.opaque else {
            return Vec::new();
        };
        let mut events = Vec::from_iter(self.role(None));
        events.push(self.delta(AnswerDelta {
            own: Some(own::of_reasoning(&block.text, opaque)),
            ..AnswerDelta::default()
        }));
        events
    }

    fn delta(&self, delta: AnswerDelta<'_>) -> Bytes {
        self.chunk(delta, None, None)
    }

    fn chunk(
        &self,
        delta: AnswerDelta<'_>,
        finish_reason: Option<&'static str>,
        around: Option<&Map<String, Value>>,
    ) -> Bytes {
        let choice = DeltaChoice {
            index: 0,
            delta,
            logprobs: (),
            finish_reason,
        };
        self.event(
            &[choice],
            if self.include_usage {
                ChunkUsage::Said(None)
            } else {
                ChunkUsage::Missing
            },
            around,
        )
    }

    fn event(
        &self,
        choices: &[DeltaChoice<'_>],
        usage: ChunkUsage,
        around: Option<&Map<String, Value>>,
    ) -> Bytes {
        let object = "chat.completion.chunk";
        let created = self.created_unix;
        event(&ChatChunk {
            id: &self.id,
            object,
            created,
            model: &self.model,
            choices,
            usage,
            around,
        })
    }
}

// === impl ChunkUsage ===

impl ChunkUsage {
    const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

impl AnswerEvents for Chunks {
    fn answered_by(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    fn begins_with(&mut self, around: &Opaque) {
        self.first = document::said_around(around);
        // It is known at the end alone.
        self.first.shift_remove("usage");
    }

    fn repeats(&self, kind: &BlockKind) -> bool {
        matches!(kind, BlockKind::Reasoning | BlockKind::ToolCall { .. })
    }

    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes> {
        let mut delta = AnswerDelta::default();
        match &block.kind {
            BlockKind::Text => delta.content = Some(text),
            BlockKind::Reasoning => delta.reasoning_content = Some(text),
            BlockKind::Refusal => delta.refusal = Some(text),
            BlockKind::ToolCall { .. } => return Vec::new(),
        }
        // A tool call may follow reasoning: then there is no content.
        let mut events = Vec::from_iter(self.role(delta.content.map(|_| "")));
        events.push(self.delta(delta));
        events
    }

    fn stop(&mut self, block: &Block) -> Vec<Bytes> {
        let (id, name) = match &block.kind {
            BlockKind::ToolCall { id, name } => (id, name),
            BlockKind::Reasoning => return self.own(block),
            BlockKind::Text | BlockKind::Refusal => return Vec::new(),
        };
        let mut events = Vec::from_iter(self.role(None));
        let index = self.calls;
        self.calls += 1;
        let begin = AnswerCall {
            index: Some(index),
            own: block.opaque.as_ref().map(own::of_call),
            ..AnswerCall::whole(id, name, "")
        };
        let function = AnswerFunction {
            name: None,
            arguments: &block.text,
        };
        let rest = AnswerCall {
            index: Some(index),
            id: None,
            kind: None,
            function,
            own: None,
        };
        for call in [begin, rest] {
            events.push(self.delta(AnswerDelta {
                tool_calls: Some([call]),
                ..AnswerDelta::default()
            }));
        }
        events
    }

    fn end(&mut self, completion: &Completion) -> Vec<Bytes> {
        self.answered_by(&completion.model);
        let mut events = Vec::from_iter(self.role(Some("")));
        let reason = stop_reason::in_chat(completion.finish, &completion.finish_raw);
        let (usage, around) = document::around(completion);
        events.push(self.chunk(AnswerDelta::default(), Some(reason), Some(&around)));
        if self.include_usage {
            events.push(self.event(&[], ChunkUsage::Said(usage), Some(&around)));
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn broken(&mut self, refused: &CallError) -> Vec<Bytes> {
        vec![event(&refused.object(Protocol::Openai))]
    }
}

fn event(data: &impl Serialize) -> Bytes {
    let mut event = Vec::with_capacity(EVENT_BYTES);
    event.extend_from_slice(b"data: ");
    document::write(data, &mut event);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}
