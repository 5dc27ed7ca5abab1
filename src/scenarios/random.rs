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

/// Minute of a random hour in which fewer calls succeeded with Relight than with the naive client.
#[derive(Debug, Clone)]
pub struct WorseMinute {
    /// The seed of the hour.
    pub seed: u64,
    /// The minute in it.
    pub minute: u64,
    /// Calls that came in it.
    pub calls: u32,
    /// Number of them that succeeded with Relight.
    pub ours: u32,
    /// Number of them that succeeded with the naive client.
    pub naive: u32,
    /// The faults that were in force, or had ended in the minute before.
    pub faults: Vec<String>,
}

/// A drawn run beside the naive client.
#[derive(Debug, Clone)]
pub struct RandomRun {
    /// Calls that were made.
    pub calls: usize,
    /// Minutes that were run.
    pub minutes: u64,
    /// Those in which fewer succeeded with Relight.
    pub worse: Vec<WorseMinute>,
    /// The faults of each target, in words.
    pub faults: Vec<String>,
    /// The rule's gates over the whole run.
    pub verdicts: Vec<super::GateResult>,
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

/// Runs a time of faults drawn with this seed, and a naive client beside it. It blocks the thread.
///
/// # Errors
/// When the runtime cannot be built.
pub fn random(seed: u64, length: Duration) -> Result<RandomRun, ScenarioError> {
    let scenario = drawn(seed, length);
    let plan = arrivals::draw(&scenario, seed);
    let ours = run::ours(&scenario, seed, &plan)?;
    let naive = run::naive(&scenario, seed, &plan)?;
    let verdicts = rule::verdicts(
        &measure::measure(&scenario, &plan, &ours),
        &measure::measure(&scenario, &plan, &naive),
        None,
    );
    let minute = |at: Duration| at.as_secs() / 60;
    let minutes = minute(scenario.length()) + 1;
    let answered = |results: &run::ScenarioRun| {
        let mut answered = vec![0_u32; usize::try_from(minutes).unwrap_or(usize::MAX)];
        for result in results.results.iter().filter(|result| result.answered) {
            let at = plan.get(result.call).map(|call| minute(call.at));
            let place = at.and_then(|at| usize::try_from(at).ok());
            if let Some(count) = place.and_then(|place| answered.get_mut(place)) {
                *count += 1;
            }
        }
        answered
    };
    let pairs = answered(&ours).into_iter().zip(answered(&naive)).zip(0..);
    let worse = pairs
        .filter(|((ours, naive), _)| ours < naive)
        .map(|((ours, naive), number)| WorseMinute {
            seed,
            minute: number,
            calls: u32::try_from(plan.iter().filter(|call| minute(call.at) == number).count())
                .unwrap_or(u32::MAX),
            ours,
            naive,
            faults: words(&scenario, Some(number)),
        });
    Ok(RandomRun {
        calls: plan.len(),
        minutes,
        worse: worse.collect(),
        faults: words(&scenario, None),
        verdicts,
    })
}

/// Returns a scenario drawn with this seed.
fn drawn(seed: u64, length: Duration) -> Scenario {
    let mut rng = SeededRng::new(seed, &InvocationId::from("random hours"), 0);
    let rate = log_uniform(&mut rng, RATE);
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

/// Returns the faults of a scenario in words: all of them, or those that a minute may be about.
fn words(scenario: &Scenario, minute: Option<u64>) -> Vec<String> {
    let concerns = |fault: &&UpstreamFault| {
        let Some(minute) = minute else { return true };
        let from = fault.from + scenario.warm;
        let to = fault.end(scenario) + scenario.warm;
        from < Duration::from_secs(60 * (minute + 1))
            && to + TAIL > Duration::from_secs(60 * minute)
    };
    let of = |upstream: &Upstream| {
        let faults = upstream.faults.iter().filter(concerns).map(|fault| {
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
