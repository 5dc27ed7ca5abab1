//! Whatever happens upstream, a reader holds one completion of one model, or gets an error.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::domain::{
    failure::FailureClass,
    fold::{hash_blocks, hash_text},
};

/// Plays attempts into a seam, as the engine would.
struct Play {
    seam: AppendOnlyAnswer,
    text: String,
    sent: Vec<AnswerPiece>,
    /// The texts of all blocks.
    read: HashMap<u32, String>,
    next: u32,
}

impl Play {
    fn new(hold_back: HoldBack) -> Self {
        Self {
            seam: AppendOnlyAnswer::new(hold_back),
            text: String::new(),
            sent: Vec::new(),
            read: HashMap::new(),
            next: 0,
        }
    }

    fn step(&mut self, step: &StreamStep) -> Result<(), Diverged> {
        let pieces = self.seam.step(step)?;
        self.take(pieces);
        Ok(())
    }

    fn take(&mut self, pieces: Vec<AnswerPiece>) {
        for piece in &pieces {
            if let AnswerPiece::Text(text) = piece {
                self.text.push_str(text);
            }
        }
        self.sent.extend(pieces);
    }

    fn start(&mut self, kind: BlockKind) -> u32 {
        self.next += 1;
        self.step(&StreamStep::BlockStart {
            block: self.next,
            kind,
        })
        .unwrap();
        self.next
    }

    fn say(&mut self, block: u32, text: &str) -> Result<(), Diverged> {
        let read = self.read.entry(block).or_default();
        let offset = read.len() as u64;
        read.push_str(text);
        self.step(&StreamStep::BlockDelta {
            block,
            offset,
            text: text.to_owned(),
        })
    }

    fn stop(&mut self, block: u32) -> Result<(), Diverged> {
        let text = self.read.entry(block).or_default().clone();
        let hash = hash_text(&text);
        self.step(&StreamStep::BlockStop {
            block,
            bytes: text.len() as u64,
            hash,
            opaque: None,
            committed: true,
        })
    }

    /// Plays a whole block.
    fn block(&mut self, kind: BlockKind, text: &str) -> Result<(), Diverged> {
        let block = self.start(kind);
        self.say(block, text)?;
        self.stop(block)
    }

    fn rewind(&mut self) -> Result<(), Diverged> {
        let hash = hash_blocks(std::iter::empty());
        self.step(&StreamStep::Rewind {
            keep: Vec::new(),
            cause: FailureClass::StreamInterrupted,
            attempt: 1,
            hash,
        })
    }

    fn finish(&mut self) -> Result<(), Diverged> {
        let pieces = self.seam.finish()?;
        self.take(pieces);
        Ok(())
    }
}

fn call(id: &str) -> BlockKind {
    BlockKind::ToolCall {
        id: id.to_owned(),
        name: "add".to_owned(),
    }
}

#[test]
fn a_restart_that_repeats_what_was_sent_goes_on_without_a_seam() {
    let mut play = Play::new(HoldBack::Off);
    let block = play.start(BlockKind::Text);
    play.say(block, "One two ").unwrap();
    play.rewind().unwrap();
    let block = play.start(BlockKind::Text);
    for piece in ["One", " tw", "o th", "ree"] {
        play.say(block, piece).unwrap();
    }
    play.finish().unwrap();
    assert_eq!(play.text, "One two three");
}

#[test]
fn texts_stay_apart_and_an_end_that_was_sent_is_not_sent_again() {
    let mut play = Play::new(HoldBack::Off);
    play.block(BlockKind::Text, "One. ").unwrap();
    play.block(BlockKind::Text, "Two. ").unwrap();
    play.rewind().unwrap();
    for text in ["One. ", "Two. ", "", "Three."] {
        play.block(BlockKind::Text, text).unwrap();
    }
    play.finish().unwrap();
    let text = |text: &str| AnswerPiece::Text(text.to_owned());
    let end = AnswerPiece::TextEnd;
    let expected = [
        text("One. "),
        end.clone(),
        text("Two. "),
        end,
        text("Three."),
    ];
    assert_eq!(play.sent, expected);
}

#[test]
fn another_text_is_noticed_at_once_and_a_shorter_one_at_its_end() {
    let mut play = Play::new(HoldBack::Off);
    play.block(BlockKind::Text, "One two").unwrap();
    play.rewind().unwrap();
    let block = play.start(BlockKind::Text);
    play.say(block, "One").unwrap();
    assert_eq!(play.seam.sent_text(), "One two");
    assert_eq!(
        play.seam.finish(),
        Err(Diverged),
        "the sent text is longer than the answer"
    );
    assert_eq!(play.say(block, " six"), Err(Diverged));
    assert_eq!(play.text, "One two", "nothing of the other text was sent");
}

#[test]
fn what_is_held_back_may_come_out_otherwise_after_a_restart() {
    let mut play = Play::new(HoldBack::Bytes(4));
    play.block(BlockKind::Text, "One two").unwrap();
    assert_eq!(play.text, "One");
    play.rewind().unwrap();
    play.block(BlockKind::Text, "One six").unwrap();
    play.finish().unwrap();
    assert_eq!(play.text, "One six");
}

#[test]
fn an_answer_that_is_held_back_whole_is_sent_at_its_end_alone() {
    let mut play = Play::new(HoldBack::Whole);
    play.block(BlockKind::Text, "One").unwrap();
    play.rewind().unwrap();
    play.block(BlockKind::Text, "Two").unwrap();
    assert_eq!(play.sent, []);
    play.finish().unwrap();
    assert_eq!(play.sent, [AnswerPiece::Text("Two".to_owned())]);
}

