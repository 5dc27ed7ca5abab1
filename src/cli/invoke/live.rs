//! The completion as it comes: shown while it is generated, resumed after a lost connection, and found
//! again after the command itself was killed.
//!
//! On a terminal the text is shown piece by piece, and a rewind is announced. Everywhere else only
//! the final completion is written, so that a pipe receives no text that is later revoked.

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use crate::{
    domain::completion::BlockKind,
    grpc::{
        folder::{Change, Folder},
        v1::{self, stream_event::Body, stream_with_recovery_request::Start},
    },
};
use anyhow::bail;
use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Streaming};

use super::{
    super::{
        client::{RecoveryClient, ResponseLimit, Unreachable},
        refusal::ServerRefusal,
        terminal::{Paint, end_line, one_line, print_note, printable, show},
    },
    memory::Memory,
};

/// Time for which a lost connection is tried again.
const INSIST: Duration = Duration::from_secs(15);

/// Time that a server may take to record an invocation before its stream starts.
const RECORD_LIMIT: Duration = Duration::from_secs(30);

/// The wait between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// Answer as it comes.
#[derive(Debug, Default)]
pub(super) struct Live {
    folder: Folder,
    token: String,
    on_terminal: bool,
    /// `true` if recoveries are shown from here because no watch shows them.
    shows_recoveries: bool,
}

// === impl Live ===

impl Live {
    /// Creates a view that shows a completion on standard output.
    pub(super) fn new(shows_recoveries: bool) -> Self {
        Self {
            on_terminal: io::stdout().is_terminal(),
            shows_recoveries,
            ..Self::default()
        }
    }

    /// Returns the mode in which content is to be delivered for this.
    pub(super) fn mode(&self) -> v1::RewindMode {
        if self.on_terminal {
            v1::RewindMode::Rewind
        } else {
            v1::RewindMode::Atomic
        }
    }

    /// Returns whether the completion was shown as it came.
    pub(super) const fn was_shown(&self) -> bool {
        self.on_terminal
    }

    /// Follows the invocation to its end, over as many connections as that takes.
    pub(super) async fn follow(
        &mut self,
        client: &mut RecoveryClient,
        mut start: Start,
        memory: &Memory,
    ) -> anyhow::Result<v1::InvokeWithRecoveryResponse> {
        let mut lost_at: Option<Instant> = None;
        loop {
            let mut request = Request::new(v1::StreamWithRecoveryRequest {
                start: Some(start.clone()),
            });
            if matches!(start, Start::Invocation(_)) {
                request
                    .extensions_mut()
                    .insert(ResponseLimit(Some(RECORD_LIMIT)));
            }
            let ended = match client.stream_with_recovery(request).await {
                Ok(stream) => {
                    self.read(client, stream.into_inner(), memory, &mut lost_at)
                        .await?
                }
                Err(status) => Err(status),
            };
            let status = match ended {
                Ok(terminal) => {
                    memory.forget();
                    end_line();
                    return Ok(self.response(terminal));
                }
                Err(status) => status,
            };
            let is_begun = !self.token.is_empty()
                || matches!(start, Start::Resume(_)) && !Unreachable::is_silence(&status);
            if !is_begun || !may_come_back(&status) {
                end_line();
                return Err(ServerRefusal::from(status).into());
            }
            let since = *lost_at.get_or_insert_with(|| {
                end_line();
                print_note(
                    &Paint::on(&io::stderr())
                        .dim("The connection was lost; resuming where it broke."),
                );
                Instant::now()
            });
            if since.elapsed() > INSIST {
                bail!(
                    "the server did not come back; continue with `relight invoke --resume` when it does"
                );
            }
            sleep(RETRY_INTERVAL).await;
            if !self.token.is_empty() {
                let invocation = Some(v1::resume::Invocation::Token(self.token.clone()));
                start = Start::Resume(v1::Resume {
                    invocation,
                    cursor: self.folder.cursor(),
                    answer_view: v1::AnswerView::Repeated.into(),
                });
            }
        }
    }

