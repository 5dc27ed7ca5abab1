//! Recovery events, live, over as many connections as it takes.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use relight_proto::v1::{
    self, recovery_event::Body, recovery_service_client::RecoveryServiceClient,
    watch_recovery_request::Start,
};

use crate::{
    Connection, Error, Reconnect,
    link::{Link, Opening},
    retry::Retry,
};

/// The events that a watcher gets, and the first of them.
#[derive(Debug, Clone)]
pub struct Watch {
    start: Start,
    filter: Option<v1::RecoveryEventFilter>,
}

impl Watch {
    const fn new(start: Start) -> Self {
        Self {
            start,
            filter: None,
        }
    }

    /// Events from now on.
    pub const fn live() -> Self {
        Self::new(Start::Live(true))
    }

    /// Events after that with this cursor.
    pub fn after(cursor: impl Into<String>) -> Self {
        Self::new(Start::After(cursor.into()))
    }

    /// All events that are kept, and those from now on.
    pub const fn from_start() -> Self {
        Self::new(Start::FromStart(true))
    }

    /// Only events that match.
    #[must_use]
    pub fn filter(mut self, filter: v1::RecoveryEventFilter) -> Self {
        self.filter = Some(filter);
        self
    }
}

/// A [`Stream`] of recovery events that goes on after its cursor when a connection is lost.
///
/// It ends only with an error, or when it is dropped. `Missed` is an event like any other;
/// bookmarks only move the cursor.
pub struct EventStream {
    stub: RecoveryServiceClient<Connection>,
    retry: Retry,
    request: v1::WatchRecoveryRequest,
    link: Link<v1::WatchRecoveryResponse>,
}

impl EventStream {
    pub(crate) fn new(
        stub: RecoveryServiceClient<Connection>,
        reconnect: Reconnect,
        watch: Watch,
    ) -> Self {
        Self {
            stub,
            retry: Retry::new(reconnect, None),
            request: v1::WatchRecoveryRequest {
                filter: watch.filter,
                start: Some(watch.start),
            },
            link: Link::new(),
        }
    }

    /// Returns the next event; `None` after an error.
    pub async fn next(&mut self) -> Option<Result<v1::RecoveryEvent, Error>> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Returns the place after the last event, from which [`Watch::after`] goes on; empty before
    /// the first event.
    pub fn cursor(&self) -> &str {
        match &self.request.start {
            Some(Start::After(cursor)) => cursor,
            _ => "",
        }
    }

    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<v1::RecoveryEvent, Error>>> {
        loop {
            if self.link.is_over() {
                return Poll::Ready(None);
            }
            if self.link.is_idle() {
                let opening = self.open();
                self.link.open(opening);
            }
            match ready!(self.link.poll_message(cx)) {
                Some(Ok(response)) => {
                    let event = response.event.unwrap_or_default();
                    self.retry.progressed();
                    self.request.start = Some(Start::After(event.cursor.clone()));
                    if !matches!(event.body, None | Some(Body::Bookmark(_))) {
                        return Poll::Ready(Some(Ok(event)));
                    }
                }
                Some(Err(lost)) => match self.retry.wait_after(lost) {
                    Ok(wait) => self.link.wait(wait),
                    Err(error) => {
                        self.link.end();
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                // A wait is over.
                None => {}
            }
        }
    }

    fn open(&self) -> Opening<v1::WatchRecoveryResponse> {
        let mut stub = self.stub.clone();
        let request = self.request.clone();
        Box::pin(async move { Ok(stub.watch_recovery(request).await?.into_inner()) })
    }
}

impl Stream for EventStream {
    type Item = Result<v1::RecoveryEvent, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_event(cx)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream")
            .field("cursor", &self.cursor())
            .finish_non_exhaustive()
    }
}
