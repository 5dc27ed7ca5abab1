//! What the headers of a request demand, and what the headers of a response say.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::{
    domain::{
        ids::{InvocationId, MAX_ID_BYTES, Operation, RequestId, TargetId, ThreadId},
        invocation::{AttemptRecord, DEFAULT_OPERATION, Outcome, TraceContext},
        units,
    },
    engine::TARGETS_HEADER,
};

/// Longest name of an operation, as on the gRPC API.
const MAX_OPERATION_BYTES: usize = 64;

/// Headers by which programs name their session: Claude Code's, Codex's, opencode's.
const SESSIONS: [&str; 5] = [
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "x-opencode-session",
    "x-session-affinity",
];

/// Most betas of a request, and the longest name of one, in bytes.
const MAX_BETAS: (usize, usize) = (64, 128);

/// Settings that the headers of a request ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHeaders {
    /// `x-relight-operation`.
    pub(super) operation: Operation,
    /// `x-relight-max-retries`.
    pub(super) max_retries: Option<u32>,
    /// `x-relight-targets`: the targets to ask, in this order, separated by commas.
    pub(super) targets: Vec<TargetId>,
    /// `x-relight-affinity`: the conversation that is to stay at one target.
    pub(super) affinity: Option<String>,
    /// The session that the caller's program names.
    pub(super) session: Option<String>,
    /// `x-relight-deadline-ms`, or `x-request-timeout` in seconds or with a unit.
    pub(super) time_allowed: Option<Duration>,
    /// `idempotency-key`.
    pub(super) request_id: Option<RequestId>,
    /// `x-relight-thread`.
    pub(super) thread: Option<ThreadId>,
    /// W3C trace context.
    pub(super) trace: TraceContext,
}

/// Facts that the headers of a response state about its invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseHeaders {
    /// `x-relight-invocation`, `x-request-id` and `request-id`.
    pub(super) invocation: InvocationId,
    /// `x-relight-attempts`: those begun so far.
    pub(super) attempts: u32,
    /// `x-relight-target`: target that answers, if that is certain; for a stream that just starts,
    /// the target that was called last.
    pub(super) target: Option<TargetId>,
    /// `x-relight-adapted`: changes to the request so that a model takes it, in words; none if
    /// there were none.
    pub(super) adapted: Vec<String>,
}

/// A header that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderFault {
    /// Its name.
    pub(super) name: &'static str,
    /// Reason, such as "is no whole number".
    pub(super) reason: String,
}

// === impl RequestHeaders ===

impl RequestHeaders {
    /// Reads them.
    ///
    /// # Errors
    /// When one of Relight's own headers cannot be read.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, HeaderFault> {
        let operation = identifier(headers, "x-relight-operation")?.unwrap_or(DEFAULT_OPERATION);
        if operation.len() > MAX_OPERATION_BYTES {
            return Err(fault(
                "x-relight-operation",
                &format!("is longer than {MAX_OPERATION_BYTES} bytes"),
            ));
        }
        let max_retries = text(headers, "x-relight-max-retries")?
            .map(|number| {
                number
                    .parse()
                    .map_err(|_| fault("x-relight-max-retries", "is no whole number"))
            })
            .transpose()?;
        Ok(Self {
            operation: Operation::from(operation),
            max_retries,
            targets: targets(headers)?,
            affinity: identifier(headers, "x-relight-affinity")?.map(str::to_owned),
            // They are others' headers: what cannot be used is passed over.
            session: SESSIONS
                .into_iter()
                .find_map(|name| identifier(headers, name).ok()?)
                .map(str::to_owned),
            time_allowed: time_allowed(headers)?,
            request_id: identifier(headers, "idempotency-key")?.map(RequestId::from),
            thread: identifier(headers, "x-relight-thread")?.map(ThreadId::from),
            trace: trace_context(headers),
        })
    }
}

/// Returns the betas of Anthropic's API that a request names in `anthropic-beta`, each
/// once.
///
/// # Errors
/// Returns an error if one is not plain text, or they are too many or too long.
pub(super) fn betas(headers: &HeaderMap) -> Result<Vec<String>, HeaderFault> {
    let (name, (most, longest)) = ("anthropic-beta", MAX_BETAS);
    let mut betas: Vec<String> = Vec::new();
    for value in headers.get_all(name) {
        let text = value
            .to_str()
            .ok()
            .filter(|text| !text.chars().any(char::is_control));
        let named = text
            .ok_or_else(|| fault(name, "is no plain text"))?
            .split(',')
            .map(str::trim);
        for beta in named.filter(|beta| !beta.is_empty()) {
            if beta.len() > longest {
                return Err(fault(
                    name,
                    &format!("has a name that is longer than {longest} bytes"),
                ));
            }
            if betas.iter().all(|known| known != beta) {
                betas.push(beta.to_owned());
            }
            if betas.len() > most {
                return Err(fault(name, &format!("has more than {most} names")));
            }
        }
    }
    Ok(betas)
}

/// Returns the caller's own chain.
fn targets(headers: &HeaderMap) -> Result<Vec<TargetId>, HeaderFault> {
    let Some(names) = text(headers, TARGETS_HEADER)?.filter(|names| !names.is_empty()) else {
        return Ok(Vec::new());
    };
    let named = names.split(',').map(str::trim).map(|name| match name {
        "" => Err(fault(TARGETS_HEADER, "has an empty name")),
        long if long.len() > MAX_ID_BYTES => Err(fault(
            TARGETS_HEADER,
            &format!("has a name that is longer than {MAX_ID_BYTES} bytes"),
        )),
        name => Ok(TargetId::from(name)),
    });
    named.collect()
}

// === impl ResponseHeaders ===

