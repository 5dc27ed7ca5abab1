//! Detects which processes use a journal's file, so that one that starts alone knows that every
//! earlier owner is dead.
//!
//! Each process holds a shared lock on a file beside the journal's for as long as it lives; the
//! system drops it however the process ends. A process that starts tries to get the lock
//! exclusively first: success means that no other process lives, so that running executions have
//! lost their owners. It owns no execution before its lock is shared. Where such locks are not
//! supported, owners are judged by their leases, as on a server.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use tokio::time::sleep;

/// Number of tries, and pauses between them, for the shared lock: another process that starts holds
/// it for a moment.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The lock of this process on a journal's file.
#[derive(Debug)]
pub(super) struct Instance {
    file: File,
    alone: bool,
}

// === impl Instance ===

impl Instance {
    /// Locks the journal at this path; `None` if that is not possible.
    pub(super) async fn of(journal: &Path) -> Option<Self> {
        let mut path = journal.as_os_str().to_owned();
        path.push(".lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .ok()?;
        if file.try_lock().is_ok() {
            return Some(Self { file, alone: true });
        }
        for _ in 0..TRIES {
            if file.try_lock_shared().is_ok() {
                return Some(Self { file, alone: false });
            }
            sleep(PAUSE).await;
        }
        None
    }

    /// Returns whether no other process uses the journal.
    pub(super) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// Shares the lock, so that other processes can use the journal, too.
    pub(super) fn shared(self) -> Option<Self> {
        self.file.lock_shared().ok()?;
        Some(Self {
            alone: false,
            ..self
        })
    }
}
