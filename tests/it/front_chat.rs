//! A client of the chat completions API needs nothing but another base URL: documents, lists,
//! limits, deadlines.

mod refusals;

use hyper::Method;
use serde_json::{Value, json};

use crate::support::{
    front::{self, Front, question},
    upstream::{Reply, Upstream},
};

/// One route over one target per upstream.
fn over(upstreams: &[&Upstream]) -> String {
    let (mut providers, mut targets, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (index, upstream) in upstreams.iter().enumerate() {
        let url = upstream.base_url();
        providers.push(format!(
            "  p{index}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true }}"
        ));
        targets.push(format!(
            "  t{index}: {{ provider: p{index}, model: model-{index} }}"
        ));
        names.push(format!("t{index}"));
    }
    let (providers, targets, names) = (providers.join("\n"), targets.join("\n"), names.join(", "));
    format!(
        "providers:\n{providers}\ntargets:\n{targets}\nroutes:\n  chat: {{ targets: [{names}] }}\n"
    )
}

#[tokio::test]
async fn a_response_is_a_document_with_usage_and_names_its_invocation() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over(&[&upstream])).await;
    let answer = front.ask("chat", false).await;
    assert!(answer.succeeded_with("Hello from upstream."), "{answer:?}");
    let document = answer.json();
    assert_eq!(document["object"], "chat.completion");
    assert_eq!(document["choices"][0]["finish_reason"], "stop");
    assert_eq!(document["usage"]["total_tokens"], 13);
    let invocation = answer.header("x-relight-invocation").unwrap();
    assert_eq!(document["id"], format!("chatcmpl-{invocation}"));
    assert_eq!(answer.header("x-request-id"), Some(invocation));
    assert_eq!(
        (
            answer.header("x-relight-attempts"),
            answer.header("x-relight-target")
        ),
        (Some("1"), Some("t0"))
    );
}

#[tokio::test]
async fn a_clients_messages_reach_the_model_unchanged() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over(&[&upstream])).await;
    let mut body = question("chat", false);
    let function = json!({"name": "add", "parameters": {"type": "object"}, "strict": true});
    body["tools"] = json!([{"type": "function", "function": function}]);
    let image = json!({"url": "data:image/png;base64,aGk=", "detail": "low"});
    body["messages"] = json!([
        {"role": "user", "name": "ann", "content": [{"type": "image_url", "image_url": image}]},
        {"role": "assistant", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]);
    body["temperature"] = json!(0.25);
    body["logit_bias"] = json!({"7": 1});
    let headers = [(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )];
    let answer = front
        .send(
            Method::POST,
            "/v1/chat/completions",
            &headers,
            body.to_string(),
        )
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = upstream.await_request(1).await.body;
    assert_eq!(sent["model"], "model-0");
    assert_eq!(sent["messages"][0], body["messages"][0]);
    assert_eq!(
        sent["messages"][1]["tool_calls"][0]["function"]["name"],
        "add"
    );
    assert_eq!(
        sent["messages"][2],
        json!({"role": "tool", "tool_call_id": "c1", "content": "2"})
    );
    assert_eq!(
        (&sent["temperature"], &sent["logit_bias"]),
        (&json!(0.25), &json!({"7": 1}))
    );
    assert_eq!(sent["tools"], body["tools"]);
}

