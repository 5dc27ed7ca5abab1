//! The scenarios of the crash test that are about time, at full scale: on a virtual clock and with
//! scripted providers.
//!
//! `front_crash.rs` has all sixteen over real sockets, scaled. Here the clock is the test's own, so
//! that seconds can be asserted: the timers are the defaults (30 s to the first token, 10 s soft,
//! 20 s idle), the calls come as published.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, http::HeaderMap};
use futures_util::future::BoxFuture;
use http_body_util::BodyExt as _;
use hyper::Request;
use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        event::EventBody,
        ids::{RouteName, TenantId},
    },
    engine::Engine,
    events::{BusItem, EventBus},
    execution::{Executions, Settings},
    front::{self, Authenticate, CallError, Principal},
    journal::{Limits, MemoryJournal, Owner},
    layers::spans::Spans,
};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::support::{front::question, room::room};

const TEXT: &str = "One two three four five six seven eight nine ten.";

struct OpenDoor;

impl Authenticate for OpenDoor {
    fn identify(&self, _: &HeaderMap, _: Option<&[u8]>) -> Option<Principal> {
        Some(Principal {
            tenant: TenantId::from("default"),
            routes: Vec::new(),
        })
    }

    fn withdrawn(
        &self,
        _: &HeaderMap,
        _: Option<&[u8]>,
        _: RouteName,
    ) -> BoxFuture<'static, CallError> {
        Box::pin(std::future::pending())
    }
}

/// What a caller holds, and how long it took.
#[derive(Debug)]
struct Held {
    body: String,
    took: Duration,
}

/// A front before a primary that plays `script` and a fallback that answers.
fn front(script: &str) -> (Router, Engine) {
    let (router, engine, _) = front_on(script);
    (router, engine)
}

/// The same, with the executions behind it.
fn front_on(script: &str) -> (Router, Engine, Executions) {
    front_of("primary, fallback", script, "")
}

