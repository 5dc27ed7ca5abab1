//! Recognises a chunk that differs from an earlier one of its stream in nothing but its piece of
//! text, so that it need not be parsed: servers write most chunks of a completion alike.

use super::{
    chunk::{Chunk, ChunkChoice, Piece},
    json::needs_escape,
};

/// Text around the text in the last chunk that held a piece of text and nothing else.
#[derive(Debug, Default)]
pub(super) struct RepeatedChunk {
    before: String,
    after: String,
    index: Option<u64>,
}

// === impl RepeatedChunk ===

impl RepeatedChunk {
    /// Returns the chunk, recognised or parsed; `None` if it has other than the usual fields.
    pub(super) fn read<'a>(&mut self, data: &'a str) -> Option<Chunk<'a>> {
        self.recognise(data).or_else(|| {
            let chunk = Chunk::usual(data)?;
            self.remember(data, &chunk);
            Some(chunk)
        })
    }

    /// Keeps what is around the text of this chunk, if all else in it is of no account after the
    /// first one.
    fn remember(&mut self, data: &str, chunk: &Chunk<'_>) {
        let [
            ChunkChoice {
                index,
                finish_reason: None,
                piece: Some(piece),
            },
        ] = chunk.choices.as_slice()
        else {
            return;
        };
        let has_text_only = *piece
            == Piece {
                content: piece.content.clone(),
                ..Piece::default()
            };
        if chunk.usage.is_some() || !has_text_only || piece.content.is_empty() {
            return;
        }
        // A text with an escape is not borrowed from the chunk, and is not found in it.
        let Some(start) = piece
            .content
            .as_ptr()
            .addr()
            .checked_sub(data.as_ptr().addr())
        else {
            return;
        };
        let end = start + piece.content.len();
        if data.get(start..end) != Some(&piece.content) {
            return;
        }
        data[..start].clone_into(&mut self.before);
        data[end..].clone_into(&mut self.after);
        self.index = *index;
    }

    /// Returns the chunk, if it is the remembered one with another text that has no escape.
    fn recognise<'a>(&self, data: &'a str) -> Option<Chunk<'a>> {
        let text = data.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        if self.after.is_empty() || text.bytes().any(needs_escape) {
            return None;
        }
        let piece = Piece {
            content: text.into(),
            ..Piece::default()
        };
        let choice = ChunkChoice {
            index: self.index,
            finish_reason: None,
            piece: Some(piece),
        };
        Some(Chunk {
            has_choices: true,
            choices: vec![choice],
            ..Chunk::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn chunk(text: &str) -> String {
        let choice = json!({"index": 0, "delta": {"content": text}, "logprobs": null, "finish_reason": null});
        json!({"id": "c-1", "choices": [choice], "created": 1, "model": "m"}).to_string()
    }

    fn remembered(data: &str) -> RepeatedChunk {
        let mut repeated = RepeatedChunk::default();
        repeated.remember(data, &Chunk::usual(data).unwrap());
        repeated
    }

    #[test]
    fn a_chunk_with_another_text_is_recognised_and_others_are_parsed() {
        let repeated = remembered(&chunk("Hello"));
        for known in ["", "x", "Hello", " wörld, {}[]:"] {
            assert!(repeated.recognise(&chunk(known)).is_some(), "{known}");
        }
        let others = [
            chunk("a\nb"),
            chunk("a\"b"),
            chunk("a\\"),
            chunk("Hello").replace("null}", "\"stop\"}"),
            chunk("Hello").replace("c-1", "c-2"),
            chunk("Hello").replace("}]", "]"),
            String::new(),
            "[DONE]".to_owned(),
        ];
        for other in others {
            assert_eq!(repeated.recognise(&other), None, "{other}");
        }
        assert_eq!(
            RepeatedChunk::default().recognise(&chunk("Hello")),
            None,
            "nothing is remembered"
        );
    }

    #[test]
    fn what_holds_more_than_a_text_is_not_remembered() {
        let usage = r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
        let others = [
            usage,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a","reasoning":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a\n"}}]}"#,
            r#"{"choices":[{"delta":{"content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#,
            r#"{"choices":[]}"#,
        ];
        for data in others {
            assert_eq!(remembered(data).recognise(data), None, "{data}");
        }
    }

    proptest! {
        #[test]
        fn what_is_recognised_is_what_parsing_it_gives(first in ".{0,9}", then in "[\\x00-\\x7f]{0,9}|.{0,9}") {
            let data = chunk(&then);
            if let Some(recognised) = remembered(&chunk(&first)).recognise(&data) {
                let parsed = Chunk::usual(&data).unwrap();
                prop_assert_eq!(recognised.choices, parsed.choices);
            }
        }

        #[test]
        fn a_text_that_is_no_json_text_is_not_recognised(middle in "[\\x00-\\x7f]{0,9}") {
            let data = chunk("@").replace('@', &middle);
            if let Some(recognised) = remembered(&chunk("Hello")).recognise(&data) {
                let parsed = Chunk::usual(&data).unwrap();
                prop_assert_eq!(recognised.choices, parsed.choices);
            }
        }
    }
}
