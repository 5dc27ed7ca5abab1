//! What follows a failed execution: one step of the ladder for tools, taken with the planner's waits, budget and deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{super::RetryLoop, AfterExecution, LadderStep, ToolCourse, chunks::ChunkedCall};
use crate::{
    domain::{
        clock,
        failure::{Failure, Wait, WaitSource},
        invocation::{AttemptCause, RecoveryStrategy},
    },
    layers::tools::ToolOffer,
    policy::{
        latency::GUESSED_P50,
        retry::{Availability, BackoffKind, Cost, HARD_CAP_ATTEMPTS, RecoveryOptions, StopReason},
        tool_recovery::{
            ListFacts, ToolSituation, ToolStep,
            alternatives::{AlternativeTool, Equivalence, RankedTool},
            arguments::Arguments,
            decide, is_left,
            learning::is_refusal,
        },
    },
};

/// How long a list that is fetched because of a failure is waited for.
const REFETCH_WITHIN: Duration = Duration::from_secs(5);

impl<S> RetryLoop<S> {
    /// Takes the next step after a failure.
    pub(super) async fn take_step(&mut self, course: &mut ToolCourse, failure: Failure) -> AfterExecution {
        if failure.class.is_local_refusal() {
            if !is_left(&failure) || !matches!(self.next_step(course, &failure), ToolStep::Alternative { .. }) {
                return self.again_with(course, failure, RecoveryOptions::again(BackoffKind::Backoff), false);
            }
        } else {
            course.learn_failure(&self.scope, &failure);
            course.list_is_fresh = false;
        }
        loop {
            let step = self.next_step(course, &failure);
            match step {
                ToolStep::RefetchList { .. } => self.refetch(course).await,
                ToolStep::Retry { pace, reason, .. } => {
                    course.tried.retries += 1;
                    course.note(&reason);
                    course.cause = AttemptCause::Retry(failure.class);
                    return self.again_with(course, failure, RecoveryOptions::again(pace), false);
                }
                ToolStep::Adapt { adapted, reason } => {
                    course.tried.adaptations += 1;
                    course.note(&reason);
                    course.adapt(adapted);
                    course.cause = AttemptCause::Adapt(failure.class);
                    self.report_change(&failure, &reason);
                    return self.again_with(course, failure, RecoveryOptions::again(BackoffKind::AtOnce), true);
                }
                ToolStep::Alternative { tool, reason } => {
                    let Some(offer) = course.plan.offer(&tool.target).cloned() else {
                        return self.ended(course, failure, ToolStep::Fail { reason, finding: None });
                    };
                    course.tried.alternatives += 1;
                    course.note(&reason);
                    course.replace(&failure, offer, tool);
                    course.cause = AttemptCause::Fallback(failure.class);
                    return self.again_with(course, failure, RecoveryOptions::elsewhere(), false);
                }
                ToolStep::Chunk { plan, pace, reason } => {
                    let now = Instant::now();
                    self.reserved = self.targets.reserve(&course.offer.target.id, Cost::Transient, now);
                    if self.reserved.is_none() {
                        return AfterExecution::Planned(self.stopped(failure, &StopReason::BudgetEmpty));
                    }
                    course.tried.chunked = true;
                    course.note(&reason);
                    course.cause = AttemptCause::Chunk(failure.class);
                    self.report_change(&failure, &reason);
                    self.take_note_of(&failure);
                    let wait = self.wait_before_chunks(&failure, pace);
                    let display = format!("Splitting {}: {reason}", self.scope.invocation.operation);
                    let announced =
                        self.emit_recovery(&failure, RecoveryStrategy::Chunk, wait, Some(reason), display, None);
                    self.wait = Some(wait);
                    return AfterExecution::Chunks(Box::new(ChunkedCall::new(plan)), vec![announced]);
                }
                end @ (ToolStep::Offer { .. }
                | ToolStep::Explain { .. }
                | ToolStep::OutcomeUnknown { .. }
                | ToolStep::Fail { .. }) => return self.ended(course, failure, end),
            }
        }
    }

    /// Has the planner wait, pay and call the tool that the course names.
    fn again_with(
        &mut self,
        course: &ToolCourse,
        failure: Failure,
        options: RecoveryOptions,
        adapts: bool,
    ) -> AfterExecution {
        self.step = Some(LadderStep { target: course.offer.target.id.clone(), options, adapts });
        AfterExecution::Planned(self.decide(failure))
    }

    fn wait_before_chunks(&self, failure: &Failure, pace: Option<BackoffKind>) -> Wait {
        let stated = failure.retry_after.filter(|_| pace.is_some());
        let left = self.scope.invocation.deadline.saturating_duration_since(Instant::now()) / 2;
        stated
            .filter(|wait| wait.duration < left)
            .unwrap_or(Wait { duration: Duration::ZERO, source: WaitSource::Backoff })
    }

