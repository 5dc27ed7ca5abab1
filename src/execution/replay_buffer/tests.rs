//! A reader that joins late, at any step, gets the blocks that a reader from the first step has.

use proptest::prelude::*;

use super::*;
use crate::{domain::clock, execution::tests::steps::steps};

fn entry(seq: u64, step: &StreamStep) -> Entry {
    Entry {
        epoch: 1,
        seq,
        attempt: 1,
        at: clock::wall_now(),
        step: step.clone(),
    }
}

/// Returns the bytes that are kept of what these steps make once they went.
fn folded(buffer: &ReplayBuffer) -> usize {
    buffer
        .state()
        .gone
        .blocks()
        .iter()
        .map(|block| block.text.len())
        .sum()
}

/// Publishes a text of a thousand words; `after_each` gets the number of each of its steps.
fn publish_words(buffer: &ReplayBuffer, mut after_each: impl FnMut(u64)) {
    let kind = crate::domain::completion::BlockKind::Text;
    buffer.publish([entry(1, &StreamStep::BlockStart { block: 1, kind })]);
    for seq in 0..1000 {
        let delta = StreamStep::BlockDelta {
            block: 1,
            offset: seq * 5,
            text: "word ".to_owned(),
        };
        buffer.publish([entry(seq + 2, &delta)]);
        after_each(seq + 2);
    }
    assert_eq!(buffer.whole().unwrap().blocks[0].text, "word ".repeat(1000));
}

/// Returns the number of steps that a reader finds after those it has; `None` if some are gone.
fn found(buffer: &ReplayBuffer, reader: FollowerPlace, has: u64) -> Option<usize> {
    match buffer.after(reader, has, usize::MAX) {
        ReadResult::Steps(steps) => Some(steps.len()),
        ReadResult::Behind | ReadResult::Ahead => None,
    }
}

#[test]
fn no_text_is_copied_while_every_step_is_held() {
    let buffer = ReplayBuffer::new(1 << 20, true, 0, 0, Vec::new());
    let reader = buffer.join();
    publish_words(&buffer, |seq| {
        buffer.recorded(seq);
        assert_eq!(found(&buffer, reader, seq), Some(0));
    });
    assert_eq!(folded(&buffer), 0);
    assert_eq!(found(&buffer, reader, 0), Some(1001));
}

#[test]
fn what_all_readers_have_is_dropped_if_nobody_may_come_back() {
    let buffer = ReplayBuffer::new(1 << 20, false, 0, 0, Vec::new());
    let quick = buffer.join();
    publish_words(&buffer, |seq| {
        assert_eq!(found(&buffer, quick, seq), Some(0));
        assert!(buffer.held().1 <= KEPT_WHEN_TAKEN);
    });
    assert_eq!(found(&buffer, quick, 0), None);

    let buffer = ReplayBuffer::new(1 << 20, false, 0, 0, Vec::new());
    let [quick, slow] = [buffer.join(), buffer.join()];
    publish_words(&buffer, |seq| {
        assert_eq!(found(&buffer, quick, seq), Some(0));
    });
    assert_eq!(found(&buffer, slow, 0), Some(1001));
    buffer.leave(slow);
    assert!(buffer.held().1 <= KEPT_WHEN_TAKEN);
    assert_eq!(found(&buffer, buffer.join(), 1001), Some(0));
}

proptest! {
    /// Whatever is held, and however much of it the journal has: all blocks at once, and the steps
    /// after them, are what the steps from the first one make.
    #[test]
    fn a_reader_that_joins_late_gets_the_blocks_of_one_from_the_start(
        steps in steps(),
        kept in 0_usize..30_000,
        lag in 0_u64..40,
        read_each in prop::option::of(1_u64..20),
        before in 0_usize..20,
    ) {
        // An earlier owner published the first steps.
        let (earlier, steps) = steps.split_at(before.min(steps.len()));
        let mut reader = AnswerState::default();
        for step in earlier {
            reader.apply(step).unwrap();
        }
        let base = earlier.len() as u64;
        let buffer = ReplayBuffer::new(kept, read_each.is_none(), base, 7, reader.blocks().to_vec());
        let other = buffer.join();
        prop_assert!(buffer.whole().is_none());
        let mut attempt = 7;
        let mut joined = Vec::new();
        for (seq, step) in (base + 1..).zip(steps) {
            buffer.publish([entry(seq, step)]);
            buffer.recorded(seq.saturating_sub(lag));
            reader.apply(step).unwrap();
            if let StreamStep::AttemptStarted { attempt: number, .. } = step {
                attempt = *number;
            }
            if read_each.is_some_and(|each| seq.is_multiple_of(each)) {
                buffer.after(other, seq, usize::MAX);
            }
            let whole = buffer.whole().unwrap();
            prop_assert_eq!(&whole.blocks[..], reader.blocks());
            prop_assert_eq!((whole.attempt, whole.last.seq), (attempt, seq));
            joined.push(whole);
        }
        for whole in joined {
            let late = buffer.join();
            let ReadResult::Steps(rest) = buffer.after(late, whole.last.seq, usize::MAX) else { continue };
            let mut late = AnswerState::default();
            late.restore(whole.blocks);
            for entry in rest {
                late.apply(&entry.step).unwrap();
            }
            prop_assert_eq!(late.blocks(), reader.blocks());
        }
    }
}
