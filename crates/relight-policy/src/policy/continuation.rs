//! Continues a long text that was cut, if possible, instead of generating it again from its
//! beginning.
//!
//! A target that supports prefill gets the text so far as the begun assistant message. If the
//! caller allows it, any other is prompted to continue, and its repetition of the end is removed,
//! but only if the repetition is unmistakable. With tools on offer and for structured output
//! nothing is continued: half of a call or of a document cannot be.

mod stitch;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{
    completion::{BlockKind, FinishReason},
    fold::Block,
    message::{Message, ModelCall, ResponseFormat, Role},
    target::Capabilities,
};

pub use self::stitch::{ContinuationStitcher, Stitched};

/// A shorter text is made again: that costs little, and may well come out the same.
pub const LONG_TEXT_BYTES: usize = 256;

/// A repetition is removed only if it has at least so many bytes and words.
const OVERLAP_BYTES: usize = 16;
const OVERLAP_WORDS: usize = 3;

/// Part of a completion that is searched for a repetition, in bytes.
const LOOK_BYTES: usize = 400;

/// Number of times that a completion that its output limit cut is continued.
pub const MAX_EXTENSIONS: usize = 3;

/// Number of times that one invocation recovers from a break after content was delivered.
pub const MAX_BREAKS: usize = 3;

/// The prompt to a model that does not support prefill.
const PROMPT: &str = "Your last message broke off. Go on with it exactly where it ends. Do not repeat any of it, and \
                      do not comment on this.";

/// Treatment of a completion that its output limit cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLength {
    /// It is passed on as it is.
    Accept,
    /// It is continued.
    #[default]
    Continue,
    /// It is made again, with a note to be shorter.
    Shorten,
}

/// Way to continue a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By an assistant message that the request begins.
    Prefill,
    /// By a prompt to continue.
    Prompt,
}

/// Returns the way in which a target continues `held`; `None` if the completion is generated again.
#[must_use]
pub fn way(
    held: &str,
    call: &ModelCall,
    capabilities: &Capabilities,
    prompt_allowed: bool,
) -> Option<Way> {
    let text_alone = call.tools.is_empty() && call.response_format == ResponseFormat::Text;
    if held.len() < LONG_TEXT_BYTES || !text_alone {
        return None;
    }
    // A prefill that ends in whitespace is rejected by some and misread by others.
    if capabilities.assistant_prefill && !held.ends_with(char::is_whitespace) {
        return Some(Way::Prefill);
    }
    prompt_allowed.then_some(Way::Prompt)
}

/// Returns the one text block that the model's own output limit cut; `None` if there is anything
/// else. Only it may be continued or requested again.
#[must_use]
pub fn cut_off<'a>(
    blocks: &'a [Block],
    finish: FinishReason,
    call: &ModelCall,
) -> Option<&'a Block> {
    // A limit of the caller's own is what the caller wants.
    let by_the_model = finish == FinishReason::Length && call.max_output_tokens.is_none();
    let text_alone = call.tools.is_empty() && call.response_format == ResponseFormat::Text;
    match blocks {
        [only] if by_the_model && text_alone && only.kind == BlockKind::Text => Some(only),
        [] | [_, ..] => None,
    }
}

/// Returns the request that continues `held`.
#[must_use]
pub fn request(call: &ModelCall, held: &str, way: Way) -> ModelCall {
    let mut call = call.clone();
    call.messages.push(Message::text(Role::Assistant, held));
    match way {
        Way::Prefill => {}
        Way::Prompt => call.messages.push(Message::text(Role::User, PROMPT)),
    }
    call
}

