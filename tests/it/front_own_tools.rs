//! Tools of the Responses API that are no functions, as coding agents send them: custom tools,
//! namespaces, tools that run at the provider, and calls that the client executes. They reach
//! targets of this dialect as they came, and come back as they came.

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, over},
    upstream::{Reply, Upstream, chunk},
};

const PATCH: &str = "*** Begin Patch\n*** Add File: a\n+\"1\"\n*** End Patch\n";

fn tools() -> Value {
    json!([
        {"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": false},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch"}},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [
            {"type": "function", "name": "spawn", "parameters": {"type": "object"}}]},
        {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object"}},
        {"type": "web_search", "external_web_access": true},
    ])
}

/// What a model makes of them: a search of its provider's, and four calls that the client executes.
fn items() -> Value {
    json!([
        {"id": "rs_9", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA=="},
        {"id": "ws_9", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"id": "fc_9", "type": "function_call", "status": "completed", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"id": "fc_8", "type": "function_call", "status": "completed", "call_id": "c2", "name": "spawn", "arguments": "{}",
            "namespace": "agents"},
        {"id": "ct_9", "type": "custom_tool_call", "status": "completed", "call_id": "c3", "name": "apply_patch",
            "input": PATCH},
        {"id": "ts_9", "type": "tool_search_call", "status": "completed", "execution": "client", "call_id": "c4",
            "arguments": {"query": "mail"}},
    ])
}

fn document(output: &Value) -> Reply {
    let usage = json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7});
    Reply::document(
        &json!({"id": "resp_9", "object": "response", "status": "completed", "model": "gpt-test",
        "output": output, "usage": usage}),
    )
}

/// The same as a stream, with the pieces of the custom tool's input.
fn stream(output: &Value) -> Reply {
    let mut events = vec![
        json!({"type": "response.created", "response": {"id": "resp_9", "model": "gpt-test"}}),
    ];
    for (index, item) in output.as_array().unwrap().iter().enumerate() {
        let mut begun = item.clone();
        if item["type"] == "custom_tool_call" {
            begun["input"] = json!("");
        }
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": begun}),
        );
        if item["type"] == "custom_tool_call" {
            for delta in PATCH.split_inclusive('\n') {
                let item = item["id"].clone();
                events.push(
                    json!({"type": "response.custom_tool_call_input.delta", "output_index": index, "item_id": item,
                    "delta": delta}),
                );
            }
        }
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(
        json!({"type": "response.completed", "response": {"id": "resp_9", "status": "completed",
        "model": "gpt-test", "output": output}}),
    );
    Reply::events(&events.iter().map(Value::to_string).collect::<Vec<_>>())
}

async fn send(front: &Front, body: &Value) -> Answer {
    front
        .send(Method::POST, "/v1/responses", &[], body.to_string())
        .await
}

/// The items of the answer, and those that its stream had, which are the same.
fn output(answer: &Answer, is_streamed: bool) -> Vec<Value> {
    if !is_streamed {
        return answer.json()["output"].as_array().unwrap().clone();
    }
    let events = answer.events();
    let done = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done");
    let items: Vec<Value> = done.map(|event| event["item"].clone()).collect();
    assert_eq!(
        events.last().unwrap()["response"]["output"],
        json!(items),
        "{answer:?}"
    );
    items
}

/// An item without the ids that a response gives to its own.
fn without_id(mut item: Value) -> Value {
    item.as_object_mut().unwrap().shift_remove("id");
    item
}

