//! The record of one attempt.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::AttemptCause;
use crate::domain::{
    completion::Usage,
    failure::{Failure, Wait},
    ids::TargetId,
    tool::ExecutedTool,
};

/// One attempt, as reported to callers, in spans and in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// 1 for the first.
    pub number: u32,
    /// Reason for which it was made.
    pub cause: AttemptCause,
    /// The target; `None` when none could be called.
    pub target: Option<TargetId>,
    /// The model that was called.
    pub model: String,
    /// Time at which it began, after its wait.
    pub started_at: Timestamp,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// Time from its start to its end, wait not included.
    pub duration: Duration,
    /// From the request to the first token.
    pub first_token: Option<Duration>,
    /// `true` if anything was sent to the provider.
    pub sent: bool,
    /// Its failure; `None` when it succeeded or is running.
    pub failure: Option<Failure>,
    /// The note that the model was given about it, or why it was given none.
    #[serde(flatten)]
    pub injection: InjectionRecord,
    /// `true` if it ended with the replica that made it: nobody's allowance counts it.
    #[serde(default)]
    pub lost_with_replica: bool,
    /// Change of the request for the same target because of this failure, in words.
    #[serde(default)]
    pub adaptation: Option<String>,
    /// What of the request was repaired or left out for it, in words, if not reported before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<String>,
    /// Reason for which the shape of its response was not checked, if it should have been.
    #[serde(default)]
    pub unchecked: Option<String>,
    /// Cost of the attempt.
    pub usage: Usage,
    /// Ids by which it is found elsewhere.
    #[serde(flatten)]
    pub ids: AttemptIds,
    /// `true` if its completion was kept.
    pub winner: bool,
    /// Execution that it was, if a tool was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<ExecutedTool>>,
    /// Label of its key, if its provider has a pool of keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The note of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InjectionRecord {
    /// The note that the model was given.
    pub note: Option<String>,
    /// Reason for which no note was added for the model, if one should have been.
    #[serde(rename = "injection_skipped")]
    pub skipped: Option<String>,
    /// `true` if the target refused the request because of its note.
    #[serde(rename = "note_refused")]
    pub refused: bool,
}

/// Ids of one attempt, by which a trace or a provider's support finds it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttemptIds {
    /// Hex trace id; empty without tracing.
    pub trace_id: String,
    /// Hex id of its span; empty without tracing.
    #[serde(default)]
    pub span_id: String,
    /// Provider's id of the request, to quote to its support; empty if it sent none.
    #[serde(default)]
    pub upstream_request_id: String,
}

impl AttemptRecord {
    /// Returns an attempt at this target's model that begins then, of which nothing was sent.
    #[must_use]
    pub fn begun(
        number: u32,
        cause: AttemptCause,
        target: TargetId,
        model: String,
        started_at: Timestamp,
    ) -> Self {
        Self {
            number,
            cause,
            target: Some(target),
            model,
            started_at,
            wait: None,
            duration: Duration::ZERO,
            first_token: None,
            sent: false,
            failure: None,
            injection: InjectionRecord::default(),
            lost_with_replica: false,
            adaptation: None,
            repaired: None,
            unchecked: None,
            usage: Usage::default(),
            ids: AttemptIds::default(),
            winner: false,
            tool: None,
            key: None,
        }
    }

    /// Returns the changes of the request before it and because of it, in words.
    pub fn changes(&self) -> impl Iterator<Item = &String> {
        self.repaired.iter().chain(&self.adaptation)
    }

    /// Returns whether Relight itself refused it: such an attempt costs nothing and is not counted.
    #[must_use]
    pub fn refused_locally(&self) -> bool {
        !self.sent
            && self
                .failure
                .as_ref()
                .is_some_and(|failure| failure.class.is_local_refusal())
    }

    /// Returns whether no end of it is known: it neither failed nor was its completion kept.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.failure.is_none() && !self.winner
    }
}
