//! The public crash test: sixteen ways in which a provider breaks, and what a caller of the front
//! then holds.
//!
//! The faults are those that the Failover Bench publishes (its catalogue and method, version 0.1);
//! the fake provider, the text and the checks are ours. Every gateway gets the same there: two
//! retries, a timeout of 30 s, one fallback, a streamed answer of sixty words. A scenario passes
//! when the caller holds the complete answer (for S13: a clean error) and every check holds, the
//! advisory ones included.
//!
//! Time is scaled by 1:20, in the faults and in the timers alike, to keep the tests short: 30 s are
//! 1.5 s here, the soft limit of 10 s is 0.5 s, the idle limit of 20 s is 1 s, a probe of a target
//! that failed comes after 1 s. Not scaled are stated waits (whole seconds on the wire). No time is
//! asserted here but bounds that end a hang; `front_outage.rs` plays those scenarios that are about
//! time at full scale, on a virtual clock and with no setting at all.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    front::{Answer, Front},
    upstream::{Reply, Upstream, chunk, usage_chunk},
};

/// Sixty words.
const TEXT: &str = "A good harbour is judged on its worst night and not on its calmest morning because any quay can \
    hold a boat when no wind blows while only deep walls and patient keepers bring each small vessel home when waves \
    break over every light and every crew has long stopped counting how often it was told to simply try again.";

/// What is the same in all scenarios: the defaults, their times divided by twenty.
const SETTINGS: &str = "
default_route: bench
policies:
  standard:
    retry: { backoff: { base: 50ms } }
timers: { first_token: 1500ms, first_token_alone: 3s, soft_first_token: 500ms, idle: 1s }
circuit:
  slow_threshold: 125ms
  open_base: 50ms
routes:
  bench: { targets: [primary, fallback], deadline: 30s }
  healthy: { targets: [fallback], deadline: 30s }
targets:
  primary: { provider: p, model: model-primary }
  fallback: { provider: f, model: model-fallback }
";

/// A primary that breaks, a fallback that does not, and Relight before them.
struct Bench {
    primary: Upstream,
    fallback: Upstream,
    front: Front,
}

// === impl Bench ===

impl Bench {
    async fn new() -> Self {
        let (primary, fallback) = (Upstream::start().await, Upstream::start().await);
        primary.otherwise(sixty_words("model-primary"));
        fallback.otherwise(sixty_words("model-fallback"));
        let provider = |name: &str, upstream: &Upstream| {
            let url = upstream.base_url();
            format!(
                "  {name}: {{ dialect: openai_chat, base_url: \"{url}\", api_key: k, allow_plaintext: true }}\n"
            )
        };
        let providers = format!(
            "providers:\n{}{}",
            provider("p", &primary),
            provider("f", &fallback)
        );
        let front = Front::start(&format!("{providers}{SETTINGS}")).await;
        Self {
            primary,
            fallback,
            front,
        }
    }

    /// A primary that always breaks like this.
    async fn always(reply: Reply) -> Self {
        let bench = Self::new().await;
        bench.primary.otherwise(reply);
        bench
    }

    /// A primary that breaks like this once.
    async fn once(reply: Reply) -> Self {
        let bench = Self::new().await;
        bench.primary.push(reply);
        bench
    }

    async fn ask(&self) -> Answer {
        self.front.ask("bench", true).await
    }

    /// The scenario's call, which must be rescued, and a healthy one behind it.
    async fn rescued(&self) -> Answer {
        let answer = self.ask().await;
        assert!(answer.succeeded_with(TEXT), "not rescued: {answer:?}");
        self.alive().await;
        answer
    }

    async fn alive(&self) {
        let healthy = self.front.ask("healthy", false).await;
        assert!(
            healthy.succeeded_with(TEXT),
            "not alive afterwards: {healthy:?}"
        );
    }

    /// Attempts that the primary saw.
    fn calls_of_primary(&self) -> usize {
        self.primary.requests().len()
    }
}

