//! The amounts that were taken within the last minute, and what was taken beyond a limit.
//!
//! A minute is counted in parts of half a second, so that no minute, wherever it begins, has more
//! than the limit, and a caller that takes all it may gets at least 99 % of it. What is found to
//! have been taken beyond the limit is owed: it is entered as soon as the minute has room for it,
//! and before anything new is let in, so that over a longer time the limit holds whatever was
//! expected.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Length of a part of a minute.
const PART: Duration = Duration::from_millis(500);

/// Number of parts for which an amount counts: a minute and the part in which it was entered.
const PARTS: u64 = 121;

/// Amounts of the last minute.
#[derive(Debug, Clone, Default)]
pub(super) struct Minute {
    origin: Option<Instant>,
    /// Amounts that were entered, by part, oldest first.
    entered: VecDeque<(u64, u64)>,
    total: u64,
    owed: u64,
    /// Amount that was given back: the next ones are taken of it.
    credit: u64,
}

// === impl Minute ===

impl Minute {
    /// Returns how much of `limit` is left.
    pub(super) fn left(&mut self, limit: u64, now: Instant) -> u64 {
        self.advance(limit, now);
        let room = limit.saturating_add(self.credit);
        room.saturating_sub(self.total.saturating_add(self.owed))
            .min(limit)
    }

    /// Enters an amount; what is beyond the limit is owed.
    pub(super) fn take(&mut self, amount: u64, limit: u64, now: Instant) {
        let part = self.advance(limit, now);
        let of_credit = amount.min(self.credit);
        self.credit -= of_credit;
        self.owed = self.owed.saturating_add(amount - of_credit);
        self.pay(limit, part);
    }

    /// Takes back an amount that was entered and not used.
    pub(super) fn give_back(&mut self, amount: u64) {
        let of_debt = amount.min(self.owed);
        self.owed -= of_debt;
        self.credit = self.credit.saturating_add(amount - of_debt).min(self.total);
    }

    /// Returns the time after which there is room again; zero if there is.
    pub(super) fn wait(&mut self, limit: u64, now: Instant) -> Duration {
        self.advance(limit, now);
        let taken = self.total.saturating_add(self.owed).saturating_add(1);
        let room = limit.saturating_add(self.credit);
        let part = self.expired(taken.saturating_sub(room));
        part.map_or(Duration::ZERO, |part| self.until(part, now))
    }

    /// Returns the time after which nothing of the minute is taken.
    pub(super) fn full_again(&mut self, limit: u64, now: Instant) -> Duration {
        self.advance(limit, now);
        let last_paid = self.expired(self.owed);
        let newest = last_paid.or_else(|| self.entered.back().map(|&(newest, _)| newest));
        newest.map_or(Duration::ZERO, |newest| {
            self.until(newest.saturating_add(PARTS), now)
        })
    }

    /// Returns the part in which so much will have expired, if what expires is replaced by what is
    /// owed; `None` for nothing.
    fn expired(&self, amount: u64) -> Option<u64> {
        // What is owed fills the places of what expires: minute after minute is like this one.
        let minutes = amount.checked_sub(1)?.checked_div(self.total)?;
        let mut rest = amount - minutes * self.total;
        let last = self.entered.iter().find(|(_, entered)| {
            let is_last = rest <= *entered;
            rest = rest.saturating_sub(*entered);
            is_last
        });
        last.map(|&(entered, _)| (minutes + 1).saturating_mul(PARTS).saturating_add(entered))
    }

    /// Returns whether nothing of the minute is taken.
    pub(super) fn is_unused(&mut self, limit: u64, now: Instant) -> bool {
        self.advance(limit, now);
        self.entered.is_empty() && self.owed == 0
    }

    /// Drops what is older than a minute and enters what was owed; returns the part of now.
    fn advance(&mut self, limit: u64, now: Instant) -> u64 {
        let part = self.part(now);
        self.expire(limit, part);
        part
    }

    fn expire(&mut self, limit: u64, part: u64) {
        while let Some(&(entered, amount)) = self.entered.front()
            && entered + PARTS <= part
        {
            self.entered.pop_front();
            self.total -= amount;
            // It was paid when there was room, whenever that is looked at.
            self.pay(limit, entered + PARTS);
        }
        self.credit = self.credit.min(self.total);
        self.pay(limit, part);
    }

    fn pay(&mut self, limit: u64, part: u64) {
        let amount = self.owed.min(limit.saturating_sub(self.total));
        if amount == 0 {
            return;
        }
        self.owed -= amount;
        self.total += amount;
        match self.entered.back_mut() {
            Some((newest, entered)) if *newest >= part => *entered += amount,
            Some(_) | None => self.entered.push_back((part, amount)),
        }
    }

    fn part(&mut self, at: Instant) -> u64 {
        let origin = *self.origin.get_or_insert(at);
        let age = at.saturating_duration_since(origin).as_millis() / PART.as_millis();
        u64::try_from(age).unwrap_or(u64::MAX / 2)
    }

    /// Returns the time from now until a part begins.
    fn until(&self, part: u64, now: Instant) -> Duration {
        let parts = u32::try_from(part).unwrap_or(u32::MAX);
        let begin = self
            .origin
            .and_then(|origin| origin.checked_add(PART.saturating_mul(parts)));
        begin.map_or(Duration::ZERO, |begin| begin.saturating_duration_since(now))
    }
}
