//! The stream of this protocol: numbered events, of each item its beginning, its pieces and its
//! end.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::{document::ResponseDocument, items};
use crate::{
    domain::{
        completion::{BlockKind, Completion},
        fold::Block,
        message::{Opaque, Reasoning, ToolCall},
        own_fields,
        target::Dialect,
    },
    front::{
        error::{CallError, Protocol},
        stream::AnswerEvents,
    },
    provider::responses::ITEM,
};

/// Writes the events of one response.
#[derive(Debug)]
pub(super) struct ResponseEvents {
    document: ResponseDocument,
    /// Model that answers, as far as it is known.
    model: String,
    /// What the provider said around the response when it began.
    around: Map<String, Value>,
    /// The number of the next event.
    sequence: u64,
    /// The block whose item is being written.
    open: Option<u32>,
    /// A text that is whole, but for fields of it that may follow.
    whole: Option<Block>,
    /// The items that are whole.
    output: Vec<Value>,
}

// === impl ResponseEvents ===

impl ResponseEvents {
    /// Nothing was written.
    pub(super) fn new(document: ResponseDocument, model: String) -> Self {
        Self {
            document,
            model,
            around: Map::new(),
            sequence: 0,
            open: None,
            whole: None,
            output: Vec::new(),
        }
    }

    fn begin(&mut self) -> Vec<Bytes> {
        if self.sequence > 0 {
            return Vec::new();
        }
        let mut response = self.document.in_state("in_progress", &self.model, &[]);
        own_fields::merge(&mut response, &self.around);
        let created = self.event("response.created", json!({"response": response}));
        vec![
            created,
            self.event("response.in_progress", json!({"response": response})),
        ]
    }

    fn event(&mut self, name: &str, mut data: Value) -> Bytes {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
    }

    /// Returns an event about the item that is being written.
    fn about(&mut self, name: &str, item: &Value, mut data: Value) -> Bytes {
        data["item_id"] = item["id"].clone();
        data["output_index"] = json!(self.output.len());
        self.event(name, data)
    }

    /// Begins the block's item, and the part of it that will grow.
    fn open(&mut self, block: &Block) -> Vec<Bytes> {
        let mut events = self.begin();
        if self.open.replace(block.id) == Some(block.id) {
            return events;
        }
        let item = self.begun(block);
        let added = json!({"output_index": self.output.len(), "item": item});
        events.push(self.event("response.output_item.added", added));
        match block.kind {
            BlockKind::Text => {
                let data = json!({"content_index": 0, "part": items::output_text("")});
                events.push(self.about("response.content_part.added", &item, data));
            }
            BlockKind::Refusal => {
                let data = json!({"content_index": 0, "part": items::refusal("")});
                events.push(self.about("response.content_part.added", &item, data));
            }
            BlockKind::Reasoning => {
                let data =
                    json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}});
                events.push(self.about("response.reasoning_summary_part.added", &item, data));
            }
            BlockKind::ToolCall { .. } => {}
        }
        events
    }

    /// Returns the item of a block of which nothing was said yet.
    fn begun(&self, block: &Block) -> Value {
        let invocation = self.document.invocation();
        let index = self.output.len();
        match &block.kind {
            BlockKind::Text | BlockKind::Refusal => {
                items::message(invocation, index, "in_progress", &[])
            }
            BlockKind::Reasoning => items::reasoning(invocation, index, &Reasoning::default()),
            BlockKind::ToolCall { id, name } => {
                let id = id.clone();
                let name = name.clone();
                let arguments = String::new();
                let opaque = block.opaque.clone();
                self.document.begun_call(
                    index,
                    &ToolCall {
                        id,
                        name,
                        arguments,
                        opaque,
                    },
                )
            }
        }
    }

    /// Returns the end of a text that was whole, with its fields that only this protocol knows.
    fn end_of_text(&mut self, fields: Map<String, Value>) -> Vec<Bytes> {
        let Some(block) = self.whole.take() else {
            return Vec::new();
        };
        let mut events = self.open(&block);
        let invocation = self.document.invocation();
        let content = [items::output_text(&block.text)];
        let mut item = items::message(invocation, self.output.len(), "completed", &content);
        items::add_fields(&mut item, fields);
        let part = item["content"][0].clone();
        let annotations = part["annotations"].as_array().into_iter().flatten();
        for (index, annotation) in annotations.enumerate() {
            let name = "response.output_text.annotation.added";
            let data = json!({
                "content_index": 0, "annotation_index": index, "annotation": annotation,
            });
            events.push(self.about(name, &item, data));
        }
        let data = json!({"content_index": 0, "text": block.text, "logprobs": []});
        events.push(self.about("response.output_text.done", &item, data));
        let data = json!({"content_index": 0, "part": part});
        events.push(self.about("response.content_part.done", &item, data));
        events.push(self.done(item));
        events
    }

    /// Returns the end of an item.
    fn done(&mut self, item: Value) -> Bytes {
        let done = self.event(
            "response.output_item.done",
            json!({"output_index": self.output.len(), "item": item}),
        );
        self.output.push(item);
        self.open = None;
        done
    }
}

