//! A rate gate before a provider with a limit, and before one that refuses some calls at random.

use std::collections::VecDeque;

use super::*;
use crate::policy::rng::SeededRng;

/// What became of calls that come evenly.
struct Traffic {
    accepted: u32,
    refused: u32,
    waiting: usize,
    /// The longest time that a call waited before the gate.
    longest: Duration,
}

/// Durations of a refusal and an acceptance, in steps of 5 ms.
const STEPS: (usize, usize) = (4, 60);

/// So many calls a second for so many seconds through a gate, to a provider that refuses as
/// `refuses` decides. A refused call comes again.
fn traffic(per_second: u32, seconds: u32, mut refuses: impl FnMut(Duration) -> bool) -> Traffic {
    let mut it = Calls::new(GateKind::Rate);
    let mut done = Traffic {
        accepted: 0,
        refused: 0,
        waiting: 0,
        longest: Duration::ZERO,
    };
    let mut line = VecDeque::new();
    let mut coming: VecDeque<Vec<(GatePass, bool)>> = VecDeque::new();
    coming.resize_with(STEPS.1 + 1, Vec::new);
    let mut due = 0.0;
    for _ in 0..seconds * 200 {
        it.now += Duration::from_millis(5);
        due += f64::from(per_second) * 0.005;
        while due >= 1.0 {
            due -= 1.0;
            line.push_back(it.now);
            if it.gate.is_paced(it.now, &"a".into()) {
                it.gate.joins_line(it.now);
            }
        }
        coming.push_back(Vec::new());
        for (pass, is_refused) in coming.pop_front().unwrap_or_default() {
            if is_refused {
                done.refused += 1;
                line.push_back(it.now);
                it.refuse(pass);
            } else {
                done.accepted += 1;
                it.answer(pass);
            }
        }
        while let Some(since) = line.front().copied() {
            let Ok(pass) = it.pass("a") else { break };
            line.pop_front();
            done.longest = done.longest.max(it.now - since);
            let is_refused = refuses(it.since_start());
            let after = if is_refused { STEPS.0 } else { STEPS.1 };
            coming[after].push((pass, is_refused));
        }
    }
    done.waiting = line.len();
    done
}

#[test]
fn where_calls_are_refused_at_random_they_do_not_wait() {
    for share in [0.02, 0.06, 0.12] {
        for per_second in [10, 40, 150] {
            for seed in 0..20 {
                let mut rng = SeededRng::new(seed, &"i-1".into(), 1);
                let done = traffic(per_second, 60, |_| rng.unit() < share);
                assert!(
                    done.longest < secs(4),
                    "{share}, {per_second}/s, seed {seed}: {} wait, {:?}",
                    done.waiting,
                    done.longest
                );
            }
        }
    }
}

/// Returns a bucket that refills.
fn bucket(limit: f64, burst: f64) -> impl FnMut(Duration) -> bool {
    let mut held = burst;
    let mut counted = Duration::ZERO;
    move |since| {
        held = f64::min(held + (since - counted).as_secs_f64() * limit, burst);
        counted = since;
        let refused = held < 1.0;
        held -= if refused { 0.0 } else { 1.0 };
        refused
    }
}

#[test]
fn a_limit_is_used_and_hardly_run_into() {
    for (limit, burst, used) in [(20, 20, 0.9), (20, 2, 0.6), (5, 5, 0.9), (100, 200, 0.9)] {
        for times in [2, 5] {
            let per_second = times * limit;
            let done = traffic(per_second, 120, bucket(f64::from(limit), f64::from(burst)));
            let share = f64::from(done.accepted) / f64::from(limit * 120);
            assert!(
                share > used,
                "{limit}/s, {burst} at once, {per_second}/s: {share}"
            );
            assert!(
                done.refused * 10 < done.accepted * 7,
                "{limit}/s, {burst} at once, {per_second}/s: {} of {}",
                done.refused,
                done.accepted
            );
        }
    }
}

#[test]
fn a_limit_a_minute_costs_a_handful_of_calls_each_time() {
    let mut left = 60;
    let mut window = 0;
    let done = traffic(2, 300, |since| {
        if since.as_secs() / 60 != window {
            (left, window) = (60, since.as_secs() / 60);
        }
        let refused = left == 0;
        left -= i32::from(!refused);
        refused
    });
    assert!(done.accepted >= 290, "{}", done.accepted);
    assert!(done.refused <= 5 * 15, "{}", done.refused);
}

