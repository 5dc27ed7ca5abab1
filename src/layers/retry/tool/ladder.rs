//! What follows a failed execution: one step of the ladder for tools, taken with the planner's
//! waits, budget and deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{super::RetryLoop, AfterExecution, LadderStep, ToolCallState, chunks::ChunkedCall};
use crate::{
    domain::{
        clock,
        failure::{Failure, FailureClass, Wait, WaitSource},
        invocation::{AttemptCause, RecoveryStrategy},
    },
    layers::{
        targets::{KeyHistory, PlaceInLine},
        tools::ToolOffer,
    },
    policy::{
        latency::GUESSED_P50,
        retry::{Availability, BackoffKind, Cost, HARD_CAP_ATTEMPTS, RecoveryOptions, StopReason},
        tool_recovery::{
            ListFacts, ToolSituation, ToolStep, ToolTrials,
            alternatives::{AlternativeTool, Equivalence, RankedTool},
            arguments::Arguments,
            chunk::ChunkPlan,
            decide, is_left,
            learning::is_refusal,
        },
    },
};

/// Time that a list that is fetched because of a failure is waited for.
const REFETCH_WITHIN: Duration = Duration::from_secs(5);

/// The steps that a tool call took until now.
pub(super) struct StepsTaken {
    /// Reason why the next attempt is made.
    pub(super) cause: AttemptCause,
    pub(super) tried: ToolTrials,
    /// Reasons why the call was changed, split or given to another tool, in plain words, one a
    /// step.
    reasons: Vec<String>,
}

impl<S> RetryLoop<S> {
    /// Takes the next step after a failure.
    pub(super) async fn take_step(
        &mut self,
        tool_call: &mut ToolCallState,
        failure: Failure,
    ) -> AfterExecution {
        if failure.class.is_local_refusal() {
            if !is_left(&failure)
                || !matches!(
                    self.next_step(tool_call, &failure),
                    ToolStep::Alternative { .. }
                )
            {
                let step = LadderStep::again(tool_call, BackoffKind::Backoff);
                return self.take(step, failure);
            }
        } else {
            tool_call.learn_failure(&failure);
            tool_call.list_is_fresh = false;
        }
        loop {
            let step = self.next_step(tool_call, &failure);
            match step {
                ToolStep::RefetchList { .. } => self.refetch(tool_call).await,
                ToolStep::Retry {
                    backoff_kind,
                    reason,
                    ..
                } => {
                    let cause = AttemptCause::Retry(failure.class);
                    let next = self.take(LadderStep::again(tool_call, backoff_kind), failure);
                    if next.goes_on() {
                        tool_call.steps.tried.retries += 1;
                        tool_call.steps.goes_on(cause, &reason);
                    }
                    return next;
                }
                ToolStep::Adapt { adapted, reason } => {
                    let cause = AttemptCause::Adapt(failure.class);
                    let step = LadderStep {
                        adapts: true,
                        ..LadderStep::again(tool_call, BackoffKind::AtOnce)
                    };
                    self.record_change(&failure, &reason);
                    let next = self.take(step, failure);
                    if next.goes_on() {
                        tool_call.steps.tried.adaptations += 1;
                        tool_call.adapt(adapted);
                        tool_call.steps.goes_on(cause, &reason);
                    }
                    return next;
                }
                ToolStep::Alternative { tool, reason } => {
                    let Some(offer) = tool_call.plan.offer(&tool.target).cloned() else {
                        return self.ended(
                            tool_call,
                            failure,
                            ToolStep::Fail {
                                reason,
                                finding: None,
                            },
                        );
                    };
                    let class = failure.class;
                    let step = LadderStep {
                        target: offer.target.id.clone(),
                        options: RecoveryOptions::elsewhere(),
                        adapts: false,
                    };
                    let next = self.take(step, failure);
                    if next.goes_on() {
                        tool_call.steps.tried.alternatives += 1;
                        tool_call.replace(class, offer, tool);
                        tool_call
                            .steps
                            .goes_on(AttemptCause::Fallback(class), &reason);
                    }
                    return next;
                }
                ToolStep::Chunk {
                    plan,
                    backoff_kind,
                    reason,
                } => {
                    return self.split(tool_call, failure, plan, backoff_kind, &reason);
                }
                end @ (ToolStep::Offer { .. }
                | ToolStep::Explain { .. }
                | ToolStep::OutcomeUnknown { .. }
                | ToolStep::Fail { .. }) => return self.ended(tool_call, failure, end),
            }
        }
    }

