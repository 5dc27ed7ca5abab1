//! Answers of any words, as each dialect tells them: for tests of what a broken stream leaves.

use proptest::prelude::*;
use relight::internals::{
    domain::{completion::BlockKind, target::Dialect},
    wire_server::answers::bedrock,
};
use serde_json::{Value, json};

/// An answer as the events of a dialect.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) dialect: Dialect,
    /// The bytes of each event.
    pub(crate) events: Vec<Vec<u8>>,
    /// What of the answer each event holds.
    pub(crate) holds: Vec<Holds>,
    /// The blocks of the answer, each with its text and whether it is whole.
    pub(crate) blocks: Vec<(BlockKind, String, bool)>,
}

/// What of an answer an event holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Its frame.
    Frame,
    /// A piece of a text, or of arguments.
    Piece,
    /// A whole tool call, under an id of its own.
    Call,
}

/// The words of an answer, in pieces.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub(crate) reasoning: Vec<String>,
    pub(crate) text: Vec<String>,
    /// Name and arguments of each tool call.
    pub(crate) calls: Vec<(String, Vec<String>)>,
    /// Whether the Responses API numbers its events.
    pub(crate) is_numbered: bool,
}

/// Any answer in this dialect.
pub(crate) fn told(dialect: Dialect) -> impl Strategy<Value = Told> {
    words().prop_map(move |words| Told::of(dialect, &words))
}

/// Any words; at least a text or a call.
pub(crate) fn words() -> impl Strategy<Value = Words> {
    let piece = "[a-zA-Z0-9 .\"\\\\\u{e9}\u{1f600}]{1,7}";
    let arguments = prop::collection::btree_map("[a-z]{1,3}", 0..1_000_000_u32, 1..3);
    let call = ("[a-z_]{3,9}", arguments, 1..6_usize).prop_map(|(name, arguments, bytes)| {
        let arguments = json!(arguments).to_string();
        let pieces = arguments.as_bytes().chunks(bytes);
        let pieces = pieces.map(|piece| String::from_utf8_lossy(piece).into_owned());
        (name, pieces.collect())
    });
    let pieces = |least| prop::collection::vec(piece, least..5);
    (
        pieces(0),
        pieces(1),
        prop::collection::vec(call, 0..3),
        any::<bool>(),
    )
        .prop_map(|(reasoning, text, calls, is_numbered)| Words {
            reasoning,
            text,
            calls,
            is_numbered,
        })
}

// === impl Told ===

impl Told {
    /// These words in this dialect.
    pub(crate) fn of(dialect: Dialect, words: &Words) -> Self {
        let mut told = Self {
            dialect,
            events: Vec::new(),
            holds: Vec::new(),
            blocks: words.blocks(),
        };
        match dialect {
            Dialect::OpenaiChat => told.chat(words),
            Dialect::OpenaiResponses => told.responses(words),
            Dialect::Anthropic => told.messages(words),
            Dialect::Gemini => told.gemini(words),
            Dialect::Bedrock => told.bedrock(words),
            Dialect::Scripted | Dialect::Tool => {}
        }
        told
    }

    fn push(&mut self, holds: Holds, event: impl Into<Vec<u8>>) {
        self.holds.push(holds);
        self.events.push(event.into());
    }

