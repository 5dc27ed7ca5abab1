//! Messages of a failure: plain words for an end user, and for an operator what to do.
//!
//! Both are Relight's own sentences without upstream text, with the limit's wait where one is
//! stated.

use std::{borrow::Cow, time::Duration};

use super::{FailureClass as C, InvalidRequestDetail as D, Wait};

/// Plain words for an end user; `wait` is text from [`wait_text`].
pub fn for_user(class: C, wait: Option<&str>) -> Cow<'static, str> {
    match (class, wait) {
        (C::RateLimited, None) => Cow::Owned([class.row().user, " Please wait a moment."].concat()),
        (C::RateLimited | C::QuotaExceeded | C::Overloaded, Some(wait)) => {
            Cow::Owned([class.row().user, " It frees up in ", wait, "."].concat())
        }
        _ => Cow::Borrowed(class.row().user),
    }
}

/// What an operator or developer can do.
pub fn for_operator(
    class: C,
    detail: Option<D>,
    wait: Option<&str>,
    tool: bool,
) -> Cow<'static, str> {
    let words = match (class, detail) {
        (C::ServerError, _) if tool => "The tool failed internally: see its logs.",
        (C::NotFound, _) if tool => {
            "No such tool or resource: compare the name with those that exist."
        }
        (C::InvalidRequest, Some(D::ParameterMismatch)) => {
            "The arguments do not fit the function: compare their names with its schema."
        }
        (C::InvalidRequest, Some(D::MessageOrder)) => {
            "Put roles, tool calls and their results into the order the provider expects."
        }
        (C::InvalidRequest, Some(D::UnsupportedParameter)) => {
            "This model or provider does not take a parameter or feature: drop it, or name another target."
        }
        (C::InvalidRequest, Some(D::BadSchema)) => {
            "The body or a tool's schema is malformed: compare the named field with the documentation."
        }
        _ => class.row().operator,
    };
    match wait {
        Some(wait) => Cow::Owned([words, " Stated wait: ", wait, "."].concat()),
        None => Cow::Borrowed(words),
    }
}

/// Plain words for an end user where a tool failed; `None` where those of a model fit.
pub const fn for_user_of_tool(class: C) -> Option<&'static str> {
    Some(match class {
        C::Overloaded => "The tool is at capacity. Please try again shortly.",
        C::ServerError => "The tool had an internal failure. Please try again.",
        C::Timeout => "The tool took too long. Please try again, or ask for less at once.",
        C::Network => "The tool could not be reached. Please try again.",
        C::Crash => "The tool stopped while it worked. Please try again.",
        C::PermissionDenied => "The tool is not allowed to do this with the account in use.",
        C::InvalidRequest => "The tool could not be called like this.",
        C::ContextLength => "The tool was given too much at once.",
        C::NotFound => "What the tool was asked for does not exist.",
        C::MalformedResponse => "The tool's result could not be used.",
        C::StreamInterrupted => "The connection to the tool broke.",
        _ => return None,
    })
}

/// What an operator or developer can do where a tool failed; `None` where the words for a model
/// fit.
pub const fn for_operator_of_tool(class: C) -> Option<&'static str> {
    Some(match class {
        C::Overloaded => {
            "The tool server is at capacity: wait, or declare an alternative in `tools.groups`."
        }
        C::ServerError => "The tool failed internally: see its server's log.",
        C::Timeout => {
            "Raise the tool's timeout, ask for less at once, or declare which argument can be split."
        }
        C::Network => "Check that the tool server runs, its address and its log.",
        C::Crash => "The tool server's process ended: see its log; it is started again.",
        C::PermissionDenied => {
            "The account in use may not do this: ask with an account that may, or for other data."
        }
        C::InvalidRequest => "Compare the arguments with the tool's schema.",
        C::NotFound => "No such tool or resource: compare the name with those that exist.",
        C::MalformedResponse => {
            "The tool returned what its protocol does not allow: see its server's log."
        }
        C::StreamInterrupted => "The connection to the tool server broke: see its log.",
        _ => return None,
    })
}

/// A stated wait as text for people; `None` for a wait of zero.
pub fn wait_text(wait: Wait) -> Option<String> {
    duration_text(wait.duration)
}

/// A duration as text for people, rounded up to whole seconds; `None` for zero.
pub fn duration_text(duration: Duration) -> Option<String> {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let (count, unit) = match seconds {
        0 => return None,
        1..=119 => (seconds, " s"),
        120..=7199 => (seconds.div_ceil(60), " min"),
        _ => (seconds.div_ceil(3600), " h"),
    };
    Some(count.to_string() + unit)
}
