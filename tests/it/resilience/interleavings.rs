//! Every order in which threads may reach one circuit: admit, report and drop through its lock,
//! explored by `shuttle`.
//!
//! The circuit itself is a pure core without a lock; what is explored is the way the layers use it:
//! a permit is taken under the lock, carried outside of it, and reported under it again, by its
//! guard at the latest.

use std::time::Duration;

use relight::internals::policy::circuit::{
    Circuit, CircuitPolicy, CircuitState, FailKind, Permit, ReportContext, Signal,
};
use shuttle::{sync::Arc, sync::Mutex, thread};
use tokio::time::Instant;

const FAILURE: Signal = Signal::Failed {
    kind: FailKind::Fast,
    retry_after: None,
    local_origin: false,
};

/// A circuit as threads share it, with what every look at it must find.
struct Watched {
    circuit: Circuit,
    generation: u64,
}

impl Watched {
    fn look(&mut self, now: Instant) {
        let seen = self.circuit.snapshot(now);
        assert!(seen.probes_outstanding <= 2, "{seen:?}");
        assert!(
            seen.generation >= self.generation,
            "{} after {}",
            seen.generation,
            self.generation
        );
        self.generation = seen.generation;
    }

    fn report(&mut self, permit: &Permit, signal: Signal, now: Instant) {
        self.circuit.report(
            permit,
            signal,
            ReportContext {
                now,
                rng: 0.5,
                alternative_healthy: false,
            },
        );
        self.look(now);
    }
}

/// Reports on drop what was not reported, as the layer's guard does.
struct Guard {
    shared: Arc<Mutex<Watched>>,
    permit: Permit,
    now: Instant,
    told: bool,
}

impl Guard {
    fn tell(mut self, signal: Signal) {
        self.told = true;
        let now = self.now;
        self.shared
            .lock()
            .unwrap()
            .report(&self.permit, signal, now);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.told {
            let now = self.now;
            self.shared
                .lock()
                .unwrap()
                .report(&self.permit, Signal::Abandoned, now);
        }
    }
}

fn admit(shared: &Arc<Mutex<Watched>>, now: Instant) -> Option<Guard> {
    let mut watched = shared.lock().unwrap();
    let permit = watched.circuit.admit(now, 0.5).ok();
    watched.look(now);
    drop(watched);
    Some(Guard {
        shared: Arc::clone(shared),
        permit: permit?,
        now,
        told: false,
    })
}

/// A circuit that opened a second ago: the next call is a probe.
fn about_to_probe(start: Instant) -> Watched {
    let mut circuit = Circuit::new(std::sync::Arc::new(CircuitPolicy::default()));
    let mut now = start;
    while circuit.state() == CircuitState::Closed {
        now += Duration::from_secs(1);
        let permit = circuit.admit(now, 0.5).unwrap();
        circuit.report(
            &permit,
            FAILURE,
            ReportContext {
                now,
                rng: 0.5,
                alternative_healthy: false,
            },
        );
    }
    Watched {
        generation: circuit.snapshot(now).generation,
        circuit,
    }
}

#[test]
fn in_no_order_are_more_probes_out_than_allowed_or_does_a_generation_return() {
    let start = Instant::now();
    let explore = move || {
        let shared = Arc::new(Mutex::new(about_to_probe(start)));
        let now = start + Duration::from_mins(1);
        let workers: Vec<_> = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
            .into_iter()
            .map(|deeds| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for (step, deed) in deeds.into_iter().enumerate() {
                        let now = now + Duration::from_millis(step as u64);
                        let Some(guard) = admit(&shared, now) else {
                            continue;
                        };
                        match deed {
                            0 => guard.tell(Signal::FirstToken),
                            1 => guard.tell(FAILURE),
                            _ => drop(guard),
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        let seen = shared
            .lock()
            .unwrap()
            .circuit
            .snapshot(now + Duration::from_secs(1));
        assert_eq!(
            seen.probes_outstanding, 0,
            "every permit was given back: {seen:?}"
        );
    };
    shuttle::check_random(explore, 3_000);
    shuttle::check_pct(explore, 2_000, 3);
}

#[test]
fn in_no_order_does_a_call_from_before_a_trip_move_the_circuit() {
    let start = Instant::now();
    let explore = move || {
        let mut watched = Watched {
            circuit: Circuit::new(std::sync::Arc::default()),
            generation: 0,
        };
        let early = [
            watched.circuit.admit(start, 0.5).unwrap(),
            watched.circuit.admit(start, 0.5).unwrap(),
        ];
        watched
            .circuit
            .force(relight::internals::policy::circuit::Forced::Open, start);
        watched
            .circuit
            .force(relight::internals::policy::circuit::Forced::Auto, start);
        let shared = Arc::new(Mutex::new(watched));
        let mut workers = Vec::new();
        for (permit, signal) in early.into_iter().zip([Signal::FirstToken, FAILURE]) {
            let shared = Arc::clone(&shared);
            workers.push(thread::spawn(move || {
                let mut watched = shared.lock().unwrap();
                let before = watched.circuit.snapshot(start);
                watched.report(&permit, signal, start);
                let after = watched.circuit.snapshot(start);
                assert_eq!(
                    (before.state, before.generation),
                    (after.state, after.generation)
                );
                assert_eq!(after.stale_reports, before.stale_reports + 1);
            }));
        }
        let probing = Arc::clone(&shared);
        workers.push(thread::spawn(move || {
            for _ in 0..2 {
                if let Some(guard) = admit(&probing, start + Duration::from_millis(1)) {
                    guard.tell(Signal::FirstToken);
                }
            }
        }));
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(
            shared.lock().unwrap().circuit.state(),
            CircuitState::Recovering,
            "only its own probes moved it"
        );
    };
    shuttle::check_random(explore, 2_000);
}