#[tokio::test]
async fn a_model_is_a_route_or_a_target_of_one_and_nothing_else() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let more = "  lonely: { targets: [t1] }\ndefault_route: chat\n";
    let config = over(&[&first, &second]).replace("targets: [t0, t1]", "targets: [t0]");
    let front = Front::start(&format!("{config}{more}")).await;
    let answer = front.ask("t1", false).await;
    assert_eq!(answer.header("x-relight-target"), Some("t1"));
    assert_eq!((first.requests().len(), second.requests().len()), (0, 1));

    let answer = front.ask("chta", false).await;
    assert_eq!(
        (answer.status, answer.error()["code"].as_str()),
        (404, Some("model_not_found"))
    );
    assert!(
        answer.error()["message"]
            .as_str()
            .unwrap()
            .contains("did you mean `chat`?"),
        "{answer:?}"
    );

    let list = front.send(Method::GET, "/v1/models", &[], "").await.json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["chat", "lonely", "t0", "t1"]);
    assert_eq!(
        front
            .send(Method::GET, "/v1/models/chat", &[], "")
            .await
            .json()["owned_by"],
        "relight"
    );
    assert_eq!(
        front
            .send(Method::GET, "/v1/models/gone", &[], "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn an_answer_as_long_as_the_client_allowed_is_passed_on_whatever_it_lacks() {
    for (model_said, format) in [("", "text"), ("{\"name\":", "json_object")] {
        let upstream = Upstream::start().await;
        let message = json!({"role": "assistant", "content": model_said});
        let choice = json!({"index": 0, "message": message, "finish_reason": "length"});
        let document =
            json!({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]})
                .to_string();
        upstream.otherwise(Reply::body(
            200,
            &[("content-type", "application/json")],
            document.as_bytes(),
        ));
        let front = Front::start(&over(&[&upstream])).await;
        let mut body = question("chat", false);
        body["max_completion_tokens"] = json!(16);
        body["response_format"] = json!({"type": format});
        let answer = front
            .send(Method::POST, "/v1/chat/completions", &[], body.to_string())
            .await;
        assert_eq!(
            (answer.status, upstream.requests().len()),
            (200, 1),
            "{answer:?}"
        );
        let choice = &answer.json()["choices"][0];
        assert_eq!(choice["finish_reason"], "length", "{answer:?}");
        assert_eq!(
            choice["message"]["content"].as_str().unwrap_or_default(),
            model_said,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_tool_call_that_the_clients_own_limit_cut_is_left_out_and_whole_ones_are_passed_on() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "add", "arguments": arguments}});
    let whole = call("c1", "{\"a\":1}");
    for (calls, passed_on) in [
        (json!([call("c1", "{\"a\":")]), json!([])),
        (json!([call("c1", "")]), json!([])),
        (json!([whole, call("c2", "{\"a\":")]), json!([whole])),
    ] {
        let upstream = Upstream::start().await;
        let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        let choice = json!({"index": 0, "message": message, "finish_reason": "length"});
        upstream.otherwise(Reply::document(
            &json!({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]}),
        ));
        let front = Front::start(&over(&[&upstream])).await;
        for stream in [false, true] {
            let mut body = question("chat", stream);
            body["max_tokens"] = json!(16);
            let parameters = json!({"type": "object"});
            body["tools"] = json!([{"type": "function", "function": {"name": "add", "parameters": parameters}}]);
            let before = upstream.requests().len();
            let answer = front.chat(&body).await;
            assert_eq!(
                (answer.status, upstream.requests().len()),
                (200, before + 1),
                "{answer:?}"
            );
            let choices: Vec<Value> = if stream {
                assert!(answer.is_done(), "{answer:?}");
                answer
                    .events()
                    .iter()
                    .map(|event| event["choices"][0].clone())
                    .collect()
            } else {
                vec![answer.json()["choices"][0].clone()]
            };
            assert!(
                choices
                    .iter()
                    .any(|choice| choice["finish_reason"] == "length"),
                "{answer:?}"
            );
            let ids: Vec<&Value> = choices
                .iter()
                .flat_map(|choice| {
                    ["/delta/tool_calls", "/message/tool_calls"].map(|at| choice.pointer(at))
                })
                .flatten()
                .flat_map(|calls| calls.as_array().unwrap())
                .filter_map(|call| call.get("id"))
                .collect();
            let expected: Vec<&Value> = passed_on
                .as_array()
                .unwrap()
                .iter()
                .map(|call| &call["id"])
                .collect();
            assert_eq!(ids, expected, "{answer:?}");
        }
    }
}

#[tokio::test]
async fn the_description_of_a_schema_reaches_a_provider_that_takes_one() {
    let schema = json!({"name": "n", "description": "What it is.", "schema": {"type": "object"}, "strict": true});
    let mut flat = schema.clone();
    flat["type"] = json!("json_schema");
    for dialect in ["openai_chat", "openai_responses"] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::status(400));
        let front = Front::start(&front::over("chat", &[(&upstream, dialect)])).await;
        let mut chat = question("chat", false);
        chat["response_format"] = json!({"type": "json_schema", "json_schema": schema});
        front.chat(&chat).await;
        let response = json!({"model": "chat", "input": "Why?", "text": {"format": flat}});
        front
            .send(Method::POST, "/v1/responses", &[], response.to_string())
            .await;
        let sent = upstream.requests();
        assert_eq!(sent.len(), 2);
        for request in sent {
            let places = ["/response_format/json_schema", "/text/format"];
            let format = places
                .iter()
                .find_map(|at| request.body.pointer(at))
                .unwrap();
            assert_eq!(format["description"], "What it is.", "{request:?}");
        }
    }
}

#[tokio::test]
async fn a_deadline_of_the_client_is_kept() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let front = Front::start(&over(&[&upstream])).await;
    for header in [
        ("x-relight-deadline-ms", "300"),
        ("x-request-timeout", "0.3"),
    ] {
        let answer = front
            .send(
                Method::POST,
                "/v1/chat/completions",
                &[header],
                question("chat", false).to_string(),
            )
            .await;
        assert_eq!(
            (answer.status, answer.error()["code"].as_str()),
            (504, Some("timeout")),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_the_upstream_call() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        let slow = if stream {
            Reply::text("One two three.").stall_after(220)
        } else {
            Reply::silence()
        };
        upstream.otherwise(slow);
        let front = Front::start(&over(&[&upstream])).await;
        let call = front.ask("chat", stream);
        tokio::select! {
            answer = call => panic!("nothing should come of it: {answer:?}"),
            _ = upstream.await_request(1) => {}
        }
        upstream.await_cancel(1).await;
    }
}
