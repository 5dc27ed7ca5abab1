//! The circuit's promises, each as a test; and the bench on which they are tried: given time, given dice.

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
const FAILURE: Signal = Signal::Failed { kind: FailKind::Fast, retry_after: None, local_origin: false };
const TIMEOUT: Signal = Signal::Failed { kind: FailKind::Slow, retry_after: None, local_origin: false };
const LOCAL: Signal = Signal::Failed { kind: FailKind::Fast, retry_after: None, local_origin: true };
const GAVE_UP: Signal = Signal::Cancelled { after_slow_threshold: true };

/// A circuit, its time, and all that it said.
struct Bench {
    circuit: Circuit,
    now: Instant,
    dice: f64,
    alternative: bool,
    said: Vec<Transition>,
    /// The same, with what was known then.
    moved: Vec<Moved>,
}

impl Bench {
    fn new() -> Self {
        Self::with(CircuitPolicy::default())
    }

    fn with(policy: CircuitPolicy) -> Self {
        let circuit = Circuit::new(Arc::new(policy));
        Self { circuit, now: Instant::now(), dice: 0.5, alternative: false, said: Vec::new(), moved: Vec::new() }
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
        let said = self.circuit.tick(self.now, self.dice, self.alternative);
        self.hear(said);
    }

    fn try_admit(&mut self) -> Result<Permit, Reject> {
        let permit = self.circuit.admit(self.now, self.dice);
        let said = self.circuit.drain();
        self.hear(said);
        permit
    }

    fn admit(&mut self) -> Permit {
        self.try_admit().expect("admitted")
    }

    fn tell(&mut self, permit: &Permit, signal: Signal) {
        let context = ReportContext { now: self.now, dice: self.dice, alternative_healthy: self.alternative };
        let said = self.circuit.report(permit, signal, context);
        self.hear(said);
    }

    fn force(&mut self, forced: Forced) -> Vec<Transition> {
        let said = self.circuit.force(forced, self.now);
        self.hear(said.clone());
        said.iter().map(|moved| moved.transition).collect()
    }

    fn hear(&mut self, said: Vec<Moved>) {
        self.said.extend(said.iter().map(|moved| moved.transition));
        self.moved.extend(said);
    }

    /// A call that is decided at once; nothing when it is not admitted.
    fn call(&mut self, signal: Signal) {
        if let Ok(permit) = self.try_admit() {
            self.tell(&permit, signal);
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
        self.said
            .iter()
            .rev()
            .find_map(|said| match said {
                Transition::Opened { reason, .. } => Some(*reason),
                Transition::HalfOpen | Transition::Recovering { .. } | Transition::Closed | Transition::Degraded(_) => {
                    None
                }
            })
            .unwrap_or("")
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        f64::from(u32::try_from(x >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}
