//! Tests of `stream`, one for each guarantee.

use sha2::{Digest, Sha256};

use super::*;
use crate::domain::{
    completion::{Completion, FinishReason, Usage},
    failure::{Failure, Wait, WaitSource},
    fold::hash_blocks,
    invocation::{AttemptCause, HistoryPatch},
    message::{Message, Opaque, Role},
};

fn place(seq: u64) -> EventPosition {
    EventPosition {
        epoch: 1,
        seq,
        at: Timestamp::UNIX_EPOCH,
    }
}

fn writer() -> StreamWriter {
    let disposition = v1::RequestDisposition::New;
    StreamWriter::new(
        "i1".into(),
        ResponseContext {
            operation: "executor".into(),
            thread: None,
            disposition,
        },
        2,
    )
}

fn attempt(number: u32, cause: AttemptCause) -> StreamStep {
    StreamStep::AttemptStarted {
        attempt: number,
        target: "a".into(),
        cause,
        model: "m-1".to_owned(),
        repaired: None,
        tool: None,
    }
}

fn block(id: u32, kind: BlockKind, text: &str) -> [StreamStep; 3] {
    let opaque = Some(Opaque {
        kind: "anthropic.signature".to_owned(),
        bytes: vec![0, 255],
    });
    let bytes = text.len() as u64;
    let hash = hash_text(text);
    [
        StreamStep::BlockStart { block: id, kind },
        StreamStep::BlockDelta {
            block: id,
            offset: 0,
            text: text.to_owned(),
        },
        StreamStep::BlockStop {
            block: id,
            bytes,
            hash,
            opaque,
            committed: true,
        },
    ]
}

fn tool_call() -> BlockKind {
    BlockKind::ToolCall {
        id: "c1".to_owned(),
        name: "search".to_owned(),
    }
}

fn bodies(writer: &mut StreamWriter, steps: &[StreamStep]) -> Vec<Body> {
    let numbered = steps.iter().zip(1_u64..);
    numbered
        .map(|(step, seq)| writer.step(place(seq), step).unwrap().body.unwrap())
        .collect()
}

fn outcome(result: Result<Completion, Failure>) -> StreamStep {
    StreamStep::Terminal(std::sync::Arc::new(Outcome {
        invocation: "i1".into(),
        operation: None,
        result,
        attempts: Vec::new(),
        recovery_applied: Vec::new(),
        reasoning: String::new(),
        alternatives: Vec::new(),
        usage: Usage::default(),
        history_patch: HistoryPatch::default(),
        target: None,
        stopped_by: None,
    }))
}

