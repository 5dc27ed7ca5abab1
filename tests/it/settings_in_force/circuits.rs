//! Each setting of a circuit changes what the circuit does.
//!
//! Many of them act after minutes of outages, so that real time is not used: two circuits, one of
//! which has the changed setting, get the same calls in virtual time, and have to differ. That a
//! running server gives its circuits the new settings is seen from outside in `probes`.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use relight::internals::{config::{Config, GivenEnvironment, load_text}, grpc::v1::CircuitState, policy::circuit::{Circuit, CircuitPolicy, FailKind, Permit, ReportContext, Signal}};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{reloaded::{Reloaded, merge}, upstream::Reply};
use super::{Row, another, at, rows};

/// What the calls of some time are like.
#[derive(Debug, Clone, Copy)]
struct Phase {
    seconds: u64,
    calls_per_second: f64,
    /// The share of calls that fail.
    failing: f64,
    /// How long a call takes to be answered, or to fail.
    takes: Duration,
    kind: FailKind,
    stated_wait: Option<Duration>,
    alternative_healthy: bool,
    /// Every other call reaches a limit instead.
    limited: bool,
    /// The results of the calls are not reported.
    silent: bool,
}

const WELL: Phase = Phase {
    seconds: 20,
    calls_per_second: 10.0,
    failing: 0.0,
    takes: Duration::from_millis(50),
    kind: FailKind::Fast,
    stated_wait: None,
    alternative_healthy: false,
    limited: false,
    silent: false,
};

/// What happens to a target, so that each setting has an effect.
const STORY: &[Phase] = &[
    Phase { seconds: 60, calls_per_second: 0.5, ..WELL },
    Phase { seconds: 40, calls_per_second: 0.5, failing: 1.0, ..WELL },
    Phase { seconds: 60, ..WELL },
    // An outage at many calls, and the way back from it.
    Phase { seconds: 10, calls_per_second: 60.0, ..WELL },
    Phase { seconds: 30, calls_per_second: 60.0, failing: 1.0, ..WELL },
    Phase { seconds: 40, calls_per_second: 60.0, ..WELL },
    Phase { seconds: 5, calls_per_second: 4.0, failing: 1.0, ..WELL },
    Phase { seconds: 60, calls_per_second: 4.0, failing: 0.2, ..WELL },
    // Partial failures, with and without somewhere else to go.
    Phase { failing: 0.6, ..WELL },
    Phase { failing: 0.76, seconds: 60, ..WELL },
    Phase { failing: 0.55, alternative_healthy: true, seconds: 60, ..WELL },
    Phase { seconds: 60, failing: 1.0, calls_per_second: 1.0, alternative_healthy: true, ..WELL },
    Phase { seconds: 60, ..WELL },
    // Slow answers, then calls that time out, then calls without any response.
    Phase { takes: Duration::from_millis(2600), seconds: 40, failing: 0.25, ..WELL },
    Phase { seconds: 90, failing: 1.0, takes: Duration::from_secs(3), kind: FailKind::Slow, calls_per_second: 2.0, ..WELL },
    Phase { seconds: 60, ..WELL },
    Phase { seconds: 45, silent: true, calls_per_second: 8.0, ..WELL },
    Phase { seconds: 90, silent: true, ..WELL },
    Phase { seconds: 60, ..WELL },
    // Stated waits, and limits that show nothing to a probe.
    Phase { failing: 1.0, stated_wait: Some(Duration::from_mins(20)), ..WELL },
    Phase { seconds: 400, ..WELL },
    Phase { seconds: 10, failing: 1.0, ..WELL },
    Phase { seconds: 40, limited: true, failing: 0.5, ..WELL },
    Phase { seconds: 60, ..WELL },
    // A call now and then, most of which fail.
    Phase { seconds: 900, calls_per_second: 0.06, failing: 0.82, ..WELL },
];

/// A small generator, the same for both circuits.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 33).unwrap()) / f64::from(1_u32 << 31)
    }
}