#[test]
fn calls_that_waited_leave_in_steps() {
    let mut it = Calls::new(GateKind::Rate);
    it.close("a");
    let probe = it.pass("a").unwrap();
    it.now += secs(1);
    it.answer(probe);
    let at_once = (0..1000).take_while(|_| it.pass("a").is_ok()).count();
    assert!((1..20).contains(&at_once), "{at_once}");
    it.now += secs(1);
    assert!((0..1000).all(|_| it.pass("a").is_ok()), "the limit is gone");
}

#[test]
fn a_call_that_goes_ahead_passes_an_open_gate_out_of_turn_and_not_a_closed_one() {
    let mut it = Calls::new(GateKind::Rate);
    it.close("a");
    let probe = it.pass("a").unwrap();
    let tenant = TenantId::from("a");
    assert!(it.gate.admit(it.now, &tenant, true).is_err());
    it.answer(probe);
    while it.pass("a").is_ok() {}
    assert!(it.gate.admit(it.now, &tenant, true).is_ok());
}

#[test]
fn one_to_which_nobody_comes_any_more_opens() {
    let mut it = Calls::new(GateKind::Rate);
    assert_eq!(it.gate.expire(it.now), Err(None));
    it.close("a");
    let wait = it.gate.expire(it.now).unwrap_err().unwrap();
    it.now += wait;
    assert!(matches!(
        it.gate.expire(it.now),
        Ok(GateChange::Opened { .. })
    ));
    assert!(it.pass("a").is_ok_and(|pass| !pass.probe));
}

/// Refuses the probes of a closed gate at which nobody waits, until it was closed for two minutes.
fn long_closed() -> Calls {
    let mut it = Calls::new(GateKind::Rate);
    it.close("a");
    loop {
        match it.pass("a") {
            Err(wait) => it.now += wait,
            Ok(probe) => {
                it.refuse(probe);
                if it.since_start() > secs(120) {
                    return it;
                }
            }
        }
    }
}

#[test]
fn a_probe_is_brought_forward_for_calls_that_have_nowhere_else_to_go() {
    let tenant = TenantId::from("a");
    let mut it = long_closed();
    let alone = it.gate.peek(it.now, &tenant).unwrap_err();
    assert!(alone > secs(50), "{alone:?} while others serve");
    it.now += secs(3);
    // Who asks where to wait is told so, and moves nothing.
    assert_eq!(it.gate.peek_after(it.now, &tenant, 0), Err(secs(5)));
    assert_eq!(it.gate.peek(it.now, &tenant), Err(alone - secs(3)));
    it.gate.joins_line(it.now);
    assert_eq!(it.gate.peek(it.now, &tenant), Err(secs(5)));
    it.now += secs(5);
    let probe = it.pass("a").unwrap();
    // No more than one such probe in eight seconds, however many calls wait.
    it.refuse(probe);
    for _ in 0..3 {
        it.gate.joins_line(it.now);
    }
    assert!(it.gate.peek(it.now, &tenant).unwrap_err() > secs(7));
}

#[test]
fn a_call_that_comes_long_after_the_last_probe_is_one_at_once() {
    let tenant = TenantId::from("a");
    let mut it = long_closed();
    it.now += secs(20);
    assert!(it.gate.peek_after(it.now, &tenant, 0).unwrap_err() < secs(1));
    assert!(it.pass("a").is_err(), "while others serve");
    it.gate.joins_line(it.now);
    assert!(it.pass("a").is_ok());
}

#[test]
fn a_stated_end_is_waited_for_by_those_who_have_nowhere_else_to_go_too() {
    let tenant = TenantId::from("a");
    let mut it = Calls::new(GateKind::Rate);
    let headers = nothing_left("30s");
    it.gate.observe_limits(it.now, &headers, &tenant);
    let probe = it.pass("a").unwrap();
    it.refuse(probe);
    it.now += secs(9);
    it.gate.joins_line(it.now);
    assert_eq!(it.pass("a").err(), Some(secs(6)), "half-way");
}
