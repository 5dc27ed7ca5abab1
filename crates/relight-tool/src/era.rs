//! The way in which a server speaks: each request by itself (2026-07-28), or in a session that
//! `initialize` starts (2025-11-25 and before).
//!
//! A server that is not known yet is asked by `server/discover`; one that responds with anything
//! but a discovery speaks the older way. What was found is kept for its next session, and forgotten
//! if that cannot be opened.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientRequest, ErrorData, ProtocolVersion, RequestId,
        ServerJsonRpcMessage, ServerResult,
    },
    service::{ClientInitializeError, ClientLifecycleMode},
};

use crate::domain::failure::{ProviderError, TransportFault};

/// Knowledge of the way in which a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Era {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// Each request by itself.
    Modern,
    /// In sessions.
    Legacy,
}

/// Knowledge of the way in which one server speaks, from session to session.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownEra(Arc<Mutex<Era>>);

// === impl Era ===

impl Era {
    /// Returns the way in which a session is started.
    pub(super) fn lifecycle(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Unknown => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::V_2025_11_25),
            },
            Self::Modern => ClientLifecycleMode::Discover { preferred_versions },
            Self::Legacy => ClientLifecycleMode::Initialize,
        }
    }
}

// === impl KnownEra ===

impl KnownEra {
    pub(super) fn get(&self) -> Era {
        *self.0.lock()
    }

    pub(super) fn set(&self, era: Era) {
        *self.0.lock() = era;
    }
}

/// Returns the id of a message that asks how a server speaks.
pub(super) fn probe_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => {
            let is_probe = matches!(request.request, ClientRequest::DiscoverRequest(_));
            is_probe.then(|| request.id.clone())
        }
        _ => None,
    }
}

/// Returns whether a message is the response of a server that knows the question and speaks the
/// newer way.
pub(super) fn is_discovery(message: &ServerJsonRpcMessage) -> bool {
    match message {
        ServerJsonRpcMessage::Response(response) => match &response.result {
            ServerResult::DiscoverResult(found) => found
                .supported_versions
                .contains(&ProtocolVersion::V_2026_07_28),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a session could not be begun because the server speaks the older way alone.
pub(super) fn is_older(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::NoCompatibleProtocolVersion {
            server_supported, ..
        } => server_supported.iter().any(ProtocolVersion::has_initialize),
        _ => false,
    }
}

/// Returns the response of a server that does not know the question: its own error, if it gave one.
pub(super) fn unknown_method(id: RequestId, own: Option<ErrorData>) -> ServerJsonRpcMessage {
    let words = "the server does not know `server/discover`";
    let error = own.unwrap_or_else(|| ErrorData::invalid_request(words, None));
    ServerJsonRpcMessage::error(error, Some(id))
}

/// Returns the response to a probe that failed with these facts; `None` if they say nothing of how
/// the server speaks, such as a refused key or a lost connection.
pub(super) fn refused_probe(id: RequestId, facts: &ProviderError) -> Option<ServerJsonRpcMessage> {
    let has_other_cause = matches!(facts.status, Some(401..=403 | 407 | 408 | 425 | 429));
    let is_answered = facts.status.is_some() || facts.fault == Some(TransportFault::Protocol);
    if has_other_cause || !is_answered {
        return None;
    }
    let body = facts.body.as_deref().unwrap_or_default();
    let own = match serde_json::from_str(body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error.error),
        _ => None,
    };
    Some(unknown_method(id, own))
}
