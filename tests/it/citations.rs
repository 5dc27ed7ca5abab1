//! Citations of an answer's texts reach a client of their protocol at their texts, go back to their
//! provider with the conversation, and are named where a target cannot have them.

use hyper::Method;
use relight::internals::{
    domain::target::Dialect,
    grpc::v1::{
        Invocation, InvokeWithRecoveryResponse, Message, Opaque, Part, ReasoningPart, Role,
        TextPart, invocation::Call, part::Content,
    },
    wire_server::answers::{self, bedrock::event},
};
use serde_json::{Value, json};

use crate::support::{
    dialect::stream,
    front::{Answer, Front, folded, over},
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// Two texts with citations, between them one of a block that only the Messages API knows.
fn cited() -> Value {
    let citation = |n: u32| {
        json!({"type": "char_location", "cited_text": format!("Größte {n}"), "document_index": 0,
            "document_title": null, "start_char_index": n, "end_char_index": n + 8})
    };
    json!([
        {"type": "text", "text": "Riga is large. ", "citations": [citation(1), citation(2)]},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Riga"}},
        {"type": "text", "text": "So is Tallinn. ", "citations": [citation(3)]},
        {"type": "text", "text": "Vilnius, too.", "citations": [citation(4)]},
    ])
}

/// The events of a message with this content, each as it is sent.
fn message_events(content: &Value) -> Vec<Vec<u8>> {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1",
        "content": [], "stop_reason": null, "usage": {"input_tokens": 7, "output_tokens": 1}});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in content.as_array().unwrap().iter().enumerate() {
        let mut begun = block.clone();
        let mut deltas = Vec::new();
        if let Some(text) = block["text"].as_str() {
            begun["text"] = json!("");
            begun["citations"] = json!([]);
            let (start, end) = text.split_at(6);
            let citations = block["citations"].as_array().unwrap();
            let of = |citation| json!({"type": "citations_delta", "citation": citation});
            deltas.push(json!({"type": "text_delta", "text": start}));
            deltas.push(of(&citations[0]));
            deltas.push(json!({"type": "text_delta", "text": end}));
            deltas.extend(citations[1..].iter().map(of));
        }
        events.push(json!({"type": "content_block_start", "index": index, "content_block": begun}));
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let end = json!({"stop_reason": "end_turn", "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": 20}}));
    events.push(json!({"type": "message_stop"}));
    let written = events.iter().map(|event| {
        let name = event["type"].as_str().unwrap();
        format!("event: {name}\ndata: {event}\n\n").into_bytes()
    });
    written.collect()
}

fn message_document(content: &Value) -> Reply {
    Reply::document(
        &json!({"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-1", "content": content, "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 20}}),
    )
}

async fn messages(front: &Front, messages: &Value, is_streamed: bool) -> (Value, Answer) {
    let body = json!({"model": "chat", "max_tokens": 99, "stream": is_streamed,
        "messages": messages});
    let path = "/v1/messages";
    let answer = front.send(Method::POST, path, &[], body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let message = if is_streamed {
        folded(&answer)
    } else {
        answer.json()
    };
    (message, answer)
}

#[tokio::test]
async fn citations_of_messages_are_at_their_texts_and_go_back_with_them() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let question = json!({"role": "user", "content": "Which?"});
    for is_streamed in [true, false] {
        for upstream_streams in [true, false] {
            upstream.push(if upstream_streams {
                stream(&message_events(&cited()).concat())
            } else {
                message_document(&cited())
            });
            let (message, answer) = messages(&front, &json!([question]), is_streamed).await;
            assert_eq!(message["content"], cited(), "{answer:?}");
            upstream.push((answers::of(Dialect::Anthropic).text)("Fine."));
            let turn = json!({"role": "assistant", "content": message["content"]});
            let more = json!([question, turn, {"role": "user", "content": "And?"}]);
            let (_, answer) = messages(&front, &more, is_streamed).await;
            assert_eq!(answer.header("x-relight-adapted"), None, "{answer:?}");
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["messages"][1]["content"], cited(), "{sent}");
        }
    }
}

#[tokio::test]
async fn citations_come_once_wherever_the_first_attempt_breaks() {
    let mut content = cited();
    content.as_array_mut().unwrap().remove(1);
    let events = message_events(&content);
    for cut in 1..events.len() {
        let upstream = Upstream::start().await;
        let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
        let bytes = events[..cut].concat().len();
        upstream.push(stream(&events.concat()).cut_after(bytes));
        upstream.push(stream(&events.concat()));
        let question = json!([{"role": "user", "content": "Which?"}]);
        let (message, answer) = messages(&front, &question, true).await;
        assert_eq!(message["content"], content, "cut after {cut}: {answer:?}");
        assert_eq!(upstream.requests().len(), 2, "cut after {cut}");
    }
}

/// The output of a response, and the events of it.
fn response(is_repeated: bool) -> (Value, Reply) {
    let annotation = json!({"type": "url_citation", "start_index": 0, "end_index": 4,
        "url": "https://e.example/?q=ä", "title": "Riga"});
    let text = json!({"type": "output_text", "text": "Riga.", "annotations": [annotation],
        "logprobs": []});
    let mut told = text.clone();
    if !is_repeated {
        told["annotations"] = json!([]);
    }
    let item = |content: &Value| {
        json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
            "phase": "final_answer", "content": [content]})
    };
    let place = json!({"output_index": 0, "content_index": 0, "item_id": "msg_1"});
    let mut added = place.clone();
    added["annotation"] = annotation;
    added["annotation_index"] = json!(0);
    let mut delta = place.clone();
    delta["delta"] = json!("Riga.");
    let mut done = place.clone();
    done["text"] = json!("Riga.");
    let mut part = place;
    part["part"] = told.clone();
    let whole = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
        "output": [item(&told)], "usage": {"input_tokens": 1, "output_tokens": 2}});
    let events = [
        ("response.created", json!({"response": {"id": "resp_1"}})),
        ("response.output_text.delta", delta),
        ("response.output_text.annotation.added", added),
        ("response.output_text.done", done),
        ("response.content_part.done", part),
        (
            "response.output_item.done",
            json!({"output_index": 0, "item": item(&told)}),
        ),
        ("response.completed", json!({"response": whole})),
    ];
    let events = events.into_iter().map(|(kind, mut event)| {
        event["type"] = json!(kind);
        event.to_string()
    });
    let events: Vec<String> = events.collect();
    (item(&text), Reply::events(&events))
}

