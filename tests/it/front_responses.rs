//! A client of `OpenAI`'s Responses API needs nothing but another base URL, whatever family the
//! model is of.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, over},
    upstream::{Reply, Upstream, chunk},
};

const TEXT: &str = "One two three four five six.";

fn question(stream: bool) -> Value {
    json!({"model": "chat", "input": "Why?", "stream": stream})
}

async fn ask(front: &Front, body: &Value) -> Answer {
    front
        .send(Method::POST, "/v1/responses", &[], body.to_string())
        .await
}

/// The response that a client of the stream holds at the end; it fails where the events do not fit
/// each other.
fn folded(answer: &Answer) -> Value {
    let (mut items, mut texts) = (Vec::<Value>::new(), Vec::<String>::new());
    let mut last = Value::Null;
    for (number, event) in (0_u64..).zip(answer.events()) {
        assert_eq!(event["sequence_number"], number, "{answer:?}");
        let index = usize::try_from(event["output_index"].as_u64().unwrap_or(0)).unwrap();
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert_eq!(index, items.len());
                items.push(event["item"].clone());
                texts.push(String::new());
            }
            "response.output_item.done" => {
                assert_eq!(items[index]["id"], event["item"]["id"], "{answer:?}");
                items[index] = event["item"].clone();
            }
            "response.output_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.function_call_arguments.delta" => {
                assert_eq!(items[index]["id"], event["item_id"], "{answer:?}");
                texts[index] += event["delta"].as_str().unwrap();
            }
            _ => {}
        }
        last = event;
    }
    if last["type"] == "response.completed" {
        assert_eq!(
            last["response"]["output"],
            json!(items),
            "the end says what was streamed: {answer:?}"
        );
        for (item, text) in items.iter().zip(texts) {
            let whole = ["/content/0/text", "/summary/0/text", "/arguments"]
                .iter()
                .find_map(|it| item.pointer(it));
            assert_eq!(
                whole.and_then(Value::as_str).unwrap_or_default(),
                text,
                "{answer:?}"
            );
        }
    }
    last["response"].clone()
}

#[tokio::test]
async fn a_response_is_a_document_or_a_stream_of_the_same() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for stream in [false, true] {
        let mut body = question(stream);
        body["instructions"] = json!("Be brief.");
        body["metadata"] = json!({"job": "7"});
        body["truncation"] = json!("auto");
        let answer = ask(&front, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let response = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        assert_eq!(
            (&response["object"], &response["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert_eq!(response["output"][0]["content"][0]["text"], TEXT);
        for repeated in ["instructions", "metadata", "truncation"] {
            assert_eq!(response[repeated], body[repeated], "{response}");
        }
        assert_eq!(response["usage"]["output_tokens"], 6);
        let invocation = answer.header("x-relight-invocation").unwrap();
        assert_eq!(response["id"], format!("resp_{invocation}"));
        assert_eq!(answer.header("x-relight-target"), Some("t0"));
        let sent = upstream.requests().last().unwrap().body.clone();
        assert_eq!(
            sent["messages"][0],
            json!({"role": "system", "content": "Be brief."})
        );
    }
}

#[tokio::test]
async fn thoughts_and_calls_are_items_and_what_their_provider_needs_back_comes_back_to_it() {
    let openai = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&openai, "openai_responses")])).await;
    let own = json!({"id": "rs_9", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "gAAAA=="});
    let call = json!({"id": "fc_9", "type": "function_call", "call_id": "call_9", "name": "add",
        "arguments": "{\"a\":1}", "status": "completed"});
    let usage = json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7});
    for stream in [true, false] {
        let whole = json!({"id": "resp_9", "object": "response", "status": "completed", "model": "gpt-test",
            "output": [own, call], "usage": usage});
        openai.push(Reply::document(&whole));
        let mut body = question(stream);
        body["store"] = json!(false);
        body["tools"] =
            json!([{"type": "function", "name": "add", "parameters": {"type": "object"}}]);
        let answer = ask(&front, &body).await;
        let response = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        let output = response["output"].as_array().unwrap();
        let kinds: Vec<&str> = output
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["reasoning", "function_call"], "{answer:?}");
        assert_eq!(
            (&output[0]["summary"], &output[1]["call_id"]),
            (&own["summary"], &json!("call_9"))
        );
        assert_eq!(response["store"], false);

        openai.push(Reply::document(&json!({"id": "resp_10", "status": "completed", "model": "gpt-test", "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two."}]}]})));
        let result = json!({"type": "function_call_output", "call_id": "call_9", "output": "2"});
        body["input"] = json!([{"role": "user", "content": "Why?"}, output[0], output[1], result]);
        let answer = ask(&front, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = openai.requests().last().unwrap().body.clone();
        assert_eq!(
            sent["input"][1], own,
            "reasoning goes back as it came: {sent}"
        );
        assert_eq!(sent["input"][3]["output"], "2");
    }
}

