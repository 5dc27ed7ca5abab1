//! Client spans of a wire attempt: `chat {model}` and, below it, `POST`. They start after the slot
//! and the permit, so that an attempt that Relight refused itself has none.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
    spans::{ChatSpan, ChatStart, HttpSpan, ToolStart},
};
use crate::domain::{completion::Delta, failure::Failure, target::Dialect, wire::SentTo};

/// Opens the client spans of attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct TraceWireLayer;

// === impl TraceWireLayer ===

impl<S> tower::Layer<S> for TraceWireLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(*self, inner)
    }
}

impl AdmitAttempt for TraceWireLayer {
    type Guard = WireSpans;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<WireSpans, Failure> {
        Ok(WireSpans::open(attempt))
    }
}

/// The open spans of one wire attempt; dropped unfinished they end as cancelled.
#[derive(Debug)]
pub struct WireSpans {
    chat: Option<ChatSpan>,
    http: Option<HttpSpan>,
    sent_to: SentTo,
    began: Instant,
    first: bool,
    is_tool: bool,
}

// === impl WireSpans ===

impl WireSpans {
    fn open(attempt: &Attempt) -> Self {
        let scope = &attempt.scope;
        let number = attempt.number();
        let sent_before = scope
            .attempts()
            .iter()
            .filter(|record| record.sent && record.number < number)
            .count();
        attempt.amend(|record| record.sent = true);
        if let (Some(tool), server) = (attempt.target().tool(), attempt.target()) {
            let span = attempt.trace.tool(ToolStart {
                server,
                tool,
                attempt: number,
            });
            let _ = attempt.sent.outgoing.set(span.outgoing());
            let sent_to = attempt.sent.to.clone();
            return Self {
                chat: Some(span),
                http: None,
                sent_to,
                began: Instant::now(),
                first: false,
                is_tool: true,
            };
        }
        let chat = attempt.trace.chat(ChatStart {
            target: attempt.target(),
            call: &attempt.request.call,
            thread: scope.invocation.thread.as_ref(),
            attempt: number,
            stream: true,
        });
        let http = (attempt.target().dialect != Dialect::Scripted).then(|| {
            let resend = u32::try_from(sent_before).unwrap_or(u32::MAX);
            let method = if attempt.is_attached() { "GET" } else { "POST" };
            chat.http(method, &attempt.target().endpoint, resend)
        });
        // Set once, here.
        let _ = attempt.sent.outgoing.set(
            http.as_ref()
                .map_or_else(|| chat.outgoing(), HttpSpan::outgoing),
        );
        let sent_to = attempt.sent.to.clone();
        Self {
            chat: Some(chat),
            http,
            sent_to,
            began: Instant::now(),
            first: true,
            is_tool: false,
        }
    }

    /// Returns the open span of the HTTP request, which states its destination by now.
    fn http(&mut self) -> Option<HttpSpan> {
        let http = self.http.take()?;
        if let Some(url) = self.sent_to.url() {
            http.sent_to(url);
        }
        Some(http)
    }
}

impl AttemptGuard for WireSpans {
    fn on_delta(&mut self, delta: &Delta) {
        let Some(chat) = &self.chat else { return };
        if !self.is_tool {
            chat.read(delta);
        }
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

    fn on_failure(&mut self, failure: &Failure) {
        if let Some(http) = self.http() {
            http.finish_failed(failure);
        }
        if let Some(chat) = self.chat.take() {
            chat.finish_failed(failure);
        }
    }
}
