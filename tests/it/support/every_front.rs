//! One question through each protocol of the HTTP front, as a document and as a stream, and what a
//! careful client of it holds at the end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use hyper::Method;
use serde_json::{Value, json};

use super::front::{Answer, Front, folded};

/// A protocol of the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Messages,
    Responses,
}

/// All of them, as a document and as a stream.
pub(crate) const FRONTS: [(Protocol, bool); 6] = [
    (Protocol::Chat, false),
    (Protocol::Chat, true),
    (Protocol::Messages, false),
    (Protocol::Messages, true),
    (Protocol::Responses, false),
    (Protocol::Responses, true),
];

/// An answer that its client believes to be over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldAnswer {
    pub(crate) text: String,
    /// Name and arguments of each tool call.
    pub(crate) calls: Vec<(String, Value)>,
    /// Why it ended, in the protocol's words.
    pub(crate) stop: String,
}

/// Sends a question with these tools.
pub(crate) async fn asked(
    front: &Front,
    (protocol, stream): (Protocol, bool),
    question: &str,
    tools: &[&str],
) -> Answer {
    let schema = json!({"type": "object"});
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| match protocol {
            Protocol::Chat => {
                json!({"type": "function", "function": {"name": name, "parameters": schema}})
            }
            Protocol::Messages => json!({"name": name, "input_schema": schema}),
            Protocol::Responses => {
                json!({"type": "function", "name": name, "parameters": schema, "strict": false})
            }
        })
        .collect();
    let messages = json!([{"role": "user", "content": question}]);
    let (path, mut body) = match protocol {
        Protocol::Chat => ("/v1/chat/completions", json!({"messages": messages})),
        Protocol::Messages => (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 4000}),
        ),
        Protocol::Responses => ("/v1/responses", json!({"input": question, "store": false})),
    };
    body["model"] = json!("chat");
    body["stream"] = json!(stream);
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    front.send(Method::POST, path, &[], body.to_string()).await
}

/// What the client holds; `None` where it was told that the answer failed, or that it is not over.
pub(crate) fn held(front: (Protocol, bool), answer: &Answer) -> Option<HeldAnswer> {
    if answer.status != 200 {
        return None;
    }
    match front {
        (Protocol::Chat, true) => chat_chunks(answer),
        (Protocol::Chat, false) => {
            let choice = answer.json()["choices"][0].clone();
            Some(HeldAnswer {
                text: text(&choice["message"]["content"]),
                calls: functions(&choice["message"]["tool_calls"]),
                stop: text(&choice["finish_reason"]),
            })
        }
        (Protocol::Messages, true) => {
            let message = folded(answer);
            (message["whole"] == true).then(|| of_message(&message))
        }
        (Protocol::Messages, false) => Some(of_message(&answer.json())),
        (Protocol::Responses, true) => {
            let last = answer.events().pop()?;
            let response = &last["response"];
            let is_over = ["completed", "incomplete"].contains(&response["status"].as_str()?);
            is_over.then(|| of_response(response))
        }
        (Protocol::Responses, false) => Some(of_response(&answer.json())),
    }
}

fn chat_chunks(answer: &Answer) -> Option<HeldAnswer> {
    if !answer.is_done() || !answer.error().is_null() {
        return None;
    }
    let (mut calls, mut stop) = (Vec::<(String, String)>::new(), String::new());
    for event in answer.events() {
        let choice = &event["choices"][0];
        for call in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push((text(&call["function"]["name"]), String::new()));
            }
            calls[index].1 += &text(&call["function"]["arguments"]);
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            reason.clone_into(&mut stop);
        }
    }
    let calls = calls
        .into_iter()
        .map(|(name, arguments)| (name, json_of(&arguments)));
    Some(HeldAnswer {
        text: answer.text(),
        calls: calls.collect(),
        stop,
    })
}

fn of_message(message: &Value) -> HeldAnswer {
    let content = message["content"].as_array().unwrap();
    let calls = content.iter().filter(|block| block["type"] == "tool_use");
    HeldAnswer {
        text: content.iter().map(|block| text(&block["text"])).collect(),
        calls: calls
            .map(|call| (text(&call["name"]), call["input"].clone()))
            .collect(),
        stop: text(&message["stop_reason"]),
    }
}

fn of_response(response: &Value) -> HeldAnswer {
    let output = response["output"].as_array().unwrap();
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let why = text(&response["incomplete_details"]["reason"]);
    let messages = output.iter().filter(|item| item["type"] == "message");
    HeldAnswer {
        text: messages
            .flat_map(|item| item["content"].as_array().unwrap())
            .map(|part| text(&part["text"]))
            .collect(),
        calls: calls
            .map(|call| (text(&call["name"]), json_of(&text(&call["arguments"]))))
            .collect(),
        stop: format!("{} {why}", text(&response["status"]))
            .trim()
            .to_owned(),
    }
}

fn functions(calls: &Value) -> Vec<(String, Value)> {
    let calls = calls.as_array().into_iter().flatten();
    calls
        .map(|call| {
            let function = &call["function"];
            (
                text(&function["name"]),
                json_of(&text(&function["arguments"])),
            )
        })
        .collect()
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
