//! Circuits: evidence of several replicas is judged by the rule of one circuit, and recovery is
//! followed.
//!
//! A replica whose last calls failed publishes what it saw; those with traffic to the same target
//! publish what they saw in turn. Each judges for itself, and opens only if failures came to two
//! replicas, or nobody else had a call to that target; never if it had a success since the others'
//! first failure.

use std::{collections::BTreeSet, time::Duration};

use relight_policy::policy::circuit::{
    CircuitPolicy, SharedPhase, SharedWindow, Together, judge_together,
};
use tokio::time::Instant;

use super::{ENDED, FleetCore, FleetEffect, LocalCircuit, REFRESH, is_about};
use crate::fact::{CircuitFact, FactSubject, ReplicaFact};

/// Time that replicas with traffic have to publish what they saw.
const RESPONSE: Duration = Duration::from_millis(200);
/// Age of a single failure at which it is published: at a busy target a success comes sooner.
const SINGLE_MS: u64 = 50;
/// Shortest time between two records of what was seen, if no run of failures became twice as long.
const BETWEEN: Duration = Duration::from_millis(100);
/// Shortest time between two records that differ by a later success.
const SUCCESSES: Duration = Duration::from_millis(500);

/// A circuit as this replica publishes it.
#[derive(Debug, Clone, Default)]
pub(super) struct CircuitView {
    episode: u64,
    phase: Option<SharedPhase>,
    own: bool,
    /// If set, it was opened here for others, and has not been seen so.
    is_ordered: bool,
    /// Time at which a failing replica was first known.
    suspected: Option<Instant>,
    ended: Option<Instant>,
}

type OtherFacts = [(String, CircuitFact)];

impl FleetCore {
    /// Compares a circuit with what others saw of its target.
    pub(super) fn circuit(&mut self, local: &LocalCircuit, now: Instant) {
        let subject = local.subject.clone();
        let others: Vec<(String, CircuitFact)> = self
            .facts_of_others(&subject, now)
            .into_iter()
            .filter_map(|(owner, fact)| match fact {
                ReplicaFact::Circuit(circuit) => Some((owner, circuit)),
                ReplicaFact::Member(_) | ReplicaFact::Gate(_) | ReplicaFact::Word(_) => None,
            })
            .collect();
        let Some(phase) = local.phase else {
            self.circuits.remove(&subject);
            self.alone.remove(&subject);
            self.publish(&subject, None, now);
            return;
        };
        let is_calm = phase == SharedPhase::Closed && !local.window.is_suspect();
        if is_calm && others.is_empty() && !self.circuits.contains_key(&subject) {
            return;
        }
        let mut view = self.circuits.remove(&subject).unwrap_or_default();
        view.follow_local(phase, &others, now);
        let effect = view
            .open(local, &others, now)
            .or_else(|| view.follow(local, &others));
        self.outcome.effects.extend(effect);
        let fact = view.fact(local, &others, now);
        self.find_alone(&subject, fact.as_ref(), &others);
        if fact.is_some() || view.episode > 0 || view.suspected.is_some() {
            self.circuits.insert(subject.clone(), view);
        }
        self.publish(&subject, fact.map(ReplicaFact::Circuit), now);
    }

    /// Finds the replicas whose circuit is open by their own failures while others have successes.
    fn find_alone(
        &mut self,
        subject: &FactSubject,
        own: Option<&CircuitFact>,
        others: &OtherFacts,
    ) {
        let me = own.map(|fact| (&self.me.id, fact));
        let all: Vec<(&String, &CircuitFact)> = others
            .iter()
            .map(|(owner, fact)| (owner, fact))
            .chain(me)
            .collect();
        let is_alone = |id: &str, fact: &CircuitFact| {
            fact.is_own_opening()
                && all.iter().any(|(other, its)| {
                    *other != id
                        && its.phase == SharedPhase::Closed
                        && its.window.answers_since(&fact.window)
                })
        };
        let alone: BTreeSet<String> = all
            .iter()
            .filter(|(id, fact)| is_alone(id, fact))
            .map(|(id, _)| (*id).clone())
            .collect();
        if alone.is_empty() {
            self.alone.remove(subject);
        } else {
            self.alone.insert(subject.clone(), alone);
        }
    }
}

