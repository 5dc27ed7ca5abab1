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

#[test]
fn no_text_is_copied_while_every_step_is_held() {
    let buffer = ReplayBuffer::new(1 << 20, 0, 0, Vec::new());
    let kind = crate::domain::completion::BlockKind::Text;
    buffer.publish([entry(1, &StreamStep::BlockStart { block: 1, kind })]);
    for seq in 0..1000 {
        let delta = StreamStep::BlockDelta {
            block: 1,
            offset: seq * 5,
            text: "word ".to_owned(),
        };
        buffer.publish([entry(seq + 2, &delta)]);
        buffer.recorded(seq + 2);
    }
    assert_eq!(folded(&buffer), 0);
    assert_eq!(buffer.whole().unwrap().blocks[0].text, "word ".repeat(1000));
}

proptest! {
    /// Whatever is held, and however much of it the journal has: all blocks at once, and the steps
    /// after them, are what the steps from the first one make.
    #[test]
    fn a_reader_that_joins_late_gets_the_blocks_of_one_from_the_start(
        steps in steps(),
        kept in 0_usize..4000,
        lag in 0_u64..40,
        before in 0_usize..20,
    ) {
        // An earlier owner published the first steps.
        let (earlier, steps) = steps.split_at(before.min(steps.len()));
        let mut reader = AnswerState::default();
        for step in earlier {
            reader.apply(step).unwrap();
        }
        let base = earlier.len() as u64;
        let buffer = ReplayBuffer::new(kept, base, 7, reader.blocks().to_vec());
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
            let whole = buffer.whole().unwrap();
            prop_assert_eq!(&whole.blocks[..], reader.blocks());
            prop_assert_eq!((whole.attempt, whole.last.seq), (attempt, seq));
            joined.push(whole);
        }
        for whole in joined {
            let ReadResult::Steps(rest) = buffer.after(whole.last.seq, usize::MAX) else { continue };
            let mut late = AnswerState::default();
            late.restore(whole.blocks);
            for entry in rest {
                late.apply(&entry.step).unwrap();
            }
            prop_assert_eq!(late.blocks(), reader.blocks());
        }
    }
}
