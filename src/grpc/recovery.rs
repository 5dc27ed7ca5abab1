//! Code that the methods of `RecoveryService` share: authentication, how a call is resolved and
//! started.

use std::{pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use futures_util::Stream;
use tonic::{Request, Status};

use super::{
    auth::{Authenticator, Identity},
    convert::metadata::{grpc_timeout, trace_context},
    drain::DrainState,
    peers::Peers,
    resume_token::TokenKey,
};
use crate::{
    call_error::{CallError, Violations},
    engine::{Arrival, Engine, InvocationRequest},
    execution::Executions,
    layers::{invocation::InvocationContext, spans::EntryPoint},
};

/// Serves `relight.v1.RecoveryService`.
#[derive(Debug, Clone)]
pub struct Recovery {
    pub(super) engine: Engine,
    pub(super) executions: Executions,
    pub(super) tokens: Arc<TokenKey>,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) drain: DrainState,
    pub(super) peers: Peers,
}

pub(super) type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

// === impl Recovery ===

impl Recovery {
    /// Serves this engine, whose invocations run there; resume tokens are signed with this key.
    pub fn new(
        engine: Engine,
        executions: Executions,
        tokens: TokenKey,
        (authenticator, drain): (Arc<ArcSwap<Authenticator>>, DrainState),
        peers: Peers,
    ) -> Self {
        Self {
            engine,
            executions,
            tokens: Arc::new(tokens),
            authenticator,
            drain,
            peers,
        }
    }

    /// Authenticates the caller.
    pub(super) fn identify<T>(&self, request: &Request<T>) -> Result<Identity, CallError> {
        self.authenticator.load().identify(request)
    }

    /// Returns how a request arrived.
    pub(super) fn arrival(
        identity: &Identity,
        metadata: &tonic::metadata::MetadataMap,
        rpc: &'static str,
    ) -> Result<Arrival, Violations> {
        let timeout = grpc_timeout(metadata)?;
        Ok(Arrival {
            tenant: identity.tenant.clone(),
            routes: identity.routes.clone(),
            timeout,
            trace: trace_context(metadata),
            entry: EntryPoint::Grpc(rpc),
        })
    }

    /// Resolves a request, for a caller that may use its route.
    pub(super) async fn resolve(
        &self,
        request: InvocationRequest,
        identity: &Identity,
    ) -> Result<InvocationContext, CallError> {
        let incoming = self.engine.prepare(request).await?;
        identity.may_use(&incoming.plan.route)?;
        Ok(incoming)
    }
}
