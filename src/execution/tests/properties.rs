//! The invariants of the stream, under random cuts, stalls, departures, resumptions, crashes and
//! takeovers.

use std::time::Duration;

use super::harness::{Ask, Client, TestRng, engine, replica, usual};
use crate::domain::invocation::RewindMode;

const WORDS: [&str; 10] = [
    "the ",
    "cafe\u{301} ",
    "👩\u{200d}👩\u{200d}👧 ",
    "नमस्ते ",
    "fox ",
    "🇳🇴 ",
    "jumps ",
    "over ",
    "naïve ",
    "dog ",
];

const MODES: [RewindMode; 5] = [
    RewindMode::Rewind,
    RewindMode::Rewind,
    RewindMode::HoldBack { bytes: 12 },
    RewindMode::HoldBack { bytes: 0 },
    RewindMode::Atomic,
];

fn words(rng: &mut TestRng, max: usize) -> String {
    let count = 1 + rng.below(max);
    (0..count)
        .map(|_| *rng.pick(&WORDS))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// Returns a script of failures and then a completion, and that completion.
fn script(rng: &mut TestRng) -> (String, String) {
    let answer = words(rng, 30);
    let mut steps = Vec::new();
    for _ in 0..rng.below(3) {
        let prefix: String = answer
            .chars()
            .take(rng.below(answer.chars().count() + 1))
            .collect();
        let text = if rng.below(3) == 0 {
            words(rng, 9)
        } else {
            prefix
        };
        steps.push(match rng.below(5) {
            0 => "{ status: { code: 503 } }".to_owned(),
            1 => "reset".to_owned(),
            2 => format!("{{ stall: {{ after_text: {} }} }}", quoted(&text)),
            _ => format!("{{ cut: {{ after_text: {} }} }}", quoted(&text)),
        });
    }
    let tools = if rng.below(4) == 0 {
        ", tool_calls: [{ name: search, arguments: { q: 1 } }]"
    } else {
        ""
    };
    let script = format!(
        "{{ steps: [{}], otherwise: {{ answer: {{ text: {}, tokens_per_second: 50{tools} }} }} }}",
        steps.join(", "),
        quoted(&answer),
    );
    (script, answer)
}

/// A JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

async fn one_course(seed: u64, crashes: bool) {
    let mut rng = TestRng::new(seed);
    let (script, answer) = script(&mut rng);
    let engine = engine(&script);
    let journal = usual();
    let mut here = replica("a", &engine, &journal);
    let mut replicas = 1;
    let mut ask = Ask::new("Hello").resumable();
    ask.mode = Some(*rng.pick(&MODES));
    let started = ask.start(&here).await.unwrap();
    let id = started.id;
    let mut follower = started.follower;
    let mut client = Client::default();
    for _ in 0..12 {
        let more = client.read(&mut follower, 1 + rng.below(12)).await.unwrap();
        drop(follower);
        if !more {
            break;
        }
        tokio::time::sleep(Duration::from_millis(rng.below(300) as u64)).await;
        // At most two crashes: each costs an attempt of the allowance.
        if crashes && replicas < 3 && rng.below(4) == 0 {
            here.crash().await;
            replicas += 1;
            here = replica(&format!("replica-{replicas}"), &engine, &journal);
        }
        let record = here
            .find(
                &super::harness::tenant(),
                &super::super::InvocationName::Id(id.clone()),
            )
            .await
            .unwrap()
            .unwrap();
        follower = here.follow(&record, client.cursor).follower;
        if client.outcome.is_some() {
            break;
        }
    }
    client.finish(&here, &id).await;
    if client.outcome.as_ref().unwrap().result.is_err() && crashes {
        // The allowance may be used up by crashes; then it is said, and nothing else is.
        return;
    }
    assert_eq!(client.answer(), answer, "seed {seed}: {script}");
    // One who comes only now holds the same.
    let mut late = Client::default();
    late.finish(&here, &id).await;
    assert_eq!(late.fold.hash(), client.fold.hash(), "seed {seed}");
    assert_eq!(late.snapshots, 0, "the record is whole: seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_and_resumes_at_random_folds_to_the_same_answer() {
    for seed in 1..=1000 {
        one_course(seed, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_that_crash_at_random_lose_and_double_nothing() {
    for seed in 1..=1000 {
        one_course(seed, true).await;
    }
}
