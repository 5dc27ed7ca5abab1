//! What was learnt from outcomes: which tool was chosen in place of which, and how often each
//! succeeds.
//!
//! Everything is counted per operation of the caller, fades with a half-life, and is bounded: what
//! weighs least goes first.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::{failure::FailureClass, ids::Operation};

/// Weight of corrections from which a tool is preferred: one that is not older than a half-life.
const MIN_WEIGHT: f64 = 0.5;
/// The share that corrections must have among them and the successes of the tool that was chosen.
const MIN_SHARE: f64 = 0.75;
/// Weight below which an entry is not listed any more.
const FORGOTTEN: f64 = 0.01;

/// What was learnt about tools from the outcomes of their calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolLearning {
    /// The time in which what was learnt loses half of its weight.
    half_life: Duration,
    /// The most entries of each kind.
    max_entries: usize,
    confusions: Vec<Confusion>,
    records: Vec<TrackRecord>,
}

/// A tool that was chosen where another one was right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confusion {
    /// What the caller was doing.
    pub operation: Operation,
    /// The tool that was chosen, as `server/tool`.
    pub chosen: String,
    /// The tool that did what was wanted, as `server/tool`.
    pub right: String,
    /// How often that happened, faded up to `at`.
    pub weight: f64,
    /// When it happened last.
    pub at: Timestamp,
}

/// How often a tool succeeded in an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackRecord {
    /// What the caller was doing.
    pub operation: Operation,
    /// The tool, as `server/tool`.
    pub tool: String,
    /// Its successes, faded up to `at`.
    pub succeeded: f64,
    /// Its failures, faded up to `at`.
    pub failed: f64,
    /// When it was called last.
    pub at: Timestamp,
}

