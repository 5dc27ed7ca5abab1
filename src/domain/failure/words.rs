//! Messages of a failure: plain words for an end user, and for an operator what to do.
//!
//! Both are Relight's own sentences without upstream text, with the limit's wait where one is stated.

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
pub fn for_operator(class: C, detail: Option<D>, wait: Option<&str>, tool: bool) -> Cow<'static, str> {
    let words = match (class, detail) {
        (C::ServerError, _) if tool => "The tool failed internally: see its logs.",
        (C::NotFound, _) if tool => "No such tool or resource: compare the name with those that exist.",
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
