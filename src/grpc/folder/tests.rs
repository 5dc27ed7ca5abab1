//! The folder accepts what the service's own writer writes, and rejects everything else.

use jiff::Timestamp;

use super::*;
use crate::{
    domain::fold::{hash_blocks, hash_text},
    grpc::{
        convert::{
            outcome::ResponseContext,
            stream::{EventPosition, StreamWriter},
        },
        v1,
    },
};

fn written(steps: &[StreamStep]) -> Vec<v1::StreamEvent> {
    let context = ResponseContext {
        operation: "executor".into(),
        thread: None,
        disposition: v1::RequestDisposition::New,
    };
    let mut writer = StreamWriter::new("i-1".into(), context, 2);
    let event = |(step, seq)| {
        writer
            .step(
                EventPosition {
                    epoch: 1,
                    seq,
                    at: Timestamp::UNIX_EPOCH,
                },
                step,
            )
            .unwrap()
    };
    steps.iter().zip(1..).map(event).collect()
}

fn answer() -> Vec<StreamStep> {
    let start = |block, kind| StreamStep::BlockStart { block, kind };
    let delta = |block, offset, text: &str| StreamStep::BlockDelta {
        block,
        offset,
        text: text.to_owned(),
    };
    let stop = |block, text: &str, committed| {
        let bytes = text.len() as u64;
        let hash = hash_text(text);
        StreamStep::BlockStop {
            block,
            bytes,
            hash,
            opaque: None,
            committed,
        }
    };
    let kept = Block {
        id: 1,
        kind: BlockKind::Text,
        text: "Hel".to_owned(),
        opaque: None,
        stopped: false,
        committed: false,
    };
    let hash = hash_blocks([&kept].into_iter());
    let call = BlockKind::ToolCall {
        id: "c".to_owned(),
        name: "search".to_owned(),
    };
    vec![
        start(1, BlockKind::Text),
        delta(1, 0, "Help"),
        start(2, BlockKind::Reasoning),
        StreamStep::Rewind {
            keep: vec![(1, 3)],
            cause: FailureClass::StreamInterrupted,
            attempt: 1,
            hash,
        },
        delta(1, 3, "lo"),
        stop(1, "Hello", false),
        start(3, call),
        delta(3, 0, "{\"q\":1}"),
        stop(3, "{\"q\":1}", true),
    ]
}

fn folded(events: &[v1::StreamEvent]) -> Result<Folder, Unfit> {
    let mut folder = Folder::default();
    for event in events {
        folder.fold(event)?;
    }
    Ok(folder)
}

#[test]
fn what_the_service_writes_folds_to_what_it_means() {
    let events = written(&answer());
    let folder = folded(&events).unwrap();
    let mut fold = AnswerState::default();
    for step in answer() {
        fold.apply(&step).unwrap();
    }
    assert_eq!(folder.blocks(), fold.blocks());
    assert_eq!(folder.text(), "Hello");
    assert_eq!(folder.cursor(), Some(v1::StreamCursor { epoch: 1, seq: 9 }));
    let rewind = &events[3];
    let delta = &events[4];
    let mut again = folded(&events[..3]).unwrap();
    assert_eq!(again.fold(rewind), Ok(Change::Replaced));
    assert_eq!(
        again.fold(rewind),
        Ok(Change::Nothing),
        "what is held is passed over"
    );
    assert_eq!(again.fold(delta), Ok(Change::Added));
}

#[test]
fn a_lost_event_is_found_out_and_changes_nothing() {
    let events = written(&answer());
    for lost in 0..events.len() - 1 {
        let mut folder = folded(&events[..lost]).unwrap();
        let before = folder.hash();
        let next = &events[lost + 1];
        assert_eq!(
            folder.fold(next),
            Err(Unfit::Gap {
                last: lost as u64,
                got: lost as u64 + 2
            })
        );
        assert_eq!(folder.hash(), before);
    }
}

#[test]
fn whatever_is_changed_on_the_way_is_found_out() {
    let events = written(&answer());
    let changed = |at: usize, change: fn(&mut v1::StreamEvent)| {
        let mut events = events.clone();
        change(&mut events[at]);
        folded(&events).err()
    };
    assert!(
        changed(4, |event| {
            if let Some(Body::BlockDelta(delta)) = &mut event.body {
                delta.text.push('!');
            }
        })
        .is_some()
    );
    assert!(
        changed(3, |event| {
            if let Some(Body::Rewind(rewind)) = &mut event.body {
                rewind.keep[0].length_bytes = 2;
            }
        })
        .is_some()
    );
    assert!(
        changed(5, |event| {
            if let Some(Body::BlockStop(stop)) = &mut event.body {
                stop.length_bytes = 4;
            }
        })
        .is_some()
    );
    assert!(
        changed(8, |event| {
            if let Some(Body::BlockStop(stop)) = &mut event.body {
                stop.arguments_json = Some("{\"q\":2}".to_owned());
            }
        })
        .is_some()
    );
    assert_eq!(
        changed(4, |event| event.epoch = 0),
        Some(Unfit::OldOwner { last: 1, got: 0 })
    );
    assert_eq!(
        changed(4, |event| event.invocation_id.push('!')),
        Some(Unfit::Stranger)
    );
    assert_eq!(
        changed(4, |event| event.body = None),
        Some(Unfit::Malformed("body"))
    );
}

#[test]
fn a_snapshot_takes_the_place_of_what_was_missed() {
    let steps = answer();
    let events = written(&steps);
    let whole = folded(&events).unwrap();
    let context = ResponseContext {
        operation: "executor".into(),
        thread: None,
        disposition: v1::RequestDisposition::New,
    };
    let mut writer = StreamWriter::new("i-1".into(), context, 2);
    writer.restore(whole.blocks().to_vec(), 1);
    let place = EventPosition {
        epoch: 2,
        seq: 9,
        at: Timestamp::UNIX_EPOCH,
    };
    let mut late = folded(&events[..4]).unwrap();
    assert_eq!(late.fold(&writer.snapshot(place)), Ok(Change::Replaced));
    assert_eq!((late.hash(), late.blocks()), (whole.hash(), whole.blocks()));
    assert_eq!(late.cursor(), Some(v1::StreamCursor { epoch: 2, seq: 9 }));
    let mut spoilt = writer.snapshot(place);
    if let Some(Body::Snapshot(snapshot)) = &mut spoilt.body {
        snapshot.blocks[0].text.push('!');
        snapshot.blocks[0].stop = None;
    }
    assert!(late.fold(&spoilt).is_err());
    assert_eq!(late.hash(), whole.hash());
}

#[test]
fn an_end_is_one_only_with_the_hash_of_what_is_held_and_nothing_follows_it() {
    let mut folder = folded(&written(&answer())).unwrap();
    let end = |hash: Vec<u8>, seq| v1::StreamEvent {
        invocation_id: "i-1".to_owned(),
        epoch: 1,
        seq,
        body: Some(Body::Terminal(v1::Terminal {
            result_hash: hash,
            ..v1::Terminal::default()
        })),
        ..v1::StreamEvent::default()
    };
    assert!(folder.fold(&end(vec![0; 32], 10)).is_err() && !folder.has_ended());
    let hash = folder.hash();
    assert_eq!(folder.fold(&end(hash.clone(), 10)), Ok(Change::Ended));
    assert!(folder.has_ended());
    assert_eq!(
        folder.fold(&end(hash, 11)),
        Err(Unfit::Content(FoldError::AfterEnd))
    );
}
