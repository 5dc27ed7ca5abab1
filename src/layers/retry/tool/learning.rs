//! Lessons that a tool call learns from its outcome, and those it starts with because of others'
//! outcomes.

use std::sync::Arc;

use super::ToolCallState;
use crate::{
    domain::{
        clock,
        failure::{Failure, FailureClass},
        ids::TargetId,
        invocation::AttemptCause,
    },
    layers::tools::{Lesson, ToolOffer},
    policy::tool_recovery::{
        adapt::{self, ArgumentFit, Comparison},
        alternatives::{self, AlternativeTool, Equivalence, FailedTool},
        arguments::{self, quoted, short_hash},
        learning::is_refusal,
        similarity,
    },
};

impl ToolCallState {
    /// Begins with what was learnt: which of the tools that are declared equal is meant, and how
    /// arguments are adapted.
    pub(super) fn recall(&mut self) {
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
            .map(candidate)
            .collect();
        let chosen = FailedTool {
            target: &self.called.offer.target.id,
            name: &self.called.offer.spec.name,
            spec: Some(&self.called.offer.spec),
            effects: &self.called.offer.effects,
            arguments: &self.called.arguments,
            learner: &self.learner,
        };
        let preferred = alternatives::preferred(chosen, &candidates, &learnt.tools, now);
        let effects = &self.called.offer.effects;
        let schema = &self.called.offer.spec.input_schema;
        let key = effects.key_argument.as_deref();
        let adapted = learnt
            .adaptations
            .recall(&self.learner.tenant, schema, &self.called.arguments, key)
            .filter(|_| !effects.destructive);
        drop(learnt);
        let preferred = preferred.and_then(|(ranked, why)| {
            let tool = plan.offer(&ranked.target).cloned()?;
            Some((tool, ranked, why))
        });
        if let Some((tool, ranked, why)) = preferred {
            let called = quoted(&tool.spec.name);
            let named = quoted(&self.called.offer.spec.name);
            let reason = format!("{called} was called in place of {named}: {why}");
            let cause = AttemptCause::Fallback(FailureClass::NotFound);
            self.steps.begin_with(cause, reason);
            self.mistaken = Some(self.called.offer.target.id.clone());
            self.preferred = true;
            self.called.replace(tool);
            if let Some(adapted) = ranked.adapted {
                self.adapt(adapted);
            }
        } else if let Some(adapted) = adapted {
            let reason = format!("The arguments were adapted as before: {}", adapted.words);
            let cause = AttemptCause::Adapt(FailureClass::InvalidRequest);
            self.steps.begin_with(cause, reason);
            self.adapt(adapted);
        }
    }

    /// Starts with the release that serves the call in place of the one that was named, with
    /// arguments that fit it. A call that does not fit it is served by the release that was named,
    /// so that its failure is not the other one's. Returns whether the learnt facts may change the
    /// call still.
    pub(super) fn begin_with_release(&mut self) -> bool {
        let named = self
            .plan
            .named
            .as_ref()
            .and_then(|named| self.plan.offer(named))
            .cloned();
        let Some(named) = named else { return true };
        let effects = &self.called.offer.effects;
        let fit = adapt::fit(Comparison {
            old: Some(&named.spec.input_schema),
            new: &self.called.offer.spec.input_schema,
            arguments: &self.called.arguments,
            error: "",
            all_listed: false,
            filled: effects.key_argument.as_deref(),
        });
        match fit {
            ArgumentFit::Fits { .. } => true,
            ArgumentFit::Adapted(adapted) if !effects.destructive => {
                let words = &adapted.words;
                let reason =
                    format!("The arguments were adapted to a new release of the tool: {words}");
                let cause = AttemptCause::Adapt(FailureClass::InvalidRequest);
                self.steps.begin_with(cause, reason);
                self.called.listed = named.spec;
                self.adapt(adapted);
                false
            }
            _ => {
                self.called.replace(named);
                true
            }
        }
    }

    /// Takes note of a call that did what was wanted.
    pub(super) fn learn_success(&self) {
        let right = self.called.offer.target.id.to_string();
        let at = clock::wall_now();
        let mut learnt = self.plan.knowledge.learnt();
        learnt.learn(Lesson::Outcome {
            learner: self.learner.clone(),
            tool: right.clone(),
            succeeded: true,
            at,
        });
        let mistaken = self
            .mistaken
            .clone()
            .filter(|mistaken| mistaken.as_str() != right);
        let chosen = mistaken.or_else(|| self.corrected_by_caller());
        // A tool that is called because of a learnt fact is not evidence for it.
        if let Some(chosen) = chosen.filter(|_| !self.preferred) {
            learnt.learn(Lesson::Corrected {
                learner: self.learner.clone(),
                chosen: chosen.to_string(),
                right,
                case: short_hash([arguments::write(&self.written()).as_str()]),
                at,
            });
        }
        if let Some(adaptation) = &self.called.adaptation {
            let old = &adaptation.old.input_schema;
            let new = &adaptation.new.input_schema;
            learnt
                .adaptations
                .remember(&self.learner.tenant, Some(old), new, &adaptation.changes);
        }
    }

    /// Takes note of a failure of the tool that was called.
    pub(super) fn learn_failure(&self, failure: &Failure) {
        let tool = self.called.offer.target.id.to_string();
        let at = clock::wall_now();
        let mut learnt = self.plan.knowledge.learnt();
        learnt.learn(Lesson::Outcome {
            learner: self.learner.clone(),
            tool: tool.clone(),
            succeeded: false,
            at,
        });
        let refused = is_refusal(failure.class);
        if let Some(chosen) = self.mistaken.clone().filter(|_| self.preferred && refused) {
            learnt.learn(Lesson::Refuted {
                learner: self.learner.clone(),
                chosen: chosen.to_string(),
                right: tool,
            });
        }
        if refused && let Some(adaptation) = &self.called.adaptation {
            let schema = &adaptation.new.input_schema;
            learnt.adaptations.forget(&self.learner.tenant, schema);
        }
    }

    /// Returns the tool about the same thing that the caller called just before for the same goal,
    /// and that did not take the call.
    fn corrected_by_caller(&self) -> Option<TargetId> {
        let before = self.plan.past.last().filter(|before| before.refused)?;
        let (_, tool) = before.target.as_str().split_once('/')?;
        let own = &self.called.offer.spec.name;
        (tool != own && similarity::same_subject(tool, own)).then(|| before.target.clone())
    }
}

/// Returns a tool of the plan as one that may be meant in place of the first.
fn candidate((order, offer): (usize, &ToolOffer)) -> AlternativeTool<'_> {
    AlternativeTool {
        target: offer.target.id.clone(),
        spec: &offer.spec,
        arguments: None,
        equivalence: Some(Equivalence::Group(order)),
        same_capability: false,
        effects: offer.effects.clone(),
        healthy: true,
        tried: false,
    }
}
