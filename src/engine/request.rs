//! A request for an invocation, as any interface makes it.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    domain::{
        ids::{Operation, RequestId, RouteName, TenantId, ThreadId},
        invocation::{Call, DEFAULT_OPERATION, Overrides, TraceContext},
    },
    layers::spans::EntryPoint,
};

/// The label of the user for whom a call is made, as the fronts set it.
const USER: &str = "user";

/// Arrival of a request, as known from its transport rather than its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// The tenant.
    pub tenant: TenantId,
    /// The routes that the caller is limited to; empty for no limit.
    pub routes: Vec<RouteName>,
    /// Time that the client states; `None` if it states none.
    pub timeout: Option<Duration>,
    /// The caller's trace context.
    pub trace: TraceContext,
    /// The interface that it arrived at, as its span is called.
    pub entry: EntryPoint,
}

/// A request for an invocation, as made at any interface, before a route's defaults are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct InvocationRequest {
    /// Arrival of the request.
    pub arrival: Arrival,
    /// The route; `None` for the default one.
    pub route: Option<RouteName>,
    /// Operation of the caller.
    pub operation: Operation,
    /// The call to make.
    pub call: Call,
    /// The caller's idempotency key.
    pub request_id: Option<RequestId>,
    /// The conversation that Relight keeps.
    pub thread: Option<ThreadId>,
    /// Other names of the conversation.
    pub names: ConversationNames,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Deviations that the caller wants. Its grace is set only if the caller named one.
    pub overrides: Overrides,
    /// Time for which the caller wants the invocation to live.
    pub lifetime: RequestedLifetime,
}

/// Names by which a caller tells conversations apart that Relight does not keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationNames {
    /// The name by which the caller wants a conversation to stay at one target, if it gives one.
    pub affinity: Option<String>,
    /// The session of the caller's program, by its own header.
    pub session: Option<String>,
}

/// Time for which a caller wants an invocation to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedLifetime {
    /// The caller's deadline for the whole invocation.
    pub deadline: Option<Duration>,
    /// If set, the invocation continues when its client is gone; without a grace period, for as
    /// long as the route allows.
    pub resumable: bool,
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
            names: ConversationNames::default(),
            labels: BTreeMap::new(),
            overrides: Overrides::default(),
            lifetime: RequestedLifetime::default(),
        }
    }

    /// Returns the name of the conversation that the call is part of, as the caller gives it; the
    /// narrowest of its names first.
    #[must_use]
    pub fn conversation(&self) -> Option<&str> {
        let extra = match &self.call {
            Call::Model(call) => call.extra.get("prompt_cache_key"),
            Call::Tool(_) => None,
        };
        let names = [
            self.names.affinity.as_deref(),
            self.thread.as_ref().map(ThreadId::as_str),
            extra.and_then(serde_json::Value::as_str),
            self.names.session.as_deref(),
            self.labels.get(USER).map(String::as_str),
        ];
        names.into_iter().flatten().find(|name| !name.is_empty())
    }

    /// Returns the time that the caller allows: the shorter of its override and its client's
    /// timeout, but the override alone when the invocation may outlive the connection. `None`: it
    /// leaves the time to the route, whose cap holds in any case.
    #[must_use]
    pub fn time_allowed(&self) -> Option<Duration> {
        let RequestedLifetime {
            deadline,
            resumable,
        } = self.lifetime;
        match (deadline, self.arrival.timeout) {
            (Some(deadline), Some(_)) if resumable => Some(deadline),
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
        let short = Duration::from_secs(1);
        let long = Duration::from_secs(9);
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
                lifetime: RequestedLifetime {
                    deadline,
                    resumable,
                },
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
