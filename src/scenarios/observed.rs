//! What circuits and gates of a run did, and the fingerprints of all its events.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    domain::{
        event::{Event, EventBody},
        ids::TargetId,
    },
    events::{BusItem, EventReader},
};

/// A change of a circuit or gate.
#[derive(Debug, Clone)]
pub(super) struct StateChange {
    pub(super) at: Duration,
    pub(super) replica: usize,
    pub(super) target: String,
    pub(super) what: String,
}

/// Data read from the buses of all replicas.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) circuits: Vec<StateChange>,
    /// A hash of every event, in order, with its virtual time.
    pub(super) all: RunFingerprint,
    /// The same of what circuits did.
    pub(super) moves: RunFingerprint,
}

/// Reads the bus of a replica.
pub(super) async fn listen(
    mut reader: EventReader,
    replica: usize,
    began: Instant,
    observed: Arc<Mutex<Observed>>,
) {
    loop {
        let reading = reader.next().await;
        let at = began.elapsed();
        let mut observed = observed.lock();
        match reading {
            BusItem::Event(event) => observed.record(at, replica, &event),
            // The ring is larger than what happens at one instant, so this is a defect that the
            // hash shows.
            BusItem::Missed { count, .. } => observed.all.update(&format!("missed {count}")),
        }
    }
}

impl Observed {
    fn record(&mut self, at: Duration, replica: usize, event: &Event) {
        let who = event
            .scope
            .as_ref()
            .map_or("-", |scope| scope.invocation.as_str());
        let target = event.target.as_ref().map_or("-", TargetId::as_str);
        self.all.update(&format!(
            "{} {replica} {who} {} {target} {:?}\n",
            at.as_micros(),
            event.attempt,
            event.body
        ));
        let what = match &event.body {
            EventBody::CircuitOpened {
                reason,
                retry_in_ms,
                ..
            } => {
                format!("opened {} ms: {reason}", retry_in_ms.unwrap_or_default())
            }
            EventBody::CircuitHalfOpen { .. } => "half open".to_owned(),
            EventBody::CircuitRecovering {
                admitted_percent, ..
            } => format!("recovering {admitted_percent} %"),
            EventBody::CircuitClosed { .. } => "closed".to_owned(),
            EventBody::GateClosed {
                gate,
                reopens_in_ms,
                ..
            } => {
                format!("{} gate closed {reopens_in_ms} ms", gate.as_str())
            }
            EventBody::GateOpened { gate, .. } => format!("{} gate opened", gate.as_str()),
            _ => return,
        };
        self.moves
            .update(&format!("{} {replica} {target} {what}\n", at.as_micros()));
        self.circuits.push(StateChange {
            at,
            replica,
            target: target.to_owned(),
            what,
        });
    }
}

impl StateChange {
    /// Returns the change for a report: seconds since the fault started, target, change.
    pub(super) fn seconds_target_and_change(&self, warm: Duration) -> (f64, String, String) {
        (
            self.at.as_secs_f64() - warm.as_secs_f64(),
            self.target.clone(),
            self.what.clone(),
        )
    }
}

/// FNV-1a of all results: it distinguishes two runs, and is cheap in an unoptimized build.
#[derive(Debug)]
pub(super) struct RunFingerprint(u128);

impl Default for RunFingerprint {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl RunFingerprint {
    fn update(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 =
                (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    pub(super) fn hex(&self) -> String {
        format!("{:032x}", self.0)
    }
}
