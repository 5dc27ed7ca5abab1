//! A rate gate before a provider that refuses some calls at random, and before one with a limit.

use super::*;
use crate::policy::rng::SeededRng;

/// What became of calls that come evenly: how many were accepted and refused by the provider, and
/// how many wait.
struct Traffic {
    accepted: u32,
    refused: u32,
    waiting: u32,
}

/// So many calls a second for so many seconds through a gate, to a provider that refuses as
/// `refuses` decides, without a stated wait. A refused call comes again.
fn traffic(per_second: u32, seconds: u32, mut refuses: impl FnMut(Duration) -> bool) -> Traffic {
    let (mut gate, start) = gate(GateKind::Rate);
    let mut done = Traffic {
        accepted: 0,
        refused: 0,
        waiting: 0,
    };
    let step = Duration::from_millis(5);
    let mut due = 0.0;
    for number in 0..seconds * 200 {
        let since = step * number;
        let now = start + since;
        due += f64::from(per_second) * step.as_secs_f64();
        while due >= 1.0 {
            (due, done.waiting) = (due - 1.0, done.waiting + 1);
        }
        while done.waiting > 0 && gate.admit(now, false).is_ok() {
            if refuses(since) {
                done.refused += 1;
                gate.close(now, &failed(None, FailureClass::RateLimited), TOOK, 0.0);
            } else {
                (done.accepted, done.waiting) = (done.accepted + 1, done.waiting - 1);
                gate.accepted(now);
            }
        }
    }
    done
}

#[test]
fn where_a_few_calls_in_a_hundred_are_refused_at_random_nearly_all_pass_without_a_queue() {
    for share in [0.02, 0.06, 0.12, 0.2] {
        for seed in 0..20 {
            let mut rng = SeededRng::new(seed, &"i-1".into(), 1);
            let done = traffic(40, 120, |_| rng.unit() < share);
            assert!(
                done.waiting < 100,
                "{share}, seed {seed}: {} wait, {} accepted",
                done.waiting,
                done.accepted
            );
        }
    }
}

#[test]
fn where_a_limit_refuses_calls_they_stay_paced_and_hardly_any_is_refused() {
    for (limit, burst) in [(20.0, 20.0), (20.0, 2.0), (5.0, 5.0), (100.0, 200.0)] {
        let (mut held, mut counted) = (burst, Duration::ZERO);
        let done = traffic(250, 120, |since| {
            held = f64::min(held + (since - counted).as_secs_f64() * limit, burst);
            counted = since;
            let refused = held < 1.0;
            held -= if refused { 0.0 } else { 1.0 };
            refused
        });
        let share = f64::from(done.accepted) / (limit * 120.0);
        assert!(share > 0.5, "{limit}/s, {burst} at once: {share}");
        assert!(
            done.refused * 10 < done.accepted,
            "{limit}/s, {burst} at once: {} of {}",
            done.refused,
            done.accepted
        );
    }
}
