//! Gates against a naive model that keeps everything that happened, and judges all of it again.

use proptest::{collection::vec, option, prelude::*};

use super::*;

/// A step of the model.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Call(u8),
    /// The call that is out for so long is refused, with a stated wait.
    Refuse(usize, Option<u64>),
    Answer(usize),
    Lose(usize),
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![0..2_000_u64, 0..90_000_u64].prop_map(Step::Pass),
        5 => (0..4_u8).prop_map(Step::Call),
        4 => (0..8_usize, option::of(0..900_000_u64)).prop_map(|(call, wait)| Step::Refuse(call, wait)),
        2 => (0..8_usize).prop_map(Step::Answer),
        1 => (0..8_usize).prop_map(Step::Lose),
        1 => Just(Step::Open),
    ]
}

/// What became of a call: its place in the order of admission counts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Became {
    Out,
    Refused,
    Answered,
    Lost,
}

#[expect(clippy::too_many_lines, reason = "one step after the other")]
fn check(kind: GateKind, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut it = Calls::new(kind);
    let mut calls: Vec<(GatePass, Became)> = Vec::new();
    let mut admitted: Vec<Instant> = Vec::new();
    let mut slowest = Duration::ZERO;
    // Calls before this one say nothing any more.
    let mut from = 0;
    let mut closed = false;
    for step in steps {
        let mut out = calls
            .iter()
            .enumerate()
            .filter(|(_, (_, became))| *became == Became::Out);
        match step {
            Step::Pass(millis) => it.now += Duration::from_millis(millis),
            Step::Call(tenant) => {
                // One that is silent for longer than the refusals took is being answered.
                let refused = calls
                    .iter()
                    .rposition(|(_, became)| *became == Became::Refused);
                let later = from.max(refused.map_or(0, |last| last + 1));
                let silent = out
                    .find(|(index, _)| *index >= later)
                    .map(|(index, _)| it.now - admitted[index]);
                let least = (slowest * 2).max(Duration::from_millis(50));
                let comes = silent.is_some_and(|silent| silent >= least);
                let opens = closed && comes;
                let passed = it.pass(["a", "b", "c", "d"][usize::from(tenant)]);
                prop_assert_eq!(it.gate.drain().is_some(), opens);
                if opens {
                    (from, closed, slowest) = (calls.len(), false, Duration::ZERO);
                }
                match passed {
                    Ok(pass) => {
                        prop_assert!(closed || !pass.probe, "a probe passes a closed gate only");
                        calls.push((pass, Became::Out));
                        admitted.push(it.now);
                    }
                    Err(wait) => {
                        prop_assert!(!wait.is_zero() && wait <= secs(60));
                        prop_assert!(
                            closed || kind == GateKind::Rate,
                            "an open gate lets calls pass"
                        );
                    }
                }
            }
            Step::Refuse(place, wait) => {
                let Some((index, _)) = out.nth(place) else {
                    continue;
                };
                calls[index].1 = Became::Refused;
                if index >= from {
                    slowest = slowest.max(it.now - admitted[index]);
                }
                let pass = calls[index].0;
                it.refuse_for(pass, wait.map(Duration::from_millis));
                let is_closed = it.gate.closed_since().is_some();
                if is_closed && !closed {
                    let refused = calls[from..]
                        .iter()
                        .filter(|(_, became)| *became == Became::Refused);
                    prop_assert!(index >= from, "a call from before closes nothing");
                    prop_assert!(refused.count() >= 2, "one refusal closes nothing");
                }
                prop_assert!(is_closed || !closed, "a refusal opens nothing");
                closed = is_closed;
            }
            Step::Answer(place) => {
                let Some((index, _)) = out.nth(place) else {
                    continue;
                };
                let later = calls[index + 1..]
                    .iter()
                    .any(|(_, became)| *became == Became::Refused);
                calls[index].1 = Became::Answered;
                let pass = calls[index].0;
                let opened = it.answer(pass).is_some();
                prop_assert_eq!(
                    opened,
                    closed && index >= from && !later,
                    "{} of {}",
                    index,
                    calls.len()
                );
                if opened {
                    (from, closed, slowest) = (calls.len(), false, Duration::ZERO);
                }
            }
            Step::Lose(place) => {
                let Some((index, _)) = out.nth(place) else {
                    continue;
                };
                calls[index].1 = Became::Lost;
                it.gate.ended(calls[index].0.call);
            }
            Step::Open => {
                prop_assert_eq!(it.gate.open(it.now).is_some(), closed);
                (calls, admitted) = (Vec::new(), Vec::new());
                (from, closed, slowest) = (0, false, Duration::ZERO);
            }
        }
        prop_assert_eq!(it.gate.class().is_some(), closed);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rate_gate_closes_by_refusals_in_a_row_and_opens_by_the_first_later_answer(steps in vec(step(), 1..120)) {
        check(GateKind::Rate, steps)?;
    }

    #[test]
    fn a_credential_gate_closes_by_refusals_in_a_row_and_opens_by_the_first_later_answer(steps in vec(step(), 1..120)) {
        check(GateKind::Credential, steps)?;
    }

    #[test]
    fn a_configuration_gate_closes_by_refusals_in_a_row_and_opens_by_the_first_later_answer(steps in vec(step(), 1..120)) {
        check(GateKind::Configuration, steps)?;
    }
}
