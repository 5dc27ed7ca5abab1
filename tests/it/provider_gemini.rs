//! A response of Gemini is complete, or it is an error that names the fault: over real sockets.

use std::sync::Arc;

use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
        failure::{Surface, TransportFault},
        message::{
            Message, ModelCall, Part, ResponseFormat, Role, ToolCall, ToolChoice, ToolDefinition,
        },
        target::Dialect,
    },
    provider::{
        KeyHeader, ProviderSpec,
        known::{ModelRef, capabilities},
    },
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{
        answer_in, assert_no_cut_looks_whole, assert_pieces_do_not_matter, attempt_in, continued,
        exchange, fixture, result, speaking, stream,
    },
    upstream::{Reply, Upstream},
    wire::{ask, asking, providers},
};

const GEMINI: Dialect = Dialect::Gemini;

fn chunk(parts: &Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({"candidates": [candidate], "modelVersion": "gemini-3-test", "responseId": "resp-1"})
}

fn chunks(chunks: &[Value]) -> Reply {
    let lines: Vec<String> = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\r\n\r\n"))
        .collect();
    stream(lines.concat().as_bytes())
}

fn said(text: &str, finish: &str) -> Reply {
    chunks(&[chunk(&json!([{"text": text}]), Some(finish))])
}

#[tokio::test]
async fn thoughts_text_and_parallel_calls_come_with_usage_and_finish() {
    let seen = answer_in(GEMINI, stream(&fixture("gemini/thinking_tools.sse"))).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Let me look – “now”.");
    assert_eq!(
        seen.text_of(&BlockKind::Reasoning),
        "Two towns, so two calls."
    );
    let calls = seen.tool_calls();
    assert_eq!(
        (calls[0].1.as_str(), calls[0].2.as_str(), calls[0].3),
        ("weather", "{\"town\":\"Oslo\",\"days\":2}", true)
    );
    assert_eq!(
        calls[1],
        (
            "fc-2".to_owned(),
            "list_towns".to_owned(),
            "{}".to_owned(),
            true
        )
    );
    assert_eq!(calls[0].0.len(), 9, "{}", calls[0].0);
    assert_eq!(seen.finish(), Some(FinishReason::ToolCalls));
    let usage = Usage {
        input_tokens: 40,
        output_tokens: 20,
        cached_input_tokens: Some(30),
        cache_write_tokens: None,
        reasoning_tokens: Some(8),
        exactness: Exactness::Exact,
    };
    assert_eq!(seen.usage(), Some(usage));
    let start = Delta::Start {
        model: Some("gemini-3-test".to_owned()),
        response_id: Some("resp-1".to_owned()),
        headers: Vec::new(),
    };
    assert_eq!(seen.deltas.first(), Some(&start));
}

#[tokio::test]
async fn signatures_go_back_on_the_parts_that_they_came_with() {
    let call = asking("Weather in my towns?");
    let (seen, _) = exchange(
        GEMINI,
        stream(&fixture("gemini/thinking_tools.sse")),
        call.clone(),
    )
    .await;
    let (_, request) = exchange(GEMINI, said("Rain.", "STOP"), continued(call, &seen)).await;
    let contents = json!([
        {"role": "user", "parts": [{"text": "Weather in my towns?"}]},
        {"role": "model", "parts": [
            {"text": "Two towns, so two calls.", "thought": true, "thoughtSignature": "VEhPVUdIVA=="},
            {"text": "Let me look – “now”."},
            {"functionCall": {"name": "weather", "args": {"town": "Oslo", "days": 2}}, "thoughtSignature": "RklSU1Q+/w=="},
            {"functionCall": {"id": "fc-2", "name": "list_towns", "args": {}}},
            {"text": "", "thoughtSignature": "TEFTVA=="},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "rain"}}},
            {"functionResponse": {"id": "fc-2", "name": "list_towns", "response": {"output": "rain"}}},
        ]},
    ]);
    assert_eq!(request.body["contents"], contents);
}

#[tokio::test]
async fn a_signature_amid_a_text_does_not_split_the_text() {
    let signed = json!([{"text": "Hel", "thoughtSignature": "c2ln"}]);
    let seen = answer_in(
        GEMINI,
        chunks(&[
            chunk(&signed, None),
            chunk(&json!([{"text": "lo"}]), Some("STOP")),
        ]),
    )
    .await;
    let texts = seen
        .deltas
        .iter()
        .filter(|it| {
            matches!(
                it,
                Delta::BlockStart {
                    kind: BlockKind::Text,
                    ..
                }
            )
        })
        .count();
    assert_eq!(
        (seen.text().as_str(), texts, seen.finish()),
        ("Hello", 1, Some(FinishReason::Stop))
    );
}

