//! Members that a provider puts around its answer reach a client of the same protocol as they came, and
//! a client of another one has its own protocol's fields alone; a caller over gRPC has them in one
//! place. In streams they are in the first event, too.

use hyper::Method;
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, TestRunner},
};
use relight::internals::grpc::v1::{
    Opaque, ResponseStarted, RewindMode, invoke_with_recovery_response::Outcome as UnaryEnd,
    terminal::Outcome as End,
};
use serde_json::{Map, Value, json};

use crate::support::{
    any_fields::fields,
    every_front::{FRONTS, Protocol, asked},
    folding::Folding,
    front::{Answer, Front, over},
    relight::{Relight, streaming},
    upstream::{Reply, Upstream},
};

/// The fields of a response, and those of its usage.
type Around = (Map<String, Value>, Map<String, Value>);

const DIALECTS: [(Protocol, &str); 3] = [
    (Protocol::Chat, "openai_chat"),
    (Protocol::Messages, "anthropic"),
    (Protocol::Responses, "openai_responses"),
];

fn with(mut object: Value, fields: &Map<String, Value>) -> Value {
    object.as_object_mut().unwrap().extend(fields.clone());
    object
}

/// A whole answer with these fields.
fn answer(protocol: Protocol, (own, of_usage): &Around, is_stream: bool) -> Reply {
    match (protocol, is_stream) {
        (Protocol::Chat, false) => {
            let usage = with(
                json!({"prompt_tokens": 3, "completion_tokens": 2}),
                of_usage,
            );
            let message = json!({"role": "assistant", "content": "Fine."});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let document = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage});
            Reply::document(&with(document, own))
        }
        (Protocol::Chat, true) => {
            let usage = with(
                json!({"prompt_tokens": 3, "completion_tokens": 2}),
                of_usage,
            );
            let chunk = |choices: Value, usage: Value| {
                let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices, "usage": usage});
                with(chunk, own).to_string()
            };
            let delta = |delta: Value, finish: Value| {
                let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
                chunk(json!([choice]), Value::Null)
            };
            Reply::events(&[
                delta(json!({"role": "assistant", "content": "Fi"}), Value::Null),
                delta(json!({"content": "ne"}), Value::Null),
                delta(json!({"content": "."}), Value::Null),
                delta(json!({}), json!("stop")),
                chunk(json!([]), usage),
                "[DONE]".to_owned(),
            ])
        }
        (Protocol::Messages, false) => {
            let usage = with(json!({"input_tokens": 3, "output_tokens": 2}), of_usage);
            let text = json!({"type": "text", "text": "Fine."});
            let document = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [text],
                "stop_reason": "end_turn", "stop_sequence": null, "usage": usage});
            Reply::document(&with(document, own))
        }
        (Protocol::Messages, true) => {
            let usage = with(json!({"input_tokens": 3, "output_tokens": 1}), of_usage);
            let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage});
            let end = json!({"stop_reason": "end_turn", "stop_sequence": null});
            Reply::named_events(&[
                (
                    "message_start",
                    json!({"type": "message_start", "message": with(message, own)}),
                ),
                (
                    "content_block_start",
                    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                ),
                (
                    "content_block_delta",
                    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Fine."}}),
                ),
                (
                    "content_block_stop",
                    json!({"type": "content_block_stop", "index": 0}),
                ),
                (
                    "message_delta",
                    json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}}),
                ),
                ("message_stop", json!({"type": "message_stop"})),
            ])
        }
        (Protocol::Responses, _) => {
            let usage = json!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
            let text = json!({"type": "output_text", "text": "Fine.", "annotations": []});
            let item = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]});
            let document = json!({"id": "r", "object": "response", "status": "completed", "model": "m", "output": [item],
                "usage": with(usage, of_usage)});
            let document = with(document, own);
            if is_stream {
                let mut begun = document.clone();
                begun["status"] = json!("in_progress");
                begun["output"] = json!([]);
                begun["usage"] = Value::Null;
                let begun = json!({"type": "response.created", "response": begun});
                let whole = json!({"type": "response.completed", "response": document});
                Reply::named_events(&[("response.created", begun), ("response.completed", whole)])
            } else {
                Reply::document(&document)
            }
        }
    }
}

/// Members that the client reads around the answer at the beginning of a stream, and its usage.
fn at_the_beginning(protocol: Protocol, answer: &Answer) -> (Value, Value) {
    let first = answer.events()[0].clone();
    let response = match protocol {
        Protocol::Chat => first,
        Protocol::Messages => first["message"].clone(),
        Protocol::Responses => first["response"].clone(),
    };
    let usage = response["usage"].clone();
    (response, usage)
}

/// Members that the client holds around the answer, and its usage.
fn held((protocol, stream): (Protocol, bool), answer: &Answer) -> (Value, Value) {
    assert_eq!(answer.status, 200, "{answer:?}");
    if !stream {
        let document = answer.json();
        let usage = document["usage"].clone();
        return (document, usage);
    }
    let events = answer.events();
    match protocol {
        Protocol::Chat => {
            let last = events.last().unwrap().clone();
            (last, Value::Null)
        }
        Protocol::Messages => {
            let end = events.iter().find(|event| event["type"] == "message_delta");
            let end = end.unwrap();
            (end["delta"].clone(), end["usage"].clone())
        }
        Protocol::Responses => {
            let response = events.last().unwrap()["response"].clone();
            let usage = response["usage"].clone();
            (response, usage)
        }
    }
}