/// Plays the story to a circuit that was made with `first` and was given `policy` since; returns
/// what it did.
fn play(first: &CircuitPolicy, policy: &CircuitPolicy, seed: u64) -> Vec<String> {
    let began = Instant::now();
    let mut circuit = Circuit::new(Arc::new(first.clone()));
    circuit.set_policy(Arc::new(policy.clone()));
    let (mut told, mut now, mut dice) = (Vec::new(), began, Dice(seed));
    let mut reports: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let mut calls: Vec<Option<(Permit, Signal)>> = Vec::new();
    for (number, phase) in STORY.iter().enumerate() {
        let ends = now + Duration::from_secs(phase.seconds);
        while now < ends {
            now += Duration::from_secs_f64(1.0 / phase.calls_per_second);
            let (outcome, rng) = (dice.throw(), dice.throw());
            while let Some(Reverse((at, call))) = reports.peek().copied().filter(|Reverse((at, _))| *at <= now) {
                reports.pop();
                let Some((permit, signal)) = calls[call].take() else { continue };
                let context = ReportContext { now: at, rng, alternative_healthy: phase.alternative_healthy };
                told.extend(circuit.report(&permit, signal, context).iter().map(|moved| format!("{number} {moved:?}")));
            }
            let ticked = circuit.tick(now, rng, phase.alternative_healthy);
            told.extend(ticked.iter().map(|moved| format!("{number} {moved:?}")));
            let failed = Signal::Failed { kind: phase.kind, retry_after: phase.stated_wait, local_origin: false };
            let signal = match outcome < phase.failing {
                _ if phase.limited && calls.len() % 2 == 0 => Signal::RateLimited,
                true => failed,
                false => Signal::FirstToken,
            };
            match circuit.admit(now, rng) {
                Ok(permit) => {
                    told.push(format!("{number} in {}", permit.is_probe()));
                    if !phase.silent {
                        reports.push(Reverse((now + phase.takes, calls.len())));
                    }
                    calls.push(Some((permit, signal)));
                }
                Err(reject) => told.push(format!("{number} out {reject:?}")),
            }
            told.push(format!("{number} {}", circuit.degraded()));
        }
    }
    told
}

/// What has to be set beside a setting so that it has an effect.
fn beside(setting: &str) -> Value {
    match setting.rsplit('.').next().unwrap() {
        "consecutive_failures" | "consecutive_open" => json!({ "mode": "consecutive" }),
        _ => json!({}),
    }
}

/// The policy of the target `main` under this circuit, in the section that the row is in.
fn policy(row: &Row, circuit: Value) -> CircuitPolicy {
    let mut config = json!({
        "providers": { "p": { "dialect": "openai_chat", "base_url": "http://127.0.0.1:1", "api_key": "k" } },
        "targets": { "main": { "provider": "p", "model": "m-1" } },
    });
    let path = row.path();
    merge(&mut config, at(&path[..path.len() - 1], circuit));
    let config: Config = load_text(&config.to_string(), None, &GivenEnvironment::new()).unwrap().config;
    config.circuit_for(&config.targets[&"main".into()]).clone()
}

#[test]
fn a_circuit_does_something_else_for_each_changed_setting() {
    let mut deaf = Vec::new();
    let of_circuits = |row: &Row| row.setting.starts_with("circuit.") || row.setting.contains(".circuit.");
    let rows: Vec<Row> = rows().into_iter().filter(|row| of_circuits(row) && row.seen_by == THIS).collect();
    assert!(rows.len() > 12, "{}", rows.len());
    for row in rows {
        let name = *row.path().last().unwrap();
        let first = policy(&row, beside(&row.setting));
        let shown = serde_json::to_value(&first).unwrap();
        let other = row.other.clone().or_else(|| another(&shown[name])).unwrap();
        let mut changed = beside(&row.setting);
        merge(&mut changed, json!({ name: other }));
        let changed = policy(&row, changed);
        let differs = (1..=3).any(|seed| play(&first, &first, seed) != play(&first, &changed, seed));
        if !differs {
            deaf.push(row.setting);
        }
    }
    assert!(deaf.is_empty(), "these settings change nothing: {deaf:#?}");
}

/// The test above, as the table names it.
const THIS: &str = "a_circuit_does_something_else_for_each_changed_setting";

#[tokio::test]
async fn a_callers_own_mistakes_open_a_circuit_where_the_changed_setting_counts_any_failure() {
    for whose in ["all", "main"] {
        let consecutive = json!({ "mode": "consecutive", "consecutive_failures": 2 });
        let mut server = Reloaded::start(json!({ "circuit": consecutive })).await;
        server.upstream.otherwise(Reply::status(400));
        for _ in 0..3 {
            server.invoke().await;
        }
        assert_eq!(server.target().await.circuit.unwrap().state(), CircuitState::Closed, "any_failure: false");
        let circuit = json!({ "circuit": { "any_failure": true } });
        let change = if whose == "all" { circuit } else { json!({ "targets": { "main": circuit } }) };
        server.change(change).await;
        for _ in 0..3 {
            server.invoke().await;
        }
        assert_eq!(server.target().await.circuit.unwrap().state(), CircuitState::Open, "any_failure: true, {whose}");
    }
}
