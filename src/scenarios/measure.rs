//! The measures of a run.
//!
//! Calls that *arrive* in the measured time count for shares and latencies; what is sent in it
//! counts for load.

use std::{collections::BTreeMap, time::Duration};

use super::{
    arrivals::ExpectedCall,
    call::CallResult,
    observed::StateChange,
    run::ScenarioRun,
    spec::Scenario,
    upstream::{OUTPUT_TOKENS, Sent},
};

/// Measures by name. Shares are 0 to 1, times are seconds. `name@caller` is the measure of one kind
/// of caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measures {
    values: BTreeMap<String, f64>,
}

// === impl Measures ===

impl Measures {
    /// Returns a measure; `None` when it was not taken, or not reached.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// Returns all of them, by name.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, f64> {
        &self.values
    }

    pub(super) fn set(&mut self, name: impl Into<String>, value: f64) {
        self.values.insert(name.into(), value);
    }
}

/// Time for which a call may be held back before its first attempt and still count as served at
/// once.
const HELD_BACK: Duration = Duration::from_secs(1);

/// Time for which a call may be held back at a target that works at full speed.
const SETTLED: Duration = Duration::from_millis(250);

/// Time within which every replica knows of an opening.
const KNOWN: Duration = Duration::from_millis(500);

/// Measures a run.
pub(super) fn measure(
    scenario: &Scenario,
    arrivals: &[ExpectedCall],
    run: &ScenarioRun,
) -> Measures {
    let mut measures = Measures::default();
    let seen = AttemptsSeen::new(scenario, arrivals, run);
    seen.answers(&mut measures, None);
    if scenario.callers.len() > 1 {
        for (index, callers) in scenario.callers.iter().enumerate() {
            seen.answers(&mut measures, Some((index, &callers.name)));
        }
    }
    seen.load(&mut measures);
    seen.health(&mut measures);
    seen.recovery(&mut measures);
    seen.slices(&mut measures);
    seen.fleet(&mut measures);
    measures
}

struct AttemptsSeen<'a> {
    scenario: &'a Scenario,
    arrivals: &'a [ExpectedCall],
    run: &'a ScenarioRun,
    /// Requests that were sent for each call.
    by_call: Vec<Vec<&'a Sent>>,
}

impl<'a> AttemptsSeen<'a> {
    fn new(scenario: &'a Scenario, arrivals: &'a [ExpectedCall], run: &'a ScenarioRun) -> Self {
        let mut by_call = vec![Vec::new(); arrivals.len()];
        for sent in &run.sent {
            if let Some(of_call) = by_call.get_mut(sent.call) {
                of_call.push(sent);
            }
        }
        Self {
            scenario,
            arrivals,
            run,
            by_call,
        }
    }

    fn from(&self) -> Duration {
        self.scenario.warm
    }

    fn to(&self) -> Duration {
        self.scenario.warm + self.scenario.fault
    }

    fn is_judged(&self, at: Duration) -> bool {
        at >= self.from() && at < self.to()
    }

