//! Tests whether refusals are more than chance: Page's test over the calls in the order in which they were
//! admitted.
//!
//! Refusals are fast and answers slow, so that counting completed calls would show a target that
//! refuses a few calls as one that refuses all. A call that is silent for longer than refusals take
//! counts as a coming answer.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::domain::{failure::FailureClass, ids::TenantId};

/// Calls that are remembered one by one.
const REMEMBERED: usize = 64;
/// Assumption before anything is known: so many refusals in so many calls.
const ASSUMED: (f64, f64) = (0.5, 10.0);
/// Earlier calls that are counted; then both counts are halved.
const COUNTED: f64 = 256.0;
/// The largest share of refusals at which a target counts as answering.
const ANSWERING: f64 = 0.5;
/// Weight for the share of a refusal of a run that closed the gate: it is likely not chance, but
/// may be.
const IN_A_RUN: f64 = 0.25;
/// A call counts as a coming answer when it is silent for so many times as long as refusals take, and
/// for this time at least.
const SILENT: (u32, Duration) = (2, Duration::from_millis(50));
/// So many calls pass on average between two closings by chance (Lorden's bound).
const BY_CHANCE: f64 = 3000.0;

/// The number of a call at one gate, in the order of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallNumber(u64);

/// The last calls of a gate.
#[derive(Debug, Default)]
pub(super) struct RefusalEvidence {
    calls: VecDeque<CallSample>,
    /// The number of the oldest remembered call.
    first: u64,
    /// The number from which on calls count for a closing.
    from: u64,
    /// The number of the last call that was refused.
    last_refused: Option<u64>,
    /// Reason and time of the first refusal since the last success.
    doubt: Option<(FailureClass, Instant)>,
    /// Refused and known calls that are not remembered any more.
    earlier: (f64, f64),
}

#[derive(Debug)]
struct CallSample {
    tenant: TenantId,
    admitted: Instant,
    ended: Option<CallEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum CallEnd {
    Accepted,
    Refused {
        took: Duration,
        /// Weight for the share of refusals while the target was answering.
        weight: f64,
    },
    /// It shows nothing about this gate.
    Neutral,
}

// === impl RefusalEvidence ===

impl RefusalEvidence {
    /// A call is admitted.
    pub(super) fn admitted(&mut self, now: Instant, tenant: &TenantId) -> CallNumber {
        if self.calls.len() >= REMEMBERED
            && let Some(oldest) = self.calls.pop_front()
        {
            self.first += 1;
            self.count(&oldest);
        }
        self.calls.push_back(CallSample {
            tenant: tenant.clone(),
            admitted: now,
            ended: None,
        });
        CallNumber(self.first + self.calls.len() as u64 - 1)
    }

    /// A call was accepted; returns whether it was admitted since the last opening, and after the
    /// last call that was refused.
    pub(super) fn accepted(&mut self, call: CallNumber) -> bool {
        self.end(call, CallEnd::Accepted);
        let shows_it = self.is_current(call) && self.last_refused.is_none_or(|last| call.0 > last);
        if shows_it {
            self.doubt = None;
        }
        shows_it
    }

    /// Records that a call was refused; `closed`: while the gate was closed. Returns the time that
    /// it took; `None` if it shows nothing: it was admitted before the last opening, or taken at
    /// first.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        call: CallNumber,
        class: FailureClass,
        closed: bool,
    ) -> Option<Duration> {
        let admitted = match self.get(call) {
            Some(sample) if sample.ended.is_some() => return None,
            Some(sample) => sample.admitted,
            None => now,
        };
        let took = now.saturating_duration_since(admitted);
        let weight = if closed { 0.0 } else { 1.0 };
        self.end(call, CallEnd::Refused { took, weight });
        if !self.is_current(call) {
            return None;
        }
        self.last_refused = self.last_refused.max(Some(call.0));
        self.doubt.get_or_insert((class, now));
        Some(took)
    }

    /// Returns the reason and the time of the first refusal since the last success, if there is one.
    pub(super) fn in_doubt(&self) -> Option<(FailureClass, Instant)> {
        self.doubt
    }

    /// A call ended in a way that shows nothing about this gate.
    pub(super) fn ended(&mut self, call: CallNumber) {
        self.end(call, CallEnd::Neutral);
    }

    /// From now on only calls that are admitted later count.
    pub(super) fn begin_anew(&mut self) {
        self.from = self.first + self.calls.len() as u64;
        self.last_refused = None;
    }

