//! What people are told: plain words for an end user, and for an operator what to do.
//!
//! Never repeats upstream text: both are Relight's own sentences, with the limit's wait where one is stated.

use std::{borrow::Cow, time::Duration};

use super::{FailureClass as C, InvalidRequestDetail as D, Wait};

/// Plain words for an end user; `wait` as it is [`spoken`] of.
pub fn for_user(class: C, wait: Option<&str>) -> Cow<'static, str> {
    let words = match class {
        C::RateLimited if wait.is_none() => "The limit of requests was reached. Please wait a moment.",
        C::RateLimited => "The limit of requests was reached.",
        C::QuotaExceeded => "The account's credits or quota are used up.",
        C::Overloaded => "The model's provider is at capacity. Please try again shortly.",
        C::ServerError => "The model's provider had an internal failure. Please try again.",
        C::Timeout => "The model took too long to answer. Please try again, or ask for less at once.",
        C::Network => "The model's provider could not be reached. Please try again.",
        C::Crash => "The model stopped running. It has to be started again.",
        C::Authentication => "The model's provider did not accept the credentials.",
        C::PermissionDenied => "This is not allowed for the account in use.",
        C::InvalidRequest => "The request could not be understood by the model's provider.",
        C::ContextLength => "The conversation is too long for this model. Please shorten it.",
        C::ContentFiltered => "The request was refused by the provider's content policy. Please rephrase it.",
        C::NotFound => "The model or resource that was asked for does not exist.",
        C::MalformedResponse => "The model gave an answer that could not be used. Please try again.",
        C::Configuration => "The model is not set up or not started.",
        C::Cancelled => "The request was cancelled. Nothing more was done.",
        C::ApprovalRejected => "The action was not approved. Nothing was done.",
        C::ToolFailed => "A tool could not do what was asked.",
        C::OutcomeUnknown => "It is not known whether the action took place.",
        C::StreamInterrupted => "The connection was interrupted before the answer was complete.",
        C::State => "The conversation could not be stored.",
        C::Checkpoint => "The conversation could not be loaded or saved.",
        C::Cache => "",
        C::CircuitOpen | C::Shed | C::BudgetEmpty => "No model is available right now. Please try again later.",
        C::Deadline => "There was not enough time left to answer.",
        C::Unknown => "Something went wrong while asking the model.",
    };
    match (class, wait) {
        (C::RateLimited | C::QuotaExceeded | C::Overloaded, Some(wait)) => {
            Cow::Owned([words, " It frees up in ", wait, "."].concat())
        }
        _ => Cow::Borrowed(words),
    }
}

/// What an operator or developer can do.
pub fn for_operator(class: C, detail: Option<D>, wait: Option<&str>, tool: bool) -> Cow<'static, str> {
    let words = match class {
        C::RateLimited => "Space out or reduce requests, or raise the provider's request or token limit.",
        C::QuotaExceeded => "Check the account's credits, plan and spending limits at the provider.",
        C::Overloaded => "The provider is at capacity: wait, or add a fallback target.",
        C::ServerError if tool => "The tool failed internally: see its logs.",
        C::ServerError => "The provider failed internally: retry, and see its status page if it lasts.",
        C::Timeout => "Raise the timeout, reduce the task, or add a faster target.",
        C::Network => "Check connectivity, the endpoint's address, DNS, proxies and certificates.",
        C::Crash => "The model's process died: check its memory and logs, then restart it.",
        C::Authentication => "Check the key or token of this target: it was refused, missing or has expired.",
        C::PermissionDenied => {
            "The caller is known but not allowed: check model access, region, scopes, network rules and the plan."
        }
        C::InvalidRequest => match detail {
            Some(D::ParameterMismatch) => "The arguments do not fit the function: compare their names with its schema.",
            Some(D::MessageOrder) => "Put roles, tool calls and their results into the order the provider expects.",
            Some(D::UnsupportedParameter) => {
                "This model or provider does not take a parameter or feature: drop it, or name another target."
            }
            Some(D::BadSchema) => {
                "The body or a tool's schema is malformed: compare the named field with the documentation."
            }
            Some(D::Other) | None => "The request is wrong: see the message for the field and what was expected.",
        },
        C::ContextLength => "Shorten the prompt or the answer's limit, or name a target with a larger context.",
        C::ContentFiltered => {
            "The provider's policy refused the content: change the prompt, or see its safety settings."
        }
        C::NotFound if tool => "No such tool or resource: compare the name with those that exist.",
        C::NotFound => "No such model, deployment or route: check the name, the endpoint and whether it was retired.",
        C::MalformedResponse => {
            "The answer was unusable: retry, and check that the endpoint speaks the expected dialect."
        }
        C::Configuration => {
            "Something is not configured or not started: set the key, the endpoint or start the server."
        }
        C::Cancelled | C::ApprovalRejected => "Nothing to do: somebody stopped it.",
        C::ToolFailed => "See the tool's logs.",
        C::OutcomeUnknown => "Check by hand whether the action took place before it is repeated.",
        C::StreamInterrupted => "The connection broke while the answer streamed: check proxies' idle timeouts.",
        C::State | C::Checkpoint => "Check the state store.",
        C::Cache => "Nothing: work goes on without it.",
        C::CircuitOpen => "All targets are resting: see their circuits.",
        C::Shed => "Too much work at once: raise the limits or send less.",
        C::BudgetEmpty => "Retries are used up for now: the provider is failing often.",
        C::Deadline => "Give the call a longer deadline.",
        C::Unknown => "See the trace: nothing known fits this failure.",
    };
    match wait {
        Some(wait) => Cow::Owned([words, " Stated wait: ", wait, "."].concat()),
        None => Cow::Borrowed(words),
    }
}

/// A stated wait as people tell it; none at all is not told.
pub fn spoken(wait: Wait) -> Option<String> {
    spoken_for(wait.duration)
}

/// A duration as people tell it, in whole seconds at least; none at all is not told.
pub fn spoken_for(duration: Duration) -> Option<String> {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (count, unit) = match seconds {
        0 => return None,
        1..=119 => (seconds, " s"),
        120..=7199 => (seconds.div_ceil(60), " min"),
        _ => (seconds.div_ceil(3600), " h"),
    };
    Some(count.to_string() + unit)
}
