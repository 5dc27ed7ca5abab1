//! A client of `StreamWithRecovery` that folds as the contract specifies, and checks every event
//! against it.
//!
//! Written from the text of `stream.proto` alone; the library's own folder gets the same events
//! beside it, and must hold the same.

use std::collections::BTreeMap;

use relight::internals::grpc::{
    folder::Folder,
    v1::{
        Accepted, Invocation, ResponseStarted, Resume, StreamCursor, StreamEvent,
        StreamWithRecoveryRequest, StreamWithRecoveryResponse, Terminal,
        recovery_service_client::RecoveryServiceClient, resume, stream_event::Body,
        stream_with_recovery_request::Start, terminal::Outcome,
    },
};
use sha2::{Digest, Sha256};
use tonic::{Status, Streaming, transport::Channel};

/// A block as the client holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: i32,
    pub(crate) text: String,
    pub(crate) stopped: bool,
    pub(crate) committed: bool,
}

/// What the client holds; it outlives its connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folding {
    pub(crate) invocation: String,
    pub(crate) token: String,
    pub(crate) cursor: Option<(u64, u64)>,
    pub(crate) blocks: BTreeMap<u32, Held>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) accepted: Option<Accepted>,
    pub(crate) rewinds: usize,
    pub(crate) snapshots: usize,
    pub(crate) heartbeats: usize,
    pub(crate) recoveries: Vec<String>,
    /// The lines about waiting.
    pub(crate) parked: Vec<String>,
    /// What providers said around their answers when they began.
    pub(crate) responses: Vec<ResponseStarted>,
    pub(crate) events: usize,
    pub(crate) reference: Folder,
}

// === impl Folding ===

impl Folding {
    /// Follows a new invocation until its stream ends; `Err` is how it ended when not well.
    pub(crate) async fn all(
        client: RecoveryServiceClient<Channel>,
        invocation: Invocation,
    ) -> (Self, Option<Status>) {
        let mut folding = Self::default();
        let mut stream = start(client, invocation).await.unwrap();
        let ended = folding.follow(&mut stream, usize::MAX).await;
        (folding, ended)
    }

    /// Reads at most `events` more; returns how the stream ended when it ended with an error.
    pub(crate) async fn follow(
        &mut self,
        stream: &mut Streaming<StreamWithRecoveryResponse>,
        events: usize,
    ) -> Option<Status> {
        for _ in 0..events {
            match stream.message().await {
                Ok(Some(message)) => self.fold(message.event.unwrap()),
                Ok(None) => {
                    assert!(self.terminal.is_some(), "OK without a Terminal");
                    return None;
                }
                Err(status) => return Some(status),
            }
        }
        None
    }

    /// Resumes where the last connection broke.
    pub(crate) fn resume(&self) -> StreamWithRecoveryRequest {
        let resume = Resume {
            invocation: Some(resume::Invocation::Token(self.token.clone())),
            cursor: self.cursor.map(|(epoch, seq)| StreamCursor { epoch, seq }),
            ..Resume::default()
        };
        StreamWithRecoveryRequest {
            start: Some(Start::Resume(resume)),
        }
    }

