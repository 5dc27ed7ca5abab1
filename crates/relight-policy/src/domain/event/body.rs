//! Each kind of event, with its fields.
//!
//! An unknown fact is `None`, not a zero that could be mistaken for a fact. No event holds a
//! prompt, a completion or a key.

use serde::{Deserialize, Serialize};

use super::{Evidence, SettingFault};
use crate::domain::{
    circuit::{CircuitState, GateKind},
    completion::Usage,
    failure::{FailureClass, InvalidRequestDetail, Wait, WaitSource},
    ids::TargetId,
    invocation::{AttemptCause, RecoveryStrategy},
    release::ReleaseDecision,
};

/// Event, with its facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventBody {
    /// An invocation was taken in.
    InvocationStarted {
        /// Milliseconds until its deadline.
        deadline_ms: u64,
        /// Attempts that it may make after the first.
        max_retries: u32,
    },
    /// It succeeded at the first attempt.
    InvocationSucceeded {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// Its cost.
        usage: Usage,
    },
    /// It succeeded after recovery.
    InvocationRecovered {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// All attempts.
        attempts: u32,
        /// Steps taken.
        strategies: Vec<RecoveryStrategy>,
        /// Total cost.
        usage: Usage,
        /// Class of its first failure; `None` if nothing failed and a second target was just
        /// faster.
        first_failure: Option<FailureClass>,
    },
    /// It failed for good, or was cancelled.
    InvocationFailed {
        /// Whole duration in milliseconds.
        duration_ms: u64,
        /// All attempts.
        attempts: u32,
        /// Total cost.
        usage: Usage,
        /// Steps taken, in order.
        strategies: Vec<RecoveryStrategy>,
        /// The class of its failure.
        class: FailureClass,
        /// Fault of the request, for `invalid_request` only.
        detail: Option<InvalidRequestDetail>,
        /// A redacted message without upstream text.
        message: String,
        /// Plain words for an end user.
        user_message: String,
        /// Action that an operator or developer can take.
        recovery_hint: String,
        /// Local refusal that ended recovery after it; `None` if none did.
        stopped_by: Option<FailureClass>,
    },
    /// No target can be called for now, and the invocation waits.
    InvocationParked {
        /// Reason why its target cannot be called: the class that closed its gate, or
        /// `circuit_open`.
        class: FailureClass,
        /// Milliseconds until the next try at the latest; it wakes earlier when its target is
        /// ready.
        wait_ms: u64,
        /// `true` if it waits in a queue: several wait for the same gate and pass one at a time.
        in_line: bool,
    },
    /// Calls were refused, within a second, because there was too much work: at a target, or before
    /// one was chosen. Each of them has an `InvocationFailed` of its own; this is the one line that
    /// logs have for all.
    CallsRefused {
        /// Number of refused calls.
        count: u64,
    },
    /// An attempt started.
    AttemptStarted {
        /// Reason why the attempt is made.
        cause: AttemptCause,
        /// The model that is called.
        model: String,
        /// Wait before it; `None` if there was none.
        wait: Option<Wait>,
    },
    /// The first token of an attempt came.
    FirstToken {
        /// Milliseconds from the request to it.
        after_ms: u64,
    },
    /// The connection to a response broke and the same response is resumed within the attempt.
    AttemptReadOn {
        /// A short description of the interruption.
        reason: String,
        /// Requests made so far to resume the response.
        requests: u32,
    },
    /// An attempt succeeded.
    AttemptSucceeded {
        /// Milliseconds from the request to the end.
        duration_ms: u64,
        /// Its cost.
        usage: Usage,
        /// `true` if the response is of no use all the same, by which releases are judged.
        #[serde(default)]
        is_flawed: bool,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The class of its failure.
        class: FailureClass,
        /// Fault of the request, for `invalid_request` only.
        detail: Option<InvalidRequestDetail>,
        /// Signature that failures of one broken release share, by which releases are judged; empty
        /// if nothing is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        signature: String,
        /// A redacted message without upstream text.
        message: String,
        /// Action that an operator or developer can take; for the log alone.
        #[serde(default, skip_serializing)]
        recovery_hint: String,
        /// `true` if a retry at the same target may help.
        retryable: bool,
        /// The wait that the failure stated.
        retry_after: Option<Wait>,
        /// HTTP status, if there was one.
        status: Option<u16>,
        /// Milliseconds from the request to the end.
        duration_ms: u64,
        /// False when Relight refused it before anything was sent.
        sent: bool,
        /// Its cost all the same.
        #[serde(default)]
        usage: Usage,
    },
    /// Recovery was decided.
    RecoveryAttempted {
        /// A redacted message of the failure, without upstream text.
        error: String,
        /// The class of the failure.
        class: FailureClass,
        /// Action that an operator or developer can take; for the log alone.
        #[serde(default, skip_serializing)]
        recovery_hint: String,
        /// The number of this recovery, from 1. Where an attempt was lost with its replica, the
        /// number that it had: 0 for the first.
        retry: u32,
        /// Number of allowed recoveries.
        max_retries: u32,
        /// Step that will be taken.
        strategy: RecoveryStrategy,
        /// The wait before it.
        wait: Wait,
        /// Change of the request, in words; `None` if there was none.
        #[serde(default)]
        adaptation: Option<String>,
        /// Step taken in place of a retry after a crash of Relight, in words; `None` for a retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        going_on: Option<String>,
    },
    /// A note about the failure was added for the model.
    ContextInjected {
        /// Place of the note.
        vehicle: String,
        /// The class of the last failure in the note.
        class: FailureClass,
        /// Its length in bytes of UTF-8.
        note_bytes: u64,
    },
    /// No note about the failure could be added for the model.
    ContextInjectionSkipped {
        /// Reason why not.
        reason: String,
        /// The class of the last failure that no note covers.
        class: FailureClass,
    },
    /// Another target was chosen.
    FallbackChosen {
        /// The target that was left.
        from: TargetId,
        /// The class of the failure.
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
        /// Generation that started with it.
        generation: u64,
        /// The state before.
        from: CircuitState,
        /// The outcomes on which it opened.
        evidence: Evidence,
        /// Milliseconds until it probes; `None` while an operator holds it open.
        retry_in_ms: Option<u64>,
        /// The reason, in words.
        reason: String,
        /// Class of the failure that tripped it; `None` if an operator did.
        class: Option<FailureClass>,
        /// Number of times it opened in a row without closing between, this time included.
        streak: u32,
        /// `true` if an operator opened it.
        forced: bool,
    },
    /// A circuit lets probes through.
    CircuitHalfOpen {
        /// Generation that started with it.
        generation: u64,
        /// Time for which it was open, in milliseconds.
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
        /// The outcomes on which it changed.
        evidence: Evidence,
    },
    /// A circuit closed.
    CircuitClosed {
        /// Generation that started with it.
        generation: u64,
        /// The state before.
        from: CircuitState,
        /// The outcomes on which it closed.
        evidence: Evidence,
        /// Milliseconds since it was last closed.
        disturbed_ms: u64,
        /// `true` if an operator closed it.
        forced: bool,
    },
    /// A gate closed.
    GateClosed {
        /// Gate that closed.
        gate: GateKind,
        /// Milliseconds until it opens.
        reopens_in_ms: u64,
        /// Source from which that time was read.
        source: WaitSource,
        /// The class of the failure that closed it.
        class: FailureClass,
        /// Label of the key that it is for, if the provider has a pool of keys.
        key: Option<String>,
    },
    /// A gate opened.
    GateOpened {
        /// Gate that opened.
        gate: GateKind,
        /// Label of the key that it is for, if the provider has a pool of keys.
        key: Option<String>,
        /// Time for which it was closed, in milliseconds.
        closed_ms: u64,
    },
    /// The retry budget of a target is empty.
    BudgetExhausted {
        /// Rest of the budget, in tokens.
        level: f64,
        /// Size of the full budget, in tokens.
        capacity: f64,
    },
    /// A release was decided upon: it was rolled back, promoted, reinstated or held at its place.
    ReleaseDecided {
        /// The target or tool server that it is a version of.
        subject: String,
        /// The release.
        release: String,
        /// Release that takes its traffic; empty if none does.
        to: String,
        /// Decision, and its evidence.
        decision: ReleaseDecision,
    },
    /// A new configuration is in force.
    ConfigurationReloaded {
        /// Grows with every configuration in force; 2 and up.
        generation: u64,
        /// The settings that changed, by path, without their values.
        changed: Vec<String>,
        /// Those among them that are read at the start only, and so are not in force before a
        /// restart.
        #[serde(default)]
        needs_restart: Vec<String>,
    },
    /// A new configuration was refused; the old one stays in force.
    ConfigurationRejected {
        /// Fault of the configuration, in one text.
        reason: String,
        /// The same, one by one.
        faults: Vec<SettingFault>,
    },
    /// A store cannot be reached.
    StoreLost {
        /// The store's name.
        store: String,
        /// Reason why it cannot be reached.
        reason: String,
    },
    /// A store is back.
    StoreFound {
        /// The store's name.
        store: String,
        /// Time for which it was unavailable, in milliseconds.
        lost_ms: u64,
    },
}