    /// Calls the tool in parts, if the budget allows.
    fn split(
        &mut self,
        tool_call: &mut ToolCallState,
        failure: Failure,
        plan: ChunkPlan,
        backoff_kind: Option<BackoffKind>,
        reason: &str,
    ) -> AfterExecution {
        self.verdict.reserved = self.targets.reserve(
            &tool_call.called.offer.target.id,
            Cost::Transient,
            Instant::now(),
        );
        if self.verdict.reserved.is_none() {
            return AfterExecution::Planned(self.stopped(failure, &StopReason::BudgetEmpty));
        }
        tool_call.steps.tried.chunked = true;
        let cause = AttemptCause::Chunk(failure.class);
        tool_call.steps.goes_on(cause, reason);
        self.record_change(&failure, reason);
        self.take_note_of(&failure);
        let wait = self.wait_before_chunks(&failure, backoff_kind);
        let announced =
            self.report_recovery(&failure, RecoveryStrategy::Chunk, wait, Some(reason), None);
        self.waits.next = Some(wait);
        AfterExecution::Chunks(Box::new(ChunkedCall::new(plan)), vec![announced])
    }

    /// Has the planner wait and pay for a step, if its limits allow that. Only then is the step
    /// taken.
    fn take(&mut self, step: LadderStep, failure: Failure) -> AfterExecution {
        self.request.step = Some(step);
        AfterExecution::Planned(self.decide(failure))
    }

    fn wait_before_chunks(&self, failure: &Failure, backoff_kind: Option<BackoffKind>) -> Wait {
        let stated = failure.retry_after.filter(|_| backoff_kind.is_some());
        let left = self
            .scope
            .invocation
            .deadline
            .saturating_duration_since(Instant::now())
            / 2;
        stated.filter(|wait| wait.duration < left).unwrap_or(Wait {
            duration: Duration::ZERO,
            source: WaitSource::Backoff,
        })
    }

    /// Returns the step that the policy decides upon.
    fn next_step(&self, tool_call: &ToolCallState, failure: &Failure) -> ToolStep {
        let now = Instant::now();
        let scope = &self.scope;
        let others = tool_call.plan.catalogue.all();
        let written = tool_call.written();
        let candidates: Vec<AlternativeTool<'_>> = others
            .iter()
            .map(|offer| self.candidate(tool_call, offer, &written, now))
            .collect();
        let allowed = if scope.plan.retry.enabled {
            scope.plan.retry.max_retries + 1
        } else {
            1
        };
        let left = scope.invocation.deadline.saturating_duration_since(now);
        let state = self.targets.state(&tool_call.called.offer.target.id);
        let usual = state
            .as_ref()
            .and_then(|state| state.observed.latency().p50(now))
            .unwrap_or(GUESSED_P50);
        let current = tool_call.plan.catalogue.offer(
            &tool_call.called.offer.target.provider,
            &tool_call.called.offer.spec.name,
            None,
        );
        let learnt = tool_call.plan.knowledge.learnt();
        decide(&ToolSituation {
            failure,
            target: &tool_call.called.offer.target.id,
            tool: &tool_call.called.offer.spec.name,
            goal: &tool_call.call.goal,
            learner: &tool_call.learner,
            arguments: &tool_call.called.arguments,
            effects: &tool_call.called.offer.effects,
            list: ListFacts {
                old: Some(&tool_call.called.listed),
                current: current.as_ref().map(|offer| &*offer.spec),
                is_fresh: tool_call.list_is_fresh,
            },
            tried: &tool_call.steps.tried,
            policy: &tool_call.called.offer.recovery,
            chunk_rules: &tool_call.called.offer.chunk_rules,
            failing: state.is_some_and(|state| {
                let is_open = !state.circuit().state().is_closed();
                is_open || !state.is_healthy() || state.observed.health().verdict(now).failing
            }),
            attempts_left: allowed
                .min(HARD_CAP_ATTEMPTS)
                .saturating_sub(scope.sent_attempts()),
            time_left: Some(left),
            usual_duration: usual.min(left / 2),
            candidates: &candidates,
            learning: learnt.enabled.then(|| (&learnt.tools, clock::wall_now())),
        })
    }

