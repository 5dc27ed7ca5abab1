//! Hours of faults drawn at random: kinds, lengths, one to three targets, limits that move, keys that
//! change.

use std::{fmt, time::Duration};

use super::{
    ScenarioError, arrivals,
    beyond::RuleExceptions,
    measure, rule, run,
    spec::{Does, Policies, Scenario, Upstream, UpstreamFault},
};
use crate::{
    domain::ids::InvocationId,
    policy::{
        retry::RetryPolicy,
        rng::{SeededRng, place},
    },
};

/// The shortest and the longest fault, in seconds.
const LENGTH: (f64, f64) = (0.3, 300.0);
/// The shortest and the longest time between two faults of a target, in seconds.
const QUIET: (f64, f64) = (5.0, 600.0);
/// The fewest and the most calls a second.
const RATE: (f64, f64) = (1.0, 60.0);
/// Time for which the calls after the last fault are followed.
const TAIL: Duration = Duration::from_mins(1);

/// Standard deviations up to which chance explains that fewer calls succeed.
const DEVIATIONS: f64 = 3.0;

/// Minute of a random hour, with Relight and with the naive client.
#[derive(Debug, Clone, Default)]
pub struct RandomMinute {
    /// The minute in its hour.
    pub minute: u64,
    /// Calls that came in it.
    pub calls: u32,
    /// Number of them that succeeded with both.
    pub both: u32,
    /// Number of them that succeeded with Relight alone.
    pub only_ours: u32,
    /// Number of them that succeeded with the naive client alone.
    pub only_naive: u32,
    /// The kinds of the faults that were in force, or had ended in the minute before.
    pub kinds: String,
    /// These faults.
    pub faults: Vec<String>,
}

/// A drawn run beside the naive client.
#[derive(Debug, Clone)]
pub struct RandomRun {
    /// Its minutes.
    pub minutes: Vec<RandomMinute>,
    /// The faults of each target, in words.
    pub faults: Vec<String>,
    /// The rule's gates over the whole run.
    pub verdicts: Vec<super::GateResult>,
}

// === impl RandomMinute ===

impl RandomMinute {
    /// Returns whether fewer calls succeeded with Relight.
    #[must_use]
    pub const fn is_worse(&self) -> bool {
        self.only_ours < self.only_naive
    }

    /// Returns whether fewer calls succeeded with Relight by more than chance: if that were chance, a
    /// call that succeeded with one of both would as likely have succeeded with either (Q. `McNemar`,
    /// Psychometrika 12, 1947).
    #[must_use]
    pub fn is_worse_beyond_chance(&self) -> bool {
        let ours = f64::from(self.only_ours);
        let naive = f64::from(self.only_naive);
        naive - ours > DEVIATIONS * (naive + ours).sqrt()
    }
}

// === impl Does ===

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, headers, .. } => {
                write!(f, "{code}")?;
                headers
                    .iter()
                    .try_for_each(|(name, value)| write!(f, " {name} {value}"))
            }
            Self::Reset { .. } => f.write_str("reset"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Hang => f.write_str("hang"),
            Self::Slow { times } => write!(f, "{times} times slower"),
            Self::Limit {
                per_second, burst, ..
            } => write!(f, "limit of {per_second:.1}/s, {burst:.0} at once"),
            Self::Until => f.write_str("429 that states its end"),
            Self::Cut => f.write_str("cut"),
            Self::WorkersDown { count } => write!(f, "{count} workers down"),
            Self::Late { .. } => f.write_str("late"),
        }
    }
}