/// The events of a whole answer.
fn events(model: &str) -> Vec<String> {
    let named = |event: String| event.replace("test-model", model);
    let words = TEXT
        .split_inclusive(' ')
        .map(|word| named(chunk(&json!({"content": word}), None)));
    let mut events = vec![named(chunk(
        &json!({"role": "assistant", "content": ""}),
        None,
    ))];
    events.extend(words);
    events.push(named(chunk(&json!({}), Some("stop"))));
    events.push(usage_chunk(21, 60));
    events.push("[DONE]".to_owned());
    events
}

fn sixty_words(model: &str) -> Reply {
    Reply::events(&events(model))
}

/// The beginning of the answer, at a pace that lets it be delivered.
fn first_words(words: usize) -> (Reply, usize) {
    let begun = Reply::events(&events("model-primary")[..=words]);
    let bytes = begun.body_bytes().len();
    (begun.paced(Duration::from_millis(1)), bytes)
}

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    let error =
        json!({"error": {"message": message, "type": "some_error", "param": null, "code": code}});
    Reply::body(
        status,
        &[("content-type", "application/json")],
        error.to_string().as_bytes(),
    )
}

#[test]
fn the_answer_has_sixty_words() {
    assert_eq!(TEXT.split_whitespace().count(), 60);
}

#[tokio::test]
async fn s01_a_rate_limit_with_a_stated_wait_is_waited_out() {
    let body = b"{\"error\":{\"message\":\"Too many requests.\",\"code\":\"rate_limit_exceeded\"}}";
    let bench = Bench::once(Reply::body(429, &[("retry-after", "1")], body)).await;
    bench.rescued().await;
    let seen = bench.primary.requests();
    assert_eq!(seen.len(), 2, "the same provider is asked again");
    assert!(
        seen[1].at - seen[0].at >= Duration::from_millis(900),
        "and not before it said"
    );
}

#[tokio::test]
async fn s02_a_rate_limit_for_ever_is_not_hammered() {
    let bench = Bench::always(refusal(429, "rate_limit_exceeded", "Too many requests.")).await;
    bench.rescued().await;
    assert!(
        bench.calls_of_primary() <= 4,
        "{} attempts",
        bench.calls_of_primary()
    );
}

#[tokio::test]
async fn s03_one_server_error_is_retried_where_it_happened() {
    let bench = Bench::once(refusal(500, "server_error", "Something broke.")).await;
    bench.rescued().await;
    assert_eq!(
        (bench.calls_of_primary(), bench.fallback.requests().len()),
        (2, 1),
        "one for the healthy call"
    );
}

#[tokio::test]
async fn s04_overload_for_ever_ends_at_the_fallback() {
    let bench = Bench::always(refusal(503, "overloaded", "The engine is overloaded.")).await;
    bench.rescued().await;
    assert!(
        bench.calls_of_primary() <= 3,
        "{} attempts",
        bench.calls_of_primary()
    );
}

#[tokio::test]
async fn s05_a_connection_that_is_reset_costs_no_caller_the_answer() {
    let bench = Bench::once(Reply::reset()).await;
    bench.rescued().await;
}

#[tokio::test]
async fn s06_a_silent_provider_is_left_after_one_timeout() {
    let bench = Bench::always(Reply::silence()).await;
    bench.rescued().await;
    assert_eq!(bench.calls_of_primary(), 1, "silence is not asked twice");
}

#[tokio::test]
async fn s07_a_slow_first_token_is_overtaken() {
    // Its head comes at once; 20 s are 1 s here, and more, so that a busy machine decides nothing.
    let late: Vec<(Duration, Vec<u8>)> = vec![
        (Duration::ZERO, b": ok\n\n".to_vec()),
        (
            Duration::from_secs(20),
            sixty_words("model-primary").body_bytes(),
        ),
    ];
    let bench = Bench::always(Reply::stream(late)).await;
    let answer = bench.rescued().await;
    assert_eq!(
        (answer.model().as_str(), bench.calls_of_primary()),
        ("model-fallback", 1)
    );
}

#[tokio::test]
async fn s08_a_cut_stream_still_ends_as_the_whole_answer() {
    let (begun, bytes) = first_words(40);
    let bench = Bench::always(begun.cut_after(bytes)).await;
    bench.rescued().await;
}

#[tokio::test]
async fn s09_a_stalled_stream_still_ends_as_the_whole_answer() {
    let (begun, bytes) = first_words(20);
    let bench = Bench::always(begun.stall_after(bytes)).await;
    bench.rescued().await;
}

