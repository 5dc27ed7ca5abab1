//! Decides what is published, and what follows from the facts of others. No I/O, no clock.
//!
//! Facts are compared and not counted: each step looks at all that is known here and at all that
//! the others published, so that a lost, doubled or late record changes nothing but the moment.
//! Episodes order what several replicas publish about one gate or circuit.

mod circuits;
mod gates;
mod members;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use relight_policy::policy::{
    circuit::{CircuitPolicy, SharedPhase, SharedWindow, Together},
    gates::SharedClosing,
};
use tokio::time::Instant;

use self::{circuits::CircuitView, gates::GateView};
use crate::{
    fact::{FactSubject, FleetMember, OperatorWord, ReplicaFact},
    store::{RecordWrite, StoredRecord},
};

/// Time for which a record of a replica is kept, unless it is written again.
const LIFETIME: Duration = Duration::from_secs(15);
/// Time after which a record is written again.
const REFRESH: Duration = Duration::from_secs(5);
/// Time for which the end of a closing or an opening is published.
const ENDED: Duration = Duration::from_mins(1);
/// Difference of two times that is no news.
const TOLERANCE_MS: u64 = 100;

/// The state of one gate or circuit of this replica.
#[derive(Debug, Clone, PartialEq)]
pub enum LocalFact {
    /// A gate.
    Gate {
        /// The account or target that it guards.
        subject: FactSubject,
        /// Its closing, if it is closed.
        closing: Option<SharedClosing>,
    },
    /// A circuit.
    Circuit(LocalCircuit),
}

/// The state of one circuit of this replica.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalCircuit {
    /// The target.
    pub subject: FactSubject,
    /// The rule by which it judges.
    pub policy: Arc<CircuitPolicy>,
    /// Its state; `None` while an operator or nothing decides.
    pub phase: Option<SharedPhase>,
    /// Time until calls may pass.
    pub retry_in: Duration,
    /// Outcomes of its calls.
    pub window: SharedWindow,
}

/// Step to be taken at this replica.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEffect {
    /// A gate closes, or takes over what another replica knows of its closing.
    CloseGate(FactSubject, SharedClosing),
    /// A gate leaves its probes to others for this time.
    StayBack(FactSubject, Duration),
    /// A gate opens: another replica had a success.
    OpenGate(FactSubject),
    /// A circuit opens, for this time if it is known.
    OpenCircuit(FactSubject, Together, Option<Duration>),
    /// An open circuit stays so for this time: another replica knows more.
    StayOpen(FactSubject, Duration),
    /// A circuit follows the recovery of another replica.
    Recover(FactSubject, SharedPhase),
    /// An operator spoke, at another replica.
    Operate(FactSubject, OperatorWord),
}

/// Subject of a step.
#[derive(Debug)]
pub enum StepInput {
    /// The state of all gates and circuits of this replica.
    Local(Vec<LocalFact>),
    /// All that the store has.
    Snapshot(Vec<StoredRecord>),
    /// An operator spoke to this replica.
    Operator(FactSubject, OperatorWord),
    /// The store cannot be reached.
    Lost,
}

/// Result of a step.
#[derive(Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Records to be published.
    pub writes: Vec<RecordWrite>,
    /// If set, others should look at once.
    pub is_news: bool,
    /// Steps to be taken here.
    pub effects: Vec<FleetEffect>,
}

/// A fact that a replica published.
#[derive(Debug, Clone)]
struct PublishedFact {
    fact: ReplicaFact,
    at: Instant,
    /// Number of its record.
    epoch: u64,
}

/// Knowledge that one replica has of the fleet.
#[derive(Debug)]
pub struct FleetCore {
    me: FleetMember,
    is_connected: bool,
    /// Number of the last record of this replica.
    epoch: u64,
    /// Live replicas by id, with this one.
    live: BTreeMap<String, FleetMember>,
    /// Records of others, by subject and owner.
    others: BTreeMap<FactSubject, BTreeMap<String, PublishedFact>>,
    own: BTreeMap<FactSubject, PublishedFact>,
    gates: BTreeMap<FactSubject, GateView>,
    circuits: BTreeMap<FactSubject, CircuitView>,
    words: BTreeMap<FactSubject, OperatorWord>,
    /// Replicas that alone cannot reach a target, by subject.
    alone: BTreeMap<FactSubject, BTreeSet<String>>,
    outcome: StepOutcome,
}

// === impl FleetCore ===

