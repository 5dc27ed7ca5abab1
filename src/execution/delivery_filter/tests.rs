//! What is emitted, and when, in each mode; and that it always folds.

use std::sync::Arc;

use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation as _;

use super::*;
use crate::{
    domain::{
        completion::{Completion, FinishReason, Usage},
        failure::{Failure, FailureClass},
        fold::{AnswerState, hash_blocks, hash_text},
        ids::InvocationId,
        invocation::Outcome,
        message::{Message, Role},
    },
    execution::{run::failed, tests::steps::steps_of_layers},
};

fn start(block: u32) -> StreamStep {
    StreamStep::BlockStart {
        block,
        kind: BlockKind::Text,
    }
}

fn delta(block: u32, offset: u64, text: &str) -> StreamStep {
    StreamStep::BlockDelta {
        block,
        offset,
        text: text.to_owned(),
    }
}

fn stop(block: u32, text: &str) -> StreamStep {
    let bytes = text.len() as u64;
    let hash = hash_text(text);
    StreamStep::BlockStop {
        block,
        bytes,
        hash,
        opaque: None,
        committed: true,
    }
}

fn rewind() -> StreamStep {
    let hash = hash_blocks(std::iter::empty());
    StreamStep::Rewind {
        keep: Vec::new(),
        cause: FailureClass::StreamInterrupted,
        attempt: 1,
        hash,
    }
}

/// Returns the end of an invocation, well or not.
fn end(well: bool) -> StreamStep {
    let outcome = failed(
        &InvocationId::mint(),
        Failure::local(FailureClass::Overloaded, "busy"),
        "",
    );
    let completion = Completion {
        message: Message::text(Role::Assistant, ""),
        finish: FinishReason::Stop,
        finish_raw: String::new(),
        model: String::new(),
        response_id: None,
        usage: Usage::default(),
        around: None,
        tool_output: None,
    };
    let result = if well { Ok(completion) } else { outcome.result };
    StreamStep::Terminal(Arc::new(Outcome { result, ..outcome }))
}

fn play(mode: RewindMode, steps: Vec<StreamStep>) -> Vec<StreamStep> {
    play_after(mode, Vec::new(), steps).0
}

/// What is emitted of these steps behind these blocks, and all blocks that were emitted then.
fn play_after(
    mode: RewindMode,
    before: Vec<Block>,
    steps: Vec<StreamStep>,
) -> (Vec<StreamStep>, Vec<Block>) {
    let mut filter = DeliveryFilter::new(mode, &before);
    let mut made = AnswerState::default();
    let mut fold = AnswerState::default();
    made.restore(before.clone());
    fold.restore(before);
    let mut out = Vec::new();
    for step in steps {
        made.apply(&step).unwrap();
        for step in filter.pass(step) {
            // What is emitted always folds.
            if !matches!(step, StreamStep::Terminal(_)) {
                fold.apply(&step).unwrap();
            }
            out.push(step);
        }
        for block in fold.blocks() {
            let made = made
                .blocks()
                .iter()
                .find(|made| made.id == block.id)
                .unwrap();
            assert!(
                made.text.starts_with(&block.text),
                "{block:?} is no prefix of {made:?}"
            );
        }
    }
    (out, fold.into_blocks())
}

fn text_of(steps: &[StreamStep]) -> String {
    let texts = steps.iter().map(|step| match step {
        StreamStep::BlockDelta { text, .. } => text.as_str(),
        _ => "",
    });
    texts.collect()
}

#[test]
fn rewind_emits_everything_as_it_comes() {
    let steps = vec![
        start(1),
        delta(1, 0, "ab"),
        delta(1, 2, "cd"),
        stop(1, "abcd"),
    ];
    assert_eq!(play(RewindMode::Rewind, steps.clone()), steps);
    let steps = vec![start(1), delta(1, 0, "ab"), rewind()];
    assert_eq!(play(RewindMode::Rewind, steps.clone()), steps);
}

#[test]
fn holdback_keeps_the_last_bytes_until_the_block_ends() {
    let mode = RewindMode::HoldBack { bytes: 3 };
    let steps = play(mode, vec![start(1), delta(1, 0, "ab"), delta(1, 2, "cde")]);
    assert_eq!(text_of(&steps), "ab");
    let steps = play(mode, vec![start(1), delta(1, 0, "abcde"), stop(1, "abcde")]);
    assert_eq!(text_of(&steps), "abcde");
    let steps = play(mode, vec![start(1), delta(1, 0, "abe\u{301}f")]);
    assert_eq!(text_of(&steps), "ab", "a grapheme is held back whole");
}

