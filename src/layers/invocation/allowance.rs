//! How much of its allowance of attempts an invocation has used.

use super::InvocationScope;
use crate::domain::invocation::{AttemptCause, AttemptRecord};

// === impl InvocationScope ===

impl InvocationScope {
    /// Attempts that were sent, or that failed for a real reason: what the allowance counts. One
    /// that reads on what an earlier owner had asked for asks for nothing, and is not counted; nor
    /// is one that was lost with its replica.
    pub fn counted_attempts(&self) -> u32 {
        let counted = self.lock().iter().filter(|record| counts(record)).count();
        u32::try_from(counted).unwrap_or(u32::MAX)
    }

    /// Returns those of them that may have reached a target: what `max_retries` bounds.
    pub fn sent_attempts(&self) -> u32 {
        sent_of(&self.lock())
    }

    /// Returns those of them that surely reached no target.
    pub fn unsent_attempts(&self) -> u32 {
        self.counted_attempts().saturating_sub(self.sent_attempts())
    }

    /// Returns whether the policy allows another attempt after the one that runs.
    pub fn may_try_again(&self) -> bool {
        let retry = &self.plan.retry;
        retry.enabled && self.sent_attempts() <= retry.max_retries
    }
}

/// Attempts of these that may have reached a target.
pub fn sent_of(attempts: &[AttemptRecord]) -> u32 {
    let may_be_sent = |record: &&AttemptRecord| {
        let never_sent = record
            .failure
            .as_ref()
            .is_some_and(|failure| failure.never_sent);
        counts(record) && (record.sent || !never_sent)
    };
    let sent = attempts.iter().filter(may_be_sent).count();
    u32::try_from(sent).unwrap_or(u32::MAX)
}

/// Returns whether an attempt uses up the allowance.
fn counts(record: &AttemptRecord) -> bool {
    !record.refused_locally()
        && !record.cause.reads_existing_response()
        && !record.lost_with_replica
        // Another key takes the place of the one that was refused: that is no new call.
        && !matches!(record.cause, AttemptCause::Rotate(_))
}