#[tokio::test]
async fn s10_a_malformed_event_does_not_cost_the_answer() {
    let mut lines: Vec<(Duration, Vec<u8>)> = events("model-primary")
        .into_iter()
        .map(|data| {
            (
                Duration::from_millis(1),
                format!("data: {data}\n\n").into_bytes(),
            )
        })
        .collect();
    lines.insert(
        11,
        (
            Duration::ZERO,
            b"data: {\"choices\": [{\"delta\": {\"content\": \n\n".to_vec(),
        ),
    );
    let bench = Bench::always(Reply::stream(lines)).await;
    // Whether that event held words is unknown: the fallback's answer is joined without a seam.
    bench.rescued().await;
}

#[tokio::test]
async fn s11_a_missing_end_mark_of_the_wire_delays_nothing() {
    let mut events = events("model-primary");
    events.pop();
    let bench = Bench::always(Reply::events(&events)).await;
    let answer = bench.rescued().await;
    assert_eq!(
        (
            &answer.usage()["completion_tokens"],
            bench.calls_of_primary()
        ),
        (&json!(60), 1)
    );
}

#[tokio::test]
async fn s12_a_prompt_that_is_too_long_goes_to_a_larger_model_and_never_back() {
    let words = "The maximum context length is 8192 tokens, but your messages have 9631 tokens.";
    let bench = Bench::always(refusal(400, "context_length_exceeded", words)).await;
    bench.rescued().await;
    assert_eq!(bench.calls_of_primary(), 1);
}

#[tokio::test]
async fn s13_a_refusal_is_passed_on_without_a_fallback() {
    let words = "The request was refused by the safety system.";
    let bench = Bench::always(refusal(400, "content_policy_violation", words)).await;
    let answer = bench.ask().await;
    assert_eq!(
        (answer.status, answer.error()["code"].as_str()),
        (400, Some("content_filter")),
        "{answer:?}"
    );
    assert!(
        answer.error()["message"]
            .as_str()
            .unwrap()
            .contains("safety system"),
        "the reason is told: {answer:?}"
    );
    assert_eq!(
        (bench.calls_of_primary(), bench.fallback.requests().len()),
        (1, 0)
    );
    bench.alive().await;
}

#[tokio::test]
async fn s14_a_fallback_that_refuses_a_begun_answer_is_never_given_one() {
    let (begun, bytes) = first_words(40);
    let bench = Bench::always(begun.cut_after(bytes)).await;
    bench.rescued().await;
    for request in bench.fallback.requests() {
        let last = request.body["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(
            last["role"], "user",
            "a begun answer was given: {request:?}"
        );
    }
}

#[tokio::test]
async fn s15_a_provider_that_is_down_is_left_alone_and_used_again_when_it_is_back() {
    let bench = Bench::always(refusal(503, "overloaded", "The engine is overloaded.")).await;
    let calls = 14;
    for _ in 0..calls {
        let answer = bench.ask().await;
        assert!(
            answer.succeeded_with(TEXT),
            "not served during the outage: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Without a circuit each call would call it once at least; how often it is probed depends on
    // the time that they take.
    assert!(
        bench.calls_of_primary() <= calls / 2,
        "{} attempts while it was down",
        bench.calls_of_primary()
    );
    bench.primary.otherwise(sixty_words("model-primary"));
    // The bound only ends a hang.
    for _ in 0..150 {
        let answer = bench.ask().await;
        assert!(
            answer.succeeded_with(TEXT),
            "not served after the outage: {answer:?}"
        );
        if answer.model() == "model-primary" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the primary was never used again");
}

#[tokio::test]
async fn s16_the_answer_names_who_gave_it_and_what_that_cost() {
    let bench = Bench::always(refusal(503, "overloaded", "The engine is overloaded.")).await;
    let answer = bench.rescued().await;
    assert_eq!(
        (answer.model().as_str(), answer.header("x-relight-target")),
        ("model-fallback", Some("fallback"))
    );
    let usage = answer.usage();
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(21), &json!(60))
    );
    assert!(bench.calls_of_primary() <= 3);
}
