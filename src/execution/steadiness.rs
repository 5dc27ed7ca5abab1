//! Decides when a lease that expired means that its owner is gone.
//!
//! A journal that was away for longer than a lease lets every lease expire, also those of owners
//! that live. They renew them as soon as it is back, if they are given the time: so a replica takes
//! expired leases over only after it could renew its own without a break for a while. A lease that
//! its owner released needs no such proof.

use std::time::Duration;

use tokio::time::Instant;

/// Since when this replica has renewed its leases without a break.
#[derive(Debug)]
pub(super) struct Steadiness {
    lease: Duration,
    since: Option<Instant>,
    renewed_at: Option<Instant>,
}

// === impl Steadiness ===

impl Steadiness {
    /// Nothing was renewed yet, with leases of this length.
    pub(super) const fn new(lease: Duration) -> Self {
        Self {
            lease,
            since: None,
            renewed_at: None,
        }
    }

    /// A renewal that was sent at `sent_at` has succeeded now.
    pub(super) fn renewed(&mut self, sent_at: Instant, now: Instant) {
        let unbroken =
            self.is_fresh(sent_at) && now.saturating_duration_since(sent_at) < self.lease / 4;
        if !unbroken {
            self.since = None;
        }
        self.since.get_or_insert(now);
        self.renewed_at = Some(now);
    }

    /// A renewal has failed.
    pub(super) const fn failed(&mut self) {
        self.since = None;
    }

    /// Returns whether an owner whose lease has expired by now must have had the time to renew it.
    pub(super) fn may_take_over(&self, now: Instant) -> bool {
        // Every owner renews each 3/10 of a lease, and more often after a failure.
        self.is_fresh(now)
            && self
                .since
                .is_some_and(|since| now.saturating_duration_since(since) >= self.lease * 4 / 10)
    }

    /// Returns whether the last renewal was not long before `now`.
    fn is_fresh(&self, now: Instant) -> bool {
        self.renewed_at
            .is_some_and(|at| now.saturating_duration_since(at) < self.lease * 6 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    /// Renews every 3 s for so long, from `from` on.
    fn renewing(steadiness: &mut Steadiness, from: Instant, seconds: u64) {
        for second in (0..=seconds).step_by(3) {
            let at = from + Duration::from_secs(second);
            steadiness.renewed(at, at);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_expired_lease_is_taken_over_only_after_4_s_of_renewals_without_a_break() {
        let mut steadiness = Steadiness::new(LEASE);
        let start = Instant::now();
        assert!(!steadiness.may_take_over(start), "nothing is known yet");
        renewing(&mut steadiness, start, 3);
        assert!(!steadiness.may_take_over(start + Duration::from_millis(3900)));
        assert!(steadiness.may_take_over(start + Duration::from_secs(4)));
        assert!(
            !steadiness.may_take_over(start + Duration::from_secs(20)),
            "its own renewals are overdue"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_or_a_pause_of_this_process_owners_get_the_time_to_renew() {
        let start = Instant::now();
        for interrupt in [
            |steadiness: &mut Steadiness, _: Instant| steadiness.failed(),
            |steadiness: &mut Steadiness, at: Instant| steadiness.renewed(at, at + LEASE * 16 / 10),
            |_: &mut Steadiness, _: Instant| {},
        ] {
            let mut steadiness = Steadiness::new(LEASE);
            renewing(&mut steadiness, start, 30);
            interrupt(&mut steadiness, start + Duration::from_secs(31));
            let back = start + Duration::from_secs(47);
            renewing(&mut steadiness, back, 3);
            assert!(!steadiness.may_take_over(back + Duration::from_millis(3900)));
            assert!(steadiness.may_take_over(back + Duration::from_secs(4)));
        }
    }
}