#[tokio::test]
async fn calls_of_other_models_in_the_current_turn_get_the_documented_placeholder_and_older_ones_none()
 {
    let called = |id: &str| {
        let call = ToolCall {
            id: id.to_owned(),
            name: "search".to_owned(),
            arguments: "{}".to_owned(),
            opaque: None,
        };
        Part::ToolCall(call)
    };
    let turn =
        |ids: &[&str]| Message::new(Role::Assistant, ids.iter().map(|id| called(id)).collect());
    let mut call = asking("Hi");
    call.messages
        .extend([turn(&["a"]), result("a", "search", "x")]);
    call.messages.push(Message::text(Role::User, "And now?"));
    call.messages.extend([
        turn(&["b", "c"]),
        result("b", "search", "x"),
        result("c", "search", "x"),
    ]);
    call.messages
        .extend([turn(&["d"]), result("d", "search", "x")]);
    let signatures = |request: &Value| -> Vec<bool> {
        let contents = request["contents"].as_array().unwrap().iter();
        let parts = contents.flat_map(|content| content["parts"].as_array().unwrap());
        let calls = parts.filter(|part| part.get("functionCall").is_some());
        calls
            .map(|part| part["thoughtSignature"] == "skip_thought_signature_validator")
            .collect()
    };
    let upstream = Upstream::start().await;
    let providers = providers(speaking(GEMINI, upstream.base_url()));
    for (number, model, signed) in [
        (1, "gemini-3-pro", [false, true, false, true]),
        (2, "gemini-2.5-pro", [false; 4]),
    ] {
        let mut attempt = attempt_in(GEMINI, call.clone());
        let place = ModelRef {
            dialect: GEMINI,
            family: "google",
            endpoint: "",
            model,
        };
        Arc::make_mut(&mut attempt.target).capabilities = capabilities(&place);
        ask(&providers, attempt).await;
        assert_eq!(
            signatures(&upstream.await_request(number).await.body),
            signed,
            "{model}"
        );
    }
}

#[tokio::test]
async fn no_cut_before_the_finish_reason_looks_whole() {
    let body = fixture("gemini/thinking_tools.sse");
    let mark = body
        .windows(12)
        .rposition(|window| window == b"finishReason")
        .unwrap();
    assert_no_cut_looks_whole(GEMINI, &body, mark, stream).await;
}

#[tokio::test]
async fn a_break_after_the_finish_reason_loses_nothing() {
    let body = fixture("gemini/thinking_tools.sse");
    let seen = answer_in(GEMINI, stream(&body).cut_after(body.len())).await;
    assert_eq!(
        (seen.finish(), seen.error),
        (Some(FinishReason::ToolCalls), None)
    );
}

#[tokio::test]
async fn the_pieces_in_which_bytes_come_do_not_matter() {
    assert_pieces_do_not_matter(GEMINI, stream(&fixture("gemini/thinking_tools.sse"))).await;
}

#[tokio::test]
async fn every_finish_reason_has_its_finish() {
    let table = [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("RECITATION", FinishReason::ContentFilter),
        ("BLOCKLIST", FinishReason::ContentFilter),
        ("PROHIBITED_CONTENT", FinishReason::ContentFilter),
        ("SPII", FinishReason::ContentFilter),
        ("IMAGE_SAFETY", FinishReason::ContentFilter),
        ("MALFORMED_FUNCTION_CALL", FinishReason::MalformedToolCall),
        ("UNEXPECTED_TOOL_CALL", FinishReason::MalformedToolCall),
        ("LANGUAGE", FinishReason::ContentFilter),
        ("TOO_MANY_TOOL_CALLS", FinishReason::Other),
        ("NO_IMAGE", FinishReason::Other),
        ("OTHER", FinishReason::Other),
        ("SOMETHING_NEW", FinishReason::Other),
    ];
    for (raw, expected) in table {
        let seen = answer_in(GEMINI, said("Well", raw)).await;
        assert_eq!(
            seen.deltas.last(),
            Some(&Delta::Finish {
                reason: expected,
                raw: raw.to_owned()
            })
        );
    }
}

#[tokio::test]
async fn a_blocked_prompt_is_a_whole_answer_without_content() {
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 4}});
    let seen = answer_in(GEMINI, chunks(&[blocked])).await;
    assert_eq!((seen.text().as_str(), seen.error.as_ref()), ("", None));
    let finish = Delta::Finish {
        reason: FinishReason::ContentFilter,
        raw: "PROHIBITED_CONTENT".to_owned(),
    };
    assert_eq!(seen.deltas.last(), Some(&finish));
}

#[tokio::test]
async fn an_error_amid_a_stream_is_found_though_it_is_no_event() {
    let body = fixture("gemini/error_amid.sse");
    for bytes in [1, 5, 10_000] {
        let seen = answer_in(GEMINI, stream(&body).in_pieces_of(bytes)).await;
        assert_eq!(seen.text(), "Hello");
        let failed = seen.failed();
        assert_eq!(
            (failed.status, failed.surface, failed.fault),
            (Some(503), Surface::Stream, None)
        );
        let error: Value = serde_json::from_str(failed.body.as_deref().unwrap()).unwrap();
        assert_eq!(error["error"]["details"][0]["retryDelay"], "7s");
    }
}

