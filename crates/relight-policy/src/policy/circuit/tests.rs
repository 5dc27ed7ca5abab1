//! The circuit's guarantees, each as a test; and the bench that runs them with given times and
//! random numbers.

mod classic;
mod endurance;
mod history;
mod late;
mod model;
mod moves;
mod opening;
mod operator;
mod recovering;
mod ring;
mod settings;
mod silence;
mod sparse;

use super::*;

const ANSWER: Signal = Signal::FirstToken;
const FAILURE: Signal = Signal::Failed {
    kind: FailKind::Fast,
    retry_after: None,
    local_origin: false,
};
const TIMEOUT: Signal = Signal::Failed {
    kind: FailKind::Slow,
    retry_after: None,
    local_origin: false,
};
const LOCAL: Signal = Signal::Failed {
    kind: FailKind::Fast,
    retry_after: None,
    local_origin: true,
};
const GAVE_UP: Signal = Signal::Cancelled {
    after_slow_threshold: true,
};

/// A circuit, its time, and all changes that it reported.
struct Bench {
    circuit: Circuit,
    now: Instant,
    rng: f64,
    alternative: bool,
    transitions: Vec<TransitionKind>,
    /// The same, with what was known then.
    transition: Vec<Transition>,
}

impl Bench {
    fn new() -> Self {
        Self::with(CircuitPolicy::default())
    }

    fn with(policy: CircuitPolicy) -> Self {
        let circuit = Circuit::new(Arc::new(policy));
        Self {
            circuit,
            now: Instant::now(),
            rng: 0.5,
            alternative: false,
            transitions: Vec::new(),
            transition: Vec::new(),
        }
    }

    /// A circuit that has just opened for one second, on fast failures.
    fn opened() -> Self {
        let mut bench = Self::new();
        bench.calls(8, 1000, FAILURE);
        assert_eq!(bench.state(), CircuitState::Open);
        bench
    }

    /// A circuit that has just begun to recover.
    fn recovering() -> Self {
        let mut bench = Self::opened();
        bench.pass(1000);
        bench.calls(2, 0, ANSWER);
        assert_eq!(bench.state(), CircuitState::Recovering);
        bench
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let transitions = self.circuit.tick(self.now, self.rng, self.alternative);
        self.keep(transitions);
    }

    fn try_admit(&mut self) -> Result<Permit, Reject> {
        let permit = self.circuit.admit(self.now, self.rng);
        let transitions = self.circuit.drain();
        self.keep(transitions);
        permit
    }

    fn admit(&mut self) -> Permit {
        self.try_admit().expect("admitted")
    }

    fn report(&mut self, permit: &Permit, signal: Signal) {
        let context = ReportContext {
            now: self.now,
            rng: self.rng,
            alternative_healthy: self.alternative,
        };
        let transitions = self.circuit.report(permit, signal, context);
        self.keep(transitions);
    }

    fn force(&mut self, forced: Forced) -> Vec<TransitionKind> {
        let transitions = self.circuit.force(forced, self.now);
        self.keep(transitions.clone());
        transitions
            .iter()
            .map(|transition| transition.kind)
            .collect()
    }

    fn keep(&mut self, transitions: Vec<Transition>) {
        self.transitions
            .extend(transitions.iter().map(|transition| transition.kind));
        self.transition.extend(transitions);
    }

    /// A call that is decided at once; nothing when it is not admitted.
    fn call(&mut self, signal: Signal) {
        if let Ok(permit) = self.try_admit() {
            self.report(&permit, signal);
        }
    }

    fn calls(&mut self, count: usize, gap_ms: u64, signal: Signal) {
        for _ in 0..count {
            self.pass(gap_ms);
            self.call(signal);
        }
    }

    fn state(&self) -> CircuitState {
        self.circuit.state()
    }

    fn retry_in(&self) -> Duration {
        self.circuit.snapshot(self.now).retry_in.unwrap_or_default()
    }

    fn evidence(&self) -> crate::domain::event::Evidence {
        self.circuit.snapshot(self.now).evidence
    }

    fn reason(&self) -> &'static str {
        self.transitions
            .iter()
            .rev()
            .find_map(|transitions| match transitions {
                TransitionKind::Opened { reason, .. } => Some(*reason),
                TransitionKind::HalfOpen
                | TransitionKind::Recovering { .. }
                | TransitionKind::Closed
                | TransitionKind::Degraded(_) => None,
            })
            .unwrap_or("")
    }
}

/// Numbers that look random and are the same in every run.
struct TestRng(u64);

impl TestRng {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        f64::from(u32::try_from(x >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}