/// Runs a time of faults drawn with this seed, and a naive client beside it; `most`: calls a second at
/// most. It blocks the thread.
///
/// # Errors
/// When the runtime cannot be built.
pub fn random(seed: u64, length: Duration, most: Option<f64>) -> Result<RandomRun, ScenarioError> {
    let most = most.unwrap_or(RATE.1);
    let scenario = drawn(seed, length, (RATE.0.min(most), most));
    let plan = arrivals::draw(&scenario, seed);
    let ours = run::ours(&scenario, seed, &plan)?;
    let naive = run::naive(&scenario, seed, &plan)?;
    let verdicts = rule::verdicts(
        &measure::measure(&scenario, &plan, &ours),
        &measure::measure(&scenario, &plan, &naive),
        None,
    );
    let mut minutes: Vec<RandomMinute> = (0..=scenario.length().as_secs() / 60)
        .map(|minute| RandomMinute {
            minute,
            kinds: kinds(&scenario, minute),
            faults: words(&scenario, Some(minute)),
            ..RandomMinute::default()
        })
        .collect();
    // Both have one for each call, in the order in which these came.
    for (call, (ours, naive)) in plan.iter().zip(ours.results.iter().zip(&naive.results)) {
        let number = usize::try_from(call.at.as_secs() / 60).unwrap_or(usize::MAX);
        let Some(minute) = minutes.get_mut(number) else {
            continue;
        };
        minute.calls += 1;
        match (ours.answered, naive.answered) {
            (true, true) => minute.both += 1,
            (true, false) => minute.only_ours += 1,
            (false, true) => minute.only_naive += 1,
            (false, false) => {}
        }
    }
    Ok(RandomRun {
        minutes,
        faults: words(&scenario, None),
        verdicts,
    })
}

/// Returns a scenario drawn with this seed.
fn drawn(seed: u64, length: Duration, rates: (f64, f64)) -> Scenario {
    let mut rng = SeededRng::new(seed, &InvocationId::from("random hours"), 0);
    let rate = log_uniform(&mut rng, rates);
    let count = 1 + place(rng.unit(), 3);
    let upstreams = (0..count)
        .map(|number| upstream(&mut rng, number, rate, length))
        .collect();
    let patient = Duration::from_secs(20);
    let long = Duration::from_mins(1);
    Scenario {
        id: "random".to_owned(),
        title: String::new(),
        about: String::new(),
        rate,
        warm: Duration::from_secs(10),
        fault: length,
        tail: TAIL,
        deadline: if rng.unit() < 0.7 { patient } else { long },
        reload: None,
        replicas: 1,
        restarts: Vec::new(),
        store: Vec::new(),
        upstreams,
        callers: super::spec::one_kind(),
        policy: Policies {
            // As many as the naive client's.
            retry: RetryPolicy::default().with_max_retries(3),
            ..Policies::default()
        },
        gates: super::GateBounds::new(),
        beyond: RuleExceptions::default(),
        by_chance: RuleExceptions::default(),
    }
}

fn upstream(rng: &mut SeededRng, number: usize, rate: f64, length: Duration) -> Upstream {
    let mut faults = Vec::new();
    let mut at = log_uniform(rng, QUIET) / 2.0;
    while at < length.as_secs_f64() {
        let lasts = log_uniform(rng, LENGTH);
        let from = Duration::from_secs_f64(at);
        let to = Duration::from_secs_f64(at + lasts);
        faults.push(UpstreamFault {
            from,
            to: Some(to.min(length)),
            share: 1.0,
            share_to: None,
            callers: Vec::new(),
            replicas: Vec::new(),
            does: Does::Cut,
        });
        if let Some(fault) = faults.last_mut() {
            choose(rng, rate, fault);
        }
        at += lasts + log_uniform(rng, QUIET);
    }
    Upstream {
        name: format!("target-{number}"),
        slower: 1.0,
        credential: format!("key-{number}"),
        workers: None,
        faults,
    }
}

