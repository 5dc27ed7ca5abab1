//! Steps of a running call, in the order in which its layers and its loop report them.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::domain::fold::StreamStep;

/// A call that is run by who reads its steps: it goes on once all that it reported was taken.
pub(super) struct CallSteps<F> {
    steps: UnboundedReceiver<StreamStep>,
    /// `None` once it is over.
    running: Option<Pin<Box<F>>>,
    end: Option<StreamStep>,
}

/// Ready once the step that was given last was taken.
#[derive(Debug, Default)]
#[must_use = "a step that is not waited for may be one of many"]
pub(super) struct Given {
    is_taken: bool,
}

// === impl CallSteps ===

impl<F> CallSteps<F> {
    /// Passes on what is reported here while the call runs, and then the end that it returns.
    pub(super) fn new(steps: UnboundedReceiver<StreamStep>, call: F) -> Self {
        Self {
            steps,
            running: Some(Box::pin(call)),
            end: None,
        }
    }
}

impl<F: Future<Output = StreamStep>> Stream for CallSteps<F> {
    type Item = StreamStep;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamStep>> {
        loop {
            if let Ok(step) = self.steps.try_recv() {
                return Poll::Ready(Some(step));
            }
            let Some(running) = &mut self.running else {
                return Poll::Ready(self.end.take());
            };
            match running.as_mut().poll(cx) {
                Poll::Ready(end) => (self.running, self.end) = (None, Some(end)),
                // What it gave is there at once; what a layer reports later wakes the reader.
                Poll::Pending => return self.steps.poll_recv(cx),
            }
        }
    }
}

// === impl Given ===

impl Future for Given {
    type Output = ();

    /// The call is not polled again before its steps were taken, so that nobody has to be woken.
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.is_taken, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    use futures_util::{FutureExt as _, StreamExt as _};
    use tokio::sync::mpsc;

    use super::*;

    fn step(attempt: u32) -> StreamStep {
        StreamStep::Usage {
            attempt,
            usage: crate::domain::completion::Usage::default(),
        }
    }

    #[test]
    fn a_call_makes_no_more_steps_than_are_taken() {
        let (give, steps) = mpsc::unbounded_channel();
        let made = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&made);
        let mut steps = CallSteps::new(steps, async move {
            for number in 1..=70 {
                counted.store(number, Relaxed);
                let _ = give.send(step(number));
                Given::default().await;
            }
            step(71)
        });
        for number in 1..=70 {
            assert_eq!(steps.next().now_or_never(), Some(Some(step(number))));
            assert_eq!(made.load(Relaxed), number);
        }
        assert_eq!(steps.next().now_or_never(), Some(Some(step(71))));
        assert_eq!(steps.next().now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn a_step_that_a_layer_reports_meanwhile_wakes_the_reader() {
        let (give, steps) = mpsc::unbounded_channel();
        let layer = give.clone();
        let mut steps = CallSteps::new(steps, async move {
            let _ = give.send(step(1));
            std::future::pending().await
        });
        assert_eq!(steps.next().await, Some(step(1)));
        let reporting = async {
            tokio::task::yield_now().await;
            layer.send(step(2)).unwrap();
        };
        let (read, ()) = tokio::join!(steps.next(), reporting);
        assert_eq!(read, Some(step(2)));
    }
}
