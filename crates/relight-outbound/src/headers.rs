//! Which headers of a response are kept: those with a wait, with what is left of a limit, and with
//! ids to quote to support.
//!
//! Cookies and everything else that could identify or authorise a caller are dropped.

use http::HeaderMap;

use crate::domain::wire::REQUEST_IDS;

const KEPT: [&str; 15] = [
    "cf-ray",
    "content-type",
    "date",
    "llm_provider-x-request-id",
    "openai-processing-ms",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "server",
    "x-amzn-errortype",
    "x-amzn-requestid",
    "x-generation-id",
    "x-request-id",
    "x-should-retry",
    "apim-request-id",
];

const KEPT_PREFIXES: [&str; 5] = [
    "retry-after",
    "x-ratelimit-",
    "anthropic-ratelimit-",
    "x-ms-",
    "ratelimit-",
];

/// Longest value kept, in bytes.
const MAX_VALUE_BYTES: usize = 1024;

/// Returns the kept headers of a response, names in lower case.
#[must_use]
pub fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let is_kept = |name: &str| {
        KEPT.contains(&name) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    headers
        .iter()
        .filter(|(name, _)| is_kept(name.as_str()))
        .filter(|(_, value)| value.len() <= MAX_VALUE_BYTES)
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect()
}

/// Of the kept headers, those needed beyond the head of a successful response: rate limits, and ids
/// of the request.
#[must_use]
pub fn lasting(kept: &[(String, String)]) -> Vec<(String, String)> {
    let limits = |name: &str| name.contains("ratelimit-") || name.starts_with("retry-after");
    kept.iter()
        .filter(|(name, _)| limits(name) || REQUEST_IDS.contains(&name.as_str()))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_and_ids_are_kept_and_cookies_are_not() {
        let mut headers = HeaderMap::new();
        for name in [
            "retry-after-ms",
            "x-ratelimit-reset-tokens",
            "x-ms-region",
            "x-request-id",
            "set-cookie",
            "via",
        ] {
            headers.insert(name, "1".parse().unwrap());
        }
        let mut names: Vec<String> = kept(&headers).into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(
            names,
            [
                "retry-after-ms",
                "x-ms-region",
                "x-ratelimit-reset-tokens",
                "x-request-id"
            ]
        );
    }

    #[test]
    fn a_value_beyond_its_bound_is_not_kept() {
        let mut headers = HeaderMap::new();
        headers.insert("server", "x".repeat(MAX_VALUE_BYTES + 1).parse().unwrap());
        assert_eq!(kept(&headers), []);
    }
}