impl FleetCore {
    /// A core that knows of no other replica.
    #[must_use]
    pub fn new(me: FleetMember) -> Self {
        let live = BTreeMap::from([(me.id.clone(), me.clone())]);
        Self {
            me,
            is_connected: false,
            epoch: 0,
            live,
            others: BTreeMap::new(),
            own: BTreeMap::new(),
            gates: BTreeMap::new(),
            circuits: BTreeMap::new(),
            words: BTreeMap::new(),
            alone: BTreeMap::new(),
            outcome: StepOutcome::default(),
        }
    }

    /// Takes one input and returns what follows.
    pub fn step(&mut self, input: StepInput, now: Instant) -> StepOutcome {
        match input {
            StepInput::Local(facts) => {
                self.beat(now);
                for fact in facts {
                    match fact {
                        LocalFact::Gate { subject, closing } => self.gate(&subject, closing, now),
                        LocalFact::Circuit(circuit) => self.circuit(&circuit, now),
                    }
                }
            }
            StepInput::Snapshot(records) => self.learn(records, now),
            StepInput::Operator(subject, word) => self.take_word(subject, word),
            StepInput::Lost => self.decide_alone(),
        }
        std::mem::take(&mut self.outcome)
    }

    /// Returns the live replicas, this one with them.
    pub fn live(&self) -> impl Iterator<Item = &FleetMember> {
        self.live.values()
    }

    /// Returns the replicas that alone cannot reach a target, with the target.
    pub fn alone(&self) -> impl Iterator<Item = (&FactSubject, &str)> {
        self.alone
            .iter()
            .flat_map(|(subject, ids)| ids.iter().map(move |id| (subject, id.as_str())))
    }

    /// Returns whether something is being published beside that it lives.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.own.len() > 1
    }

    /// Publishes a fact of this replica, if it is news or has not been written for a while; `None`
    /// withdraws it.
    fn publish(&mut self, subject: &FactSubject, fact: Option<ReplicaFact>, now: Instant) {
        if !self.is_connected {
            return;
        }
        let known = self.own.get(subject);
        let Some(fact) = fact else {
            if known.is_some() {
                self.own.remove(subject);
                self.write(subject, None);
            }
            return;
        };
        let passed = |known: &PublishedFact| now.saturating_duration_since(known.at);
        let is_news = known.is_none_or(|known| {
            known
                .fact
                .clone()
                .after(passed(known))
                .differs_from(&fact, passed(known))
        });
        let is_due = known.is_some_and(|known| passed(known) >= fact.refresh());
        if is_news || is_due {
            self.outcome.is_news |= is_news;
            self.write(subject, Some(&fact));
            let epoch = self.epoch;
            let published = PublishedFact {
                fact,
                at: now,
                epoch,
            };
            self.own.insert(subject.clone(), published);
        }
    }

    fn write(&mut self, subject: &FactSubject, fact: Option<&ReplicaFact>) {
        self.epoch += 1;
        self.outcome.writes.push(RecordWrite {
            subject: subject.0.clone(),
            owner: self.me.id.clone(),
            epoch: self.epoch,
            value: fact.map(ReplicaFact::text),
            lifetime: Some(fact.map_or(LIFETIME, ReplicaFact::lifetime)),
        });
    }

    /// Returns the facts of others about a subject as they are now.
    fn facts_of_others(&self, subject: &FactSubject, now: Instant) -> Vec<(String, ReplicaFact)> {
        let others = self.others.get(subject).into_iter().flatten();
        let facts = others.map(|(owner, known)| {
            let passed = now.saturating_duration_since(known.at);
            (owner.clone(), known.fact.clone().after(passed))
        });
        facts.collect()
    }
}

// === impl ReplicaFact ===

impl ReplicaFact {
    /// Time for which it is kept.
    fn lifetime(&self) -> Duration {
        match self {
            Self::Member(_) => members::LIFETIME,
            Self::Gate(_) | Self::Circuit(_) | Self::Word(_) => LIFETIME,
        }
    }

    /// Time after which it is written again.
    fn refresh(&self) -> Duration {
        match self {
            Self::Member(_) => members::BEAT,
            Self::Gate(_) | Self::Circuit(_) | Self::Word(_) => REFRESH,
        }
    }

    /// Returns whether another fact is news after this one, which was published so long ago.
    fn differs_from(&self, other: &Self, passed: Duration) -> bool {
        match (self, other) {
            (Self::Gate(known), Self::Gate(new)) => gates::is_news(known, new),
            (Self::Circuit(known), Self::Circuit(new)) => circuits::is_news(known, new, passed),
            (known, new) => known != new,
        }
    }
}

/// Returns whether two times in milliseconds are the same but for what is no news.
fn is_about(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= TOLERANCE_MS
}