#[tokio::test]
async fn what_a_provider_of_this_dialect_knows_reaches_it_and_comes_back_as_it_came() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_responses")])).await;
    for is_streamed in [false, true] {
        for reply in [document(&items()), stream(&items())] {
            upstream.push(reply);
            let choice =
                json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]});
            let mut body = json!({"model": "chat", "input": "Why?", "stream": is_streamed, "store": false,
                "tools": tools(), "tool_choice": choice});
            let answer = send(&front, &body).await;
            assert_eq!(
                (answer.status, answer.header("x-relight-adapted")),
                (200, None),
                "{answer:?}"
            );
            let sent = upstream.requests().last().unwrap().body.clone();
            assert_eq!(
                (&sent["tools"], &sent["tool_choice"]),
                (&tools(), &choice),
                "{sent}"
            );
            let made = output(&answer, is_streamed);
            let expected: Vec<Value> = items()
                .as_array()
                .unwrap()
                .iter()
                .cloned()
                .map(without_id)
                .collect();
            let mut without_ids: Vec<Value> = made.iter().cloned().map(without_id).collect();
            // What its provider needs back is in an envelope.
            without_ids[0]["encrypted_content"] = json!("gAAAA==");
            assert_eq!(without_ids, expected, "{answer:?}");
            if is_streamed {
                let deltas = answer
                    .events()
                    .into_iter()
                    .filter(|it| it["type"] == "response.custom_tool_call_input.delta");
                let input: String = deltas
                    .map(|event| event["delta"].as_str().unwrap().to_owned())
                    .collect();
                assert_eq!(input, PATCH);
            }

            upstream.push(document(
                &json!([{"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "Done."}]}]),
            ));
            let results = [
                json!({"type": "function_call_output", "call_id": "c1", "output": "1"}),
                json!({"type": "function_call_output", "call_id": "c2", "output": "2"}),
                json!({"type": "custom_tool_call_output", "call_id": "c3", "output": "Done."}),
                json!({"type": "tool_search_output", "call_id": "c4", "status": "completed", "execution": "client",
                    "tools": [{"type": "function", "name": "mail"}]}),
            ];
            let question = json!({"role": "user", "content": "Why?"});
            body["input"] = [question]
                .into_iter()
                .chain(made)
                .chain(results.clone())
                .collect();
            let answer = send(&front, &body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let sent = upstream.requests().last().unwrap().body["input"]
                .as_array()
                .unwrap()
                .clone();
            let given_back: Vec<Value> = sent[1..7].iter().cloned().map(without_id).collect();
            // Calls of functions and custom tools are written anew, without their status.
            let without_status = |mut items: Vec<Value>| {
                for item in items.iter_mut().filter(|item| !item["name"].is_null()) {
                    item.as_object_mut().unwrap().shift_remove("status");
                }
                items
            };
            assert_eq!(
                without_status(given_back),
                without_status(expected),
                "{sent:?}"
            );
            assert_eq!(sent[7..], results, "{sent:?}");
        }
    }
}

#[tokio::test]
async fn a_custom_tool_is_a_function_elsewhere_and_what_cannot_be_offered_is_reported() {
    let upstream = Upstream::start().await;
    let arguments = json!({ "input": PATCH }).to_string();
    let call = json!({"tool_calls": [{"index": 0, "id": "c3", "type": "function",
        "function": {"name": "apply_patch", "arguments": arguments}}]});
    upstream.otherwise(Reply::events(&[
        chunk(&call, None),
        chunk(&json!({}), Some("tool_calls")),
    ]));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for is_streamed in [false, true] {
        let mut body = json!({"model": "chat", "input": "Why?", "stream": is_streamed, "store": false, "tools": tools()});
        let answer = send(&front, &body).await;
        let adapted = "the tools agents, tool_search, web_search of openai_responses left out";
        assert_eq!(
            (answer.status, answer.header("x-relight-adapted")),
            (200, Some(adapted)),
            "{answer:?}"
        );
        let sent = upstream.requests().last().unwrap().body["tools"]
            .as_array()
            .unwrap()
            .clone();
        let names: Vec<&Value> = sent.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["read", "apply_patch"], "{sent:?}");
        let words = sent[1]["function"]["parameters"]["properties"]["input"]["description"]
            .as_str()
            .unwrap();
        assert!(words.contains("start: begin_patch"), "{words}");
        let made = output(&answer, is_streamed);
        assert_eq!(
            (&made[0]["type"], &made[0]["input"]),
            (&json!("custom_tool_call"), &json!(PATCH)),
            "{made:?}"
        );

        let result = json!({"type": "custom_tool_call_output", "call_id": "c3", "output": "Done."});
        body["input"] = json!([{"role": "user", "content": "Why?"}, made[0], result]);
        assert_eq!(send(&front, &body).await.status, 200);
        let sent = upstream.requests().last().unwrap().body["messages"].clone();
        let call: Value = serde_json::from_str(
            sent[1]["tool_calls"][0]["function"]["arguments"]
                .as_str()
                .unwrap(),
        )
        .unwrap();
        assert_eq!(
            (&call["input"], &sent[2]["content"]),
            (&json!(PATCH), &json!("Done.")),
            "{sent}"
        );
    }
}

#[tokio::test]
async fn how_tools_may_be_called_reaches_a_provider_that_is_offered_none_but_its_own() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_responses")])).await;
    upstream.push(document(
        &json!([{"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "Found."}]}]),
    ));
    let body = json!({"model": "chat", "input": "Why?", "store": false, "tools": [{"type": "web_search"}],
        "tool_choice": "required", "parallel_tool_calls": false});
    let answer = send(&front, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = upstream.requests().last().unwrap().body.clone();
    for field in ["tools", "tool_choice", "parallel_tool_calls"] {
        assert_eq!(sent[field], body[field], "{sent}");
    }
}

#[tokio::test]
async fn the_output_of_a_function_is_text_whatever_its_name_is() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_responses")])).await;
    upstream.push(document(
        &json!([{"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "Three."}]}]),
    ));
    let call =
        json!({"type": "function_call", "call_id": "c1", "name": "shell_call", "arguments": "{}"});
    let result =
        json!({"type": "function_call_output", "call_id": "c1", "output": "{\"lines\":3}"});
    let input = json!([{"role": "user", "content": "How many?"}, call, result]);
    let answer = send(
        &front,
        &json!({"model": "chat", "input": input, "store": false}),
    )
    .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = upstream.requests().last().unwrap().body["input"].clone();
    assert_eq!((&sent[1], &sent[2]), (&call, &result), "{sent}");
}