#[test]
fn a_tool_call_is_sent_when_it_is_whole_and_keeps_the_id_that_was_sent() {
    let mut play = Play::new(HoldBack::Off);
    play.block(call("a"), "{\"x\": 1}").unwrap();
    let open = play.start(call("b"));
    play.say(open, "{\"x\":").unwrap();
    let whole = SentCall {
        id: "a".to_owned(),
        name: "add".to_owned(),
        arguments: "{\"x\": 1}".to_owned(),
        opaque: None,
    };
    assert_eq!(play.sent, [AnswerPiece::ToolCall(whole)]);
    play.rewind().unwrap();
    play.block(call("c"), "{\"x\":1}").unwrap();
    play.block(call("d"), "{\"x\":2}").unwrap();
    play.finish().unwrap();
    assert_eq!(
        play.sent.len(),
        2,
        "the first call was sent already: {:?}",
        play.sent
    );
    assert!(matches!(&play.sent[1], AnswerPiece::ToolCall(second) if second.id == "d"));
}

#[test]
fn another_tool_call_than_the_one_that_was_sent_is_another_answer() {
    let mut play = Play::new(HoldBack::Off);
    play.block(call("a"), "{\"x\":1}").unwrap();
    play.rewind().unwrap();
    assert_eq!(play.seam.finish(), Err(Diverged), "the call is missing");
    assert_eq!(play.block(call("b"), "{\"x\":2}"), Err(Diverged));
}

#[test]
fn other_reasoning_is_left_out_and_the_answer_goes_on() {
    let mut play = Play::new(HoldBack::Off);
    play.block(BlockKind::Reasoning, "Hm.").unwrap();
    play.rewind().unwrap();
    play.block(BlockKind::Reasoning, "Well.").unwrap();
    play.block(BlockKind::Text, "Yes").unwrap();
    play.finish().unwrap();
    assert_eq!(
        play.sent,
        [
            AnswerPiece::Reasoning("Hm.".to_owned()),
            AnswerPiece::Text("Yes".to_owned())
        ]
    );
}

#[test]
fn a_block_that_grows_before_another_of_its_kind_is_sent_as_it_came_or_is_another_answer() {
    let mut play = Play::new(HoldBack::Whole);
    let first = play.start(BlockKind::Text);
    let second = play.start(BlockKind::Text);
    play.say(first, "One ").unwrap();
    play.say(second, "three").unwrap();
    play.say(first, "two ").unwrap();
    play.finish().unwrap();
    assert_eq!(play.text, "One two three");
    let mut play = Play::new(HoldBack::Off);
    let first = play.start(BlockKind::Text);
    let second = play.start(BlockKind::Text);
    play.say(second, "three").unwrap();
    assert_eq!(
        play.say(first, "One "),
        Err(Diverged),
        "the text behind it was sent"
    );
}

#[test]
fn reasoning_is_sent_with_what_its_provider_needs_back_once() {
    let signature = |bytes: &[u8]| Opaque {
        kind: "anthropic.signature".to_owned(),
        bytes: bytes.to_vec(),
    };
    let mut play = Play::new(HoldBack::Bytes(64));
    let signed = |play: &mut Play, text: &str, bytes: &[u8]| {
        let block = play.start(BlockKind::Reasoning);
        play.say(block, text).unwrap();
        let hash = hash_text(text);
        let opaque = Some(signature(bytes));
        let stop = StreamStep::BlockStop {
            block,
            bytes: text.len() as u64,
            hash,
            opaque,
            committed: true,
        };
        play.step(&stop).unwrap();
    };
    signed(&mut play, "Hm.", b"a");
    let first = [
        AnswerPiece::Reasoning("Hm.".to_owned()),
        AnswerPiece::Signed(signature(b"a")),
    ];
    assert_eq!(
        play.sent, first,
        "what is held back of other texts is not held back of this one"
    );
    play.rewind().unwrap();
    signed(&mut play, "Hm.", b"b");
    assert_eq!(
        play.sent.len(),
        2,
        "the same reasoning is signed already: {:?}",
        play.sent
    );
    play.rewind().unwrap();
    signed(&mut play, "Well.", b"c");
    assert_eq!(
        play.sent[2..],
        [AnswerPiece::SignedAnew("Well.".to_owned(), signature(b"c"))]
    );
}

proptest! {
    /// Any number of attempts that break anywhere, with any pace and any hold-back: what was sent
    /// is the last attempt's answer, or the seam says that it is not, and then it sent the
    /// beginning of one of them.
    #[test]
    fn what_is_sent_is_the_last_answer_or_a_divergence_is_told(
        attempts in prop::collection::vec(("[abß]{0,12}", 1_usize..5), 1..5),
        hold_back in prop_oneof![Just(HoldBack::Off), Just(HoldBack::Whole), (1_u64..6).prop_map(HoldBack::Bytes)],
    ) {
        let mut play = Play::new(hold_back);
        let mut diverged = false;
        for (index, (text, pace)) in attempts.iter().enumerate() {
            diverged = diverged || (index > 0 && play.rewind().is_err());
            let block = play.start_or_none(diverged);
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(*pace) {
                let piece: String = piece.iter().collect();
                diverged = diverged || block.is_some_and(|block| play.say(block, &piece).is_err());
            }
        }
        diverged = diverged || play.finish().is_err();
        let texts: Vec<&str> = attempts.iter().map(|(text, _)| text.as_str()).collect();
        if diverged {
            prop_assert!(texts.iter().any(|text| text.starts_with(&play.text)), "{:?} of {texts:?}", play.text);
        } else {
            prop_assert_eq!(Some(&play.text.as_str()), texts.last());
        }
    }
}

impl Play {
    fn start_or_none(&mut self, diverged: bool) -> Option<u32> {
        (!diverged).then(|| self.start(BlockKind::Text))
    }
}