/// A tool that is better called at once, and how sure that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Preference {
    /// The tool, as `server/tool`.
    pub tool: String,
    /// The share of corrections among them and the successes of the chosen tool, from 0 to 1.
    pub confidence: f64,
    /// Why, in one sentence.
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

    /// Takes note that `chosen` failed and `right` then did what was wanted.
    pub fn correct(&mut self, operation: &Operation, chosen: &str, right: &str, now: Timestamp) {
        let half_life = self.half_life;
        let is_it = |it: &&mut Confusion| {
            it.operation == *operation && it.chosen == chosen && it.right == right
        };
        if let Some(known) = self.confusions.iter_mut().find(is_it) {
            known.weight = faded(half_life, known.weight, known.at, now) + 1.0;
            known.at = known.at.max(now);
            return;
        }
        let (chosen, right) = (chosen.to_owned(), right.to_owned());
        self.confusions.push(Confusion {
            operation: operation.clone(),
            chosen,
            right,
            weight: 1.0,
            at: now,
        });
        bound(&mut self.confusions, self.max_entries, |it| {
            faded(half_life, it.weight, it.at, now)
        });
    }

    /// Takes back what made `right` be called in place of `chosen`: it did not do what was wanted.
    pub fn refute(&mut self, operation: &Operation, chosen: &str, right: &str) {
        self.confusions
            .retain(|it| it.operation != *operation || it.chosen != chosen || it.right != right);
    }

    /// Takes note of the outcome of a call.
    pub fn record(&mut self, operation: &Operation, tool: &str, succeeded: bool, now: Timestamp) {
        let half_life = self.half_life;
        let (won, lost) = if succeeded { (1.0, 0.0) } else { (0.0, 1.0) };
        let is_it = |it: &&mut TrackRecord| it.operation == *operation && it.tool == tool;
        if let Some(known) = self.records.iter_mut().find(is_it) {
            known.succeeded = faded(half_life, known.succeeded, known.at, now) + won;
            known.failed = faded(half_life, known.failed, known.at, now) + lost;
            known.at = known.at.max(now);
            return;
        }
        let (operation, tool) = (operation.clone(), tool.to_owned());
        self.records.push(TrackRecord {
            operation,
            tool,
            succeeded: won,
            failed: lost,
            at: now,
        });
        bound(&mut self.records, self.max_entries, |it| {
            faded(half_life, it.succeeded + it.failed, it.at, now)
        });
    }

    /// The tool that is better called at once in place of `chosen`, if that is sure enough: it was
    /// right at least once within a half-life, and three times as often as `chosen` itself
    /// succeeded.
    #[must_use]
    pub fn prefer(
        &self,
        operation: &Operation,
        chosen: &str,
        now: Timestamp,
    ) -> Option<Preference> {
        let of_pair = self
            .confusions
            .iter()
            .filter(|it| it.operation == *operation && it.chosen == chosen);
        let weighted = of_pair.map(|it| (it, faded(self.half_life, it.weight, it.at, now)));
        let (pair, weight) = weighted.max_by(|left, right| left.1.total_cmp(&right.1))?;
        let own = self
            .find(operation, chosen)
            .map_or(0.0, |it| faded(self.half_life, it.succeeded, it.at, now));
        let confidence = weight / (weight + own);
        (weight >= MIN_WEIGHT && confidence >= MIN_SHARE).then(|| Preference {
            tool: pair.right.clone(),
            confidence,
            reason: format!(
                "in this operation `{}` did before what `{chosen}` was called for ({:.0} % of the cases)",
                pair.right,
                confidence * 100.0
            ),
        })
    }

    /// The share of calls of a tool that succeeded, drawn towards one half where few are known;
    /// `None` for none.
    #[must_use]
    pub fn success(&self, operation: &Operation, tool: &str, now: Timestamp) -> Option<f64> {
        let record = self.find(operation, tool)?;
        let fade = |weight| faded(self.half_life, weight, record.at, now);
        Some((fade(record.succeeded) + 1.0) / (fade(record.succeeded) + fade(record.failed) + 2.0))
    }

    /// The confusions as they weigh now, heaviest first.
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

    /// The records as they weigh now, heaviest first.
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

    /// Forgets what was learnt, about one operation or one tool (`server/tool`, or its name at
    /// every server) where they are given; returns how many entries went.
    pub fn reset(&mut self, operation: Option<&Operation>, tool: Option<&str>) -> usize {
        let before = self.confusions.len() + self.records.len();
        let other = |known: &Operation| operation.is_some_and(|it| it != known);
        let is_named = |known: &str| {
            tool.is_none_or(|tool| {
                known == tool || known.split_once('/').is_some_and(|(_, name)| name == tool)
            })
        };
        self.confusions
            .retain(|it| other(&it.operation) || !(is_named(&it.chosen) || is_named(&it.right)));
        self.records
            .retain(|it| other(&it.operation) || !is_named(&it.tool));
        before - self.confusions.len() - self.records.len()
    }

    /// Nothing learnt, within the same bounds.
    #[must_use]
    pub const fn emptied(&self) -> Self {
        Self::new(self.half_life, self.max_entries)
    }

    /// The same knowledge under other bounds, such as those of a new configuration.
    #[must_use]
    pub fn with_bounds(mut self, half_life: Duration, max_entries: usize, now: Timestamp) -> Self {
        bound(&mut self.confusions, max_entries, |it| {
            faded(half_life, it.weight, it.at, now)
        });
        bound(&mut self.records, max_entries, |it| {
            faded(half_life, it.succeeded + it.failed, it.at, now)
        });
        Self {
            half_life,
            max_entries,
            ..self
        }
    }

    fn find(&self, operation: &Operation, tool: &str) -> Option<&TrackRecord> {
        self.records
            .iter()
            .find(|it| it.operation == *operation && it.tool == tool)
    }
}

/// What is left of a weight; time that ran backwards fades nothing.
fn faded(half_life: Duration, weight: f64, at: Timestamp, now: Timestamp) -> f64 {
    let age = now.duration_since(at).as_secs_f64().max(0.0);
    let half_life = half_life.as_secs_f64();
    if half_life > 0.0 {
        weight * (-age / half_life).exp2()
    } else {
        0.0
    }
}

/// Drops what weighs least until the bound is kept; of equals the oldest.
fn bound<T>(entries: &mut Vec<T>, max: usize, weight: impl Fn(&T) -> f64) {
    while entries.len() > max {
        let lightest = entries
            .iter()
            .enumerate()
            .min_by(|left, right| weight(left.1).total_cmp(&weight(right.1)));
        let Some((at, _)) = lightest else { return };
        entries.remove(at);
    }
}

