//! Parks an invocation while no target can be called, and reports it: once a wait, however often it
//! checks in between.

use std::time::Duration;

use tokio::time::Instant;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        event::{EventBody, millis, parked_words},
        failure::{Failure, FailureClass, Wait, WaitSource},
        fold::StreamStep,
        ids::TargetId,
        invocation::RecoveryStrategy,
    },
    layers::{BoxFuture, targets::Parked},
    policy::retry::StopReason,
};

/// Number of times one invocation may be refused locally before that ends it: a bound on
/// pathological ping-pong.
const MAX_PARKED_ROUNDS: u32 = 256;

/// Waits that differ by less are one and the same.
const SAME: Duration = Duration::from_millis(250);

/// Time after which a wait that is no longer than the one before it is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(10);

/// The wait that was reported last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReportedWait {
    target: TargetId,
    class: FailureClass,
    in_line: bool,
    source: WaitSource,
    at: Instant,
    until: Instant,
}

// === impl ReportedWait ===

impl ReportedWait {
    /// Returns its duration at that time.
    pub(super) fn duration(&self) -> Duration {
        self.until - self.at
    }

    /// Returns the source of the wait: a gate or a circuit.
    pub(super) fn source(&self) -> WaitSource {
        self.source
    }

    /// Returns whether the report of the one before covers this one too.
    fn is_known_from(&self, before: &Self) -> bool {
        let alike = (&self.target, self.class, self.in_line)
            == (&before.target, before.class, before.in_line);
        let same = self.until <= before.until + SAME;
        // A probe that others wait for as well is looked for again and again.
        let shorter = self.until - self.at <= before.until - before.at + SAME
            && self.at < before.at + REPORT_AGAIN;
        alike && (same || shorter)
    }
}

impl<S> RetryLoop<S> {
    /// Waits until then, or until something changed.
    pub(super) async fn wait_parked(&mut self, until: Instant, changed: BoxFuture<()>) {
        let began = Instant::now();
        let _span = self.scope.trace.parked();
        tokio::select! {
            biased;
            () = changed => {}
            () = tokio::time::sleep_until(until) => {}
        }
        self.waits.parked += began.elapsed();
    }

    pub(super) fn park(
        &mut self,
        failure: Failure,
        until: Instant,
        target: &TargetId,
        strategy: RecoveryStrategy,
    ) -> AfterFailure {
        self.waits.parked_rounds += 1;
        if self.waits.parked_rounds > MAX_PARKED_ROUNDS {
            let retry_in = until.saturating_duration_since(Instant::now());
            return self.stopped(
                failure,
                &StopReason::NoTarget {
                    retry_in: Some(retry_in),
                },
            );
        }
        let parked = match self.targets.park(&self.scope, target, Instant::now()) {
            Some(Parked::Until(changed)) => Some((until, changed, false)),
            Some(Parked::InLine { until, turn }) => Some((until, turn, true)),
            None => None,
        };
        if let Some((give_up, changed, in_line)) = parked {
            let wait = self.parked_for(target, until, in_line);
            let pending_events = if failure.class.is_local_refusal() {
                self.report_parked(wait).into_iter().collect()
            } else {
                // The retry that is announced says for how long it waits.
                let duration = wait.duration();
                let source = wait.source();
                self.waits.reported = Some(wait);
                self.announce(&failure, strategy, Wait { duration, source })
            };
            return AfterFailure::Park {
                pending_events,
                until: give_up,
                changed,
            };
        }
        let retry_in = until.saturating_duration_since(Instant::now());
        self.stopped(
            failure,
            &StopReason::NoTarget {
                retry_in: Some(retry_in),
            },
        )
    }

    /// Returns the wait of this invocation at a target until then, and its reason.
    pub(super) fn parked_for(
        &self,
        target: &TargetId,
        until: Instant,
        in_line: bool,
    ) -> ReportedWait {
        let now = Instant::now();
        let gate = self
            .targets
            .state(target)
            .and_then(|state| state.closed_for());
        let gate = gate.or(in_line.then_some(FailureClass::RateLimited));
        let source = match gate {
            // The gate closed for the wait that the provider stated in this very invocation.
            Some(FailureClass::RateLimited) => self.stated_by(target).unwrap_or(WaitSource::Gate),
            Some(_) => WaitSource::Gate,
            None => WaitSource::Parked,
        };
        let class = gate.unwrap_or(FailureClass::CircuitOpen);
        ReportedWait {
            target: target.clone(),
            class,
            in_line,
            source,
            at: now,
            until: until.max(now),
        }
    }

    /// Returns the source in which the target's last failure in this invocation stated how long its
    /// limit holds.
    fn stated_by(&self, target: &TargetId) -> Option<WaitSource> {
        let failure = self.verdict.upstream.as_ref()?;
        let is_limit =
            failure.class == FailureClass::RateLimited && failure.target.as_ref() == Some(target);
        is_limit.then_some(failure.retry_after?.source)
    }

    /// Returns the source of the last wait.
    pub(super) fn parked_source(&self) -> WaitSource {
        self.waits
            .reported
            .as_ref()
            .map_or(WaitSource::Parked, |reported| reported.source)
    }

    /// Reports a wait, unless followers know of it already.
    pub(super) fn report_parked(&mut self, reported: ReportedWait) -> Option<StreamStep> {
        if self
            .waits
            .reported
            .as_ref()
            .is_some_and(|before| reported.is_known_from(before))
        {
            return None;
        }
        let reported = self.waits.reported.insert(reported);
        let ReportedWait {
            class,
            in_line,
            source,
            ..
        } = *reported;
        let wait = Wait {
            duration: reported.duration(),
            source,
        };
        let wait_ms = millis(wait.duration);
        let parked = EventBody::InvocationParked {
            class,
            wait_ms,
            in_line,
        };
        let target = reported.target.clone();
        let attempt = self.scope.next_number() - 1;
        self.scope.publish(attempt, Some(&target), parked);
        let display = parked_words(target.as_str(), class, wait_ms, in_line);
        Some(StreamStep::Parked {
            attempt,
            target,
            class,
            wait,
            display,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(class: FailureClass, at: Instant, wait_ms: u64) -> ReportedWait {
        ReportedWait {
            target: "a".into(),
            class,
            in_line: false,
            source: WaitSource::Parked,
            at,
            until: at + Duration::from_millis(wait_ms),
        }
    }

    #[test]
    fn a_wait_is_reported_once_and_another_one_anew() {
        let began = Instant::now();
        let later = |ms| began + Duration::from_millis(ms);
        let limit = FailureClass::RateLimited;
        let open = FailureClass::CircuitOpen;
        let first = reported(limit, began, 12_000);
        assert!(
            reported(limit, later(3000), 9000).is_known_from(&first),
            "woken before its time"
        );
        assert!(
            reported(limit, later(12_000), 200).is_known_from(&first),
            "a little longer"
        );
        assert!(
            !reported(open, later(3000), 9000).is_known_from(&first),
            "another reason"
        );
        assert!(
            !reported(limit, later(3000), 60_000).is_known_from(&first),
            "much longer"
        );
        let other = ReportedWait {
            target: "b".into(),
            ..reported(limit, later(3000), 9000)
        };
        assert!(!other.is_known_from(&first), "another target");
        let probing = reported(open, began, 1000);
        assert!(
            reported(open, later(1000), 1000).is_known_from(&probing),
            "the probe of another is still out"
        );
        assert!(
            !reported(open, later(10_000), 1000).is_known_from(&probing),
            "but after a while it is reported again"
        );
    }
}
