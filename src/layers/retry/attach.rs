//! The first step of a new owner: it reads the response that the old one had requested, where it is
//! still available.
//!
//! Nothing new is requested, so that neither the allowance nor the budget pays for it, and it is
//! tried once. It starts with what followers hold of the answer, so that the stream continues for
//! them without a rewind.

use std::time::Duration;

use super::{RetryLoop, decide::AfterFailure};
use crate::domain::{
    failure::{Failure, FailureClass, Wait, WaitSource},
    fold::StreamStep,
    invocation::RecoveryStrategy,
    upstream::UpstreamHandle,
};

impl<S> RetryLoop<S> {
    /// The state that an earlier owner left: how its last attempt failed, and the response that may
    /// be read. `None` for a new invocation.
    pub(super) fn take_up(
        &mut self,
        orphaned: Option<Failure>,
        upstream: Option<UpstreamHandle>,
    ) -> Option<AfterFailure> {
        match upstream.filter(|handle| self.can_attach(handle)) {
            Some(handle) => Some(self.read_on(orphaned, handle)),
            None if self
                .scope
                .attempts()
                .last()
                .is_some_and(|record| record.lost_with_replica) =>
            {
                orphaned.map(|failure| self.begin_anew(&failure))
            }
            None => orphaned.map(|failure| self.decide(failure)),
        }
    }

    /// Makes the attempt again that was lost with its replica: at once and at the same target,
    /// which did nothing wrong.
    fn begin_anew(&mut self, lost: &Failure) -> AfterFailure {
        let resumed =
            self.report_resumption(lost, RecoveryStrategy::Retry, "the request is sent again");
        let mut steps = Vec::from_iter(resumed);
        steps.extend(self.abandon(lost));
        self.last.clone_from(&lost.target);
        self.hint.clone_from(&lost.target);
        self.after = Some(lost.class);
        AfterFailure::Again(steps)
    }

    /// Reports that the invocation continues after a crash, which is no retry: at once, and without
    /// using up the allowance.
    fn report_resumption(
        &self,
        lost: &Failure,
        strategy: RecoveryStrategy,
        words: &'static str,
    ) -> Option<StreamStep> {
        let wait = Wait {
            duration: Duration::ZERO,
            source: WaitSource::Backoff,
        };
        self.report_recovery(lost, strategy, wait, None, Some(words))
    }

    /// Whether the response's target is still one of the route's, and supports background
    /// responses.
    fn can_attach(&self, handle: &UpstreamHandle) -> bool {
        let mut targets = self.scope.plan.targets.iter();
        targets.any(|target| target.id == handle.target && target.capabilities.background)
    }

    fn read_on(&mut self, orphaned: Option<Failure>, handle: UpstreamHandle) -> AfterFailure {
        // The very first steps may have died with the owner that made them.
        let mut failure = orphaned.unwrap_or_else(|| {
            let mut gone = Failure::local(
                FailureClass::StreamInterrupted,
                "the replica that sent the request is gone",
            );
            (gone.retryable, gone.fallback_helps, gone.never_sent) = (true, true, false);
            gone
        });
        failure.target.get_or_insert_with(|| handle.target.clone());
        let (number, class) = (self.scope.next_number() - 1, failure.class);
        let words = "the answer that was being made is read on";
        let resumed = self.report_resumption(&failure, RecoveryStrategy::Continue, words);
        let mut steps = Vec::from_iter(resumed.filter(|_| number > 0));
        // It is the same response, so it begins with what is held of it.
        steps.extend(self.assembler.abandon(number, class, true));
        self.last = Some(handle.target.clone());
        self.after = Some(class);
        self.last_upstream_failure = Some(failure);
        self.attach = Some(handle);
        AfterFailure::Again(steps)
    }
}
