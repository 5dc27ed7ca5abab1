//! What happened, in the past tense: to an invocation, a target, or Relight itself.
//!
//! Telemetry, `WatchRecovery`, the journal and the logs are readers of these. No event ever holds a prompt, an
//! answer or a key.

mod display;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    completion::Usage,
    failure::{FailureClass, Wait},
    ids::{Cursor, InvocationId, Operation, RouteName, TargetId, TenantId, ThreadId},
    invocation::{AttemptCause, RecoveryStrategy},
};

/// Something that happened, with where it belongs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the journal of this process.
    pub cursor: Cursor,
    /// When it happened.
    pub at: Timestamp,
    /// The invocation that it happened to; `None` for targets and Relight itself.
    pub scope: Option<Arc<EventScope>>,
    /// The attempt; 0 where no attempt is meant.
    pub attempt: u32,
    /// The target that it concerns.
    pub target: Option<TargetId>,
    /// What happened.
    pub body: EventBody,
}

/// What all events of one invocation share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventScope {
    /// The invocation.
    pub invocation: InvocationId,
    /// Its thread.
    pub thread: Option<ThreadId>,
    /// Who calls; used to decide who may see the event, never shown.
    pub tenant: TenantId,
    /// Its route.
    pub route: RouteName,
    /// Its operation.
    pub operation: Operation,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Hex trace id; empty without tracing.
    pub trace_id: String,
}

/// How much an event matters to the person on call.
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

/// Evidence on which a circuit moved.
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
}

/// Which gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// The provider's rate limit for a credential and model.
    Rate,
    /// The credential itself.
    Credential,
    /// The model that does not exist.
    Configuration,
}

impl GateKind {
    /// The gate's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Credential => "credential",
            Self::Configuration => "configuration",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// An invocation was taken in.
    InvocationStarted {
        /// Milliseconds until its deadline.
        deadline_ms: u64,
    },
    /// It was answered at the first attempt.
    InvocationSucceeded {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// What it cost.
        usage: Usage,
    },
    /// It was answered after recovery.
    InvocationRecovered {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// All attempts.
        attempts: u32,
        /// What was done.
        strategies: Vec<RecoveryStrategy>,
        /// What it cost in all.
        usage: Usage,
    },
    /// It failed for good, or was cancelled.
    InvocationFailed {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// All attempts.
        attempts: u32,
        /// How.
        class: FailureClass,
        /// Relight's words, redacted.
        message: String,
    },
    /// An attempt began.
    AttemptStarted {
        /// Why.
        cause: AttemptCause,
        /// The model that is asked.
        model: String,
    },
    /// The first token of an attempt came.
    FirstToken {
        /// Milliseconds from the request to it.
        after_ms: u64,
    },
    /// An attempt answered.
    AttemptSucceeded {
        /// Milliseconds from the request to the end.
        duration_ms: u64,
        /// What it cost.
        usage: Usage,
    },
    /// An attempt failed.
    AttemptFailed {
        /// How.
        class: FailureClass,
        /// Relight's words, redacted.
        message: String,
        /// HTTP status, where there was one.
        status: Option<u16>,
        /// Milliseconds from the request to the end.
        duration_ms: u64,
        /// False when Relight refused it before anything was sent.
        sent: bool,
        /// What it cost all the same.
        #[serde(default)]
        usage: Usage,
    },
    /// Recovery was decided.
    RecoveryAttempted {
        /// What failed, in Relight's words.
        error: String,
        /// How.
        class: FailureClass,
        /// The number of this recovery, from 1.
        retry: u32,
        /// How many are allowed.
        max_retries: u32,
        /// What will be done.
        strategy: RecoveryStrategy,
        /// The wait before it.
        wait: Wait,
        /// What of the request was changed, in words; `None` where nothing was.
        #[serde(default)]
        adaptation: Option<String>,
    },
    /// The model was told of its failure.
    ContextInjected {
        /// Where the note went.
        vehicle: String,
    },
    /// The model could not be told.
    ContextInjectionSkipped {
        /// Why.
        reason: String,
    },
    /// Another target was chosen.
    FallbackChosen {
        /// The target that was left.
        from: TargetId,
        /// Why.
        class: FailureClass,
    },
    /// A second attempt was started beside a slow one.
    HedgeStarted {
        /// The slow target.
        beside: TargetId,
        /// After how many milliseconds.
        after_ms: u64,
    },
    /// A circuit opened.
    CircuitOpened {
        /// On what.
        evidence: Evidence,
        /// Milliseconds until it probes.
        retry_in_ms: u64,
        /// Why, in words.
        reason: String,
    },
    /// A circuit lets probes through.
    CircuitHalfOpen,
    /// A circuit admits more and more.
    CircuitRecovering {
        /// The share admitted, in percent.
        admitted_percent: u32,
    },
    /// A circuit closed.
    CircuitClosed,
    /// A gate closed.
    GateClosed {
        /// Which.
        gate: GateKind,
        /// Milliseconds until it opens.
        reopens_in_ms: u64,
        /// Why.
        class: FailureClass,
    },
    /// A gate opened.
    GateOpened {
        /// Which.
        gate: GateKind,
    },
    /// The retry budget of a target is empty.
    BudgetExhausted {
        /// What is left, in tokens.
        level: u32,
    },
    /// A release was rolled back.
    ReleaseRolledBack {
        /// Which.
        release: String,
        /// Back to which.
        to: String,
        /// Why.
        reason: String,
    },
    /// A new configuration is in force.
    ConfigurationReloaded,
    /// A new configuration was refused; the old one stays in force.
    ConfigurationRejected {
        /// What is wrong with it.
        reason: String,
    },
    /// A store cannot be reached.
    StoreLost {
        /// Which.
        store: String,
        /// Why.
        reason: String,
    },
    /// A store is back.
    StoreFound {
        /// Which.
        store: String,
    },
}

