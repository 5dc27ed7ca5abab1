//! Facts learnt from outcomes: which tool was chosen in place of which, and how often each
//! succeeds.
//!
//! Everything is counted per tenant and operation, fades with a half-life, and is bounded: the
//! lowest weight goes first, and of the tenant that has most. It only says which of several tools
//! that their operator declared equal comes first, and ranks the offers. One case is chance or
//! the mistake of one caller: it takes two that are independent, and one success of the tool that
//! was named undoes it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::{
    failure::FailureClass,
    ids::{Operation, TenantId},
};

/// Different cases from which a tool is preferred.
const MIN_CASES: usize = 2;
/// Weight of corrections from which a tool is preferred: two that are not older than a half-life.
const MIN_WEIGHT: f64 = 1.0;
/// Most cases that are told apart for one pair of tools.
const MAX_CASES: usize = 8;
/// Weight below which an entry is not listed any more.
const FORGOTTEN: f64 = 0.01;

/// Facts learnt about tools from the outcomes of their calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolLearning {
    /// The time in which what was learnt loses half of its weight.
    half_life: Duration,
    /// The most entries of each kind.
    max_entries: usize,
    confusions: Vec<Confusion>,
    records: Vec<TrackRecord>,
}

/// Owner of the outcomes, and its operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learner {
    /// Tenant that called.
    pub tenant: TenantId,
    /// Operation of the caller.
    pub operation: Operation,
}

/// A tool that was chosen although another one was right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confusion {
    /// Its owner.
    pub learner: Learner,
    /// The tool that was chosen, as `server/tool`.
    pub chosen: String,
    /// The tool that did what was wanted, as `server/tool`.
    pub right: String,
    /// Number of times that it happened, faded up to `at`.
    pub weight: f64,
    /// In which cases, the latest last; each counts once.
    pub cases: Vec<String>,
    /// Time at which it happened last.
    pub at: Timestamp,
}

/// Number of times that a tool succeeded in an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// Its owner.
    pub learner: Learner,
    /// The tool, as `server/tool`.
    pub tool: String,
    /// Its successes, faded up to `at`.
    pub succeeded: f64,
    /// Its failures, faded up to `at`.
    pub failed: f64,
    /// Time at which it was called last.
    pub at: Timestamp,
}

/// A tool that comes first among those that are declared equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Preference {
    /// The tool, as `server/tool`.
    pub tool: String,
    /// Reason, in one sentence.
    pub reason: String,
}

// === impl ToolLearning ===

