//! Fields of a request's messages, of their parts and of its tools that only the caller's protocol knows: a
//! target of its dialect gets them as they came, and for any other one they are named.

use hyper::Method;
use proptest::{
    strategy::{Strategy, ValueTree as _},
    test_runner::{Config, TestRunner},
};
use relight::internals::{domain::target::Dialect, wire_server::answers};
use serde_json::{Map, Value, json};

use crate::support::{
    any_fields::fields,
    front::{Front, over},
    upstream::{Reply, Upstream},
};

const DIALECTS: [Dialect; 5] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiResponses,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Bedrock,
];

const PICTURE: &str = "iVBORw0KGgo=";

/// Most names that are told.
const MAX_NAMES: usize = 12;

/// Gives fields to places of a conversation, and keeps their names.
struct Sown<'a> {
    runner: &'a mut TestRunner,
    names: Vec<String>,
}

// === impl Sown ===

impl Sown<'_> {
    /// An object with fields that nobody knows.
    fn with(&mut self, mut object: Value) -> Value {
        let own: Map<String, Value> = fields().new_tree(self.runner).unwrap().current();
        self.names.extend(own.keys().cloned());
        object.as_object_mut().unwrap().extend(own);
        object
    }

    /// The names as they are told.
    fn words(mut self) -> String {
        self.names.sort_unstable();
        self.names.dedup();
        let more = self.names.len().saturating_sub(MAX_NAMES);
        self.names.truncate(MAX_NAMES);
        let more = (more > 0).then(|| format!("{more} more"));
        self.names.extend(more);
        format!("{} left out", self.names.join(", "))
    }
}

/// A request of chat completions, whose messages are to be sent as they are.
fn chat(sown: &mut Sown<'_>) -> (&'static str, &'static [&'static str], Value) {
    let picture = sown.with(json!({"url": format!("data:image/png;base64,{PICTURE}")}));
    let system = sown.with(json!({"type": "text", "text": "Be brief."}));
    let question = sown.with(json!({"type": "text", "text": "Where is it?"}));
    let picture = sown.with(json!({"type": "image_url", "image_url": picture}));
    let said = sown.with(json!({"type": "text", "text": "I look."}));
    let result = sown.with(json!({"type": "text", "text": "rain"}));
    let call = json!({"id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let messages = json!([
        sown.with(json!({"role": "system", "content": [system]})),
        sown.with(json!({"role": "user", "content": [question, picture]})),
        sown.with(json!({"role": "assistant", "content": [said], "tool_calls": [call]})),
        sown.with(json!({"role": "tool", "tool_call_id": "call_a", "content": [result, {"type": "text", "text": "cold"}]})),
        sown.with(json!({"role": "user", "content": "So?"})),
    ]);
    let function = sown.with(json!({"name": "look", "parameters": {"type": "object"}}));
    let tool = sown.with(json!({"type": "function", "function": function}));
    let body = json!({"messages": messages, "tools": [tool]});
    ("/v1/chat/completions", &["messages", "tools"], body)
}

/// A request of the Messages API.
fn messages(sown: &mut Sown<'_>) -> (&'static str, &'static [&'static str], Value) {
    let source = json!({"type": "base64", "media_type": "image/png", "data": PICTURE});
    let source = sown.with(source);
    let system = sown.with(json!({"type": "text", "text": "Be brief."}));
    let question = sown.with(json!({"type": "text", "text": "Where is it?"}));
    let picture = sown.with(json!({"type": "image", "source": source}));
    let said = sown.with(json!({"type": "text", "text": "I look."}));
    let call = sown.with(json!({"type": "tool_use", "id": "toolu_a", "name": "look", "input": {}}));
    let result = sown.with(json!({"type": "text", "text": "rain"}));
    let content = json!([result, {"type": "text", "text": "cold"}]);
    let result =
        sown.with(json!({"type": "tool_result", "tool_use_id": "toolu_a", "content": content}));
    let messages = json!([
        sown.with(json!({"role": "user", "content": [question, picture]})),
        sown.with(json!({"role": "assistant", "content": [said, call]})),
        sown.with(json!({"role": "user", "content": [result]})),
    ]);
    let tools = json!([sown.with(json!({"name": "look", "input_schema": {"type": "object"}}))]);
    let body = json!({"max_tokens": 99, "system": [system], "messages": messages, "tools": tools});
    ("/v1/messages", &["system", "messages", "tools"], body)
}

