//! Answers that come in pieces.

use std::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;

use crate::{Change, Error, Outcome, ResumePoint, reader::Reader};

/// The next piece; `None` at the end.
type Piece<T> = Poll<Option<Result<T, Error>>>;

/// An answer that comes in pieces: a [`Stream`] of text that is final (`String`) or of text as it
/// comes ([`Change`]).
///
/// It survives its connection, and the replica that serves it. Dropping it before its end cancels
/// the invocation; [`detach`](Self::detach) lets that run on.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: relight_client::Client) -> Result<(), relight_client::Error> {
/// use relight_client::Change;
///
/// let mut answer = client.stream_live("Why is the sky blue?");
/// while let Some(change) = answer.next().await {
///     match change? {
///         Change::Text(text) => print!("{text}"),
///         Change::Rewind(kept) => print!("\n{kept}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct AnswerStream<T> {
    reader: Reader,
    poll: fn(&mut Reader, &mut Context<'_>) -> Piece<T>,
    is_over: bool,
}

impl AnswerStream<String> {
    pub(crate) const fn final_text(reader: Reader) -> Self {
        Self {
            reader,
            poll: poll_final_text,
            is_over: false,
        }
    }
}

impl AnswerStream<Change> {
    pub(crate) const fn changes(reader: Reader) -> Self {
        Self {
            reader,
            poll: Reader::poll_change,
            is_over: false,
        }
    }
}

impl<T> AnswerStream<T> {
    /// Returns the next piece; `None` at the end. The last piece is an error if the invocation
    /// failed for good.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// Returns the end of the invocation.
    ///
    /// # Errors
    ///
    /// [`Error::Unfinished`] if the stream was not read to its end.
    pub fn outcome(&self) -> Result<Outcome, Error> {
        self.reader.outcome()
    }

    /// Ends the stream, and lets the invocation run for its grace, to be resumed.
    ///
    /// # Errors
    ///
    /// [`Error::NotResumable`] if nothing was accepted yet, or nothing is kept; then the
    /// invocation is cancelled.
    pub fn detach(mut self) -> Result<ResumePoint, Error> {
        let point = self.reader.resume_point()?;
        self.reader.leave(false);
        Ok(point)
    }

    /// Ends the stream and cancels the invocation. Returns once the server has the cancellation,
    /// or after 5 s.
    pub async fn close(mut self) {
        self.reader.leave(true);
        self.reader.client().close().await;
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Piece<T> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let piece = ready!((self.poll)(&mut self.reader, cx));
        if let Some(Ok(_)) = piece {
            return Poll::Ready(piece);
        }
        self.is_over = true;
        if piece.is_some() || self.reader.returns_failure {
            return Poll::Ready(piece);
        }
        match self.outcome() {
            Ok(Outcome::Answer(_)) => Poll::Ready(None),
            Ok(Outcome::Failed(failed)) => Poll::Ready(Some(Err(failed.into()))),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl<T> Stream for AnswerStream<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_piece(cx)
    }
}

impl<T> fmt::Debug for AnswerStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream")
            .field("invocation_id", &self.reader.fold.invocation_id)
            .finish_non_exhaustive()
    }
}

/// Returns only text that is never taken back: at once if the service promises that, else all of
/// it at the end.
fn poll_final_text(reader: &mut Reader, cx: &mut Context<'_>) -> Piece<String> {
    loop {
        match ready!(reader.poll_change(cx)) {
            Some(Ok(_)) if !reader.is_atomic => {}
            Some(Ok(Change::Text(text))) => return Poll::Ready(Some(Ok(text))),
            Some(Ok(Change::Rewind(_))) => {
                let error = reader.refuse("final text was taken back");
                return Poll::Ready(Some(Err(error)));
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => {
                let is_all_shown = reader.is_atomic;
                // At once, so that the next read finds the end.
                reader.is_atomic = true;
                let text = reader.fold.text();
                let rest = (!is_all_shown && !text.is_empty()).then_some(Ok(text));
                return Poll::Ready(rest);
            }
        }
    }
}