#[tokio::test]
async fn annotations_of_responses_are_at_their_texts_and_go_back_with_them() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_responses")])).await;
    let path = "/v1/responses";
    for is_repeated in [true, false] {
        for is_streamed in [true, false] {
            let (item, reply) = response(is_repeated);
            upstream.push(reply);
            let question = json!({"role": "user", "content": "Which?"});
            let mut body = json!({"model": "chat", "store": false, "stream": is_streamed,
                "input": [question]});
            let answer = front.send(Method::POST, path, &[], body.to_string()).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let annotations = &item["content"][0]["annotations"];
            let output = if is_streamed {
                let mut events = answer.events();
                let added: Vec<Value> = events
                    .iter()
                    .filter(|event| event["type"] == "response.output_text.annotation.added")
                    .map(|event| event["annotation"].clone())
                    .collect();
                assert_eq!(&json!(added), annotations, "{answer:?}");
                events.pop().unwrap()["response"]["output"].clone()
            } else {
                answer.json()["output"].clone()
            };
            assert_eq!(output.as_array().unwrap().len(), 1, "{output}");
            assert_eq!(output[0]["content"], item["content"], "{answer:?}");
            assert_eq!(output[0]["phase"], item["phase"], "{answer:?}");
            upstream.push((answers::of(Dialect::OpenaiResponses).text)("Fine."));
            body["input"] = json!([question, output[0], {"role": "user", "content": "And?"}]);
            let answer = front.send(Method::POST, path, &[], body.to_string()).await;
            assert_eq!(answer.header("x-relight-adapted"), None, "{answer:?}");
            let sent = upstream.requests().pop().unwrap().body;
            let turn = &sent["input"][1];
            assert_eq!(&turn["content"][0]["annotations"], annotations, "{sent}");
            assert_eq!(turn["phase"], item["phase"], "{sent}");
        }
    }
}

/// The turn of the answer, and what of this kind it holds, as JSON.
fn kept(response: &InvokeWithRecoveryResponse, kind: &str) -> (Message, Value) {
    let turn = response.history_patch.last().unwrap().clone();
    let mut opaque = turn.parts.iter().flat_map(|part| &part.opaque);
    let own = opaque.find(|opaque| opaque.kind == kind);
    let own = own.unwrap_or_else(|| panic!("no {kind} in {turn:?}"));
    let own = serde_json::from_slice(&own.data).unwrap();
    (turn, own)
}

fn after(turn: Message) -> Invocation {
    let mut invocation = asking("Which?");
    let Some(Call::Model(call)) = &mut invocation.call else {
        panic!("{invocation:?}")
    };
    let question = call.messages[0].clone();
    call.messages.extend([turn, question]);
    Invocation {
        route: "chat".to_owned(),
        ..invocation
    }
}

fn first() -> Invocation {
    Invocation {
        route: "chat".to_owned(),
        ..asking("Which?")
    }
}