/// Returns the number of bytes at the start of `more` that unmistakably repeat the end of `held`; 0
/// if it continues properly.
#[must_use]
pub fn overlap(held: &str, more: &str) -> usize {
    let mut ends = more.char_indices().map(|(at, c)| at + c.len_utf8());
    let longest = ends.rfind(|end| held.ends_with(&more[..*end])).unwrap_or(0);
    let words = more[..longest].split_whitespace().count();
    if longest >= OVERLAP_BYTES && words >= OVERLAP_WORDS {
        longest
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::ToolDefinition;

    fn able() -> Capabilities {
        Capabilities {
            assistant_prefill: true,
            ..Capabilities::default()
        }
    }

    fn long() -> String {
        "A sentence of a long text. "
            .repeat(20)
            .trim_end()
            .to_owned()
    }

    #[test]
    fn a_long_text_is_gone_on_with_where_the_target_can_or_the_caller_allows_it() {
        let call = ModelCall::default();
        let unable = Capabilities {
            assistant_prefill: false,
            ..able()
        };
        assert_eq!(way(&long(), &call, &able(), false), Some(Way::Prefill));
        assert_eq!(way(&long(), &call, &unable, false), None);
        assert_eq!(way(&long(), &call, &unable, true), Some(Way::Prompt));
        assert_eq!(way("A short text.", &call, &able(), true), None);
        assert_eq!(
            way(&"x".repeat(LONG_TEXT_BYTES - 1), &call, &able(), true),
            None
        );
        assert_eq!(
            way(&"x".repeat(LONG_TEXT_BYTES), &call, &able(), true),
            Some(Way::Prefill)
        );
        assert_eq!(
            way(&format!("{} ", long()), &call, &able(), false),
            None,
            "a blank at the end"
        );
    }

    #[test]
    fn neither_tools_nor_structured_output_are_gone_on_with() {
        let tool = ToolDefinition {
            name: "t".into(),
            description: String::new(),
            parameters: "{}".into(),
            ..ToolDefinition::default()
        };
        let tools = ModelCall {
            tools: vec![tool],
            ..ModelCall::default()
        };
        let json = ModelCall {
            response_format: ResponseFormat::JsonObject,
            ..ModelCall::default()
        };
        assert_eq!(way(&long(), &tools, &able(), true), None);
        assert_eq!(way(&long(), &json, &able(), true), None);
    }

    #[test]
    fn only_text_alone_that_the_models_own_limit_cut_is_cut_off() {
        let block = |kind| Block {
            id: 0,
            kind,
            text: long(),
            opaque: None,
            stopped: true,
            committed: true,
        };
        let text = block(BlockKind::Text);
        let thought = block(BlockKind::Reasoning);
        let tool = ToolDefinition {
            name: "t".into(),
            description: String::new(),
            parameters: "{}".into(),
            ..ToolDefinition::default()
        };
        let call = ModelCall::default();
        let one = std::slice::from_ref(&text);
        assert_eq!(cut_off(one, FinishReason::Length, &call), Some(&text));
        assert_eq!(
            cut_off(one, FinishReason::Stop, &call),
            None,
            "it ended by itself"
        );
        for other in [
            ModelCall {
                max_output_tokens: Some(9),
                ..call.clone()
            },
            ModelCall {
                tools: vec![tool],
                ..call.clone()
            },
            ModelCall {
                response_format: ResponseFormat::JsonObject,
                ..call.clone()
            },
        ] {
            assert_eq!(
                cut_off(one, FinishReason::Length, &other),
                None,
                "{other:?}"
            );
        }
        for blocks in [vec![], vec![thought.clone()], vec![thought, text]] {
            assert_eq!(
                cut_off(&blocks, FinishReason::Length, &call),
                None,
                "{blocks:?}"
            );
        }
    }

    #[test]
    fn only_an_unmistakable_repetition_at_the_cut_is_left_out() {
        let held = "It was the best of times, it was the worst of times";
        assert_eq!(
            overlap(held, "it was the worst of times, it was"),
            "it was the worst of times".len()
        );
        assert_eq!(
            overlap(held, "it was the worst of times"),
            "it was the worst of times".len(),
            "and nothing more"
        );
        assert_eq!(
            overlap("Wir müssen über die Brücke", "über die Brücke"),
            "über die Brücke".len()
        );
        assert_eq!(overlap(held, ", it was the age"), 0, "it goes on");
        assert_eq!(overlap(held, "of times, it"), 0, "two words may be chance");
        assert_eq!(
            overlap(held, "It was the best of times"),
            0,
            "not at the cut"
        );
        assert_eq!(
            overlap("xxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxx"),
            0,
            "one word"
        );
    }

    #[test]
    fn the_begun_message_comes_last_or_before_the_prompt_to_continue() {
        let call = ModelCall {
            messages: vec![Message::text(Role::User, "Tell.")],
            ..ModelCall::default()
        };
        let roles = |way| {
            request(&call, "Once", way)
                .messages
                .iter()
                .map(|message| message.role)
                .collect::<Vec<_>>()
        };
        assert_eq!(roles(Way::Prefill), [Role::User, Role::Assistant]);
        assert_eq!(
            roles(Way::Prompt),
            [Role::User, Role::Assistant, Role::User]
        );
    }
}
