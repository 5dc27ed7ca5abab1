//! The orderly end of a server: not ready, no new calls, running ones finish or are handed over,
//! telemetry is flushed.

use std::{future::Future, time::Duration};

use super::{Running, set_health};

/// Time for which health reports "not serving" before connections receive GOAWAY, so that load
/// balancers notice.
const NOT_READY_PAUSE: Duration = Duration::from_millis(500);

/// Time that leases may take to be released at a second signal.
const GIVE_UP_BOUND: Duration = Duration::from_secs(1);

/// Time for which no invocation must have run before the drain ends: connections received GOAWAY by
/// then, and what clients sent before they saw it has arrived.
const QUIET: Duration = Duration::from_millis(500);

/// Time that the last statuses and events may take to be sent.
const LAST_SENDS: Duration = Duration::from_secs(1);

/// Time that telemetry may take to flush.
const FLUSH_BOUND: Duration = Duration::from_secs(3);

// === impl Running ===

impl Running {
    /// Abandons, within a second, what an orderly shutdown would wait for: other replicas may then
    /// take the invocations over at once.
    pub fn give_up(&self) -> impl Future<Output = ()> + use<> {
        let executions = self.executions.clone();
        async move {
            let _ = tokio::time::timeout(GIVE_UP_BOUND, executions.hand_over()).await;
        }
    }

    /// Shuts down in order, within the configured drain timeout. Calls are accepted until their
    /// connections received GOAWAY, and those that are sent meanwhile; what still runs at the end
    /// is handed over to another replica.
    pub async fn shutdown(mut self) {
        set_health(&self.health, tonic_health::ServingStatus::NotServing).await;
        self.metrics.set_draining(true);
        self.signals.draining.send_replace(true);
        // As it is now: a changed configuration may have brought another one.
        let drain_timeout = self.engine.config().server.drain_timeout;
        tracing::info!(
            running = self.executions.running(),
            drain_timeout_ms = millis(drain_timeout),
            "draining: health is NOT_SERVING, and calls in flight are finished"
        );
        if !self.skip_pause {
            tokio::time::sleep(NOT_READY_PAUSE).await;
        }
        self.signals.stop.send_replace(true);
        if tokio::time::timeout(drain_timeout, self.drained())
            .await
            .is_err()
        {
            let left = self.executions.running();
            tracing::warn!(
                left,
                "the drain timeout is over; what still runs is handed over, or ends"
            );
        }
        // Before connections are cut, so that every caller receives instructions for its retry.
        self.executions.hand_over().await;
        let _ = tokio::time::timeout(LAST_SENDS, async {
            while self.serving.join_next().await.is_some() {}
        })
        .await;
        tracing::info!("stopped: no call is left");
        self.serving.shutdown().await;
        self.tasks.shutdown().await;
        self.engine.close_tools().await;
        if let Some(tracer) = self.telemetry.tracer.take() {
            tracer.shutdown(FLUSH_BOUND).await;
        }
        if let Some(metrics) = self.telemetry.metrics.take() {
            metrics.shutdown(FLUSH_BOUND).await;
        }
        if let Some(logs) = self.telemetry.logs.take() {
            logs.finish(FLUSH_BOUND).await;
        }
    }

    /// Returns when no invocation runs, and none is to be expected.
    async fn drained(&mut self) {
        let quiet = if self.skip_pause {
            Duration::ZERO
        } else {
            QUIET
        };
        let mut quiet_since = None;
        loop {
            while self.serving.try_join_next().is_some() {}
            if self.engine.in_flight() > 0 || self.executions.running() > 0 {
                quiet_since = None;
            } else if self.serving.is_empty()
                || quiet_since
                    .get_or_insert_with(tokio::time::Instant::now)
                    .elapsed()
                    >= quiet
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
