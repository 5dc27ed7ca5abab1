//! `StreamWithRecovery`: one client's stream of an invocation, from its start or from where an
//! earlier one broke.
//!
//! It ends with OK only after a `Terminal`; any other end is an error after which the client
//! resumes. Nothing is decided here: who runs the invocation, and which steps the client still
//! needs, is decided below.

use std::time::Duration;

use async_stream::stream;
use jiff::Timestamp;
use tonic::Status;

use super::{
    auth::{Access, Identity, withdrawn},
    convert::{
        outcome::{ResponseContext, wire_disposition},
        request::{Resume, ResumeName},
        stream::{EventPosition, StreamHeader, StreamWriter},
    },
    recovery::{Recovery, Streaming},
    resume_token::Resumable,
    v1,
};
use crate::{
    call_error::{
        CallError,
        table::{INVOCATION_NOT_FOUND, RESUME},
    },
    domain::{clock, fold::StreamStep, ids::TenantId},
    engine::InvocationRequest,
    execution::{IdleTimer, InvocationName, Started, StreamItem},
};

/// Silence after which a client receives a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

impl Recovery {
    /// Returns the stream of a new invocation, or of the one that it repeats.
    pub(super) async fn stream_new(
        &self,
        request: InvocationRequest,
        view: v1::AnswerView,
        (identity, access): (&Identity, Option<Access>),
    ) -> Result<Streaming<v1::StreamWithRecoveryResponse>, Status> {
        let operation = request.operation.clone();
        let thread = request.thread.clone();
        let tenant = identity.tenant.clone();
        let incoming = self.resolve(request, identity).await?;
        let max_retries = incoming.plan.retry.max_retries;
        let started = self.executions.start(incoming).await?;
        let context = ResponseContext {
            operation,
            thread,
            disposition: wire_disposition(started.disposition),
        };
        let writer = StreamWriter::new(started.id.clone(), context, max_retries).seen(view);
        Ok(self.stream(started, writer, (tenant, access), (0, 0)))
    }

    /// Returns the stream of an earlier invocation, after what its client has.
    pub(super) async fn stream_resumed(
        &self,
        resume: Resume,
        view: v1::AnswerView,
        (identity, access): (&Identity, Option<Access>),
    ) -> Result<Streaming<v1::StreamWithRecoveryResponse>, Status> {
        let (name, given) = match resume.of {
            ResumeName::Token(token) => {
                let token_payload =
                    self.tokens.read(&token, clock::wall_now()).ok_or_else(|| {
                        CallError::invalid_field(
                            "resume.token",
                            "was not given by this service, or is no longer good",
                        )
                    })?;
                if token_payload.tenant != identity.tenant {
                    let id = token_payload.invocation;
                    let error = CallError::new(INVOCATION_NOT_FOUND).fact("invocation", id);
                    return Err(error.into());
                }
                (
                    InvocationName::Id(token_payload.invocation),
                    Some(token_payload.after),
                )
            }
            ResumeName::Request(request) => (InvocationName::Request(request), None),
        };
        let record = self.record(identity, &name).await?;
        identity.may_use(&record.route)?;
        let after = resume.after.or(given).filter(|(_, seq)| *seq > 0);
        let started = self.executions.follow(&record, after);
        let max_retries = self
            .engine
            .plan(Some(&record.route), &record.operation)
            .map_or(0, |plan| plan.retry.max_retries);
        let context = ResponseContext {
            operation: record.operation.clone(),
            thread: record.thread.clone(),
            disposition: wire_disposition(started.disposition),
        };
        let writer = StreamWriter::new(record.id.clone(), context, max_retries).seen(view);
        let caller = (record.tenant, access);
        Ok(self.stream(started, writer, caller, after.unwrap_or_default()))
    }

    fn stream(
        &self,
        started: Started,
        mut writer: StreamWriter,
        (tenant, access): (TenantId, Option<Access>),
        after: (u64, u64),
    ) -> Streaming<v1::StreamWithRecoveryResponse> {
        let Started {
            id,
            route,
            deadline_at,
            epoch,
            mode,
            events_kept,
            mut follower,
            ..
        } = started;
        let resume_token = if events_kept.is_zero() {
            String::new()
        } else {
            let expires_at = later(deadline_at.max(clock::wall_now()), events_kept);
            self.tokens.write(&Resumable {
                tenant: tenant.clone(),
                invocation: id.clone(),
                after,
                expires_at,
            })
        };
        let header = StreamHeader {
            resume_token,
            deadline: deadline_at,
            retention: events_kept,
            mode,
        };
        Box::pin(stream! {
            let mut last = EventPosition { epoch, seq: 0, at: clock::wall_now() };
            yield Ok(message(writer.accepted(last, &header)));
            let withdrawn = withdrawn(access, |now| {
                now.tenant == tenant && now.may_invoke() && now.may_use(&route).is_ok()
            });
            tokio::pin!(withdrawn);
            let mut timer = IdleTimer::new(HEARTBEAT);
            loop {
                let item = tokio::select! {
                    biased;
                    why = &mut withdrawn => {
                        yield Err(Status::from(CallError::from(why)));
                        return;
                    }
                    item = timer.bounded(follower.next()) => item,
                };
                let event = match item {
                    None => {
                        let now = EventPosition { at: clock::wall_now(), ..last };
                        Some(Ok(writer.heartbeat(now, follower.upstream_silence())))
                    }
                    Some(Ok(None)) => return,
                    Some(Err(why)) => {
                        yield Err(Status::from(why.of_resumable(&id)));
                        return;
                    }
                    Some(Ok(Some(StreamItem::Snapshot { epoch, seq, at, blocks, attempt }))) => {
                        last = EventPosition { epoch, seq, at };
                        writer.restore(blocks, attempt);
                        Some(Ok(writer.snapshot(last)))
                    }
                    Some(Ok(Some(StreamItem::Step(entry)))) => {
                        last = EventPosition { epoch: entry.epoch, seq: entry.seq, at: entry.at };
                        Some(writer.step(last, &entry.step))
                    }
                    Some(Ok(Some(StreamItem::Known(entry)))) => {
                        last = EventPosition { epoch: entry.epoch, seq: entry.seq, at: entry.at };
                        writer.step(last, &entry.step).err().map(Err)
                    }
                };
                match event {
                    None => {}
                    Some(Ok(event)) => yield Ok(message(event)),
                    Some(Err(error)) => {
                        tracing::error!(invocation = %id, %error, "a step does not fold");
                        let error = CallError::new(RESUME).fact("invocationId", &id);
                        yield Err(Status::from(error));
                        return;
                    }
                }
            }
        })
    }
}

fn message(event: v1::StreamEvent) -> v1::StreamWithRecoveryResponse {
    v1::StreamWithRecoveryResponse { event: Some(event) }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns whether a step is an end.
pub(super) const fn is_end(step: &StreamStep) -> bool {
    matches!(step, StreamStep::Terminal(_))
}