/// Whether a tool that failed so did not take the call: another one was meant, perhaps.
#[must_use]
pub const fn is_refusal(class: FailureClass) -> bool {
    matches!(class, FailureClass::NotFound | FailureClass::InvalidRequest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + hours * 3_600).unwrap()
    }

    fn learning() -> ToolLearning {
        ToolLearning::new(24 * HOUR, 100)
    }

    fn preferred(learning: &ToolLearning, operation: &str, hours: i64) -> Option<String> {
        learning
            .prefer(&operation.into(), "get_activities", at(hours))
            .map(|it| it.tool)
    }

    #[test]
    fn one_correction_is_enough_for_one_half_life_in_its_operation_only() {
        let mut learning = learning();
        assert_eq!(preferred(&learning, "executor", 0), None);
        learning.correct(&"executor".into(), "get_activities", "get_activity", at(0));
        assert_eq!(
            preferred(&learning, "executor", 0).as_deref(),
            Some("get_activity")
        );
        assert_eq!(
            preferred(&learning, "executor", 24).as_deref(),
            Some("get_activity")
        );
        assert_eq!(preferred(&learning, "executor", 25), None, "it has faded");
        assert_eq!(preferred(&learning, "planner", 0), None);
    }

    #[test]
    fn a_tool_that_succeeds_itself_is_not_replaced() {
        let mut learning = learning();
        let executor = Operation::from("executor");
        learning.record(&executor, "get_activities", true, at(0));
        learning.correct(&executor, "get_activities", "get_activity", at(0));
        assert_eq!(preferred(&learning, "executor", 0), None);
        learning.correct(&executor, "get_activities", "get_activity", at(0));
        learning.correct(&executor, "get_activities", "get_activity", at(0));
        assert_eq!(
            preferred(&learning, "executor", 0).as_deref(),
            Some("get_activity"),
            "three to one"
        );
        learning.refute(&executor, "get_activities", "get_activity");
        assert_eq!(preferred(&learning, "executor", 0), None);
    }

    #[test]
    fn success_is_drawn_to_the_middle_where_little_is_known() {
        let mut learning = learning();
        let executor = Operation::from("executor");
        assert_eq!(learning.success(&executor, "t", at(0)), None);
        learning.record(&executor, "t", true, at(0));
        let once = learning.success(&executor, "t", at(0)).unwrap();
        for _ in 0..20 {
            learning.record(&executor, "t", true, at(0));
        }
        let often = learning.success(&executor, "t", at(0)).unwrap();
        let faded = learning.success(&executor, "t", at(24 * 30)).unwrap();
        assert!(
            0.5 < once && once < often && often < 1.0 && faded < once,
            "{once} {often} {faded}"
        );
    }

    #[test]
    fn what_was_learnt_survives_a_journal_is_listed_and_is_reset() {
        let mut learning = learning();
        let executor = Operation::from("executor");
        learning.correct(&executor, "a", "b", at(0));
        learning.correct(&executor, "c", "d", at(1));
        learning.record(&executor, "b", true, at(1));
        learning.record(&"planner".into(), "b", false, at(1));
        let json = serde_json::to_string(&learning).unwrap();
        assert_eq!(
            serde_json::from_str::<ToolLearning>(&json).unwrap(),
            learning
        );
        assert_eq!(
            learning
                .confusions(at(1))
                .first()
                .map(|it| it.chosen.clone()),
            Some("c".to_owned())
        );
        assert_eq!(learning.records(at(1)).len(), 2);
        assert!(learning.confusions(at(24 * 365)).is_empty());
        let smaller = learning.clone().with_bounds(HOUR, 1, at(1));
        assert_eq!(
            (
                smaller.confusions(at(1)).len(),
                smaller.records(at(1)).len()
            ),
            (1, 1)
        );
        assert_eq!(learning.clone().reset(None, None), 4);
        assert_eq!(
            learning.reset(Some(&executor), Some("b")),
            2,
            "one confusion, one record"
        );
        assert_eq!(
            (
                learning.confusions(at(1)).len(),
                learning.records(at(1)).len()
            ),
            (1, 1)
        );
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_its_weights_are_finite(
            calls in proptest::collection::vec((0_u8..40, 0_u8..40, any::<bool>(), 0_i64..10_000), 0..200)
        ) {
            let mut learning = ToolLearning::new(HOUR, 10);
            let executor = Operation::from("executor");
            for (chosen, right, succeeded, hours) in calls {
                learning.correct(&executor, &chosen.to_string(), &right.to_string(), at(hours));
                learning.record(&executor, &chosen.to_string(), succeeded, at(hours));
                prop_assert!(learning.confusions.len() <= 10 && learning.records.len() <= 10);
                if let Some(preference) = learning.prefer(&executor, &chosen.to_string(), at(hours)) {
                    prop_assert!((MIN_SHARE..=1.0).contains(&preference.confidence));
                }
            }
            let is_finite = learning.confusions(at(0)).iter().all(|it| it.weight.is_finite());
            prop_assert!(is_finite);
        }
    }

    #[test]
    fn a_tool_that_did_not_find_or_not_understand_the_call_refused_it() {
        let refusals: Vec<_> = FailureClass::ALL
            .into_iter()
            .filter(|class| is_refusal(*class))
            .collect();
        assert_eq!(
            refusals,
            [FailureClass::InvalidRequest, FailureClass::NotFound]
        );
    }
}