    /// Returns the calls that count, with their arrival.
    fn judged(
        &self,
        caller: Option<usize>,
    ) -> impl Iterator<Item = (&'a ExpectedCall, &'a CallResult)> + '_ {
        self.run.results.iter().filter_map(move |result| {
            let arrival = self.arrivals.get(result.call)?;
            let counts =
                self.is_judged(arrival.at) && caller.is_none_or(|caller| arrival.caller == caller);
            counts.then_some((arrival, result))
        })
    }

    fn answers(&self, measures: &mut Measures, caller: Option<(usize, &str)>) {
        let name = |measure: &str| match caller {
            None => measure.to_owned(),
            Some((_, name)) => format!("{measure}@{name}"),
        };
        let index = caller.map(|(index, _)| index);
        let calls = self.judged(index).count();
        if calls == 0 {
            return;
        }
        let answered = self
            .judged(index)
            .filter(|(_, result)| result.answered)
            .count();
        measures.set(name("calls"), share(calls, 1));
        measures.set(name("success"), share(answered, calls));
        let of_judged = |call: usize| self.by_call.get(call).map_or(&[][..], Vec::as_slice);
        let attempts: usize = self
            .judged(index)
            .map(|(_, result)| of_judged(result.call).len())
            .sum();
        measures.set(name("attempts"), share(attempts, calls));
        let max = self
            .judged(index)
            .map(|(_, result)| of_judged(result.call).len())
            .max()
            .unwrap_or(0);
        measures.set(name("most_attempts"), share(max, 1));
        let records = self
            .judged(index)
            .map(|(_, result)| result.records)
            .max()
            .unwrap_or(0);
        measures.set(name("most_records"), share(records, 1));
        let unsound = self
            .judged(index)
            .filter(|(_, result)| !result.sound)
            .count();
        measures.set(name("unsound"), share(unsound, 1));
        let doomed = self
            .judged(index)
            .filter(|(_, result)| result.doomed)
            .count();
        measures.set(name("doomed"), share(doomed, 1));
        let seconds = |duration: Duration| duration.as_secs_f64();
        let added = self.judged(index).filter(|(_, result)| result.answered);
        let mut added: Vec<f64> = added
            .map(|(arrival, result)| {
                seconds(result.ended) - seconds(arrival.at) - seconds(arrival.service)
            })
            .collect();
        added.sort_by(f64::total_cmp);
        let failed = self.judged(index).filter(|(_, result)| !result.answered);
        let mut failed: Vec<f64> = failed
            .map(|(arrival, result)| seconds(result.ended) - seconds(arrival.at))
            .collect();
        failed.sort_by(f64::total_cmp);
        if let Some(value) =
            failed.get((failed.len() * 99 / 100).min(failed.len().saturating_sub(1)))
        {
            measures.set(name("failed_p99"), *value);
        }
        let classes: Vec<_> = self
            .judged(index)
            .filter_map(|(_, result)| result.class)
            .collect();
        let others = classes
            .iter()
            .filter(|class| classes.first() != Some(class))
            .count();
        measures.set(name("other_failures"), share(others, 1));
        for (measure, part) in [
            ("added_p50", 0.5),
            ("added_p99", 0.99),
            ("added_p99_by_chance", part_by_chance(0.99, added.len())),
        ] {
            if let Some(value) = at_part(&added, part) {
                measures.set(name(measure), value.max(0.0));
            }
        }
    }

    fn openings(&self) -> impl Iterator<Item = &'a StateChange> {
        let moves = self.run.circuits.iter();
        moves.filter(|moved| moved.what.starts_with("opened"))
    }

    /// What all replicas together cost a provider that is away, or that they return to.
    fn fleet(&self, measures: &mut Measures) {
        let firsts = self.by_call.iter().filter_map(|sent| sent.first());
        let failed = firsts.filter(|sent| self.is_judged(sent.at) && !sent.whole);
        measures.set("failed_first", share(failed.count(), 1));
        // From there on all know, and whatever is sent is a probe.
        let known = self.openings().find(|moved| moved.at >= self.from());
        if let Some(known) = known.map(|moved| moved.at + KNOWN) {
            let faults = self.scenario.upstreams.iter().flat_map(|one| &one.faults);
            let end = faults.map(|fault| fault.end(self.scenario)).max();
            let end = self.from() + end.unwrap_or_default();
            let probes = self.run.sent.iter();
            let probes = probes.filter(|sent| sent.at >= known && sent.at < end);
            measures.set("probes", f64::from(at_once(probes)));
        }
        let after = || self.run.sent.iter().filter(|sent| sent.at >= self.to());
        if let Some(first) = after().find(|sent| sent.status.is_none()) {
            let returned = after()
                .filter(|sent| sent.at >= first.at && sent.at < first.at + Duration::from_secs(1));
            measures.set("returned", share(returned.count(), 1) / self.scenario.rate);
        }
        let faults = self.scenario.upstreams.iter().flat_map(|one| &one.faults);
        let sick: Vec<usize> = faults.flat_map(|fault| fault.replicas.clone()).collect();
        if !sick.is_empty() {
            let elsewhere = self
                .openings()
                .filter(|moved| !sick.contains(&moved.replica));
            measures.set("opened_elsewhere", share(elsewhere.count(), 1));
        }
    }

    /// Attempts that were sent in the judged time, per call that came in it.
    fn load(&self, measures: &mut Measures) {
        let calls = self.judged(None).count();
        let sent = || self.run.sent.iter().filter(|sent| self.is_judged(sent.at));
        if calls == 0 {
            return;
        }
        measures.set("amplification", share(sent().count(), calls));
        measures.set(
            "amplification_primary",
            share(sent().filter(|sent| sent.upstream == 0).count(), calls),
        );
        let later = self.from() + Duration::from_secs(5);
        let limited = sent()
            .filter(|sent| sent.status == Some(429) && sent.at >= later)
            .count();
        let calls_later = self
            .judged(None)
            .filter(|(arrival, _)| arrival.at >= later)
            .count()
            .max(1);
        measures.set("limited", share(limited, calls_later));
        let mut wasted = 0;
        let mut delivered = 0;
        for sent in sent() {
            if sent.whole {
                delivered += sent.tokens;
            } else {
                wasted += sent.tokens;
            }
        }
        measures.set(
            "waste",
            f64::from(wasted) / f64::from(delivered.max(OUTPUT_TOKENS)),
        );
        // Together with whatever a limit or circuit let through at one moment.
        let busiest = busiest_second(sent().map(|sent| sent.at));
        measures.set("peak", f64::from(busiest) / self.scenario.rate);
        let herd = self.run.sent.iter().map(|sent| sent.at);
        let herd = herd.filter(|at| *at >= self.to() && *at < self.to() + Duration::from_secs(10));
        measures.set("herd", f64::from(busiest_second(herd)) / self.scenario.rate);
    }

    fn health(&self, measures: &mut Measures) {
        let opened = || self.openings();
        measures.set("openings", share(opened().count(), 1));
        let mut closed: BTreeMap<(usize, &str), bool> = BTreeMap::new();
        let mut opens = 0;
        for moved in &self.run.circuits {
            let was_closed = closed.entry((moved.replica, &moved.target)).or_insert(true);
            if moved.what.starts_with("opened") {
                opens += usize::from(std::mem::take(was_closed));
            } else if moved.what == "closed" {
                *was_closed = true;
            }
        }
        measures.set("opens", share(opens, 1));
        measures.set(
            "stale",
            share(usize::try_from(self.run.stale).unwrap_or(usize::MAX), 1),
        );
        let first = opened().find(|moved| moved.at >= self.from());
        if let Some(first) = first {
            measures.set(
                "detect",
                (first.at.saturating_sub(self.from())).as_secs_f64(),
            );
        }
        let last = self
            .run
            .circuits
            .iter()
            .rev()
            .find(|moved| moved.what == "closed" && moved.at >= self.to());
        if let Some(last) = last {
            measures.set("closed", (last.at - self.to()).as_secs_f64());
        }
    }

    /// After the judged time: the end of the last second in which a call failed, or was held back.
    fn recovery(&self, measures: &mut Measures) {
        let mut answered_from = Duration::ZERO;
        let mut at_once_from = Duration::ZERO;
        for result in &self.run.results {
            let Some(arrival) = self.arrivals.get(result.call) else {
                continue;
            };
            let Some(after) = arrival.at.checked_sub(self.to()) else {
                continue;
            };
            let end_of_second = Duration::from_secs(after.as_secs() + 1);
            let patient = self
                .scenario
                .callers
                .get(arrival.caller)
                .is_none_or(|callers| callers.patience.is_none());
            if !result.answered && patient {
                answered_from = answered_from.max(end_of_second);
            }
            let first = self.by_call.get(result.call).and_then(|sent| sent.first());
            let held_back = first.is_none_or(|sent| sent.at.saturating_sub(arrival.at) > HELD_BACK);
            if (!result.answered && patient) || held_back {
                at_once_from = at_once_from.max(end_of_second);
            }
        }
        let settled = self.judged(None).filter(|(arrival, result)| {
            let first = self.by_call.get(result.call).and_then(|sent| sent.first());
            !result.answered
                || first.is_none_or(|sent| sent.at.saturating_sub(arrival.at) > SETTLED)
        });
        let settled = settled
            .map(|(arrival, _)| arrival.at.saturating_sub(self.from()))
            .max()
            .unwrap_or_default();
        measures.set("settled", settled.as_secs_f64());
        measures.set("recover", answered_from.as_secs_f64());
        measures.set("at_once", at_once_from.as_secs_f64());
    }

    /// Success in each sixth of the judged time, and by how much a later one was better than an
    /// earlier one.
    fn slices(&self, measures: &mut Measures) {
        let mut slices = [(0_usize, 0_usize); 6];
        for (arrival, result) in self.judged(None) {
            let way = (arrival.at - self.from()).as_secs_f64() / self.scenario.fault.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 5"
            )]
            if let Some((answered, calls)) = slices.get_mut((way * 6.0) as usize) {
                *answered += usize::from(result.answered);
                *calls += 1;
            }
        }
        let shares: Vec<f64> = slices
            .iter()
            .map(|(answered, calls)| share(*answered, (*calls).max(1)))
            .collect();
        let rise = shares
            .windows(2)
            .map(|two| two[1] - two[0])
            .fold(0.0, f64::max);
        measures.set("rise", rise);
        measures.set("worst_sixth", shares.iter().copied().fold(1.0, f64::min));
    }
}

