//! The format of a scenario's file.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use super::{GateBounds, ScenarioError, ScenarioOptions, beyond::RuleExceptions};
use crate::{
    config::read_text,
    domain::units,
    policy::{
        circuit::CircuitPolicy, concurrency::ConcurrencyPolicy, gates::GatePolicy,
        hedge::HedgePolicy, retry::RetryPolicy, retry_budget::BudgetPolicy, select::SelectPolicy,
        timers::TimersPolicy,
    },
};

/// Scenario: times are counted from the moment at which faults may start.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its number, such as `2b`.
    pub id: String,
    /// A short title.
    pub title: String,
    /// Subject, and the reason for the values of its parameters.
    pub about: String,
    /// Calls per second, all callers together (Poisson).
    #[serde(default = "fifty")]
    pub rate: f64,
    /// Untroubled time before.
    #[serde(with = "units::duration", default = "half_a_minute")]
    pub warm: Duration,
    /// The time that is judged: calls that arrive in it count.
    #[serde(with = "units::duration")]
    pub fault: Duration,
    /// Time after it, in which recovery is watched.
    #[serde(with = "units::duration", default = "half_a_minute")]
    pub tail: Duration,
    /// Time that each call may take.
    #[serde(with = "units::duration", default = "twenty_seconds")]
    pub deadline: Duration,
    /// Time at which a new configuration changes the credentials, counted like `from`; unset: it
    /// does not.
    #[serde(default, with = "optional")]
    pub reload: Option<Duration>,
    /// Number of replicas over which the calls are spread by chance; two and more share a store.
    #[serde(default = "one_replica")]
    pub replicas: usize,
    /// Replicas that are replaced by new processes.
    #[serde(default)]
    pub restarts: Vec<ReplicaRestart>,
    /// Faults of the store that replicas share.
    #[serde(default)]
    pub store: Vec<StoreFault>,
    /// The upstreams, in the route's order.
    pub upstreams: Vec<Upstream>,
    /// The kinds of callers; one kind by default.
    #[serde(default = "one_kind")]
    pub callers: Vec<Callers>,
    /// Settings that differ from the defaults.
    #[serde(default)]
    pub policy: Policies,
    /// Bounds that must be reached.
    pub gates: GateBounds,
    /// Parts of the rule of all scenarios that are not reached, and the reasons.
    #[serde(default)]
    pub beyond: RuleExceptions,
    /// The same of those that some seeds reach and others do not.
    #[serde(default)]
    pub by_chance: RuleExceptions,
}

/// A scripted provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The target's name.
    pub name: String,
    /// Factor by which it takes longer than usual.
    #[serde(default = "one")]
    pub slower: f64,
    /// The name of its credential.
    #[serde(default = "key")]
    pub credential: String,
    /// Number of calls it works on at once, first come first served, abandoned ones included; no
    /// limit if unset.
    #[serde(default)]
    pub workers: Option<usize>,
    /// Faults; the first that applies to a call is taken.
    #[serde(default)]
    pub faults: Vec<UpstreamFault>,
}

/// A fault of an upstream, from a time on, for some time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamFault {
    /// From when on.
    #[serde(with = "units::duration", default)]
    pub from: Duration,
    /// Until when; to the end of the judged time when unset.
    #[serde(default, with = "optional")]
    pub to: Option<Duration>,
    /// The share of calls it hits, 0 to 1.
    #[serde(default = "one")]
    pub share: f64,
    /// Share at the end, if it grows evenly.
    #[serde(default)]
    pub share_to: Option<f64>,
    /// The callers it hits; all when empty.
    #[serde(default)]
    pub callers: Vec<String>,
    /// The replicas whose calls it hits, counted from 0; all when empty.
    #[serde(default)]
    pub replicas: Vec<usize>,
    /// Effect of the fault.
    pub does: Does,
}

/// The replacement of a replica: no call comes to it in this time, in which it ends those that it
/// has; then a new process takes its place.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRestart {
    /// The replica, counted from 0.
    pub replica: usize,
    /// From when on.
    #[serde(with = "units::duration")]
    pub from: Duration,
    /// Until when.
    #[serde(with = "units::duration")]
    pub to: Duration,
}