impl ToolLearning {
    /// Nothing learnt yet; keeps at most `max_entries` confusions and as many records.
    #[must_use]
    pub const fn new(half_life: Duration, max_entries: usize) -> Self {
        Self {
            half_life,
            max_entries,
            confusions: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Takes note that `chosen` failed and `right` then did what was wanted, in this case. The same
    /// case again says nothing new.
    pub fn correct(
        &mut self,
        learner: &Learner,
        (chosen, right): (&str, &str),
        case: &str,
        now: Timestamp,
    ) {
        let half_life = self.half_life;
        let is_it = |it: &&mut Confusion| {
            it.learner == *learner && it.chosen == chosen && it.right == right
        };
        if let Some(known) = self.confusions.iter_mut().find(is_it) {
            if known.cases.iter().any(|it| it == case) {
                return;
            }
            known.cases.push(case.to_owned());
            let surplus = known.cases.len().saturating_sub(MAX_CASES);
            known.cases.drain(..surplus);
            known.weight = faded(half_life, known.weight, known.at, now) + 1.0;
            known.at = known.at.max(now);
            return;
        }
        self.confusions.push(Confusion {
            learner: learner.clone(),
            chosen: chosen.to_owned(),
            right: right.to_owned(),
            weight: 1.0,
            cases: vec![case.to_owned()],
            at: now,
        });
        self.bound_confusions(now);
    }

    /// Takes back what made `right` be called in place of `chosen`: it did not do what was wanted.
    pub fn refute(&mut self, learner: &Learner, chosen: &str, right: &str) {
        self.confusions
            .retain(|it| it.learner != *learner || it.chosen != chosen || it.right != right);
    }

    /// Takes note of the outcome of a call. A tool that succeeds is not the wrong one.
    pub fn record(&mut self, learner: &Learner, tool: &str, succeeded: bool, now: Timestamp) {
        if succeeded {
            self.confusions
                .retain(|it| it.learner != *learner || it.chosen != tool);
        }
        let half_life = self.half_life;
        let (won, lost) = if succeeded { (1.0, 0.0) } else { (0.0, 1.0) };
        let is_it = |it: &&mut TrackRecord| it.learner == *learner && it.tool == tool;
        if let Some(known) = self.records.iter_mut().find(is_it) {
            known.succeeded = faded(half_life, known.succeeded, known.at, now) + won;
            known.failed = faded(half_life, known.failed, known.at, now) + lost;
            known.at = known.at.max(now);
            return;
        }
        self.records.push(TrackRecord {
            learner: learner.clone(),
            tool: tool.to_owned(),
            succeeded: won,
            failed: lost,
            at: now,
        });
        self.bound_records(now);
    }

    /// Returns the tool that comes before `chosen` among those that are declared equal, if that is
    /// sure enough: it was right in two cases at least, of which not half is forgotten, and
    /// `chosen` did not succeed since.
    #[must_use]
    pub fn prefer(&self, learner: &Learner, chosen: &str, now: Timestamp) -> Option<Preference> {
        let of_pair = self.confusions.iter().filter(|it| {
            it.learner == *learner && it.chosen == chosen && it.cases.len() >= MIN_CASES
        });
        let weighted = of_pair.map(|it| (it, faded(self.half_life, it.weight, it.at, now)));
        let (pair, weight) = weighted.max_by(|left, right| left.1.total_cmp(&right.1))?;
        (weight >= MIN_WEIGHT).then(|| Preference {
            tool: pair.right.clone(),
            reason: format!(
                "in this operation `{}` did before what `{chosen}` was called for",
                pair.right
            ),
        })
    }

    /// Returns the share of calls of a tool that succeeded, drawn towards one half if few are
    /// known; `None` for none.
    #[must_use]
    pub fn success(&self, learner: &Learner, tool: &str, now: Timestamp) -> Option<f64> {
        let mut records = self.records.iter();
        let record = records.find(|it| it.learner == *learner && it.tool == tool)?;
        let fade = |weight| faded(self.half_life, weight, record.at, now);
        Some((fade(record.succeeded) + 1.0) / (fade(record.succeeded) + fade(record.failed) + 2.0))
    }

    /// Returns the confusions as they weigh now, heaviest first.
    #[must_use]
    pub fn confusions(&self, now: Timestamp) -> Vec<Confusion> {
        let now_of = |it: &Confusion| Confusion {
            weight: faded(self.half_life, it.weight, it.at, now),
            ..it.clone()
        };
        let mut listed: Vec<_> = self
            .confusions
            .iter()
            .map(now_of)
            .filter(|it| it.weight >= FORGOTTEN)
            .collect();
        listed.sort_by(|left, right| right.weight.total_cmp(&left.weight));
        listed
    }

    /// Returns the records as they weigh now, heaviest first.
    #[must_use]
    pub fn records(&self, now: Timestamp) -> Vec<TrackRecord> {
        let fade = |weight, at| faded(self.half_life, weight, at, now);
        let now_of = |it: &TrackRecord| TrackRecord {
            succeeded: fade(it.succeeded, it.at),
            failed: fade(it.failed, it.at),
            ..it.clone()
        };
        let mut listed: Vec<_> = self.records.iter().map(now_of).collect();
        listed.retain(|it| it.succeeded + it.failed >= FORGOTTEN);
        listed.sort_by(|left, right| {
            (right.succeeded + right.failed).total_cmp(&(left.succeeded + left.failed))
        });
        listed
    }

    /// Forgets the learnt facts, by one tenant, about one operation or one tool (`server/tool`, or
    /// its name at every server) if they are given; returns the number of entries that went.
    pub fn reset(
        &mut self,
        tenant: Option<&TenantId>,
        operation: Option<&Operation>,
        tool: Option<&str>,
    ) -> usize {
        let before = self.confusions.len() + self.records.len();
        let other = |known: &Learner| {
            tenant.is_some_and(|it| *it != known.tenant)
                || operation.is_some_and(|it| *it != known.operation)
        };
        let is_named = |known: &str| {
            tool.is_none_or(|tool| {
                known == tool || known.split_once('/').is_some_and(|(_, name)| name == tool)
            })
        };
        self.confusions
            .retain(|it| other(&it.learner) || !(is_named(&it.chosen) || is_named(&it.right)));
        self.records
            .retain(|it| other(&it.learner) || !is_named(&it.tool));
        before - self.confusions.len() - self.records.len()
    }

    /// Nothing learnt, within the same bounds.
    #[must_use]
    pub const fn emptied(&self) -> Self {
        Self::new(self.half_life, self.max_entries)
    }

    /// The same knowledge under other bounds, such as those of a new configuration.
    #[must_use]
    pub fn with_bounds(self, half_life: Duration, max_entries: usize, now: Timestamp) -> Self {
        let mut bounded = Self {
            half_life,
            max_entries,
            ..self
        };
        bounded.bound_confusions(now);
        bounded.bound_records(now);
        bounded
    }

    fn bound_confusions(&mut self, now: Timestamp) {
        let half_life = self.half_life;
        bound(
            &mut self.confusions,
            self.max_entries,
            |it| &it.learner.tenant,
            |it| faded(half_life, it.weight, it.at, now),
        );
    }

    fn bound_records(&mut self, now: Timestamp) {
        let half_life = self.half_life;
        bound(
            &mut self.records,
            self.max_entries,
            |it| &it.learner.tenant,
            |it| faded(half_life, it.succeeded + it.failed, it.at, now),
        );
    }
}

/// Returns the rest of a weight; time that ran backwards fades nothing.
fn faded(half_life: Duration, weight: f64, at: Timestamp, now: Timestamp) -> f64 {
    let age = now.duration_since(at).as_secs_f64().max(0.0);
    let half_life = half_life.as_secs_f64();
    if half_life > 0.0 {
        weight * (-age / half_life).exp2()
    } else {
        0.0
    }
}

/// Drops what weighs least until the bound is kept, of the tenant that has most, so that no tenant
/// makes others forget; of equals the oldest.
fn bound<T>(
    entries: &mut Vec<T>,
    max: usize,
    tenant: impl Fn(&T) -> &TenantId,
    weight: impl Fn(&T) -> f64,
) {
    while entries.len() > max {
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        for entry in &*entries {
            *held.entry(tenant(entry).as_str()).or_default() += 1;
        }
        let most = held.values().copied().max();
        let lightest = entries
            .iter()
            .enumerate()
            .filter(|(_, it)| held.get(tenant(it).as_str()).copied() == most)
            .min_by(|left, right| weight(left.1).total_cmp(&weight(right.1)));
        let Some((at, _)) = lightest else { return };
        entries.remove(at);
    }
}

/// Returns whether a tool that failed so did not take the call: another one was meant, perhaps.
#[must_use]
pub const fn is_refusal(class: FailureClass) -> bool {
    matches!(class, FailureClass::NotFound | FailureClass::InvalidRequest)
}

#[cfg(test)]
mod tests;
