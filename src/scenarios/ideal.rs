//! The clairvoyant ideal: the best possible result for a client that knows the timeline beforehand,
//! but not independent random outcomes.
//!
//! Each call waits for the first moment at which an upstream of its route responds to it before its
//! deadline, and sends nothing until then; one without such a moment fails at once and costs
//! nothing. Limits and workers serve calls in the order in which these come.

use std::time::Duration;

use super::{
    Measures,
    arrivals::{self, ExpectedCall},
    spec::{Does, Scenario, Upstream, UpstreamFault},
};

/// Computes the ideal.
pub(super) fn ideal(scenario: &Scenario, seed: u64, plan: &[ExpectedCall]) -> Measures {
    let of_upstream = |upstream: &Upstream| vec![f64::MIN; upstream.workers.unwrap_or(0)];
    let mut best = Best {
        scenario,
        limit_free_at: vec![0.0; scenario.upstreams.len()],
        workers_free_at: scenario.upstreams.iter().map(of_upstream).collect(),
        answered: 0.0,
        sent: 0.0,
    };
    let mut calls = 0.0;
    for arrival in plan {
        // What came before may have used a limit up.
        let judged = arrival.at >= scenario.warm && arrival.at < scenario.warm + scenario.fault;
        let (answered, sent) = best.call(arrival, seed);
        if judged {
            best.answered += answered;
            best.sent += sent;
            calls += 1.0;
        }
    }
    let mut measures = Measures::default();
    if calls > 0.0 {
        measures.set("success", best.answered / calls);
        measures.set("amplification", best.sent / calls);
    }
    measures
}

struct Best<'a> {
    scenario: &'a Scenario,
    /// Time at which a limit lets the next call through, in seconds since the fault started.
    limit_free_at: Vec<f64>,
    /// The same of each worker, by upstream.
    workers_free_at: Vec<Vec<f64>>,
    answered: f64,
    sent: f64,
}

/// Expected result of a call at some moment: probability of a response, attempts, and time of the
/// response.
struct Promise {
    answered: f64,
    sent: f64,
    there: f64,
    upstream: usize,
    /// The time until which it uses up the limit.
    limited_until: Option<f64>,
    /// The worker that it takes, and the time until which it does.
    worker: Option<(usize, f64)>,
}

impl Best<'_> {
    /// Returns the best expected result of a call: probability of a response, and attempts.
    fn call(&mut self, arrival: &ExpectedCall, seed: u64) -> (f64, f64) {
        let scenario = self.scenario;
        let Some(callers) = scenario.callers.get(arrival.caller) else {
            return (0.0, 0.0);
        };
        let at = arrival.at.as_secs_f64() - scenario.warm.as_secs_f64();
        let allowed = callers.deadline.unwrap_or(scenario.deadline);
        let deadline = at
            + callers
                .patience
                .unwrap_or(allowed)
                .min(allowed)
                .as_secs_f64();
        let service = arrivals::of_attempt(seed, &arrival.id, 1)
            .service
            .as_secs_f64();
        let mut best: Option<Promise> = None;
        for index in scenario.route(callers) {
            let Some(upstream) = scenario.upstreams.get(index) else {
                continue;
            };
            let faults: Vec<&UpstreamFault> = upstream
                .faults
                .iter()
                .filter(|fault| fault.hits(&callers.name, arrival.replica))
                .collect();
            let ends = faults
                .iter()
                .map(|fault| fault.end(scenario).as_secs_f64())
                .filter(|end| *end > at);
            for begins in std::iter::once(at).chain(ends) {
                let promise =
                    self.promise(index, &faults, begins, service * upstream.slower, deadline);
                let better =
                    |old: &Promise| (promise.answered, -promise.there) > (old.answered, -old.there);
                if promise.answered > 0.0 && best.as_ref().is_none_or(better) {
                    best = Some(promise);
                }
            }
        }
        let Some(best) = best else { return (0.0, 0.0) };
        if let Some(until) = best.limited_until
            && let Some(free_at) = self.limit_free_at.get_mut(best.upstream)
        {
            *free_at = until;
        }
        let workers = self.workers_free_at.get_mut(best.upstream);
        if let Some((worker, until)) = best.worker
            && let Some(free_at) = workers.and_then(|workers| workers.get_mut(worker))
        {
            *free_at = until;
        }
        (best.answered, best.sent)
    }

    fn promise(
        &self,
        upstream: usize,
        faults: &[&UpstreamFault],
        begins: f64,
        service: f64,
        deadline: f64,
    ) -> Promise {
        let none = Promise {
            answered: 0.0,
            sent: 0.0,
            there: f64::INFINITY,
            upstream,
            limited_until: None,
            worker: None,
        };
        let at = Duration::from_secs_f64(begins.max(0.0));
        let mut begins = begins;
        let mut service = service;
        let mut lost = 0.0;
        let mut limited_until = None;
        for fault in faults {
            let share = if begins < 0.0 {
                0.0
            } else {
                fault.share_at(at, self.scenario)
            };
            if share <= 0.0 {
                continue;
            }
            match &fault.does {
                Does::Status { .. }
                | Does::Reset { .. }
                | Does::Unreachable
                | Does::Hang
                | Does::Until
                | Does::Cut
                | Does::Late { .. } => {
                    // Faults of a list exclude each other; what is left of the coin is not hit.
                    lost += share * (1.0 - lost);
                }
                Does::Slow { times } => service *= times,
                Does::WorkersDown { .. } => {}
                Does::Limit {
                    per_second, burst, ..
                } => {
                    let free_at = self.limit_free_at.get(upstream).copied().unwrap_or(0.0);
                    // A full bucket at the beginning: as if it had been filled since
                    // `burst / per_second` before.
                    let free_at = free_at.max(begins - burst / per_second);
                    let end = fault.end(self.scenario).as_secs_f64();
                    begins = begins.max(free_at.min(end));
                    limited_until = Some(free_at + 1.0 / per_second);
                }
            }
        }
        let worker = self.next_worker(upstream, faults, begins);
        begins = worker.map_or(begins, |(_, free_at)| free_at);
        if lost >= 1.0 - 1e-9 || begins + service > deadline {
            return none;
        }
        let max = f64::from(self.scenario.policy.retry.max_retries) + 1.0;
        let answered = 1.0 - lost.powf(max);
        let sent = answered / (1.0 - lost);
        Promise {
            answered,
            sent,
            there: begins + service,
            upstream,
            limited_until,
            worker: worker.map(|(worker, _)| (worker, begins + service)),
        }
    }

    /// Returns the worker that is free first, and the time from which on it is; `None` if there is no
    /// bound on calls at once.
    fn next_worker(
        &self,
        upstream: usize,
        faults: &[&UpstreamFault],
        begins: f64,
    ) -> Option<(usize, f64)> {
        let workers = self.workers_free_at.get(upstream)?;
        let free_at = |(worker, free_at): (usize, &f64)| {
            let mut at = free_at.max(begins);
            for fault in faults {
                if let Does::WorkersDown { count } = fault.does {
                    let end = fault.end(self.scenario).as_secs_f64();
                    if worker < count && at >= fault.from.as_secs_f64() && at < end {
                        at = end;
                    }
                }
            }
            (worker, at)
        };
        let all = workers.iter().enumerate().map(free_at);
        all.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}
