//! The lease protocol against a model of the world: replicas that pause, die and come back, and a
//! database that goes away.
//!
//! The journal and the judgement of when to take over are the real ones; time passes in steps of
//! 500 ms, and every replica does what its maintenance does when it is due. Replicas' wall clocks
//! play no part: the journal's decides.

use std::{collections::BTreeMap, time::Duration};

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::time::Instant;

use super::super::steadiness::Steadiness;
use crate::{
    domain::invocation::Call,
    journal::{
        BeginResult, Fingerprint, Held, Journal, LEASE, MemoryJournal, NewInvocation, Owner,
        RecordedRequest, Takeover,
    },
};

/// Replicas, each with one invocation of its own at the beginning.
const REPLICAS: usize = 3;
const STEP: Duration = Duration::from_millis(500);
/// Renewals and looks for orphans are due each so many steps.
const OFTEN: u32 = 6;

/// What happens to the world.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Pause(usize),
    Resume(usize),
    Kill(usize),
    /// The same replica is started anew, as another owner.
    Restart(usize),
    DatabaseGoes,
    DatabaseComes,
    /// Nothing, for so many steps.
    Wait(u32),
}

struct Replica {
    owner: Owner,
    steadiness: Steadiness,
    held: Vec<Held>,
    paused: bool,
    dead: bool,
    due: u32,
    /// Steps in a row in which it did nothing, the longest that matters for its leases.
    still: u32,
}

struct World {
    journal: MemoryJournal,
    replicas: Vec<Replica>,
    began: Instant,
    step: u32,
    away: bool,
    born: usize,
    /// What was taken from an owner that did nothing wrong.
    stolen_from_living: Vec<String>,
}

