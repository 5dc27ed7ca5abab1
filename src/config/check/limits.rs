//! Checks the ranges of limits on callers and of timeouts.

use std::time::Duration;

use super::Checker;
use crate::config::server::ServerConfig;

const MIB: u64 = 1 << 20;

impl Checker<'_> {
    pub(super) fn limits(&mut self, server: &ServerConfig) {
        let limits = &server.limits;
        for (name, value, max) in [
            ("connections", limits.connections, 1_000_000),
            ("requests", limits.requests, 1_000_000),
        ] {
            self.range(
                &format!("server.limits.{name}"),
                &value,
                &1,
                &max,
                &format!("from 1 to {max}"),
            );
        }
        self.range(
            "server.limits.bytes_in_flight",
            &limits.bytes_in_flight,
            &MIB,
            &(MIB << 20),
            "from 1MiB to 1TiB",
        );
        let timeouts = &server.timeouts;
        let min = Duration::from_millis(100);
        let max = Duration::from_mins(5);
        self.range(
            "server.timeouts.head",
            &timeouts.head,
            &min,
            &max,
            "from 100ms to 5m",
        );
        self.range(
            "server.timeouts.body",
            &timeouts.body,
            &min,
            &Duration::from_hours(1),
            "from 100ms to 1h",
        );
        let min = Duration::from_secs(1);
        let max = Duration::from_hours(24);
        self.range(
            "server.timeouts.idle",
            &timeouts.idle,
            &min,
            &max,
            "from 1s to 24h",
        );
    }
}
