//! The reader of one invocation, over as many connections as it takes.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use relight_proto::v1::{self, stream_event::Body, stream_with_recovery_request::Start, terminal};
use tokio::time::{Sleep, sleep_until};

use crate::{
    Answer, Client, Error, Failed, Outcome, StatusError,
    fold::{Fold, Misfit},
    link::{Link, Opening},
    retry::Retry,
};

/// Times that events that do not fit are read again from the beginning.
const MAX_MISFITS: u32 = 3;

/// A change of the text that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// More text.
    Text(String),
    /// The end of the text was taken back: this is all that remains of it.
    Rewind(String),
}

/// A place from which another process can go on with an invocation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResumePoint {
    /// Token of the invocation.
    pub token: String,
    /// Request id of the invocation; may be empty.
    pub request_id: String,
}

/// Reads one invocation and finds out what changes of its text.
pub(crate) struct Reader {
    client: Client,
    retry: Retry,
    deadline: Option<Pin<Box<Sleep>>>,
    start: Start,
    pub(crate) returns_failure: bool,
    link: Link<v1::StreamWithRecoveryResponse>,
    pub(crate) fold: Fold,
    token: String,
    /// Whether the service promises that nothing is taken back.
    pub(crate) is_atomic: bool,
    shown: String,
    /// Last block of text, at whose end a delta can be passed on as it is.
    last_text: Option<u32>,
    misfits: u32,
    /// Whether events are read again that were shown already.
    is_catching_up: bool,
    changes: VecDeque<Change>,
}

impl Reader {
    pub(crate) fn new(client: Client, retry: Retry, start: Start, returns_failure: bool) -> Self {
        Self {
            client,
            retry,
            deadline: None,
            start,
            returns_failure,
            link: Link::new(),
            fold: Fold::default(),
            token: String::new(),
            is_atomic: false,
            shown: String::new(),
            last_text: None,
            misfits: 0,
            is_catching_up: false,
            changes: VecDeque::new(),
        }
    }

