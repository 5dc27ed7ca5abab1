//! A request for an invocation, as any interface makes it, and why one is rejected before any
//! attempt.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    domain::{
        failure::ProviderError,
        ids::{Operation, RequestId, RouteName, TargetId, TenantId, ThreadId},
        invocation::{Call, DEFAULT_OPERATION, Overrides, TraceContext},
    },
    layers::spans::EntryPoint,
};

/// How a request arrived, as known from its transport rather than its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// The tenant.
    pub tenant: TenantId,
    /// The routes that the caller is limited to; empty for no limit.
    pub routes: Vec<RouteName>,
    /// The time that the client states; `None` where it states none.
    pub timeout: Option<Duration>,
    /// The caller's trace context.
    pub trace: TraceContext,
    /// The interface that it arrived at, as its span is called.
    pub entry: EntryPoint,
}

/// A request for an invocation, as made at any interface, before a route's defaults are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct InvocationRequest {
    /// How it arrived.
    pub arrival: Arrival,
    /// The route; `None` for the default one.
    pub route: Option<RouteName>,
    /// What the caller is doing.
    pub operation: Operation,
    /// The call to make.
    pub call: Call,
    /// The caller's idempotency key.
    pub request_id: Option<RequestId>,
    /// The conversation that Relight keeps.
    pub thread: Option<ThreadId>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// What the caller wants done otherwise. Its grace is set only where the caller named one.
    pub overrides: Overrides,
    /// The caller's deadline for the whole invocation.
    pub deadline: Option<Duration>,
    /// Whether the invocation continues when its client is gone; without a grace period, for as
    /// long as the route allows.
    pub resumable: bool,
}

/// Why a request is rejected before any attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such route.
    RouteNotFound {
        /// The requested route.
        route: RouteName,
        /// The nearest name that exists.
        nearest: Option<RouteName>,
    },
    /// Overrides that are not allowed or not possible, or a call beyond its limits: each field and
    /// why.
    Overrides(Vec<(String, String)>),
    /// No tool server lists such a tool.
    ToolNotFound {
        /// The name that was called.
        tool: String,
        /// The most alike names that exist, as `server/tool`, the nearest first.
        nearest: Vec<String>,
    },
    /// Several tool servers list a tool of this name.
    ToolAmbiguous {
        /// The name that was called.
        tool: String,
        /// The names that are not, as `server/tool`.
        candidates: Vec<String>,
    },
    /// Whether there is such a tool is not known: these servers did not list theirs.
    ToolsUnlisted {
        /// The name that was called.
        tool: String,
        /// The servers, and why.
        servers: Vec<(TargetId, ProviderError)>,
    },
}

// === impl Arrival ===

impl Arrival {
    /// A request of this tenant that states nothing else.
    #[must_use]
    pub fn new(tenant: TenantId, entry: EntryPoint) -> Self {
        Self {
            tenant,
            routes: Vec::new(),
            timeout: None,
            trace: TraceContext::default(),
            entry,
        }
    }
}

// === impl InvocationRequest ===

impl InvocationRequest {
    /// A request for this call with every option at its default.
    #[must_use]
    pub fn new(arrival: Arrival, call: Call) -> Self {
        Self {
            arrival,
            route: None,
            operation: DEFAULT_OPERATION.into(),
            call,
            request_id: None,
            thread: None,
            labels: BTreeMap::new(),
            overrides: Overrides::default(),
            deadline: None,
            resumable: false,
        }
    }

    /// The time that the caller allows: the shorter of its override and its client's timeout, but
    /// the override alone when the invocation may outlive the connection. `None`: it leaves the
    /// time to the route, whose cap holds in any case.
    #[must_use]
    pub fn time_allowed(&self) -> Option<Duration> {
        match (self.deadline, self.arrival.timeout) {
            (Some(deadline), Some(_)) if self.resumable => Some(deadline),
            (Some(deadline), Some(timeout)) => Some(deadline.min(timeout)),
            (deadline, timeout) => deadline.or(timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_shorter_timeout_wins_unless_the_invocation_may_outlive_the_connection() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(9));
        for (deadline, timeout, resumable, allowed) in [
            (None, None, false, None),
            (Some(long), None, false, Some(long)),
            (None, Some(short), false, Some(short)),
            (Some(long), Some(short), false, Some(short)),
            (Some(short), Some(long), false, Some(short)),
            (Some(long), Some(short), true, Some(long)),
            (None, Some(short), true, Some(short)),
        ] {
            let arrival = Arrival {
                timeout,
                ..Arrival::new("acme".into(), EntryPoint::Grpc("test"))
            };
            let call = Call::Model(Arc::default());
            let request = InvocationRequest {
                deadline,
                resumable,
                ..InvocationRequest::new(arrival, call)
            };
            assert_eq!(
                request.time_allowed(),
                allowed,
                "{deadline:?} {timeout:?} {resumable}"
            );
        }
    }
}
