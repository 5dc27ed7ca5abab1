//! Building blocks of the attempt plane's layers: the call that each passes on, and the guard that
//! observes the response.
//!
//! A layer admits an attempt or refuses it, and its guard then sees every delta and the failure as
//! they pass. All guards of an attempt are called in one poll of one stream, so that a layer costs
//! no task, no box and no copy of what is below.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;

use super::attempt::Attempt;
use crate::domain::{completion::Delta, failure::Failure};

/// The next service, to which a layer passes an attempt.
pub trait NextLayer<A>: Send + Sync + 'static {
    /// The result of an attempt that was started.
    type Out: Send;
    /// Reason why an attempt was not started.
    type Error: Send;

    /// Passes it on. Dropping the future, or what it resolves to, cancels the attempt.
    fn call(&self, attempt: A) -> impl Future<Output = Result<Self::Out, Self::Error>> + Send;
}

/// A layer of the attempt plane: it admits an attempt, or refuses it.
pub trait AdmitAttempt: Send + Sync + 'static {
    /// Sees what becomes of the attempt.
    type Guard: AttemptGuard;

    /// Lets an attempt in; what it waits for is bounded by the attempt's deadline.
    fn admit(
        &self,
        attempt: &Arc<Attempt>,
    ) -> impl Future<Output = Result<Self::Guard, Failure>> + Send;
}

/// Observes one attempt, after the guards of the layers below; cleanup is done in `Drop`.
pub trait AttemptGuard: Unpin + Send + 'static {
    /// Observes a piece of the response.
    fn on_delta(&mut self, delta: &Delta);

    /// Sees the failure that ended the attempt, at its start or later.
    fn on_failure(&mut self, failure: &Failure);
}

/// A layer with the service below it.
#[derive(Debug)]
pub struct Guarded<L, S> {
    layer: L,
    inner: S,
}

/// A response with the guard of a layer. What is below is dropped first.
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
    T: Stream<Item = Result<Delta, Box<Failure>>> + Unpin,
    G: AttemptGuard,
{
    type Item = Result<Delta, Box<Failure>>;

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
