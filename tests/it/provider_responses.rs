//! A response of the Responses API is complete, or it is an error that names the fault: over real
//! sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
        failure::{Surface, TransportFault},
        message::{
            Media, MediaSource, Message, ModelCall, Opaque, Part, Reasoning, ResponseFormat, Role,
            ToolChoice, ToolDefinition,
        },
        target::Dialect,
    },
    provider::{KeyHeader, ProviderSpec},
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{
        answer_in, assert_no_cut_looks_whole, assert_pieces_do_not_matter, attempt_in, continued,
        exchange, fixture, speaking, stream,
    },
    upstream::{Reply, Upstream},
    wire::{ask, asking, providers},
};

const RESPONSES: Dialect = Dialect::OpenaiResponses;

fn events(events: &[Value]) -> Reply {
    let named = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    stream(events.iter().map(named).collect::<String>().as_bytes())
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-test-1", "status": "in_progress"}})
}

fn text_delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 0, "item": item})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "error": null, "output": []}})
}

fn said(text: &str) -> Reply {
    events(&[
        created(),
        text_delta(text),
        done(&message(text)),
        completed(),
    ])
}

#[tokio::test]
async fn reasoning_text_and_parallel_calls_come_with_usage_and_finish() {
    let seen = answer_in(RESPONSES, stream(&fixture("responses/reasoning_tools.sse"))).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Let me look.");
    assert_eq!(
        seen.text_of(&BlockKind::Reasoning),
        "Two towns, two calls.\n\nThen – “rain”."
    );
    let calls = [
        (
            "call_a".to_owned(),
            "weather".to_owned(),
            "{\"town\": \"Oslo\"}".to_owned(),
            true,
        ),
        (
            "call_b".to_owned(),
            "list_towns".to_owned(),
            "{}".to_owned(),
            true,
        ),
    ];
    assert_eq!(seen.tool_calls(), calls);
    let finish = Delta::Finish {
        reason: FinishReason::ToolCalls,
        raw: "completed".to_owned(),
    };
    assert_eq!(seen.deltas.last(), Some(&finish));
    let usage = Usage {
        input_tokens: 50,
        output_tokens: 25,
        cached_input_tokens: Some(32),
        cache_write_tokens: None,
        reasoning_tokens: Some(10),
        exactness: Exactness::Exact,
    };
    assert_eq!(seen.usage(), Some(usage));
}

#[tokio::test]
async fn what_the_model_thought_and_did_goes_back_as_it_came() {
    let call = asking("Weather in my towns?");
    let (seen, _) = exchange(
        RESPONSES,
        stream(&fixture("responses/reasoning_tools.sse")),
        call.clone(),
    )
    .await;
    let (_, request) = exchange(RESPONSES, said("Rain."), continued(call, &seen)).await;
    let summary = json!([
        {"type": "summary_text", "text": "Two towns, two calls."},
        {"type": "summary_text", "text": "Then – “rain”."},
    ]);
    let input = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather in my towns?"}]},
        {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAAAABo+/x=="},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"id": "ws_1", "type": "web_search_call", "status": "completed"},
        {"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": "{\"town\": \"Oslo\"}"},
        {"type": "function_call", "call_id": "call_b", "name": "list_towns", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_a", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_b", "output": "rain"},
    ]);
    assert_eq!(request.body["input"], input);
}

#[tokio::test]
async fn reasoning_goes_back_only_with_what_it_led_to_and_never_to_strangers() {
    let thought = |kind: &str| {
        let bytes = b"{\"type\":\"reasoning\",\"encrypted_content\":\"x\",\"summary\":[]}".to_vec();
        Part::Reasoning(Reasoning {
            text: "hm".into(),
            opaque: Some(Opaque {
                kind: kind.into(),
                bytes,
            }),
        })
    };
    let own = "openai.encrypted_content";
    let mut call = asking("Hi");
    let parts = vec![
        thought("anthropic.signature"),
        Part::Text("Hello".into()),
        thought(own),
    ];
    call.messages.push(Message::new(Role::Assistant, parts));
    call.messages.push(Message::text(Role::User, "And?"));
    let (_, request) = exchange(RESPONSES, said("Ok"), call).await;
    let types: Vec<&str> = request.body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(types, ["message"; 3]);
}

#[tokio::test]
async fn no_cut_before_response_completed_looks_whole() {
    let body = fixture("responses/reasoning_tools.sse");
    let mark = body
        .windows(18)
        .rposition(|window| window == b"response.completed")
        .unwrap();
    assert_no_cut_looks_whole(RESPONSES, &body, mark, stream).await;
}

#[tokio::test]
async fn the_pieces_in_which_bytes_come_do_not_matter() {
    assert_pieces_do_not_matter(RESPONSES, stream(&fixture("responses/reasoning_tools.sse"))).await;
}

