//! `max_retries` bounds all that is called, whatever comes back; notifications count to one number.

use proptest::{
    prelude::{Strategy as _, prop},
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use relight::internals::grpc::v1::{
    Invocation, Overrides, Sampling, invocation::Call, invoke_with_recovery_response::Outcome,
    recovery_event::Body, watch_recovery_request::Start,
};
use serde_json::json;

use crate::support::{
    front::{Front, question},
    relight::{Relight, asking},
    upstream::{Reply, Upstream, chunk, pieces},
};

/// Ways in which a call fails or is unusable, without a limit that says when to come back.
const WAYS: usize = 9;

fn reply(way: usize) -> Reply {
    match way {
        0 => Reply::html(),
        1 => Reply::status(500),
        2 => Reply::text(""),
        3 => Reply::empty(),
        4 => pieces("It begins ", None),
        5 => Reply::reset(),
        6 => Reply::refusal(
            400,
            &[],
            &json!({"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model.",
                "type": "invalid_request_error", "param": "temperature", "code": "unsupported_parameter"}}),
        ),
        7 => Reply::events(&["no JSON"]),
        _ => Reply::raw(b"garbage"),
    }
}

fn config(upstreams: &[&Upstream], more: &str) -> String {
    let (mut providers, mut targets, mut names) = (String::new(), String::new(), Vec::new());
    for (index, upstream) in upstreams.iter().enumerate() {
        let url = upstream.base_url();
        providers = format!(
            "{providers}  p{index}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k }}\n"
        );
        targets = format!("{targets}  t{index}: {{ provider: p{index}, model: m-{index} }}\n");
        names.push(format!("t{index}"));
    }
    format!(
        "providers:\n{providers}targets:\n{targets}routes:\n  r: {{ targets: [{}], deadline: 30s }}\n\
         default_route: r\ncircuit: {{ mode: \"off\" }}\nbudget: {{ enabled: false }}\n{more}",
        names.join(", ")
    )
}

const QUICK: &str = "policies: { standard: { retry: { backoff: { base: 1ms, cap: 2ms }, max_token_multiple: 100 } } }\n";

/// What was asked of all upstreams.
fn asked(upstreams: &[&Upstream]) -> usize {
    upstreams.iter().map(|it| it.requests().len()).sum()
}

#[tokio::test]
async fn whatever_fails_no_more_is_called_than_the_allowance_and_one() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    let upstreams = [&first, &second];
    let to_play: [Arc<Mutex<VecDeque<usize>>>; 2] = Default::default();
    for (upstream, ways) in upstreams.iter().zip(&to_play) {
        let ways = Arc::clone(ways);
        upstream.answering(move |_| reply(ways.lock().unwrap().pop_front().unwrap_or(0)));
    }
    let relight = Relight::start(&config(&upstreams, QUICK)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let mut runner = TestRunner::new(Config::default());
    let sequence = (0_u32..=5, prop::collection::vec((0..WAYS, 0..WAYS), 12));
    for _ in 0..40 {
        let (max_retries, ways) = sequence.new_tree(&mut runner).unwrap().current();
        let before = asked(&upstreams);
        *to_play[0].lock().unwrap() = ways.iter().map(|way| way.0).collect();
        *to_play[1].lock().unwrap() = ways.iter().map(|way| way.1).collect();
        let mut invocation = Invocation {
            overrides: Some(Overrides {
                max_retries: Some(max_retries),
                ..Overrides::default()
            }),
            ..asking("Why?")
        };
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.sampling = Some(Sampling {
                temperature: Some(0.5),
                ..Sampling::default()
            });
        }
        let response = relight.invoke(invocation).await;
        let called = asked(&upstreams) - before;
        assert!(
            (1..=1 + max_retries as usize).contains(&called),
            "{called} calls at max_retries {max_retries}: {ways:?}"
        );
        watch.until("invocation_failed").await;
        let counts: Vec<(u32, u32)> = std::mem::take(&mut watch.seen)
            .into_iter()
            .filter_map(|event| match event.body {
                Some(Body::RecoveryAttempted(recovery)) => {
                    Some((recovery.attempt, recovery.max_retries))
                }
                _ => None,
            })
            .collect();
        assert!(
            counts
                .iter()
                .all(|(number, of)| *of == max_retries && number <= of),
            "{counts:?} at {max_retries}: {ways:?}"
        );
        assert!(counts.is_sorted(), "{counts:?}");
        assert!(matches!(response.outcome, Some(Outcome::Failure(_))));
    }
}

#[tokio::test]
async fn an_answer_that_is_continued_uses_the_allowance_as_well() {
    for (max_retries, calls) in [(0, 1), (1, 2), (2, 3)] {
        let upstream = Upstream::start().await;
        let more = format!(
            "policies: {{ standard: {{ retry: {{ max_retries: {max_retries}, max_token_multiple: 100 }} }} }}\n"
        );
        let yaml = config(&[&upstream], &more).replace(
            "model: m-0 }",
            "model: m-0, capabilities: { assistant_prefill: true } }",
        );
        let relight = Relight::start(&yaml).await;
        for part in 0..6 {
            let begin = if part == 0 {
                "It was so."
            } else {
                " Then it went its way."
            };
            let text = format!(
                "{begin} {}part {part}.",
                "A sentence of a long text. ".repeat(12)
            );
            upstream.push(pieces(&text, Some("length")));
        }
        relight.ask("Tell me.").await;
        assert_eq!(
            upstream.requests().len(),
            calls,
            "max_retries {max_retries}"
        );
    }
}