    fn is_current(&self, call: CallNumber) -> bool {
        call.0 >= self.from
    }

    /// Returns the tenants whose calls were refused, if the refusals are more than chance.
    pub(super) fn more_than_chance(&mut self, now: Instant) -> Option<Vec<TenantId>> {
        let share = self.share();
        let changed = f64::midpoint(1.0, share);
        let refused = (changed / share).ln();
        let answered = ((1.0 - changed) / (1.0 - share)).ln();
        let slowest = self.slowest().unwrap_or_default();
        let skipped = self.skipped();
        let mut sum = 0.0_f64;
        let mut tenants = Vec::new();
        let mut begins = skipped;
        for (index, call) in self.calls.iter().enumerate().skip(skipped) {
            let is_silent = now.saturating_duration_since(call.admitted) >= slowest;
            match call.ended {
                Some(CallEnd::Refused { .. }) => {
                    sum += refused;
                    if !tenants.contains(&call.tenant) {
                        tenants.push(call.tenant.clone());
                    }
                }
                Some(CallEnd::Accepted) => sum += answered,
                None if is_silent => sum += answered,
                Some(CallEnd::Neutral) | None => {}
            }
            if sum <= 0.0 {
                (sum, tenants, begins) = (0.0, Vec::new(), index + 1);
            }
        }
        if sum < BY_CHANCE.ln() {
            return None;
        }
        for call in self.calls.iter_mut().skip(begins) {
            if let Some(CallEnd::Refused { weight, .. }) = &mut call.ended {
                *weight = weight.min(IN_A_RUN);
            }
        }
        Some(tenants)
    }

    /// Returns the number of remembered calls that do not count for a closing any more.
    fn skipped(&self) -> usize {
        usize::try_from(self.from.saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// The share of refusals while the target was answering: without those in a row at the end.
    fn share(&self) -> f64 {
        let (mut refused, mut known) = self.earlier;
        let in_a_row = |call: &&CallSample| !matches!(call.ended, Some(CallEnd::Accepted));
        for call in self.calls.iter().rev().skip_while(in_a_row) {
            if let Some((was_refused, is_known)) = call.counts() {
                (refused, known) = (refused + was_refused, known + is_known);
            }
        }
        ((refused + ASSUMED.0) / (known + ASSUMED.1)).min(ANSWERING)
    }

    /// Returns the time at which the success of a call counts as coming that was admitted after the
    /// last one that was refused: it is then silent for longer than refusals take.
    pub(super) fn coming_at(&self) -> Option<Instant> {
        let (times, least) = SILENT;
        let silent = (self.slowest()? * times).max(least);
        let after = self.last_refused.map_or(self.from, |refused| refused + 1);
        let after = usize::try_from(after.saturating_sub(self.first)).ok()?;
        let mut later = self.calls.iter().skip(after);
        let out = later.find(|call| call.ended.is_none())?;
        Some(out.admitted + silent)
    }

    /// Returns the longest time that a refusal took.
    fn slowest(&self) -> Option<Duration> {
        let took = self
            .calls
            .iter()
            .skip(self.skipped())
            .filter_map(|call| match call.ended {
                Some(CallEnd::Refused { took, .. }) => Some(took),
                _ => None,
            });
        took.max()
    }

    fn count(&mut self, call: &CallSample) {
        if let Some((refused, known)) = call.counts() {
            self.earlier = (self.earlier.0 + refused, self.earlier.1 + known);
        }
        if self.earlier.1 > COUNTED {
            self.earlier = (self.earlier.0 / 2.0, self.earlier.1 / 2.0);
        }
    }

    fn get(&self, call: CallNumber) -> Option<&CallSample> {
        let index = usize::try_from(call.0.checked_sub(self.first)?).ok()?;
        self.calls.get(index)
    }

    fn end(&mut self, call: CallNumber, end: CallEnd) {
        let index = call
            .0
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        if let Some(sample) = index.and_then(|index| self.calls.get_mut(index)) {
            sample.ended.get_or_insert(end);
        }
    }
}

// === impl CallSample ===

impl CallSample {
    /// Refused and known calls that it adds to the share of refusals; of one that is silent, as
    /// one that was not refused.
    const fn counts(&self) -> Option<(f64, f64)> {
        match self.ended {
            Some(CallEnd::Refused { weight, .. }) => Some((weight, weight)),
            Some(CallEnd::Accepted) | None => Some((0.0, 1.0)),
            Some(CallEnd::Neutral) => None,
        }
    }
}

#[cfg(test)]
mod tests;