#[tokio::test]
async fn an_incomplete_response_reports_why() {
    let table = [
        ("max_output_tokens", FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter),
        ("something_new", FinishReason::Other),
    ];
    for (raw, expected) in table {
        let response = json!({
            "id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": raw},
            "usage": {"input_tokens": 1, "output_tokens": 2},
        });
        let end = json!({"type": "response.incomplete", "response": response});
        let seen = answer_in(
            RESPONSES,
            events(&[created(), text_delta("Well"), done(&message("Well")), end]),
        )
        .await;
        assert_eq!((seen.text().as_str(), seen.error.as_ref()), ("Well", None));
        assert_eq!(
            seen.deltas.last(),
            Some(&Delta::Finish {
                reason: expected,
                raw: raw.to_owned()
            })
        );
        assert_eq!(seen.usage().map(|usage| usage.output_tokens), Some(2));
    }
}

#[tokio::test]
async fn a_call_cut_at_the_output_limit_is_not_to_be_acted_upon() {
    let item = |status: &str, arguments: &str| json!({"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": arguments, "status": status});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item("in_progress", "")});
    let piece =
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{}"});
    let response =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    let end = json!({"type": "response.incomplete", "response": response});
    let all = [
        created(),
        added.clone(),
        piece.clone(),
        done(&item("incomplete", "{}")),
        end,
    ];
    let seen = answer_in(RESPONSES, events(&all)).await;
    assert_eq!(seen.finish(), Some(FinishReason::Length));
    assert!(!seen.tool_calls()[0].3, "a torn call may be acted upon");
    // The same call in a response that claims to be whole is a fault.
    let seen = answer_in(RESPONSES, events(&[created(), added, piece, completed()])).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
}

#[tokio::test]
async fn a_refusal_is_reported_as_one() {
    let item = json!({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]});
    let delta = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."});
    let streamed = answer_in(
        RESPONSES,
        events(&[created(), delta, done(&item), completed()]),
    )
    .await;
    let at_once = answer_in(RESPONSES, events(&[created(), done(&item), completed()])).await;
    for seen in [streamed, at_once] {
        assert_eq!(seen.text_of(&BlockKind::Refusal), "No.");
        assert_eq!(seen.finish(), Some(FinishReason::Refusal));
    }
}

#[tokio::test]
async fn every_shape_of_an_error_inside_a_stream_is_one() {
    let flat = json!({"type": "error", "code": "server_is_overloaded", "message": "Busy", "param": null, "sequence_number": 3});
    let nested =
        json!({"type": "error", "error": {"type": "rate_limit_exceeded", "message": "Slow"}});
    let stated = json!({"type": "error", "status": 402, "error": {"code": "something_new", "message": "Pay"}});
    let bare = json!({"type": "", "error": {"code": "server_error", "message": "Oops"}});
    for (error, status) in [(flat, 503), (nested, 429), (stated, 402), (bare, 500)] {
        for before in [vec![], vec![created()], vec![created(), text_delta("Hel")]] {
            let seen = answer_in(RESPONSES, events(&[before, vec![error.clone()]].concat())).await;
            let failed = seen.failed();
            assert_eq!(
                (failed.status, failed.surface, failed.fault),
                (Some(status), Surface::Stream, None),
                "{error}"
            );
            assert_eq!(failed.body.as_deref(), Some(error.to_string().as_str()));
        }
    }
}

#[tokio::test]
async fn an_item_that_ends_as_another_kind_than_it_began_breaks_the_stream() {
    let item = |kind: &str| json!({"type": kind, "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]});
    let added =
        json!({"type": "response.output_item.added", "output_index": 0, "item": item("message")});
    for (kind, is_whole) in [("message", true), ("mesage", false)] {
        let all = [created(), added.clone(), done(&item(kind)), completed()];
        let seen = answer_in(RESPONSES, events(&all)).await;
        assert_eq!(seen.finish().is_some(), is_whole, "{kind}: {seen:?}");
    }
}

#[tokio::test]
async fn a_failed_response_is_its_error_without_the_request_around_it() {
    let error = json!({"code": "rate_limit_exceeded", "message": "Slow down."});
    let response =
        json!({"id": "resp_1", "status": "failed", "error": error, "instructions": "secret"});
    let end = json!({"type": "response.failed", "response": response});
    let streamed = answer_in(RESPONSES, events(&[created(), text_delta("Hel"), end])).await;
    let whole = answer_in(RESPONSES, Reply::document(&response)).await;
    for seen in [streamed, whole] {
        assert_eq!(seen.failed().status, Some(429));
        assert_eq!(
            seen.failed().body.as_deref(),
            Some(json!({"error": error}).to_string().as_str())
        );
    }
}

#[tokio::test]
async fn a_document_is_an_answer_too_and_a_background_one_is_none() {
    let call = json!({"type": "function_call", "call_id": "call_a", "name": "weather", "arguments": "{}", "status": "completed"});
    let document = json!({"object": "response", "id": "resp_1", "model": "gpt-test-1", "status": "completed", "error": null,
        "output": [message("Hello"), call], "usage": {"input_tokens": 3, "output_tokens": 4}});
    let seen = answer_in(RESPONSES, Reply::document(&document)).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("Hello", Some(FinishReason::ToolCalls))
    );
    assert_eq!(seen.usage().map(|usage| usage.input_tokens), Some(3));
    let queued = answer_in(
        RESPONSES,
        Reply::document(&json!({"status": "queued", "error": null})),
    )
    .await;
    assert_eq!(queued.failed().fault, Some(TransportFault::Protocol));
    let error = answer_in(
        RESPONSES,
        Reply::document(&json!({"error": {"code": "server_error"}})),
    )
    .await;
    assert_eq!(
        (error.failed().status, error.failed().fault),
        (Some(500), None)
    );
}

#[tokio::test]
async fn an_answer_that_comes_only_with_its_end_is_whole() {
    let mut end = completed();
    end["response"]["output"] = json!([message("Hello")]);
    let seen = answer_in(RESPONSES, events(&[created(), end])).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("Hello", Some(FinishReason::Stop))
    );
}