    /// The step that the policy decides upon.
    fn next_step(&self, course: &ToolCourse, failure: &Failure) -> ToolStep {
        let now = Instant::now();
        let scope = &self.scope;
        let others = course.plan.catalogue.all();
        let written = course.written();
        let candidates: Vec<AlternativeTool<'_>> =
            others.iter().map(|offer| self.candidate(course, offer, &written, now)).collect();
        let made = scope.counted_attempts().saturating_sub(scope.unsent_attempts());
        let allowed = if scope.plan.retry.enabled { scope.plan.retry.max_retries + 1 } else { 1 };
        let left = scope.invocation.deadline.saturating_duration_since(now);
        let state = self.targets.state(&course.offer.target.id);
        let usual = state.and_then(|state| state.latency().p50(now)).unwrap_or(GUESSED_P50);
        let current = course.plan.catalogue.offer(&course.offer.target.provider, &course.offer.spec.name, None);
        let learnt = course.plan.knowledge.learnt();
        decide(&ToolSituation {
            failure,
            target: &course.offer.target.id,
            tool: &course.offer.spec.name,
            goal: &course.call.goal,
            operation: &scope.invocation.operation,
            arguments: &course.arguments,
            effects: &course.offer.effects,
            list: ListFacts {
                old: Some(&course.listed),
                current: current.as_ref().map(|offer| &*offer.spec),
                is_fresh: course.list_is_fresh,
            },
            tried: &course.tried,
            policy: &course.offer.recovery,
            chunk_rules: &course.offer.chunk_rules,
            attempts_left: allowed.min(HARD_CAP_ATTEMPTS).saturating_sub(made),
            time_left: Some(left),
            usual_duration: usual.min(left / 2),
            candidates: &candidates,
            learning: learnt.enabled.then(|| (&learnt.tools, clock::wall_now())),
        })
    }

    /// A tool as the policy sees it beside the one that failed.
    fn candidate<'a>(
        &self,
        course: &ToolCourse,
        offer: &'a ToolOffer,
        written: &'a Arguments,
        now: Instant,
    ) -> AlternativeTool<'a> {
        let target = &offer.target.id;
        let declared = &course.plan.offers[..course.plan.declared.min(course.plan.offers.len())];
        let healthy = self
            .targets
            .state(target)
            .is_none_or(|state| state.is_healthy() && matches!(state.availability(now, false), Availability::Now));
        // Releases on trial come before the tool that was named.
        let mut before = declared.iter().take_while(|it| it.target.id != *target);
        let is_stable_release =
            course.plan.named.as_ref() == Some(target) && before.any(|it| it.target.id == course.offer.target.id);
        AlternativeTool {
            target: target.clone(),
            spec: &offer.spec,
            arguments: (course.plan.named.as_ref() == Some(target)).then_some(written),
            equivalence: if is_stable_release {
                Some(Equivalence::StableRelease)
            } else {
                declared.iter().position(|it| it.target.id == *target).map(Equivalence::Group)
            },
            same_capability: false,
            effects: offer.effects.clone(),
            healthy,
            tried: self.scope.attempts().iter().any(|record| record.target.as_ref() == Some(target) && record.sent),
        }
    }

    /// Fetches the list of the tool's server anew; the call goes on with what is listed now.
    async fn refetch(&mut self, course: &mut ToolCourse) {
        let server = &course.offer.target.provider;
        let left = self.scope.invocation.deadline.saturating_duration_since(Instant::now()) / 2;
        let fetched = timeout(REFETCH_WITHIN.min(left), course.plan.catalogue.refetch(server)).await;
        if !matches!(fetched, Ok(Ok(()))) {
            tracing::debug!(%server, invocation = %self.scope.invocation.id, "a list of tools could not be fetched anew");
        }
        course.list_is_fresh = true;
    }

    /// Remembers a failure as the planner does where it decides itself.
    fn take_note_of(&mut self, failure: &Failure) {
        self.last.clone_from(&failure.target);
        self.after = Some(failure.class);
        self.last_upstream_failure = Some(failure.clone());
    }
}

impl ToolCourse {
    /// Takes note of a step, in the words of the policy.
    fn note(&mut self, reason: &str) {
        self.reasons.push(reason.to_owned());
        self.tried.words.push(reason.to_owned());
    }

    /// Goes on with another tool.
    fn replace(&mut self, failure: &Failure, offer: ToolOffer, tool: RankedTool) {
        if is_refusal(failure.class) && offer.spec.name != self.offer.spec.name {
            self.mistaken.get_or_insert_with(|| self.offer.target.id.clone());
        }
        self.offer = offer;
        self.listed = std::sync::Arc::clone(&self.offer.spec);
        self.changed.clear();
        self.adaptation = None;
        if self.plan.named.as_ref() == Some(&self.offer.target.id) {
            self.arguments = self.written();
        }
        if let Some(adapted) = tool.adapted {
            self.adapt(adapted);
        }
    }
}
