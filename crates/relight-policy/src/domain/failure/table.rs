//! Fixed properties of each failure class, one row a class.
//!
//! A new class is a row here and a value of the contract. Properties that depend on more than the
//! class (its detail, a stated wait, settings) are decided at their point of use.

use serde::{Deserialize, Serialize};

use super::FailureCode;
use crate::domain::circuit::GateKind;

/// Indication of an attempt's failure about the health of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitEffect {
    /// The target failed.
    Failure,
    /// The target failed, and it takes a time limit to see it.
    SlowFailure,
    /// The target works and limits its caller.
    Limit,
    /// Only a working target fails like this.
    Alive,
    /// The caller ended the attempt.
    Cancelled,
    /// It indicates nothing.
    Neutral,
}

/// The fixed properties of one failure class.
#[derive(Debug)]
pub struct ClassRow {
    /// Relight's own phrase; free of upstream text, so it may enter a prompt.
    pub phrase: &'static str,
    /// The code that callers switch on.
    pub code: FailureCode,
    /// If set, a retry at the same target helps, if no rule says otherwise.
    pub retry: bool,
    /// If set, another target helps, if neither a rule nor the detail says otherwise.
    pub fallback: bool,
    /// Indication to the target's circuit.
    pub circuit: CircuitEffect,
    /// The gate that it closes.
    pub gate: Option<GateKind>,
    /// The HTTP status and the error code that the HTTP front returns.
    pub http: (u16, &'static str),
    /// Plain words for an end user.
    pub user: &'static str,
    /// Action that an operator or developer can take.
    pub operator: &'static str,
    /// Action that the model can take about it, if it can do anything.
    pub model: Option<&'static str>,
    /// Relight's own phrase if a tool failed, if it is another one.
    pub tool_phrase: Option<&'static str>,
    /// Plain words for an end user if a tool failed, if they are others.
    pub tool_user: Option<&'static str>,
    /// Action that an operator or developer can take if a tool failed, if it is another one.
    pub tool_operator: Option<&'static str>,
    /// Reason why a tool that failed cannot do what was requested.
    pub tool_why: &'static str,
    /// Means that would make a tool that failed work.
    pub tool_remedies: &'static [&'static str],
}

/// Values that a row has unless it says otherwise.
const BASE: ClassRow = ClassRow {
    phrase: "",
    code: FailureCode::LlmError,
    retry: false,
    fallback: false,
    circuit: CircuitEffect::Neutral,
    gate: None,
    http: (502, "upstream_unknown"),
    user: "",
    operator: "",
    model: None,
    tool_phrase: None,
    tool_user: None,
    tool_operator: None,
    tool_why: "The tool reported a failure of its own.",
    tool_remedies: &[],
};

impl FailureClass {
    /// Returns the fixed properties of the class.
    #[must_use]
    pub const fn row(self) -> &'static ClassRow {
        &ROWS[self as usize]
    }
}