impl CircuitView {
    /// Takes over what happened at this replica.
    fn follow_local(&mut self, phase: SharedPhase, others: &OtherFacts, now: Instant) {
        let was = self.phase.replace(phase).unwrap_or(SharedPhase::Closed);
        let was_ordered = std::mem::take(&mut self.is_ordered);
        match (was, phase) {
            (SharedPhase::Closed | SharedPhase::Recovering, SharedPhase::Open)
            | (SharedPhase::Closed, SharedPhase::Recovering) => {
                self.begin(others);
                self.own = true;
            }
            // What was ordered did not happen: that is no recovery.
            (SharedPhase::Open, SharedPhase::Closed) if was_ordered => self.own = false,
            (SharedPhase::Open | SharedPhase::Recovering, SharedPhase::Closed) => {
                self.ended = Some(now);
            }
            (SharedPhase::Open, SharedPhase::Open | SharedPhase::Recovering)
            | (SharedPhase::Recovering, SharedPhase::Recovering)
            | (SharedPhase::Closed, SharedPhase::Closed) => {}
        }
    }

    /// Begins an episode, or joins the latest one if a circuit is open in it.
    fn begin(&mut self, others: &OtherFacts) {
        let later = others.iter().filter(|(_, it)| it.episode > self.episode);
        let latest = later.max_by_key(|(_, it)| (it.episode, it.phase == SharedPhase::Open));
        self.episode = match latest {
            Some((_, it)) if it.phase == SharedPhase::Open => it.episode,
            Some((_, it)) => it.episode + 1,
            None => self.episode + 1,
        };
        self.ended = None;
    }

    /// Opens, if the sum of what all saw requires it.
    fn open(
        &mut self,
        local: &LocalCircuit,
        others: &OtherFacts,
        now: Instant,
    ) -> Option<FleetEffect> {
        let policy = &*local.policy;
        let others: &OtherFacts = &self.without_past(others, now);
        let failing: Vec<&CircuitFact> = others
            .iter()
            .map(|(_, fact)| fact)
            .filter(|fact| fact.is_own_opening() || !fact.window.run_ms.is_empty())
            .collect();
        let is_suspect = !failing.is_empty() || !local.window.run_ms.is_empty();
        if !is_suspect {
            self.suspected = None;
        }
        let suspected = *self.suspected.get_or_insert(now);
        if self.phase == Some(SharedPhase::Open) || failing.is_empty() {
            return None;
        }
        let opened = failing
            .iter()
            .filter(|fact| fact.is_own_opening() && fact.episode > self.episode)
            .max_by_key(|fact| fact.retry_ms);
        let together = together(policy, &local.window, others)
            .or_else(|| opened.map(|fact| of_one(policy, &fact.window)))?;
        // A success here since their first failure: they may be what is sick.
        let vetoes = failing
            .iter()
            .any(|fact| local.window.answers_since(&fact.window));
        let own_fails = !local.window.run_ms.is_empty();
        let at_two = failing.len() + usize::from(own_fails) >= 2;
        let others_call = others
            .iter()
            .filter(|(_, fact)| !failing.contains(&fact))
            .any(|(_, fact)| fact.window.calls > 0);
        let nobody_else = !others_call
            && local.window.calls == 0
            && now.saturating_duration_since(suspected) >= RESPONSE;
        if vetoes || !(at_two || nobody_else) {
            return None;
        }
        self.begin(others);
        (self.phase, self.own, self.is_ordered) = (Some(SharedPhase::Open), own_fails, true);
        let retry_in = opened.map(|fact| Duration::from_millis(fact.retry_ms));
        Some(FleetEffect::OpenCircuit(
            local.subject.clone(),
            together,
            retry_in,
        ))
    }

    /// Leaves out what others published of an opening that is over here, as after an operator's
    /// reset: it opens nothing again. Whoever is still open will have said so anew by then.
    fn without_past(&self, others: &OtherFacts, now: Instant) -> Vec<(String, CircuitFact)> {
        let is_over = self
            .ended
            .is_some_and(|ended| now.saturating_duration_since(ended) < REFRESH);
        let is_past = |fact: &CircuitFact| {
            is_over && fact.phase == SharedPhase::Open && fact.episode <= self.episode
        };
        let others = others.iter().filter(|(_, fact)| !is_past(fact));
        others.cloned().collect()
    }

    /// Follows the others on the way back, or stays open as long as they know that it is in vain. A
    /// replica that opened by its own failures does not follow one that had none: its way may be the
    /// broken one.
    fn follow(&mut self, local: &LocalCircuit, others: &OtherFacts) -> Option<FleetEffect> {
        let phase = self.phase?;
        if phase == SharedPhase::Closed || self.is_ordered {
            return None;
        }
        let known = || others.iter().map(|(_, fact)| fact);
        let latest = known().map(|fact| fact.episode).max();
        let episode = latest.filter(|latest| *latest >= self.episode && *latest > 0)?;
        let of_it = || known().filter(|fact| fact.episode == episode);
        let ahead = || of_it().filter(|fact| fact.phase > phase);
        // One that may not be followed is no reason not to follow another.
        let followed = ahead().filter(|fact| fact.own || !self.own);
        if let Some(further) = followed.map(|fact| fact.phase).max() {
            self.episode = episode;
            return Some(FleetEffect::Recover(local.subject.clone(), further));
        }
        // One whose time is over leaves the next probe to whoever's last one failed.
        let retry = of_it()
            .map(|fact| Duration::from_millis(fact.retry_ms))
            .max()?;
        let later = phase == SharedPhase::Open
            && ahead().next().is_none()
            && retry > local.retry_in + BETWEEN;
        later.then(|| {
            self.episode = episode;
            FleetEffect::StayOpen(local.subject.clone(), retry)
        })
    }

