//! The cost of Relight itself per call: the cores of its policies, and one pass through the whole
//! stack over a provider that responds at once.
//!
//! Each is measured by one thread alone and by two that share the same state, because an
//! uncontended lock shows nothing about a contended one. `cargo bench` runs them; `cargo test` does
//! not even build them.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a benchmark of what does not work must stop"
)]

#[path = "hot_paths/bodies.rs"]
mod bodies;
#[path = "hot_paths/null.rs"]
mod null;

use std::{
    hint::black_box,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::{Duration, Instant as StdInstant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use relight::internals::{
    domain::ids::{InvocationId, TargetId},
    policy::{
        circuit::{Circuit, CircuitPolicy, ReportContext, Signal},
        classify::Classifier,
        retry::{Availability, Candidate, Cost},
        retry_budget::{BudgetPolicy, RetryBudget, Settled},
        rng::SeededRng,
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

/// The time that each of some threads takes for so many times, once all of them have done it once:
/// what a thread does only when it begins is none of what a call costs.
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
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"))
            .max()
            .unwrap_or_default()
    })
}

fn circuit(criterion: &mut Criterion) {
    let circuit = Mutex::new(Circuit::new(Arc::new(CircuitPolicy::default())));
    by_one_and_two(criterion, "circuit: admit and report, closed", |_| {
        let now = Instant::now();
        let permit = circuit
            .lock()
            .expect("no panic")
            .admit(now, 0.5)
            .expect("it is closed");
        let context = ReportContext {
            now,
            rng: 0.5,
            alternative_healthy: false,
        };
        black_box(
            circuit
                .lock()
                .expect("no panic")
                .report(&permit, Signal::FirstToken, context),
        );
    });
}

fn budget(criterion: &mut Criterion) {
    let budget = Mutex::new(RetryBudget::new(BudgetPolicy::default(), Instant::now()));
    by_one_and_two(criterion, "budget: reserve and settle", |_| {
        let now = Instant::now();
        let reserved = budget
            .lock()
            .expect("no panic")
            .reserve(now, Cost::Transient)
            .expect("it is refunded");
        budget
            .lock()
            .expect("no panic")
            .settle(reserved, Settled::Succeeded, now);
    });
}

fn select(criterion: &mut Criterion) {
    let policy = SelectPolicy::default();
    let mut candidates: Vec<_> = ["a", "b", "c", "d"]
        .into_iter()
        .map(|name| Candidate::new(TargetId::from(name)))
        .collect();
    candidates[0].availability = Availability::At(Instant::now() + Duration::from_hours(1));
    candidates[1].healthy = false;
    let last = TargetId::from("c");
    let rng = SeededRng::new(1, &InvocationId::from("bench"), 1);
    by_one_and_two(criterion, "select: choose among four", |_| {
        let mut rng = rng.clone();
        black_box(choose(
            &policy,
            black_box(&candidates),
            Some(&last),
            None,
            None,
            &mut rng,
        ));
    });
}

fn classify(criterion: &mut Criterion) {
    let classifier = Classifier::default();
    let now = relight::internals::domain::clock::wall_now();
    for (kind, facts) in bodies::failures() {
        by_one_and_two(criterion, &format!("classify: 2 KiB of {kind}"), |_| {
            black_box(classifier.classify(black_box(&facts), now));
        });
    }
}

fn whole_stack(criterion: &mut Criterion) {
    let stand = null::TestStack::new();
    let mut group = criterion.benchmark_group("stack: one pass over a null provider");
    for threads in [1, 2] {
        group.bench_function(format!("{threads} thread(s)"), |bencher| {
            bencher.iter_custom(|times| {
                run(threads, times, &|times| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build()
                        .expect("a runtime");
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
