//! Revision of the protocol that a request speaks: 2026-07-28, in which each request names its own
//! in `_meta`, or an earlier one, in which a client starts with `initialize`.

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Value, json};

use crate::call_error::{
    CallError,
    table::{RPC_HEADER_MISMATCH, RPC_MALFORMED, RPC_UNSUPPORTED_VERSION},
};

/// Revision in which each request is independent.
pub(super) const MODERN: &str = "2026-07-28";

/// Revisions that start with `initialize`, the newest first.
pub(super) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Key under which `_meta` has a request's statement about itself.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Rules that a request is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// 2026-07-28.
    Modern,
    /// 2025-11-25 and before.
    Legacy,
}

/// Returns the revision of a request.
///
/// # Errors
/// When it names one that is not spoken, or its headers do not say what its body says.
pub(super) fn of(
    method: &str,
    parameters: &Value,
    headers: &HeaderMap,
) -> Result<Revision, CallError> {
    let by_header = lone_header(headers, "mcp-protocol-version")?;
    let meta = &parameters["_meta"];
    // The handshake exists in the earlier revisions alone.
    if method == "initialize" && meta[VERSION] != MODERN {
        return Ok(Revision::Legacy);
    }
    let Some(version) = meta[VERSION].as_str() else {
        let is_modern = method == "server/discover" || by_header == Some(MODERN);
        return if is_modern {
            Err(malformed(&format!("`_meta` lacks `{VERSION}`")))
        } else {
            Ok(Revision::Legacy)
        };
    };
    if by_header != Some(version) {
        return Err(mismatch("MCP-Protocol-Version", by_header, version));
    }
    if version != MODERN {
        let supported: Vec<&str> = [MODERN].into_iter().chain(LEGACY).collect();
        let data = json!({ "supported": supported, "requested": version });
        return Err(CallError::new(RPC_UNSUPPORTED_VERSION).with_data(data));
    }
    let by_header = lone_header(headers, "mcp-method")?;
    if by_header != Some(method) {
        return Err(mismatch("Mcp-Method", by_header, method));
    }
    let by_header = lone_header(headers, "mcp-name")?;
    if method == "tools/call"
        && let Some(name) = parameters["name"].as_str()
        && by_header.and_then(decoded).as_deref() != Some(name)
    {
        return Err(mismatch("Mcp-Name", by_header, name));
    }
    if !meta[CAPABILITIES].is_object() {
        return Err(malformed(&format!("`_meta` lacks `{CAPABILITIES}`")));
    }
    Ok(Revision::Modern)
}

/// Returns the version in the response to an `initialize`: the wanted one, or the newest.
pub(super) fn negotiated(parameters: &Value) -> &'static str {
    let wanted = parameters["protocolVersion"].as_str().unwrap_or_default();
    let known = LEGACY.into_iter().find(|known| *known == wanted);
    known.unwrap_or(LEGACY[0])
}

/// Returns whether the header of a request names the revision in which each one is independent.
pub(super) fn is_modern(headers: &HeaderMap) -> bool {
    let version = headers.get("mcp-protocol-version");
    version.is_some_and(|version| version == MODERN)
}

/// Returns the value of a header that may be there once.
///
/// # Errors
/// A fault if it is there twice: which one counts would depend on the reader. When it is no text.
pub(super) fn lone_header<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, CallError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    let error = || header_error(&format!("{name} is there more than once, or no text"));
    text.map(Some).ok_or_else(error)
}

/// Returns the text of a header's value: as it is, or in Base64 if it is not a valid header
/// otherwise.
pub(super) fn decoded(value: &str) -> Option<String> {
    let encoded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match encoded {
        Some(encoded) => String::from_utf8(BASE64.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

fn malformed(why: &str) -> CallError {
    CallError::new(RPC_MALFORMED).word("why", why)
}

/// Returns the error for a header that contradicts the body.
pub(super) fn mismatch(name: &str, found: Option<&str>, expected: &str) -> CallError {
    header_error(&match found {
        Some(found) => format!("{name} is `{found}`, and the body says `{expected}`"),
        None => format!("{name} is missing; the body says `{expected}`"),
    })
}

fn header_error(why: &str) -> CallError {
    CallError::new(RPC_HEADER_MISMATCH).word("why", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        values
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn meta(version: &str) -> Value {
        json!({ "name": "größe", "_meta": { VERSION: version, CAPABILITIES: {} } })
    }

    #[test]
    fn a_request_is_of_the_revision_that_it_names_and_others_begin_with_initialize() {
        let name = format!("=?base64?{}?=", BASE64.encode("größe"));
        let whole = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", name.as_str()),
        ];
        let of = |method: &str, parameters: &Value, with: &[(&'static str, &str)]| {
            of(method, parameters, &headers(with)).map_err(|error| error.row().rpc)
        };
        assert_eq!(
            of("tools/call", &meta(MODERN), &whole),
            Ok(Revision::Modern)
        );
        assert_eq!(of("initialize", &json!({}), &[]), Ok(Revision::Legacy));
        let handshake = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "initialize"),
        ];
        assert_eq!(
            of("initialize", &meta(MODERN), &handshake),
            Ok(Revision::Modern),
            "which has no such method"
        );
        assert_eq!(of("tools/list", &Value::Null, &[]), Ok(Revision::Legacy));
        let old = [("mcp-protocol-version", "2025-06-18")];
        assert_eq!(of("tools/list", &json!({}), &old), Ok(Revision::Legacy));
        for missing in 0..whole.len() {
            let mut twice = HeaderMap::new();
            for (name, value) in whole.iter().chain([&whole[missing]]) {
                twice.append(*name, value.parse().unwrap());
            }
            let refused =
                super::of("tools/call", &meta(MODERN), &twice).map_err(|error| error.row().rpc);
            assert_eq!(refused, Err(-32020), "{missing} twice");
            let mut some = whole.to_vec();
            some.remove(missing);
            assert_eq!(
                of("tools/call", &meta(MODERN), &some),
                Err(-32020),
                "{missing}"
            );
        }
        let future = [("mcp-protocol-version", "2030-01-01")];
        assert_eq!(of("tools/list", &meta("2030-01-01"), &future), Err(-32022));
        assert_eq!(of("tools/list", &json!({}), &whole), Err(-32602));
        assert_eq!(of("server/discover", &json!({}), &[]), Err(-32602));
        let without = json!({ "_meta": { VERSION: MODERN } });
        let list = [
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/list"),
        ];
        assert_eq!(of("tools/list", &without, &list), Err(-32602));
    }

    #[test]
    fn a_handshake_is_answered_with_the_wanted_revision_or_the_newest_that_has_one() {
        assert_eq!(
            negotiated(&json!({ "protocolVersion": "2025-03-26" })),
            "2025-03-26"
        );
        for unknown in [json!({ "protocolVersion": MODERN }), Value::Null] {
            assert_eq!(negotiated(&unknown), "2025-11-25");
        }
    }
}
