//! Checks the settings of events, telemetry, the journal and the fleet.

use std::time::Duration;

use relight_fleet::ValkeyAddress;

use super::Checker;
use crate::config::{Config, fleet::SharedStore, otlp, url::http_url};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn fleet(&mut self, config: &Config) {
        let SharedStore::Valkey(url) = &config.fleet.store else {
            return;
        };
        let is_guarded = ValkeyAddress::parse(url.expose()).is_ok_and(|it| it.is_guarded());
        if !is_guarded && !config.fleet.allow_no_password {
            self.fault(
                "fleet.store",
                "has no password, and other hosts reach it: whoever does can open circuits and close \
                 gates of all replicas; add the password to the URL, or write \
                 fleet.allow_no_password: true",
            );
        }
    }

    pub(super) fn observe(&mut self, config: &Config) {
        self.range(
            "events.capacity",
            &config.events.capacity,
            &16,
            &(1 << 24),
            "from 16 to 16777216",
        );
        let telemetry = &config.telemetry;
        if !(0.0..=1.0).contains(&telemetry.sample_ratio) {
            self.fault("telemetry.sample_ratio", "must be from 0 to 1");
        }
        if let Some(url) = &telemetry.otlp_endpoint
            && self.is_written("telemetry.otlp_endpoint")
            && let Err(fault) = http_url(url)
        {
            self.fault("telemetry.otlp_endpoint", fault.reason(otlp::EXAMPLE));
        }
        self.headers("telemetry.otlp_headers", &telemetry.otlp_headers, &[]);
        self.level(&telemetry.log.level);
        let journal = &config.journal;
        self.range(
            "journal.retention",
            &journal.retention,
            &Duration::from_mins(1),
            &Duration::MAX,
            "at least 1m",
        );
        let min = Duration::from_mins(1);
        self.range(
            "journal.thread_retention",
            &journal.thread_retention,
            &min,
            &Duration::MAX,
            "at least 1m",
        );
        self.range(
            "journal.max_invocations",
            &journal.max_invocations,
            &1,
            &u64::MAX,
            "at least 1",
        );
        self.range(
            "journal.queue",
            &journal.queue,
            &1,
            &usize::MAX,
            "at least 1",
        );
        self.range(
            "journal.tail_bytes",
            &journal.tail_bytes,
            &(4 << 10),
            &(64 << 20),
            "from 4KiB to 64MiB",
        );
        self.range(
            "journal.max_bytes",
            &journal.max_bytes,
            &(1 << 20),
            &u64::MAX,
            "at least 1MiB",
        );
        self.range(
            "journal.thread_queue",
            &journal.thread_queue,
            &0,
            &64,
            "from 0 to 64",
        );
        for (index, key) in journal.encryption_keys.iter().enumerate() {
            if key.expose().chars().count() < 32 {
                self.fault(
                    &format!("journal.encryption_keys[{index}]"),
                    "must have at least 32 characters",
                );
            }
        }
    }

    fn level(&mut self, directives: &str) {
        let path = "telemetry.log.level";
        // Directives about spans have a grammar of their own, which the log itself reads.
        for directive in directives
            .split(',')
            .filter(|directive| !directive.contains('['))
        {
            let level = directive.rsplit('=').next().unwrap_or_default().trim();
            if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
                self.unknown(path, level, "level of the log", LEVELS);
            }
        }
    }
}