/// A fault of the store that replicas share.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFault {
    /// From when on.
    #[serde(with = "units::duration")]
    pub from: Duration,
    /// Until when.
    #[serde(with = "units::duration")]
    pub to: Duration,
    /// Effect of the fault.
    pub does: StoreDoes,
}

/// Effect of a fault of the store.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StoreDoes {
    /// Every operation fails.
    Away,
    /// Every operation takes so long.
    Slow {
        /// The time.
        #[serde(with = "units::duration")]
        delay: Duration,
    },
    /// It forgets everything each second.
    Forget,
    /// Its clock is set ahead, and back at the end.
    Clock {
        /// By which time.
        #[serde(with = "units::duration")]
        ahead: Duration,
    },
}

/// Effect of a fault.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Does {
    /// It responds with an HTTP status.
    Status {
        /// The status.
        code: u16,
        /// After which time.
        #[serde(with = "units::duration", default = "twenty_millis")]
        after: Duration,
        /// Headers, lower case.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body.
        #[serde(default)]
        body: String,
    },
    /// The connection is reset before the response head.
    Reset {
        /// After which time.
        #[serde(with = "units::duration", default = "twenty_millis")]
        after: Duration,
    },
    /// No connection can be made.
    Unreachable,
    /// Nothing ever comes.
    Hang,
    /// Everything takes that many times longer.
    Slow {
        /// Factor of the slowdown.
        times: f64,
    },
    /// At most so many calls per second succeed; the others get a wait.
    Limit {
        /// Calls per second.
        per_second: f64,
        /// Number of calls that may come at once.
        burst: f64,
        /// The shortest and longest wait that is stated.
        #[serde(with = "units::duration")]
        min: Duration,
        /// The longest wait that is stated.
        #[serde(with = "units::duration")]
        max: Duration,
    },
    /// It refuses all calls until it ends, as a limit whose window is used up, and states when that
    /// is.
    Until,
    /// The response is cut, at a point evenly spread over its length.
    Cut,
    /// So many of the workers are stuck.
    WorkersDown {
        /// Number of workers.
        count: usize,
    },
    /// The response comes late, or fails then.
    Late {
        /// Time of the response, counted like `from`.
        #[serde(with = "units::duration")]
        at: Duration,
        /// If set, the late response is a success.
        answers: bool,
    },
}

/// One kind of caller.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callers {
    /// Its name, also that of its tenant.
    pub name: String,
    /// Its share of the calls.
    #[serde(default = "one")]
    pub share: f64,
    /// The upstreams of its route, in order; all when empty.
    #[serde(default)]
    pub upstreams: Vec<String>,
    /// Time that it waits for a response; unset: until the deadline.
    #[serde(default, with = "optional")]
    pub patience: Option<Duration>,
    /// Time that its calls may take; the scenario's deadline if unset.
    #[serde(default, with = "optional")]
    pub deadline: Option<Duration>,
    /// Attempts after the first; the policy's when unset.
    #[serde(default)]
    pub retries: Option<u32>,
    /// It comes only before this time, counted from the start of the fault; always when unset.
    #[serde(default, with = "optional")]
    pub until: Option<Duration>,
}

/// Settings; what is left out is the default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Retries and waits.
    pub retry: RetryPolicy,
    /// Every target's circuit.
    pub circuit: CircuitPolicy,
    /// Slots.
    pub concurrency: ConcurrencyPolicy,
    /// Cost of retries.
    pub budget: BudgetPolicy,
    /// Gates.
    pub gates: GatePolicy,
    /// Time that an attempt may be silent.
    pub timers: TimersPolicy,
    /// Second attempts beside slow ones.
    pub hedge: HedgePolicy,
    /// In which order targets are preferred.
    pub select: SelectPolicy,
}

