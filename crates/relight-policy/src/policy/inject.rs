//! Context injection: informs the model of its failed attempt by a short note, if that can help.
//!
//! A model that gets the same request again tends to fail the same way; a short, concrete note
//! changes that. The note is in one attempt's copy of the conversation. Attempt k is the untouched
//! history plus ONE note about the attempts before it, so notes do not accumulate and nothing
//! before the tail changes (prompt caches and signatures stay intact).
//!
//! No upstream text enters a system, developer or user turn, unless the policy quotes messages
//! (`error: message`), and then only a user turn or a tool result; no turn before the tail is
//! edited; and injection does not make a request fail: without a legal position the request is sent
//! without a note, which is reported.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::domain::{
    failure::{Failure, FailureClass},
    ids::Operation,
    invocation::InjectionMode,
    message::ModelCall,
    target::Target,
};

mod finding;
mod note;
mod patch;
mod place;
mod repair;
mod sanitize;
#[cfg(test)]
mod tests;
pub mod validators;
mod vocabulary;

pub use self::{
    finding::{Finding, Mismatch},
    note::note_text,
    patch::history_patch,
    repair::{changes, repair},
};

/// Longest note, in characters; what does not fit is left out, least important first.
pub const MAX_NOTE_CHARS: usize = 400;
/// Longest excerpt of a tool's own error text, in bytes; only inside a tool result.
pub const MAX_EXCERPT_BYTES: usize = 1024;
/// Placeholder for the failure's description, which a template must contain.
pub const PLACEHOLDER: &str = "{error}";

/// Number of the last attempts that a note lists.
const MAX_FAILURES_LISTED: usize = 3;

/// Text that replaces `{error}` in a note.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorWords {
    /// Relight's own phrase for the class of the failure, with facts of its own.
    #[default]
    Phrase,
    /// The message of the failure, redacted and on one line.
    Message,
}

/// Way and time in which the model is informed of its failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InjectionPolicy {
    /// Condition for a note: `when_actionable`, `always` (every retryable failure; the template and
    /// no more) or `never`.
    pub mode: InjectionMode,
    /// Text that replaces `{error}`: `phrase` (Relight's own words for the failure with its own
    /// facts) or `message` (the failure's message, redacted, and cut if the note would be too
    /// long). Default `phrase`. With `message` a provider's words reach the model, so the note is
    /// then neither a system nor a developer message.
    pub error: ErrorWords,
    /// The note, which holds `{error}` once.
    pub template: String,
    /// The note for the operations in `short_for`.
    pub short_template: String,
    /// Operations that get the short note: the steps of a multi-step run that choose neither
    /// actions nor tools.
    pub short_for: Vec<String>,
    /// Notes by failure class (`timeout`, `malformed_response`, …), before all others.
    pub templates: BTreeMap<String, String>,
}

/// Placement of an attempt's note.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made per attempt and taken apart at once"
)]
pub enum Placement {
    /// The attempt carries a note.
    Injected {
        /// This attempt's own copy of the call, repaired (see [`repair()`]).
        call: ModelCall,
        /// The note, at most 400 characters; an excerpt in a tool result is not part of it.
        note: String,
        /// Position in which it travels.
        vehicle: NotePosition,
    },
    /// No note is needed.
    NotNeeded,
    /// A note is needed, but there is no legal position.
    Skipped {
        /// The reason, in words for people.
        reason: String,
    },
}

/// The message that carries a note; the neutral encoding of each is fixed, and translations rely on
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NotePosition {
    /// A message of role developer, last.
    DeveloperMessage,
    /// A message of role system, last.
    SystemMessage,
    /// A message of role user, last.
    UserMessage,
    /// A text part at the end of the last message, which is the user's.
    UserTextBlock,
    /// Inside the content of the failing (else the last) tool result of the tail.
    ToolResult,
    /// A message of role user right after the tool results. A dialect without a tool role merges it
    /// into the turn that holds the results, as a text block after all of them.
    AfterToolResults,
}

// === impl NotePosition ===