#[tokio::test]
async fn the_planner_and_the_literal_preset_pay_for_no_more_than_they_say() {
    for (preset, operation, calls) in [
        ("", "planner", 2),
        ("", "executor", 3),
        ("preset: literal\n", "planner", 2),
        ("preset: literal\n", "executor", 3),
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::html());
        let yaml = config(&[&upstream], "").replace("budget: { enabled: false }\n", "");
        let quick = if preset.is_empty() {
            ""
        } else {
            "policies: { standard: { retry: { backoff: { base: 1ms, cap: 2ms } } } }\n"
        };
        let relight = Relight::start(&format!(
            "{preset}{}{quick}",
            yaml.replace("circuit: { mode: \"off\" }\n", "")
        ))
        .await;
        let invocation = Invocation {
            operation: operation.to_owned(),
            ..asking("Why?")
        };
        relight.invoke(invocation).await;
        assert_eq!(upstream.requests().len(), calls, "{preset}{operation}");
    }
}

/// A request for JSON with one field, a number.
fn demanding(stream: bool) -> serde_json::Value {
    let mut body = question("r", stream);
    let schema =
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "one", "schema": schema}});
    body
}

#[tokio::test]
async fn a_streamed_answer_that_does_not_fit_its_schema_is_requested_again_unseen() {
    let upstream = Upstream::start().await;
    upstream
        .push(pieces("{\"a\": \"one\"}", Some("stop")))
        .otherwise(pieces("{\"a\": 1}", Some("stop")));
    let front = Front::start(&config(&[&upstream], "")).await;
    let answer = front.chat(&demanding(true)).await;
    assert!(answer.succeeded_with("{\"a\": 1}"), "{answer:?}");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_streamed_answer_that_was_sent_and_does_not_fit_is_not_paid_for_again() {
    let upstream = Upstream::start().await;
    upstream.otherwise(pieces("{\"a\": \"one\"}", Some("stop")));
    let server = "  openai_front: { listen: \"127.0.0.1:0\", hold_back: \"off\" }\n";
    let front = Front::start_with(server, &config(&[&upstream], "")).await;
    let answer = front.chat(&demanding(true)).await;
    assert_eq!(answer.text(), "{\"a\": \"one\"}", "{answer:?}");
    assert_eq!(
        answer.error()["code"],
        "upstream_malformed_response",
        "{answer:?}"
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn arguments_that_never_fit_reach_the_caller_with_the_last_attempt() {
    for stream in [true, false] {
        for (name, arguments) in [
            ("f", "{\"limit\":\"5\"}"),
            ("f", "{}"),
            ("g", "{\"limit\":5}"),
        ] {
            let upstream = Upstream::start().await;
            upstream.otherwise(Reply::tool_call(name, arguments));
            let front = Front::start(&config(&[&upstream], "")).await;
            let mut body = question("r", stream);
            let parameters = json!({"type": "object", "required": ["limit"], "properties": {"limit": {"type": "integer"}}});
            body["tools"] =
                json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
            let answer = front.chat(&body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let call = if stream {
                assert!(answer.is_done(), "{answer:?}");
                let calls = answer
                    .events()
                    .iter()
                    .filter_map(|event| event.pointer("/choices/0/delta/tool_calls/0").cloned())
                    .collect::<Vec<_>>();
                let text = |pointer: &str| -> String {
                    calls
                        .iter()
                        .filter_map(|call| call.pointer(pointer)?.as_str())
                        .collect()
                };
                (text("/function/name"), text("/function/arguments"))
            } else {
                let call = answer.json()["choices"][0]["message"]["tool_calls"][0].clone();
                let text = |field: &str| call["function"][field].as_str().unwrap().to_owned();
                (text("name"), text("arguments"))
            };
            assert_eq!(call, (name.to_owned(), arguments.to_owned()), "{answer:?}");
            assert_eq!(upstream.requests().len(), 3);
        }
    }
}

#[tokio::test]
async fn arguments_that_fit_the_next_time_are_those_that_the_caller_gets() {
    let upstream = Upstream::start().await;
    upstream
        .push(Reply::tool_call("f", "{\"limit\":\"5\"}"))
        .otherwise(Reply::tool_call("f", "{\"limit\":5}"));
    let front = Front::start(&config(&[&upstream], "")).await;
    let mut body = question("r", false);
    let parameters = json!({"type": "object", "properties": {"limit": {"type": "integer"}}});
    body["tools"] =
        json!([{"type": "function", "function": {"name": "f", "parameters": parameters}}]);
    let answer = front.chat(&body).await;
    let call = &answer.json()["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["arguments"], "{\"limit\":5}", "{answer:?}");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_server_that_never_says_why_it_ends_is_taken_at_its_word_when_it_repeats_itself() {
    let upstream = Upstream::start().await;
    let events = [
        chunk(&json!({"content": "A whole answer."}), None),
        "[DONE]".to_owned(),
    ];
    upstream.otherwise(Reply::events(&events));
    let front = Front::start(&config(&[&upstream], QUICK)).await;
    for calls in [2, 3, 4] {
        let answer = front.ask("r", true).await;
        assert!(answer.succeeded_with("A whole answer."), "{answer:?}");
        assert_eq!(upstream.requests().len(), calls);
    }
    // One reason shows that it sends them, and an end without is a cut from then on.
    upstream.push(pieces("With a reason.", Some("stop")));
    assert!(front.ask("r", true).await.succeeded_with("With a reason."));
    let answer = front.ask("r", true).await;
    assert_eq!(answer.error()["code"], "stream_interrupted", "{answer:?}");
}
