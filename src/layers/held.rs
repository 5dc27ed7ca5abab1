//! Steps of a call that hold something until they end.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;

use super::StepStream;
use crate::domain::fold::StreamStep;

/// Steps with what they hold; it is dropped when they end, or behind them if they are dropped.
struct HeldSteps<G> {
    steps: StepStream,
    /// `None` once they ended.
    held: Option<G>,
}

/// Returns these steps, which hold a guard until they end.
pub(super) fn holding<G: Send + Unpin + 'static>(steps: StepStream, guard: G) -> StepStream {
    let held = Some(guard);
    Box::pin(HeldSteps { steps, held })
}

impl<G: Unpin> Stream for HeldSteps<G> {
    type Item = StreamStep;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamStep>> {
        let next = self.steps.as_mut().poll_next(cx);
        if matches!(next, Poll::Ready(None)) {
            self.held = None;
        }
        next
    }
}