#[tokio::test]
async fn what_is_no_response_is_an_error_that_shows_what_came() {
    for reply in [
        Reply::html(),
        Reply::document(&json!({"hello": 1})),
        stream(b"data: {\"hello\":1}\n\n"),
    ] {
        let seen = answer_in(RESPONSES, reply).await;
        let failed = seen.failed();
        assert_eq!(failed.fault, Some(TransportFault::Protocol), "{failed:?}");
        assert!(
            failed
                .body
                .as_deref()
                .is_some_and(|body| body.contains("hello") || body.contains("html")),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn a_request_carries_its_key_and_requests_no_storage() {
    let upstream = Upstream::start().await;
    upstream.otherwise(said("Hello"));
    for (api_key_header, model) in [
        (KeyHeader::Bearer, "gpt-5-test"),
        (KeyHeader::ApiKey, "gpt-4.1"),
    ] {
        let credentials = [("main".to_owned(), "sk-1".into())].into();
        let given = ProviderSpec {
            credentials,
            api_key_header,
            ..speaking(RESPONSES, upstream.base_url())
        };
        let mut call = attempt_in(RESPONSES, asking("Hi"));
        Arc::make_mut(&mut call.target).model = model.into();
        assert_eq!(ask(&providers(given), call).await.error, None);
    }
    let requests = upstream.requests();
    let heads: Vec<_> = requests
        .iter()
        .map(|it| {
            (
                it.path.as_str(),
                it.header("authorization"),
                it.header("api-key"),
            )
        })
        .collect();
    let path = "/v1/responses";
    assert_eq!(
        heads,
        [
            (path, Some("Bearer sk-1"), None),
            (path, None, Some("sk-1"))
        ]
    );
    assert_eq!(
        requests[0].body["include"],
        json!(["reasoning.encrypted_content"])
    );
    assert_eq!(requests[1].body.get("include"), None);
    assert_eq!(
        (&requests[0].body["store"], &requests[0].body["stream"]),
        (&json!(false), &json!(true))
    );
}

#[tokio::test]
async fn parameters_media_tools_and_format_are_translated_for_the_api() {
    let media = |source| Media {
        mime_type: "application/pdf".to_owned(),
        source,
        name: Some("a.pdf".to_owned()),
        detail: None,
    };
    let image = Media {
        mime_type: "image/png".to_owned(),
        source: MediaSource::Bytes(vec![1, 2]),
        name: None,
        detail: None,
    };
    let parts = vec![
        Part::Image(image),
        Part::File(media(MediaSource::Bytes(vec![3]))),
        Part::File(media(MediaSource::Url("https://x.test/a.pdf".to_owned()))),
    ];
    let call = ModelCall {
        messages: vec![
            Message::text(Role::Developer, "Be brief."),
            Message::new(Role::User, parts),
        ],
        tools: vec![ToolDefinition {
            name: "search".into(),
            description: "Finds.".into(),
            parameters: String::new(),
            ..ToolDefinition::default()
        }],
        tool_choice: ToolChoice::Tool("search".into()),
        parallel_tool_calls: Some(false),
        max_output_tokens: Some(9),
        reasoning_effort: Some("low".into()),
        response_format: ResponseFormat::JsonSchema {
            name: "n".into(),
            description: None,
            schema: "{\"type\":\"object\"}".into(),
            strict: true,
        },
        extra: json!({"reasoning": {"summary": "auto"}})
            .as_object()
            .unwrap()
            .clone(),
        ..ModelCall::default()
    };
    let (_, request) = exchange(RESPONSES, said("Ok"), call).await;
    let parameters = json!({"type": "object", "properties": {}});
    let tool = json!({"type": "function", "name": "search", "parameters": parameters, "strict": false, "description": "Finds."});
    let expected = json!({
        "model": "test-model",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_image", "image_url": "data:image/png;base64,AQI=", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,Aw=="},
                {"type": "input_file", "file_url": "https://x.test/a.pdf"},
            ]},
        ],
        "stream": true,
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "search"},
        "parallel_tool_calls": false,
        "max_output_tokens": 9,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
    });
    assert_eq!(request.body, expected);
}
