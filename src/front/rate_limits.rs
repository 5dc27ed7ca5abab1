//! Writes what is left of a tenant's limits, as the APIs of `OpenAI` and Anthropic state theirs:
//! on every response, refusals too, if the tenant has limits.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::Protocol;
use crate::{
    domain::{clock::wall_now, ids::TenantId},
    engine::Engine,
    policy::tenant_limits::{LimitKind, LimitUse},
};

/// Writes those headers; cheap to clone.
#[derive(Debug, Clone)]
pub struct LimitHeaders {
    engine: Arc<Engine>,
}

// === impl LimitHeaders ===

impl LimitHeaders {
    /// Writes what is left of the limits that this engine keeps.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine: Arc::new(engine),
        }
    }

    /// Adds them to a response to this tenant.
    pub fn add(&self, tenant: &TenantId, protocol: Protocol, headers: &mut HeaderMap) {
        let uses = self.engine.limit_uses(tenant);
        write(&uses, protocol, wall_now(), headers);
    }
}

fn write(uses: &[LimitUse], protocol: Protocol, now: Timestamp, headers: &mut HeaderMap) {
    let of = |kind: LimitKind| uses.iter().find(|one| one.kind == kind);
    let requests = of(LimitKind::RequestsPerMinute);
    let input = of(LimitKind::InputTokensPerMinute);
    let output = of(LimitKind::OutputTokensPerMinute);
    let mut put = |name: String, value: String| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    };
    match protocol {
        Protocol::Openai => {
            // This API has one limit of tokens: of the two, the one that is reached first.
            let tokens = input.into_iter().chain(output).min_by_key(|one| one.left);
            for (what, one) in [("requests", requests), ("tokens", tokens)] {
                let Some(one) = one else { continue };
                put(format!("x-ratelimit-limit-{what}"), one.max.to_string());
                put(
                    format!("x-ratelimit-remaining-{what}"),
                    one.left.to_string(),
                );
                put(format!("x-ratelimit-reset-{what}"), short(one.full_in));
            }
        }
        Protocol::Anthropic => {
            for (what, one) in [
                ("requests", requests),
                ("input-tokens", input),
                ("output-tokens", output),
            ] {
                let Some(one) = one else { continue };
                let seconds = i64::try_from(one.full_in.as_millis().div_ceil(1000));
                let reset = now.as_second().saturating_add(seconds.unwrap_or(i64::MAX));
                let reset = Timestamp::from_second(reset).unwrap_or(Timestamp::MAX);
                let name = format!("anthropic-ratelimit-{what}");
                put(format!("{name}-limit"), one.max.to_string());
                put(format!("{name}-remaining"), one.left.to_string());
                put(format!("{name}-reset"), reset.to_string());
            }
        }
    }
}

/// Returns a time as `OpenAI` writes one: `120ms`, `7s`, `6m0s`.
fn short(time: Duration) -> String {
    let millis = time.as_millis();
    let seconds = millis.div_ceil(1000);
    match (millis, seconds / 60) {
        (1..1000, _) => format!("{millis}ms"),
        (_, 0) => format!("{seconds}s"),
        (_, minutes) => format!("{minutes}m{}s", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol) -> Vec<String> {
        let limit = |kind, max, left, seconds| LimitUse {
            kind,
            max,
            left,
            full_in: Duration::from_secs(seconds),
        };
        let uses = [
            limit(LimitKind::RequestsPerMinute, 60, 59, 1),
            limit(LimitKind::InputTokensPerMinute, 1000, 900, 2),
            limit(LimitKind::OutputTokensPerMinute, 500, 0, 360),
            limit(LimitKind::InFlight, 3, 2, 0),
        ];
        let mut headers = HeaderMap::new();
        write(&uses, protocol, Timestamp::UNIX_EPOCH, &mut headers);
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(text).collect()
    }

    #[test]
    fn openai_has_one_limit_of_tokens_and_times_with_units() {
        assert_eq!(
            written(Protocol::Openai),
            [
                "x-ratelimit-limit-requests: 60",
                "x-ratelimit-remaining-requests: 59",
                "x-ratelimit-reset-requests: 1s",
                "x-ratelimit-limit-tokens: 500",
                "x-ratelimit-remaining-tokens: 0",
                "x-ratelimit-reset-tokens: 6m0s",
            ]
        );
        assert_eq!(short(Duration::from_millis(120)), "120ms");
    }

    #[test]
    fn anthropic_has_both_limits_of_tokens_and_points_in_time() {
        assert_eq!(
            written(Protocol::Anthropic),
            [
                "anthropic-ratelimit-requests-limit: 60",
                "anthropic-ratelimit-requests-remaining: 59",
                "anthropic-ratelimit-requests-reset: 1970-01-01T00:00:01Z",
                "anthropic-ratelimit-input-tokens-limit: 1000",
                "anthropic-ratelimit-input-tokens-remaining: 900",
                "anthropic-ratelimit-input-tokens-reset: 1970-01-01T00:00:02Z",
                "anthropic-ratelimit-output-tokens-limit: 500",
                "anthropic-ratelimit-output-tokens-remaining: 0",
                "anthropic-ratelimit-output-tokens-reset: 1970-01-01T00:06:00Z",
            ]
        );
    }
}