    fn chat(&mut self, words: &Words) {
        let chunk = |delta: Value, finish: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            format!(
                "data: {}\n\n",
                json!({"id": "c1", "model": "m", "choices": [choice]})
            )
        };
        self.push(
            Holds::Frame,
            chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        );
        for piece in &words.reasoning {
            self.push(
                Holds::Piece,
                chunk(json!({"reasoning_content": piece}), Value::Null),
            );
        }
        for piece in &words.text {
            self.push(Holds::Piece, chunk(json!({"content": piece}), Value::Null));
        }
        for (index, (name, pieces)) in words.calls.iter().enumerate() {
            let function = json!({"name": name, "arguments": ""});
            let begin =
                json!({"index": index, "id": id(index), "type": "function", "function": function});
            self.push(
                Holds::Frame,
                chunk(json!({"tool_calls": [begin]}), Value::Null),
            );
            for piece in pieces {
                let more = json!({"index": index, "function": {"arguments": piece}});
                self.push(
                    Holds::Piece,
                    chunk(json!({"tool_calls": [more]}), Value::Null),
                );
            }
        }
        let finish = if words.calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        };
        self.push(Holds::Frame, chunk(json!({}), json!(finish)));
        self.push(Holds::Frame, "data: [DONE]\n\n");
    }

    fn messages(&mut self, words: &Words) {
        let event = |mut data: Value, kind: &str| {
            data["type"] = json!(kind);
            format!("event: {kind}\ndata: {data}\n\n")
        };
        let message = json!({"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "usage": {"input_tokens": 3, "output_tokens": 1}});
        self.push(
            Holds::Frame,
            event(json!({"message": message}), "message_start"),
        );
        let mut index = 0;
        let mut block = |told: &mut Self, begun: Value, deltas: Vec<Value>| {
            let start = json!({"index": index, "content_block": begun});
            told.push(Holds::Frame, event(start, "content_block_start"));
            for delta in deltas {
                let delta = json!({"index": index, "delta": delta});
                told.push(Holds::Piece, event(delta, "content_block_delta"));
            }
            told.push(
                Holds::Frame,
                event(json!({"index": index}), "content_block_stop"),
            );
            index += 1;
        };
        if !words.reasoning.is_empty() {
            let deltas = words.reasoning.iter();
            let deltas = deltas.map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            block(
                self,
                json!({"type": "thinking", "thinking": ""}),
                deltas.collect(),
            );
        }
        let deltas = words
            .text
            .iter()
            .map(|piece| json!({"type": "text_delta", "text": piece}));
        block(self, json!({"type": "text", "text": ""}), deltas.collect());
        for (number, (name, pieces)) in words.calls.iter().enumerate() {
            let deltas = pieces.iter();
            let deltas =
                deltas.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            let begun = json!({"type": "tool_use", "id": id(number), "name": name, "input": {}});
            block(self, begun, deltas.collect());
        }
        let reason = if words.calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        let end = json!({"delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}});
        self.push(Holds::Frame, event(end, "message_delta"));
        self.push(Holds::Frame, event(json!({}), "message_stop"));
    }

    fn gemini(&mut self, words: &Words) {
        let chunk = |parts: Value, finish: Option<&str>| {
            let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
            if let Some(finish) = finish {
                candidate["finishReason"] = json!(finish);
            }
            let usage = json!({"promptTokenCount": 3});
            let chunk = json!({"candidates": [candidate], "modelVersion": "m", "responseId": "r1", "usageMetadata": usage});
            format!("data: {chunk}\r\n\r\n")
        };
        for piece in &words.reasoning {
            self.push(
                Holds::Piece,
                chunk(json!([{"text": piece, "thought": true}]), None),
            );
        }
        for piece in &words.text {
            self.push(Holds::Piece, chunk(json!([{"text": piece}]), None));
        }
        for (index, (name, pieces)) in words.calls.iter().enumerate() {
            let args: Value = serde_json::from_str(&pieces.concat()).unwrap_or_default();
            let call = json!({"functionCall": {"id": id(index), "name": name, "args": args}});
            self.push(Holds::Call, chunk(json!([call]), None));
        }
        self.push(Holds::Frame, chunk(json!([]), Some("STOP")));
    }

    fn bedrock(&mut self, words: &Words) {
        let event = bedrock::event;
        self.push(
            Holds::Frame,
            event("messageStart", &json!({"role": "assistant"})),
        );
        let mut index = 0;
        let mut block = |told: &mut Self, start: Option<Value>, deltas: Vec<Value>| {
            if let Some(start) = start {
                let start = json!({"contentBlockIndex": index, "start": start});
                told.push(Holds::Frame, event("contentBlockStart", &start));
            }
            for delta in deltas {
                let delta = json!({"contentBlockIndex": index, "delta": delta});
                told.push(Holds::Piece, event("contentBlockDelta", &delta));
            }
            told.push(
                Holds::Frame,
                event("contentBlockStop", &json!({"contentBlockIndex": index})),
            );
            index += 1;
        };
        if !words.reasoning.is_empty() {
            let deltas = words.reasoning.iter();
            let deltas = deltas.map(|piece| json!({"reasoningContent": {"text": piece}}));
            block(self, None, deltas.collect());
        }
        block(
            self,
            None,
            words
                .text
                .iter()
                .map(|piece| json!({"text": piece}))
                .collect(),
        );
        for (number, (name, pieces)) in words.calls.iter().enumerate() {
            let deltas = pieces
                .iter()
                .map(|piece| json!({"toolUse": {"input": piece}}));
            let start = json!({"toolUse": {"toolUseId": id(number), "name": name}});
            block(self, Some(start), deltas.collect());
        }
        let reason = if words.calls.is_empty() {
            "end_turn"
        } else {
            "tool_use"
        };
        self.push(
            Holds::Frame,
            event("messageStop", &json!({"stopReason": reason})),
        );
        let usage = json!({"inputTokens": 3, "outputTokens": 9, "totalTokens": 12});
        self.push(Holds::Frame, event("metadata", &json!({"usage": usage})));
    }

    /// Each text five times: in its deltas, and in the ends of its content, part, item and response.
    #[expect(clippy::too_many_lines, reason = "one event after the other")]
    fn responses(&mut self, words: &Words) {
        let mut events: Vec<(Holds, Value)> = Vec::new();
        let mut push = |holds: Holds, kind: &str, mut event: Value| {
            event["type"] = json!(kind);
            events.push((holds, event));
        };
        let response = json!({"id": "r1", "model": "m", "status": "in_progress", "output": []});
        push(
            Holds::Frame,
            "response.created",
            json!({"response": response}),
        );
        let mut output: Vec<Value> = Vec::new();
        if !words.reasoning.is_empty() {
            let (index, whole) = (output.len(), words.reasoning.concat());
            let item =
                |summary: Value| json!({"type": "reasoning", "id": "rs_1", "summary": summary});
            push(
                Holds::Frame,
                "response.output_item.added",
                json!({"output_index": index, "item": item(json!([]))}),
            );
            for piece in &words.reasoning {
                let event = json!({"output_index": index, "summary_index": 0, "delta": piece});
                push(Holds::Piece, "response.reasoning_summary_text.delta", event);
            }
            let event = json!({"output_index": index, "summary_index": 0, "text": whole});
            push(Holds::Frame, "response.reasoning_summary_text.done", event);
            output.push(item(json!([{"type": "summary_text", "text": whole}])));
            push(
                Holds::Frame,
                "response.output_item.done",
                json!({"output_index": index, "item": output[index]}),
            );
        }
        let (index, whole) = (output.len(), words.text.concat());
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let item = |content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "content": content});
        let about = |more: Value| {
            let mut event = json!({"output_index": index, "content_index": 0, "item_id": "msg_1"});
            let fields = more.as_object().cloned().unwrap_or_default();
            fields
                .into_iter()
                .for_each(|(name, value)| event[name] = value);
            event
        };
        push(
            Holds::Frame,
            "response.output_item.added",
            json!({"output_index": index, "item": item(json!([]))}),
        );
        push(
            Holds::Frame,
            "response.content_part.added",
            about(json!({"part": part("")})),
        );
        for piece in &words.text {
            push(
                Holds::Piece,
                "response.output_text.delta",
                about(json!({"delta": piece})),
            );
        }
        push(
            Holds::Frame,
            "response.output_text.done",
            about(json!({"text": whole})),
        );
        push(
            Holds::Frame,
            "response.content_part.done",
            about(json!({"part": part(&whole)})),
        );
        output.push(item(json!([part(&whole)])));
        push(
            Holds::Frame,
            "response.output_item.done",
            json!({"output_index": index, "item": output[index]}),
        );
        for (number, (name, pieces)) in words.calls.iter().enumerate() {
            let (index, whole) = (output.len(), pieces.concat());
            let item = |arguments: &str| {
                json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": id(number), "name": name,
                    "arguments": arguments})
            };
            push(
                Holds::Frame,
                "response.output_item.added",
                json!({"output_index": index, "item": item("")}),
            );
            for piece in pieces {
                let event = json!({"output_index": index, "delta": piece});
                push(
                    Holds::Piece,
                    "response.function_call_arguments.delta",
                    event,
                );
            }
            let event = json!({"output_index": index, "arguments": whole});
            push(Holds::Frame, "response.function_call_arguments.done", event);
            output.push(item(&whole));
            push(
                Holds::Frame,
                "response.output_item.done",
                json!({"output_index": index, "item": output[index]}),
            );
        }
        let response = json!({"id": "r1", "model": "m", "status": "completed", "error": null, "output": output,
            "usage": {"input_tokens": 3, "output_tokens": 9}});
        push(
            Holds::Frame,
            "response.completed",
            json!({"response": response}),
        );
        for (number, (holds, mut event)) in events.into_iter().enumerate() {
            if words.is_numbered {
                event["sequence_number"] = json!(number);
            }
            let name = event["type"].as_str().unwrap_or_default();
            self.push(holds, format!("event: {name}\ndata: {event}\n\n"));
        }
    }
}

// === impl Words ===

impl Words {
    fn blocks(&self) -> Vec<(BlockKind, String, bool)> {
        let mut blocks = Vec::new();
        if !self.reasoning.is_empty() {
            blocks.push((BlockKind::Reasoning, self.reasoning.concat(), true));
        }
        blocks.push((BlockKind::Text, self.text.concat(), true));
        for (index, (name, pieces)) in self.calls.iter().enumerate() {
            let (id, name) = (id(index), name.clone());
            blocks.push((BlockKind::ToolCall { id, name }, pieces.concat(), true));
        }
        blocks
    }
}

/// The id of the call at this place.
fn id(index: usize) -> String {
    format!("callNo00{index}")
}
