//! Gates against a naive model that keeps everything that happened, and judges all of it again
//! after each step.

use proptest::{collection::vec, option, prelude::*};

use super::*;

/// A step of the model.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Ask,
    Close { wait: Option<Duration>, rng: f64 },
    Answer,
    Exhausted { reset_ms: u64 },
}

/// A past step and its time.
#[derive(Debug, Clone, Copy)]
enum Past {
    /// It closed: at least, and at most, until then.
    Closed(Instant, Instant),
    Probed(Instant),
    Opened,
}

fn step() -> impl Strategy<Value = Step> {
    let wait = option::of(prop_oneof![Just(0), 1..2_000_u64, 0..900_000_u64]);
    prop_oneof![
        3 => prop_oneof![0..2_000_u64, 0..90_000_u64].prop_map(Step::Pass),
        3 => Just(Step::Ask),
        2 => (wait, 0.0..=1.0).prop_map(|(wait, rng)| Step::Close { wait: wait.map(Duration::from_millis), rng }),
        1 => Just(Step::Answer),
        1 => (1..400_000_u64).prop_map(|reset_ms| Step::Exhausted { reset_ms }),
    ]
}

/// All that happened since the gate was opened last.
fn since_open(past: &[Past]) -> &[Past] {
    let opened = past.iter().rposition(|one| matches!(one, Past::Opened));
    &past[opened.map_or(0, |index| index + 1)..]
}

/// Until when the gate is closed, at least and at most.
fn closed_until(past: &[Past]) -> Option<(Instant, Instant)> {
    let each = since_open(past).iter().filter_map(|one| match *one {
        Past::Closed(min, max) => Some((min, max)),
        Past::Probed(at) => Some((at + secs(60), at + secs(60))),
        Past::Opened => None,
    });
    each.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
}

fn is_probing(past: &[Past]) -> bool {
    matches!(since_open(past).last(), Some(Past::Probed(_)))
}

fn check(kind: GateKind, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (mut gate, mut now) = gate(kind);
    let mut past = Vec::new();
    let is_rate = kind == GateKind::Rate;
    for step in steps {
        let known = closed_until(&past);
        match step {
            Step::Pass(millis) => now += Duration::from_millis(millis),
            Step::Ask => match (gate.admit(now, false), known) {
                (Ok(pass), None) => prop_assert_eq!(pass, GatePass::Open),
                (Ok(pass), Some((min, _))) => {
                    prop_assert!(now >= min, "it passed {:?} too early", min - now);
                    prop_assert_eq!(
                        pass,
                        if is_rate {
                            GatePass::Open
                        } else {
                            GatePass::Probe
                        }
                    );
                    if !is_rate {
                        past.push(Past::Probed(now));
                    }
                }
                (Err(wait), known) if is_rate => {
                    // The gate itself, or the line before it.
                    prop_assert!(!wait.is_zero());
                    prop_assert!(known.is_none_or(|(min, _)| now + wait >= min));
                }
                (Err(wait), known) => {
                    let (min, max) = known.expect("only a gate that closed refuses");
                    prop_assert!(now + wait >= min && now + wait <= max);
                }
            },
            Step::Close { wait, rng } => {
                let stated = wait
                    .filter(|wait| !wait.is_zero())
                    .unwrap_or(secs(1))
                    .min(secs(300));
                let kept = if is_rate { stated } else { secs(60) };
                let spread = kept.mul_f64(1.0 + 0.2 * rng);
                let change = gate.close(now, &failed(wait, FailureClass::RateLimited), TOOK, rng);
                if let Some((_, max)) = known.filter(|(min, _)| *min >= now + spread) {
                    prop_assert_eq!(
                        change,
                        None,
                        "closed for longer already, until {:?}",
                        max - now
                    );
                }
                let min = if is_rate { now + kept } else { now + spread };
                past.push(Past::Closed(min, now + spread));
            }
            Step::Answer => {
                let opened = gate.succeed(now);
                let over = known.is_some_and(|(_, max)| max <= now);
                let pending = known.is_some_and(|(min, _)| min > now);
                if is_rate {
                    prop_assert!(!(opened.is_some() && pending), "opened before its time");
                    prop_assert!(opened.is_some() || !over, "it was over");
                } else {
                    prop_assert_eq!(opened.is_some(), is_probing(&past));
                }
                if opened.is_some() {
                    past.push(Past::Opened);
                }
            }
            Step::Exhausted { reset_ms } => {
                let headers = [
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "?"),
                ]
                .map(|(name, value)| {
                    (
                        name.to_owned(),
                        value.replace('?', &format!("{reset_ms}ms")),
                    )
                });
                let change = gate.observe_limits(now, &headers);
                if is_rate {
                    let until = now + Duration::from_millis(reset_ms).min(secs(300));
                    past.push(Past::Closed(until, until));
                } else {
                    prop_assert_eq!(change, None, "such headers speak of rates");
                }
            }
        }
        let closed_for = gate.peek(now).err().unwrap_or_default();
        let (min, max) = closed_until(&past).unwrap_or((now, now));
        prop_assert!(
            closed_for >= min.saturating_duration_since(now),
            "a stated wait was shortened"
        );
        prop_assert!(
            closed_for <= max.saturating_duration_since(now),
            "closed for longer than anybody said"
        );
        prop_assert_eq!(gate.class().is_some(), closed_until(&past).is_some());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rate_gate_is_closed_for_the_longest_wait_that_was_ever_stated(steps in vec(step(), 1..80)) {
        check(GateKind::Rate, steps)?;
    }

    #[test]
    fn a_credential_gate_is_closed_but_for_one_probe_a_minute(steps in vec(step(), 1..80)) {
        check(GateKind::Credential, steps)?;
    }

    #[test]
    fn a_configuration_gate_is_closed_but_for_one_probe_a_minute(steps in vec(step(), 1..80)) {
        check(GateKind::Configuration, steps)?;
    }
}