    /// Returns a tool as the policy sees it beside the one that failed.
    fn candidate<'a>(
        &self,
        tool_call: &ToolCallState,
        offer: &'a ToolOffer,
        written: &'a Arguments,
        now: Instant,
    ) -> AlternativeTool<'a> {
        let target = &offer.target.id;
        let declared = &tool_call.plan.offers;
        let healthy = self.targets.state(target).is_none_or(|state| {
            let tenant = &self.scope.invocation.tenant;
            state.is_healthy()
                && state.availability(now, tenant, PlaceInLine::Behind, KeyHistory::new(&[]))
                    == Availability::Now
        });
        // Releases on trial come before the tool that was named.
        let mut before = declared.iter().take_while(|it| it.target.id != *target);
        let is_stable_release = tool_call.plan.named.as_ref() == Some(target)
            && before.any(|it| it.target.id == tool_call.called.offer.target.id);
        AlternativeTool {
            target: target.clone(),
            spec: &offer.spec,
            arguments: (tool_call.plan.named.as_ref() == Some(target)).then_some(written),
            equivalence: if is_stable_release {
                Some(Equivalence::StableRelease)
            } else {
                declared
                    .iter()
                    .position(|it| it.target.id == *target)
                    .map(Equivalence::Group)
            },
            same_capability: false,
            effects: offer.effects.clone(),
            healthy,
            tried: self
                .scope
                .attempts()
                .iter()
                .any(|record| record.target.as_ref() == Some(target) && record.sent),
        }
    }

    /// Fetches the list of the tool's server anew; the call continues with what is listed now.
    pub(super) async fn refetch(&mut self, tool_call: &mut ToolCallState) {
        let server = &tool_call.called.offer.target.provider;
        let left = self
            .scope
            .invocation
            .deadline
            .saturating_duration_since(Instant::now())
            / 2;
        let fetched = timeout(
            REFETCH_WITHIN.min(left),
            tool_call.plan.catalogue.refetch(server),
        )
        .await;
        if !matches!(fetched, Ok(Ok(()))) {
            tracing::debug!(%server, invocation = %self.scope.invocation.id, "a list of tools could not be fetched anew");
        }
        tool_call.list_is_fresh = true;
    }

    /// Remembers a failure as the planner does if it decides itself.
    fn take_note_of(&mut self, failure: &Failure) {
        self.verdict.last.clone_from(&failure.target);
        self.verdict.after = Some(failure.class);
        self.verdict.upstream = Some(failure.clone());
    }
}

impl LadderStep {
    /// The same tool once more.
    fn again(tool_call: &ToolCallState, backoff_kind: BackoffKind) -> Self {
        Self {
            target: tool_call.called.offer.target.id.clone(),
            options: RecoveryOptions::again(backoff_kind),
            adapts: false,
        }
    }
}

// === impl StepsTaken ===

impl StepsTaken {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            cause: AttemptCause::Initial,
            tried: ToolTrials::default(),
            reasons: Vec::new(),
        }
    }

    /// Begins with a change that is made before anything failed.
    pub(super) fn begin_with(&mut self, cause: AttemptCause, reason: String) {
        self.cause = cause;
        self.reasons.push(reason);
    }

    /// Takes note of a step that is taken, in the words of the policy.
    pub(super) fn goes_on(&mut self, cause: AttemptCause, reason: &str) {
        self.cause = cause;
        self.reasons.push(reason.to_owned());
        self.tried.words.push(reason.to_owned());
    }

    /// Returns the reason why the call was changed, in sentences.
    pub(super) fn reasoning(&self) -> String {
        let sentence = |reason: &String| format!("{}.", reason.trim_end_matches('.'));
        self.reasons
            .iter()
            .map(sentence)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

// === impl ToolCallState ===

impl ToolCallState {
    /// Continues with another tool.
    fn replace(&mut self, class: FailureClass, offer: ToolOffer, tool: RankedTool) {
        if is_refusal(class) && offer.spec.name != self.called.offer.spec.name {
            self.mistaken
                .get_or_insert_with(|| self.called.offer.target.id.clone());
        }
        self.called.replace(offer);
        self.called.forget_changes();
        if self.plan.named.as_ref() == Some(&self.called.offer.target.id) {
            self.called.arguments = self.written();
        }
        if let Some(adapted) = tool.adapted {
            self.adapt(adapted);
        }
    }
}
