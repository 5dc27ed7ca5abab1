//! What the methods of `RecoveryService` share: authentication, how a call is resolved and started,
//! and the status where it cannot be.

use std::{pin::Pin, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::Stream;
use tonic::{Request, Status};

use super::{
    auth::{Authenticator, Identity},
    convert::{
        Violations,
        metadata::{grpc_timeout, trace_context},
    },
    drain::DrainState,
    resume_token::TokenKey,
    status,
};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        ids::InvocationId,
    },
    engine::{Arrival, Engine, InvocationRequest, Refusal},
    execution::{Executions, Lost, StartError, Started},
    journal::JournalError,
    layers::{invocation::InvocationContext, spans::EntryPoint},
};

/// When a client whose call came too late for this replica may try again: another one is ready.
const TRY_ELSEWHERE_IN: Duration = Duration::from_millis(100);

/// When a client that lost its stream may come back: another replica is there, or soon will be.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// When a client may retry after an unavailable journal.
const STORE_BACK_IN: Duration = Duration::from_secs(1);

/// When a client may retry whose tool server listed no tools.
const TOOLS_BACK_IN: Duration = Duration::from_secs(1);

/// Serves `relight.v1.RecoveryService`.
#[derive(Debug, Clone)]
pub struct Recovery {
    pub(super) engine: Engine,
    pub(super) executions: Executions,
    pub(super) tokens: Arc<TokenKey>,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) drain: DrainState,
}

pub(super) type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

// === impl Recovery ===

impl Recovery {
    /// Serves this engine, whose invocations run there; resume tokens are signed with this key.
    pub fn new(
        engine: Engine,
        executions: Executions,
        tokens: TokenKey,
        authenticator: Arc<ArcSwap<Authenticator>>,
        drain: DrainState,
    ) -> Self {
        Self {
            engine,
            executions,
            tokens: Arc::new(tokens),
            authenticator,
            drain,
        }
    }

    /// Authenticates the caller.
    pub(super) fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        self.authenticator.load().identify(request)
    }

    /// How a request arrived.
    pub(super) fn arrival(
        identity: &Identity,
        metadata: &tonic::metadata::MetadataMap,
        rpc: &'static str,
    ) -> Result<Arrival, Status> {
        let timeout = grpc_timeout(metadata).map_err(|faults| status::invalid_argument(&faults))?;
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
    ) -> Result<InvocationContext, Status> {
        let incoming = self.engine.prepare(request).await.map_err(unresolved)?;
        identity.may_use(&incoming.plan.route)?;
        Ok(incoming)
    }

    /// Begins an invocation, or joins the one that it repeats.
    pub(super) async fn start(&self, incoming: InvocationContext) -> Result<Started, Status> {
        let (request, thread) = (
            incoming.invocation.request_id.clone(),
            incoming.invocation.thread.clone(),
        );
        self.executions
            .start(incoming)
            .await
            .map_err(|error| match error {
                StartError::Refused(refused) => refusal(&refused),
                StartError::Closing => status::draining(TRY_ELSEWHERE_IN),
                StartError::Conflict(earlier) => {
                    status::request_id_reused(&request.unwrap_or_else(|| "".into()), Some(&earlier))
                }
                StartError::ResultNotRetained(earlier) => status::failed_precondition(
                    "ANSWER_NOT_KEPT",
                    "the same request is finished, but the journal keeps no answers",
                    vec![("invocationId", earlier.as_str().to_owned())],
                ),
                StartError::ThreadBusy(running) => {
                    status::thread_busy(&thread.unwrap_or_else(|| "".into()), &running)
                }
                StartError::ThreadOfOtherRoute => status::thread_of_other_route(),
                StartError::Journal(error) => journal_failed(&error),
            })
    }
}

/// The status for a request that has no plan.
fn unresolved(refusal: Refusal) -> Status {
    match refusal {
        Refusal::RouteNotFound { route, nearest } => status::route_not_found(
            route.as_str(),
            nearest
                .as_ref()
                .map(super::super::domain::ids::RouteName::as_str),
        ),
        Refusal::Overrides(faults) => {
            let mut violations = Violations::default();
            for (field, reason) in faults {
                violations.add(field, reason);
            }
            status::invalid_argument(&violations)
        }
        Refusal::ToolNotFound { tool, nearest } => status::tool_not_found(&tool, &nearest),
        Refusal::ToolAmbiguous { candidates, .. } => {
            let names = candidates
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ");
            status::invalid_field(
                "invocation.tool.name",
                &format!("is the name of several tools; name one of {names}"),
            )
        }
        Refusal::ToolsUnlisted { tool, servers } => {
            let servers: Vec<String> = servers
                .iter()
                .map(|(server, error)| format!("{server} ({error})"))
                .collect();
            status::tools_unlisted(&tool, &servers, TOOLS_BACK_IN)
        }
    }
}

/// The status for an invocation that was refused before any attempt.
pub(super) fn refusal(refused: &Failure) -> Status {
    let retry_in = refused
        .retry_after
        .map(|wait| wait.duration)
        .unwrap_or_default();
    if refused.class == FailureClass::Shed {
        status::shed("invocations", &refused.message, retry_in)
    } else {
        status::internal(&refused.message)
    }
}

/// The status for a stream that cannot continue here.
pub(super) fn lost(id: &InvocationId, why: &Lost) -> Status {
    match why {
        Lost::Closing => status::resume(id, RETRY_AFTER),
        Lost::Gone => status::invocation_not_found(id.as_str()),
        Lost::Journal(error) => {
            tracing::warn!(invocation = %id, %error, "a stream is lost");
            status::resume(id, STORE_BACK_IN)
        }
    }
}

/// The status for a call that needs the journal, when the journal fails.
pub(super) fn journal_failed(error: &JournalError) -> Status {
    match error {
        JournalError::NotKept(what) => status::failed_precondition(
            "PAYLOADS_NOT_KEPT",
            &format!("the journal keeps no payloads, which {what} needs"),
            Vec::new(),
        ),
        JournalError::Unavailable(_) | JournalError::Corrupt(_) | JournalError::Full(_) => {
            tracing::warn!(%error, "the journal fails");
            status::store_unavailable("journal", STORE_BACK_IN)
        }
    }
}
