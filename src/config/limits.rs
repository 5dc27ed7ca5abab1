//! Limits on callers: connections, bytes, entries of a request, and timeouts.
//!
//! Together they bound the memory that callers can occupy; see `SECURITY.md` for the sum.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::units;

/// The most that callers may hold at once; what exceeds a limit is refused (gRPC
/// `RESOURCE_EXHAUSTED` or `INVALID_ARGUMENT`; HTTP 413 or 429).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Most open connections on each of the ports (1 to 1000000); further ones are closed at once.
    pub connections: usize,
    /// Most requests that are being read, handled or responded to at once, over all callers (1 to
    /// 1000000); one tenant may have half of them, and 8192 in any case. One counts until the
    /// client has received the end of its response, streams and watchers too.
    pub requests: usize,
    /// Most bytes of requests that are being read, handled or responded to, over all callers (1MiB
    /// to 1TiB); one tenant may have half of them, and 128MiB in any case, one connection a
    /// quarter, and 64MiB in any case. A request counts with its body, 100 bytes for each entry in
    /// it, its head and 8 KiB.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub bytes_in_flight: u64,
}

/// Time that clients may take; connections that take longer are closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// Longest TLS handshake, and longest time from a connection's start, or from the first byte of
    /// a further HTTP/1 request, to the end of the request's head (100ms to 5m).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub head: Duration,
    /// Longest time from a request's head to the end of its body (100ms to 1h); a call that takes
    /// longer is refused (gRPC `DEADLINE_EXCEEDED`, HTTP 408).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub body: Duration,
    /// Longest time without a request on a connection, and longest time that a client may refuse to
    /// take what is sent to it (1s to 24h). An HTTP/2 connection whose caller was identified is
    /// kept: `max_connection_age` ends it.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub idle: Duration,
}

/// Most messages of a call.
pub const MAX_MESSAGES: usize = 10_000;
/// Most parts of all messages of a call together.
pub const MAX_PARTS: usize = 50_000;
/// Most tools of a call.
pub const MAX_TOOLS: usize = 1_024;
/// Deepest nesting of the schema of a call's tool or response.
pub const MAX_SCHEMA_LEVELS: usize = 64;

// === impl LimitsConfig ===

impl LimitsConfig {
    /// Most requests at once of one tenant.
    #[must_use]
    pub fn requests_per_tenant(&self) -> usize {
        (self.requests / 2).max(8192)
    }

    /// Most bytes of requests of one tenant.
    #[must_use]
    pub fn bytes_per_tenant(&self) -> u64 {
        (self.bytes_in_flight / 2).max(128 << 20)
    }

    /// Most bytes of requests on one connection.
    #[must_use]
    pub fn bytes_per_connection(&self) -> u64 {
        (self.bytes_in_flight / 4).max(64 << 20)
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 4096,
            requests: 16384,
            bytes_in_flight: 256 << 20,
        }
    }
}

// === impl TimeoutsConfig ===

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
        }
    }
}
