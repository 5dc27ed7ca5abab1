//! Each thing that can happen, with all that is known of it.
//!
//! What is not known is `None`, never a zero that could be taken for a fact. No event holds a prompt, an answer or a key.

use serde::{Deserialize, Serialize};

use super::{Evidence, SettingFault};
use crate::domain::{
    circuit::{CircuitState, GateKind},
    completion::Usage,
    failure::{FailureClass, InvalidRequestDetail, Wait, WaitSource},
    ids::TargetId,
    invocation::{AttemptCause, RecoveryStrategy},
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// An invocation was taken in.
    InvocationStarted {
        /// Milliseconds until its deadline.
        deadline_ms: u64,
        /// Attempts that it may make after the first.
        max_retries: u32,
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
        /// How it failed first; `None` where nothing failed and a second target was just faster.
        first_failure: Option<FailureClass>,
    },
    /// It failed for good, or was cancelled.
    InvocationFailed {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// All attempts.
        attempts: u32,
        /// What it cost in all.
        usage: Usage,
        /// What was done, in order.
        strategies: Vec<RecoveryStrategy>,
        /// How.
        class: FailureClass,
        /// What was wrong with the request, for `invalid_request` only.
        detail: Option<InvalidRequestDetail>,
        /// Relight's words, redacted.
        message: String,
        /// Plain words for an end user.
        user_message: String,
        /// What an operator or developer can do.
        recovery_hint: String,
        /// The local refusal that ended recovery after it; `None` where none did.
        stopped_by: Option<FailureClass>,
    },
    /// Nobody could be asked for now, and it waits.
    InvocationParked {
        /// Why its target cannot be asked: what closed its gate, or `circuit_open`.
        class: FailureClass,
        /// Milliseconds until it asks again, at the latest: it is woken when its target is ready before.
        wait_ms: u64,
        /// Whether it stands in line: others wait for the same, and pass one at a time.
        in_line: bool,
    },
    /// Calls were refused, within a second, because there was too much work: at a target, or before one was chosen. Each
    /// of them has an `InvocationFailed` of its own; this is the one line that logs have for all.
    CallsRefused {
        /// How many.
        count: u64,
    },
    /// An attempt began.
    AttemptStarted {
        /// Why.
        cause: AttemptCause,
        /// The model that is asked.
        model: String,
        /// The wait before it; `None` where there was none.
        wait: Option<Wait>,
    },
    /// The first token of an attempt came.
    FirstToken {
        /// Milliseconds from the request to it.
        after_ms: u64,
    },
    /// The answer of an attempt broke off and is read on from where it was, within the same attempt.
    AttemptReadOn {
        /// How it broke off, in words.
        reason: String,
        /// How often the attempt asked for the rest by now.
        requests: u32,
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
        /// What was wrong with the request, for `invalid_request` only.
        detail: Option<InvalidRequestDetail>,
        /// Relight's words, redacted.
        message: String,
        /// Whether asking the same target again may help.
        retryable: bool,
        /// The wait that the failure stated.
        retry_after: Option<Wait>,
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
        /// The last failure that it tells of.
        class: FailureClass,
        /// Its length in bytes of UTF-8.
        note_bytes: u64,
    },
    /// The model could not be told.
    ContextInjectionSkipped {
        /// Why.
        reason: String,
        /// The last failure that the model was not told of.
        class: FailureClass,
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
        /// The generation that began with it.
        generation: u64,
        /// The state before.
        from: CircuitState,
        /// On what.
        evidence: Evidence,
        /// Milliseconds until it probes; `None` while an operator holds it open.
        retry_in_ms: Option<u64>,
        /// Why, in words.
        reason: String,
        /// The class of the failure that tripped it; `None` where an operator did.
        class: Option<FailureClass>,
        /// How often it opened in a row without closing between, this time included.
        streak: u32,
        /// Whether an operator opened it.
        forced: bool,
    },
    /// A circuit lets probes through.
    CircuitHalfOpen {
        /// The generation that began with it.
        generation: u64,
        /// How long it was open, in milliseconds.
        open_ms: u64,
        /// Probes that it lets through at once.
        probes: u32,
    },
    /// A circuit admits more and more.
    CircuitRecovering {
        /// Its generation; a later stage keeps it.
        generation: u64,
        /// The share admitted, in percent.
        admitted_percent: u32,
        /// On what.
        evidence: Evidence,
    },
    /// A circuit closed.
    CircuitClosed {
        /// The generation that began with it.
        generation: u64,
        /// The state before.
        from: CircuitState,
        /// On what.
        evidence: Evidence,
        /// Milliseconds since it was last closed.
        disturbed_ms: u64,
        /// Whether an operator closed it.
        forced: bool,
    },
    /// A gate closed.
    GateClosed {
        /// Which.
        gate: GateKind,
        /// Milliseconds until it opens.
        reopens_in_ms: u64,
        /// Where that time was read.
        source: WaitSource,
        /// Why.
        class: FailureClass,
    },
    /// A gate opened.
    GateOpened {
        /// Which.
        gate: GateKind,
        /// How long it was closed, in milliseconds.
        closed_ms: u64,
    },
    /// The retry budget of a target is empty.
    BudgetExhausted {
        /// What is left, in tokens.
        level: f64,
        /// What it holds when it is full, in tokens.
        capacity: f64,
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
    ConfigurationReloaded {
        /// Grows with every configuration in force; 2 and up.
        generation: u64,
        /// The settings that changed, by path; never their values.
        changed: Vec<String>,
        /// Those among them that are read at the start only, and so are not in force before a restart.
        #[serde(default)]
        needs_restart: Vec<String>,
    },
    /// A new configuration was refused; the old one stays in force.
    ConfigurationRejected {
        /// What is wrong with it, in one text.
        reason: String,
        /// The same, one by one.
        faults: Vec<SettingFault>,
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
        /// How long it was away, in milliseconds.
        lost_ms: u64,
    },
}