fn choose(rng: &mut SeededRng, rate: f64, fault: &mut UpstreamFault) {
    let status = |code: u16, headers: &[(&str, &str)]| Does::Status {
        code,
        after: Duration::from_millis(20),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: String::new(),
    };
    let kind = place(rng.unit(), 12);
    let amount = rng.unit();
    fault.share = match kind {
        0 | 1 => 0.05 + 0.4 * amount,
        2 => 0.02 + 0.1 * amount,
        3 => 0.02,
        _ => 1.0,
    };
    fault.does = match kind {
        0 => status(503, &[]),
        1 => Does::Reset {
            after: Duration::from_millis(20),
        },
        2 => status(429, &[("retry-after", "1")]),
        4 => status(500, &[]),
        5 => status(529, &[]),
        6 => Does::Unreachable,
        7 => Does::Hang,
        8 => Does::Until,
        9 => status(429, &[]),
        10 => Does::Limit {
            per_second: (rate * (0.2 + 1.2 * amount)).max(0.5),
            burst: (rate * 2.0 * rng.unit()).max(1.0),
            min: Duration::from_secs(1),
            max: Duration::from_secs(2),
        },
        _ => status(401, &[]),
    };
    if kind == 11 {
        // A key that becomes valid late; one that is refused for long is a matter for people.
        fault.to = fault
            .to
            .map(|to| to.min(fault.from + Duration::from_secs(10)));
    }
}

/// Returns whether a minute may be about a fault.
fn concerns(scenario: &Scenario, fault: &UpstreamFault, minute: u64) -> bool {
    let from = fault.from + scenario.warm;
    let to = fault.end(scenario) + scenario.warm;
    from < Duration::from_secs(60 * (minute + 1)) && to + TAIL > Duration::from_secs(60 * minute)
}

/// Returns the kinds of the faults that a minute may be about, for each target in turn.
fn kinds(scenario: &Scenario, minute: u64) -> String {
    let of = |upstream: &Upstream| {
        let faults = upstream.faults.iter();
        let mut kinds: Vec<String> = faults
            .filter(|fault| concerns(scenario, fault, minute))
            .map(|fault| match &fault.does {
                Does::Limit { .. } => "limit".to_owned(),
                does if fault.share < 1.0 => format!("{does} by chance"),
                does => does.to_string(),
            })
            .collect();
        kinds.sort();
        kinds.dedup();
        if kinds.is_empty() {
            "well".to_owned()
        } else {
            kinds.join(", ")
        }
    };
    let targets: Vec<String> = scenario.upstreams.iter().map(of).collect();
    targets.join(" | ")
}

/// Returns the faults of a scenario in words: all of them, or those that a minute may be about.
fn words(scenario: &Scenario, minute: Option<u64>) -> Vec<String> {
    let is_meant =
        |fault: &&UpstreamFault| minute.is_none_or(|minute| concerns(scenario, fault, minute));
    let of = |upstream: &Upstream| {
        let faults = upstream.faults.iter().filter(is_meant).map(|fault| {
            format!(
                "{} {:.1}-{:.1} s {:.2} of calls {}",
                upstream.name,
                fault.from.as_secs_f64() + scenario.warm.as_secs_f64(),
                fault.end(scenario).as_secs_f64() + scenario.warm.as_secs_f64(),
                fault.share,
                fault.does
            )
        });
        faults.collect::<Vec<_>>()
    };
    let rate = format!(
        "{:.1} calls/s, {} target(s)",
        scenario.rate,
        scenario.upstreams.len()
    );
    std::iter::once(rate)
        .chain(scenario.upstreams.iter().flat_map(of))
        .collect()
}

fn log_uniform(rng: &mut SeededRng, (min, max): (f64, f64)) -> f64 {
    min * (max / min).powf(rng.unit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_worse_beyond_chance_if_few_of_the_calls_that_differ_are_ours() {
        let minute = |only_ours, only_naive| RandomMinute {
            only_ours,
            only_naive,
            ..RandomMinute::default()
        };
        for (only_ours, only_naive, worse, beyond_chance) in [
            (0, 0, false, false),
            (10, 0, false, false),
            (0, 1, true, false),
            (0, 9, true, false),
            (0, 10, true, true),
            (40, 60, true, false),
            (40, 72, true, true),
        ] {
            let minute = minute(only_ours, only_naive);
            assert_eq!(
                (minute.is_worse(), minute.is_worse_beyond_chance()),
                (worse, beyond_chance),
                "{minute:?}"
            );
        }
    }
}
