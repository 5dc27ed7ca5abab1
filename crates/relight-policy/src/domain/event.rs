//! Events, in the past tense: of an invocation, a target, or Relight itself.
//!
//! Telemetry, `WatchRecovery`, the journal and the logs read these. No event holds a prompt, an
//! answer or a key.

mod body;
mod display;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    body::EventBody,
    display::{parked_words, recovery_words},
};
use super::{
    failure::FailureClass,
    ids::{Cursor, InvocationId, Operation, RequestId, RouteName, TargetId, TenantId, ThreadId},
    release::ReleaseAction,
};

/// A recovery event: what happened, when, and to which invocation, attempt and target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the journal of this process.
    pub cursor: Cursor,
    /// Time at which it happened.
    pub at: Timestamp,
    /// The invocation that it happened to; `None` for targets and Relight itself.
    pub scope: Option<Arc<EventScope>>,
    /// Attempt number; 0 if the event concerns no attempt.
    pub attempt: u32,
    /// The target that it concerns.
    pub target: Option<TargetId>,
    /// Content of the event.
    pub body: EventBody,
}

/// The identity of an invocation, shared by all of its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventScope {
    /// The invocation.
    pub invocation: InvocationId,
    /// Its thread.
    pub thread: Option<ThreadId>,
    /// The tenant; it decides who may see the event.
    pub tenant: TenantId,
    /// The caller's own id for it.
    #[serde(default)]
    pub request_id: Option<RequestId>,
    /// Its route.
    pub route: RouteName,
    /// Its operation.
    pub operation: Operation,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Hex trace id; empty without tracing.
    pub trace_id: String,
}

/// Urgency of an event for the person on call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Part of normal work.
    Debug,
    /// Worth knowing.
    Info,
    /// Something failed and is being handled.
    Warning,
    /// Something failed for good.
    Error,
}

/// The attempt outcomes on which a circuit changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Outcomes that count, in admission order.
    pub committed: u32,
    /// Failures among them.
    pub failures: u32,
    /// Slow ones among them.
    pub slow: u32,
    /// Attempts that are still undecided.
    pub pending: u32,
    /// Failures in a row at the end.
    pub consecutive: u32,
    /// Milliseconds over which outcomes count; 0 if a probe alone decided.
    #[serde(default)]
    pub window_ms: u64,
    /// Failures in a row that open at the present rate of calls; 0 if nothing opens.
    #[serde(default)]
    pub threshold: u32,
}

/// One fault in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingFault {
    /// Path of the setting (`routes.default.targets[1]`); empty for the file as a whole.
    pub path: String,
    /// Fault, without the values of secrets.
    pub reason: String,
    /// The valid name that was probably meant.
    pub nearest: Option<String>,
}

/// A duration as events have it: in whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl EventBody {
    /// Returns whether this ends an invocation that was refused before its first attempt, because
    /// of too much work or a limit; logs summarise these as one `CallsRefused` a second.
    #[must_use]
    pub fn is_refused_call(&self) -> bool {
        matches!(
            self,
            Self::InvocationFailed {
                class: FailureClass::Shed | FailureClass::RateLimited,
                attempts: 0,
                ..
            }
        )
    }

    /// Returns the event's name in snake case, as in filters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ReleaseDecided { decision, .. }
                if decision.action == ReleaseAction::RolledBack =>
            {
                "release_rolled_back"
            }
            _ => self.into(),
        }
    }

    /// Returns its urgency.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::InvocationStarted { .. }
            | Self::InvocationSucceeded { .. }
            | Self::AttemptStarted { .. }
            | Self::FirstToken { .. }
            | Self::AttemptSucceeded { .. } => Severity::Debug,
            // A reader that filters for warnings also needs to see how they ended.
            Self::InvocationRecovered { .. }
            | Self::InvocationParked { .. }
            | Self::CallsRefused { .. }
            | Self::AttemptFailed { .. }
            | Self::RecoveryAttempted { .. }
            | Self::GateClosed { .. } => Severity::Warning,
            Self::ReleaseDecided { decision, .. } => match decision.action {
                ReleaseAction::RolledBack => Severity::Error,
                ReleaseAction::Held => Severity::Warning,
                ReleaseAction::Promoted | ReleaseAction::Reinstated => Severity::Info,
            },
            Self::InvocationFailed { class, .. } if *class != FailureClass::Cancelled => {
                Severity::Error
            }
            Self::CircuitOpened { .. }
            | Self::BudgetExhausted { .. }
            | Self::ConfigurationRejected { .. }
            | Self::StoreLost { .. } => Severity::Error,
            _ => Severity::Info,
        }
    }
}
