//! The stream of this wire: each event as bytes, in the order that clients expect.
//!
//! The role comes first and once, every chunk has the same id, usage comes in a chunk of its own
//! without choices and only when it was asked for, and `[DONE]` ends a whole answer and nothing
//! else.

use axum::body::Bytes;
use serde::Serialize;

use super::document::{self, AnswerCall, AnswerFunction, UsageFields};
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

/// Room for most events, so that they are not moved while they are written.
const EVENT_BYTES: usize = 384;

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

#[derive(Serialize)]
struct ChatChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [DeltaChoice<'a>],
    #[serde(skip_serializing_if = "ChunkUsage::is_missing")]
    usage: ChunkUsage,
}

/// What a chunk says of the answer's cost.
#[derive(Serialize)]
#[serde(untagged)]
enum ChunkUsage {
    /// Nothing, because it was not requested.
    Missing,
    /// The cost, or null where it is not known.
    Said(Option<UsageFields>),
}

#[derive(Serialize)]
struct DeltaChoice<'a> {
    index: u32,
    delta: AnswerDelta<'a>,
    logprobs: (),
    finish_reason: Option<&'static str>,
}

/// What a chunk adds; what it does not add is missing.
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
            begun: false,
            calls: 0,
        }
    }

    fn role(&mut self) -> Option<Bytes> {
        let first = !std::mem::replace(&mut self.begun, true);
        first.then(|| {
            self.delta(AnswerDelta {
                role: Some("assistant"),
                content: Some(""),
                ..AnswerDelta::default()
            })
        })
    }

    fn delta(&self, delta: AnswerDelta<'_>) -> Bytes {
        self.chunk(delta, None)
    }

    fn chunk(&self, delta: AnswerDelta<'_>, finish_reason: Option<&'static str>) -> Bytes {
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
        )
    }

    fn event(&self, choices: &[DeltaChoice<'_>], usage: ChunkUsage) -> Bytes {
        let (object, created) = ("chat.completion.chunk", self.created_unix);
        event(&ChatChunk {
            id: &self.id,
            object,
            created,
            model: &self.model,
            choices,
            usage,
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

    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes> {
        let mut delta = AnswerDelta::default();
        match &block.kind {
            BlockKind::Text => delta.content = Some(text),
            BlockKind::Reasoning => delta.reasoning_content = Some(text),
            BlockKind::Refusal => delta.refusal = Some(text),
            BlockKind::ToolCall { .. } => return Vec::new(),
        }
        let mut events = Vec::from_iter(self.role());
        events.push(self.delta(delta));
        events
    }

    fn stop(&mut self, block: &Block) -> Vec<Bytes> {
        let BlockKind::ToolCall { id, name } = &block.kind else {
            return Vec::new();
        };
        let mut events = Vec::from_iter(self.role());
        let index = self.calls;
        self.calls += 1;
        let begin = AnswerCall {
            index: Some(index),
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
        let mut events = Vec::from_iter(self.role());
        events.push(self.chunk(
            AnswerDelta::default(),
            Some(document::finish_reason(completion.finish)),
        ));
        if self.include_usage {
            events.push(self.event(&[], ChunkUsage::Said(document::usage(completion.usage))));
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn broken(&mut self, refused: &Refused) -> Vec<Bytes> {
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
