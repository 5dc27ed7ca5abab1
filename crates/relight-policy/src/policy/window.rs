//! Whether a conversation fits the context window of a model, judged by its bytes before it is sent.
//!
//! Providers count tokens, and each model counts them otherwise. So the bytes of a token are assumed
//! at first, and corrected by the usage that comes back. A target is passed over only if a prompt
//! surely does not fit: half as many tokens again must not be an error of the estimate.

use crate::domain::{
    message::{Message, ModelCall, Part},
    target::Dialect,
};

/// Bytes of a token that are assumed of most models.
const USUAL_BYTES: f64 = 4.0;
/// The same of Anthropic's models, whose tokens are shorter.
const ANTHROPIC_BYTES: f64 = 3.5;
/// Factor by which tokens may be longer than assumed, while no usage is known.
const ASSUMED_MARGIN: f64 = 3.0;
/// Factor by which tokens may be longer than known of earlier prompts.
const KNOWN_MARGIN: f64 = 1.5;
/// Prompts of fewer tokens show little: the provider's own words around them are counted, too.
const LEAST_TOKENS: u64 = 256;
/// Weight of the newest prompt.
const NEWEST: f64 = 0.2;
/// Share of the room that a shortened conversation is to take, as the estimate is one.
const FILLED: f64 = 0.9;

/// Bytes of a prompt's token at one target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRatio {
    bytes: f64,
    is_known: bool,
}

// === impl TokenRatio ===

impl TokenRatio {
    /// The ratio that is assumed of targets of a dialect.
    #[must_use]
    pub fn assumed(dialect: Dialect) -> Self {
        let bytes = if matches!(dialect, Dialect::Anthropic | Dialect::Bedrock) {
            ANTHROPIC_BYTES
        } else {
            USUAL_BYTES
        };
        Self {
            bytes,
            is_known: false,
        }
    }

    /// Learns that the provider counted so many tokens in a prompt of so many bytes.
    pub fn learn(&mut self, bytes: u64, tokens: u64) {
        if tokens < LEAST_TOKENS || bytes == 0 {
            return;
        }
        let counted = float(bytes) / float(tokens);
        self.bytes = if self.is_known {
            self.bytes + NEWEST * (counted - self.bytes)
        } else {
            counted
        };
        self.is_known = true;
    }

    /// Returns about how many tokens a prompt of so many bytes has.
    #[must_use]
    pub fn tokens(self, bytes: u64) -> u64 {
        whole(float(bytes) / self.bytes)
    }

    /// Returns whether a prompt of so many bytes surely has more tokens than the window.
    #[must_use]
    pub fn surely_exceeds(self, bytes: u64, window: u64) -> bool {
        let margin = if self.is_known {
            KNOWN_MARGIN
        } else {
            ASSUMED_MARGIN
        };
        float(bytes) / (self.bytes * margin) > float(window)
    }

    /// Returns the bytes of a prompt that leaves room for an answer of so many tokens in a window.
    #[must_use]
    pub fn room(self, window: u64, answer: u64) -> u64 {
        let tokens = window.saturating_sub(answer.min(window / 2));
        whole(float(tokens) * self.bytes * FILLED)
    }
}

/// Returns the bytes of what a model reads of a call as text; pictures and files are not counted, as
/// their tokens do not follow from their bytes.
#[must_use]
pub fn prompt_bytes(call: &ModelCall) -> u64 {
    let tool = |tool: &crate::domain::message::ToolDefinition| {
        tool.name.len() + tool.description.len() + tool.parameters.len()
    };
    let tools: usize = call.tools.iter().map(tool).sum();
    call.messages.iter().map(message_bytes).sum::<u64>() + tools as u64
}

/// Returns the bytes of what a model reads of a message as text.
#[must_use]
pub fn message_bytes(message: &Message) -> u64 {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::Refusal(text) => text.len(),
        Part::ToolCall(call) => call.name.len() + call.arguments.len(),
        Part::ToolResult(result) => result.content.len(),
        // Models do not read their old reasoning everywhere.
        Part::Reasoning(_) | Part::Image(_) | Part::File(_) => 0,
    };
    message.parts.iter().map(part).sum::<usize>() as u64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an estimate, of far less than 2^52 bytes"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and of far less than 2^52 bytes"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_prompt_that_fits_is_never_surely_too_long_once_its_target_counted_one_of_its_kind(
            bytes_a_token in 1.0f64..12.0, window in 1_000u64..2_000_000, share in 0.01f64..1.0, spread in 0.75f64..1.3,
        ) {
            let mut ratio = TokenRatio::assumed(Dialect::OpenaiChat);
            ratio.learn(whole(1_000_000.0 * bytes_a_token), 1_000_000);
            let fits = whole(float(window) * share * bytes_a_token * spread);
            prop_assert!(!ratio.surely_exceeds(fits, window));
            let room = ratio.room(window, 0);
            prop_assert!(ratio.tokens(room) <= window);
        }

        #[test]
        fn what_is_twice_a_window_is_known_to_be_too_long(bytes_a_token in 1.0f64..12.0, window in 1_000u64..2_000_000) {
            let mut ratio = TokenRatio::assumed(Dialect::Anthropic);
            for _ in 0..3 {
                ratio.learn(whole(10_000.0 * bytes_a_token), 10_000);
            }
            prop_assert!(ratio.surely_exceeds(whole(float(window) * 2.0 * bytes_a_token), window));
        }
    }

    #[test]
    fn an_answer_keeps_its_room_and_short_prompts_teach_nothing() {
        let mut ratio = TokenRatio::assumed(Dialect::OpenaiChat);
        assert_eq!(ratio.room(8_000, 4_000), 14_400);
        assert_eq!(
            ratio.room(8_000, 100_000),
            14_400,
            "half of the window at most"
        );
        ratio.learn(10, 200);
        assert_eq!(ratio, TokenRatio::assumed(Dialect::OpenaiChat));
    }
}
