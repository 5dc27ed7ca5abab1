//! A conversation stays at the target whose prompt cache holds it, on every replica, and moves for a
//! cause only.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use hyper::Method;
use parking_lot::Mutex;
use relight::internals::{
    grpc::v1::{Attempt, AttemptCause},
    prompt_cache::{PromptCache, PromptTokens},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    front::{Answer, Front},
    http::metrics,
    relight::{Relight, asking},
    room::room,
    upstream::{Reply, Upstream},
};

/// Three targets, and what their prompt caches hold.
struct Stage {
    upstreams: Vec<Upstream>,
    /// Tokens of all prompts that reached a cache.
    tokens: Arc<Mutex<PromptTokens>>,
}

// === impl Stage ===

impl Stage {
    async fn start() -> Self {
        let mut upstreams = Vec::new();
        let tokens = Arc::new(Mutex::default());
        for _ in 0..3 {
            let upstream = Upstream::start().await;
            let cache = Mutex::new(PromptCache::default());
            let all = Arc::clone(&tokens);
            upstream.answering(move |request| {
                let messages = request.body["messages"].as_array().unwrap();
                let read = cache.lock().read(messages, Instant::now());
                *all.lock() += read;
                answer(read)
            });
            upstreams.push(upstream);
        }
        Self { upstreams, tokens }
    }

    fn config(&self, select: &str) -> String {
        let mut providers = String::new();
        let mut targets = String::new();
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let url = upstream.base_url();
            writeln!(
                providers,
                "  p{index}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true }}"
            )
            .unwrap();
            writeln!(
                targets,
                "  t{index}: {{ provider: p{index}, model: m{index} }}"
            )
            .unwrap();
        }
        format!(
            "providers:\n{providers}targets:\n{targets}routes:\n  chat: {{ targets: [t0, t1, t2], select: {select} }}\n"
        )
    }

    async fn front(&self, select: &str) -> Front {
        Front::start(&self.config(select)).await
    }
}

/// An answer with the usage that a provider counts.
fn answer(read: PromptTokens) -> Reply {
    let PromptTokens { all, cached } = read;
    let usage = json!({"prompt_tokens": all, "completion_tokens": 1, "total_tokens": all + 1,
        "prompt_tokens_details": {"cached_tokens": cached}});
    let choice = json!({"index": 0, "delta": {"role": "assistant", "content": "So."}, "finish_reason": "stop"});
    let chunk = |choices: Value, usage: &Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, "usage": usage})
            .to_string()
    };
    let events = [
        chunk(json!([choice]), &Value::Null),
        chunk(json!([]), &usage),
        "[DONE]".to_owned(),
    ];
    Reply::events(&events)
}

fn target(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("x-relight-target").unwrap().to_owned()
}

/// The messages of turn `turn` (from 0) of a conversation.
fn messages(name: &str, turn: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": format!("I am {name}.")})];
    for number in 0..turn {
        messages.push(json!({"role": "assistant", "content": "So."}));
        messages.push(json!({"role": "user", "content": format!("And {number}?")}));
    }
    json!(messages)
}

async fn turn(front: &Front, name: &str, turn: usize) -> String {
    let body = json!({"model": "chat", "messages": messages(name, turn)}).to_string();
    let headers = [("x-relight-affinity", name)];
    let answer = front.send(Method::POST, "/v1/chat/completions", &headers, body);
    target(&answer.await)
}

#[tokio::test]
async fn three_replicas_send_each_conversation_to_one_target_and_share_them_out() {
    let stage = Stage::start().await;
    let select = "{ order: shuffled }";
    let replicas = [
        stage.front(select).await,
        stage.front(select).await,
        stage.front(select).await,
    ];
    let mut used = BTreeSet::new();
    for number in 0..40 {
        let name = format!("talk-{number}");
        let mut chosen = BTreeSet::new();
        for front in &replicas {
            chosen.insert(turn(front, &name, 0).await);
        }
        assert_eq!(chosen.len(), 1, "{name}: {chosen:?}");
        used.extend(chosen);
    }
    assert_eq!(used.len(), 3, "{used:?}");
}

#[tokio::test]
async fn a_conversation_is_known_by_each_of_its_names() {
    let stage = Stage::start().await;
    let front = stage.front("{ order: shuffled }").await;
    let chat = json!({"model": "chat", "messages": messages("ann", 0)});
    let claude = json!({"model": "chat", "max_tokens": 16, "messages": messages("ann", 0)});
    let with = |body: &Value, field: &str, value: Value| {
        let mut body = body.clone();
        body[field] = value;
        body
    };
    let key = with(&chat, "prompt_cache_key", json!("k-1"));
    let user = with(&claude, "metadata", json!({"user_id": "user_1_session_2"}));
    let openai = "/v1/chat/completions";
    let anthropic = "/v1/messages";
    for (path, body, header) in [
        (openai, &chat, Some("x-relight-affinity")),
        (openai, &chat, Some("session_id")),
        (openai, &chat, Some("session-id")),
        (openai, &chat, Some("x-opencode-session")),
        (openai, &chat, Some("x-session-affinity")),
        (anthropic, &claude, Some("x-claude-code-session-id")),
        (openai, &key, None),
        (anthropic, &user, None),
    ] {
        let mut chosen = BTreeSet::new();
        for _ in 0..12 {
            let headers: Vec<_> = header.iter().map(|name| (*name, "s-1")).collect();
            let answer = front.send(Method::POST, path, &headers, body.to_string());
            chosen.insert(target(&answer.await));
        }
        // By chance all twelve go to one of three once in 177,147 times.
        assert_eq!(chosen.len(), 1, "{path} {header:?}: {chosen:?}");
    }
    let mut chosen = BTreeSet::new();
    for _ in 0..30 {
        chosen.insert(target(&front.chat(&chat).await));
    }
    assert!(
        chosen.len() > 1,
        "one without a name is shuffled: {chosen:?}"
    );
}