#[test]
fn what_was_held_back_needs_no_rewind() {
    for mode in [
        RewindMode::HoldBack { bytes: 8 },
        RewindMode::HoldBack { bytes: 0 },
        RewindMode::Atomic,
    ] {
        assert_eq!(play(mode, vec![start(1), delta(1, 0, "abc"), rewind()]), []);
    }
    let steps = play(
        RewindMode::HoldBack { bytes: 2 },
        vec![start(1), delta(1, 0, "abc"), rewind()],
    );
    assert!(
        matches!(&steps[..], [.., StreamStep::Rewind { keep, .. }] if keep.is_empty()),
        "{steps:?}"
    );
}

#[test]
fn atomic_emits_a_block_whole_and_only_with_the_answer() {
    let steps = vec![start(1), delta(1, 0, "abc"), stop(1, "abc")];
    assert_eq!(play(RewindMode::Atomic, steps), []);
}

#[test]
fn a_tool_call_s_end_waits_for_the_answer_in_every_mode() {
    let call = StreamStep::BlockStart {
        block: 1,
        kind: BlockKind::ToolCall {
            id: "c".to_owned(),
            name: "search".to_owned(),
        },
    };
    for mode in [
        RewindMode::Rewind,
        RewindMode::HoldBack { bytes: 0 },
        RewindMode::Atomic,
    ] {
        let steps = play(mode, vec![call.clone(), delta(1, 0, "{}"), stop(1, "{}")]);
        assert!(
            !steps
                .iter()
                .any(|step| matches!(step, StreamStep::BlockStop { .. })),
            "{mode:?}: {steps:?}"
        );
    }
}

#[test]
fn no_delta_is_longer_than_its_bound() {
    let long = "naïve 👩\u{200d}👩\u{200d}👧 ".repeat(4000);
    let steps = play(RewindMode::Rewind, vec![start(1), delta(1, 0, &long)]);
    assert!(steps.len() > 5);
    assert_eq!(text_of(&steps), long);
    for step in &steps {
        if let StreamStep::BlockDelta { text, .. } = step {
            assert!(text.len() <= MAX_DELTA_BYTES);
            assert!(
                !text.starts_with('\u{200d}'),
                "a piece begins inside a grapheme"
            );
        }
    }
}

proptest! {
    #[test]
    fn a_text_is_cut_where_a_grapheme_ends_as_late_as_the_bound_allows(
        text in "([a-e]|\\r|\\n|e\u{301}|\u{1f469}|\u{200d}|\u{1f1e9}){0,24}",
        bound in 0_usize..200,
    ) {
        let ends = text.grapheme_indices(true).map(|(start, piece)| start + piece.len());
        let last = ends.take_while(|end| *end <= bound).last().unwrap_or(0);
        prop_assert_eq!(whole_graphemes(&text, bound), last);
    }

    /// Whatever was made, taken back and made anew, in every mode and behind what an earlier owner
    /// emitted.
    #[test]
    fn what_was_emitted_is_a_prefix_of_the_answer_and_all_of_it_at_a_good_end(
        steps in steps_of_layers(),
        mode in prop_oneof![
            Just(RewindMode::Rewind),
            (0_u64..9).prop_map(|bytes| RewindMode::HoldBack { bytes }),
            Just(RewindMode::Atomic),
            Just(RewindMode::AppendOnly),
        ],
        before in 0_usize..20,
        well in any::<bool>(),
    ) {
        let (earlier, steps) = steps.split_at(before.min(steps.len()));
        let mut made = AnswerState::default();
        for step in earlier {
            made.apply(step).unwrap();
        }
        let before = made.blocks().to_vec();
        for step in steps {
            made.apply(step).unwrap();
        }
        let all = steps.iter().cloned().chain([end(well)]).collect();
        let (_, mut sent) = play_after(mode, before, all);
        if well {
            sent.sort_by_key(|block| block.id);
            let mut made = made.into_blocks();
            made.sort_by_key(|block| block.id);
            prop_assert_eq!(sent, made);
        }
    }
}