impl NotePosition {
    /// Returns the vehicle's name in snake case, as in events and spans.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl InjectionPolicy ===

impl Default for InjectionPolicy {
    fn default() -> Self {
        Self {
            mode: InjectionMode::default(),
            error: ErrorWords::default(),
            template:
                "The previous model call failed: {error}. Adjust your approach — try a simpler action or different \
                       tool."
                    .to_owned(),
            short_template: "The previous call failed: {error}. Adjust your approach.".to_owned(),
            short_for: ["planner", "evaluator", "replanner"].map(str::to_owned).to_vec(),
            templates: BTreeMap::new(),
        }
    }
}

impl InjectionPolicy {
    /// Returns every fault of this policy: the field's path and what is wrong with it. Empty when
    /// it is good.
    #[must_use]
    pub fn validate(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        Self::check_template(&mut faults, "template", &self.template);
        Self::check_template(&mut faults, "short_template", &self.short_template);
        for (name, template) in &self.templates {
            let path = format!("templates.{name}");
            match FailureClass::parse(name) {
                None => faults.push((path.clone(), "is not a failure class".to_owned())),
                Some(class) if note::is_never_noted(class) => {
                    faults.push((path.clone(), "no note is written for this class".to_owned()));
                }
                Some(_) => {}
            }
            Self::check_template(&mut faults, &path, template);
        }
        for (index, operation) in self.short_for.iter().enumerate() {
            if operation.trim().is_empty() {
                faults.push((format!("short_for[{index}]"), "is empty".to_owned()));
            }
        }
        faults
    }

    fn check_template(faults: &mut Vec<(String, String)>, path: &str, template: &str) {
        let mut fault = |reason: String| faults.push((path.to_owned(), reason));
        if template.matches(PLACEHOLDER).count() != 1 {
            fault(format!("must hold {PLACEHOLDER} exactly once"));
        }
        if template.replace(PLACEHOLDER, "").contains(['{', '}']) {
            fault(format!("knows no placeholder but {PLACEHOLDER}"));
        }
        if template.chars().any(sanitize::is_hidden) {
            fault("holds control, bidirectional or invisible characters".to_owned());
        }
        let longest = FailureClass::ALL
            .iter()
            .map(|class| class.phrase().chars().count())
            .max()
            .unwrap_or_default();
        let room = MAX_NOTE_CHARS;
        if template.chars().count() + longest > room + PLACEHOLDER.len() {
            fault(format!(
                "leaves no room for a phrase of {longest} characters within {room}"
            ));
        }
    }
}

/// Adds the note about `failures` (of this invocation, oldest first) to a copy of `call`.
///
/// `mode` is the effective one, after overrides. Local refusals are ignored, as no model had a part
/// in them. `call` is the untouched history, on every attempt: that is what makes the note of
/// attempt k replace that of attempt k-1.
#[must_use]
pub fn inject(
    policy: &InjectionPolicy,
    mode: InjectionMode,
    operation: &Operation,
    call: &ModelCall,
    target: &Target,
    failures: &[&Failure],
) -> Placement {
    let noted = note::worth_noting(mode, failures);
    let Some(newest) = noted.last() else {
        return Placement::NotNeeded;
    };
    let note = match mode {
        InjectionMode::Always => note::sentence(policy, operation, call, newest),
        InjectionMode::Never | InjectionMode::WhenActionable => {
            note_text(policy, operation, call, &noted)
        }
    };
    let excerpt = note::excerpt(newest);
    let mut call = match repair(call) {
        Cow::Borrowed(whole) => whole.clone(),
        Cow::Owned(repaired) => repaired,
    };
    match place::choose(&call.messages, target, policy.error) {
        Ok(vehicle) => {
            place::put(&mut call.messages, vehicle, &note, excerpt.as_deref());
            Placement::Injected {
                call,
                note,
                vehicle,
            }
        }
        Err(reason) => Placement::Skipped {
            reason: reason.to_owned(),
        },
    }
}

/// Returns the reason for which an attempt after a failure of this class has no note, if none is
/// needed.
#[must_use]
pub const fn why_not_needed(mode: InjectionMode, last: FailureClass) -> &'static str {
    match (last, mode) {
        (FailureClass::ContentFiltered, _) => "content_policy",
        (FailureClass::ContextLength, _) => "context_full",
        (_, InjectionMode::Never) => "never",
        (_, InjectionMode::WhenActionable | InjectionMode::Always) => "not_actionable",
    }
}

/// Returns whether the note may be the reason for which a target refused the request that carried
/// it: the refusal names no other cause.
#[must_use]
pub fn may_blame_note(failure: &Failure) -> bool {
    failure.class == FailureClass::InvalidRequest
        && failure.status == Some(400)
        && failure.adaptation.is_none()
}
