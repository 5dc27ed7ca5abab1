//! Messages of a failure: plain words for an end user, and the actions to take for an operator.
//!
//! Both are Relight's own sentences without upstream text, with the limit's wait if one is stated.

use std::{borrow::Cow, time::Duration};

use super::{FailureClass as C, InvalidRequestDetail as D, Wait};

/// Plain words for an end user; `wait` is text from [`wait_text`], and `tool` is set if a tool failed.
pub fn for_user(class: C, wait: Option<&str>, tool: bool) -> Cow<'static, str> {
    let words = match class.row().tool_user {
        Some(words) if tool => words,
        _ => class.row().user,
    };
    match (class, wait) {
        (C::RateLimited, None) if !tool => Cow::Owned([words, " Please wait a moment."].concat()),
        (C::RateLimited | C::QuotaExceeded | C::Overloaded, Some(wait)) => {
            Cow::Owned([words, " It frees up in ", wait, "."].concat())
        }
        _ => Cow::Borrowed(words),
    }
}

/// Returns the action that an operator or developer can take.
pub fn for_operator(
    class: C,
    detail: Option<D>,
    wait: Option<&str>,
    tool: bool,
) -> Cow<'static, str> {
    let words = match (class, detail) {
        (C::InvalidRequest, Some(D::ParameterMismatch)) => {
            "The arguments do not fit the function: compare their names with its schema."
        }
        (C::InvalidRequest, Some(D::MessageOrder)) if !tool => {
            "Put roles, tool calls and their results into the order the provider expects."
        }
        (C::InvalidRequest, Some(D::UnsupportedParameter)) if !tool => {
            "This model or provider does not take a parameter or feature: drop it, or name another target."
        }
        (C::InvalidRequest, Some(D::BadSchema)) if !tool => {
            "The body or a tool's schema is malformed: compare the named field with the documentation."
        }
        _ => match class.row().tool_operator {
            Some(words) if tool => words,
            _ => class.row().operator,
        },
    };
    match wait {
        Some(wait) => Cow::Owned([words, " Stated wait: ", wait, "."].concat()),
        None => Cow::Borrowed(words),
    }
}

/// Returns Relight's own phrase if a tool failed.
#[must_use]
pub const fn phrase_of_tool(class: C) -> &'static str {
    match class.row().tool_phrase {
        Some(phrase) => phrase,
        None => class.row().phrase,
    }
}

/// Returns a stated wait as text for people; `None` for a wait of zero.
pub fn wait_text(wait: Wait) -> Option<String> {
    duration_text(wait.duration)
}

/// Returns a duration as text for people, rounded up to whole seconds; `None` for zero.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::failure::{Failure, ProviderError, Surface},
        policy::classify::Classifier,
    };

    #[test]
    fn what_is_said_of_a_tool_speaks_of_no_model_provider_or_prompt() {
        for class in C::ALL {
            let failure = Failure::local(class, "it failed").of_tool("pay");
            let texts = [
                failure.phrase(),
                &failure.user_message,
                &failure.recovery_hint,
            ];
            assert_speak_of_no_model(class, &texts);
        }
    }

    #[test]
    fn what_is_judged_of_a_tool_speaks_of_no_model_provider_or_prompt() {
        let texts = [
            "HTTP 500: Internal Server Error",
            "HTTP 429: Too Many Requests, retry in 3s",
            "HTTP 422: Unprocessable Entity",
            "this option is not supported",
            "context deadline exceeded",
            "Access is denied.",
        ];
        for text in texts {
            let error = ProviderError {
                surface: Surface::Tool,
                message: Some(text.to_owned()),
                ..ProviderError::default()
            };
            let failure = Classifier::new().classify(&error, jiff::Timestamp::UNIX_EPOCH);
            let shown = [&*failure.user_message, &*failure.recovery_hint];
            assert_speak_of_no_model(failure.class, &shown);
        }
    }

    fn assert_speak_of_no_model(class: C, texts: &[&str]) {
        for text in texts {
            let words = text.to_lowercase();
            let of_models = ["model", "provider", "prompt", "answer"];
            let found = of_models.iter().find(|word| words.contains(**word));
            assert_eq!(found, None, "{class}: {text}");
        }
    }
}
