//! The calls that clients of earlier revisions may cancel: they say so in a message of its own,
//! while later ones close the stream of the response.
//!
//! Ids of requests are unique within a client alone. The session id that a client gets at its
//! `initialize` tells clients of one tenant apart; nothing else depends on it, so that any replica
//! takes any request.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::domain::ids::TenantId;

/// The calls under way; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<CallKey, CancellationToken>>>);

/// Tenant, session, and the id of the request as JSON.
type CallKey = (TenantId, String, String);

/// A call under way; it is known until this is dropped.
pub(super) struct RunningCall {
    calls: RunningCalls,
    key: CallKey,
    pub(super) cancelled: CancellationToken,
}

// === impl RunningCalls ===

impl RunningCalls {
    /// Knows a call; a client without a session cannot cancel its calls so.
    pub(super) fn begin(&self, tenant: &TenantId, session: &str, id: &Value) -> RunningCall {
        let key = (tenant.clone(), session.to_owned(), id.to_string());
        let cancelled = CancellationToken::new();
        if !session.is_empty() {
            self.map().insert(key.clone(), cancelled.clone());
        }
        RunningCall {
            calls: self.clone(),
            key,
            cancelled,
        }
    }

    /// Cancels a call, if there is one.
    pub(super) fn cancel(&self, tenant: &TenantId, session: &str, id: &Value) {
        let key = (tenant.clone(), session.to_owned(), id.to_string());
        if let Some(cancelled) = self.map().get(&key) {
            cancelled.cancel();
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<CallKey, CancellationToken>> {
        self.0.lock()
    }
}

// === impl RunningCall ===

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.calls.map().remove(&self.key);
    }
}