/// Returns an operation of the journal in memory, which never waits.
fn now_or_never<T>(work: impl Future<Output = T>) -> T {
    work.now_or_never().expect("it never waits")
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            journal: MemoryJournal::default(),
            replicas: Vec::new(),
            began: Instant::now(),
            step: 0,
            away: false,
            born: 0,
            stolen_from_living: Vec::new(),
        };
        for number in 0..REPLICAS {
            let mut replica = world.fresh();
            let id = format!("invocation {number}");
            let new = NewInvocation {
                id: id.as_str().into(),
                tenant: "acme".into(),
                request_id: None,
                fingerprint: Fingerprint::new("question"),
                route: "default".into(),
                operation: "executor".into(),
                thread: None,
                labels: BTreeMap::new(),
                deadline_at: world.wall(),
                request: RecordedRequest {
                    call: Some(Call::Model(std::sync::Arc::default())),
                    ..RecordedRequest::default()
                },
                owner: replica.owner.clone(),
            };
            let begun = now_or_never(world.journal.begin(new, world.wall())).unwrap();
            assert_eq!(begun, BeginResult::New { epoch: 1 });
            replica.held.push(Held {
                id: id.as_str().into(),
                epoch: 1,
            });
            world.replicas.push(replica);
        }
        world
    }

    fn fresh(&mut self) -> Replica {
        self.born += 1;
        Replica {
            owner: Owner::new(format!("replica {}", self.born)),
            steadiness: Steadiness::new(LEASE),
            held: Vec::new(),
            paused: false,
            dead: false,
            due: 0,
            still: 0,
        }
    }

    fn now(&self) -> Instant {
        self.began + STEP * self.step
    }

    /// Returns the journal's own clock.
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH + Duration::from_hours(1) + STEP * self.step
    }

    fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Pause(at) => self.replicas[at].paused = true,
            Fault::Resume(at) => self.replicas[at].paused = false,
            Fault::Kill(at) => self.replicas[at].dead = true,
            Fault::Restart(at) => {
                if self.replicas[at].dead {
                    self.replicas[at] = self.fresh();
                }
            }
            Fault::DatabaseGoes => self.away = true,
            Fault::DatabaseComes => self.away = false,
            Fault::Wait(steps) => (0..steps).for_each(|_| self.pass()),
        }
        self.pass();
    }

    /// One step of everybody.
    fn pass(&mut self) {
        self.step += 1;
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            if replica.dead || replica.paused {
                replica.still += 1;
                continue;
            }
            if self.step < replica.due {
                continue;
            }
            let now = self.now();
            let wall = self.wall();
            let replica = &mut self.replicas[at];
            if self.away {
                replica.steadiness.failed();
                replica.due = self.step + 1;
                continue;
            }
            let renewed =
                now_or_never(self.journal.renew(&replica.owner, &replica.held, wall)).unwrap();
            replica.held.retain(|held| !renewed.lost.contains(&held.id));
            replica.steadiness.renewed(now, now);
            replica.due = self.step + OFTEN;
            replica.still = 0;
            if replica.steadiness.may_take_over(now) {
                self.take_over(at);
            }
        }
        self.check();
    }

    fn take_over(&mut self, at: usize) {
        let wall = self.wall();
        for orphan in now_or_never(self.journal.expired(wall, 10)).unwrap() {
            if let Some(victim) = self
                .replicas
                .iter()
                .position(|other| other.held.contains(&orphan))
            {
                let victim = &self.replicas[victim];
                // It stood still for less than others wait after an outage.
                if !victim.dead && !victim.paused && victim.still < 7 {
                    self.stolen_from_living
                        .push(format!("{orphan:?} of {:?}", victim.owner));
                }
            }
            let owner = self.replicas[at].owner.clone();
            if let Takeover::Taken(record) =
                now_or_never(self.journal.take_over(&orphan, &owner, wall)).unwrap()
            {
                self.replicas[at].held.push(Held {
                    id: record.id,
                    epoch: record.epoch,
                });
            }
        }
    }

    /// What holds at every moment.
    fn check(&self) {
        assert!(
            self.stolen_from_living.is_empty(),
            "taken from a living owner: {:?}",
            self.stolen_from_living
        );
        for number in 0..REPLICAS {
            let id = format!("invocation {number}");
            let record = now_or_never(self.journal.get(&id.as_str().into()))
                .unwrap()
                .unwrap();
            let believers = self.replicas.iter().filter(|replica| {
                let held = Held {
                    id: record.id.clone(),
                    epoch: record.epoch,
                };
                !replica.dead && replica.held.contains(&held)
            });
            assert!(believers.count() <= 1, "two owners of one epoch");
        }
    }

    /// Whether every invocation is owned by a replica that lives.
    fn all_owned(&self) -> bool {
        (0..REPLICAS).all(|number| {
            let id = format!("invocation {number}");
            let record = now_or_never(self.journal.get(&id.as_str().into()))
                .unwrap()
                .unwrap();
            self.replicas
                .iter()
                .any(|replica| !replica.dead && !replica.paused && replica.owner == record.owner)
        })
    }
}

fn faults() -> impl Strategy<Value = Fault> {
    let replica = 0..REPLICAS;
    prop_oneof![
        replica.clone().prop_map(Fault::Pause),
        replica.clone().prop_map(Fault::Resume),
        replica.clone().prop_map(Fault::Kill),
        replica.prop_map(Fault::Restart),
        Just(Fault::DatabaseGoes),
        Just(Fault::DatabaseComes),
        (1..60_u32).prop_map(Fault::Wait),
        (1..60_u32).prop_map(Fault::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_there_is_one_owner_and_it_is_never_one_that_lives_who_loses(faults in prop::collection::vec(faults(), 1..40)) {
        let mut world = World::new();
        for fault in faults {
            world.apply(fault);
        }
        // When everything is well again, everything has an owner within a lease and three looks.
        world.away = false;
        for at in 0..REPLICAS {
            world.apply(Fault::Resume(at));
            world.apply(Fault::Restart(at));
        }
        for _ in 0..60 {
            world.pass();
        }
        prop_assert!(world.all_owned());
    }
}