/// Declares the classes with their rows; a class's name is its variant in snake case.
macro_rules! classes {
    ($($(#[$attribute:meta])* $class:ident { $($row:tt)* })+) => {
        /// The kind of a failure; the only property of it that policies and metrics match on.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize,
            Deserialize, strum::EnumString, strum::IntoStaticStr,
        )]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum FailureClass { $($(#[$attribute])* $class),+ }

        impl FailureClass {
            /// Every class, in the order of the documentation.
            pub const ALL: [Self; ROWS.len()] = [$(Self::$class),+];
        }

        /// All rows, in the order of the classes.
        const ROWS: &[ClassRow] = &[$(ClassRow { $($row)* ..BASE }),+];
    };
}

classes! {
    /// The caller's request, token or concurrency limit was reached.
    RateLimited {
        phrase: "Rate limit reached",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Limit,
        gate: Some(GateKind::Rate),
        http: (429, "rate_limit_exceeded"),
        user: "The limit of requests was reached.",
        operator: "Space out or reduce requests, or raise the provider's request or token limit.",
        tool_user: Some("The tool takes no more calls for now: its limit was reached."),
        tool_operator: Some("Space out or reduce calls, or raise the limit of the tool's server."),
        tool_why: "The tool takes no more calls for now: its limit was reached.",
        tool_remedies: &["Time: the same call later.", "A smaller request."],
    }
    /// Credits, billing, plan or long-window quota are used up.
    QuotaExceeded {
        phrase: "Quota or credits used up",
        fallback: true,
        gate: Some(GateKind::Credential),
        http: (429, "insufficient_quota"),
        user: "The account's credits or quota are used up.",
        operator: "Check the account's credits, plan and spending limits at the provider.",
        tool_user: Some("What the account may use of this tool is used up."),
        tool_operator: Some("Check the account's plan and limits at the tool's server."),
        tool_why: "What the account may use of this tool is used up.",
        tool_remedies: &["More quota for the account, or the next period."],
    }
    /// The provider is out of capacity.
    Overloaded {
        phrase: "The provider is overloaded",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Failure,
        http: (503, "overloaded"),
        user: "The model's provider is at capacity. Please try again shortly.",
        operator: "The provider is at capacity: wait, or add a fallback target.",
        tool_phrase: Some("The tool's server is overloaded"),
        tool_user: Some("The tool is at capacity. Please try again shortly."),
        tool_operator: Some("The tool server is at capacity: wait, or declare an alternative in `tools.groups`."),
        tool_why: "The tool's server has more to do than it can.",
        tool_remedies: &["Time: the same call later.", "A smaller request."],
    }
    /// The provider failed internally, nothing more is known.
    ServerError {
        phrase: "The provider failed internally",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Failure,
        http: (502, "upstream_error"),
        user: "The model's provider had an internal failure. Please try again.",
        operator: "The provider failed internally: retry, and see its status page if it lasts.",
        tool_phrase: Some("The tool failed internally"),
        tool_user: Some("The tool had an internal failure. Please try again."),
        tool_operator: Some("The tool failed internally: see its server's log."),
        tool_remedies: &["The same call once the tool's server is well again."],
    }
    /// No response in time.
    Timeout {
        phrase: "Request timeout",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::SlowFailure,
        http: (504, "timeout"),
        user: "The model took too long to answer. Please try again, or request less at once.",
        operator: "Raise the timeout, reduce the task, or add a faster target.",
        model: Some("Be shorter and simpler."),
        tool_user: Some("The tool took too long. Please try again, or ask for less at once."),
        tool_operator: Some("Raise the tool's timeout, ask for less at once, or declare which argument can be split."),
        tool_why: "The tool did not finish in time.",
        tool_remedies: &["A smaller request, such as a shorter range or fewer results."],
    }
    /// The connection failed.
    Network {
        phrase: "Connection failed",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Failure,
        http: (502, "upstream_unreachable"),
        user: "The model's provider could not be reached. Please try again.",
        operator: "Check connectivity, the endpoint's address, DNS, proxies and certificates.",
        tool_user: Some("The tool could not be reached. Please try again."),
        tool_operator: Some("Check that the tool server runs, its address and its log."),
        tool_why: "The tool's server could not be reached, or the connection to it broke.",
        tool_remedies: &["The same call once the tool's server is well again."],
    }
    /// The process behind the provider died.
    Crash {
        phrase: "The model process exited",
        fallback: true,
        circuit: CircuitEffect::Failure,
        http: (502, "upstream_crashed"),
        user: "The model stopped running. It has to be started again.",
        operator: "The model's process died: check its memory and logs, then restart it.",
        tool_phrase: Some("The tool's process exited"),
        tool_user: Some("The tool stopped while it worked. Please try again."),
        tool_operator: Some("The tool server's process ended: see its log; it is started again."),
        tool_why: "The tool's process ended before it was done.",
        tool_remedies: &["The same call once the tool's server is well again."],
    }
    /// The credential was refused.
    Authentication {
        phrase: "The credential was refused",
        fallback: true,
        gate: Some(GateKind::Credential),
        http: (502, "upstream_authentication"),
        user: "The model's provider did not accept the credentials.",
        operator: "Check the key or token of this target: it was refused, missing or has expired.",
        tool_user: Some("The tool's server did not accept the credentials."),
        tool_operator: Some("Check the key or token of this tool server: it was refused, missing or has expired."),
        tool_why: "The tool's server did not accept the credentials, so that repeating the call changes nothing.",
        tool_remedies: &["A new sign-in, or a valid key for the tool's server."],
    }
    /// A known caller is not allowed to do this.
    PermissionDenied {
        phrase: "Permission denied",
        fallback: true,
        http: (502, "upstream_permission"),
        user: "This is not allowed for the account in use.",
        operator: "The caller is known but not allowed: check model access, region, scopes, network rules and the plan.",
        tool_user: Some("The tool is not allowed to do this with the account in use."),
        tool_operator: Some("The account in use may not do this: ask with an account that may, or for other data."),
        tool_why: "The account in use is not allowed to do this: it is a limit of access and not a fault of the tool, so that repeating it changes nothing.",
        tool_remedies: &["Access that its owner, or an administrator, grants to the account in use.", "Another request for data that the account may see, such as its own or what is public."],
    }
    /// The request is wrong.
    InvalidRequest {
        phrase: "The request was refused as invalid",
        http: (400, "invalid_request"),
        user: "The request could not be understood by the model's provider.",
        operator: "The request is wrong: see the message for the field and what was expected.",
        model: Some("Correct the arguments; do not repeat the identical call."),
        tool_user: Some("The tool could not be called like this."),
        tool_operator: Some("Compare the arguments with the tool's schema."),
        tool_why: "The tool does not take these arguments.",
        tool_remedies: &["Arguments that fit the tool's schema."],
    }
    /// The prompt, or prompt plus answer, is too long.
    ContextLength {
        phrase: "The prompt is too long",
        fallback: true,
        http: (400, "context_length_exceeded"),
        user: "The conversation is too long for this model. Please shorten it.",
        operator: "Shorten the prompt or the answer's limit, or name a target with a larger context.",
        tool_phrase: Some("Too much for the tool at once"),
        tool_user: Some("The tool was given too much at once."),
        tool_operator: Some("Ask for less at once, or declare in `tools.tools` which argument can be split."),
        tool_why: "The call, or what it returns, is larger than the tool allows.",
        tool_remedies: &["A smaller request, such as a shorter range or fewer results."],
    }
    /// Refused by the provider's safety policy.
    ContentFiltered {
        phrase: "Refused by the provider's content policy",
        fallback: true,
        circuit: CircuitEffect::Alive,
        http: (400, "content_filter"),
        user: "The request was refused by the provider's content policy. Please rephrase it.",
        operator: "The provider's policy refused the content: change the prompt, or see its safety settings.",
        tool_phrase: Some("Refused by the tool's own policy"),
        tool_user: Some("The tool's own policy refuses this content. Please rephrase it."),
        tool_operator: Some("The tool's policy refused the content: change the arguments."),
        tool_why: "The tool's own policy refuses the content.",
        tool_remedies: &["Other content."],
    }
    /// The model, deployment, tool or resource does not exist.
    NotFound {
        phrase: "The model or resource was not found",
        fallback: true,
        gate: Some(GateKind::Configuration),
        http: (404, "model_not_found"),
        user: "The requested model or resource does not exist.",
        operator: "No such model, deployment or route: check the name, the endpoint and whether it was retired.",
        tool_phrase: Some("The tool or resource was not found"),
        tool_user: Some("What the tool was asked for does not exist."),
        tool_operator: Some("No such tool or resource: compare the name with those that exist."),
        tool_why: "What the call names does not exist for this tool.",
        tool_remedies: &["A name or id that exists: list what there is first."],
    }
    /// A response came but cannot be used.
    MalformedResponse {
        phrase: "The answer could not be used",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Alive,
        http: (502, "upstream_malformed_response"),
        user: "The model gave an answer that could not be used. Please try again.",
        operator: "The answer was unusable: retry, and check that the endpoint speaks the expected dialect.",
        model: Some("Answer in the requested format."),
        tool_phrase: Some("The tool's result could not be used"),
        tool_user: Some("The tool's result could not be used."),
        tool_operator: Some("The tool returned what its protocol does not allow: see its server's log."),
        tool_why: "What the tool returned could not be used.",
    }
    /// Something on this side is not configured or not started.
    Configuration {
        phrase: "Not configured",
        code: FailureCode::StateError,
        fallback: true,
        http: (500, "configuration"),
        user: "The model is not set up or not started.",
        operator: "Something is not configured or not started: set the key, the endpoint or start the server.",
        tool_user: Some("The tool is not set up or not started."),
        tool_operator: Some("Set up the tool's server under `tools.servers`, or start it."),
        tool_why: "The tool is not set up.",
        tool_remedies: &["A tool that its operator has set up."],
    }
    /// The caller or a user cancelled.
    Cancelled {
        phrase: "Cancelled",
        code: FailureCode::ApprovalRejected,
        circuit: CircuitEffect::Cancelled,
        http: (499, "cancelled"),
        user: "The request was cancelled. Nothing more was done.",
        operator: "Nothing to do: a person stopped it.",
    }
    /// A person rejected the action.
    ApprovalRejected {
        phrase: "Rejected by approval",
        code: FailureCode::ApprovalRejected,
        circuit: CircuitEffect::Cancelled,
        http: (403, "approval_rejected"),
        user: "The action was not approved. Nothing was done.",
        operator: "Nothing to do: a person stopped it.",
    }
    /// A tool failed.
    ToolFailed {
        phrase: "The tool failed",
        code: FailureCode::ToolError,
        circuit: CircuitEffect::Failure,
        user: "A tool could not do what was requested.",
        operator: "See the tool's logs.",
        model: Some("Do not repeat the identical call."),
    }
    /// Something may or may not have happened.
    OutcomeUnknown {
        phrase: "The outcome is unknown",
        code: FailureCode::ToolError,
        circuit: CircuitEffect::Failure,
        user: "It is not known whether the action took place.",
        operator: "Check by hand whether the action took place before it is repeated.",
    }
    /// The response was cut, stalled, or ended without its end mark.
    StreamInterrupted {
        phrase: "The answer was interrupted",
        code: FailureCode::StreamingError,
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Failure,
        http: (502, "stream_interrupted"),
        user: "The connection was interrupted before the answer was complete.",
        operator: "The connection broke while the answer streamed: check proxies' idle timeouts.",
        tool_phrase: Some("The connection to the tool broke"),
        tool_user: Some("The connection to the tool broke."),
        tool_operator: Some("The connection to the tool server broke: see its log."),
        tool_why: "The tool's server could not be reached, or the connection to it broke.",
        tool_remedies: &["The same call once the tool's server is well again."],
    }
    /// The state store failed.
    State {
        phrase: "The state store failed",
        code: FailureCode::StateError,
        retry: true,
        http: (500, "state"),
        user: "The conversation could not be stored.",
        operator: "Check the state store.",
    }
    /// A conversation could not be loaded or saved.
    Checkpoint {
        phrase: "The conversation could not be loaded or saved",
        code: FailureCode::ContextError,
        http: (500, "state"),
        user: "The conversation could not be loaded or saved.",
        operator: "Check the state store.",
    }
    /// An auxiliary store failed.
    Cache {
        phrase: "An auxiliary store failed",
        code: FailureCode::CacheError,
        retry: true,
        operator: "Nothing: work continues without it.",
    }
    /// Refused locally: the target's circuit is open, or a gate is closed.
    CircuitOpen {
        phrase: "Not available now",
        retry: true,
        fallback: true,
        http: (503, "no_target_available"),
        user: "No model is available right now. Please try again later.",
        operator: "All targets are resting: see their circuits.",
        tool_user: Some("The tool cannot be called right now. Please try again later."),
        tool_why: "The tool is not called for now, because it failed too often.",
        tool_remedies: &["Time: the same call later.", "A smaller request."],
    }
    /// Refused locally: too much work.
    Shed {
        phrase: "Too much work at once",
        retry: true,
        fallback: true,
        http: (429, "shed"),
        user: "No model is available right now. Please try again later.",
        operator: "Too much work at once: raise the limits or send less.",
        tool_user: Some("The tool cannot be called right now. Please try again later."),
        tool_why: "The tool is not called for now, because it failed too often.",
        tool_remedies: &["Time: the same call later.", "A smaller request."],
    }
    /// Refused locally: the retry budget is empty.
    BudgetEmpty {
        phrase: "The retry budget is empty",
        fallback: true,
        http: (503, "no_target_available"),
        user: "No model is available right now. Please try again later.",
        operator: "Retries are used up for now: the provider is failing often.",
        tool_user: Some("The tool cannot be called right now. Please try again later."),
        tool_operator: Some("Retries are used up for now: the tool is failing often."),
        tool_why: "The tool is not called for now, because it failed too often.",
        tool_remedies: &["Time: the same call later.", "A smaller request."],
    }
    /// Refused locally: no time left.
    Deadline {
        phrase: "The deadline was reached",
        fallback: true,
        http: (504, "timeout"),
        user: "There was not enough time left to answer.",
        operator: "Give the call a longer deadline.",
        tool_user: Some("There was not enough time left for the tool."),
        tool_why: "The tool did not finish in time.",
        tool_remedies: &["A smaller request, such as a shorter range or fewer results."],
    }
    /// Cannot be decided from what is known.
    #[default]
    Unknown {
        phrase: "An unknown error",
        retry: true,
        fallback: true,
        circuit: CircuitEffect::Failure,
        user: "Something went wrong while calling the model.",
        operator: "See the trace: nothing known fits this failure.",
        tool_user: Some("Something went wrong while calling the tool."),
    }
}