    /// Reads one connection's events; the inner error is how it broke.
    async fn read(
        &mut self,
        client: &mut RecoveryClient,
        mut stream: Streaming<v1::StreamWithRecoveryResponse>,
        memory: &Memory,
        lost_at: &mut Option<Instant>,
    ) -> anyhow::Result<Result<v1::Terminal, tonic::Status>> {
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    end_line();
                    self.cancel(client).await;
                    memory.forget();
                    bail!("interrupted; the invocation was cancelled");
                }
            };
            match message {
                Ok(Some(message)) => {
                    *lost_at = None;
                    let Some(event) = message.event else { continue };
                    if let Some(terminal) = self.take(event, memory)? {
                        return Ok(Ok(terminal));
                    }
                }
                Ok(None) => bail!("the server ended the stream without an end"),
                Err(status) => return Ok(Err(status)),
            }
        }
    }

    /// Ctrl-C cancels the invocation at the server, too.
    async fn cancel(&self, client: &mut RecoveryClient) {
        use v1::cancel_invocation_request::Invocation;
        let request = v1::CancelInvocationRequest {
            invocation: Some(Invocation::InvocationId(
                self.folder.invocation().to_owned(),
            )),
            reason: "interrupted".to_owned(),
        };
        // The command ends in any case.
        let _ =
            tokio::time::timeout(Duration::from_secs(2), client.cancel_invocation(request)).await;
    }

    /// Folds an event; the end comes back.
    fn take(
        &mut self,
        event: v1::StreamEvent,
        memory: &Memory,
    ) -> anyhow::Result<Option<v1::Terminal>> {
        let change = match self.folder.fold(&event) {
            Ok(change) => change,
            Err(unfit) => {
                end_line();
                bail!(
                    "what the server sends does not fit together: {unfit}; `relight invoke --resume` begins anew"
                );
            }
        };
        match (event.body, change) {
            (Some(Body::Accepted(accepted)), _) => {
                if !accepted.resume_token.is_empty() {
                    self.token = accepted.resume_token;
                    memory.keep(&self.token);
                }
            }
            (Some(Body::BlockDelta(delta)), Change::Added) => {
                let block = self
                    .folder
                    .blocks()
                    .iter()
                    .find(|block| block.id == delta.block_id);
                if block.is_some_and(|block| block.kind == BlockKind::Text) {
                    self.show(&delta.text);
                }
            }
            (Some(Body::Rewind(_)), Change::Replaced) => {
                self.anew("What was shown is taken back; the answer begins anew:");
            }
            (Some(Body::Snapshot(_)), Change::Replaced) => self.anew("The answer so far:"),
            (Some(Body::Recovery(recovery)), Change::Added) if self.shows_recoveries => {
                print_note(&Paint::on(&io::stderr()).yellow(&one_line(&recovery.display_text)));
            }
            (Some(Body::Parked(parked)), Change::Added) if self.shows_recoveries => {
                print_note(&Paint::on(&io::stderr()).yellow(&one_line(&parked.display_text)));
            }
            (Some(Body::Terminal(terminal)), _) => return Ok(Some(terminal)),
            (_, Change::Nothing | Change::Added | Change::Replaced | Change::Ended) => {}
        }
        Ok(None)
    }

    /// Shows the whole remaining text again.
    fn anew(&self, why: &str) {
        if !self.on_terminal {
            return;
        }
        end_line();
        print_note(&Paint::on(&io::stderr()).dim(why));
        let text = self.folder.text();
        self.show(&text);
    }

    fn show(&self, text: &str) {
        if self.on_terminal {
            show(&printable(text));
        }
    }

    /// Returns the end as the response of a unary call.
    fn response(&self, terminal: v1::Terminal) -> v1::InvokeWithRecoveryResponse {
        use v1::{invoke_with_recovery_response::Outcome, terminal::Outcome as End};
        let mut response = v1::InvokeWithRecoveryResponse {
            invocation_id: self.folder.invocation().to_owned(),
            recovery_applied: terminal.recovery_applied,
            attempts: terminal.attempts,
            usage: terminal.usage,
            final_model: terminal.final_model,
            final_target: terminal.final_target,
            reasoning: terminal.reasoning,
            ..v1::InvokeWithRecoveryResponse::default()
        };
        response.outcome = terminal.outcome.map(|end| match end {
            End::Completed(completed) => {
                let answered = completed
                    .history_patch
                    .last()
                    .filter(|last| last.role() == v1::Role::Assistant);
                Outcome::Completion(v1::Completion {
                    message: answered.cloned(),
                    text: self.folder.text(),
                    finish_reason: completed.finish_reason,
                    raw_finish_reason: completed.raw_finish_reason,
                    usage: completed.usage,
                    tool_output: completed.tool_output,
                    around: completed.around,
                })
            }
            End::Failed(failure) => Outcome::Failure(failure),
            End::Cancelled(cancelled) => Outcome::Failure(cancelled.failure.unwrap_or_default()),
        });
        response
    }
}

/// Returns whether the invocation may still be there although the connection is not.
fn may_come_back(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::DataLoss
    )
}
