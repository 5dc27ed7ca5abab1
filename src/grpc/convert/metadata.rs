//! A call's metadata: how long the caller waits, and which trace it belongs to.
//!
//! Only W3C headers are read for the trace; the binary `grpc-trace-bin` is ignored.

use std::time::Duration;

use tonic::metadata::MetadataMap;

use super::Violations;
use crate::domain::invocation::TraceContext;

/// The header that holds the caller's deadline as a time from now.
pub const TIMEOUT_HEADER: &str = "grpc-timeout";

/// Returns the time for which the caller waits; `None` if it set no deadline.
///
/// # Errors
/// Returns an error if the header is there but is not a valid timeout (1 to 8 digits and one of
/// `H`, `M`, `S`, `m`, `u`, `n`).
pub fn grpc_timeout(metadata: &MetadataMap) -> Result<Option<Duration>, Violations> {
    let Some(value) = metadata.get(TIMEOUT_HEADER) else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(parse_timeout);
    match parsed {
        Some(timeout) => Ok(Some(timeout)),
        None => Err(Violations::of(
            TIMEOUT_HEADER,
            "is no timeout: write 1 to 8 digits and one of H, M, S, m, u, n",
        )),
    }
}

/// Returns the trace that the call belongs to; empty if the caller sends none.
#[must_use]
pub fn trace_context(metadata: &MetadataMap) -> TraceContext {
    TraceContext {
        traceparent: metadata
            .get("traceparent")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned),
        tracestate: joined(metadata, "tracestate"),
        baggage: joined(metadata, "baggage"),
    }
}

/// Both headers may come in several pieces, which W3C requires to be joined by commas in order.
fn joined(metadata: &MetadataMap, name: &str) -> Option<String> {
    let pieces: Vec<&str> = metadata
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    if pieces.is_empty() {
        None
    } else {
        Some(pieces.join(","))
    }
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let digits_end = text.len().checked_sub(1)?;
    let (digits, unit) = text.split_at_checked(digits_end)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(text: &str) -> Result<Option<Duration>, Violations> {
        let mut metadata = MetadataMap::new();
        metadata.insert(TIMEOUT_HEADER, text.parse().unwrap());
        grpc_timeout(&metadata)
    }

    #[test]
    fn a_timeout_is_read_in_each_of_its_units() {
        for (text, expected) in [
            ("2H", Duration::from_hours(2)),
            ("3M", Duration::from_mins(3)),
            ("42S", Duration::from_secs(42)),
            ("13m", Duration::from_millis(13)),
            ("2u", Duration::from_micros(2)),
            ("82n", Duration::from_nanos(82)),
            ("0S", Duration::ZERO),
            ("99999999H", Duration::from_hours(99_999_999)),
        ] {
            assert_eq!(timeout(text), Ok(Some(expected)), "{text}");
        }
        assert_eq!(grpc_timeout(&MetadataMap::new()), Ok(None));
    }

    #[test]
    fn an_invalid_timeout_is_reported_and_not_ignored() {
        for text in [
            "",
            "S",
            "10",
            "123456789S",
            "1s",
            "1 S",
            "-1S",
            "1.5S",
            "+1S",
            "1é",
        ] {
            if let Ok(value) = text.parse::<tonic::metadata::AsciiMetadataValue>() {
                let mut metadata = MetadataMap::new();
                metadata.insert(TIMEOUT_HEADER, value);
                let faults = grpc_timeout(&metadata).unwrap_err();
                assert_eq!(faults.kept()[0].field, "grpc-timeout", "{text}");
            }
        }
    }

    #[test]
    fn a_trace_is_taken_from_its_w3c_headers_only() {
        let mut metadata = MetadataMap::new();
        assert_eq!(trace_context(&metadata), TraceContext::default());
        metadata.insert(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
                .parse()
                .unwrap(),
        );
        metadata.append("tracestate", "a=1".parse().unwrap());
        metadata.append("tracestate", "b=2".parse().unwrap());
        metadata.insert("baggage", "user=7".parse().unwrap());
        metadata.insert_bin(
            "grpc-trace-bin",
            tonic::metadata::BinaryMetadataValue::from_bytes(&[0, 1]),
        );
        let trace = trace_context(&metadata);
        assert!(
            trace
                .traceparent
                .is_some_and(|parent| parent.starts_with("00-0af7"))
        );
        assert_eq!(
            (trace.tracestate.as_deref(), trace.baggage.as_deref()),
            (Some("a=1,b=2"), Some("user=7"))
        );
    }
}
