//! The replicas that live, and the order in which they do what only one of them should.

use std::time::Duration;

use tokio::time::Instant;

use super::{FleetCore, FleetEffect, PublishedFact};
use crate::{
    fact::{FactSubject, ReplicaFact},
    store::StoredRecord,
};

/// Time after which a replica that wrote nothing is gone.
pub(super) const LIFETIME: Duration = Duration::from_secs(5);
/// Time between two signs of life.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// The subject of the signs of life.
const MEMBER: &str = "member";
/// Time after a write in which the store may have been read before it.
const UNREAD: Duration = Duration::from_secs(1);
/// Time by which each replica waits longer with a probe than the one before it: a refusal and news of it
/// take less.
const APART: Duration = Duration::from_millis(500);

impl FleetCore {
    /// Gives a sign of life, if one is due.
    pub(super) fn beat(&mut self, now: Instant) {
        let fact = ReplicaFact::Member(self.me.clone());
        self.publish(&FactSubject(MEMBER.to_owned()), Some(fact), now);
    }

    /// Takes over all that the store has.
    pub(super) fn learn(&mut self, records: Vec<StoredRecord>, now: Instant) {
        self.is_connected = true;
        self.others.clear();
        self.live.retain(|id, _| *id == self.me.id);
        let mut kept = Vec::new();
        let mut words = Vec::new();
        let mut unread = Vec::new();
        for record in records {
            let subject = FactSubject(record.subject);
            if record.owner == self.me.id {
                kept.push((subject, record.epoch));
                continue;
            }
            let Some(fact) = ReplicaFact::parse(&record.value) else {
                unread.extend(record.owner.is_empty().then_some(subject));
                continue;
            };
            match fact {
                ReplicaFact::Word(word) if record.owner.is_empty() => words.push((subject, word)),
                ReplicaFact::Member(member) if member.id == record.owner => {
                    self.live.insert(record.owner, member);
                }
                fact => {
                    let at = now.checked_sub(record.age).unwrap_or(now);
                    let known = self.others.entry(subject).or_default();
                    let epoch = record.epoch;
                    known.insert(record.owner, PublishedFact { fact, at, epoch });
                }
            }
        }
        self.write_again(&kept, now);
        self.learn_words(words, &unread);
    }

    /// Has those records written again that a store lost, or has an earlier one of.
    fn write_again(&mut self, kept: &[(FactSubject, u64)], now: Instant) {
        self.own.retain(|subject, published| {
            // What was written a moment ago may have come after the store was read.
            let is_new = now.saturating_duration_since(published.at) < UNREAD;
            let is_kept =
                |(known, epoch): &(FactSubject, u64)| known == subject && *epoch >= published.epoch;
            is_new || kept.iter().any(is_kept)
        });
    }

    /// Decides as one replica alone until the store is back.
    pub(super) fn decide_alone(&mut self) {
        self.is_connected = false;
        self.others.clear();
        self.own.clear();
        self.alone.clear();
        self.live.retain(|id, _| *id == self.me.id);
        let subjects: Vec<FactSubject> = self.gates.keys().cloned().collect();
        for subject in subjects {
            self.set_back(&subject, Duration::ZERO);
        }
    }

    /// Returns for how long this replica leaves a probe to those before it; they are counted from
    /// the first of `holders` that lives.
    pub(super) fn back_after(&self, holders: &[&str]) -> Duration {
        if !self.is_connected {
            return Duration::ZERO;
        }
        let ids: Vec<&str> = self.live.keys().map(String::as_str).collect();
        let place = |id: &str| ids.iter().position(|one| *one == id);
        let first = holders.iter().filter_map(|id| place(id)).min().unwrap_or(0);
        let own = place(&self.me.id).unwrap_or(0);
        let rank = (own + ids.len() - first) % ids.len().max(1);
        APART * u32::try_from(rank).unwrap_or(u32::MAX)
    }

    pub(super) fn set_back(&mut self, subject: &FactSubject, back: Duration) {
        if let Some(view) = self.gates.get_mut(subject)
            && view.back != back
        {
            view.back = back;
            let effect = FleetEffect::StayBack(subject.clone(), back);
            self.outcome.effects.push(effect);
        }
    }
}
