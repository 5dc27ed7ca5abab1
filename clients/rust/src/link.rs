//! The server's messages of one call, over one connection after another.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream as _;
use tokio::time::{Sleep, sleep};
use tonic::{Status, Streaming};

use crate::StatusError;

/// A call that is being made.
pub(crate) type Opening<M> = Pin<Box<dyn Future<Output = Result<Streaming<M>, Status>> + Send>>;

/// The state of the connection.
enum Phase<M> {
    /// Nothing is open: the owner opens it.
    Idle,
    Opening(Opening<M>),
    Reading(Box<Streaming<M>>),
    Waiting(Pin<Box<Sleep>>),
    Over,
}

/// The connection of one call, which its owner opens anew after each loss.
pub(crate) struct Link<M> {
    phase: Phase<M>,
}

impl<M> Link<M> {
    pub(crate) const fn new() -> Self {
        Self { phase: Phase::Idle }
    }

    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    pub(crate) fn open(&mut self, opening: Opening<M>) {
        self.phase = Phase::Opening(opening);
    }

    /// Leaves the connection, to be idle again after a wait.
    pub(crate) fn wait(&mut self, wait: Duration) {
        self.phase = Phase::Waiting(Box::pin(sleep(wait)));
    }

    /// Leaves the connection for good; returns whether a call was under way.
    pub(crate) fn end(&mut self) -> bool {
        let phase = mem::replace(&mut self.phase, Phase::Over);
        !matches!(phase, Phase::Idle | Phase::Over)
    }

    /// Returns the next message or the loss of the connection; `None` if nothing is open.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<M, StatusError>>> {
        loop {
            match &mut self.phase {
                Phase::Idle | Phase::Over => return Poll::Ready(None),
                Phase::Waiting(wait) => {
                    ready!(wait.as_mut().poll(cx));
                    self.phase = Phase::Idle;
                }
                Phase::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(messages) => self.phase = Phase::Reading(Box::new(messages)),
                    Err(status) => return Poll::Ready(Some(Err(status.into()))),
                },
                Phase::Reading(messages) => {
                    let message = ready!(Pin::new(messages.as_mut()).poll_next(cx));
                    return Poll::Ready(Some(match message {
                        Some(message) => message.map_err(StatusError::from),
                        None => Err(StatusError::lost("the stream ended before its time")),
                    }));
                }
            }
        }
    }
}