#[tokio::test]
async fn a_conversation_goes_on_from_its_newest_response_and_from_no_other() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let mut body = question(false);
    body["instructions"] = json!("Be brief.");
    let first = ask(&front, &body).await.json();
    assert_eq!(
        first["store"], true,
        "a response is stored unless the request says otherwise: {first}"
    );
    body["previous_response_id"] = first["id"].clone();
    body["input"] = json!("And then?");
    body["stream"] = json!(true);
    let second = folded(&ask(&front, &body).await);
    assert_eq!(second["previous_response_id"], first["id"]);
    let sent = upstream.requests().last().unwrap().body["messages"].clone();
    let roles: Vec<&str> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "user"],
        "instructions are not repeated: {sent}"
    );
    assert_eq!(
        (&sent[2]["content"], &sent[3]["content"]),
        (&json!(TEXT), &json!("And then?"))
    );

    body["stream"] = json!(false);
    let answer = ask(&front, &body).await;
    assert_eq!(
        (answer.status, answer.error()["param"].as_str()),
        (400, Some("previous_response_id")),
        "{answer:?}"
    );
    body["previous_response_id"] = json!("resp_none");
    let answer = ask(&front, &body).await;
    assert_eq!(
        (answer.status, &answer.error()["code"]),
        (400, &json!("previous_response_not_found"))
    );

    let kept = front
        .send(
            Method::GET,
            &format!("/v1/responses/{}", second["id"].as_str().unwrap()),
            &[],
            "",
        )
        .await;
    assert_eq!(
        (kept.status, &kept.json()["output"]),
        (200, &second["output"]),
        "{kept:?}"
    );
    assert_eq!(
        front
            .send(Method::GET, "/v1/responses/resp_none", &[], "")
            .await
            .status,
        404
    );

    let item = second["output"][0]["id"].clone();
    let reference = json!({"type": "item_reference", "id": item});
    let asked = json!({"model": "chat", "input": [{"role": "user", "content": "Why?"}, reference,
        {"role": "user", "content": "Go on."}]});
    let answer = ask(&front, &asked).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = upstream.requests().last().unwrap().body["messages"].clone();
    assert_eq!(
        sent[1]["content"], TEXT,
        "a reference stands for what it names: {sent}"
    );
}

#[tokio::test]
async fn the_same_key_and_body_get_the_same_response() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(TEXT));
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let headers = [("idempotency-key", "k-1")];
        let answer = front
            .send(
                Method::POST,
                "/v1/responses",
                &headers,
                question(false).to_string(),
            )
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        ids.push(answer.json()["id"].clone());
    }
    assert_eq!((&ids[0], upstream.requests().len()), (&ids[1], 1));
}

#[tokio::test]
async fn a_cut_stream_goes_on_without_a_seam_or_ends_in_this_protocols_error() {
    for (second, is_whole) in [(TEXT, true), ("Something else.", false)] {
        let (a, b) = (Upstream::start().await, Upstream::start().await);
        let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
        events.extend(
            TEXT.split_inclusive(' ')
                .take(3)
                .map(|word| chunk(&json!({"content": word}), None)),
        );
        let cut = Reply::events(&events);
        let bytes = cut.body_bytes().len();
        a.otherwise(cut.paced(Duration::from_millis(5)).cut_after(bytes));
        b.otherwise(Reply::text(second));
        let front = Front::start(&over("chat", &[(&a, "openai_chat"), (&b, "openai_chat")])).await;
        let answer = ask(&front, &question(true)).await;
        let response = folded(&answer);
        assert_eq!((answer.status, answer.clean), (200, true));
        if is_whole {
            assert_eq!(
                response["output"][0]["content"][0]["text"], TEXT,
                "{answer:?}"
            );
        } else {
            assert_eq!(
                (&response["status"], &response["error"]["code"]),
                (&json!("failed"), &json!("stream_interrupted"))
            );
            let error = answer
                .events()
                .into_iter()
                .find(|event| event["type"] == "error")
                .unwrap();
            assert_eq!(
                (&error["code"], &error["error"]["code"]),
                (&json!("stream_interrupted"), &error["code"])
            );
        }
    }
}

