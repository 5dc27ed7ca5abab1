//! The tool that a call executes, and the arguments as that tool takes them.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    domain::tool::ToolSpec,
    layers::tools::ToolOffer,
    policy::tool_recovery::{
        adapt::{self, AdaptedArguments, ArgumentChange, ArgumentFit, Comparison},
        arguments::{self, Arguments},
    },
};

/// The tool that is called next, or was called last, with its arguments.
pub(super) struct CalledTool {
    pub(super) offer: ToolOffer,
    /// The tool as it was listed when its arguments were written.
    pub(super) listed: Arc<ToolSpec>,
    /// The arguments, without an idempotency key of Relight's own.
    pub(super) arguments: Arguments,
    /// Change of the call for the next attempt, in words.
    pub(super) changed: String,
    /// Changes of the arguments, to be remembered once they worked.
    pub(super) adaptation: Option<SchemaAdaptation>,
}

/// A change of arguments from one schema to another.
pub(super) struct SchemaAdaptation {
    pub(super) old: Arc<ToolSpec>,
    pub(super) new: Arc<ToolSpec>,
    pub(super) changes: Vec<ArgumentChange>,
}

// === impl CalledTool ===

impl CalledTool {
    /// A tool with these arguments, which were written for it.
    pub(super) fn new(offer: ToolOffer, arguments: Arguments) -> Self {
        Self {
            listed: Arc::clone(&offer.spec),
            offer,
            arguments,
            changed: String::new(),
            adaptation: None,
        }
    }

    /// Takes another tool in its place, with the same arguments.
    pub(super) fn replace(&mut self, offer: ToolOffer) {
        self.listed = Arc::clone(&offer.spec);
        self.offer = offer;
    }

    /// Forgets the changes of the arguments, which were made for another tool.
    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
        self.adaptation = None;
    }

    /// Takes the tool as it is listed now.
    pub(super) fn relisted(&mut self, now: ToolOffer) {
        let target = Arc::clone(&self.offer.target);
        self.offer = ToolOffer { target, ..now };
    }

    /// Takes arguments that were changed to fit it.
    pub(super) fn adapt(&mut self, adapted: AdaptedArguments) {
        self.adaptation = Some(SchemaAdaptation {
            old: Arc::clone(&self.listed),
            new: Arc::clone(&self.offer.spec),
            changes: adapted.changes,
        });
        self.arguments = adapted.arguments;
        self.changed = adapted.words;
    }

    /// Returns the arguments as they are sent, if they were changed.
    pub(super) fn adapted_arguments(&self) -> Option<String> {
        let adapted = self.adaptation.is_some();
        adapted.then(|| arguments::write(&self.arguments))
    }

    /// Returns the first name of an argument that the tool does not list, if that is looked at.
    pub(super) fn unlisted_name(&self) -> Option<&str> {
        let policy = &self.offer.recovery;
        if !policy.enabled || !policy.check_names {
            return None;
        }
        adapt::unlisted(&self.offer.spec.input_schema, &self.arguments)
    }

    /// Returns the arguments by the names that the tool has for them, if that is clear and allowed;
    /// `before`: the schema that it had before, if that is known.
    pub(super) fn renamed(&self, before: Option<&Value>) -> Option<AdaptedArguments> {
        let effects = &self.offer.effects;
        if effects.destructive {
            return None;
        }
        let fit = adapt::fit(Comparison {
            old: before,
            new: &self.offer.spec.input_schema,
            arguments: &self.arguments,
            error: "",
            all_listed: true,
            filled: effects.key_argument.as_deref(),
        });
        match fit {
            ArgumentFit::Adapted(adapted) => Some(adapted),
            ArgumentFit::Fits { .. }
            | ArgumentFit::Mistake { .. }
            | ArgumentFit::Ambiguous { .. }
            | ArgumentFit::Unusable { .. } => None,
        }
    }
}