/// The same, on a route of these targets, with more settings.
fn front_of(route: &str, script: &str, more: &str) -> (Router, Engine, Executions) {
    let text = format!(
        "server: {{ openai_front: {{ listen: \"127.0.0.1:0\" }} }}\n\
         providers:\n  p: {{ dialect: scripted, script: {{ {script} }} }}\n  \
         f: {{ dialect: scripted, script: {{ otherwise: {{ answer: {{ text: \"{TEXT}\" }} }} }} }}\n\
         targets:\n  primary: {{ provider: p, model: model-primary }}\n  \
         fallback: {{ provider: f, model: model-fallback }}\n\
         routes:\n  bench: {{ targets: [{route}] }}\n{more}"
    );
    let loaded = load_text(&text, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let engine = Engine::new(loaded.config, Spans::disabled(), EventBus::new(1024)).unwrap();
    let journal = Arc::new(MemoryJournal::new(Limits::default()));
    let executions = Executions::new(engine.clone(), journal, Settings::new(Owner::new("here")));
    (
        front::router(
            engine.clone(),
            executions.clone(),
            Arc::new(OpenDoor),
            1 << 20,
        ),
        engine,
        executions,
    )
}

async fn ask(router: &Router) -> Held {
    let began = Instant::now();
    let request = Request::post("/v1/chat/completions")
        .body(Body::from(question("bench", true).to_string()))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Held {
        body: String::from_utf8(body.to_vec()).unwrap(),
        took: began.elapsed(),
    }
}

// === impl Held ===

impl Held {
    fn events(&self) -> Vec<Value> {
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    fn is_whole(&self) -> bool {
        let events = self.events();
        let text: String = events
            .iter()
            .filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str())
            .collect();
        text == TEXT && self.body.ends_with("data: [DONE]\n\n")
    }

    fn model(&self) -> String {
        self.events()
            .iter()
            .rev()
            .find_map(|event| event["model"].as_str().map(str::to_owned))
            .unwrap()
    }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn s06_a_silent_provider_costs_one_soft_timeout_and_not_three_hard_ones() {
    let (router, _) = front("otherwise: timeout");
    let held = ask(&router).await;
    assert!(held.is_whole(), "{held:?}");
    assert!(held.took < s(11), "{:?}", held.took);
}

#[tokio::test(start_paused = true)]
async fn s07_a_first_token_after_twenty_seconds_is_overtaken_before_fifteen() {
    let script = format!(
        "otherwise: {{ slow_first_token: {{ after: 20s, answer: {{ text: \"{TEXT}\" }} }} }}"
    );
    let (router, _) = front(&script);
    let held = ask(&router).await;
    assert!(held.is_whole() && held.took < s(15), "{held:?}");
    assert_eq!(held.model(), "model-fallback");
}

#[tokio::test(start_paused = true)]
async fn s09_a_stalled_stream_is_whole_within_twenty_five_seconds() {
    let (router, _) = front("otherwise: { stall: { after_text: \"One two three \" } }");
    let held = ask(&router).await;
    assert!(held.is_whole() && held.took <= s(25), "{held:?}");
    assert!(
        held.body.contains(": relight keep-alive"),
        "its silence of 20 s is commented: {held:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn s14_an_answer_that_is_cut_is_whole_within_two_and_a_half_seconds() {
    let (router, _) = front("otherwise: { cut: { after_text: \"One two three \" } }");
    let held = ask(&router).await;
    assert!(
        held.is_whole() && held.took <= Duration::from_millis(2500),
        "{held:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn s15_an_outage_of_a_minute_costs_the_provider_four_attempts_and_ends_within_thirty_seconds()
{
    let script = format!(
        "outage: {{ for: 60s, step: {{ status: {{ code: 503 }} }} }}, otherwise: {{ answer: {{ text: \"{TEXT}\" }} }}"
    );
    let (router, engine) = front(&script);
    let mut events = engine.events().live();
    let began = Instant::now();
    let mut back = None;
    for call in 0..24_u32 {
        tokio::time::sleep_until(began + s(4) * call).await;
        let held = ask(&router).await;
        assert!(held.is_whole(), "call {call}: {held:?}");
        if held.model() == "model-primary" {
            back = back.or(Some(began.elapsed()));
        }
    }
    let back = back.expect("the primary is used again");
    assert!(back >= s(60) && back <= s(90), "{back:?}");
    let mut failed = 0;
    while let Some(reading) = events.try_next() {
        let BusItem::Event(event) = reading else {
            panic!("an event was missed")
        };
        failed += usize::from(matches!(
            event.body,
            EventBody::AttemptFailed { sent: true, .. }
        ));
    }
    assert!(failed <= 4, "{failed} attempts while it was down");
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_followed_by_a_short_absence() {
    for length in [5, 15] {
        let script = format!(
            "outage: {{ for: {length}s, step: {{ status: {{ code: 503 }} }} }}, \
             otherwise: {{ answer: {{ text: \"{TEXT}\" }} }}"
        );
        let (router, _) = front(&script);
        let began = Instant::now();
        let mut call = 0;
        while !(ask(&router).await.model() == "model-primary" && began.elapsed() >= s(length)) {
            call += 1;
            tokio::time::sleep_until(began + s(1) * call).await;
        }
        assert!(
            began.elapsed() <= s(3 * length + 1),
            "{length} s: back after {:?}",
            began.elapsed()
        );
    }
}

/// Of 504 calls, eight at a time, to one target that fails these shares of them so: the share that
/// was answered, and the time within which 99 of 100 were.
async fn answered(steps: &[(String, f64)], more: &str) -> (f64, Duration) {
    let chances: Vec<String> = steps
        .iter()
        .map(|(step, share)| format!("{{ probability: {share}, step: {step} }}"))
        .collect();
    let chances = chances.join(", ");
    let script = format!(
        "probabilities: [{chances}], \
         otherwise: {{ answer: {{ text: \"{TEXT}\", tokens_per_second: 100, first_token_after: 20ms }} }}"
    );
    let (router, ..) = front_of("primary", &script, more);
    let calls = (0..8).map(|_| async {
        let mut held = Vec::new();
        for _ in 0..63 {
            held.push(ask(&router).await);
        }
        held
    });
    let held: Vec<Held> = futures_util::future::join_all(calls)
        .await
        .into_iter()
        .flatten()
        .collect();
    let mut took: Vec<Duration> = held
        .iter()
        .filter(|held| held.is_whole())
        .map(|held| held.took)
        .collect();
    took.sort();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred calls")]
    let success = took.len() as f64 / held.len() as f64;
    (success, took[took.len() * 99 / 100])
}

#[tokio::test(start_paused = true)]
async fn a_third_of_failures_costs_few_answers_and_little_time() {
    let _room = room().await;
    let retries = "policies: { standard: { retry: { max_retries: 3 } } }\n";
    let cut = |words: &str, share| (format!("{{ cut: {{ after_text: \"{words}\" }} }}"), share);
    let cuts = [
        cut("One ", 0.1),
        cut("One two three ", 0.1),
        cut("One two three four five ", 0.1),
    ];
    let status = [("{ status: { code: 503 } }".to_owned(), 0.3)];
    let malformed = [("{ malformed: not_json }".to_owned(), 0.3)];
    let hang = [("timeout".to_owned(), 0.2)];
    let timers = "timers: { first_token: 3s, first_token_alone: 3s, soft_first_token: 0ms }\n";
    for (steps, more, min, p99) in [
        (&status[..], "", 0.975, s(3)),
        (&cuts, "", 0.95, s(5)),
        (&malformed, "", 0.985, s(2)),
        (&hang, timers, 0.985, s(10)),
    ] {
        let (success, took) = answered(steps, &format!("{retries}{more}")).await;
        assert!(
            success >= min && took <= p99,
            "{steps:?}: {success} answered, {took:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_ends_sends_its_callers_to_another_one_at_once() {
    let (router, _, executions) = front_on("otherwise: timeout");
    executions.hand_over().await;
    let request = Request::post("/v1/chat/completions")
        .body(Body::from(question("bench", true).to_string()))
        .unwrap();
    let response = router.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(
        [
            &response.headers()["retry-after"],
            &response.headers()["x-should-retry"]
        ],
        ["1", "true"]
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(error["error"]["code"], "draining");
}
