//! Conversations that outgrew the context window: what surely does not fit is not sent, and what a
//! route allows to be left out is named.

use std::fmt::Write as _;

use relight::internals::grpc::v1::{
    Attempt, AttemptCause, FailureClass, FailureCode, Invocation, InvokeWithRecoveryResponse,
    Message, invocation::Call, invoke_with_recovery_response::Outcome,
};
use serde_json::{Value, json};

use crate::support::{
    front::Front,
    http::metrics,
    relight::{Relight, asking},
    room::room,
    upstream::{Reply, Request, Upstream},
};

/// The bytes of a token at the provider of these tests.
const BYTES: usize = 4;

/// A thread of so many turns with tool calls, as an agent keeps it.
fn thread(turns: usize, result_bytes: usize) -> Vec<Value> {
    let mut messages = vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Find the fault."}),
    ];
    for turn in 0..turns {
        let call = json!({"id": format!("call-{turn}"), "type": "function",
            "function": {"name": "read", "arguments": format!("{{\"page\":{turn}}}")}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let text = format!("{turn} {}", "words of a page ".repeat(result_bytes / 16));
        messages
            .push(json!({"role": "tool", "tool_call_id": format!("call-{turn}"), "content": text}));
    }
    messages
}

fn text_bytes(request: &Request) -> usize {
    let messages = request.body["messages"].as_array().unwrap();
    let bytes = messages.iter().map(|message| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| call["function"].to_string().len());
        message["content"].as_str().map_or(0, str::len) + calls.sum::<usize>()
    });
    bytes.sum()
}

/// Every call of a request has its result right after it, and each result its call.
fn assert_pairs_are_whole(request: &Request) {
    let messages = request.body["messages"].as_array().unwrap();
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            let place = open
                .iter()
                .position(|one| one == id)
                .expect("a call of this result");
            open.remove(place);
        } else {
            assert!(open.is_empty(), "no result of {open:?}");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open.extend(calls.map(|call| call["id"].as_str().unwrap().to_owned()));
        }
    }
    assert!(open.is_empty(), "no result of {open:?}");
}

/// A provider that counts tokens, and refuses more than its window.
async fn with_window(window: usize) -> Upstream {
    let upstream = Upstream::start().await;
    upstream.answering(move |request| {
        let tokens = text_bytes(request) / BYTES;
        if tokens > window {
            let message = format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens."
            );
            let error = json!({"error": {"message": message, "code": "context_length_exceeded", "type": "invalid_request_error"}});
            return Reply::refusal(400, &[], &error);
        }
        let choice = json!({"index": 0, "message": {"role": "assistant", "content": "Found."}, "finish_reason": "stop"});
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2,
            "prompt_tokens_details": {"cached_tokens": 128}});
        Reply::document(&json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}))
    });
    upstream
}

/// A route `default` over these targets, of which the first ones state their windows.
fn config(upstreams: &[(&Upstream, Option<usize>)], overflow: &str) -> String {
    let (mut providers, mut targets, mut names) = (String::new(), String::new(), Vec::new());
    for (place, (upstream, window)) in upstreams.iter().enumerate() {
        let url = upstream.base_url();
        writeln!(
            providers,
            "  p{place}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true, chat: {{ stream: false }} }}"
        )
        .unwrap();
        let able = window.map_or(String::new(), |window| {
            format!(", capabilities: {{ context_window_tokens: {window} }}")
        });
        writeln!(
            targets,
            "  t{place}: {{ provider: p{place}, model: m{place}{able} }}"
        )
        .unwrap();
        names.push(format!("t{place}"));
    }
    let names = names.join(", ");
    format!(
        "providers:\n{providers}targets:\n{targets}routes:\n  default: {{ targets: [{names}], overflow: {overflow} }}\n"
    )
}

async fn chat(front: &Front, messages: &[Value]) -> crate::support::front::Answer {
    let tools = json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]);
    let body = json!({"model": "default", "messages": messages, "tools": tools});
    front.chat(&body).await
}

