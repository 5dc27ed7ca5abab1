//! What a tool call learns from its outcome, and what it begins with because of others'.

use std::sync::Arc;

use super::ToolCallState;
use crate::{
    domain::{
        clock,
        failure::{Failure, FailureClass},
        ids::{Operation, TargetId},
        invocation::AttemptCause,
    },
    layers::{
        invocation::InvocationScope,
        tools::{Lesson, ToolOffer, ToolPlan},
    },
    policy::tool_recovery::{
        adapt::{self, ArgumentFit, Comparison},
        alternatives::{self, AlternativeTool, Equivalence, FailedTool},
        arguments::quoted,
        learning::is_refusal,
        similarity,
    },
};

impl ToolCallState {
    /// Begins with what was learnt: the tool that is meant, and how its arguments are adapted.
    pub(super) fn recall(&mut self, operation: &Operation) {
        let now = clock::wall_now();
        let plan = Arc::clone(&self.plan);
        let learnt = plan.knowledge.learnt();
        if !learnt.enabled {
            return;
        }
        let candidates: Vec<_> = plan
            .offers
            .iter()
            .enumerate()
            .skip(1)
            .map(|it| candidate(it, &plan))
            .collect();
        let chosen = FailedTool {
            target: &self.offer.target.id,
            name: &self.offer.spec.name,
            spec: Some(&self.offer.spec),
            effects: &self.offer.effects,
            arguments: &self.arguments,
            operation,
        };
        let preferred = alternatives::preferred(chosen, &candidates, &learnt.tools, now);
        let effects = &self.offer.effects;
        let may_adapt = !effects.destructive || self.offer.recovery.adapt_destructive;
        let (schema, key) = (
            &self.offer.spec.input_schema,
            effects.key_argument.as_deref(),
        );
        let adapted = learnt
            .adaptations
            .recall(None, schema, &self.arguments, key)
            .filter(|_| may_adapt);
        drop(learnt);
        if let Some((tool, ranked)) =
            preferred.and_then(|tool| Some((plan.offer(&tool.target).cloned()?, tool)))
        {
            let why = match &ranked.grounds {
                Some(alternatives::Grounds::Learnt(reason)) => reason.clone(),
                Some(alternatives::Grounds::Release | alternatives::Grounds::Group) | None => {
                    String::new()
                }
            };
            let (called, named) = (quoted(&tool.spec.name), quoted(&self.offer.spec.name));
            self.reasons
                .push(format!("{called} was called in place of {named}: {why}"));
            self.mistaken = Some(self.offer.target.id.clone());
            self.preferred = true;
            self.listed = Arc::clone(&tool.spec);
            self.offer = tool;
            self.cause = AttemptCause::Fallback(FailureClass::NotFound);
            if let Some(adapted) = ranked.adapted {
                self.adapt(adapted);
            }
        } else if let Some(adapted) = adapted {
            self.reasons.push(format!(
                "The arguments were adapted as before: {}",
                adapted.words
            ));
            self.cause = AttemptCause::Adapt(FailureClass::InvalidRequest);
            self.adapt(adapted);
        }
    }

    /// Begins with the release that serves the call in place of the one that was named, with
    /// arguments that fit it. A call that does not fit it is served by the release that was named,
    /// so that its failure is none of the other one. Returns whether what was learnt may change the
    /// call still.
    pub(super) fn begin_with_release(&mut self) -> bool {
        let named = self
            .plan
            .named
            .as_ref()
            .and_then(|named| self.plan.offer(named))
            .cloned();
        let Some(named) = named else { return true };
        let effects = &self.offer.effects;
        let fit = adapt::fit(Comparison {
            old: Some(&named.spec.input_schema),
            new: &self.offer.spec.input_schema,
            arguments: &self.arguments,
            error: "",
            all_listed: false,
            filled: effects.key_argument.as_deref(),
        });
        match fit {
            ArgumentFit::Fits { .. } => true,
            ArgumentFit::Adapted(adapted)
                if !effects.destructive || self.offer.recovery.adapt_destructive =>
            {
                self.reasons.push(format!(
                    "The arguments were adapted to a new release of the tool: {}",
                    adapted.words
                ));
                self.cause = AttemptCause::Adapt(FailureClass::InvalidRequest);
                self.listed = named.spec;
                self.adapt(adapted);
                false
            }
            _ => {
                self.listed = Arc::clone(&named.spec);
                self.offer = named;
                true
            }
        }
    }

    /// Takes note of a call that did what was wanted.
    pub(super) fn learn_success(&self, scope: &InvocationScope) {
        let (operation, right, at) = (
            scope.invocation.operation.clone(),
            self.offer.target.id.to_string(),
            clock::wall_now(),
        );
        let mut learnt = self.plan.knowledge.learnt();
        learnt.learn(Lesson::Outcome {
            operation: operation.clone(),
            tool: right.clone(),
            succeeded: true,
            at,
        });
        let mistaken = self
            .mistaken
            .clone()
            .filter(|mistaken| mistaken.as_str() != right);
        if let Some(chosen) = mistaken.or_else(|| self.corrected_by_caller()) {
            let chosen = chosen.to_string();
            learnt.learn(Lesson::Corrected {
                operation,
                chosen,
                right,
                at,
            });
        }
        if let Some(adaptation) = &self.adaptation {
            let (old, new) = (&adaptation.old.input_schema, &adaptation.new.input_schema);
            learnt
                .adaptations
                .remember(Some(old), new, &adaptation.changes);
        }
    }

    /// Takes note of a failure of the tool that was called.
    pub(super) fn learn_failure(&self, scope: &InvocationScope, failure: &Failure) {
        let (operation, tool, at) = (
            scope.invocation.operation.clone(),
            self.offer.target.id.to_string(),
            clock::wall_now(),
        );
        let mut learnt = self.plan.knowledge.learnt();
        learnt.learn(Lesson::Outcome {
            operation: operation.clone(),
            tool: tool.clone(),
            succeeded: false,
            at,
        });
        let refused = is_refusal(failure.class);
        if let Some(chosen) = self.mistaken.clone().filter(|_| self.preferred && refused) {
            learnt.learn(Lesson::Refuted {
                operation,
                chosen: chosen.to_string(),
                right: tool,
            });
        }
        if refused && let Some(adaptation) = &self.adaptation {
            learnt.adaptations.forget(&adaptation.new.input_schema);
        }
    }

    /// The tool about the same thing that the caller called just before for the same goal, and that
    /// did not take the call.
    fn corrected_by_caller(&self) -> Option<TargetId> {
        let before = self.plan.past.last().filter(|before| before.refused)?;
        let (_, tool) = before.target.as_str().split_once('/')?;
        let own = &self.offer.spec.name;
        (tool != own && similarity::same_subject(tool, own)).then(|| before.target.clone())
    }
}

/// A tool of the plan as one that may be meant in place of the first.
fn candidate<'a>((order, offer): (usize, &'a ToolOffer), plan: &ToolPlan) -> AlternativeTool<'a> {
    AlternativeTool {
        target: offer.target.id.clone(),
        spec: &offer.spec,
        arguments: None,
        equivalence: (order < plan.declared).then_some(Equivalence::Group(order)),
        same_capability: false,
        effects: offer.effects.clone(),
        healthy: true,
        tried: false,
    }
}