/// Returns the hash over blocks, written from the text of `stream.proto` alone.
fn hash_by_the_contract(blocks: &[(u32, v1::BlockKind, &str)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (id, kind, text) in blocks {
        all.extend(id.to_be_bytes());
        all.extend(i32::from(*kind).to_be_bytes());
        all.extend((text.len() as u64).to_be_bytes());
        all.extend(Sha256::digest(text.as_bytes()));
    }
    Sha256::digest(all).to_vec()
}

#[test]
fn a_stopped_tool_call_shows_its_whole_arguments_and_only_it_may_be_committed() {
    let mut writer = writer();
    let [start, delta, stop] = block(1, tool_call(), r#"{"q":1}"#);
    let sent = bodies(
        &mut writer,
        &[attempt(1, AttemptCause::Initial), start, delta, stop],
    );
    let Body::BlockStart(start) = &sent[1] else {
        panic!("a start")
    };
    assert_eq!(
        (start.call_id.as_str(), start.tool_name.as_str()),
        ("c1", "search")
    );
    let Body::BlockStop(stop) = &sent[3] else {
        panic!("a stop")
    };
    assert_eq!(
        (stop.arguments_json.as_deref(), stop.committed),
        (Some(r#"{"q":1}"#), true)
    );
    assert_eq!(stop.hash, Sha256::digest(br#"{"q":1}"#).to_vec());
    assert_eq!(
        (stop.length_bytes, stop.opaque[0].data.as_slice()),
        (7, [0, 255].as_slice())
    );
    let sent = bodies(&mut writer, &block(2, BlockKind::Text, "hi"));
    let Body::BlockStop(stop) = &sent[2] else {
        panic!("a stop")
    };
    assert_eq!(
        (stop.arguments_json.as_deref(), stop.committed),
        (None, false)
    );
}

#[test]
fn events_carry_their_place_and_the_attempt_that_runs() {
    let mut writer = writer();
    let first = writer
        .step(
            place(5),
            &attempt(3, AttemptCause::Fallback(FailureClass::Overloaded)),
        )
        .unwrap();
    assert_eq!(
        (
            first.invocation_id.as_str(),
            first.epoch,
            first.seq,
            first.attempt
        ),
        ("i1", 1, 5, 3)
    );
    let Some(Body::AttemptStarted(started)) = first.body else {
        panic!("an attempt")
    };
    assert_eq!(started.after, i32::from(v1::FailureClass::Overloaded));
    let [start, ..] = block(1, BlockKind::Text, "");
    assert_eq!(writer.step(place(6), &start).unwrap().attempt, 3);
    let beat = writer.heartbeat(place(6), Some(Duration::from_secs(10)));
    assert_eq!((beat.seq, beat.attempt), (0, 3));
    let Some(Body::Heartbeat(beat)) = beat.body else {
        panic!("a heartbeat")
    };
    assert_eq!((beat.last_seq, beat.upstream_silence_ms), (6, Some(10_000)));
}

#[test]
fn the_end_hashes_all_blocks_as_the_contract_specifies() {
    let mut writer = writer();
    // Blocks may begin out of order; the hash goes by their ids.
    bodies(&mut writer, &block(2, tool_call(), "{}"));
    bodies(&mut writer, &block(1, BlockKind::Text, "héllo"));
    let expected = hash_by_the_contract(&[
        (1, v1::BlockKind::Text, "héllo"),
        (2, v1::BlockKind::ToolCall, "{}"),
    ]);
    let answer = Completion {
        around: None,
        tool_output: None,
        message: Message::text(Role::Assistant, "héllo"),
        finish: FinishReason::Stop,
        finish_raw: "stop".to_owned(),
        model: "m".to_owned(),
        response_id: None,
        usage: Usage::default(),
    };
    let Some(Body::Snapshot(snapshot)) = writer.snapshot(place(6)).body else {
        panic!("a snapshot")
    };
    assert_eq!(snapshot.hash, expected);
    let ids: Vec<u32> = snapshot
        .blocks
        .iter()
        .filter_map(|block| Some(block.start.as_ref()?.block_id))
        .collect();
    assert_eq!(ids, [1, 2]);
    let last = writer.step(place(7), &outcome(Ok(answer))).unwrap();
    let Some(Body::Terminal(terminal)) = last.body else {
        panic!("the end")
    };
    assert_eq!(
        (terminal.result_hash, terminal.final_model.as_str()),
        (expected, "m")
    );
    assert_eq!(
        terminal.recovery_applied,
        [i32::from(v1::RecoveryStrategy::None)]
    );
    let Some(v1::terminal::Outcome::Completed(completed)) = terminal.outcome else {
        panic!("an answer")
    };
    assert_eq!(completed.finish_reason, i32::from(v1::FinishReason::Stop));
}

#[test]
fn a_failure_and_a_cancellation_end_a_stream_differently() {
    use v1::terminal::Outcome as End;
    let end = |class| {
        let sent = writer()
            .step(
                place(1),
                &outcome(Err(Failure::local(class, "client gone"))),
            )
            .unwrap();
        let Some(Body::Terminal(terminal)) = sent.body else {
            panic!("the end")
        };
        terminal.outcome.unwrap()
    };
    assert!(
        matches!(end(FailureClass::Timeout), End::Failed(failure) if failure.failed_operation == "executor")
    );
    let cancelled = end(FailureClass::Cancelled);
    assert!(
        matches!(cancelled, End::Cancelled(sent) if sent.reason == "client gone" && sent.failure.is_some())
    );
}

#[test]
fn a_rewind_reports_what_stays_and_a_recovery_how_many_attempts_are_left() {
    let mut writer = writer();
    bodies(&mut writer, &[attempt(1, AttemptCause::Initial)]);
    let [start, delta, _] = block(1, BlockKind::Text, "hello world");
    bodies(&mut writer, &[start, delta]);
    let kept = Block {
        id: 1,
        kind: BlockKind::Text,
        text: "hello".to_owned(),
        opaque: None,
        stopped: false,
        committed: false,
    };
    let hash = hash_blocks([&kept].into_iter());
    let class = FailureClass::StreamInterrupted;
    let rewind = StreamStep::Rewind {
        keep: vec![(1, 5)],
        cause: class,
        attempt: 1,
        hash,
    };
    let wait = Wait {
        duration: Duration::from_millis(40),
        source: WaitSource::Backoff,
    };
    let strategy = RecoveryStrategy::Fallback;
    let recovery = StreamStep::Recovery {
        attempt: 1,
        class,
        strategy,
        wait,
        display: "Falling back".to_owned(),
        budget_left: 0.25,
        adaptation: None,
    };
    let sent = bodies(&mut writer, &[rewind, recovery]);
    let Body::Rewind(rewind) = &sent[0] else {
        panic!("a rewind")
    };
    assert_eq!(
        rewind.keep,
        [v1::KeptBlock {
            block_id: 1,
            length_bytes: 5
        }]
    );
    assert_eq!(
        rewind.hash,
        hash_by_the_contract(&[(1, v1::BlockKind::Text, "hello")])
    );
    let Body::Recovery(recovery) = &sent[1] else {
        panic!("a recovery")
    };
    assert_eq!((recovery.attempts_left, recovery.wait_ms), (2, 40));
    assert_eq!(
        recovery.wait_source,
        i32::from(v1::WaitSource::TargetSwitch)
    );
    assert!((recovery.budget_left - 0.25).abs() < 1e-9);
}

#[test]
fn a_step_that_does_not_fit_is_an_error_and_changes_nothing() {
    let mut writer = writer();
    let [start, delta, stop] = block(1, BlockKind::Text, "hello");
    assert_eq!(writer.step(place(1), &delta), Err(FoldError::State(1)));
    assert_eq!(bodies(&mut writer, &[start, delta, stop]).len(), 3);
}

#[test]
fn a_writer_continues_from_what_a_journal_kept() {
    let mut before = writer();
    bodies(&mut before, &[attempt(1, AttemptCause::Initial)]);
    bodies(&mut before, &block(1, BlockKind::Text, "hi"));
    let mut after = writer();
    after.restore(before.fold.blocks().to_vec(), 1);
    assert_eq!(after.snapshot(place(4)), before.snapshot(place(4)));
}

#[test]
fn a_stream_header_states_how_content_is_delivered() {
    let accepted = |mode| {
        let header = StreamHeader {
            resume_token: "token".to_owned(),
            deadline: Timestamp::UNIX_EPOCH,
            retention: Duration::from_mins(15),
            mode,
        };
        let Some(Body::Accepted(sent)) = writer().accepted(place(1), &header).body else {
            panic!("a welcome")
        };
        assert_eq!(
            (sent.resume_token.as_str(), sent.retention_ms),
            ("token", 900_000)
        );
        assert_eq!(sent.disposition, i32::from(v1::RequestDisposition::New));
        (sent.rewind_mode, sent.hold_back_bytes)
    };
    assert_eq!(
        accepted(RewindMode::Rewind),
        (v1::RewindMode::Rewind.into(), None)
    );
    assert_eq!(
        accepted(RewindMode::HoldBack { bytes: 64 }),
        (v1::RewindMode::Holdback.into(), Some(64))
    );
    assert_eq!(
        accepted(RewindMode::HoldBack { bytes: 0 }),
        (v1::RewindMode::Holdback.into(), None)
    );
    assert_eq!(
        accepted(RewindMode::Atomic),
        (v1::RewindMode::Atomic.into(), None)
    );
}
