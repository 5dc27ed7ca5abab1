//! The requests that a child may respond to.

use std::collections::HashMap;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId};

use super::facts::RequestFacts;

/// The requests that a child may respond to.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    open: HashMap<i64, OpenRequest>,
}

#[derive(Debug)]
struct OpenRequest {
    facts: Option<RequestFacts>,
    /// If set, it is a subscription, whose response ends it.
    is_lasting: bool,
}

// === impl OpenRequests ===

impl OpenRequests {
    /// Notes what a message starts or cancels; returns the facts of a request that has some.
    pub(super) fn note(&mut self, message: &ClientJsonRpcMessage) -> Option<RequestFacts> {
        match message {
            ClientJsonRpcMessage::Request(request) => {
                let facts = match &request.request {
                    ClientRequest::CallToolRequest(call) => {
                        call.extensions.get::<RequestFacts>().cloned()
                    }
                    ClientRequest::ListToolsRequest(list) => {
                        list.extensions.get::<RequestFacts>().cloned()
                    }
                    _ => None,
                };
                if let Some(id) = number(&request.id) {
                    let is_lasting = matches!(
                        &request.request,
                        ClientRequest::SubscriptionsListenRequest(_)
                    );
                    let facts = facts.clone();
                    self.open.insert(id, OpenRequest { facts, is_lasting });
                }
                facts
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = cancelled.params.request_id.as_ref().and_then(number)
                {
                    self.open.remove(&id);
                }
                None
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => None,
        }
    }

    /// Returns the facts of the request of a response, if it has some.
    pub(super) fn facts(&self, id: &RequestId) -> Option<RequestFacts> {
        self.open.get(&number(id)?)?.facts.clone()
    }

    /// Ends a request and returns its facts; `None` if there is none of this number.
    #[expect(clippy::option_option, reason = "a request may have no facts")]
    pub(super) fn take(&mut self, id: i64) -> Option<Option<RequestFacts>> {
        self.open.remove(&id).map(|request| request.facts)
    }

    /// Ends the request of a response; whether there is one.
    pub(super) fn close(&mut self, id: &RequestId) -> bool {
        number(id).is_some_and(|id| self.open.remove(&id).is_some())
    }

    /// Returns the request that waits for its response, if there is one alone.
    pub(super) fn only(&self) -> Option<i64> {
        let mut waiting = self.open.iter().filter(|(_, request)| !request.is_lasting);
        let (id, _) = waiting.next()?;
        waiting.next().is_none().then_some(*id)
    }
}

/// Returns the number of an id: the SDK numbers requests, and some servers respond with the number
/// as a text.
pub(super) fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}