#[tokio::test]
async fn every_other_shape_of_an_error_inside_a_200_is_one_too() {
    let error = json!({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}});
    let shapes = [
        chunks(&[chunk(&json!([{"text": "Hel"}]), None), error.clone()]),
        chunks(std::slice::from_ref(&error)),
        Reply::document(&error),
        Reply::document(&json!([error])),
        Reply::document(&json!([chunk(&json!([{"text": "Hel"}]), None), error])),
    ];
    for reply in shapes {
        let seen = answer_in(GEMINI, reply).await;
        assert_eq!(
            (seen.failed().status, seen.failed().fault),
            (Some(429), None)
        );
        assert!(
            seen.failed()
                .body
                .as_deref()
                .unwrap()
                .contains("RESOURCE_EXHAUSTED")
        );
    }
    let named = answer_in(GEMINI, stream(b"event: error\ndata: gone\n\n")).await;
    assert_eq!(named.failed().body.as_deref(), Some("gone"));
}

#[tokio::test]
async fn a_document_and_an_array_of_chunks_are_answers_too() {
    let whole = chunk(&json!([{"text": "Hello"}]), Some("STOP"));
    let array = json!([
        chunk(&json!([{"text": "Hel"}]), None),
        chunk(&json!([{"text": "lo"}]), Some("STOP"))
    ]);
    for document in [whole, array] {
        let seen = answer_in(GEMINI, Reply::document(&document)).await;
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            ("Hello", Some(FinishReason::Stop))
        );
    }
    let unfinished = answer_in(
        GEMINI,
        Reply::document(&chunk(&json!([{"text": "Hello"}]), None)),
    )
    .await;
    assert_eq!(unfinished.failed().fault, Some(TransportFault::Cut));
}

#[tokio::test]
async fn what_is_no_answer_is_an_error_that_shows_what_came() {
    for reply in [
        Reply::html(),
        Reply::document(&json!({"hello": 1})),
        stream(b"data: {\"hello\":1}\n\n"),
    ] {
        let seen = answer_in(GEMINI, reply).await;
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
async fn keys_and_tokens_go_where_each_service_looks_for_them() {
    let upstream = Upstream::start().await;
    upstream.otherwise(said("Hello", "STOP"));
    let root = upstream.base_url();
    let vertex = format!("{root}/projects/p/locations/l/publishers/google");
    let bases = [
        (root.clone(), KeyHeader::Bearer),
        (vertex.clone(), KeyHeader::Bearer),
        (vertex, KeyHeader::ApiKey),
        (format!("{root}?trace=1"), KeyHeader::None),
    ];
    for (base_url, api_key_header) in bases {
        let credentials = [("main".to_owned(), "key-1".into())].into();
        let given = ProviderSpec {
            credentials,
            api_key_header,
            ..speaking(GEMINI, base_url)
        };
        assert_eq!(
            ask(&providers(given), attempt_in(GEMINI, asking("Hi")))
                .await
                .error,
            None
        );
    }
    let requests = upstream.requests();
    let heads: Vec<_> = requests
        .iter()
        .map(|it| {
            (
                it.path.as_str(),
                it.header("x-goog-api-key"),
                it.header("authorization"),
            )
        })
        .collect();
    let method = "/models/test-model:streamGenerateContent?alt=sse";
    let (studio, vertex) = (
        format!("/v1{method}"),
        format!("/v1/projects/p/locations/l/publishers/google{method}"),
    );
    let traced = format!("{studio}&trace=1");
    let expected = [
        (studio.as_str(), Some("key-1"), None),
        (vertex.as_str(), None, Some("Bearer key-1")),
        (vertex.as_str(), Some("key-1"), None),
        (traced.as_str(), None, None),
    ];
    assert_eq!(heads, expected);
}

#[tokio::test]
async fn parameters_tools_and_format_are_translated_for_the_api() {
    let mut call = ModelCall {
        tools: vec![ToolDefinition {
            name: "search".into(),
            description: "Finds.".into(),
            parameters: "{\"type\":\"object\"}".into(),
            ..ToolDefinition::default()
        }],
        tool_choice: ToolChoice::Tool("search".into()),
        max_output_tokens: Some(9),
        reasoning_effort: Some("low".into()),
        response_format: ResponseFormat::JsonSchema {
            name: "n".into(),
            description: None,
            schema: "{\"type\":\"string\"}".into(),
            strict: true,
        },
        stop: vec!["END".into()],
        extra: json!({"generationConfig": {"thinkingConfig": {"includeThoughts": true}}})
            .as_object()
            .unwrap()
            .clone(),
        ..asking("Hi")
    };
    call.sampling.top_k = Some(4);
    call.messages
        .insert(0, Message::text(Role::System, "You help."));
    let (_, request) = exchange(GEMINI, said("Ok", "STOP"), call).await;
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "You help."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [
            {"name": "search", "description": "Finds.", "parametersJsonSchema": {"type": "object"}},
        ]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["search"]}},
        "generationConfig": {
            "topK": 4,
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": true},
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "string"},
        },
    });
    assert_eq!(request.body, expected);
}