// === impl Scenario ===

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// Returns an error with the place and the reason if it is not a valid scenario.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let error = |reason: String| ScenarioError::File {
            file: file.to_owned(),
            reason,
        };
        let scenario: Self = read_text(text, Path::new(file))?;
        for callers in &scenario.callers {
            for name in &callers.upstreams {
                if !scenario
                    .upstreams
                    .iter()
                    .any(|upstream| upstream.name == *name)
                {
                    return Err(error(format!("there is no upstream `{name}`")));
                }
            }
        }
        let is_none = |replica: &usize| *replica >= scenario.replicas;
        let restarted = scenario.restarts.iter().map(|restart| &restart.replica);
        let faults = scenario.upstreams.iter().flat_map(|one| &one.faults);
        let hit = faults.flat_map(|fault| &fault.replicas);
        if let Some(replica) = restarted.chain(hit).find(|replica| is_none(replica)) {
            return Err(error(format!("there is no replica {replica}")));
        }
        if scenario.replicas == 0 {
            return Err(error("calls need a replica".to_owned()));
        }
        for exceptions in [&scenario.beyond, &scenario.by_chance] {
            if let Some(name) = exceptions.unknown(&scenario.gates) {
                return Err(error(format!("there is no verdict `{name}`")));
            }
        }
        Ok(scenario)
    }

    /// The scenario with what is run otherwise.
    #[must_use]
    pub fn with(&self, options: ScenarioOptions) -> Self {
        let mut changed = self.clone();
        changed.rate = options.rate.unwrap_or(self.rate);
        // Who expects more calls gives them more room.
        let times = (changed.rate / self.rate).max(1.0);
        let room = f64::from(changed.policy.concurrency.max) * times;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number of calls, and as many as can be at most"
        )]
        let room = room as u32;
        changed.policy.concurrency.max = room;
        changed.fault = options.length.unwrap_or(self.fault);
        changed
    }

    /// From the start of the run to its last arrival.
    pub(super) fn length(&self) -> Duration {
        self.warm + self.fault + self.tail
    }

    /// Returns the same calls at one replica.
    pub(super) fn at_one_replica(&self) -> Self {
        Self {
            replicas: 1,
            restarts: Vec::new(),
            store: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the replicas to which calls come at this time from the start of the run.
    pub(super) fn reached(&self, at: Duration) -> Vec<usize> {
        let is_away = |replica: usize| {
            self.restarts.iter().any(|one| {
                one.replica == replica && at >= self.warm + one.from && at < self.warm + one.to
            })
        };
        (0..self.replicas)
            .filter(|replica| !is_away(*replica))
            .collect()
    }

    /// Returns the upstreams of a kind of caller, as indices.
    pub(super) fn route(&self, callers: &Callers) -> Vec<usize> {
        let index = |name: &String| {
            self.upstreams
                .iter()
                .position(|upstream| upstream.name == *name)
        };
        if callers.upstreams.is_empty() {
            (0..self.upstreams.len()).collect()
        } else {
            callers.upstreams.iter().filter_map(index).collect()
        }
    }
}

// === impl UpstreamFault ===

impl UpstreamFault {
    /// Returns the time at which it is over.
    pub(super) fn end(&self, scenario: &Scenario) -> Duration {
        self.to.unwrap_or(scenario.fault)
    }

    /// Returns the share of calls that it hits at this time; 0 outside its time.
    pub(super) fn share_at(&self, at: Duration, scenario: &Scenario) -> f64 {
        let end = self.end(scenario);
        if at < self.from || at >= end {
            return 0.0;
        }
        let Some(last) = self.share_to else {
            return self.share;
        };
        let way =
            (at - self.from).as_secs_f64() / (end - self.from).as_secs_f64().max(f64::EPSILON);
        self.share + (last - self.share) * way
    }

    /// Returns whether it hits this kind of caller at this replica.
    pub(super) fn hits(&self, caller: &str, replica: usize) -> bool {
        (self.callers.is_empty() || self.callers.iter().any(|name| name == caller))
            && (self.replicas.is_empty() || self.replicas.contains(&replica))
    }
}

fn fifty() -> f64 {
    50.0
}

fn one_replica() -> usize {
    1
}

fn one() -> f64 {
    1.0
}

fn key() -> String {
    "key".to_owned()
}

fn half_a_minute() -> Duration {
    Duration::from_secs(30)
}

fn twenty_seconds() -> Duration {
    Duration::from_secs(20)
}

fn twenty_millis() -> Duration {
    Duration::from_millis(20)
}

pub(super) fn one_kind() -> Vec<Callers> {
    vec![Callers {
        name: "all".to_owned(),
        share: 1.0,
        upstreams: Vec::new(),
        patience: None,
        deadline: None,
        retries: None,
        until: None,
    }]
}

/// A duration that may be left out.
mod optional {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, de::Error as _};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| crate::domain::units::parse_duration(&text).map_err(D::Error::custom))
            .transpose()
    }
}
