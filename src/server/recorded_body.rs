//! The body of a response, which notifies those who report the call when it ends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    response::Response,
};
use http_body::{Frame, SizeHint};

/// Value that a body returns when it is polled for its next frame.
pub(super) type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

/// A call whose response has not been sent yet; it is dropped with the body.
pub(super) trait RecordedCall: Send + Unpin + 'static {
    /// Sees each frame, and the end.
    fn see(&mut self, _frame: &NextFrame) {}
}

struct RecordedBody<C> {
    body: Body,
    call: C,
}

/// Returns the same response, whose body the call sees.
pub(super) fn recorded_by<C: RecordedCall>(response: Response, call: C) -> Response {
    response.map(|body| Body::new(RecordedBody { body, call }))
}

// === impl RecordedBody ===

impl<C: RecordedCall> HttpBody for RecordedBody<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NextFrame> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.call.see(&frame);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