/// Most events in any second, on a grid of whole seconds.
fn busiest_second(times: impl Iterator<Item = Duration>) -> u32 {
    let mut seconds: BTreeMap<u64, u32> = BTreeMap::new();
    for at in times {
        *seconds.entry(at.as_secs()).or_default() += 1;
    }
    seconds.values().copied().max().unwrap_or(0)
}

/// Most requests that were under way at once.
fn at_once<'a>(sent: impl Iterator<Item = &'a Sent>) -> u32 {
    let mut moves: Vec<(Duration, i32)> = sent
        .flat_map(|sent| [(sent.at, 1), (sent.ended.unwrap_or(Duration::MAX), -1)])
        .collect();
    // An end comes before a beginning at the same time.
    moves.sort_unstable();
    let mut under_way = 0;
    let counts = moves.into_iter().map(|(_, change)| {
        under_way += change;
        under_way
    });
    counts.max().map_or(0, i32::unsigned_abs)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of calls are far below 2^53"
)]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// Returns the value below which this part of sorted values lies.
fn at_part(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place among the calls of a run"
    )]
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place.min(last)).copied()
}

/// Returns the part that a part of so many values may be by chance: three standard deviations of
/// the binomial distribution above it.
fn part_by_chance(part: f64, count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
    let deviation = (part * (1.0 - part) / count.max(1) as f64).sqrt();
    (part + 3.0 * deviation).min(1.0)
}