    /// Returns what this replica publishes, if it has to say anything.
    fn fact(&self, local: &LocalCircuit, others: &OtherFacts, now: Instant) -> Option<CircuitFact> {
        let phase = self.phase?;
        let window = &local.window;
        let is_over = self
            .ended
            .is_none_or(|ended| now.saturating_duration_since(ended) >= ENDED);
        let suspect = window.is_suspect()
            && (window.run_ms.len() != 1 || window.run_ms.iter().any(|age| *age >= SINGLE_MS));
        let responds = window.calls > 0
            && others
                .iter()
                .any(|(_, fact)| fact.is_own_opening() || fact.window.is_suspect());
        let says = phase != SharedPhase::Closed || !is_over || suspect || responds;
        says.then(|| CircuitFact {
            episode: self.episode,
            phase,
            retry_ms: u64::try_from(local.retry_in.as_millis()).unwrap_or(u64::MAX),
            own: self.own,
            window: window.clone(),
        })
    }
}

impl CircuitFact {
    /// Returns whether the circuit is open because calls of its replica failed, and not for a cause
    /// on its host.
    fn is_own_opening(&self) -> bool {
        self.phase == SharedPhase::Open && self.own && self.window.failures > 0
    }
}

/// Comparison of a window with another one.
trait SeenSuccesses {
    /// Returns whether a call succeeded that was admitted after the other's first failure.
    fn answers_since(&self, failing: &SharedWindow) -> bool;
}

impl SeenSuccesses for SharedWindow {
    fn answers_since(&self, failing: &SharedWindow) -> bool {
        let first = failing.run_ms.iter().max();
        self.answered_ms
            .zip(first)
            .is_some_and(|(answered, first)| answered < *first)
    }
}

fn together(policy: &CircuitPolicy, own: &SharedWindow, others: &OtherFacts) -> Option<Together> {
    let windows = others.iter().map(|(_, fact)| fact.window.clone());
    let windows: Vec<SharedWindow> = windows.chain([own.clone()]).collect();
    judge_together(policy, &windows)
}

/// Returns the evidence of one replica whose circuit opened by a rule of its own.
fn of_one(policy: &CircuitPolicy, window: &SharedWindow) -> Together {
    let known = judge_together(policy, std::slice::from_ref(window));
    known.unwrap_or_else(|| Together::at_another(window))
}

/// Returns whether a fact is news to those that know the first one, which was written so long ago.
pub(super) fn is_news(known: &CircuitFact, new: &CircuitFact, passed: Duration) -> bool {
    let same = known.episode == new.episode
        && known.phase == new.phase
        && known.own == new.own
        && (is_about(known.retry_ms, new.retry_ms) || new.retry_ms < known.retry_ms);
    let answered = match (known.window.answered_ms, new.window.answered_ms) {
        (Some(known), Some(new)) => is_about(known, new) || passed < SUCCESSES,
        (known, new) => known == new,
    };
    let seen = answered
        && known.window.run_ms.len() == new.window.run_ms.len()
        && known.window.failures == new.window.failures;
    // At a busy target, what is known of an outage is out of date long before the next record.
    let run = new.window.run_ms.len();
    let has_doubled = run > 1 && run >= 2 * known.window.run_ms.len();
    !same || has_doubled || (!seen && passed >= BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(run: usize) -> CircuitFact {
        CircuitFact {
            episode: 0,
            phase: SharedPhase::Closed,
            retry_ms: 0,
            own: false,
            window: SharedWindow {
                run_ms: vec![10; run],
                ..SharedWindow::default()
            },
        }
    }

    #[test]
    fn a_run_of_failures_is_published_at_once_when_it_is_twice_as_long() {
        let at_once = Duration::from_millis(1);
        for (known, new, expected) in [(0, 1, false), (0, 2, true), (2, 3, false), (2, 4, true)] {
            let known = &failing(known);
            let new = &failing(new);
            assert_eq!(is_news(known, new, at_once), expected, "{known:?} {new:?}");
            assert!(is_news(known, new, BETWEEN), "{known:?} {new:?}");
        }
    }
}
