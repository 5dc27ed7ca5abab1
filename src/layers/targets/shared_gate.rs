//! One gate, as several targets share it: those with the same credential.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use crate::{
    domain::ids::{TargetId, TenantId},
    policy::gates::{Gate, GateChange, GatePass, GatePolicy},
};

/// A gate that several targets share.
#[derive(Debug)]
pub(super) struct SharedGate {
    pub(super) gate: Mutex<Gate>,
    /// The holder is the next to pass; it is handed on in the order in which callers came.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Number of queued callers.
    pub(super) waiting: AtomicU32,
    /// Notified when calls may pass sooner than was known.
    pub(super) sooner: Notify,
    /// A fingerprint of the settings that decide whether what closed it is gone, such as the key.
    pub(super) settings: AtomicU64,
    /// The target whose failure closed it: the one whose events report it.
    pub(super) closed_by: Mutex<Option<TargetId>>,
    /// Reports that a rate gate is open again when its time is over.
    pub(super) reopening: Mutex<JoinSet<()>>,
}

/// A place in the queue before a gate.
struct InLine<'a>(&'a SharedGate);

// === impl SharedGate ===

impl SharedGate {
    pub(super) fn new(gate: Gate, settings: u64) -> Self {
        Self {
            gate: Mutex::new(gate),
            turn: tokio::sync::Mutex::new(()),
            waiting: AtomicU32::new(0),
            sooner: Notify::new(),
            settings: AtomicU64::new(settings),
            closed_by: Mutex::default(),
            reopening: Mutex::default(),
        }
    }

    /// Takes over settings; whether they are others than before.
    pub(super) fn is_changed_by(&self, settings: u64) -> bool {
        self.settings.swap(settings, Ordering::Relaxed) != settings
    }

    /// Takes over a policy, from the next closing on.
    pub(super) fn set_policy(&self, policy: &Arc<GatePolicy>) {
        self.lock().set_policy(Arc::clone(policy));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock()
    }

    /// Queues until this caller may pass, and passes; `moved` gets what that changes. Cancel safe:
    /// dropping the future leaves the queue.
    pub(super) async fn pass_in_turn(
        &self,
        tenant: &TenantId,
        moved: impl Fn(Option<GateChange>),
    ) -> GatePass {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _in_line = InLine(self);
        self.lock().joins_line(Instant::now());
        let _turn = self.turn.lock().await;
        loop {
            let sooner = self.sooner.notified();
            let (passed, change) = {
                let mut gate = self.lock();
                (gate.admit(Instant::now(), tenant, false), gate.drain())
            };
            moved(change);
            match passed {
                Ok(pass) => return pass,
                Err(wait) => {
                    tokio::select! { () = tokio::time::sleep(wait) => {}, () = sooner => {} }
                }
            }
        }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
