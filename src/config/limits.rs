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
    /// 1000000). One counts until the client has received the end of its response, streams and
    /// watchers too.
    pub requests: usize,
    /// The same for one tenant (1 to 1000000).
    pub requests_per_tenant: usize,
    /// Most bytes of requests that are being read, handled or responded to, over all callers (1MiB
    /// to 1TiB). A request counts with its body, 100 bytes for each entry in it, its head and 8
    /// KiB.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub bytes_in_flight: u64,
    /// The same for one tenant (1MiB to 1TiB).
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub bytes_in_flight_per_tenant: u64,
    /// The same for one connection (1MiB to 1TiB).
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub bytes_in_flight_per_connection: u64,
    /// Most fields of a gRPC request, or values of a JSON body, counted through all its nesting
    /// (1000 to 100000000). An entry costs some hundred bytes of memory however few it takes on the
    /// wire.
    pub entries: usize,
    /// Most messages of a call (1 to 1000000).
    pub messages: usize,
    /// Most parts of all messages of a call together (1 to 1000000).
    pub parts: usize,
    /// Most tools of a call (1 to 100000).
    pub tools: usize,
}

/// How long clients may take; connections that take longer are closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// Longest TLS handshake (100ms to 5m).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub handshake: Duration,
    /// Longest time from a connection's start, or from the first byte of a further HTTP/1 request,
    /// to the end of the request's head (100ms to 5m).
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

// === impl LimitsConfig ===

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 4096,
            requests: 16384,
            requests_per_tenant: 8192,
            bytes_in_flight: 256 << 20,
            bytes_in_flight_per_tenant: 128 << 20,
            bytes_in_flight_per_connection: 64 << 20,
            entries: 200_000,
            messages: 10_000,
            parts: 50_000,
            tools: 1_024,
        }
    }
}

// === impl TimeoutsConfig ===

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
        }
    }
}