#[tokio::test]
async fn after_an_outage_a_conversation_stays_with_the_target_that_took_over() {
    let _room = room().await;
    let stage = Stage::start().await;
    let mut front = stage.front("{ order: shuffled }").await;
    let conversations = 200;
    let turns = 6;
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut moved = 0;
    for number in 0..turns {
        if number == 2 {
            stage.upstreams[1].otherwise(Reply::status(503));
        }
        if number == 4 {
            // Whatever was closed may open; those that moved stay where they are all the same.
            stage.upstreams[1].otherwise(Reply::text("So."));
        }
        for talk in 0..conversations {
            let name = format!("talk-{talk}");
            let at = turn(&front, &name, number).await;
            let before = places.entry(name).or_default();
            if let Some(last) = before.last().filter(|last| **last != at) {
                assert_eq!((last.as_str(), number), ("t1", 2), "{before:?}, then {at}");
                moved += 1;
            }
            assert!(number != 2 || at != "t1", "a failing target keeps nobody");
            before.push(at);
        }
    }
    let own = places.values().filter(|places| places[0] == "t1").count();
    assert_eq!(moved, own, "each moves once");
    // Best possible: of each turn what was sent before, and nothing at a target where the conversation is new.
    let mut best = 0;
    for (name, places) in &places {
        for (number, pair) in places.windows(2).enumerate() {
            if pair[0] == pair[1] {
                let before = messages(name, number);
                let mut cache = PromptCache::default();
                best += cache.read(before.as_array().unwrap(), Instant::now()).all;
            }
        }
    }
    let PromptTokens { all, cached } = *stage.tokens.lock();
    assert!(
        cached <= best && (best - cached) * 100 <= all * 3,
        "{cached} of {best} tokens, {all} in all"
    );
    // What operators see is what the provider counted.
    let running = front.take_running();
    let address = running.admin_address.to_string();
    let counted = async || {
        let text = metrics(&address).await;
        let lines = text.lines().filter(|line| {
            line.starts_with("relight_tokens_cached_total{") && line.contains("type=\"read\"")
        });
        let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        counts.sum::<usize>()
    };
    let began = Instant::now();
    while counted().await != cached {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{} of {cached}",
            counted().await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_moves_a_conversation_is_the_cause_of_its_attempt() {
    let stage = Stage::start().await;
    let relight = Relight::start(&stage.config("{ order: shuffled }")).await;
    let call = || {
        let mut invocation = asking("Hello");
        "chat".clone_into(&mut invocation.route);
        "talk".clone_into(&mut invocation.thread_id);
        invocation
    };
    let first = relight.invoke(call()).await;
    let own = first.final_target.clone();
    let index: usize = own[1..].parse().unwrap();
    stage.upstreams[index].otherwise(Reply::status(503));
    let second = relight.invoke(call()).await;
    let record = relight.get(&second.invocation_id).await;
    let last = record.attempts.last().unwrap();
    assert_ne!(last.target, own);
    assert_eq!(last.cause(), AttemptCause::Fallback, "{record:?}");
    let third = relight.invoke(call()).await;
    assert_eq!(third.final_target, last.target, "it stays");
    let causes: Vec<_> = third.attempts.iter().map(Attempt::cause).collect();
    assert_eq!(causes, [AttemptCause::First]);
}

#[tokio::test]
async fn affinity_by_the_start_of_a_conversation_is_for_routes_that_want_it() {
    let stage = Stage::start().await;
    for (select, stays) in [
        ("{ order: shuffled, affinity: { by: any } }", true),
        ("{ order: least_busy, affinity: { by: any } }", true),
        ("{ order: shuffled, affinity: { by: off } }", false),
    ] {
        let front = stage.front(select).await;
        let mut chosen = BTreeSet::new();
        for number in 0..24 {
            let mut body = json!({"model": "chat", "messages": messages("ann", number % 4)});
            if !stays {
                body["prompt_cache_key"] = json!("k");
            }
            chosen.insert(target(&front.chat(&body).await));
        }
        assert_eq!(chosen.len() == 1, stays, "{select}: {chosen:?}");
    }
}