/// A request of the Responses API.
fn responses(sown: &mut Sown<'_>) -> (&'static str, &'static [&'static str], Value) {
    let url = format!("data:image/png;base64,{PICTURE}");
    let system = sown.with(json!({"type": "input_text", "text": "Be brief."}));
    let question = sown.with(json!({"type": "input_text", "text": "Where is it?"}));
    let picture = sown.with(json!({"type": "input_image", "image_url": url, "detail": "auto"}));
    let said = sown.with(json!({"type": "output_text", "text": "I look."}));
    let call =
        json!({"type": "function_call", "call_id": "call_a", "name": "look", "arguments": "{}"});
    let result = sown.with(json!({"type": "input_text", "text": "rain"}));
    let output = json!([result, {"type": "input_text", "text": "cold"}]);
    let output = json!({"type": "function_call_output", "call_id": "call_a", "output": output});
    let input = json!([
        sown.with(json!({"type": "message", "role": "system", "content": [system]})),
        sown.with(json!({"type": "message", "role": "user", "content": [question, picture]})),
        sown.with(json!({"type": "message", "role": "assistant", "content": [said]})),
        sown.with(call),
        sown.with(output),
    ]);
    let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": false});
    let tools = json!([sown.with(tool)]);
    let body = json!({"store": false, "input": input, "tools": tools});
    ("/v1/responses", &["input", "tools"], body)
}

#[tokio::test]
async fn unknown_fields_reach_their_own_dialect_as_they_came_and_are_named_for_any_other() {
    let mut runner = TestRunner::new(Config::default());
    for dialect in DIALECTS {
        let upstream = Upstream::start().await;
        upstream.otherwise((answers::of(dialect).text)("Fine."));
        let config = over("chat", &[(&upstream, dialect.as_str())]);
        let config = config.replace("api_key: k", "api_key: k, region: eu-test-1");
        let is_signed = dialect == Dialect::Bedrock;
        let plain = config.replace(", region: eu-test-1", "");
        let front = Front::start(if is_signed { &config } else { &plain }).await;
        for (own, request) in [
            (Dialect::OpenaiChat, chat as fn(&mut Sown<'_>) -> _),
            (Dialect::Anthropic, messages),
            (Dialect::OpenaiResponses, responses),
        ] {
            for _ in 0..4 {
                let mut sown = Sown {
                    runner: &mut runner,
                    names: Vec::new(),
                };
                let (path, places, mut body) = request(&mut sown);
                body["model"] = json!("chat");
                let answer = front.send(Method::POST, path, &[], body.to_string()).await;
                let words = format!("{own:?} to {dialect:?}: {body}\n{answer:?}");
                assert_eq!(answer.status, 200, "{words}");
                let sent = upstream.requests().pop().unwrap().body;
                let adapted = answer.header("x-relight-adapted").unwrap_or_default();
                if own == dialect {
                    for place in places {
                        assert_eq!(sent[place], body[place], "{words}");
                    }
                    assert_eq!(adapted, "", "{words}");
                } else {
                    assert!(!sent.to_string().contains("\"x_"), "{words}\n{sent}");
                    let told = sown.words();
                    assert!(adapted.contains(&told), "{told}: {words}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_field_of_a_question_is_called_once_more_without_it() {
    let upstream = Upstream::start().await;
    let words = "Unknown parameter: 'messages[0].x_dear'.";
    upstream.push(Reply::refusal(
        400,
        &[],
        &json!({"error": {"message": words, "type": "invalid_request_error", "param": "messages[0].x_dear"}}),
    ));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let messages = json!([{"role": "user", "content": "Hi", "x_dear": 1}]);
    let answer = front
        .chat(&json!({"model": "chat", "messages": messages}))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent: Vec<Value> = upstream.requests().into_iter().map(|it| it.body).collect();
    assert_eq!(sent[0]["messages"], messages);
    assert_eq!(
        sent[1]["messages"],
        json!([{"role": "user", "content": "Hi"}])
    );
    let adapted = answer.header("x-relight-adapted").unwrap_or_default();
    assert!(adapted.contains("unknown fields"), "{adapted}");
}

#[tokio::test]
async fn a_tools_message_keeps_its_name_and_the_fields_of_its_texts() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let text = json!({"type": "text", "text": "rain", "cache_control": {"type": "ephemeral"}});
    let call = json!({"id": "call_a", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let tool = json!({"role": "tool", "tool_call_id": "call_a", "name": "look", "content": [text]});
    let messages = json!([
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        tool,
    ]);
    let answer = front
        .chat(&json!({"model": "chat", "messages": messages}))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(sent["messages"], messages);
}
