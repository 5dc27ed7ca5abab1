//! Random steps that fit each other, as the layers below send them.

use proptest::prelude::*;

use crate::domain::{
    completion::BlockKind,
    failure::FailureClass,
    fold::{AnswerState, Block, StreamStep, hash_blocks, hash_text},
    ids::TargetId,
    invocation::AttemptCause,
    message::Opaque,
};

/// Steps of several attempts with blocks that grow side by side, stop, and are taken back wholly or
/// in part.
pub(in crate::execution) fn steps() -> impl Strategy<Value = Vec<StreamStep>> {
    steps_where(true)
}

/// Returns the same, but what is taken back is taken back whole, as the layers do.
pub(in crate::execution) fn steps_of_layers() -> impl Strategy<Value = Vec<StreamStep>> {
    steps_where(false)
}

fn steps_where(rewinds_keep: bool) -> impl Strategy<Value = Vec<StreamStep>> {
    let choice = (
        0_u8..12,
        "[abe\u{301}ß 👩\u{200d}]{0,12}",
        any::<prop::sample::Index>(),
    );
    prop::collection::vec(choice, 0..60).prop_map(move |choices| {
        let mut fold = AnswerState::default();
        let mut out = Vec::new();
        let mut begun = 0;
        for (choice, text, index) in choices {
            let kept = if rewinds_keep { fold.blocks() } else { &[] };
            let step = if choice == 4 {
                Some(rewind(kept, &text, index))
            } else {
                step(fold.blocks(), choice, text, index, &mut begun)
            };
            let Some(step) = step else { continue };
            fold.apply(&step).unwrap();
            out.push(step);
        }
        out
    })
}

/// Returns a rewind that keeps some of these blocks, the last of them in part.
fn rewind(blocks: &[Block], text: &str, index: prop::sample::Index) -> StreamStep {
    let mut kept: Vec<Block> = blocks[..index.index(blocks.len() + 1)].to_vec();
    if let Some(last) = kept.last_mut() {
        last.text
            .truncate(last.text.floor_char_boundary(text.len()));
    }
    let keep = kept
        .iter()
        .map(|block| (block.id, block.text.len() as u64))
        .collect();
    StreamStep::Rewind {
        keep,
        cause: FailureClass::StreamInterrupted,
        attempt: 1,
        hash: hash_blocks(kept.iter()),
    }
}

/// Returns a step that fits these blocks, of which so many were begun; `None` if the choice fits
/// none.
fn step(
    blocks: &[Block],
    choice: u8,
    text: String,
    index: prop::sample::Index,
    begun: &mut u32,
) -> Option<StreamStep> {
    let open: Vec<&Block> = blocks.iter().filter(|block| !block.stopped).collect();
    let chosen = (!open.is_empty()).then(|| open[index.index(open.len())]);
    Some(match choice {
        0 | 1 => {
            *begun += 1;
            let kind = match index.index(4) {
                0 => BlockKind::ToolCall {
                    id: format!("call-{begun}"),
                    name: "search".to_owned(),
                },
                1 => BlockKind::Reasoning,
                _ => BlockKind::Text,
            };
            StreamStep::BlockStart {
                block: *begun,
                kind,
            }
        }
        2 | 3 => {
            let block = chosen?;
            let opaque = (block.kind == BlockKind::Reasoning).then(|| Opaque {
                kind: "test.signature".to_owned(),
                bytes: text.into_bytes(),
            });
            StreamStep::BlockStop {
                block: block.id,
                bytes: block.text.len() as u64,
                hash: hash_text(&block.text),
                opaque,
                committed: true,
            }
        }
        5 => StreamStep::AttemptStarted {
            attempt: 1 + u32::try_from(text.len()).unwrap(),
            target: TargetId::from("main"),
            cause: AttemptCause::Initial,
            model: String::new(),
            repaired: None,
            tool: None,
        },
        _ => {
            let block = chosen?;
            StreamStep::BlockDelta {
                block: block.id,
                offset: block.text.len() as u64,
                text,
            }
        }
    })
}
