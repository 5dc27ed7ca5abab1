//! One stream from many attempts: what is repeated continues, what differs is revoked, nothing is
//! cut in two.

use super::*;

fn text(block: u32) -> Delta {
    Delta::BlockStart {
        block,
        kind: BlockKind::Text,
    }
}

fn add(block: u32, text: &str) -> Delta {
    Delta::BlockDelta {
        block,
        text: text.to_owned(),
    }
}

fn finish() -> Delta {
    Delta::Finish {
        reason: FinishReason::Stop,
        raw: "stop".to_owned(),
    }
}

fn play(assembler: &mut DeltaAssembler, attempt: u32, deltas: Vec<Delta>) -> Vec<StreamStep> {
    deltas
        .into_iter()
        .flat_map(|delta| assembler.push(attempt, delta))
        .collect()
}

fn rewinds(steps: &[StreamStep]) -> usize {
    steps
        .iter()
        .filter(|step| matches!(step, StreamStep::Rewind { .. }))
        .count()
}

/// What a follower holds after these steps.
fn folded(steps: &[StreamStep]) -> AnswerState {
    let mut fold = AnswerState::default();
    for step in steps {
        fold.apply(step).unwrap();
    }
    fold
}

fn broken_then(second: Vec<Delta>) -> Vec<StreamStep> {
    let mut assembler = DeltaAssembler::default();
    let mut steps = play(
        &mut assembler,
        1,
        vec![text(0), add(0, "Once upon"), add(0, " a time.")],
    );
    steps.extend(assembler.abandon(1, FailureClass::StreamInterrupted, true));
    assembler.begin_attempt();
    steps.extend(play(&mut assembler, 2, second));
    assert_eq!(folded(&steps).message(), assembler.message());
    steps
}

#[test]
fn a_text_that_is_repeated_word_for_word_goes_on_without_a_rewind() {
    let steps = broken_then(vec![
        text(0),
        add(0, "Once"),
        add(0, " upon a time. The"),
        add(0, " end."),
        finish(),
    ]);
    assert_eq!(rewinds(&steps), 0);
    assert_eq!(
        folded(&steps).message().joined_text(),
        "Once upon a time. The end."
    );
}

#[test]
fn a_text_that_differs_is_taken_back_and_sent_anew() {
    for second in ["Once upon another time.", "Twice.", "Once"] {
        let steps = broken_then(vec![text(0), add(0, second), finish()]);
        assert_eq!(rewinds(&steps), 1, "{second}");
        assert_eq!(folded(&steps).message().joined_text(), second);
    }
}

#[test]
fn an_answer_that_holds_no_text_takes_the_old_one_back() {
    let steps = broken_then(vec![finish()]);
    assert_eq!(rewinds(&steps), 1);
    assert!(folded(&steps).blocks().is_empty());
    let call = Delta::BlockStart {
        block: 0,
        kind: BlockKind::Reasoning,
    };
    let steps = broken_then(vec![call, add(0, "Hm."), finish()]);
    assert_eq!(rewinds(&steps), 1);
}

#[test]
fn what_is_not_a_single_text_is_taken_back_at_once() {
    let mut assembler = DeltaAssembler::default();
    let reasoning = Delta::BlockStart {
        block: 0,
        kind: BlockKind::Reasoning,
    };
    play(&mut assembler, 1, vec![reasoning, add(0, "Let me see.")]);
    assert_eq!(
        rewinds(&assembler.abandon(1, FailureClass::StreamInterrupted, true)),
        1
    );
    let mut assembler = DeltaAssembler::default();
    play(&mut assembler, 1, vec![text(0), add(0, "{\"a\":1")]);
    assert_eq!(
        rewinds(&assembler.abandon(1, FailureClass::StreamInterrupted, false)),
        1,
        "structured output"
    );
}

#[test]
fn a_tool_call_is_committed_with_the_answer_and_not_before() {
    let mut assembler = DeltaAssembler::default();
    let call = BlockKind::ToolCall {
        id: "c1".to_owned(),
        name: "search".to_owned(),
    };
    let steps = play(
        &mut assembler,
        1,
        vec![
            Delta::BlockStart {
                block: 0,
                kind: call,
            },
            add(0, "{\"q\":1}"),
            Delta::BlockStop {
                block: 0,
                opaque: None,
            },
            finish(),
        ],
    );
    assert!(
        !steps
            .iter()
            .any(|step| matches!(step, StreamStep::BlockStop { .. })),
        "{steps:?}"
    );
    let committed = assembler.commit();
    assert!(
        matches!(
            committed[..],
            [StreamStep::BlockStop {
                committed: true,
                ..
            }]
        ),
        "{committed:?}"
    );
    assert!(assembler.commit().is_empty());
}

#[test]
fn no_delta_ends_inside_a_grapheme_however_it_is_cut() {
    use unicode_segmentation::UnicodeSegmentation as _;
    let whole = "Cafe\u{301} 👩\u{200d}👩\u{200d}👧 नमस्ते 🇳🇴\r\nend";
    let ends: Vec<usize> = whole
        .grapheme_indices(true)
        .map(|(start, piece)| start + piece.len())
        .collect();
    for cut in whole.char_indices().map(|(at, _)| at) {
        let mut assembler = DeltaAssembler::default();
        let deltas = vec![
            text(0),
            add(0, &whole[..cut]),
            add(0, &whole[cut..]),
            finish(),
        ];
        for step in play(&mut assembler, 1, deltas) {
            if let StreamStep::BlockDelta { offset, text, .. } = step {
                let end = usize::try_from(offset).unwrap() + text.len();
                assert!(ends.contains(&end), "cut at {cut}: a delta ends at {end}");
            }
        }
        assert_eq!(assembler.message().joined_text(), whole);
    }
}

#[test]
fn an_earlier_owner_s_text_stands_until_the_next_attempt_is_seen() {
    let held = Block {
        id: 4,
        kind: BlockKind::Text,
        text: "Once upon".to_owned(),
        opaque: None,
        stopped: false,
        committed: false,
    };
    let mut assembler = DeltaAssembler::after(vec![held.clone()], 4);
    assert!(
        assembler
            .abandon(1, FailureClass::StreamInterrupted, true)
            .is_empty()
    );
    assembler.begin_attempt();
    let steps = play(
        &mut assembler,
        2,
        vec![text(0), add(0, "Once upon a time."), finish()],
    );
    let mut fold = AnswerState::default();
    fold.restore(vec![held]);
    for step in &steps {
        fold.apply(step).unwrap();
    }
    assert_eq!(fold.message().joined_text(), "Once upon a time.");
    assert_eq!(rewinds(&steps), 0);
}

#[test]
fn a_broken_answer_that_stands_is_told_to_its_last_character() {
    let mut assembler = DeltaAssembler::default();
    let mut steps = play(&mut assembler, 1, vec![text(0), add(0, "One two ")]);
    assert_eq!(folded(&steps).message().joined_text(), "One two");
    steps.extend(assembler.flush());
    assert_eq!(folded(&steps).message().joined_text(), "One two ");
}
