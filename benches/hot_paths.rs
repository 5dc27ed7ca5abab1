//! What Relight itself costs a call: the cores of its policies, and one pass through the whole stack over a wire that
//! answers at once.
//!
//! Each is measured by one thread alone and by two that share the same state, because a lock that nobody waits for
//! says nothing about one that two want. `cargo bench` runs them; `cargo test` does not even build them.

#![expect(clippy::expect_used, clippy::panic, reason = "a benchmark of what does not work must stop")]

#[path = "hot_paths/null.rs"]
mod null;

use std::{
    hint::black_box,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::{Duration, Instant as StdInstant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use relight::{
    domain::{
        failure::{ProviderError, Surface},
        ids::{InvocationId, TargetId},
    },
    policy::{
        circuit::{Circuit, CircuitPolicy, ReportContext, Signal},
        classify::Classifier,
        dice::Dice,
        retry::{Availability, Candidate, Cost},
        retry_budget::{BudgetPolicy, RetryBudget, Settled},
        select::{SelectPolicy, choose},
    },
};
use tokio::time::Instant;

/// Measures `work` by one thread, and by two at once (time per call and thread).
fn by_one_and_two<W: Fn(u64) + Sync>(criterion: &mut Criterion, name: &str, work: W) {
    let mut group = criterion.benchmark_group(name);
    for threads in [1, 2] {
        group.bench_function(format!("{threads} thread(s)"), |bencher| {
            bencher.iter_custom(|times| run(threads, times, &|times| (0..times).for_each(&work)));
        });
    }
    group.finish();
}

/// The time that each of some threads takes for so many times, once all of them have done it once: what a thread does only
/// when it begins is none of what a call costs.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn run(threads: usize, times: u64, work: &(impl Fn(u64) + Sync)) -> Duration {
    let ready = Barrier::new(threads);
    let timed = || {
        work(1);
        ready.wait();
        let began = StdInstant::now();
        work(times);
        began.elapsed()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).max().unwrap_or_default()
    })
}

fn circuit(criterion: &mut Criterion) {
    let circuit = Mutex::new(Circuit::new(Arc::new(CircuitPolicy::default())));
    by_one_and_two(criterion, "circuit: admit and report, closed", |_| {
        let now = Instant::now();
        let permit = circuit.lock().expect("no panic").admit(now, 0.5).expect("it is closed");
        let context = ReportContext { now, dice: 0.5, alternative_healthy: false };
        black_box(circuit.lock().expect("no panic").report(&permit, Signal::FirstToken, context));
    });
}

fn budget(criterion: &mut Criterion) {
    let budget = Mutex::new(RetryBudget::new(BudgetPolicy::default(), Instant::now()));
    by_one_and_two(criterion, "budget: reserve and settle", |_| {
        let now = Instant::now();
        let reserved = budget.lock().expect("no panic").reserve(now, Cost::Transient).expect("it is refunded");
        budget.lock().expect("no panic").settle(reserved, Settled::Succeeded, now);
    });
}

fn select(criterion: &mut Criterion) {
    let policy = SelectPolicy::default();
    let mut candidates: Vec<_> =
        ["a", "b", "c", "d"].into_iter().map(|name| Candidate::new(TargetId::from(name))).collect();
    candidates[0].availability = Availability::At(Instant::now() + Duration::from_hours(1));
    candidates[1].healthy = false;
    let last = TargetId::from("c");
    let dice = Dice::new(1, &InvocationId::from("bench"), 1);
    by_one_and_two(criterion, "select: choose among four", |_| {
        let mut dice = dice.clone();
        black_box(choose(&policy, black_box(&candidates), Some(&last), None, &mut dice));
    });
}

fn classify(criterion: &mut Criterion) {
    let classifier = Classifier::default();
    let now = relight::domain::clock::wall_now();
    for (kind, status, body) in bodies() {
        assert!(body.len() >= 2048, "{kind}: {} bytes", body.len());
        let body = body[..body.floor_char_boundary(2048)].to_owned();
        let facts = ProviderError {
            provider: "example".into(),
            surface: Surface::Http,
            status: Some(status),
            body: Some(body),
            ..ProviderError::default()
        };
        by_one_and_two(criterion, &format!("classify: 2 KiB of {kind}"), |_| {
            black_box(classifier.classify(black_box(&facts), now));
        });
    }
}

/// Bodies of at least 2 KiB as failures have them.
fn bodies() -> [(&'static str, u16, String); 6] {
    let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SOME_REASON","domain":"example.com",
        "metadata":{"service":"models.example.com","consumer":"projects/12345","note":"nothing in particular"}}"#;
    let details = [detail; 10].join(",");
    let violation = r#"{"quotaMetric":"example.com/generate_content_requests","quotaId":"RequestsPerMinutePerProject",
        "quotaDimensions":{"location":"global","model":"example-pro"},"quotaValue":"5"}"#;
    let violations = [violation; 11].join(",");
    let limit = "You exceeded your current quota, please check your plan. Please retry in 21.5s.";
    let prose = "The engine is currently overloaded, please try again later. ".repeat(35);
    let row = r#"<div class="relative w-1/3 m-auto"><span class="icon block w-24"></span><p>The web server reported a bad
        gateway error. Please try again in a few minutes.</p></div>"#;
    let unknown =
        "the voice that you asked for cannot sing this song in the way that your friends have heard it before; ";
    let frame = r#"  File "/app/.venv/lib/python3.11/site-packages/example/_base_client.py", line 1058, in _request
    raise self._make_status_error_from_response(err.response) from None
  File "/app/agent/steps.py", line 210, in run_step
    result = await self.client.chat.completions.create(model=self.model, messages=messages, tools=tools)
"#;
    let frames = format!("Traceback (most recent call last):\n{}", frame.repeat(2));
    let cause =
        "example.APIStatusError: Error code: 529 - {'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}";
    let chained = "\n\nDuring handling of the above exception, another exception occurred:\n\n";
    let traceback = [&*frames, cause, chained, &frames, "agent.StepFailed: ", cause, chained, &frames, cause].concat();
    [
        (
            "JSON in which nothing is known",
            429,
            format!(r#"{{"error":{{"code":429,"message":"?","details":[{details}]}}}}"#),
        ),
        (
            "JSON that tells of a limit",
            429,
            format!(r#"{{"error":{{"message":"{limit}","status":"RESOURCE_EXHAUSTED","violations":[{violations}]}}}}"#),
        ),
        ("dense prose", 503, format!(r#"{{"error":{{"message":"{prose}","type":"server_error"}}}}"#)),
        ("a proxy's page", 502, format!("<html><title>502: Bad gateway</title><body>{}</body></html>", row.repeat(12))),
        ("prose of which no rule knows a word", 500, unknown.repeat(21)),
        ("a traceback", 500, traceback),
    ]
}

fn whole_stack(criterion: &mut Criterion) {
    let stand = null::Stand::new();
    let mut group = criterion.benchmark_group("stack: one pass over a null provider");
    for threads in [1, 2] {
        group.bench_function(format!("{threads} thread(s)"), |bencher| {
            bencher.iter_custom(|times| {
                run(threads, times, &|times| {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
                    runtime.block_on(async {
                        for _ in 0..times {
                            stand.pass().await;
                        }
                    });
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, circuit, budget, select, classify, whole_stack);
criterion_main!(benches);