#[tokio::test]
async fn what_is_around_an_answer_reaches_clients_of_its_protocol_alone() {
    let mut runner = TestRunner::new(Config::default());
    for (own, dialect) in DIALECTS {
        let upstream = Upstream::start().await;
        let front = Front::start(&over("chat", &[(&upstream, dialect)])).await;
        for is_stream in [false, true] {
            for client in FRONTS {
                for _ in 0..3 {
                    let around = (fields(), fields())
                        .new_tree(&mut runner)
                        .unwrap()
                        .current();
                    upstream.push(answer(own, &around, is_stream));
                    let got = asked(&front, client, "How?", &[]).await;
                    let words = format!(
                        "{dialect} to {client:?}, the upstream streams: {is_stream}: {around:?}\n{got:?}"
                    );
                    if client.0 != own {
                        assert!(!got.body.contains("\"x_"), "{words}");
                        continue;
                    }
                    let (response, usage) = held(client, &got);
                    for (name, value) in &around.0 {
                        assert_eq!(&response[name], value, "{name}: {words}");
                    }
                    if is_stream && client.1 {
                        let (first, usage) = at_the_beginning(own, &got);
                        for (name, value) in &around.0 {
                            assert_eq!(&first[name], value, "{name} at the beginning: {words}");
                        }
                        // The other protocols state their usage at the end alone.
                        let in_first = around.1.iter().filter(|_| own == Protocol::Messages);
                        for (name, value) in in_first {
                            assert_eq!(&usage[name], value, "{name} at the beginning: {words}");
                        }
                    }
                    // A stream of chat completions states its usage if it is asked to.
                    if client != (Protocol::Chat, true) {
                        for (name, value) in &around.1 {
                            assert_eq!(&usage[name], value, "{name}: {words}");
                        }
                    }
                }
            }
        }
    }
}

/// The one opaque place as an object.
fn object(dialect: &str, around: Option<&Opaque>) -> Map<String, Value> {
    let around = around.unwrap();
    assert_eq!(around.kind, format!("{dialect}.fields"));
    serde_json::from_slice(&around.data).unwrap()
}

#[tokio::test]
async fn what_is_around_an_answer_is_in_the_contract_s_completion_and_at_its_beginning() {
    let mut runner = TestRunner::new(Config::default());
    for (own, dialect) in DIALECTS {
        let upstream = Upstream::start().await;
        let relight = Relight::start(&over("default", &[(&upstream, dialect)])).await;
        for is_stream in [false, true] {
            let around = (fields(), fields())
                .new_tree(&mut runner)
                .unwrap()
                .current();
            let mut whole = around.0.clone();
            whole.insert("usage".to_owned(), Value::Object(around.1.clone()));

            upstream.push(answer(own, &around, is_stream));
            let unary = relight.ask("How?").await;
            let Some(UnaryEnd::Completion(completion)) = unary.outcome else {
                panic!("{dialect}: {unary:?}");
            };
            assert_eq!(object(dialect, completion.around.as_ref()), whole);

            upstream.push(answer(own, &around, is_stream));
            let asked = streaming("How?", RewindMode::Rewind);
            let (folding, ended) = Folding::all(relight.recovery(), asked).await;
            assert!(ended.is_none(), "{ended:?}");
            let terminal = folding.terminal.clone().unwrap();
            let Some(End::Completed(completed)) = terminal.outcome else {
                panic!("{dialect}: {terminal:?}");
            };
            assert_eq!(object(dialect, completed.around.as_ref()), whole);
            let started: Vec<ResponseStarted> = folding.responses.clone();
            if is_stream {
                let [started] = &started[..] else {
                    panic!("{dialect}: {started:?}");
                };
                assert_eq!(started.model, "m");
                let first = object(dialect, started.around.as_ref());
                for (name, value) in &around.0 {
                    assert_eq!(&first[name], value, "{dialect}: {name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_answer_with_nothing_around_it_has_none_in_the_contract() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&over("default", &[(&upstream, "openai_chat")])).await;
    upstream.push(answer(Protocol::Chat, &(Map::new(), Map::new()), true));
    let asked = streaming("How?", RewindMode::Rewind);
    let (folding, ended) = Folding::all(relight.recovery(), asked).await;
    assert!(ended.is_none(), "{ended:?}");
    assert!(folding.responses.is_empty(), "{:?}", folding.responses);
    let Some(End::Completed(completed)) = folding.terminal.clone().unwrap().outcome else {
        panic!("{:?}", folding.terminal);
    };
    assert_eq!(completed.around, None);
}

#[tokio::test]
async fn a_client_of_messages_reads_at_which_of_its_sequences_the_answer_stopped() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let document = json!({"id": "m", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "One"}], "stop_reason": "stop_sequence", "stop_sequence": "two",
        "usage": {"input_tokens": 3, "output_tokens": 2}});
    upstream.otherwise(Reply::document(&document));
    for stream in [false, true] {
        let body = json!({"model": "chat", "max_tokens": 9, "stream": stream, "stop_sequences": ["two", "three"],
            "messages": [{"role": "user", "content": "Count."}]});
        let answer = front
            .send(Method::POST, "/v1/messages", &[], body.to_string())
            .await;
        let (end, _) = held((Protocol::Messages, stream), &answer);
        assert_eq!(end["stop_reason"], "stop_sequence", "{answer:?}");
        assert_eq!(end["stop_sequence"], "two", "{answer:?}");
    }
}
