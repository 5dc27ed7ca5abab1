//! `ClassifyFailure`: classifies a failure and plans its recovery, without carrying it out.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    auth::Identity,
    convert::{
        enums::{IntoProto as _, wait_fields},
        facts::FailureFacts,
        time::millis,
    },
    v1,
};
use crate::{
    call_error::CallError,
    domain::{
        event::recovery_words,
        failure::{Failure, Surface},
        ids::TargetId,
        invocation::RecoveryStrategy,
        message::{Message, ModelCall, Role},
        target::Target,
    },
    engine::Engine,
    layers::invocation::Plan,
    policy::{
        inject,
        retry::{Candidate, Decision, Situation, plan_without_spread},
    },
};

/// Judges a failure and plans its recovery on a healthy route, which the caller may use.
pub(super) fn classify(
    engine: &Engine,
    identity: &Identity,
    facts: &FailureFacts,
) -> Result<v1::ClassifyFailureResponse, CallError> {
    let route = engine.plan(facts.route.as_ref(), &facts.operation)?;
    identity.may_use(&route.route)?;
    let failed = route.targets.first().map(|target| target.id.clone());
    let mut failure = engine.failure(&facts.error, failed.clone());
    if facts.error.surface == Surface::Tool {
        failure = failure.of_tool(&facts.error.provider);
    }
    route.texts.apply(&mut failure, None);
    let (retry_after_ms, source) = wait_fields(failure.retry_after, false, Some(failure.class));
    Ok(v1::ClassifyFailureResponse {
        failure_class: failure.class.into_proto().into(),
        detail: failure
            .detail
            .map_or(0, |detail| detail.into_proto().into()),
        retryable_same_target: failure.retryable,
        fallback_helps: failure.fallback_helps,
        retry_after_ms: failure.retry_after.map(|_| retry_after_ms),
        retry_after_source: if failure.retry_after.is_some() {
            source
        } else {
            0
        },
        code: failure.code().into_proto().into(),
        message: failure.message.clone(),
        user_message: failure.user_message.clone(),
        recovery_hint: failure.recovery_hint.clone(),
        rule: failure.rule.clone(),
        fact: failure.fact.clone(),
        planned_recovery: Some(planned(&route, facts, &failure, failed.as_ref())),
    })
}

fn planned(
    route: &Plan,
    facts: &FailureFacts,
    failure: &Failure,
    failed: Option<&TargetId>,
) -> v1::PlannedRecovery {
    let now = Instant::now();
    let candidate = |target: &Arc<Target>| {
        let attempts = if failed == Some(&target.id) {
            facts.attempt
        } else {
            0
        };
        Candidate {
            attempts,
            ..Candidate::new(target.id.clone())
        }
    };
    let candidates: Vec<Candidate> = route.targets.iter().map(candidate).collect();
    let mut situation = Situation::new(now, now + Duration::from_mins(10), failure, &candidates);
    situation.failed_target = failed;
    situation.retries_made = facts.attempt.saturating_sub(1);
    let max_retries = route.retry.max_retries;
    match plan_without_spread(&route.retry, &situation) {
        Decision::Again {
            wait,
            strategy,
            target_hint,
            ..
        } => {
            let elsewhere = target_hint.is_some() && target_hint.as_ref() != failed;
            let (wait_ms, wait_source) = wait_fields(Some(wait), elsewhere, Some(failure.class));
            let count = (facts.attempt, max_retries);
            let display_text = recovery_words(
                facts.operation.as_str(),
                failure.class.phrase(),
                count,
                None,
                None,
            );
            v1::PlannedRecovery {
                strategy: strategy.into_proto().into(),
                wait_ms,
                wait_source,
                display_text,
                injected_note: note(route, facts, failure),
                reason: match (strategy, target_hint) {
                    (RecoveryStrategy::Fallback, Some(target)) => {
                        format!("`{target}` is called in its place.")
                    }
                    _ => "The same target is called again.".to_owned(),
                },
            }
        }
        Decision::Park { until, .. } => v1::PlannedRecovery {
            strategy: v1::RecoveryStrategy::Retry.into(),
            wait_ms: millis(until.saturating_duration_since(now)),
            wait_source: v1::WaitSource::Circuit.into(),
            reason: "It waits until a target is available.".to_owned(),
            ..v1::PlannedRecovery::default()
        },
        Decision::Stop(reason) => v1::PlannedRecovery {
            strategy: v1::RecoveryStrategy::None.into(),
            reason: reason.sentence(),
            ..v1::PlannedRecovery::default()
        },
    }
}

/// Returns the note that a model would get with a conversation of one user turn.
fn note(route: &Plan, facts: &FailureFacts, failure: &Failure) -> String {
    let call = ModelCall {
        messages: vec![Message::text(Role::User, "…")],
        ..ModelCall::default()
    };
    let Some(target) = route.targets.first() else {
        return String::new();
    };
    let placement = inject::inject(
        &route.changes.injection,
        route.changes.injection_mode,
        &facts.operation,
        &call,
        target,
        &[failure],
    );
    match placement {
        inject::Placement::Injected { note, .. } => note,
        inject::Placement::NotNeeded | inject::Placement::Skipped { .. } => String::new(),
    }
}
