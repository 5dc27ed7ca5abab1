//! Reason for which there is no other attempt, for programs and in one sentence for people.

use std::time::Duration;

use crate::domain::{failure::FailureClass, units::format_duration};

/// Reason for which there is no other attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The failure is of a kind that no attempt can mend.
    NotRetryable,
    /// The caller has seen something that cannot be revoked.
    Irrevocable,
    /// All allowed attempts were made.
    AttemptsUsedUp,
    /// Another attempt would need more time than is left.
    DeadlineTooClose {
        /// Its wait and the room for its first token.
        needed: Duration,
    },
    /// The retry budget of every target that can be called is empty.
    BudgetEmpty,
    /// No target may be called in time.
    NoTarget {
        /// Time until the first one may be called, if that is known.
        retry_in: Option<Duration>,
    },
    /// The attempts cost too many tokens already.
    TokensUsedUp,
    /// Retries are switched off.
    Disabled,
}

// === impl StopReason ===

impl StopReason {
    /// Returns the local refusal that it comes to, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<FailureClass> {
        match self {
            Self::DeadlineTooClose { .. } => Some(FailureClass::Deadline),
            Self::BudgetEmpty => Some(FailureClass::BudgetEmpty),
            Self::NoTarget { .. } => Some(FailureClass::CircuitOpen),
            Self::NotRetryable
            | Self::Irrevocable
            | Self::AttemptsUsedUp
            | Self::TokensUsedUp
            | Self::Disabled => None,
        }
    }

    /// Returns the reason in one sentence, for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::NotRetryable => "Another attempt would fail in the same way.".to_owned(),
            Self::Irrevocable => {
                "A part of the answer that cannot be taken back was already delivered.".to_owned()
            }
            Self::AttemptsUsedUp => "All allowed attempts were made.".to_owned(),
            Self::DeadlineTooClose { needed } => {
                format!(
                    "Another attempt would need {}, more than is left before the deadline.",
                    rounded(*needed)
                )
            }
            Self::BudgetEmpty => {
                "The retry budget is empty, so that retries do not drown what fails.".to_owned()
            }
            Self::NoTarget {
                retry_in: Some(wait),
            } => {
                format!(
                    "No target is available before the deadline; try again in {}.",
                    rounded(*wait)
                )
            }
            Self::NoTarget { retry_in: None } => {
                "There is no other target that could help.".to_owned()
            }
            Self::TokensUsedUp => "The attempts have cost as many tokens as is allowed.".to_owned(),
            Self::Disabled => "Retries are switched off.".to_owned(),
        }
    }
}

/// Whole seconds from ten seconds on, else milliseconds; upwards, because too early is wrong and
/// too late is not.
fn rounded(duration: Duration) -> String {
    let step = if duration >= Duration::from_secs(10) {
        1000
    } else {
        1
    };
    let millis =
        u64::try_from(duration.as_micros().div_ceil(1000 * step) * step).unwrap_or(u64::MAX);
    format_duration(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_one_sentence_and_names_its_time() {
        let wait = Duration::from_micros(12_300_400);
        for (reason, holds) in [
            (StopReason::NotRetryable, "same way"),
            (StopReason::Irrevocable, "taken back"),
            (StopReason::AttemptsUsedUp, "attempts"),
            (
                StopReason::DeadlineTooClose {
                    needed: Duration::from_micros(1_500_100),
                },
                "1501ms",
            ),
            (StopReason::BudgetEmpty, "budget"),
            (
                StopReason::NoTarget {
                    retry_in: Some(wait),
                },
                "13s",
            ),
            (StopReason::NoTarget { retry_in: None }, "no other target"),
            (StopReason::TokensUsedUp, "tokens"),
            (StopReason::Disabled, "switched off"),
        ] {
            let sentence = reason.sentence();
            assert!(
                sentence.contains(holds) && sentence.ends_with('.'),
                "{sentence}"
            );
            assert_eq!(sentence.matches(". ").count(), 0, "{sentence}");
        }
    }
}