#[tokio::test]
async fn a_target_that_surely_cannot_take_a_conversation_is_passed_over_and_named() {
    let (small, large) = (with_window(8_192).await, with_window(200_000).await);
    let targets = [(&small, Some(8_192)), (&large, Some(200_000))];
    let relight = Relight::start(&config(&targets, "fail")).await;
    let long = "words of a page ".repeat(25_000);
    let response = relight.ask(&long).await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    assert_eq!(small.requests().len(), 0, "100,000 tokens never fit 8,192");
    let explained = relight.get(&response.invocation_id).await;
    let [attempt] = explained.attempts.as_slice() else {
        panic!("{:?}", explained.attempts)
    };
    assert_eq!(
        (attempt.target.as_str(), attempt.cause()),
        ("t1", AttemptCause::Fallback)
    );
    let short = relight.ask("Hello?").await;
    assert_eq!(short.attempts[0].target, "t0");
    assert_eq!(short.attempts[0].cause(), AttemptCause::First);
}

#[tokio::test]
async fn a_conversation_that_fits_no_target_fails_without_a_call_unless_the_route_says_otherwise() {
    let small = with_window(8_192).await;
    let relight = Relight::start(&config(&[(&small, Some(8_192))], "fail")).await;
    let response = relight.ask(&"words of a page ".repeat(25_000)).await;
    let Some(Outcome::Failure(failure)) = &response.outcome else {
        panic!("{response:?}")
    };
    assert_eq!(failure.failure_class(), FailureClass::ContextLength);
    assert_ne!(failure.code(), FailureCode::Unspecified);
    assert!(
        failure.message.contains("t0 takes 8192 tokens"),
        "{failure:?}"
    );
    assert_eq!(small.requests().len(), 0);
}

