//! What a new owner does first: it reads on the answer that the old one had asked for, where that is to be had.
//!
//! Nothing is asked for anew, so that neither the allowance nor the budget pays for it, and it is tried once. What
//! followers hold of the answer is what it begins with, so that it goes on for them without a rewind.

use std::time::Duration;

use super::{Course, decide::Next};
use crate::domain::{
    event::EventBody,
    failure::{Failure, FailureClass, Wait, WaitSource},
    fold::Progress,
    invocation::RecoveryStrategy,
    upstream::UpstreamHandle,
};

impl<S> Course<S> {
    /// What follows from what an earlier owner left: how its last attempt failed, and the answer that may be read on.
    /// `None` for a new invocation.
    pub(super) fn take_up(&mut self, orphaned: Option<Failure>, upstream: Option<UpstreamHandle>) -> Option<Next> {
        match upstream.filter(|handle| self.can_attach(handle)) {
            Some(handle) => Some(self.read_on(orphaned, handle)),
            None => orphaned.map(|failure| self.decide(failure)),
        }
    }

    /// Whether the answer's target is still one of the route's, and makes answers in the background.
    fn can_attach(&self, handle: &UpstreamHandle) -> bool {
        let mut targets = self.scope.plan.targets.iter();
        targets.any(|target| target.id == handle.target && target.capabilities.background)
    }

    fn read_on(&mut self, orphaned: Option<Failure>, handle: UpstreamHandle) -> Next {
        // The very first steps may have died with the owner that made them.
        let failure = orphaned.unwrap_or_else(|| {
            let mut gone = Failure::local(FailureClass::StreamInterrupted, "the replica that asked went away");
            (gone.retryable, gone.fallback_helps, gone.never_sent) = (true, true, false);
            gone.target = Some(handle.target.clone());
            gone
        });
        let class = failure.class;
        let (strategy, wait) =
            (RecoveryStrategy::Continue, Wait { duration: Duration::ZERO, source: WaitSource::Backoff });
        let (number, (retry, max_retries)) = (self.scope.next_number() - 1, self.count());
        let body = EventBody::RecoveryAttempted {
            error: class.phrase().to_owned(),
            class,
            retry,
            max_retries,
            strategy,
            wait,
            adaptation: None,
        };
        self.scope.publish(number, Some(&handle.target), body);
        let mut steps = Vec::new();
        if number > 0 {
            let display = format!(
                "Going on with {}: {}; the answer that was being made is read on",
                self.scope.invocation.operation,
                class.phrase()
            );
            let budget_left = self.targets.budget_share(&handle.target, tokio::time::Instant::now());
            steps.push(Progress::Recovery {
                attempt: number,
                class,
                strategy,
                wait,
                display,
                budget_left,
                adaptation: None,
            });
        }
        // The same answer in whatever shape: it cannot but begin with what is held of it.
        steps.extend(self.delivery.abandon(number, class, true));
        self.last = Some(handle.target.clone());
        self.after = Some(class);
        self.real = Some(failure);
        self.attach = Some(handle);
        Next::Again(steps)
    }
}
