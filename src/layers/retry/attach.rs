//! First step of a new owner: it reads the response that the old one had requested, if it is still
//! available.
//!
//! Nothing new is requested, so that neither the allowance nor the budget pays for it, and it is
//! tried once. It starts with the part of the completion that followers hold, so that the stream
//! continues for them without a rewind.

use std::time::Duration;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        failure::{Failure, FailureClass, Wait, WaitSource},
        fold::StreamStep,
        invocation::RecoveryStrategy,
        upstream::UpstreamHandle,
    },
    layers::{
        assembler::{DeltaAssembler, DeltaEnds},
        invocation::PreviousRun,
    },
};

impl<S> RetryLoop<S> {
    /// Takes over what an earlier owner of the call did, and returns what follows it: the first
    /// attempt, if it is a new one.
    pub(super) fn begin_answer(&mut self, before: PreviousRun) -> AfterFailure {
        let orphaned = before
            .attempts
            .into_iter()
            .next_back()
            .and_then(|record| record.failure);
        let mode = self.scope.invocation.overrides.rewind_mode;
        self.read.assembler = DeltaAssembler::after(before.blocks, before.last_block)
            .ending_at(DeltaEnds::of(mode, &self.request.call.stop));
        match self.take_up(orphaned, before.upstream) {
            None | Some(AfterFailure::Complete(_)) => AfterFailure::Again(Vec::new()),
            Some(next) => next,
        }
    }

    /// Returns the state that an earlier owner left: how its last attempt failed, and the response
    /// that may be read. `None` for a new invocation.
    fn take_up(
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
        let mut steps = vec![resumed];
        steps.extend(self.abandon(lost));
        self.verdict.last.clone_from(&lost.target);
        self.request.hint.clone_from(&lost.target);
        self.verdict.after = Some(lost.class);
        AfterFailure::Again(steps)
    }

    /// Reports that the invocation continues after a crash, which is not a retry: at once, and
    /// without using up the allowance.
    fn report_resumption(
        &self,
        lost: &Failure,
        strategy: RecoveryStrategy,
        words: &'static str,
    ) -> StreamStep {
        let wait = Wait {
            duration: Duration::ZERO,
            source: WaitSource::Backoff,
        };
        self.report_recovery(lost, strategy, wait, None, Some(words))
    }

    /// Returns whether the response's target is still one of the route's, and supports background
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
        let number = self.scope.next_number() - 1;
        let class = failure.class;
        let words = "the answer that was being made is read on";
        let resumed = self.report_resumption(&failure, RecoveryStrategy::Continue, words);
        let mut steps = Vec::from_iter((number > 0).then_some(resumed));
        // It is the same response, so it starts with the part that is held of it.
        steps.extend(self.read.assembler.abandon(number, class, true));
        self.verdict.last = Some(handle.target.clone());
        self.verdict.after = Some(class);
        self.verdict.upstream = Some(failure);
        self.request.attach = Some(handle);
        AfterFailure::Again(steps)
    }
}