#[tokio::test]
async fn a_thread_of_400_turns_is_answered_in_every_window_with_whole_pairs_and_named_drops() {
    let _room = room().await;
    for overflow in ["drop_tool_results", "drop_middle"] {
        // The calls alone, which stay, and the sentences in place of their results take 15,000 tokens.
        let smallest = if overflow == "drop_middle" {
            8_192
        } else {
            24_000
        };
        for window in [smallest, 64_000, 128_000, 200_000] {
            let upstream = with_window(window).await;
            let front = Front::start(&config(&[(&upstream, Some(window))], overflow)).await;
            let mut attempts = 0;
            for result_bytes in [300, 1_500, 6_000] {
                let messages = thread(400, result_bytes);
                let answer = chat(&front, &messages).await;
                assert_eq!(
                    answer.status, 200,
                    "{overflow} {window} {result_bytes}: {}",
                    answer.body
                );
                let requests = upstream.requests();
                let sent = requests.last().unwrap();
                assert_pairs_are_whole(sent);
                assert!(text_bytes(sent) / BYTES <= window);
                for request in &requests[attempts..] {
                    let tokens = text_bytes(request) / BYTES;
                    assert!(
                        tokens <= window * 3 + window / 10,
                        "{tokens} surely do not fit {window}"
                    );
                }
                let is_cut = sent.body["messages"]
                    .to_string()
                    .contains("outgrew the context window");
                let told = answer.header("x-relight-adapted").unwrap_or_default();
                assert_eq!(
                    told.contains("left out"),
                    is_cut,
                    "{overflow} {window} {result_bytes}: {told}"
                );
                let fits = messages
                    .iter()
                    .map(|it| it.to_string().len())
                    .sum::<usize>()
                    / BYTES
                    < window;
                assert!(
                    !(fits && is_cut),
                    "{overflow} {window} {result_bytes}: cut in vain"
                );
                attempts = requests.len();
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_window_that_is_not_known_shortens_step_by_step_and_its_patch_replays() {
    let upstream = with_window(8_192).await;
    let relight = Relight::start(&config(&[(&upstream, None)], "drop_middle")).await;
    let Some(Call::Model(mut model)) = asking("one").call else {
        panic!("a model is asked")
    };
    let turn = model.messages[0].clone();
    let said = |text: String| -> Message {
        let Some(Call::Model(model)) = asking(&text).call else {
            panic!("a model is asked")
        };
        model.messages[0].clone()
    };
    model.messages = vec![turn];
    model
        .messages
        .extend((0..60).map(|number| said(format!("{number} {}", "more words ".repeat(80)))));
    let history = model.messages.clone();
    let invocation = Invocation {
        call: Some(Call::Model(model)),
        ..asking("one")
    };
    let response: InvokeWithRecoveryResponse = relight.invoke(invocation).await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    let causes: Vec<_> = response.attempts.iter().map(Attempt::cause).collect();
    assert_eq!(causes[0], AttemptCause::First);
    assert!(
        causes.len() > 1 && causes[1..].iter().all(|it| *it == AttemptCause::Adapt),
        "{causes:?}"
    );
    assert!(
        response.attempts[0].adaptation.contains("left out"),
        "{:?}",
        response.attempts
    );
    // The history with the patch is what the model read last, and its answer.
    let replaced = usize::try_from(response.history_replace_tail).unwrap();
    let mut next = history[..history.len() - replaced].to_vec();
    next.extend(response.history_patch.iter().cloned());
    let requests = upstream.requests();
    let read = requests.last().unwrap().body["messages"]
        .as_array()
        .unwrap();
    assert_eq!(next.len(), read.len() + 1);
    assert!(text_bytes(requests.last().unwrap()) / BYTES <= 8_192);
}

#[tokio::test]
async fn what_a_provider_counts_corrects_what_is_assumed_of_its_tokens() {
    let small = with_window(8_192).await;
    let relight = Relight::start(&config(&[(&small, Some(8_192))], "fail")).await;
    // Two windows by the usual four bytes, which might still fit a model of longer tokens.
    let doubtful = "words of a page ".repeat(8_192 * 2 * BYTES / 16);
    relight.ask(&doubtful).await;
    assert_eq!(small.requests().len(), 1, "in doubt it is sent");
    relight
        .ask(&"words of a page ".repeat(4_000 * BYTES / 16))
        .await;
    assert_eq!(small.requests().len(), 2);
    relight.ask(&doubtful).await;
    assert_eq!(small.requests().len(), 2, "its tokens are known by then");
}

#[tokio::test]
async fn cached_and_written_tokens_are_counted_for_each_target() {
    let upstream = with_window(8_192).await;
    let mut front = Front::start(&config(&[(&upstream, None)], "fail")).await;
    assert_eq!(front.ask("default", false).await.status, 200);
    let running = front.take_running();
    let address = running.admin_address.to_string();
    let counted = async || {
        let text = metrics(&address).await;
        let mut lines = text.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("relight_tokens_cached_total{"))
    };
    let began = tokio::time::Instant::now();
    let line = loop {
        match counted().await {
            Some(line) => break line,
            None => assert!(
                began.elapsed() < std::time::Duration::from_secs(10),
                "not counted"
            ),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(
        line.contains("target=\"t0\"") && line.contains("type=\"read\"") && line.ends_with(" 128"),
        "{line}"
    );
}

#[tokio::test]
async fn the_settings_of_the_page_hold_as_they_are_written() {
    let page = include_str!("../../docs/overflow.md");
    let settings = page
        .split("```yaml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let upstream = with_window(8_192).await;
    let provider = format!(
        "providers:\n  openai: {{ dialect: openai_chat, base_url: \"{}\", api_key: k, allow_plaintext: true, chat: {{ stream: false }} }}\n",
        upstream.base_url()
    );
    let front = Front::start(&format!("{provider}{settings}")).await;
    let body = json!({"model": "chat", "messages": thread(60, 3_000)});
    let answer = front.chat(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = answer.header("x-relight-adapted").unwrap();
    assert!(told.contains("old tool results were left out"), "{told}");
}
