//! The closed circuit against a naive model that keeps every attempt and judges all of them again
//! after each step.

use proptest::{prelude::*, sample::Index};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use super::*;

/// Counts are small: they fit a float.
#[expect(
    clippy::cast_precision_loss,
    reason = "histories have fewer than a thousand attempts"
)]
fn float(count: usize) -> f64 {
    count as f64
}

/// Short times and runs, so that short histories reach every rule.
fn policy() -> CircuitPolicy {
    CircuitPolicy {
        first_token_timeout: Duration::from_secs(5),
        slow_threshold: Duration::from_secs(1),
        run_at_low_rate: 5,
        ..CircuitPolicy::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Answered { slow: bool },
    Failed { slow: bool },
    Silent,
    Local,
    Removed,
}

#[derive(Debug, Clone)]
struct Attempt {
    epoch: u32,
    admitted: u64,
    known: Known,
    committed: Option<u64>,
    /// A cut completion is an outcome of its own, without a permit.
    has_permit: bool,
    reported: u8,
}

#[derive(Debug, Clone, Default)]
struct Model {
    now: u64,
    epoch: u32,
    open: bool,
    alternative: bool,
    attempts: Vec<Attempt>,
    /// When counting began, for the parts of the window.
    window_origin: Option<u64>,
    stale: u64,
}

#[derive(Debug, Clone)]
enum Step {
    Call(Word),
    Admit,
    Report(Index, Word),
    Pass(u64),
    Alternative(bool),
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[rustfmt::skip]
enum Word { Answer, Failure, Timeout, Local, Neutral, GaveUpEarly, GaveUpLate, Abandoned }

impl Word {
    fn signal(self) -> Signal {
        match self {
            Self::Answer => ANSWER,
            Self::Failure => FAILURE,
            Self::Timeout => TIMEOUT,
            Self::Local => LOCAL,
            Self::Neutral => Signal::Neutral,
            Self::GaveUpEarly => Signal::Cancelled {
                after_slow_threshold: false,
            },
            Self::GaveUpLate => Signal::Cancelled {
                after_slow_threshold: true,
            },
            Self::Abandoned => Signal::Abandoned,
        }
    }
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => Just(Word::Answer),
        8 => Just(Word::Failure),
        2 => Just(Word::Timeout),
        2 => Just(Word::Local),
        1 => Just(Word::Neutral),
        1 => Just(Word::GaveUpEarly),
        3 => Just(Word::GaveUpLate),
        2 => Just(Word::Abandoned),
    ]
}

impl Model {
    fn admit(&mut self) {
        self.attempts.push(Attempt {
            epoch: self.epoch,
            admitted: self.now,
            known: Known::Nothing,
            committed: None,
            has_permit: true,
            reported: 0,
        });
    }

    /// Which attempt the index means, among those with a permit.
    fn holder(&self, index: Index) -> Option<usize> {
        let holders: Vec<_> = (0..self.attempts.len())
            .filter(|at| self.attempts[*at].has_permit)
            .collect();
        (!holders.is_empty()).then(|| *index.get(&holders))
    }

    fn report(&mut self, at: usize, word: Word) {
        self.settle();
        let cut = match (self.attempts[at].reported, word) {
            (0, _) => false,
            (1, Word::Failure | Word::Timeout) => true,
            _ => {
                self.attempts[at].reported = if word == Word::Answer {
                    self.attempts[at].reported
                } else {
                    2
                };
                return;
            }
        };
        self.attempts[at].reported = if word == Word::Answer { 1 } else { 2 };
        if self.attempts[at].epoch != self.epoch || self.open {
            self.stale += 1;
            return;
        }
        let slow = self.now - self.attempts[at].admitted >= 1000;
        let known = match word {
            Word::Answer => Known::Answered { slow },
            Word::Failure => Known::Failed { slow: false },
            Word::Timeout => Known::Failed { slow: true },
            Word::Local => Known::Local,
            Word::Neutral => Known::Removed,
            Word::GaveUpEarly | Word::Abandoned if !slow => Known::Removed,
            Word::GaveUpLate | Word::GaveUpEarly | Word::Abandoned => Known::Silent,
        };
        let at = if cut {
            let now = self.now;
            self.attempts.push(Attempt {
                admitted: now,
                known,
                has_permit: false,
                ..self.attempts[at].clone()
            });
            self.attempts.last_mut().unwrap().committed = None;
            self.attempts.len() - 1
        } else {
            if self.attempts[at].committed.is_some() {
                return;
            }
            self.attempts[at].known = known;
            at
        };
        let (before, after) = self.run_around(at);
        let joins = match known {
            Known::Failed { .. } => true,
            Known::Silent | Known::Local | Known::Removed => after > 0,
            Known::Answered { .. } | Known::Nothing => false,
        };
        if joins && before + after >= self.run_length() {
            self.open = true;
            return;
        }
        self.settle();
    }

    /// Commits from the first attempt on, until one is still open, and judges after each.
    fn settle(&mut self) {
        while !self.open {
            let next = self.attempts.iter_mut().find(|attempt| {
                attempt.epoch == self.epoch
                    && attempt.committed.is_none()
                    && attempt.known != Known::Removed
            });
            let Some(next) = next else { return };
            if next.known == Known::Nothing {
                if self.now - next.admitted < 5000 {
                    return;
                }
                next.known = Known::Failed { slow: true };
            }
            next.committed = Some(self.now);
            self.window_origin.get_or_insert(self.now);
            let answered = matches!(next.known, Known::Answered { .. });
            self.open = !answered && self.trips();
        }
    }

    /// A closed circuit looks at its window after each report and tick; that begins the first part
    /// of it.
    fn look(&mut self) {
        if !self.open {
            self.window_origin.get_or_insert(self.now);
        }
    }

    /// What was committed, in order.
    fn committed(&self) -> Vec<&Attempt> {
        self.attempts
            .iter()
            .filter(|a| a.epoch == self.epoch && a.committed.is_some())
            .collect()
    }

    fn trips(&self) -> bool {
        let committed = self.committed();
        let length = self.run_length();
        let run: Vec<_> = committed
            .iter()
            .rev()
            .take_while(|a| !matches!(a.known, Known::Answered { .. }))
            .copied()
            .collect();
        let failed = run
            .iter()
            .filter(|a| matches!(a.known, Known::Failed { .. }))
            .count();
        let unanswered: Vec<_> = run.iter().filter(|a| a.known != Known::Local).collect();
        let span = match (unanswered.first(), unanswered.last()) {
            (Some(last), Some(first)) => last.admitted.saturating_sub(first.admitted),
            _ => 0,
        };
        let local = run
            .iter()
            .take_while(|a| !matches!(a.known, Known::Failed { .. }))
            .filter(|a| a.known == Known::Local)
            .count();
        if committed
            .last()
            .is_some_and(|last| last.known == Known::Local)
        {
            return local >= length;
        }
        if failed >= length || (unanswered.len() >= length && span >= 1000) {
            return true;
        }
        let Some(basis) = self.basis() else {
            return false;
        };
        let failures = basis
            .iter()
            .filter(|a| matches!(a.known, Known::Failed { .. }))
            .count();
        let share = float(failures) / float(basis.len());
        share >= 0.8 || (self.alternative && share >= 0.5)
    }

    fn basis(&self) -> Option<Vec<&Attempt>> {
        let origin = self.window_origin?;
        let counted: Vec<_> = self
            .committed()
            .into_iter()
            .filter(|a| a.known != Known::Local)
            .collect();
        let part = |at: u64| (at - origin) / 500;
        let window: Vec<_> = counted
            .iter()
            .filter(|a| part(self.now) - part(a.committed.unwrap()) < 20)
            .copied()
            .collect();
        if window.len() >= 20 {
            return Some(window);
        }
        let last = counted.get(counted.len().checked_sub(20)?..)?;
        (self.now - last.first()?.committed? <= 300_000).then(|| last.to_vec())
    }

    /// Failures around an attempt that no undecided or successful one interrupts.
    fn run_around(&self, at: usize) -> (usize, usize) {
        let continues = |a: &&Attempt| !matches!(a.known, Known::Nothing | Known::Answered { .. });
        let mine = |a: &&Attempt| a.epoch == self.epoch;
        let before = self.attempts[..=at]
            .iter()
            .filter(mine)
            .rev()
            .take_while(continues);
        let after = self.attempts[at + 1..]
            .iter()
            .filter(mine)
            .take_while(continues);
        let failed = |a: &&Attempt| matches!(a.known, Known::Failed { .. });
        (before.filter(failed).count(), after.filter(failed).count())
    }

    fn run_length(&self) -> usize {
        let origin = self.attempts.first().map_or(0, |first| first.admitted);
        let part = |at: u64| (at - origin) / 500;
        let arrived = self
            .attempts
            .iter()
            .filter(|a| a.has_permit && a.known != Known::Removed);
        let recent = arrived
            .filter(|a| part(self.now) - part(a.admitted) < 20)
            .count();
        let rate = float(recent) / 10.0;
        let more = 7.0 * rate.ln() / 50.0_f64.ln();
        let steps = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5];
        5 + steps.iter().filter(|step| more >= **step).count()
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        any::<bool>()
            .prop_map(|alternative| Self {
                alternative,
                ..Self::default()
            })
            .boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let gap = prop_oneof![4 => Just(0_u64), 6 => 1..600_u64, 2 => 600..3000_u64, 1 => 3000..15_000_u64];
        prop_oneof![
            8 => word().prop_map(Step::Call),
            4 => Just(Step::Admit),
            6 => (any::<Index>(), word()).prop_map(|(index, word)| Step::Report(index, word)),
            6 => gap.prop_map(Step::Pass),
            1 => any::<bool>().prop_map(Step::Alternative),
            1 => Just(Step::Reset),
        ]
        .boxed()
    }

    /// Only a closed circuit is modelled: an open one receives late reports, and is reset.
    fn preconditions(state: &Self, step: &Step) -> bool {
        match step {
            Step::Call(_) | Step::Admit => !state.open,
            Step::Report(..) => !state.attempts.is_empty(),
            Step::Reset => state.open,
            Step::Pass(_) | Step::Alternative(_) => true,
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        match step {
            Step::Admit | Step::Call(_) => {
                state.settle();
                if state.open {
                    return state;
                }
                state.admit();
                if let Step::Call(word) = step {
                    state.report(state.attempts.len() - 1, *word);
                    state.look();
                }
            }
            Step::Report(index, word) => {
                if let Some(at) = state.holder(*index) {
                    state.report(at, *word);
                }
                state.look();
            }
            // An open circuit is watched for less than the shortest open time: half-open is not
            // modelled.
            Step::Pass(ms) => {
                state.now += if state.open { 0 } else { *ms };
                state.settle();
                state.look();
            }
            Step::Alternative(healthy) => {
                state.alternative = *healthy;
                state.settle();
                state.look();
            }
            Step::Reset => {
                state.open = false;
                state.epoch += 1;
                state.window_origin = None;
            }
        }
        state
    }
}

struct Closed {
    bench: Bench,
    start: Instant,
    permits: Vec<Permit>,
}

impl StateMachineTest for Closed {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        let mut bench = Bench::with(policy());
        bench.alternative = model.alternative;
        Self {
            start: bench.now,
            bench,
            permits: Vec::new(),
        }
    }

    fn apply(mut state: Self, model: &Model, step: Step) -> Self {
        let bench = &mut state.bench;
        bench.now = state.start + Duration::from_millis(model.now);
        match step {
            Step::Admit | Step::Call(_) => {
                if let Ok(permit) = bench.try_admit() {
                    if let Step::Call(word) = step {
                        bench.report(&permit, word.signal());
                    }
                    state.permits.push(permit);
                }
            }
            Step::Report(index, word) => {
                if !state.permits.is_empty() {
                    bench.report(index.get(&state.permits), word.signal());
                }
            }
            Step::Pass(_) => bench.pass(0),
            Step::Alternative(healthy) => {
                bench.alternative = healthy;
                bench.pass(0);
            }
            Step::Reset => {
                bench.circuit.reset(bench.now);
            }
        }
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        let seen = state.bench.circuit.snapshot(state.bench.now);
        let expected = if model.open {
            CircuitState::Open
        } else {
            CircuitState::Closed
        };
        assert_eq!(seen.state, expected, "{:?}", state.bench.transitions);
        assert_eq!(seen.stale_reports, model.stale);
        if !model.open {
            let mine = model.attempts.iter().filter(|a| a.epoch == model.epoch);
            let pending = mine.filter(|a| a.known == Known::Nothing).count();
            assert_eq!(seen.evidence.pending as usize, pending);
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_closed_circuit_opens_exactly_when_the_whole_history_requires_it(sequential 1..160 => Closed);
}