#[tokio::test]
async fn sources_of_gemini_reach_callers_and_stay_out_of_its_requests() {
    let upstream = Upstream::start().await;
    upstream.otherwise((answers::of(Dialect::Gemini).text)("Fine."));
    let relight = Relight::start(&over("chat", &[(&upstream, "gemini")])).await;
    let chunk = |n: u32| json!({"web": {"uri": format!("https://e.example/{n}"), "title": "Riga"}});
    let support =
        json!({"segment": {"endIndex": 5, "text": "Riga."}, "groundingChunkIndices": [0]});
    let source = json!({"startIndex": 0, "endIndex": 5, "uri": "https://e.example/0"});
    let candidate = |text: &str, more: Value| {
        let mut candidate = json!({"content": {"role": "model", "parts": [{"text": text}]}});
        candidate
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"candidates": [candidate]}).to_string()
    };
    upstream.push(Reply::events(&[
        candidate(
            "Ri",
            json!({"groundingMetadata": {"groundingChunks": [chunk(0)]}}),
        ),
        candidate(
            "ga.",
            json!({
                "groundingMetadata": {"groundingChunks": [chunk(0), chunk(1)],
                    "groundingSupports": [support]},
                "citationMetadata": {"citationSources": [source]},
                "finishReason": "STOP",
            }),
        ),
    ]));
    let response = relight.invoke(first()).await;
    let (turn, own) = kept(&response, "gemini.fields");
    assert_eq!(
        own,
        json!({
            "groundingMetadata": {"groundingChunks": [chunk(0), chunk(1)],
                "groundingSupports": [support]},
            "citationMetadata": {"citationSources": [source]},
        })
    );
    relight.invoke(after(turn)).await;
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(
        sent["contents"][1]["parts"],
        json!([{"text": "Riga."}]),
        "{sent}"
    );
}

#[tokio::test]
async fn cited_texts_of_bedrock_are_whole_and_go_back_with_their_citations() {
    let citations = json!([{"title": "Riga", "sourceContent": [{"text": "Riga is large."}],
        "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": 14}}}]);
    let block = json!({"citationsContent": {"content": [{"text": "Riga."}],
        "citations": citations}});
    let delta = |delta: Value| {
        event(
            "contentBlockDelta",
            &json!({"contentBlockIndex": 0, "delta": delta}),
        )
    };
    let streamed = [
        event("messageStart", &json!({"role": "assistant"})),
        delta(json!({"text": "Riga."})),
        delta(json!({"citation": citations[0]})),
        event("contentBlockStop", &json!({"contentBlockIndex": 0})),
        event("messageStop", &json!({"stopReason": "end_turn"})),
        event(
            "metadata",
            &json!({"usage": {"inputTokens": 3, "outputTokens": 2}}),
        ),
    ];
    let document = json!({"output": {"message": {"role": "assistant", "content": [block]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": 2}});
    for reply in [stream(&streamed.concat()), Reply::document(&document)] {
        let upstream = Upstream::start().await;
        upstream.otherwise((answers::of(Dialect::Bedrock).text)("Fine."));
        let yaml = over("chat", &[(&upstream, "bedrock")]);
        let yaml = yaml.replace("api_key: k", "api_key: k, region: eu-test-1");
        let relight = Relight::start(&yaml).await;
        upstream.push(reply);
        let response = relight.invoke(first()).await;
        let (turn, own) = kept(&response, "bedrock.fields");
        assert_eq!(own, json!({"citations": citations}));
        relight.invoke(after(turn)).await;
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(sent["messages"][1]["content"], json!([block]), "{sent}");
    }
}

#[tokio::test]
async fn what_is_signed_or_cited_is_named_if_the_call_falls_back_to_another_dialect() {
    let first = Upstream::start().await;
    let second = Upstream::start().await;
    first.otherwise(Reply::status(503));
    let both = [(&first, "anthropic"), (&second, "openai_chat")];
    let mut content = cited();
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "EqQB+c/="});
    content.as_array_mut().unwrap().insert(0, thought);
    let question = json!({"role": "user", "content": "Which?"});
    let turn = json!({"role": "assistant", "content": content});
    let conversation = json!([question, turn, question]);
    let words = "citations, signed reasoning, 1 blocks of content left out";
    for is_streamed in [false, true] {
        let front = Front::start(&over("chat", &both)).await;
        let (_, answer) = messages(&front, &conversation, is_streamed).await;
        let told = answer.header("x-relight-adapted").map(str::to_owned);
        // A stream names it at its end, too, where the second attempt is known.
        let is_told = told.as_deref() == Some(words) || answer.body.contains(words);
        assert!(is_told, "{answer:?}");
        let sent = second.requests().pop().unwrap().body.to_string();
        assert!(
            !sent.contains("EqQB") && !sent.contains("cited_text"),
            "{sent}"
        );
    }
    let relight = Relight::start(&over("chat", &both)).await;
    let signed = Part {
        content: Some(Content::Reasoning(ReasoningPart {
            text: "Hm.".to_owned(),
        })),
        opaque: vec![Opaque {
            kind: "anthropic.signature".to_owned(),
            data: b"EqQB".to_vec(),
            ..Opaque::default()
        }],
        ..Part::default()
    };
    let text = Part {
        content: Some(Content::Text(TextPart {
            text: "Riga.".to_owned(),
        })),
        ..Part::default()
    };
    let turn = Message {
        role: Role::Assistant.into(),
        parts: vec![signed, text],
        ..Message::default()
    };
    let response = relight.invoke(after(turn)).await;
    let last = response.attempts.last().unwrap();
    assert_eq!(last.adaptation, "signed reasoning left out", "{response:?}");
}