#[tokio::test]
async fn a_fault_of_the_request_names_its_field_and_costs_nothing() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    for (body, param) in [
        (
            json!({"model": "chat", "input": "x", "background": true}),
            "background",
        ),
        (
            json!({"model": "chat", "input": [{"type": "item_reference", "id": "msg_none_0"}]}),
            "input[0].id",
        ),
        (
            json!({"model": "chat", "input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].image_url",
        ),
    ] {
        let answer = ask(&front, &body).await;
        assert_eq!(
            (answer.status, answer.error()["param"].as_str()),
            (400, Some(param)),
            "{answer:?}"
        );
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_stored_response_is_a_document_or_a_stream_as_the_query_asks() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let made = ask(&front, &question(false)).await.json();
    assert_eq!(made["truncation"], "disabled", "{made}");
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    for (query, kind) in [
        ("", "application/json"),
        ("?stream=false&include=x", "application/json"),
        ("?stream=true", "text/event-stream; charset=utf-8"),
        ("?a=b&stream=1", "text/event-stream; charset=utf-8"),
    ] {
        let answer = front
            .send(Method::GET, &format!("{path}{query}"), &[], "")
            .await;
        let seen = (answer.status, answer.header("content-type"));
        assert_eq!(seen, (200, Some(kind)), "{query}: {answer:?}");
        if kind.starts_with("text") {
            let events = answer.events();
            let ended = &events.last().unwrap()["response"];
            assert_eq!(
                (&ended["status"], &ended["output"]),
                (&made["status"], &made["output"])
            );
        }
    }
    let query = format!("{path}?starting_after=1");
    let refused = front.send(Method::GET, &query, &[], "").await;
    assert_eq!(refused.error()["param"], "starting_after", "{refused:?}");
}

/// Sends a request without a body about this response.
async fn about(front: &Front, method: Method, response: &Value, rest: &str) -> Answer {
    let path = format!("/v1/responses/{}{rest}", response["id"].as_str().unwrap());
    front.send(method, &path, &[], "").await
}

#[tokio::test]
async fn the_input_of_a_stored_response_is_listed_in_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("journal.db").display());
    let tool = json!({"type": "custom", "name": "shell"});
    for store in ["memory", file.as_str()] {
        let upstream = Upstream::start().await;
        let arguments = json!({"input": "ls"}).to_string();
        upstream.push(Reply::text(TEXT));
        upstream.push(Reply::tool_call("shell", &arguments));
        let settings = over("chat", &[(&upstream, "openai_chat")]);
        let front = Front::start(&format!("{settings}journal: {{ store: \"{store}\" }}\n")).await;
        let input = json!([{"role": "user", "content": "One."}, {"role": "assistant", "content": "Two."},
            {"role": "user", "content": "Three."}]);
        let body = json!({"model": "chat", "instructions": "Be brief.", "input": input});
        let first = ask(&front, &body).await.json();
        let previous = first["id"].clone();
        let body = json!({"model": "chat", "input": "Four.", "previous_response_id": previous, "tools": [tool]});
        let second = ask(&front, &body).await.json();
        for (response, expected) in [
            (&first, &["One.", "Two.", "Three."][..]),
            (&second, &["Four."][..]),
        ] {
            let listed = about(&front, Method::GET, response, "/input_items?order=asc").await;
            assert_eq!(listed.status, 200, "{store}: {listed:?}");
            let listed = listed.json();
            let items = listed["data"].as_array().unwrap();
            let said: Vec<&str> = items
                .iter()
                .map(|item| item["content"][0]["text"].as_str().unwrap())
                .collect();
            assert_eq!(said, expected, "{store}");
        }
        let kept = about(&front, Method::GET, &second, "").await.json();
        assert_eq!(kept["output"], second["output"], "{store}");
        assert_eq!(kept["output"][0]["type"], "custom_tool_call", "{store}");
    }
}

#[tokio::test]
async fn a_response_is_not_deleted_and_stays_what_it_is() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    let made = ask(&front, &question(false)).await.json();
    let refused = about(&front, Method::DELETE, &made, "").await;
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET, HEAD")),
        "{refused:?}"
    );
    assert_eq!(refused.error()["code"], "not_deletable", "{refused:?}");
    let kept = about(&front, Method::GET, &made, "").await;
    assert_eq!(
        (kept.status, &kept.json()["output"]),
        (200, &made["output"])
    );
    let unknown = about(&front, Method::DELETE, &json!({"id": "resp_none"}), "").await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}
