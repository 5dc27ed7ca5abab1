//! The client spans of a wire attempt: `chat {model}` and, below it, `POST`. They begin after the slot and the
//! permit, so that an attempt that Relight refused itself has none.

use std::task::Poll;

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{
    BoxFuture, Deltas,
    attempt::Attempt,
    spans::{ChatSpan, ChatStart, HttpSpan},
};
use crate::domain::{completion::Delta, failure::Failure, target::Dialect, wire::SentTo};

/// Opens the client spans of attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceWireLayer;

/// See [`TraceWireLayer`].
#[derive(Debug, Clone)]
pub struct TraceWire<S> {
    inner: S,
}

impl<S> tower::Layer<S> for TraceWireLayer {
    type Service = TraceWire<S>;

    fn layer(&self, inner: S) -> TraceWire<S> {
        TraceWire { inner }
    }
}

// === impl TraceWire ===

impl<S> Service<Attempt> for TraceWire<S>
where
    S: Service<Attempt, Response = Deltas, Error = Failure> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Deltas;
    type Error = Failure;
    type Future = BoxFuture<Result<Deltas, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut attempt: Attempt) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move {
            let mut spans = WireSpans::open(&mut attempt);
            let mut deltas = match inner.oneshot(attempt).await {
                Ok(deltas) => deltas,
                Err(failure) => {
                    spans.failed(&failure);
                    return Err(failure);
                }
            };
            Ok(Box::pin(stream! {
                while let Some(item) = deltas.next().await {
                    match &item {
                        Ok(delta) => spans.see(delta),
                        Err(failure) => spans.failed(failure),
                    }
                    yield item;
                }
            }) as Deltas)
        })
    }
}

/// The open spans of one wire attempt; dropped unfinished they end as cancelled.
struct WireSpans {
    chat: Option<ChatSpan>,
    http: Option<HttpSpan>,
    sent_to: SentTo,
    began: Instant,
    first: bool,
}

impl WireSpans {
    fn open(attempt: &mut Attempt) -> Self {
        let (scope, number) = (&attempt.scope, attempt.number());
        let sent_before = scope.attempts().iter().filter(|record| record.sent && record.number < number).count();
        scope.learn(number, |record| record.sent = true);
        let chat = attempt.trace.chat(ChatStart {
            target: &attempt.target,
            call: &attempt.call,
            thread: scope.invocation.thread.as_ref(),
            attempt: number,
            stream: true,
        });
        let http = (attempt.target.dialect != Dialect::Scripted).then(|| {
            let resend = u32::try_from(sent_before).unwrap_or(u32::MAX);
            let method = if attempt.attach.is_some() { "GET" } else { "POST" };
            chat.http(method, &attempt.target.endpoint, resend)
        });
        attempt.outgoing = http.as_ref().map_or_else(|| chat.outgoing(), HttpSpan::outgoing);
        let sent_to = attempt.sent_to.clone();
        Self { chat: Some(chat), http, sent_to, began: Instant::now(), first: true }
    }

    fn see(&mut self, delta: &Delta) {
        let Some(chat) = &self.chat else { return };
        chat.read(delta);
        if delta.is_content() && std::mem::take(&mut self.first) {
            chat.first_chunk(self.began.elapsed());
        }
        if matches!(delta, Delta::Finish { .. }) {
            if let Some(http) = self.http() {
                http.finish(200);
            }
            if let Some(chat) = self.chat.take() {
                chat.finish_ok();
            }
        }
    }

    /// The open span of the HTTP request, which says by now where it went.
    fn http(&mut self) -> Option<HttpSpan> {
        let http = self.http.take()?;
        if let Some(url) = self.sent_to.url() {
            http.sent_to(url);
        }
        Some(http)
    }

    fn failed(&mut self, failure: &Failure) {
        if let Some(http) = self.http() {
            http.finish_failed(failure);
        }
        if let Some(chat) = self.chat.take() {
            chat.finish_failed(failure);
        }
    }
}
