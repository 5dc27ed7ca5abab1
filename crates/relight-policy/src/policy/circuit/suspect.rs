//! Caller whose calls fail while those of others are answered: what it sends makes the target fail,
//! and says nothing of what others would get.
//!
//! The majority vote of Boyer and Moore finds it in constant space: whoever fails more often than all
//! others together, and is answered less often than that. Its failures count for nothing as long as
//! others are answered in between, and seldom fail. An outage fails all of them, so that their answers
//! end and its failures count again.

use tokio::time::Instant;

use super::{Signal, outcome_window::OutcomeCounts, setting::WINDOW};
use crate::policy::sliding::Sliding;

/// Marks of the caller of an attempt: who it is, and what it sends. Attempts with the same mark have
/// the same cause to fail; `None` has no mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallerMarks {
    /// Hash of its tenant.
    pub tenant: Option<u64>,
    /// Hash of its prompt.
    pub prompt: Option<u64>,
}

/// The suspects among tenants and among prompts.
#[derive(Debug)]
pub(super) struct Suspects {
    tenant: Suspect,
    prompt: Suspect,
}

#[derive(Debug)]
struct Suspect {
    mark: Option<u64>,
    /// By how many its failures outnumber its answers, and the failures of others.
    lead: u32,
    /// Its failures since others were answered; `None` if none of them was since it is the suspect.
    unanswered: Option<u32>,
    /// Its outcomes since it is the suspect.
    own: Sliding<OutcomeCounts>,
    /// Outcomes of all.
    all: Sliding<OutcomeCounts>,
}

/// The largest lead: as many failures of others find another suspect.
const MAX_LEAD: u32 = 64;
/// Answers of others from which it is known how they fare.
const SEVERAL: u32 = 3;
/// The largest share of failures at which others fare well.
const WELL: f64 = 0.2;
/// Probability that by chance no other is answered between so many failures of a suspect.
const CHANCE: f64 = 1e-6;

// === impl Suspects ===

impl Suspects {
    pub(super) fn new() -> Self {
        Self {
            tenant: Suspect::new(),
            prompt: Suspect::new(),
        }
    }

    /// Counts what an attempt showed; returns what that shows about the target.
    pub(super) fn weigh(&mut self, now: Instant, marks: CallerMarks, signal: Signal) -> Signal {
        let by_tenant = self.tenant.shows_nothing(now, marks.tenant, signal);
        let by_prompt = self.prompt.shows_nothing(now, marks.prompt, signal);
        if by_tenant || by_prompt {
            Signal::Neutral
        } else {
            signal
        }
    }
}

// === impl Suspect ===

impl Suspect {
    fn new() -> Self {
        Self {
            mark: None,
            lead: 0,
            unanswered: None,
            own: Sliding::new(WINDOW),
            all: Sliding::new(WINDOW),
        }
    }

    fn shows_nothing(&mut self, now: Instant, mark: Option<u64>, signal: Signal) -> bool {
        match signal {
            Signal::FirstToken => {
                self.answered(now, mark);
                false
            }
            Signal::Failed {
                local_origin: false,
                ..
            } => self.failed(now, mark),
            _ => false,
        }
    }

    fn answered(&mut self, now: Instant, mark: Option<u64>) {
        self.all.add(now, ANSWERED);
        if mark == self.mark {
            self.lead = self.lead.saturating_sub(1);
            self.own.add(now, ANSWERED);
        } else {
            self.unanswered = Some(0);
        }
    }

    /// Records a failure; returns whether it is the suspect's own.
    fn failed(&mut self, now: Instant, mark: Option<u64>) -> bool {
        self.all.add(now, FAILED);
        if self.lead == 0 && mark.is_some() && mark != self.mark {
            self.mark = mark;
            self.unanswered = None;
            self.own = Sliding::new(WINDOW);
        }
        if mark != self.mark {
            self.lead = self.lead.saturating_sub(1);
            return false;
        }
        self.lead = (self.lead + 1).min(MAX_LEAD);
        self.own.add(now, FAILED);
        let Some(unanswered) = &mut self.unanswered else {
            return false;
        };
        *unanswered += 1;
        let all = self.all.total(now);
        let own = self.own.total(now);
        // Both windows slide by parts of their own.
        let answered = all.answered.saturating_sub(own.answered);
        let failed = f64::from(all.failed.saturating_sub(own.failed));
        answered >= SEVERAL
            && failed <= WELL * (failed + f64::from(answered))
            && f64::from(*unanswered) <= by_chance(own.failed.saturating_sub(*unanswered), answered)
    }
}

const ANSWERED: OutcomeCounts = OutcomeCounts {
    answered: 1,
    ..OutcomeCounts::NONE
};
const FAILED: OutcomeCounts = OutcomeCounts {
    failed: 1,
    ..OutcomeCounts::NONE
};

/// Returns the number of failures of one caller between which no other is answered by chance, if there
/// were so many of both before.
fn by_chance(failed: u32, answered: u32) -> f64 {
    let share = f64::from(failed + 1) / f64::from(failed + answered + 2);
    CHANCE.ln() / share.ln()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FAILURE: Signal = Signal::Failed {
        kind: super::super::FailKind::Fast,
        retry_after: None,
        local_origin: false,
    };

    /// Plays so many outcomes, 20 ms apart; returns how many failures count of how many.
    fn counted(outcomes: impl Iterator<Item = (u64, bool)>) -> (u32, u32) {
        let mut suspects = Suspects::new();
        let mut now = Instant::now();
        let mut counted = 0;
        let mut failed = 0;
        for (tenant, is_answered) in outcomes {
            now += Duration::from_millis(20);
            let marks = CallerMarks {
                tenant: Some(tenant),
                prompt: None,
            };
            if is_answered {
                suspects.weigh(now, marks, Signal::FirstToken);
            } else {
                failed += 1;
                counted += u32::from(suspects.weigh(now, marks, FAILURE) == FAILURE);
            }
        }
        (counted, failed)
    }

    #[test]
    fn failures_of_one_caller_hardly_count_while_others_are_answered() {
        for others in [2, 3, 10] {
            let (counted, failed) = counted(
                (0..1000)
                    .map(|n| (1, n % others == 0))
                    .map(|(tenant, is_other)| if is_other { (2, true) } else { (tenant, false) }),
            );
            assert!(counted * 20 < failed, "{others}: {counted} of {failed}");
        }
    }

    #[test]
    fn failures_of_all_and_of_the_only_caller_count() {
        let (counted_all, failed) = counted((0..1000).map(|n| (n % 5, (n / 5) % 2 == 0)));
        assert!(
            counted_all * 10 > failed * 9,
            "half of all: {counted_all} of {failed}"
        );
        let (counted_lone, failed) = counted((0..1000).map(|n| (7, n % 3 == 0)));
        assert_eq!(counted_lone, failed, "there are no others");
    }

    #[test]
    fn once_all_fail_the_failures_of_a_suspect_count_after_twenty() {
        let poisoned = (0..200).map(|n| if n % 2 == 0 { (1, false) } else { (2, true) });
        let outage = (0..60).map(|n| if n % 20 == 19 { (2, false) } else { (1, false) });
        let (before, _) = counted(poisoned.clone());
        let (all, _) = counted(poisoned.chain(outage));
        assert!(all - before >= 30, "{before}, {all}");
    }
}