    /// Resumes again and again until there is an end.
    pub(crate) async fn insist(&mut self, client: &RecoveryServiceClient<Channel>) {
        while self.terminal.is_none() {
            match client.clone().stream_with_recovery(self.resume()).await {
                Ok(stream) => {
                    self.follow(&mut stream.into_inner(), usize::MAX).await;
                }
                Err(status) => {
                    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// The text of all text blocks.
    pub(crate) fn text(&self) -> String {
        self.blocks
            .values()
            .filter(|block| block.kind == 1)
            .map(|block| block.text.as_str())
            .collect()
    }

    pub(crate) fn is_completed(&self) -> bool {
        matches!(
            self.terminal
                .as_ref()
                .and_then(|terminal| terminal.outcome.as_ref()),
            Some(Outcome::Completed(_))
        )
    }

    /// Folds one event as the contract specifies.
    pub(crate) fn fold(&mut self, event: StreamEvent) {
        self.reference
            .fold(&event)
            .unwrap_or_else(|unfit| panic!("{unfit}: {event:?}"));
        self.fold_by_the_contract(event);
        let cursor = self
            .reference
            .cursor()
            .map(|cursor| (cursor.epoch, cursor.seq));
        assert_eq!(
            (self.reference.hash(), cursor),
            (self.hash(), self.cursor),
            "the library's folder"
        );
        assert_eq!(self.reference.has_ended(), self.terminal.is_some());
    }

    fn fold_by_the_contract(&mut self, event: StreamEvent) {
        self.events += 1;
        self.invocation.clone_from(&event.invocation_id);
        let body = event.body.unwrap();
        match &body {
            Body::Accepted(accepted) => {
                self.token.clone_from(&accepted.resume_token);
                self.accepted = Some(accepted.clone());
                return;
            }
            Body::Heartbeat(_) => {
                self.heartbeats += 1;
                return;
            }
            Body::Snapshot(snapshot) => {
                self.snapshots += 1;
                self.blocks.clear();
                for block in &snapshot.blocks {
                    let start = block.start.as_ref().unwrap();
                    let held = Held {
                        kind: start.kind,
                        text: block.text.clone(),
                        stopped: block.stop.is_some(),
                        committed: block.stop.as_ref().is_some_and(|stop| stop.committed),
                    };
                    self.blocks.insert(start.block_id, held);
                }
                assert_eq!(self.hash(), snapshot.hash, "a snapshot's hash");
                // Number 0 is before the first event.
                self.cursor = (event.seq > 0).then_some((event.epoch, event.seq));
                return;
            }
            _ => {}
        }
        if let Some((epoch, seq)) = self.cursor {
            if (event.epoch, event.seq) <= (epoch, seq) && event.epoch == epoch {
                assert!(self.terminal.is_some() || !matches!(body, Body::Terminal(_)));
                return;
            }
            assert_eq!(event.seq, seq + 1, "a gap after {epoch}/{seq}: {body:?}");
            assert!(
                event.epoch >= epoch,
                "an old owner speaks: {} after {epoch}",
                event.epoch
            );
        } else {
            assert_eq!(event.seq, 1, "the first is 1");
        }
        self.cursor = Some((event.epoch, event.seq));
        assert!(
            self.terminal.is_none(),
            "something came after the Terminal: {body:?}"
        );
        self.apply(body);
    }

    fn apply(&mut self, body: Body) {
        match body {
            Body::BlockStart(start) => {
                let fresh = Held {
                    kind: start.kind,
                    ..Held::default()
                };
                assert!(
                    self.blocks.insert(start.block_id, fresh).is_none(),
                    "block {} twice",
                    start.block_id
                );
            }
            Body::BlockDelta(delta) => {
                let held = self.blocks.get_mut(&delta.block_id).unwrap();
                assert!(!held.stopped, "a delta after the end of its block");
                assert_eq!(
                    held.text.len() as u64,
                    delta.start_offset_bytes,
                    "lost or doubled text"
                );
                assert!(!delta.text.is_empty());
                held.text.push_str(&delta.text);
            }
            Body::BlockStop(stop) => {
                let held = self.blocks.get_mut(&stop.block_id).unwrap();
                assert_eq!(held.text.len() as u64, stop.length_bytes);
                assert_eq!(
                    Sha256::digest(&held.text).to_vec(),
                    stop.hash,
                    "a block's hash"
                );
                assert!(!held.stopped);
                (held.stopped, held.committed) = (true, stop.committed);
                if stop.committed {
                    assert_eq!(stop.arguments_json.as_deref(), Some(held.text.as_str()));
                    serde_json::from_str::<serde_json::Value>(&held.text)
                        .expect("committed arguments are JSON");
                }
            }
            Body::Rewind(rewind) => {
                self.rewinds += 1;
                let mut kept = BTreeMap::new();
                for keep in rewind.keep {
                    let mut held = self.blocks[&keep.block_id].clone();
                    let length = usize::try_from(keep.length_bytes).unwrap();
                    if length < held.text.len() {
                        held.text.truncate(length);
                        held.stopped = false;
                    }
                    kept.insert(keep.block_id, held);
                }
                let touched =
                    |(id, held): (&u32, &Held)| held.committed && kept.get(id) != Some(held);
                assert!(
                    !self.blocks.iter().any(touched),
                    "a rewind touches a committed call"
                );
                self.blocks = kept;
                assert_eq!(self.hash(), rewind.hash, "a rewind's hash");
            }
            Body::Recovery(recovery) => self.recoveries.push(recovery.display_text),
            Body::Parked(parked) => self.parked.push(parked.display_text),
            Body::Terminal(terminal) => {
                assert!(terminal.outcome.is_some());
                assert_eq!(self.hash(), terminal.result_hash, "the result's hash");
                self.terminal = Some(terminal);
            }
            Body::ResponseStarted(started) => self.responses.push(started),
            Body::AttemptStarted(_) | Body::ContextInjected(_) | Body::Usage(_) => {}
            Body::Accepted(_) | Body::Heartbeat(_) | Body::Snapshot(_) => {
                unreachable!("not numbered")
            }
        }
    }

    /// The hash over all blocks, by the contract's words.
    pub(crate) fn hash(&self) -> Vec<u8> {
        let mut hasher = Sha256::new();
        for (id, held) in &self.blocks {
            hasher.update(id.to_be_bytes());
            hasher.update(u32::try_from(held.kind).unwrap().to_be_bytes());
            hasher.update((held.text.len() as u64).to_be_bytes());
            hasher.update(Sha256::digest(&held.text));
        }
        hasher.finalize().to_vec()
    }
}

/// Starts a stream.
pub(crate) async fn start(
    mut client: RecoveryServiceClient<Channel>,
    invocation: Invocation,
) -> Result<Streaming<StreamWithRecoveryResponse>, Status> {
    let request = StreamWithRecoveryRequest {
        start: Some(Start::Invocation(invocation)),
    };
    Ok(client.stream_with_recovery(request).await?.into_inner())
}
