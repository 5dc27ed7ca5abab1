//! Gates: what one replica closed is closed at all, and one success opens it for all.
//!
//! An end counts before a closing of the same episode, whatever comes first; a closing of a later
//! episode counts before both. Every replica that has a gate closed publishes it, so that nobody is
//! needed to keep it closed; the one whose calls were refused probes first.

use std::time::Duration;

use relight_policy::policy::gates::SharedClosing;
use tokio::time::Instant;

use super::{ENDED, FleetCore, FleetEffect, is_about};
use crate::fact::{FactSubject, GateFact, ReplicaFact};

/// A gate as this replica publishes it.
#[derive(Debug, Clone, Default)]
pub(super) struct GateView {
    episode: u64,
    is_closed: bool,
    own: bool,
    /// If set, it was closed here for another replica, and has not been seen so.
    is_ordered: bool,
    ended: Option<Instant>,
    pub(super) back: Duration,
}

impl FleetCore {
    /// Compares a gate with what others know of it.
    pub(super) fn gate(
        &mut self,
        subject: &FactSubject,
        closing: Option<SharedClosing>,
        now: Instant,
    ) {
        let others: Vec<(String, GateFact)> = self
            .facts_of_others(subject, now)
            .into_iter()
            .filter_map(|(owner, fact)| match fact {
                ReplicaFact::Gate(gate) => Some((owner, gate)),
                ReplicaFact::Member(_) | ReplicaFact::Circuit(_) | ReplicaFact::Word(_) => None,
            })
            .collect();
        if closing.is_none() && others.is_empty() && !self.gates.contains_key(subject) {
            return;
        }
        let mut view = self.gates.remove(subject).unwrap_or_default();
        view.follow_local(closing.as_ref(), &others, now);
        let mut closing = closing;
        for (_, other) in &others {
            let effect = view.take(subject, other, &mut closing, now);
            self.outcome.effects.extend(effect);
        }
        let is_over = view
            .ended
            .is_none_or(|ended| now.saturating_duration_since(ended) >= ENDED);
        let fact = (view.is_closed || !is_over).then(|| {
            ReplicaFact::Gate(GateFact {
                episode: view.episode,
                closing: closing.filter(|_| view.is_closed),
                own: view.own,
            })
        });
        let mut holders: Vec<&str> = others
            .iter()
            .filter(|(_, other)| {
                other.own && other.closing.is_some() && other.episode == view.episode
            })
            .map(|(owner, _)| owner.as_str())
            .collect();
        if view.own {
            holders.push(&self.me.id);
        }
        let back = if view.is_closed {
            self.back_after(&holders)
        } else {
            Duration::ZERO
        };
        self.gates.insert(subject.clone(), view);
        self.set_back(subject, back);
        self.publish(subject, fact, now);
    }
}

impl GateView {
    /// Takes over what happened at this replica.
    fn follow_local(
        &mut self,
        closing: Option<&SharedClosing>,
        others: &[(String, GateFact)],
        now: Instant,
    ) {
        match (self.is_closed, closing) {
            (false, Some(_)) => {
                let later = others.iter().filter(|(_, it)| it.episode > self.episode);
                let joined = later.clone().filter(|(_, it)| it.closing.is_some());
                let latest = later
                    .map(|(_, it)| it.episode)
                    .max()
                    .unwrap_or(self.episode);
                self.episode = match joined.map(|(_, it)| it.episode).max() {
                    Some(episode) if episode == latest => episode,
                    Some(_) | None => latest + 1,
                };
                (self.is_closed, self.own, self.ended) = (true, true, None);
            }
            // What was ordered did not happen: that is not an end.
            (true, None) if self.is_ordered => self.is_closed = false,
            (true, None) => (self.is_closed, self.ended) = (false, Some(now)),
            (true, Some(_)) | (false, None) => {}
        }
        self.is_ordered = false;
    }

    /// Takes over what another replica published, and returns what follows here.
    fn take(
        &mut self,
        subject: &FactSubject,
        other: &GateFact,
        closing: &mut Option<SharedClosing>,
        now: Instant,
    ) -> Option<FleetEffect> {
        if other.episode < self.episode {
            return None;
        }
        let is_later = other.episode > self.episode;
        let Some(theirs) = &other.closing else {
            self.episode = other.episode;
            let was_closed = std::mem::take(&mut self.is_closed);
            (self.own, self.ended) = (false, self.ended.or(was_closed.then_some(now)));
            *closing = None;
            return was_closed.then(|| FleetEffect::OpenGate(subject.clone()));
        };
        if !self.is_closed && !is_later {
            return None;
        }
        let knows_more = closing
            .as_ref()
            .is_none_or(|known| knows_more(theirs, known));
        if !self.is_closed {
            (self.is_closed, self.own, self.is_ordered) = (true, false, true);
            self.ended = None;
        }
        self.episode = other.episode;
        if !knows_more {
            return None;
        }
        if closing.is_none() {
            *closing = Some(theirs.clone());
        }
        Some(FleetEffect::CloseGate(subject.clone(), theirs.clone()))
    }
}

/// Returns whether the first of two closings has a tenant or a later time that the second has not.
fn knows_more(theirs: &SharedClosing, known: &SharedClosing) -> bool {
    let is_later = |one: u64, other: u64| one > other && !is_about(one, other);
    let ends_later = theirs
        .ends_ms
        .is_some_and(|ends| known.ends_ms.is_none_or(|known| is_later(ends, known)));
    ends_later
        || theirs.tenants.iter().any(|one| {
            let known = known.tenants.iter().find(|it| it.tenant == one.tenant);
            known.is_none_or(|known| is_later(one.probe_ms, known.probe_ms))
        })
}

/// Returns whether a fact is news to those that know the first one.
pub(super) fn is_news(known: &GateFact, new: &GateFact) -> bool {
    let same = known.episode == new.episode && known.own == new.own;
    let closings = match (&known.closing, &new.closing) {
        (None, None) => true,
        (Some(known), Some(new)) => {
            let ends = match (known.ends_ms, new.ends_ms) {
                (Some(known), Some(new)) => is_about(known, new),
                (known, new) => known == new,
            };
            let tenants = known.tenants.len() == new.tenants.len()
                && known.tenants.iter().zip(&new.tenants).all(|(known, new)| {
                    known.tenant == new.tenant && is_about(known.probe_ms, new.probe_ms)
                });
            ends && tenants && known.class == new.class
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    !(same && closings)
}
