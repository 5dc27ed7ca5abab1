//! What the layers of the attempt plane are made of: the call that each passes on, and the guard that watches the answer.
//!
//! A layer lets an attempt in or refuses it, and its guard then sees every delta and the failure as they pass. All guards
//! of an attempt are called in one poll of one stream, so that a layer costs no task, no box and no copy of what is below.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;

use super::attempt::Attempt;
use crate::domain::{completion::Delta, failure::Failure};

/// What a layer passes an attempt on to.
pub trait NextLayer<A>: Send + Sync + 'static {
    /// What comes of an attempt that was begun.
    type Out: Send;
    /// Why one was not.
    type Error: Send;

    /// Passes it on. Dropping the future, or what it resolves to, cancels the attempt.
    fn call(&self, attempt: A) -> impl Future<Output = Result<Self::Out, Self::Error>> + Send;
}

/// A layer of the attempt plane: it lets an attempt in, or refuses it.
pub trait AdmitAttempt: Send + Sync + 'static {
    /// Sees what becomes of the attempt.
    type Guard: AttemptGuard;

    /// Lets an attempt in; what it waits for is bounded by the attempt's deadline.
    fn admit(&self, attempt: &Arc<Attempt>) -> impl Future<Output = Result<Self::Guard, Failure>> + Send;
}

/// Sees one attempt go by, after the guards of the layers below; what must happen when it is dropped sits in `Drop`.
pub trait AttemptGuard: Unpin + Send + 'static {
    /// Sees a piece of the answer.
    fn on_delta(&mut self, delta: &Delta);

    /// Sees the failure that ended the attempt, at its begin or later.
    fn on_failure(&mut self, failure: &Failure);
}

/// A layer with what is below it.
#[derive(Debug)]
pub struct Guarded<L, S> {
    layer: L,
    inner: S,
}

/// An answer with the guard of a layer. What is below is dropped first.
#[derive(Debug)]
pub struct GuardedStream<T, G> {
    deltas: T,
    guard: G,
}

// === impl Guarded ===

impl<L, S> Guarded<L, S> {
    /// Puts a layer on what is below it.
    pub const fn new(layer: L, inner: S) -> Self {
        Self { layer, inner }
    }
}

impl<L, S> NextLayer<Arc<Attempt>> for Guarded<L, S>
where
    L: AdmitAttempt,
    S: NextLayer<Arc<Attempt>, Error = Failure>,
{
    type Out = GuardedStream<S::Out, L::Guard>;
    type Error = Failure;

    async fn call(&self, attempt: Arc<Attempt>) -> Result<Self::Out, Failure> {
        let mut guard = self.layer.admit(&attempt).await?;
        match self.inner.call(attempt).await {
            Ok(deltas) => Ok(GuardedStream { deltas, guard }),
            Err(failure) => {
                guard.on_failure(&failure);
                Err(failure)
            }
        }
    }
}

// === impl GuardedStream ===

impl<T, G> Stream for GuardedStream<T, G>
where
    T: Stream<Item = Result<Delta, Failure>> + Unpin,
    G: AttemptGuard,
{
    type Item = Result<Delta, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { deltas, guard } = &mut *self;
        let item = std::task::ready!(Pin::new(deltas).poll_next(context));
        match &item {
            Some(Ok(delta)) => guard.on_delta(delta),
            Some(Err(failure)) => guard.on_failure(failure),
            None => {}
        }
        Poll::Ready(item)
    }
}