impl EventBody {
    /// The event's name in snake case, as in filters.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::InvocationStarted { .. } => "invocation_started",
            Self::InvocationSucceeded { .. } => "invocation_succeeded",
            Self::InvocationRecovered { .. } => "invocation_recovered",
            Self::InvocationFailed { .. } => "invocation_failed",
            Self::AttemptStarted { .. } => "attempt_started",
            Self::FirstToken { .. } => "first_token",
            Self::AttemptSucceeded { .. } => "attempt_succeeded",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::RecoveryAttempted { .. } => "recovery_attempted",
            Self::ContextInjected { .. } => "context_injected",
            Self::ContextInjectionSkipped { .. } => "context_injection_skipped",
            Self::FallbackChosen { .. } => "fallback_chosen",
            Self::HedgeStarted { .. } => "hedge_started",
            Self::CircuitOpened { .. } => "circuit_opened",
            Self::CircuitHalfOpen => "circuit_half_open",
            Self::CircuitRecovering { .. } => "circuit_recovering",
            Self::CircuitClosed => "circuit_closed",
            Self::GateClosed { .. } => "gate_closed",
            Self::GateOpened { .. } => "gate_opened",
            Self::BudgetExhausted { .. } => "budget_exhausted",
            Self::ReleaseRolledBack { .. } => "release_rolled_back",
            Self::ConfigurationReloaded => "configuration_reloaded",
            Self::ConfigurationRejected { .. } => "configuration_rejected",
            Self::StoreLost { .. } => "store_lost",
            Self::StoreFound { .. } => "store_found",
        }
    }

    /// How much it matters.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::InvocationStarted { .. }
            | Self::InvocationSucceeded { .. }
            | Self::AttemptStarted { .. }
            | Self::FirstToken { .. }
            | Self::AttemptSucceeded { .. } => Severity::Debug,
            Self::InvocationRecovered { .. }
            | Self::ContextInjected { .. }
            | Self::ContextInjectionSkipped { .. }
            | Self::FallbackChosen { .. }
            | Self::HedgeStarted { .. }
            | Self::CircuitHalfOpen
            | Self::CircuitRecovering { .. }
            | Self::CircuitClosed
            | Self::GateOpened { .. }
            | Self::ConfigurationReloaded
            | Self::StoreFound { .. } => Severity::Info,
            Self::AttemptFailed { .. } | Self::RecoveryAttempted { .. } | Self::GateClosed { .. } => Severity::Warning,
            Self::InvocationFailed { class, .. } if *class == FailureClass::Cancelled => Severity::Info,
            Self::InvocationFailed { .. }
            | Self::CircuitOpened { .. }
            | Self::BudgetExhausted { .. }
            | Self::ReleaseRolledBack { .. }
            | Self::ConfigurationRejected { .. }
            | Self::StoreLost { .. } => Severity::Error,
        }
    }
}