impl ResponseHeaders {
    /// Those of an invocation that is over.
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            invocation: outcome.invocation.clone(),
            attempts: u32::try_from(outcome.attempts.len()).unwrap_or(u32::MAX),
            target: outcome.target.clone(),
            adapted: outcome
                .attempts
                .iter()
                .flat_map(AttemptRecord::changes)
                .cloned()
                .collect(),
        }
    }

    /// Returns the changes to the request, in words; `None` if there were none.
    pub(super) fn changes(&self) -> Option<String> {
        (!self.adapted.is_empty()).then(|| self.adapted.join("; "))
    }

    /// Writes them.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::from_str(self.invocation.as_str()) {
            // The official SDKs show these in their errors: OpenAI's the first, Anthropic's the
            // second.
            headers.insert(HeaderName::from_static("x-request-id"), id.clone());
            headers.insert(HeaderName::from_static("request-id"), id.clone());
            headers.insert(HeaderName::from_static("x-relight-invocation"), id);
        }
        headers.insert(
            HeaderName::from_static("x-relight-attempts"),
            HeaderValue::from(self.attempts),
        );
        if let Some(Ok(target)) = self
            .target
            .as_ref()
            .map(|target| HeaderValue::from_str(target.as_str()))
        {
            headers.insert(HeaderName::from_static("x-relight-target"), target);
        }
        if let Some(Ok(words)) = self.changes().map(|words| HeaderValue::from_str(&words)) {
            headers.insert(HeaderName::from_static("x-relight-adapted"), words);
        }
    }
}

fn fault(name: &'static str, reason: &str) -> HeaderFault {
    HeaderFault {
        name,
        reason: reason.to_owned(),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, HeaderFault> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    value
        .to_str()
        .map(|text| Some(text.trim()))
        .map_err(|_| fault(name, "is no plain text"))
}

fn identifier<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, HeaderFault> {
    let text = text(headers, name)?.filter(|text| !text.is_empty());
    if text.is_some_and(|text| text.len() > MAX_ID_BYTES) {
        return Err(fault(name, &format!("is longer than {MAX_ID_BYTES} bytes")));
    }
    if text.is_some_and(|text| text.chars().any(char::is_control)) {
        return Err(fault(name, "holds control characters"));
    }
    Ok(text)
}

fn time_allowed(headers: &HeaderMap) -> Result<Option<Duration>, HeaderFault> {
    let (name, time) = if let Some(millis) = text(headers, "x-relight-deadline-ms")? {
        (
            "x-relight-deadline-ms",
            millis.parse().ok().map(Duration::from_millis),
        )
    } else if let Some(time) = text(headers, "x-request-timeout")? {
        let seconds = time
            .parse::<f64>()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        (
            "x-request-timeout",
            seconds.or_else(|| units::parse_duration(time).ok()),
        )
    } else {
        return Ok(None);
    };
    match time {
        Some(time) if !time.is_zero() => Ok(Some(time)),
        Some(_) | None => Err(fault(name, "is no time above zero")),
    }
}

fn trace_context(headers: &HeaderMap) -> TraceContext {
    // Both lists may come in several pieces, which W3C says to join by commas in order.
    let joined = |name: &str| {
        let pieces: Vec<&str> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        (!pieces.is_empty()).then(|| pieces.join(","))
    };
    let traceparent = headers
        .get("traceparent")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    TraceContext {
        traceparent,
        tracestate: joined("tracestate"),
        baggage: joined("baggage"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &'static str)]) -> Result<RequestHeaders, HeaderFault> {
        let headers = pairs.iter().map(|&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        RequestHeaders::read(&headers.collect())
    }

    #[test]
    fn headers_say_operation_retries_time_and_key() {
        let asked = read(&[
            ("x-relight-operation", "planner"),
            ("x-relight-max-retries", "1"),
            ("x-relight-deadline-ms", "1500"),
            ("x-request-timeout", "9"),
            ("idempotency-key", "k-1"),
            ("x-relight-thread", "t-1"),
            ("x-relight-targets", "b, a"),
            ("traceparent", "00-a-b-01"),
        ])
        .unwrap();
        assert_eq!(
            (asked.operation.as_str(), asked.max_retries),
            ("planner", Some(1))
        );
        assert_eq!(
            asked.time_allowed,
            Some(Duration::from_millis(1500)),
            "the exact one goes first"
        );
        assert_eq!(asked.targets, [TargetId::from("b"), TargetId::from("a")]);
        assert_eq!(asked.request_id, Some(RequestId::from("k-1")));
        assert_eq!(asked.thread, Some(ThreadId::from("t-1")));
        assert_eq!(asked.trace.traceparent.as_deref(), Some("00-a-b-01"));
    }

    #[test]
    fn a_timeout_is_in_seconds_unless_it_has_a_unit() {
        for (text, millis) in [("2", 2000), ("0.5", 500), ("250ms", 250), ("1m", 60_000)] {
            let asked = read(&[("x-request-timeout", text)]).unwrap();
            assert_eq!(
                asked.time_allowed,
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_name() {
        for (name, value) in [
            ("x-relight-max-retries", "-1"),
            ("x-relight-deadline-ms", "0"),
            ("x-request-timeout", "soon"),
            ("x-relight-operation", "a\tb"),
            (
                "x-relight-operation",
                "an-operation-whose-name-is-longer-than-the-sixty-four-bytes-of-one",
            ),
            ("idempotency-key", "a\tb"),
            ("x-relight-targets", "a,,b"),
        ] {
            let refused = read(&[(name, value)]).unwrap_err();
            assert_eq!(refused.name, name, "{refused:?}");
        }
        assert_eq!(read(&[]).unwrap().operation.as_str(), DEFAULT_OPERATION);
    }
}