    /// Returns the next change; `None` after the terminal.
    pub(crate) fn poll_change(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Change, Error>>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            if self.fold.terminal.is_some() {
                self.link.end();
            }
            if self.link.is_over() {
                return Poll::Ready(None);
            }
            if self.is_too_late(cx) {
                self.link.end();
                return Poll::Ready(Some(Err(Error::Deadline(None))));
            }
            if self.link.is_idle() {
                let opening = self.open();
                self.link.open(opening);
            }
            let ended = match ready!(self.link.poll_message(cx)) {
                Some(Ok(response)) => match self.take(response) {
                    Ok(()) => continue,
                    Err(misfit) => self.start_over(misfit),
                },
                Some(Err(lost)) => self.reconnect(lost),
                // A wait is over.
                None => continue,
            };
            if let Err(error) = ended {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Ends the reading with an error that the caller finds.
    pub(crate) fn refuse(&mut self, what: &str) -> Error {
        self.leave(true);
        Error::Protocol(what.to_owned())
    }

    /// Ends the reading, and cancels the invocation unless it has ended or runs on by choice.
    pub(crate) fn leave(&mut self, cancels: bool) {
        let is_running = self.link.end() && self.fold.terminal.is_none();
        if cancels && is_running {
            let invocation_id = mem::take(&mut self.fold.invocation_id);
            self.client.cancel(invocation_id, self.request_id());
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn resume_point(&self) -> Result<ResumePoint, Error> {
        if self.token.is_empty() {
            return Err(Error::NotResumable);
        }
        // A token of a resumed stream is the place from which that began, and not the whole answer.
        let token = match &self.start {
            Start::Resume(v1::Resume {
                invocation: Some(v1::resume::Invocation::Token(asked)),
                ..
            }) => asked.clone(),
            _ => self.token.clone(),
        };
        Ok(ResumePoint {
            token,
            request_id: self.request_id(),
        })
    }

    /// Returns the end of the invocation, once its terminal was read.
    pub(crate) fn outcome(&self) -> Result<Outcome, Error> {
        let terminal = self.fold.terminal.clone().ok_or(Error::Unfinished)?;
        let failure = match terminal.outcome {
            Some(terminal::Outcome::Completed(completed)) => {
                return Ok(Outcome::Answer(Answer {
                    text: self.fold.text(),
                    tool_calls: self.fold.tool_calls(),
                    history_patch: completed.history_patch,
                    history_replace_tail: completed.history_replace_tail,
                    invocation_id: self.fold.invocation_id.clone(),
                    target: terminal.final_target,
                    attempts: terminal.attempts,
                    usage: terminal.usage,
                    around: completed.around,
                }));
            }
            Some(terminal::Outcome::Failed(failure)) => failure,
            Some(terminal::Outcome::Cancelled(cancelled)) => cancelled.failure.unwrap_or_default(),
            None => return Err(Error::Protocol("a Terminal without an outcome".to_owned())),
        };
        Ok(Outcome::Failed(Failed {
            failure,
            history_patch: terminal.history_patch,
            invocation_id: self.fold.invocation_id.clone(),
        }))
    }

    fn is_too_late(&mut self, cx: &mut Context<'_>) -> bool {
        if self.deadline.is_none() {
            self.deadline = self
                .retry
                .deadline()
                .map(|deadline| Box::pin(sleep_until(deadline)));
        }
        self.deadline
            .as_mut()
            .is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready())
    }

    fn open(&self) -> Opening<v1::StreamWithRecoveryResponse> {
        let mut stub = self.client.stub();
        let request = self.retry.request(self.next_request());
        Box::pin(async move { Ok(stub.stream_with_recovery(request).await?.into_inner()) })
    }

    /// Returns the first request again, which its request id makes idempotent, or asks for what is
    /// missing after the cursor.
    fn next_request(&self) -> v1::StreamWithRecoveryRequest {
        let start = match self.fold.cursor {
            Some(cursor) if !self.token.is_empty() => Start::Resume(v1::Resume {
                invocation: Some(v1::resume::Invocation::Token(self.token.clone())),
                cursor: Some(cursor),
                answer_view: v1::AnswerView::Repeated.into(),
            }),
            _ => self.start.clone(),
        };
        v1::StreamWithRecoveryRequest { start: Some(start) }
    }

    fn request_id(&self) -> String {
        match &self.start {
            Start::Invocation(invocation) => invocation.request_id.clone(),
            Start::Resume(v1::Resume {
                invocation: Some(v1::resume::Invocation::RequestId(request_id)),
                ..
            }) => request_id.clone(),
            Start::Resume(_) => String::new(),
        }
    }

    /// Waits for another connection, or returns the error with which the stream ends.
    fn reconnect(&mut self, lost: StatusError) -> Result<(), Error> {
        match self.retry.wait_after(lost) {
            Ok(wait) => {
                self.link.wait(wait);
                Ok(())
            }
            Err(error) => {
                // The invocation has a deadline of its own, and can be resumed by its request id.
                self.link.end();
                Err(error)
            }
        }
    }

    /// Reads the invocation again from its beginning, or refuses it.
    fn start_over(&mut self, Misfit(what): Misfit) -> Result<(), Error> {
        self.misfits += 1;
        if self.misfits > MAX_MISFITS {
            return Err(self.refuse(&what));
        }
        self.fold = Fold::default();
        self.is_catching_up = true;
        self.reconnect(StatusError::lost(what))
    }

    /// Folds one event.
    fn take(&mut self, response: v1::StreamWithRecoveryResponse) -> Result<(), Misfit> {
        let Some(event) = response.event else {
            return Ok(());
        };
        if let Some(Body::Accepted(accepted)) = &event.body {
            if !accepted.resume_token.is_empty() {
                self.token.clone_from(&accepted.resume_token);
            }
            self.is_atomic = accepted.rewind_mode() == v1::RewindMode::Atomic;
        }
        if self.fold.apply(&event)? {
            self.retry.progressed();
            self.compare(event);
        }
        Ok(())
    }

    /// Finds out what an event changed of the text. A delta at the end is passed on as it is; all
    /// else is compared.
    fn compare(&mut self, event: v1::StreamEvent) {
        let is_end = match event.body {
            Some(Body::BlockDelta(delta))
                if self.last_text == Some(delta.block_id) && !self.is_catching_up =>
            {
                return self.add(delta.text);
            }
            Some(Body::Terminal(_)) => true,
            Some(
                Body::BlockStart(_) | Body::BlockDelta(_) | Body::Rewind(_) | Body::Snapshot(_),
            ) => false,
            _ => return,
        };
        let blocks = self.fold.blocks.iter();
        self.last_text = blocks
            .filter(|(_, block)| block.is(v1::BlockKind::Text))
            .map(|(id, _)| *id)
            .next_back();
        let now = self.fold.text();
        if self.is_catching_up && self.shown.starts_with(&now) && !is_end {
            return;
        }
        self.is_catching_up = false;
        if !now.starts_with(&self.shown) {
            self.shown.truncate(common_length(&self.shown, &now));
            self.changes.push_back(Change::Rewind(self.shown.clone()));
        }
        if now.len() > self.shown.len() {
            self.add(now[self.shown.len()..].to_owned());
        }
    }

    fn add(&mut self, text: String) {
        self.shown.push_str(&text);
        self.changes.push_back(Change::Text(text));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.leave(true);
    }
}

/// Returns the length in bytes of the longest common beginning of whole characters.
fn common_length(one: &str, other: &str) -> usize {
    one.char_indices()
        .zip(other.chars())
        .find(|((_, a), b)| a != b)
        .map_or_else(|| one.len().min(other.len()), |((at, _), _)| at)
}