impl AnswerEvents for ResponseEvents {
    fn answered_by(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    fn begins_with(&mut self, around: &Opaque) {
        self.around = own_fields::fields_in(Dialect::OpenaiResponses, Some(around));
    }

    fn repeats(&self, _: &BlockKind) -> bool {
        true
    }

    fn text(&mut self, block: &Block, text: &str) -> Vec<Bytes> {
        let (name, data) = match block.kind {
            BlockKind::Text => (
                "response.output_text.delta",
                json!({"content_index": 0, "delta": text, "logprobs": []}),
            ),
            BlockKind::Refusal => (
                "response.refusal.delta",
                json!({"content_index": 0, "delta": text}),
            ),
            BlockKind::Reasoning => (
                "response.reasoning_summary_text.delta",
                json!({"summary_index": 0, "delta": text}),
            ),
            BlockKind::ToolCall { .. } => return Vec::new(),
        };
        let mut events = self.end_of_text(Map::new());
        events.extend(self.open(block));
        let item = self.begun(block);
        events.push(self.about(name, &item, data));
        events
    }

    fn stop(&mut self, block: &Block) -> Vec<Bytes> {
        let mut events = self.begin();
        if let Some(fields) = items::fields_of_text(&block.part()).filter(|_| self.whole.is_some())
        {
            events.extend(self.end_of_text(fields));
            return events;
        }
        events.extend(self.end_of_text(Map::new()));
        if block.kind == BlockKind::Text {
            events.extend(self.open(block));
            self.whole = Some(block.clone());
            return events;
        }
        let came_whole = block
            .opaque
            .as_ref()
            .is_some_and(|opaque| opaque.kind == ITEM);
        for item in self.document.items_of(self.output.len(), &block.part()) {
            // What a tool call's provider needs back is an item of its own, before the call.
            let is_beside = item["type"] == "reasoning" && block.kind != BlockKind::Reasoning;
            let is_unsaid = block.kind == BlockKind::Reasoning && block.text.is_empty();
            if came_whole || is_beside || is_unsaid {
                events.push(self.event(
                    "response.output_item.added",
                    json!({"output_index": self.output.len(), "item": item}),
                ));
                events.push(self.done(item));
                continue;
            }
            events.extend(self.open(block));
            match &block.kind {
                // It ends with what comes next.
                BlockKind::Text => continue,
                BlockKind::Refusal => {
                    let data = json!({"content_index": 0, "refusal": block.text});
                    events.push(self.about("response.refusal.done", &item, data));
                    let data = json!({"content_index": 0, "part": items::refusal(&block.text)});
                    events.push(self.about("response.content_part.done", &item, data));
                }
                BlockKind::Reasoning => {
                    let data = json!({"summary_index": 0, "text": block.text});
                    events.push(self.about("response.reasoning_summary_text.done", &item, data));
                    let part = json!({"type": "summary_text", "text": block.text});
                    let data = json!({"summary_index": 0, "part": part});
                    events.push(self.about("response.reasoning_summary_part.done", &item, data));
                }
                BlockKind::ToolCall { .. } if item["type"] == "custom_tool_call" => {
                    let data = json!({"delta": item["input"]});
                    events.push(self.about("response.custom_tool_call_input.delta", &item, data));
                    let data = json!({"input": item["input"]});
                    events.push(self.about("response.custom_tool_call_input.done", &item, data));
                }
                BlockKind::ToolCall { name, .. } => {
                    let data = json!({"delta": block.text});
                    events.push(self.about("response.function_call_arguments.delta", &item, data));
                    let data = json!({"arguments": block.text, "name": name});
                    events.push(self.about("response.function_call_arguments.done", &item, data));
                }
            }
            events.push(self.done(item));
        }
        events
    }

    fn end(&mut self, completion: &Completion) -> Vec<Bytes> {
        self.answered_by(&completion.model);
        let mut events = self.begin();
        events.extend(self.end_of_text(Map::new()));
        let response = self.document.ended(completion, &self.output);
        let name = if response["status"] == "completed" {
            "response.completed"
        } else {
            "response.incomplete"
        };
        events.push(self.event(name, json!({"response": response})));
        events
    }

    fn broken(&mut self, refused: &CallError) -> Vec<Bytes> {
        let mut data = refused.object(Protocol::Openai);
        let error = data["error"].clone();
        for field in ["code", "message", "param"] {
            data[field] = error[field].clone();
        }
        let mut events = self.end_of_text(Map::new());
        let mut response = self.document.in_state("failed", &self.model, &self.output);
        response["error"] = json!({"code": error["code"], "message": error["message"]});
        // Some clients end at the first of the two, some know only the second.
        events.push(self.event("error", data));
        events.push(self.event("response.failed", json!({"response": response})));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::InvocationId;

    #[test]
    fn events_are_numbered_and_items_keep_their_place() {
        let document =
            ResponseDocument::new(&InvocationId::from("i"), 7, serde_json::Map::new(), true);
        let mut events = ResponseEvents::new(document, "m".to_owned());
        let opaque = Some(Opaque {
            kind: "gemini.thought_signature".to_owned(),
            bytes: vec![1],
        });
        let block = |id, kind, text: &str, opaque| Block {
            id,
            kind,
            text: text.to_owned(),
            opaque,
            stopped: true,
            committed: true,
        };
        let text = block(1, BlockKind::Text, "Yes.", None);
        let call = BlockKind::ToolCall {
            id: "c1".to_owned(),
            name: "add".to_owned(),
        };
        let call = block(2, call, "{}", opaque.clone());
        let thought = block(3, BlockKind::Reasoning, "", opaque);
        let mut bytes = events.text(&text, "Yes.");
        for block in [&text, &call, &thought] {
            bytes.extend(events.stop(block));
        }
        let all: Vec<Value> = bytes
            .iter()
            .map(|event| {
                let text = std::str::from_utf8(event).unwrap();
                serde_json::from_str(text.split_once("data: ").unwrap().1).unwrap()
            })
            .collect();
        for (number, event) in (0_u64..).zip(&all) {
            assert_eq!(event["sequence_number"], number, "{event}");
        }
        let is_of_summary = |event: &Value| event.to_string().contains("reasoning_summary");
        assert!(!all.iter().any(is_of_summary), "none was said: {all:?}");
        let done = all
            .iter()
            .filter(|event| event["type"] == "response.output_item.done");
        let ids: Vec<&str> = done
            .filter_map(|event| event["item"]["id"].as_str())
            .collect();
        assert_eq!(ids, ["msg_i_0", "rs_i_1", "fc_i_2", "rs_i_3"]);
    }
}
