//! What is written of a block is what its end says of it.

use proptest::prelude::*;

use super::*;
use crate::domain::fold::AnswerState;

fn piece() -> impl Strategy<Value = AnswerPiece> {
    let opaque = || Opaque {
        kind: "test.signature".to_owned(),
        bytes: vec![1],
    };
    ("[abß ]{0,6}", 0..6).prop_map(move |(text, kind)| match kind {
        0 => AnswerPiece::Reasoning(text),
        1 => AnswerPiece::Refusal(text),
        2 => AnswerPiece::Signed(opaque()),
        3 => AnswerPiece::SignedAnew(text, opaque()),
        4 => AnswerPiece::ToolCall(seam::SentCall {
            id: "call".to_owned(),
            name: "search".to_owned(),
            arguments: text,
            opaque: None,
        }),
        _ => AnswerPiece::Text(text),
    })
}

proptest! {
    /// Lengths, offsets and hashes fit, also where another owner continues what the first one
    /// wrote.
    #[test]
    fn what_is_written_folds_where_another_owner_continues_it(pieces in prop::collection::vec(piece(), 0..20), owned in 0_usize..20) {
        let mut writer = BlockWriter::default();
        let mut fold = AnswerState::default();
        for (index, piece) in pieces.into_iter().enumerate() {
            if index == owned {
                writer = BlockWriter::after(fold.blocks());
            }
            for step in writer.write(piece) {
                prop_assert_eq!(fold.apply(&step), Ok(()));
            }
        }
        for step in writer.close() {
            prop_assert_eq!(fold.apply(&step), Ok(()));
        }
        prop_assert!(fold.blocks().iter().all(|block| block.stopped));
    }
}
